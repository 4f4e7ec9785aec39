"""Bytes of whole columns: numbers as decimals or varints, texts of a table, joined row by row.

A million rows that are formatted one by one take seconds in Python. Here a column is a matrix of bytes with a mask of
those that count. Matrices are put side by side, and the mask picks the bytes of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tessera.language.lazy import np

_ROWS = 8192
"""of a block: so many are quickest, because their matrix stays in the cache"""
_MOST = 1 << 25
"""bytes of a block's matrix, where texts are long"""


class Cells(NamedTuple):
    """A column: row i has the bytes `cells[i][used[i]]`, `lengths[i]` of them. What rows share stands in it once."""

    cells: np.ndarray
    used: np.ndarray
    lengths: np.ndarray


def constant(content: bytes) -> Cells:
    """The same bytes in each row."""
    return Cells(np.frombuffer(content, np.uint8)[None], np.ones((1, 1), bool), np.array([len(content)]))


def where(chosen: np.ndarray, part: Cells) -> Cells:
    """`part` in the chosen rows, nothing in the others."""
    return Cells(part.cells, part.used & chosen[:, None], np.where(chosen, part.lengths, 0))


def decimal(values: np.ndarray, least: int = 1) -> Cells:
    """Whole numbers of at least so many digits."""
    size = np.abs(values.astype(np.int64)).view(np.uint64)  # of the least int64, too
    width = max(least, len(str(int(size.max(initial=0)))))
    if width < 10:
        size = size.astype(np.uint32)  # divided twice as quickly
    negative = bool((values < 0).any())
    cells = np.empty((len(values), width + negative), np.uint8)
    used = np.ones(cells.shape, bool)
    for at in range(width - 1 + negative, negative - 1, -1):
        rest = size // 10
        cells[:, at] = size - rest * 10 + ord("0")
        if at < width + negative - least:
            used[:, at] = size > 0
        size = rest
    if negative:
        cells[:, 0], used[:, 0] = ord("-"), values < 0
    return Cells(cells, used, used.sum(1))


def thousandths(values: np.ndarray) -> list[Cells]:
    """Whole numbers over a thousand, with three decimals."""
    cells, used, lengths = decimal(values, 4)
    return [
        Cells(cells[:, :-3], used[:, :-3], lengths - 3),
        constant(b"."),
        Cells(cells[:, -3:], used[:, -3:], np.array([3])),
    ]


def varint(values: np.ndarray) -> Cells:
    """Seven bits at a time, the lowest first; a negative number as its 64-bit complement."""
    left = values.astype(np.int64).view(np.uint64)
    width = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    cells = np.empty((len(values), width), np.uint8)
    used = np.ones(cells.shape, bool)
    for at in range(width):
        used[:, at] = (left > 0) if at else True
        rest = left >> np.uint64(7)
        cells[:, at] = (left & np.uint64(0x7F)).astype(np.uint8) | ((rest > 0).view(np.uint8) << 7)
        left = rest
    return Cells(cells, used, used.sum(1))


def fixed64(values: np.ndarray) -> Cells:
    """Eight bytes, the lowest first."""
    cells = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)
    return Cells(cells, np.ones((1, 1), bool), np.array([8]))


class Texts:
    """Texts by number."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = texts
        self.lengths = np.array([len(content) for content in texts], np.int64)

    def of(self, which: np.ndarray) -> Cells:
        """The text of each row."""
        found, row = np.unique(which, return_inverse=True)
        lengths = self.lengths[found]
        used = np.arange(lengths.max(initial=0)) < lengths[:, None]
        cells = np.zeros(used.shape, np.uint8)
        cells[used] = np.frombuffer(b"".join([self.texts[i] for i in found.tolist()]), np.uint8)
        return Cells(cells[row], used[row], lengths[row])


def lengths(parts: Sequence[Cells]) -> np.ndarray:
    """Bytes of each row."""
    return sum((part.lengths for part in parts), np.zeros(1, np.int64))


def joined(count: int, parts: Sequence[Cells]) -> bytes:
    """The rows of a block, one after the other, each of its parts in order."""
    cells = np.empty((count, sum(part.cells.shape[1] for part in parts)), np.uint8)
    used = np.empty(cells.shape, bool)
    at = 0
    for part in parts:
        end = at + part.cells.shape[1]
        cells[:, at:end], used[:, at:end] = part.cells, part.used
        at = end
    return cells[used].tobytes()


def blocks(widths: np.ndarray) -> Iterator[slice]:
    """Rows that are joined at a time; `widths`: how long the texts of each row are."""
    first = 0
    while first < len(widths):
        rows = _ROWS
        while rows > 1 and rows * int(widths[first : first + rows].max()) > _MOST:
            rows //= 2
        yield slice(first, min(first + rows, len(widths)))
        first += rows
