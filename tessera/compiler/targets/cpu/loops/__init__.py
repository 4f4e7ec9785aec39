"""Elementwise code, reductions and copies as nests of loops."""
