"""Discrete Fourier transforms: the transform itself, and the tables of roots of unity that it and its kin read."""
