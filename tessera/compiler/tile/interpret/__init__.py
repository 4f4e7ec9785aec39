"""What tile programs mean, executed with NumPy: the reference target runs on this."""
