"""Statements of derived kernels, written otherwise: with fewer turned tiles, in one loop for two."""
