"""Writes the loops of a group: its outer loops, scratch memory for kept values, and its nests one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager

from tessera.compiler.ir.core import Value
from tessera.compiler.targets.cpu.llvm.values import Index, Val, text
from tessera.compiler.targets.cpu.loops.ahead import prefetches
from tessera.compiler.targets.cpu.loops.elements import ElementEmitter
from tessera.compiler.targets.cpu.loops.memory import Cell, Coord
from tessera.compiler.targets.cpu.loops.nest_across import Across, SerialNest
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.compiler.targets.cpu.loops.nest_inner import Along
from tessera.compiler.targets.cpu.loops.nest_rows import RowsInLanes
from tessera.compiler.targets.cpu.loops.nest_short import Short
from tessera.compiler.targets.cpu.loops.nest_transposed import Turned
from tessera.compiler.targets.cpu.loops.reuse import replaced
from tessera.compiler.targets.cpu.loops.rows import rows_at_a_time
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.stages import LoopGroup, Nest
from tessera.immutable import immutable
from tessera.language.dims import Dim


@immutable
class Scratch:
    """Where scratch memory comes from: cells for values (by the sizes of the axes they keep), and plain bytes."""

    cell: Callable[[Value, Sequence[Dim]], Cell]
    raw: Callable[[Dim], Val]


class NestWriter:
    """Writes the groups of one planned block."""

    def __init__(self, ev: ElementEmitter, plan: Planner, scratch: Scratch) -> None:
        self.ev, self.fn, self.plan, self.scratch = ev, ev.fn, plan, scratch

    def write(self, group: LoopGroup) -> None:
        ev = self.ev
        self._make_cells(group)
        env, within, before = dict(ev.env), dict(ev.within), set(ev.bound)
        turned = Turned.of(self.body(group.nests[0], group)) if len(group.nests) == 1 else None
        outer = [c for c in group.outer if turned is None or c != turned.along]
        loops = [(c, self.extent(c, group.nests, group.inside)) for c in outer]
        lanes = RowsInLanes.of(group, self.plan, self.body) if turned is None else None
        inner = loops[-1:] if lanes is not None or (len(group.nests) == 1 and turned is None) else []
        with self.opened(loops[: len(loops) - len(inner)]):
            begin: Index = 0
            if lanes is not None:
                begin = lanes.write(inner[0][1])
            elif inner:
                begin = self._several_rows(group, *inner[0])
            with self.opened(inner, begin):
                earlier: list[NestBody] = []
                for nest, after in zip(group.nests, [*group.nests[1:], None], strict=True):
                    body = self.body(nest, group)
                    body.prefetches = prefetches(body, earlier, after)
                    self._nest(body, turned)
                    earlier.append(body)
        ev.env, ev.within = env, within
        if group.outer:
            ev.bound = {v: e for v, e in ev.bound.items() if v in before}

    def _several_rows(self, group: LoopGroup, along: int, extent: Index) -> Index:
        """Writes the rows of axis `along` that are computed several at a time; gives the first one that is left."""
        body, ev, fn = self.body(group.nests[0], group), self.ev, self.fn
        lanes = body.nest.vector is not None and self._has_lanes(body.nest.vector)
        count = rows_at_a_time(body, along, extent) if lanes else 1
        if count == 1 or (isinstance(extent, int) and extent < count):
            return 0
        end = fn.sub(extent, fn.mod(extent, count))
        with fn.loop(0, end, count) as loop:
            ev.env[along], ev.within[along], ev.memo = Coord(loop.index), extent, {}
            body.rows = along, count
            self._nest(body, None)
        ev.memo = {}
        return end

    def body(self, nest: Nest, group: LoopGroup) -> NestBody:
        return NestBody(self.ev, self.plan, nest, group, self.extent, self.scratch.raw)

    def _nest(self, body: NestBody, turned: Turned | None) -> None:
        ev, nest = self.ev, body.nest
        floor, ev.mem.floor = ev.mem.floor, self.fn.depth
        ev.fresh = set(nest.also)
        vector = nest.vector if nest.vector is not None and self._has_lanes(nest.vector) else None
        together = (vector, nest.reduced, nest.short, turned.along if turned is not None else None)
        alone = [c for c in body.inner if c not in together]
        env, within = dict(ev.env), dict(ev.within)
        with self.opened([(c, self.extent(c, [nest])) for c in alone]):
            if turned is not None:
                turned.write()
            elif vector is not None and nest.short is not None:
                Short(body, nest.short, self.plan.extents[nest.short]).write(vector)
            elif vector is None:
                SerialNest(body).write()
            elif nest.reduced is None or nest.reduced == vector:
                Along(body).write(vector)
            else:
                Across(body).write(vector)
        ev.env, ev.within = env, within
        ev.mem.floor = floor
        ev.fresh = set()
        self.fn.at = None

    def _has_lanes(self, c: int) -> bool:
        d = self.plan.extents[c]
        return not (isinstance(d, int) and d <= 1)

    @contextmanager
    def opened(self, loops: list[tuple[int, Index]], begin: Index = 0) -> Generator[None]:
        """Scalar loops over classes, outermost first; `begin`: where the innermost begins."""
        if not loops:
            self.ev.memo = {}
            yield
            return
        (c, extent), *rest = loops
        if extent == 1:
            self.ev.env[c] = Coord(0)
            with self.opened(rest, begin):
                yield
            return
        with self.fn.loop(0 if rest else begin, extent) as loop:
            self.ev.env[c] = Coord(loop.index)
            self.ev.within[c] = extent
            self.ev.memo = {}
            with self.opened(rest, begin):
                yield
        self.ev.memo = {}

    def extent(self, c: int, nests: Sequence[Nest], inside: Set[Value] = frozenset()) -> Index:
        """How far axis `c` runs: where all that is computed is only stored (or used `inside`), no further than the
        stores reach."""
        full = self.ev.dim(self.plan.extents[c])
        reach: Index | None = None
        for nest in nests:
            if any(v not in inside for v in nest.also):
                return full
            for root in nest.roots:
                if root.op is None or root.op.name != "tile.store":
                    result = root.op.result if root.op is not None and root.op.results else root.value
                    if result not in inside or c == root.reduced or root.target is not None:
                        return full
                    continue
                if c not in root.classes:
                    return full
                hi = self.ev.extents(root.op)[root.classes.index(c)][1]
                if hi is None or (reach is not None and text(reach) != text(hi)):
                    return full
                reach = hi
        return full if reach is None else reach

    # -- scratch memory ----------------------------------------------------------------------------------------------
    def _make_cells(self, group: LoopGroup) -> None:
        """Scratch memory for what the group keeps."""
        for nest in group.nests:
            for root in nest.roots:
                if root.op is not None and root.op.name == "tile.reduce":
                    self._reduction_cell(root.op.result, group)
                elif root.op is not None or root.target is not None or root.value in self.ev.cells:
                    continue
                elif shape_of(root.value) or group.outer:  # a scalar alone stays in a register
                    self._cell(root.value, group, nest)
            for v in nest.also:
                self._cell(v, group, nest)

    def _reduction_cell(self, v: Value, group: LoopGroup) -> None:
        """None where the result stays in a register, at the coordinates of the outer loops."""
        if v in self.ev.cells or not shape_of(v):
            return
        if v in group.inside and all(c is None or c in group.outer for c in self.plan.spaces.of(v)):
            return
        self._cell(v, group)

    def _cell(self, v: Value, group: LoopGroup, nest: Nest | None = None) -> None:
        classes = self.plan.spaces.of(v)
        skipped = {c for c in classes if c in group.outer} if v in group.inside else set[int | None]()
        if nest is not None and not skipped and (old := replaced(v, nest, group, self.plan, self.ev)) is not None:
            self.ev.cells[v] = self.ev.cells[old]
            self.ev.replaced.add(old)
            return
        sizes = [1 if c is None or c in skipped else d for c, d in zip(classes, shape_of(v), strict=True)]
        self.ev.cells[v] = self.scratch.cell(v, sizes)
