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
NEAR = 1 << 10
"""steps of k up to which larger ones need not be packed either, where vectors are long: a block of the right operand's
columns then stays in a core's own caches while all rows of the left one are multiplied"""
SPREAD = 3 << 19
"""bytes of memory over which lines of an operand that is read in place are spread at most, if they do not follow one
another: more pages than that are not found quickly"""
