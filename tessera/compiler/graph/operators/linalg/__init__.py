"""Linear algebra, `ts.linalg`: kernels in tiles compute factors and solutions, the rest is made of these."""
