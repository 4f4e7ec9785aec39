"""Products with vectors, which transpose squares of a matrix in registers."""
