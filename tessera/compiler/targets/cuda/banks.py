"""Shared-memory bank conflicts, found from a tile's layout alone.

Shared memory has 32 banks of 4 bytes. Lanes of a warp that want different words of one bank are served one after
another: the degree of an access is the most such words, 1 where there is no conflict. Accesses of 8 and 16 bytes per
lane are served by halves and quarters of a warp (CUDA C++ Programming Guide, shared memory). The mirror of `Shared` in
include/tessera/shared.cuh and of the operand loads in mma.cuh.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

BANKS, WORD, PIECE = 32, 4, 16


def degree(addresses: Sequence[int], size: int) -> int:
    """The most words of one bank that lanes of one pass want. `addresses`: bytes, per lane; `size` bytes each."""
    lanes = max(1, min(len(addresses), BANKS * WORD // size))
    worst = 1
    for first in range(0, len(addresses), lanes):
        words: dict[int, set[int]] = defaultdict(set)
        for address in addresses[first : first + lanes]:
            for word in range(address // WORD, -(-(address + size) // WORD)):
                words[word % BANKS].add(word)
        worst = max(worst, *map(len, words.values()))
    return worst


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """How a matrix lies in shared memory: rows one after another, pieces of 16 bytes swapped within groups of rows."""

    rows: int
    cols: int
    itemsize: int

    @property
    def piece(self) -> int:
        return PIECE // self.itemsize

    @property
    def pieces(self) -> int:
        return self.cols // self.piece

    @property
    def swizzled(self) -> bool:
        return self.cols % self.piece == 0 and self.pieces > 1 and not self.pieces & (self.pieces - 1)

    def address(self, row: int, col: int) -> int:
        """The byte of an element."""
        if not self.swizzled:
            return (row * self.cols + col) * self.itemsize
        spread = min(8, self.pieces)
        group = row // (8 // spread) % spread
        turned = col // self.piece ^ (group * 2 % spread + group * 2 // spread)
        return (row * self.cols + turned * self.piece + col % self.piece) * self.itemsize

    def operand_degree(self, left: bool, transposed: bool) -> int:
        """The worst conflict of one tensor-core operand load: ldmatrix where the layout allows it, else words."""
        return max(degree(a, size) for a, size in self._operand(left, transposed))

    def copy_degree(self) -> int:
        """The worst conflict of the copies that fill it, neighbouring lanes at neighbouring pieces."""
        if self.cols % self.piece:
            lanes = [self.address(i // self.cols, i % self.cols) for i in range(min(32, self.rows * self.cols))]
            return degree(lanes, self.itemsize)
        places = [(i // self.pieces % self.rows, i % self.pieces * self.piece) for i in range(32)]
        return degree([self.address(r, c) for r, c in places], PIECE)

    def describe(self) -> str:
        """For people."""
        if not self.swizzled:
            return f"{self.rows}x{self.cols}, rows one after another"
        spread = min(8, self.pieces)
        return f"{self.rows}x{self.cols}, 16-byte pieces swapped by xor over {spread} pieces of a row"

    def _operand(self, left: bool, transposed: bool) -> list[tuple[list[int], int]]:
        """(byte per lane, bytes per lane) of each pass of an operand's load (mma.cuh, load_a and load_b)."""
        across = transposed == left  # k runs down the stored matrix
        if self.swizzled and (self.itemsize == 2 or not across):
            # Four 8x8 matrices, one row of 16 bytes to each lane: the eight rows of each are served together.
            return [
                ([self.address(m // 2 * 8 % self.rows + r, self._column(m)) for r in range(8)], PIECE) for m in range(4)
            ]
        per = WORD // self.itemsize
        out: list[tuple[list[int], int]] = []
        for h in range(per if across else 1):
            places = [((lane % 4 * per + h), lane // 4) for lane in range(32)]
            at = [self.address(k, i) if across else self.address(i, k) for k, i in places]
            out.append((at, self.itemsize if across else WORD))
        return out

    def _column(self, matrix: int) -> int:
        return matrix % 2 * self.piece % self.cols
