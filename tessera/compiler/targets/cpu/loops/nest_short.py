"""Elementwise nests whose last axis is shorter than a vector, such as colours and coordinates: lanes run along the axis
before it, all elements of the last one are computed for a vector, and woven where they lie side by side in memory."""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cpu.elementary.convert import Elem
from tessera.compiler.targets.cpu.llvm.values import Val
from tessera.compiler.targets.cpu.loops.elements import Coords
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Coord
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.language.dims import Dim
from tessera.language.dtypes import DType


class Short:
    """Writes one nest along its vector axis, with all `count` elements of the axis `last` in each step."""

    def __init__(self, body: NestBody, last: int, count: Dim) -> None:
        assert isinstance(count, int)
        self.body, self.ev, self.fn, self.last, self.count = body, body.ev, body.fn, last, count

    def write(self, vector: int) -> None:
        fn, ev, body = self.fn, self.ev, self.body
        extent, lanes = body.extent(vector), body.lanes(vector)
        ev.env[self.last], ev.within[self.last] = Coord(0), self.count
        limit = body.limit(vector, extent, {self.last: self.count})
        main = fn.smin(extent, limit)
        main = fn.sub(main, fn.mod(main, lanes))
        ev.trusting = frozenset({vector, self.last})
        with fn.loop(0, main, lanes) as at:
            ev.env[vector] = Coord(at.index, 0, lanes)
            self._vector(vector, lanes)
            body.ask(0)
        ev.trusting = frozenset()
        with fn.loop(main, extent) as at:
            ev.env[vector] = Coord(at.index)
            for k in range(self.count):
                ev.env[self.last] = Coord(0, k)
                body.step()
        for c in (vector, self.last):
            ev.env.pop(c)
        ev.within.pop(self.last)
        ev.memo = {}

    def _vector(self, vector: int, lanes: int) -> None:
        """All elements of a vector of rows. What does not depend on the last axis is computed once."""
        body, ev = self.body, self.ev
        given = [x for op, coords in body.accesses if (x := self._given(op, coords, vector, lanes)) is not None]
        found: list[list[Elem]] = [[] for _ in body.nest.roots]
        ev.memo = {}
        for k in range(self.count):
            ev.env[self.last] = Coord(0, k)
            ev.given = {key: (rows[k], d) for key, rows, d in given}
            for elements, root in zip(found, body.nest.roots, strict=True):
                elements.append(ev.element(root.value, root.classes))
            ev.memo = {key: x for key, x in ev.memo.items() if self.last not in key[1]}
        ev.given = {}
        ev.env[self.last] = Coord(0)
        for elements, root in zip(found, body.nest.roots, strict=True):
            assert root.op is not None
            self.fn.at = root.op.span
            p, strides, _, _ = ev.window(root.op)
            d = dtype_of(root.op.operands[0])
            at, _, _ = ev.mem.address(p, d, [ev.coord(c) for c in root.classes], strides)
            ev.mem.store_woven(elements, at, d, lanes)

    def _given(
        self, op: Op, coords: Coords, vector: int, lanes: int
    ) -> tuple[tuple[Value, Coords], list[Val], DType] | None:
        """What a load reads whose rows lie one behind the other: its vectors, one for each element of the last axis."""
        ev = self.ev
        if op.name != "tile.load" or not {vector, self.last} <= set(coords) or not ev.unchanging(op.operands[0]):
            return None
        d = dtype_of(op.result)
        p, strides, _, _ = ev.window(op)
        if d.is_complex or (strides[coords.index(vector)], strides[coords.index(self.last)]) != (self.count, 1):
            return None
        at, _, _ = ev.mem.address(p, d, [ev.coord(c) for c in coords], strides)
        return (op.result, coords), ev.mem.load_apart(self.count, at, d, lanes), d
