"""Sectors of global memory that the requests of a warp touch.

Global memory moves in sectors of 32 bytes. A load or store instruction of a warp is one request, which takes each
sector that a lane touches once (CUDA C++ Programming Guide, device memory accesses): 4 for 32 neighbouring f32, 32 for
a column.
The mirror of `visit` in include/tessera/memory.cuh, and of `copy_async` in shared.cuh.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from tessera.compiler.targets.cuda.layouts.layout import Layout
from tessera.immutable import immutable

SECTOR, LANES, PIECE = 32, 32, 16

Array = np.ndarray[Any, np.dtype[Any]]


@immutable
class Requests:
    """`sectors` that `requests` of warps touch, and the fewest that hold the bytes that they move."""

    requests: int = 0
    sectors: int = 0
    ideal: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.requests + other.requests, self.sectors + other.sectors, self.ideal + other.ideal)

    def times(self, n: int) -> Requests:
        return Requests(self.requests * n, self.sectors * n, self.ideal * n)


@immutable
class BlockInstruction:
    """One instruction of all threads of a block: the byte that each touches first, and whether it takes part."""

    addresses: Array
    active: Array
    size: int


def requests(instructions: Iterator[BlockInstruction]) -> Requests:
    """Of a block's instructions: the threads of a warp that take part make one request."""
    total = Requests()
    for one in instructions:
        addresses, active = one.addresses.reshape(-1, LANES), one.active.reshape(-1, LANES)
        asked = int(active.any(axis=1).sum())
        if not asked:
            continue
        first = np.where(active, addresses // SECTOR, -1)
        last = np.where(active, (addresses + one.size - 1) // SECTOR, -1)
        sectors = _distinct(np.concatenate([first, last], axis=1))
        moved = _distinct(np.where(active, addresses, -1)) * one.size
        total += Requests(asked, int(sectors.sum()), int((-(-moved // SECTOR)).sum()))
    return total


def _distinct(rows: Array) -> Array:
    """How many different values at least 0 each row has."""
    ordered = np.sort(rows, axis=1)
    new = np.concatenate([np.ones((len(rows), 1), bool), ordered[:, 1:] != ordered[:, :-1]], axis=1)
    return (new & (ordered >= 0)).sum(axis=1)


@immutable
class Box:
    """The part of a view that an access covers: its shape, the view's strides in bytes, and for each axis the first and
    the end of the positions that lie inside of the view. `start`: the byte of its first element, modulo a sector."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    inside: tuple[tuple[int, int], ...]
    start: int
    itemsize: int

    def at(self, flat: Array) -> tuple[Array, Array, Array]:
        """Of positions in the box, row by row: their bytes, whether all axes but the last are inside, and the places
        along the last axis."""
        address = np.full(flat.shape, self.start, np.int64)
        inside = np.ones(flat.shape, bool)
        last = np.zeros(flat.shape, np.int64)
        rest = flat
        for axis in range(len(self.shape) - 1, -1, -1):
            place = rest % self.shape[axis] if axis else rest
            rest = rest // self.shape[axis]
            address += place * self.strides[axis]
            if axis == len(self.shape) - 1:
                last = place
            else:
                inside &= (place >= self.inside[axis][0]) & (place < self.inside[axis][1])
        return address, inside, last

    def parts(self, flat: Array, held: Array, vector: int) -> Iterator[BlockInstruction]:
        """Runs of `vector` elements from these positions on: one access where they are whole and aligned."""
        address, inside, last = self.at(flat)
        low, high = self.inside[-1] if self.inside else (0, 1)
        whole = held & inside & (last >= low) & (last + vector <= high)
        size = vector * self.itemsize
        together = whole & (address % size == 0) if vector > 1 and self.strides[-1] == self.itemsize else whole & False
        if vector > 1:
            yield BlockInstruction(address, together, size)
        step = self.strides[-1] if self.strides else 0
        for u in range(vector):
            one = held & inside & ~together & (last + u >= low) & (last + u < high)
            yield BlockInstruction(address + u * step, one, self.itemsize)


def of_registers(layout: Layout, box: Box, threads: int, stored: bool, aligned_to: int = PIECE) -> Requests:
    """A tile in registers that is loaded from, or stored to, a box of memory."""
    thread = np.arange(threads)
    row, col = layout.row, layout.col
    vector = layout.vector if box.shape and box.shape[-1] % layout.vector == 0 else 1
    if vector * box.itemsize > aligned_to:
        vector = max(1, aligned_to // box.itemsize)
    held = np.ones(threads, bool) if not stored else (thread & ~_threads(layout) & (threads - 1)) == 0

    def instructions() -> Iterator[BlockInstruction]:
        for k in range(0, layout.registers, vector):
            r = k // (col.registers * row.inner) * row.inner + k // col.inner % row.inner
            c = k // (row.inner * col.inner) % col.outer * col.inner + k % col.inner
            i, j = (cast(Array, axis.position(n, cast(int, thread))) for axis, n in ((row, r), (col, c)))
            holds = held & (i < row.extent) & (j < col.extent)
            yield from box.parts(i * col.extent + j, holds, vector)

    return requests(instructions())


def _threads(layout: Layout) -> int:
    """The bits of a thread's number that tell threads apart."""
    axes = (layout.row, layout.col)
    return sum({(n - 1) << s for a in axes for n, s in ((a.t0, a.s0), (a.t1, a.s1), (a.t2, a.s2)) if n > 1})


def of_copies(rows: int, cols: int, box: Box, threads: int) -> Requests:
    """A box of memory that all threads copy into a shared tile of rows x cols, piece by piece."""
    piece = max(1, PIECE // box.itemsize)
    vector = piece if box.shape[-1] % piece == 0 and cols % piece == 0 else 1
    total = rows * cols // vector

    def instructions() -> Iterator[BlockInstruction]:
        for first in range(0, total, threads):
            i = first + np.arange(threads)
            yield from box.parts(i * vector, i < total, vector)

    return requests(instructions())


def of_one(box: Box, threads: int, stored: bool) -> Requests:
    """One element: read by every thread, or stored by the first."""
    inside = all(low <= 0 < high for low, high in box.inside)
    active = np.full(threads, inside)
    if stored:
        active[1:] = False
    return requests(iter([BlockInstruction(np.full(threads, box.start, np.int64), active, box.itemsize)]))
