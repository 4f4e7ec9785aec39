"""Sizes from which on a CPU sorts lines, and multiplies matrices, in another way."""

from __future__ import annotations

TOGETHER = 16384
"""the most elements of lines that are sorted one per lane"""
FEW = 128
"""the same where most lanes have none"""
HEIGHT = 512
"""words of a column of a line that is sorted by itself: from here on a merge takes less time than another doubling of
the network"""
SMALL = 1 << 21
"""multiplications of a product that is not worth packing"""
