"""Shared-memory bank conflicts: where a tile is in shared memory, which threads read and write it, and the swizzle
that avoids conflicts.

Shared memory has 32 banks of 4 bytes. Lanes of a warp that want different words of one bank are served one after
another: the degree of an access is the most such words, 1 where there is no conflict. Accesses of 8 and 16 bytes per
lane are served by halves and quarters of a warp (CUDA C++ Programming Guide, shared memory). The mirror of `Shared` in
include/tessera/shared.cuh and of the accesses there, in mma.cuh and in mma_sm70.cuh.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from tessera.compiler.targets.cuda.layouts.layout import AxisLayout, Layout
from tessera.immutable import immutable

BANKS, WORD, PIECE = 32, 4, 16
SWIZZLES = (0, 32, 64, 128)
"""Bytes of a row within which pieces may change places."""

Instruction = tuple[list[tuple[int, int]], int]
"""An access of a warp: (row, column) for each lane, and the number of elements from there."""


def degree(addresses: Sequence[int], size: int) -> int:
    """Words of the busiest bank that lanes of one pass read. `addresses`: bytes, per lane; `size` bytes each."""
    lanes = max(1, min(len(addresses), BANKS * WORD // size))
    worst = 1
    for first in range(0, len(addresses), lanes):
        words: dict[int, set[int]] = defaultdict(set)
        for address in addresses[first : first + lanes]:
            for word in range(address // WORD, -(-(address + size) // WORD)):
                words[word % BANKS].add(word)
        worst = max(worst, *map(len, words.values()))
    return worst


@immutable
class SharedLayout:
    """A matrix in shared memory: rows one after another, pieces of 16 bytes swapped within `swizzle` bytes."""

    rows: int
    cols: int
    itemsize: int
    swizzle: int = 0

    @property
    def piece(self) -> int:
        return PIECE // self.itemsize

    @property
    def whole(self) -> bool:
        """Whether a row consists of whole pieces."""
        return self.cols % self.piece == 0

    def address(self, row: int, col: int) -> int:
        """The byte of an element."""
        if self.swizzle:
            spread, pieces = self.swizzle // PIECE, self.cols // self.piece
            group = row // (8 // math.gcd(pieces, 8)) % spread
            turned = col // self.piece ^ (group * 2 % spread + group * 2 // spread)
            col = turned * self.piece + col % self.piece
        return (row * self.cols + col) * self.itemsize

    def degree(self, access: Access) -> int:
        """The worst conflict of one access."""
        found = access.instructions(self)
        return max((degree([self.address(*p) for p in places], n * self.itemsize) for places, n in found), default=1)

    def describe(self) -> str:
        """For people."""
        how = f"16-byte pieces swapped by xor within {self.swizzle} bytes" if self.swizzle else "rows one after another"
        return f"{self.rows}x{self.cols}, {how}"


@immutable
class Copied:
    """Filled from memory, neighbouring lanes at neighbouring pieces."""

    verb = "copied"

    def instructions(self, s: SharedLayout) -> Iterator[Instruction]:
        step = s.piece if s.whole else 1
        lanes = range(0, min(32 * step, s.rows * s.cols), step)
        yield [(i // s.cols, i % s.cols) for i in lanes], step


@immutable
class RegisterAccess:
    """Stored from, or loaded into, the registers of a layout: by the first warp, whose pattern the others repeat."""

    layout: Layout
    verb: str

    def instructions(self, s: SharedLayout) -> Iterator[Instruction]:
        row, col = self.layout.row, self.layout.col
        v = self.layout.vector
        if s.piece % v or s.cols % v or col.extent != s.cols or not s.whole:
            v = 1
        for r in range(min(row.registers, 8)):
            for c in range(0, min(col.registers, 8 * v), v):
                at = [(row.position(r, lane), col.position(c, lane)) for lane in range(32)]
                flat = [i * col.extent + j for i, j in at if i < row.extent and j + v <= col.extent]
                if flat:
                    yield [(p // s.cols, p % s.cols) for p in flat], v


def _matrices(s: SharedLayout) -> Iterator[Instruction]:
    """Four 8x8 matrices, one row of 16 bytes to each lane: the eight rows of each are served together."""
    for m in range(4):
        yield [(m // 2 * 8 % s.rows + r, m % 2 * s.piece % s.cols) for r in range(8)], s.piece


@immutable
class Matrices:
    """Stored by stmatrix, rows or columns of an accumulator along the rows of the tile."""

    verb = "stored"

    def instructions(self, s: SharedLayout) -> Iterator[Instruction]:
        return _matrices(s)


@immutable
class MmaAccess:
    """The left or right operand of mma.m16n8: by ldmatrix where the tile allows it, else by words."""

    left: bool
    transposed: bool
    verb = "multiplied"

    def instructions(self, s: SharedLayout) -> Iterator[Instruction]:
        across = self.transposed == self.left  # k runs down the stored matrix
        if s.whole and (s.itemsize == 2 or (s.itemsize < 8 and not across)):
            yield from _matrices(s)
            return
        per = max(1, WORD // s.itemsize)
        for h in range(per):
            at = [(lane // 4, lane % 4 * per + h) for lane in range(32)]
            yield [(k, i) if across else (i, k) for i, k in at], 1


@immutable
class QuarterOperand:
    """An operand of sm_70's mma.m8n8k4: eight values of k, or four rows (columns), to each lane."""

    left: bool
    transposed: bool
    verb = "multiplied"

    def instructions(self, s: SharedLayout) -> Iterator[Instruction]:
        if self.transposed == self.left:  # k runs down the stored matrix
            first = [lane // 4 * 4 if self.left else lane // 16 * 4 for lane in range(32)]
            yield [(lane % 4, first[lane] % s.cols) for lane in range(32)], 4
        else:
            row = [lane if self.left else lane // 16 * 4 + lane % 4 for lane in range(32)]
            yield [(r % s.rows, 0) for r in row], 8


@immutable
class ChainOperand:
    """An operand of chains of fused multiply-adds: one element a lane, of the rows (columns) that it holds."""

    axis: AxisLayout
    inside: bool
    """whether k runs along the stored rows"""
    verb = "multiplied"

    def instructions(self, s: SharedLayout) -> Iterator[Instruction]:
        for r in range(min(self.axis.registers, 8)):
            held = [p for lane in range(32) if (p := self.axis.position(r, lane)) < self.axis.extent]
            if held:
                yield [(p, 0) if self.inside else (0, p) for p in held], 1


Access = Copied | RegisterAccess | Matrices | MmaAccess | QuarterOperand | ChainOperand


@lru_cache(maxsize=1024)
def choose(plain: SharedLayout, accesses: frozenset[Access]) -> SharedLayout:
    """The layout whose worst conflict among `accesses` is least, then that with the fewest altogether, then the one
    that swaps least."""
    row = plain.cols * plain.itemsize
    fitting = [replace(plain, swizzle=n) for n in SWIZZLES if n == 0 or (plain.whole and row % n == 0)]

    def conflicts(s: SharedLayout) -> tuple[int, int, int]:
        degrees = [s.degree(a) for a in accesses] or [1]
        return max(degrees), sum(degrees), s.swizzle

    return min(fitting, key=conflicts)


def conflicts(s: SharedLayout, accesses: frozenset[Access]) -> str:
    """For people: which accesses conflict, and how much."""
    worst: dict[str, int] = {}
    for a in accesses:
        worst[a.verb] = max(worst.get(a.verb, 1), s.degree(a))
    said = [f"{n}-way conflicts when {verb}" for verb, n in sorted(worst.items()) if n > 1]
    return ", ".join(said) or "no bank conflicts"
