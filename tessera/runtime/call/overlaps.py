"""Arrays of a launch that must not share memory: what is stored to lies apart from all else that the launch takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

LISTED = 32
"""pairs that are compared one by one; where there are more, the arrays are gone through by address"""


class Extent(NamedTuple):
    """An array that the code takes as it is: its slot, its size in bytes, and whether it is stored to."""

    slot: int
    bytes: int
    stored: bool


class ArrayPair(NamedTuple):
    """Two arrays, the first of which is stored to. `in_place`: they may be one and the same."""

    written: Extent
    other: Extent
    in_place: bool


class Overlaps:
    """`extents`: the arrays, in the order of the parameters; `same`: slots of two that may be one and the same array,
    that which is stored to first. Only what is stored to is compared, with all others: a step that changes hundreds of
    arrays has a hundred thousand such pairs."""

    def __init__(self, extents: Sequence[Extent], same: frozenset[tuple[int, int]]) -> None:
        stored = sum(e.stored for e in extents)
        count = stored * (len(extents) - 1) - stored * (stored - 1) // 2
        self.extents = tuple(extents) if count else ()
        self.same = same
        self._order = [tuple(e) for e in self.extents]
        """by address in the last call: in the next one it is much the same, and soon sorted"""
        self.listed: tuple[ArrayPair, ...] = tuple(self.pairs()) if count <= LISTED else ()
        """all pairs, if they are few"""

    def pairs(self) -> Iterator[ArrayPair]:
        for w in self.extents:
            for o in self.extents if w.stored else ():
                if o is not w and not (o.stored and o.slot < w.slot):
                    yield ArrayPair(w, o, (w.slot, o.slot) in self.same)

    def crowded(self, pointers: Sequence[int]) -> bool:
        """Whether an array that is stored to shares memory with another one, in place or not."""
        order = self._order = sorted(self._order, key=lambda row: pointers[row[0]])
        end = stored_end = 0
        for i, size, stored in order:
            address = pointers[i]
            if address < (end if stored else stored_end):
                return True
            if stored:
                end = stored_end = address + size
            elif address + size > end:
                end = address + size
        return False

    def found(self, pointers: Sequence[int]) -> ArrayPair | None:
        """The first pair that shares memory in a way that has no meaning."""
        if not self.listed and not self.crowded(pointers):
            return None
        for pair in self.listed or self.pairs():
            w, o = pointers[pair.written.slot], pointers[pair.other.slot]
            if w < o + pair.other.bytes and o < w + pair.written.bytes and not (pair.in_place and w == o):
                return pair
        return None
