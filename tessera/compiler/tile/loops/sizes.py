"""Sizes from which on a CPU sorts lines, and multiplies matrices, in another way."""

from __future__ import annotations

import math

from tessera.language.dims import Dim

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
SELECTED = 2048
"""the fewest elements of lines of which the first few are selected before they are sorted"""
ALONE = 1 << 15
"""bytes of the words of a line from which on that takes less time than to sort lines side by side"""
SAMPLED = 64
"""One in so many elements of a line, and 256 at least, says below which bound its first few are looked for."""


def sample_of(n: Dim, first: Dim) -> tuple[int, int] | None:
    """How many elements of a line of `n` are looked at before its `first` are sorted, and which of these in order
    bounds what is taken: three standard deviations more than are wanted. None where that is too much of the line."""
    if not isinstance(n, int) or not isinstance(first, int) or n < SELECTED:
        return None
    size = min(max(1 << (n // SAMPLED).bit_length(), 256), 2048)
    expected = first * size / n
    rank = math.ceil(expected + 3 * math.sqrt(expected)) + 3
    return (size, rank) if 3 * rank < size else None
