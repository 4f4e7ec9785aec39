"""Groups of nests along rows that are shorter than a vector, such as scores of a few classes and points in space: lanes
run along the rows, each element of a row has registers of its own, and rows are woven where they lie one behind the
other in memory.

Row by row, every row would take whole vectors, most lanes of which are idle, and a tree over lanes for each reduction.
The elements of a row are combined in the same tree here, so that no bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cpu.elementary.convert import Elem
from tessera.compiler.targets.cpu.llvm.values import Index, Val
from tessera.compiler.targets.cpu.loops.elements import Coords
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Coord
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.compiler.tile.loops.plan import LONG_LINE, Planner
from tessera.compiler.tile.loops.stages import LoopGroup, Nest, Root
from tessera.language.dtypes import DType

Key: TypeAlias = tuple[Value, Coords]
FEWER = 3, 4
"""rows of up to three quarters of a vector: to weave longer ones takes as long as idle lanes do"""
LONGEST = 48
"""three quarters of the bytes of the longest vector"""
MOST = 2048
"""vector instructions that are written out for a vector of rows: a softmax of 12 numbers has 400"""


class RowsInLanes:
    """Writes the nests of a group whose rows, on axis `rows`, have `count` elements each, on axis `last`."""

    def __init__(self, bodies: Sequence[NestBody], rows: int, last: int, count: int) -> None:
        self.bodies, self.rows, self.last, self.count = bodies, rows, last, count
        self.ev, self.fn = bodies[0].ev, bodies[0].fn
        self.lanes = min(body.lanes(rows) for body in bodies)
        self.kept = {r.value for body in bodies for r in body.nest.roots if r.op is None}
        self.kept |= {v for body in bodies for v in body.nest.also}
        """what nests hand on: in registers here, in scratch memory for the rows that are left"""
        self.loads: list[tuple[Op, Coords]] = []
        """what reads rows, and is read for all lanes at once"""
        self.saved: dict[Key, list[Elem]] = {}
        """the elements of a row that later nests read"""

    @staticmethod
    def of(group: LoopGroup, plan: Planner, body_of: Callable[[Nest, LoopGroup], NestBody]) -> RowsInLanes | None:
        """None where rows are not like that, or something is read or stored in another way."""
        inner = {c for nest in group.nests for c in nest.classes if c not in group.outer}
        if not group.outer or len(inner) != 1 or all(nest.reduced is None for nest in group.nests):
            return None
        rows, (last,) = group.outer[-1], inner
        count, many = plan.extents[last], plan.extents[rows]
        if not isinstance(count, int) or not 2 <= count <= LONGEST or (isinstance(many, int) and many < LONG_LINE):
            return None
        bodies = [body_of(nest, group) for nest in group.nests]
        found = RowsInLanes(bodies, rows, last, count)
        few = FEWER[1] * count <= FEWER[0] * found.lanes and count * sum(body.price() for body in bodies) <= MOST
        return found if few and all(found._fits(body) for body in bodies) else None

    def _fits(self, body: NestBody) -> bool:
        """Whether a nest reads rows as they lie in memory, and stores them so, or one number of each row."""
        if body.gathers or any(root.op is not None and not self._is_written(root) for root in body.nest.roots):
            return False
        if not self.kept <= body.group.inside or any(v not in self.kept for v, _ in body.kept):
            return False
        for op, coords in body.accesses:
            if op.name == "tile.load" and {self.rows, self.last} <= set(coords):
                if not self._is_woven(op, coords, dtype_of(op.result)) or not self.ev.unchanging(op.operands[0]):
                    return False
                self.loads.append((op, coords))
        return True

    def _is_written(self, root: Root) -> bool:
        op, across = root.op, self.last in root.classes
        assert op is not None
        if op.name == "tile.reduce":
            in_register = op.result not in self.ev.cells and op.result in self.bodies[0].group.inside
            return in_register and (root.reduced == self.last or not across)
        if op.name != "tile.store":
            return False
        return not across or self._is_woven(op, root.classes, dtype_of(op.operands[0]))

    def _is_woven(self, op: Op, coords: Coords, d: DType) -> bool:
        if op.attrs.get("masked") or d.is_complex or self.rows not in coords:
            return False
        _, steps, _, _ = self.ev.window(op)
        near = (steps[coords.index(self.rows)], steps[coords.index(self.last)]) == (self.count, 1)
        return near and self.ev.mem.weaves(self.count, d, self.lanes)

    def write(self, extent: Index) -> Index:
        """Writes as many rows as fill lanes, and gives the first one that is left."""
        fn, ev, rows, last = self.fn, self.ev, self.rows, self.last
        ev.env[last], ev.within[last] = Coord(0), self.count
        limit = extent
        for body in self.bodies:
            limit = fn.smin(limit, body.limit(rows, extent, {last: self.count}))
        limit = fn.smax(limit, 0)
        main = fn.sub(limit, fn.mod(limit, self.lanes))
        bound, cells, floor = dict(ev.bound), ev.cells, ev.mem.floor
        ev.cells = {v: cell for v, cell in cells.items() if v not in self.kept}
        ev.trusting, ev.mem.floor = frozenset({rows, last}), fn.depth
        with fn.loop(0, main, self.lanes) as loop:
            ev.env[rows], ev.within[rows] = Coord(loop.index, 0, self.lanes), extent
            ev.env[last] = Coord(0)
            read = [(op, coords, self._read(op, coords)) for op, coords in self.loads]
            for body in self.bodies:
                if last in body.nest.classes:
                    self._nest(body, read)
                else:
                    body.step()
        ev.trusting, ev.mem.floor = frozenset(), floor
        ev.bound, ev.cells, ev.memo, ev.given = bound, cells, {}, {}
        for c in (rows, last):
            ev.env.pop(c)
            ev.within.pop(c)
        return main

    def _read(self, op: Op, coords: Coords) -> list[Val]:
        """What a load reads, a vector for each element of a row."""
        ev, d = self.ev, dtype_of(op.result)
        p, steps, _, _ = ev.window(op)
        at, _, _ = ev.mem.address(p, d, [ev.coord(c) for c in coords], steps)
        return ev.mem.load_apart(self.count, at, d, self.lanes)

    def _nest(self, body: NestBody, read: Sequence[tuple[Op, Coords, list[Val]]]) -> None:
        ev, nest = self.ev, body.nest
        parts: list[list[list[Val]]] = [[] for _ in body.reductions]
        stored: dict[Root, list[Elem]] = {}
        found: dict[Key, list[Elem]] = {}
        for k in range(self.count):
            ev.env[self.last] = Coord(0, k)
            ev.memo = {key: elements[k] for key, elements in self.saved.items()}
            ev.given = {(op.result, coords): (rows[k], dtype_of(op.result)) for op, coords, rows in read}
            reductions = iter(zip(body.reductions, parts, strict=True))
            for root in nest.roots:
                if root.op in body.found:
                    continue
                key = (root.value, root.classes)
                if root.op is None:
                    ev.memo[key] = ev.compute(*key)
                    found.setdefault(key, []).append(ev.memo[key])
                elif root.op.name == "tile.reduce":
                    reduction, terms = next(reductions)
                    terms.append(body.part(root, reduction, Coord(0, k)))
                else:
                    stored.setdefault(root, []).append(ev.element(*key))
            for v in nest.also:
                key = (v, body.plan.spaces.of(v))
                found.setdefault(key, []).append(ev.element(*key))
        ev.env[self.last], ev.memo, ev.given = Coord(0), {}, {}
        self.saved |= found
        for reduction, terms in zip(body.reductions, parts, strict=True):
            total = reduction.tree(terms)
            body.finish(reduction, reduction.combine(reduction.identity(total[0].ty.lanes), total))  # 0 + -0 is 0
        for root, elements in stored.items():
            assert root.op is not None
            self._store(root.op, root.classes, elements)

    def _store(self, op: Op, classes: Coords, elements: list[Elem]) -> None:
        ev, d = self.ev, dtype_of(op.operands[0])
        self.fn.at = op.span
        p, steps, _, _ = ev.window(op)
        at, _, _ = ev.mem.address(p, d, [ev.coord(c) for c in classes], steps)
        ev.mem.store_woven(elements, at, d, self.lanes)
