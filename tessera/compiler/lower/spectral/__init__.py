"""Kernels of Fourier transforms."""
