"""What the notebook's session holds: its functions and kernels, what is known of each, and how pages are told of it."""
