"""Elementwise nests that read memory along another axis than they write it: transposed in blocks, in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tessera.compiler.ir.core import Value
from tessera.compiler.targets.cpu.elementary.convert import storage_type
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import Index, Val
from tessera.compiler.targets.cpu.loops.elements import Coords
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Coord
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.compiler.targets.cpu.loops.nest_inner import VectorLoop, plain
from tessera.compiler.tile.loops.stages import unit_axes
from tessera.immutable import mutable
from tessera.language.dtypes import DType


@mutable
class Turned:
    """A nest that reads `turned` (loads, and values in scratch memory) along `along` while lanes run along `vector`."""

    body: NestBody
    along: int
    vector: int
    lanes: int
    turned: list[tuple[Value, Coords]] = field(default_factory=list[tuple[Value, Coords]])

    @staticmethod
    def of(body: NestBody) -> Turned | None:
        """The nest as one to be transposed; None where nothing is read across."""
        nest, vector = body.nest, body.nest.vector
        if vector is None or body.reductions or nest.also or len(nest.classes) < 2 or nest.short is not None:
            return None
        lanes = body.lanes(vector)
        found: dict[int, list[tuple[Value, Coords]]] = {}
        for v, coords, neighbours in _reads(body):
            if dtype_of(v).is_complex or vector not in coords:
                continue
            axes = {coords[a] for a in neighbours}
            for a in axes:
                if a is not None and a != vector and a in nest.classes and vector not in axes:
                    found.setdefault(a, []).append((v, coords))
        wide = {a: reads for a, reads in found.items() if _reaches(body, a, lanes)}
        if not wide or not _reaches(body, vector, lanes) or lanes < 4:
            return None
        along = max(wide, key=lambda a: len(wide[a]))
        return Turned(body, along, vector, lanes, wide[along])

    def write(self) -> None:
        """Square blocks of `lanes` by `lanes`; the rest of either axis element by element."""
        body, fn, ev, n = self.body, self.body.fn, self.body.ev, self.lanes
        rows, columns = body.extent(self.along), body.extent(self.vector)
        ev.env[self.along] = Coord(0)
        across = fn.smax(body.limit(self.vector, columns, {self.along: 0}), 0)  # a tile may lie beyond the end
        down = self._rows_inside(rows)
        main_rows = fn.sub(down, fn.mod(down, n))
        main_columns = fn.sub(across, fn.mod(across, n))
        ev.trusting = frozenset({self.along, self.vector})
        with fn.loop(0, main_rows, n) as r, fn.loop(0, main_columns, n) as c:
            self._block(r.index, c.index)
        ev.trusting = frozenset()
        if isinstance(rows, int) and (main_rows, main_columns) == (rows, columns):
            return
        with fn.loop(0, rows) as r:
            ev.env[self.along] = Coord(r.index)
            ev.within[self.along] = rows
            start = fn.select(fn.icmp("slt", r.index, main_rows), fn.index(main_columns), fn.index(0))
            limit = body.limit(self.vector, columns)
            VectorLoop(body, self.vector, n, 1, plain(body)).run(start, columns, limit, [])

    def _rows_inside(self, rows: Index) -> Index:
        """How far the blocks may go along `along`."""
        body, ev = self.body, self.body.ev
        inside = rows
        for op, coords in body.accesses:
            for c, (_, hi) in zip(coords, ev.extents(op), strict=True):
                if c == self.along and hi is not None:
                    inside = body.fn.smin(inside, hi)
        return inside

    def _block(self, row: Index, column: Index) -> None:
        body, fn, ev, n = self.body, self.body.fn, self.body.ev, self.lanes
        blocks: list[list[Val]] = []
        dtypes: list[DType] = []
        for v, coords in self.turned:
            cell = ev.cells.get(v)
            if cell is not None:
                p, strides, d = cell.ptr, cell.strides, cell.dtype
            else:
                assert v.op is not None
                p, strides, _, _ = ev.window(v.op)
                d = dtype_of(v)
            lines: list[Val] = []
            for i in range(n):
                ev.env[self.along], ev.env[self.vector] = Coord(row, 0, n), Coord(column, i)
                at, _, _ = ev.mem.address(p, d, [ev.coord(c) for c in coords], strides)
                lines.append(fn.load(at, storage_type(d, n), d.itemsize))
            blocks.append(transpose(fn, lines))
            dtypes.append(d)
        for j in range(n):
            ev.env[self.along], ev.env[self.vector] = Coord(row, j), Coord(column, 0, n)
            ev.given = {read: (block[j], d) for read, block, d in zip(self.turned, blocks, dtypes, strict=True)}
            body.step()
        ev.given = {}
        ev.memo = {}
        del ev.env[self.vector]


def _reads(body: NestBody) -> Iterator[tuple[Value, Coords, list[int]]]:
    """The reads of the nest: the value, its coordinates, and the axes along which it is contiguous in memory."""
    for op, coords in body.accesses:
        if op.name == "tile.load" and not op.attrs.get("masked") and not body.stores_before(op):
            yield op.result, coords, unit_axes(op.operands[0])
    for v, coords in body.kept:
        yield v, coords, [a for a, s in enumerate(body.ev.cells[v].strides) if s == 1]


def _reaches(body: NestBody, axis: int, lanes: int) -> bool:
    d = body.plan.extents[axis]
    return not isinstance(d, int) or d >= lanes
