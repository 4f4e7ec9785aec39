"""Arrays of NumPy, CuPy, PyTorch and others, and the memory that they live in."""
