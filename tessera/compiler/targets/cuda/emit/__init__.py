"""Tile IR as CUDA C++."""
