"""The order of the programs of a launch: by number, the last axis fastest, or in groups of rows.

In a group of rows programs run down the first column, then down the second one, and so on, so that all of them share
the columns' operands and each row's are soon read again. Which program runs when changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod


def in_order(grid: Sequence[int], grouped: int | None) -> Iterator[int]:
    """The numbers of the programs, as they run."""
    for n in range(prod(grid)):
        if grouped is None:
            yield n
            continue
        *_, down, across = grid
        matrix, within = divmod(n, down * across)
        first = within // (grouped * across) * grouped
        column, row = divmod(within - first * across, min(down - first, grouped))
        yield matrix * down * across + (first + row) * across + column
