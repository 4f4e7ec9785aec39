"""Tile IR: block programs over tile values, and the passes on them."""
