"""Panels of matrices, packed for products in registers."""
