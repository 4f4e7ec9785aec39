"""The body of a nest's loops: its accesses, how far they stay inside their views, and one step of all its roots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.targets.cpu.elementary.convert import Elem, memory_element, register_type
from tessera.compiler.targets.cpu.llvm.values import I64, Index, Val, const, text
from tessera.compiler.targets.cpu.loops.elements import Coords, ElementEmitter
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Cell, Coord, affine
from tessera.compiler.targets.cpu.loops.prefetch import GatheredPrefetch, Prefetch
from tessera.compiler.targets.cpu.loops.reduce import ReductionWriter, searched_beside
from tessera.compiler.tile.loops.axes import LAZY, AxisId, moves, operand_coords, shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.stages import (
    READS,
    STORES,
    LoopGroup,
    Nest,
    Root,
    beside_each_other,
    loads_beside,
    unit_axes,
)
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

ARITHMETIC = frozenset(f"tile.{name}" for name in ("add", "sub", "mul", "fma", "neg"))
LONG = 4
"""operations for each register from which on they follow the kernel's order"""
Take = Callable[[int, list[Val]], None]
"""receives the i-th reduction's contribution"""


class NestBody:
    """One nest and what it is written with. `extent(class, nests)` says how far an axis runs; `raw` gives memory."""

    def __init__(
        self,
        ev: ElementEmitter,
        plan: Planner,
        nest: Nest,
        group: LoopGroup,
        extent: Callable[..., Index],
        raw: Callable[[Dim], Val],
    ) -> None:
        self.ev, self.fn, self.plan, self.nest, self.group = ev, ev.fn, plan, nest, group
        self.extent_of, self.raw = extent, raw
        reduced = {r.op: ReductionWriter(r.op, ev.vm) for r in nest.roots if r.reduced is not None and r.op is not None}
        self.found: set[Op] = set()
        """extrema that a search of this nest finds as well"""
        for op in reduced:
            if (search := searched_beside(op)) is not None and search in reduced:
                reduced[search].extremum = op
                self.found.add(op)
        self.reductions = [r for op, r in reduced.items() if op not in self.found]
        self.inner = [c for c in nest.classes if c not in group.outer]
        self.kept: dict[tuple[Value, Coords], None] = {}
        """the values that the nest reads from scratch memory, with coordinates"""
        self.gathers: list[tuple[Op, Coords]] = []
        self.seen: dict[tuple[Value, Coords], None] = {}
        """the values that the nest computes or reads, with coordinates"""
        self.accesses = self._accesses()
        self.neighbours = [roots for roots in beside_each_other(nest.roots) if self._may_join(roots)]
        self.read_beside = loads_beside(self.accesses)
        self.in_order = self._in_order()
        self.streaming = False
        """stores scheduled as non-temporal are written so: they have been found aligned"""
        self.rows: tuple[AxisId, int] = (None, 1)
        """the axis whose rows are computed together, so many at a time (loops/rows.py)"""
        self.prefetches: list[Prefetch | GatheredPrefetch] = []
        """what the main part of the vector loop asks memory for"""

    def extent(self, c: int) -> Index:
        return self.extent_of(c, [self.nest])

    # -- what the nest touches ---------------------------------------------------------------------------------------
    def _accesses(self) -> list[tuple[Op, Coords]]:
        """The loads and stores of the nest, with coordinates; its gathers are in `gathers`."""
        found: dict[tuple[Op, Coords], None] = {}
        seen = self.seen

        def read(v: Value, coords: Coords, top: bool = False) -> None:
            if (v, coords) in seen:
                return
            seen[v, coords] = None
            op = v.op
            if v in self.ev.cells and v not in self.ev.bound and not top and v not in self.nest.also:
                self.kept[v, coords] = None
                return
            if op is None or v in self.ev.bound:
                return
            if op.name == "tile.load":
                found[(op, coords)] = None
            elif op.name == "tile.gather":
                self.gathers.append((op, coords))
            if op.name in LAZY and not moves(op):
                for k in range(1 if op.name in READS else 0, len(op.operands)):
                    if isinstance(op.operands[k].type, TileType):
                        read(op.operands[k], operand_coords(op, k, coords))

        for root in self.nest.roots:
            read(root.value, root.classes, root.op is None and root.target is None)
            if root.op is not None and root.op.name in ("tile.store", "tile.scatter"):
                if root.op.name == "tile.store":
                    found[(root.op, root.classes)] = None
                for x in root.op.operands[2:]:
                    if shape_of(x):
                        read(x, root.classes)
        return list(found)

    def _in_order(self) -> list[tuple[Value, Coords]]:
        """The operations of a long computation that ends in stores, in the order in which the kernel has them. Results
        one after the other would take a little of all that they share: more values at a time than there are registers.
        """
        few = LONG * self.ev.isa.registers
        stores = all(root.op is not None and root.op.name == "tile.store" for root in self.nest.roots)
        if len(self.seen) < few or not stores:
            return []
        if not all(self.ev.unchanging(op.operands[0]) for op, _ in self.accesses if op.name == "tile.load"):
            return []
        places = {op: i for i, op in enumerate(self.plan.block.ops) if op.name in ARITHMETIC}
        found = [(places[v.op], (v, coords)) for v, coords in self.seen if v.op is not None and v.op in places]
        found.sort(key=lambda placed: placed[0])
        return [x for _, x in found] if len(found) >= few else []

    def _may_join(self, stores: list[Root]) -> bool:
        """Whether all of these stores may be done where the first one is: nothing between reads what they change."""
        first, roots = stores[0].op, self.nest.roots
        assert first is not None
        memory = self.plan.memory(first.operands[0])
        for root in roots[roots.index(stores[0]) + 1 : roots.index(stores[-1]) + 1]:
            for v in self.plan.dependences.root_leaves(root):
                if v.op is None or v.op.name not in READS or self.plan.memory(v.op.operands[0]) != memory:
                    continue
                if root not in stores or self.plan.position[v.op] > self.plan.position[first]:
                    return False
        return True

    def stores_before(self, load: Op) -> bool:
        """Whether a step of this nest stores to what it loads then."""
        memory, order = self.plan.memory(load.operands[0]), self.plan.position
        stores = (r.op for r in self.nest.roots if r.op is not None and r.op.name in STORES)
        return any(self.plan.memory(op.operands[0]) == memory and order[op] < order[load] for op in stores)

    def lanes(self, vector: int) -> int:
        """Elements per step along `vector`: one register of the widest type that has different elements there."""
        along = [op for op, coords in self.accesses if vector in coords]
        types = [dtype_of(op.result if op.results else op.operands[1]) for op in along]
        types += [dtype_of(r.value) for r in self.nest.roots]
        types += [r.dtype for r in self.reductions if not r.indexed]
        bits = [b for d in types if (b := register_type(d).bits) > 1] or [8]
        widest = max(bits)
        if any(d.is_float for d in types):
            widest = max(widest, 32)
        return max(1, self.ev.isa.bits // widest)

    def in_pairs(self, vector: int) -> bool:
        """Whether a step along `vector` had better take two registers of f32: those that AVX-512 makes of one register
        of bf16 in memory, and the other way round, by one instruction each (elementary/convert.py)."""
        narrow = [(op, coords) for op, coords in self.accesses if vector in coords and _is_bf16(op)]
        if not narrow or not self.ev.isa.masks or self.gathers or self.lanes(vector) * 32 != self.ev.isa.bits:
            return False
        return all(coords.index(vector) in unit_axes(op.operands[0]) for op, coords in narrow)

    def price(self) -> int:
        return self.plan.work(self.nest)

    def limit(self, vector: AxisId, extent: Index, serial: dict[int, Index] | None = None) -> Index:
        """How far the main part may go along `vector`: 0 where an access leaves its view along another axis. `serial`:
        axes with loops inside the vector loop, and their extents."""
        fn, ev = self.fn, self.ev
        limit: Index = extent
        ok: Val | None = None
        for op, coords in self.accesses:
            for c, (lo, hi) in zip(coords, ev.extents(op), strict=True):
                if c is not None and c == vector:
                    if hi is not None and text(hi) != text(extent):
                        limit = fn.smin(limit, hi)
                    if lo is not None:
                        ok = ev.mem.both(ok, fn.icmp("eq", lo, 0))
                elif c is not None and serial is not None and c in serial:
                    if hi is not None:
                        ok = ev.mem.both(ok, fn.icmp("sge", hi, serial[c]))
                    if lo is not None:
                        ok = ev.mem.both(ok, fn.icmp("eq", lo, 0))
                else:
                    ok = ev.mem.both(ok, ev.inside(ev.coord(c), c, lo, hi))
        if ok is None:
            return limit
        return fn.select(ok, fn.index(limit), const(0, I64))

    def streamed(self) -> list[tuple[Op, Root]]:
        """The stores that are scheduled as non-temporal."""
        return [(op, root) for op, root in self._stores() if self.ev.is_streamed(op)]

    def aligned(self) -> list[tuple[Op, Root]]:
        """The stores that loops align: those that bypass the caches and those of several rows, which share its cost."""
        return self._stores() if self.rows[1] > 1 else self.streamed()

    def _stores(self) -> list[tuple[Op, Root]]:
        return [(r.op, r) for r in self.nest.roots if r.op is not None and r.op.name == "tile.store"]

    # -- one step ----------------------------------------------------------------------------------------------------
    def step(self, take: Take | None = None, reduced: Coord | None = None) -> None:
        """One element (vector) of every root, in order. `take` receives what reductions add; `reduced` is the position
        on the reduced axis."""
        ev = self.ev
        ev.memo = {}
        ev.together = self._pieces()
        for v in self.in_order:
            ev.element(*v)
        k = 0
        woven = {r: rest for r, *rest in self.neighbours} if ev.trusting else {}
        done: set[Root] = set()
        for root in self.nest.roots:
            if root in done or root.op in self.found:
                continue
            together = [root, *woven.get(root, ())]
            for v in (v for r in together if r.op is not None for v in self.nest.before.get(r.op, ())):
                ev.element(v, self.plan.spaces.of(v))
            if root in woven and (stored := self._store_beside(together)):
                done.update(stored)
                continue
            source = root.op or root.value.op
            self.fn.at = source.span if source is not None else None
            op = root.op
            if isinstance(root.target, Cell):
                ev.write_cell(root.target, root.classes, ev.element(root.value, root.classes))
            elif op is None:
                x = ev.compute(root.value, root.classes)
                ev.memo[(root.value, root.classes)] = x
                if root.value in ev.cells:
                    ev.write_cell(ev.cells[root.value], root.classes, x)
                else:
                    ev.bound[root.value] = x
            elif op.name == "tile.reduce" and root.reduced is not None:
                assert take is not None
                take(k, self.part(root, self.reductions[k], reduced))
                k += 1
            elif op.name == "tile.reduce":
                self.deliver(op, ev.compute(op.result, self.plan.spaces.of(op.result)))
            else:
                self._store(op, root)
        for v in self.nest.also:  # no root reads it where it does not matter: of one element, the largest is the first
            ev.element(v, self.plan.spaces.of(v))
        ev.together = {}

    def ask(self, step: int) -> None:
        """The prefetches that go with the vector `step` elements behind the first one of this turn of the loop."""
        for prefetch in self.prefetches:
            prefetch.write(self.ev, step)

    def part(self, root: Root, reduction: ReductionWriter, reduced: Coord | None) -> list[Val]:
        """The values that the current element(s) add to a reduction."""
        ev, fn = self.ev, self.fn
        x = ev.element(root.value, root.classes)
        lanes = ev.lanes(root.classes)
        index = const(0, reduction.number)
        if reduction.indexed and reduced is not None:
            base = fn.convert("trunc", fn.index(fn.add(reduced.index, reduced.shift)), reduction.number)
            index = affine(base, reduced.lanes, fn) if reduced.lanes > 1 else base
        part = reduction.lift(x, index, lanes)
        return part if ev.trusting else reduction.masked(part, ev.idle(root.classes))

    def finish(self, reduction: ReductionWriter, acc: Sequence[Val]) -> None:
        """A reduction's result, and the extremum whose place it is, from the finished accumulator."""
        self.deliver(reduction.op, reduction.result(acc))
        if reduction.extremum is not None:
            self.deliver(reduction.extremum, acc[0])

    def deliver(self, op: Op, x: Elem) -> None:
        """The finished result of a reduction, at the current kept coordinates."""
        v = op.result
        coords = self.plan.spaces.of(v)
        if v in self.ev.cells:
            self.ev.write_cell(self.ev.cells[v], coords, x)
        if all(c is None or c in self.group.outer for c in coords):
            self.ev.bound[v] = x

    def _store(self, op: Op, root: Root) -> None:
        ev = self.ev
        x = ev.element(root.value, root.classes)
        if op.name == "tile.store_shared":
            ev.write_cell(ev.cells[op.operands[0]], root.classes, x)
        elif op.name == "tile.scatter":
            self._scatter(op, root, x)
        else:
            p, strides, _, _ = ev.window(op)
            d = dtype_of(op.operands[0])
            at, step, lanes = ev.mem.address(p, d, [ev.coord(c) for c in root.classes], strides)
            mask = ev.valid(op, root.classes)
            if op.attrs.get("masked"):
                m = ev.element(op.operands[-1], root.classes)
                assert isinstance(m, Val)
                mask = ev.mem.both(mask, m)
            stream = self.streaming and ev.is_streamed(op) and mask is None and step == 1
            ev.mem.store(x, at, d, step, lanes, mask, nontemporal=stream)

    def _store_beside(self, roots: list[Root]) -> list[Root]:
        """Stores what lies side by side in memory in whole vectors, or in pieces, where each of these roots alone would
        store every so many elements; gives those that are stored."""
        ev, op = self.ev, roots[0].op
        assert op is not None
        p, strides, _, _ = ev.window(op)
        d = dtype_of(op.operands[0])
        at, step, lanes = ev.mem.address(p, d, [ev.coord(c) for c in roots[0].classes], strides)
        self.fn.at = op.span
        if step == len(roots) and lanes > 1 and ev.mem.weaves(len(roots), d, lanes):
            ev.mem.store_woven([ev.element(r.value, r.classes) for r in roots], at, d, lanes)
            return roots
        done = 0
        for count in ev.mem.pieces(len(roots), d):
            if not _is_apart(step, count, d, lanes):
                break
            some = roots[done : done + count]
            place = self.fn.gep(at, done, memory_element(d))
            ev.mem.store_pieces([ev.element(r.value, r.classes) for r in some], place, d, step, lanes)
            done += count
        return roots[:done]

    def _pieces(self) -> dict[tuple[Op, Coords], list[tuple[Op, Coords]]]:
        """The loads of what lies side by side in memory, of which each alone would gather every so many elements: with
        those that are read together with it. What is not in here is gathered."""
        ev, found = self.ev, dict[tuple[Op, Coords], list[tuple[Op, Coords]]]()
        for loads in self.read_beside:
            first, coords = loads[0]
            if ev.trusting.isdisjoint(coords) or not ev.unchanging(first.operands[0]):
                continue
            d, at = dtype_of(first.result), 0
            p, strides, _, _ = ev.window(first)
            _, step, lanes = ev.mem.address(p, d, [ev.coord(c) for c in coords], strides)
            for count in ev.mem.pieces(len(loads), d):
                if not _is_apart(step, count, d, lanes):
                    break
                some, at = loads[at : at + count], at + count
                found.update(dict.fromkeys(some, some))
        return found

    def _scatter(self, op: Op, root: Root, x: Elem) -> None:
        ev, masked = self.ev, bool(op.attrs.get("masked"))
        tiles = op.operands[2:-1] if masked else op.operands[2:]
        p, step, lanes, mask = ev.places(op, tiles, root.classes, op.operands[-1] if masked else None)
        d = dtype_of(op.operands[0])
        if lanes > 1 and step == 0:
            ev.mem.scatter(x, p, d, self.fn.splat(mask, lanes) if mask is not None else None)
        else:
            ev.mem.store(x, p, d, step, lanes, mask)


def _is_apart(step: Index, count: int, d: DType, lanes: int) -> bool:
    """Whether lanes are so far apart in memory that each has its own piece of `count` elements, and fill pieces."""
    parts = count * 2 if d.is_complex else count
    return isinstance(step, int) and step >= count and step > 1 and lanes >= parts and lanes % parts == 0


def _is_bf16(op: Op) -> bool:
    return dtype_of(op.result if op.results else op.operands[1]).name == "bf16"
