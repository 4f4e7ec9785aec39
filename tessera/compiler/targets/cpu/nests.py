"""Writes the loops of a group: outer loops, nests inside them, vectors along one axis, reductions, ragged ends.

A vector loop has two parts: the main part, in which every access is known to stay inside its view and all lanes count,
and the rest, the same body with masks. Where the main part ends is computed once per loop from all accesses in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cpu.convert import Elem, register_type
from tessera.compiler.targets.cpu.emit import I64, Index, Val, const, text
from tessera.compiler.targets.cpu.evaluate import Coords, Evaluator, dtype_of
from tessera.compiler.targets.cpu.memory import Cell, Coord, affine
from tessera.compiler.targets.cpu.plan import READS, Group, Nest, Planner, Root
from tessera.compiler.targets.cpu.reduce import CHUNK, Reduction, power_of_two
from tessera.compiler.targets.cpu.spaces import LAZY, AxisId, moves, operand_coords, shape_of
from tessera.language.dims import Dim


class NestWriter:
    """Writes the groups of one planned block."""

    def __init__(self, ev: Evaluator, plan: Planner, scratch: Callable[[Value, Sequence[Dim]], Cell]) -> None:
        self.ev, self.fn, self.plan, self.scratch = ev, ev.fn, plan, scratch

    # -- groups ------------------------------------------------------------------------------------------------------
    def write(self, group: Group) -> None:
        ev = self.ev
        self._make_cells(group)
        env, within, before = dict(ev.env), dict(ev.within), set(ev.bound)
        with self._open([(c, self._extent(c, group.nests, group.inside)) for c in group.outer]):
            for nest in group.nests:
                NestLoops(self, nest, group).write()
        ev.env, ev.within = env, within
        if group.outer:
            ev.bound = {v: e for v, e in ev.bound.items() if v in before}

    @contextmanager
    def _open(self, loops: list[tuple[int, Index]]) -> Iterator[None]:
        """Scalar loops over classes, outermost first."""
        if not loops:
            self.ev.memo = {}
            yield
            return
        (c, extent), *rest = loops
        if extent == 1:
            self.ev.env[c] = Coord(0)
            with self._open(rest):
                yield
            return
        with self.fn.loop(0, extent) as loop:
            self.ev.env[c] = Coord(loop.index)
            self.ev.within[c] = extent
            self.ev.memo = {}
            with self._open(rest):
                yield
        self.ev.memo = {}

    def _extent(self, c: int, nests: Sequence[Nest], inside: Set[Value] = frozenset()) -> Index:
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

    def _make_cells(self, group: Group) -> None:
        """Scratch memory for what the group keeps."""
        ev = self.ev
        for nest in group.nests:
            for root in nest.roots:
                if root.op is not None and root.op.name == "tile.reduce":
                    v = root.op.result
                    if v in ev.cells or not shape_of(v):
                        continue
                    classes = self.plan.spaces.of(v)
                    if v in group.inside and all(c is None or c in group.outer for c in classes):
                        continue  # it stays in a register
                    self._cell(v, group)
                elif root.op is None and root.target is None and root.value not in ev.cells:
                    self._cell(root.value, group)
            for v in nest.also:
                self._cell(v, group)

    def _cell(self, v: Value, group: Group) -> None:
        classes = self.plan.spaces.of(v)
        skipped = tuple(c for c in classes if c is not None and c in group.outer and v in group.inside)
        sizes = [1 if c is None or c in skipped else d for c, d in zip(classes, shape_of(v), strict=True)]
        self.ev.cells[v] = self.scratch(v, sizes)


class NestLoops:
    """The loops of one nest."""

    def __init__(self, writer: NestWriter, nest: Nest, group: Group) -> None:
        self.w, self.ev, self.fn, self.nest, self.group = writer, writer.ev, writer.fn, nest, group
        self.reductions = [Reduction(r.op, self.ev.vm) for r in nest.roots if r.reduced is not None and r.op is not None]
        self.inner = [c for c in nest.classes if c not in group.outer]
        self.accesses = self._accesses()
        self.reads_bits = [register_type(dtype_of(op.result)).bits for op, _ in self.accesses if op.results]

    def write(self) -> None:
        nest, fn = self.nest, self.fn
        saved = self.ev.mem.floor
        self.ev.mem.floor = fn.depth
        self.ev.fresh = set(nest.also)
        vector = nest.vector
        if vector is not None and not self._splits(vector):
            vector = None
        scalar = [c for c in self.inner if c not in (vector, nest.reduced)]
        env, within = dict(self.ev.env), dict(self.ev.within)
        with self.w._open([(c, self.w._extent(c, [nest])) for c in scalar]):
            if vector is None:
                self._scalar()
            elif nest.reduced is None or nest.reduced == vector:
                self._along(vector)
            else:
                self._across(vector)
        self.ev.env, self.ev.within = env, within
        self.ev.mem.floor = saved
        self.ev.fresh = set()
        self.fn.at = None

    def _splits(self, vector: int) -> bool:
        d = self.w.plan.extents[vector]
        return not (isinstance(d, int) and d <= 1)

    # -- what the nest touches ---------------------------------------------------------------------------------------
    def _accesses(self) -> list[tuple[Op, Coords]]:
        """The loads and stores of the nest, with coordinates."""
        found: dict[tuple[Op, Coords], None] = {}
        seen: set[tuple[Value, Coords]] = set()
        kept = self.ev.cells

        def read(v: Value, coords: Coords, top: bool = False) -> None:
            if (v, coords) in seen:
                return
            seen.add((v, coords))
            op = v.op
            if op is None or v in self.ev.bound or (v in kept and not top and v not in self.nest.also):
                return
            if op.name == "tile.load":
                found[(op, coords)] = None
            if op.name in LAZY and not moves(op):
                first = 1 if op.name in READS else 0
                for k in range(first, len(op.operands)):
                    x = op.operands[k]
                    if shape_of(x) or x.type.__class__.__name__ == "TileType":
                        read(x, operand_coords(op, k, coords))

        for root in self.nest.roots:
            read(root.value, root.classes, root.op is None and root.target is None)
            if root.op is not None and root.op.name in ("tile.store", "tile.scatter"):
                if root.op.name == "tile.store":
                    found[(root.op, root.classes)] = None
                for x in root.op.operands[2:]:
                    if shape_of(x):
                        read(x, root.classes)
        return list(found)

    def lanes(self, *, cheap: bool = False) -> int:
        """Elements per step: one register of the widest type that matters."""
        bits = [register_type(r.dtype).bits for r in self.reductions if not r.indexed]
        bits += [register_type(dtype_of(r.value)).bits for r in self.nest.roots]
        bits = [b for b in (*bits, *self.reads_bits) if b > 1] or [8]
        widest = max(bits)
        if any(b < 32 for b in bits) and self._uses_floats():
            widest = max(widest, 32)
        return max(1, self.ev.isa.bits // widest)

    def _uses_floats(self) -> bool:
        return any(dtype_of(op.result if op.results else op.operands[1]).is_float for op, _ in self.accesses) or any(
            dtype_of(r.value).is_float for r in self.nest.roots
        )

    def limit(self, vector: AxisId, extent: Index, tail_of: dict[int, Index]) -> Index:
        """How far the main part may go along `vector`: 0 where an access leaves its view along another axis."""
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
                elif c is not None and c in tail_of:
                    if hi is not None:
                        ok = ev.mem.both(ok, fn.icmp("sge", hi, tail_of[c]))
                    if lo is not None:
                        ok = ev.mem.both(ok, fn.icmp("eq", lo, 0))
                else:
                    at = ev.coord(c) or Coord(0)
                    if hi is not None and not (c is not None and text(ev.within.get(c, -1)) == text(hi)):
                        ok = ev.mem.both(ok, ev.mem.lanes_below(at, hi))
                    if lo is not None:
                        below = ev.mem.lanes_below(at, lo)
                        ok = ev.mem.both(ok, fn.binary("xor", below, const(True, below.ty)))
        if ok is None:
            return limit
        return fn.select(ok, fn.index(limit), const(0, I64))

    # -- the body ----------------------------------------------------------------------------------------------------
    def run_roots(self, accumulators: Callable[[int, list[Val]], None] | None, reduced_index: Callable[[int], Val]) -> None:
        """One element (vector) of every root, in order. `accumulators(i, x)` takes the i-th reduction's contribution."""
        ev = self.ev
        ev.memo = {}
        k = 0
        for root in self.nest.roots:
            source = root.op or root.value.op
            self.fn.at = source.span if source is not None else None
            if isinstance(root.target, Cell):
                ev.write_cell(root.target, root.classes, ev.element(root.value, root.classes))
                continue
            if root.op is None:
                x = ev.compute(root.value, root.classes)
                ev.memo[(root.value, root.classes)] = x
                ev.write_cell(ev.cells[root.value], root.classes, x)
                continue
            op = root.op
            if op.name == "tile.reduce" and root.reduced is not None:
                reduction = self.reductions[k]
                x = ev.element(root.value, root.classes)
                lanes = ev.lanes(root.classes)
                index = reduced_index(lanes) if reduction.indexed else const(0, I64)
                part = reduction.lift(x, index, lanes)
                if not ev.trusting:
                    part = reduction.masked(part, ev.idle(root.classes))
                assert accumulators is not None
                accumulators(k, part)
                k += 1
            elif op.name == "tile.reduce":
                self._deliver(op, ev.compute(op.result, self.w.plan.spaces.of(op.result)))
            else:
                self._store(op, root)

    def _deliver(self, op: Op, x: Elem) -> None:
        """The finished result of a reduction, at the current kept coordinates."""
        v = op.result
        coords = self.w.plan.spaces.of(v)
        if v in self.ev.cells:
            self.ev.write_cell(self.ev.cells[v], coords, x)
        if all(c is None or c in self.group.outer for c in coords):
            self.ev.bound[v] = x

    def _store(self, op: Op, root: Root) -> None:
        ev = self.ev
        x = ev.element(root.value, root.classes)
        if op.name == "tile.store_shared":
            ev.write_cell(ev.cells[op.operands[0]], root.classes, x)
            return
        masked = bool(op.attrs.get("masked"))
        d = dtype_of(op.operands[0])
        if op.name == "tile.scatter":
            self._scatter(op, root, x, masked)
            return
        p, strides, _, _ = ev.window(op)
        at, step, lanes = ev.mem.address(p, d, [ev.coord(c) for c in root.classes], strides)
        mask = ev.valid(op, root.classes)
        if masked:
            m = ev.element(op.operands[-1], root.classes)
            assert isinstance(m, Val)
            mask = ev.mem.both(mask, m)
        ev.mem.store(x, at, d, step, lanes, mask, nontemporal=self.streaming and mask is None and step == 1)

    streaming = False

    def _scatter(self, op: Op, root: Root, x: Elem, masked: bool) -> None:
        ev = self.ev
        tiles = op.operands[2:-1] if masked else op.operands[2:]
        p, step, lanes, mask = ev.places(op, tiles, root.classes, op.operands[-1] if masked else None)
        d = dtype_of(op.operands[0])
        if lanes > 1 and step == 0:
            ev.mem.scatter(x, p, d, self.fn.splat(mask, lanes) if mask is not None else None)
        else:
            ev.mem.store(x, p, d, step, lanes, mask)

    # -- vector loops ------------------------------------------------------------------------------------------------
    def _along(self, vector: int) -> None:
        """The vector axis is innermost: elementwise work and reductions along it."""
        fn, nest = self.fn, self.nest
        extent = self.w._extent(vector, [nest])
        lanes = self.lanes()
        if isinstance(extent, int) and not self.reductions:
            lanes = min(lanes, power_of_two(max(extent, 1)))
        ordered = [r for r in self.reductions if r.ordered]
        unroll = max((r.partials // lanes for r in self.reductions), default=self._unroll())
        if isinstance(extent, int):
            unroll = max(1, min(unroll, power_of_two(-(-extent // lanes))))
        limit = self.limit(vector, extent, {})
        if not self.reductions:
            self._parts(vector, 0, extent, limit, lanes, unroll, [])
            return
        long = bool(ordered) and not (isinstance(extent, int) and extent <= CHUNK)
        results = self._chunked(vector, extent, limit, lanes, unroll) if long else self._fold_range(vector, 0, extent, limit, lanes, unroll)  # fmt: skip
        for r, acc in zip(self.reductions, results, strict=True):
            self._deliver(r.op, r.result(acc))

    def _unroll(self) -> int:
        price = sum(self.w.plan.price(r.value) for r in self.nest.roots)
        return 4 if price <= 8 else 2 if price <= 20 else 1

    def _fold_range(self, vector: int, lo: Index, hi: Index, limit: Index, lanes: int, unroll: int) -> list[list[Val]]:
        start = [v for r in self.reductions for _ in range(unroll) for v in r.identity(lanes)]
        flat = self._parts(vector, lo, hi, limit, lanes, unroll, start)
        out: list[list[Val]] = []
        at = 0
        for r in self.reductions:
            n = len(r.types(lanes))
            out.append(r.fold([flat[at + u * n : at + (u + 1) * n] for u in range(unroll)]))
            at += unroll * n
        return out

    def _chunked(self, vector: int, extent: Index, limit: Index, lanes: int, unroll: int) -> list[list[Val]]:
        """Chunks of fixed size, combined in ascending order."""
        fn = self.fn
        start = [fn.here(v) for r in self.reductions for v in r.identity(1)]
        with fn.loop(0, extent, CHUNK, start) as loop:
            end = fn.smin(fn.add(loop.index, CHUNK), extent)
            parts = self._fold_range(vector, loop.index, end, limit, lanes, unroll)
            nexts: list[Val] = []
            at = 0
            for r, part in zip(self.reductions, parts, strict=True):
                n = len(part)
                nexts += r.combine(loop.carried[at : at + n], part)
                at += n
            loop.next = nexts
        out: list[list[Val]] = []
        at = 0
        for r in self.reductions:
            n = len(r.types(1))
            out.append(loop.results[at : at + n])
            at += n
        return out

    def _parts(self, vector: int, lo: Index, hi: Index, limit: Index, lanes: int, unroll: int, start: list[Val]) -> list[Val]:
        """The main part and the rest of a vector loop over [lo, hi), accumulators carried through both."""
        fn = self.fn
        step = lanes * unroll
        top = fn.smin(hi, limit) if text(hi) != text(limit) else hi
        whole = fn.smax(fn.sub(top, lo), 0) if not isinstance(lo, int) or lo or not isinstance(top, int) else top
        main = fn.add(lo, fn.sub(whole, fn.mod(whole, step)))
        carried = start
        if not (isinstance(main, int) and main == lo):
            stream = self._aligned_stores(vector, lanes)
            if stream is not None and not start:
                streamed = fn.select(stream, fn.index(main), fn.index(lo))
                self.streaming = True
                self._loop(vector, lo, streamed, step, lanes, unroll, carried, None)
                self.streaming = False
                carried = self._loop(vector, streamed, main, step, lanes, unroll, carried, None)
            else:
                carried = self._loop(vector, lo, main, step, lanes, unroll, carried, None)
        if isinstance(main, int) and isinstance(hi, int) and main >= hi:
            return carried
        if not start:
            step, unroll = lanes, 1
        return self._loop(vector, main, hi, step, lanes, unroll, carried, hi)

    def _loop(self, vector: int, lo: Index, hi: Index, step: int, lanes: int, unroll: int, start: list[Val], rest: Index | None) -> list[Val]:
        """One part: `rest` is the extent to mask against, None in the main part."""
        fn, ev = self.fn, self.ev
        once = isinstance(lo, int) and isinstance(hi, int) and hi - lo <= step
        trusting, ev.trusting = ev.trusting, rest is None
        if rest is not None:
            ev.limits[vector] = rest
        if once:
            results = self._bodies(vector, lo, lanes, unroll, start)
        else:
            with fn.loop(lo, hi, step, start) as loop:
                loop.next = self._bodies(vector, loop.index, lanes, unroll, loop.carried)
            results = loop.results
        ev.trusting = trusting
        ev.limits.pop(vector, None)
        ev.env.pop(vector, None)
        ev.memo = {}
        return results

    def _bodies(self, vector: int, index: Index, lanes: int, unroll: int, carried: list[Val]) -> list[Val]:
        values = list(carried)
        widths = [len(r.types(lanes)) for r in self.reductions]
        starts = [unroll * sum(widths[:i]) for i in range(len(widths))]
        for u in range(unroll):
            coord = Coord(index, u * lanes, lanes)
            self.ev.env[vector] = coord

            def take(i: int, x: list[Val], u: int = u) -> None:
                at = starts[i] + u * widths[i]
                values[at : at + widths[i]] = self.reductions[i].combine(values[at : at + widths[i]], x)

            self.run_roots(take, lambda n, c=coord: self._numbers(c, n))
        return values

    def _numbers(self, c: Coord, lanes: int) -> Val:
        base = self.fn.index(self.fn.add(c.index, c.shift))
        return base if lanes == 1 else affine(base, lanes, self.fn)

    # -- reductions across the vector axis ---------------------------------------------------------------------------
    def _scalar(self) -> None:
        """No vector axis: single elements, and reductions element by element."""
        if self.nest.reduced is None or self.nest.reduced not in self.inner:
            self.run_roots(None, lambda n: const(0, I64))
            return
        for r, acc in zip(self.reductions, self._fold_serial(1), strict=True):
            self._deliver(r.op, r.result(acc))

    def _across(self, vector: int) -> None:
        """Lanes hold different results: a serial loop along the reduced axis inside the vector loop."""
        ev = self.ev
        extent = self.w._extent(vector, [self.nest])
        lanes = self.lanes() * (4 if not isinstance(extent, int) or extent >= 4 * self.lanes() else 1)
        if isinstance(extent, int):
            lanes = min(lanes, power_of_two(max(1, extent)))
        reduced = self.nest.reduced
        assert reduced is not None
        limit = self.limit(vector, extent, {reduced: ev.dim(self.w.plan.extents[reduced])})

        def body(index: Index) -> None:
            ev.env[vector] = Coord(index, 0, lanes)
            for r, acc in zip(self.reductions, self._fold_serial(lanes), strict=True):
                self._deliver(r.op, r.result(acc))

        fn = self.fn
        main = fn.sub(limit, fn.mod(limit, lanes))
        for lo, hi, rest in ((0, main, None), (main, extent, extent)):
            if isinstance(lo, int) and isinstance(hi, int) and lo >= hi:
                continue
            trusting, ev.trusting = ev.trusting, rest is None
            if rest is not None:
                ev.limits[vector] = rest
            if isinstance(lo, int) and isinstance(hi, int) and hi - lo <= lanes:
                body(lo)
            else:
                with fn.loop(lo, hi, lanes) as loop:
                    body(loop.index)
            ev.trusting = trusting
            ev.limits.pop(vector, None)
            ev.memo = {}

    def _fold_serial(self, lanes: int) -> list[list[Val]]:
        """The reductions' results when the reduced axis is a serial loop and `lanes` results are computed at once."""
        fn, ev, reduced = self.fn, self.ev, self.nest.reduced
        assert reduced is not None
        extent = self.ev.dim(self.w.plan.extents[reduced])
        slots = [self._slots(r, extent) for r in self.reductions]
        memory = [self._slot_memory(r, n, lanes) if n > 1 else None for r, n in zip(self.reductions, slots, strict=True)]
        start = [v for r, n in zip(self.reductions, slots, strict=True) if n == 1 for v in r.identity(lanes)]
        chunked = any(n > 1 for n in slots) and not (isinstance(extent, int) and extent <= CHUNK)

        def run(lo: Index, hi: Index, carried: list[Val]) -> tuple[list[Val], list[list[Val]]]:
            for r, n, m in zip(self.reductions, slots, memory, strict=True):
                if m is not None:
                    self._clear_slots(r, n, m, lanes)
            floor, ev.mem.floor = ev.mem.floor, fn.depth
            with fn.loop(lo, hi, 1, carried) as loop:
                values = list(loop.carried)
                place = {i: sum(len(r.types(1)) for r, n in zip(self.reductions[:i], slots[:i], strict=True) if n == 1) for i in range(len(slots))}  # fmt: skip

                def take(i: int, x: list[Val]) -> None:
                    r, m = self.reductions[i], memory[i]
                    if m is None:
                        at = place[i]
                        values[at : at + len(x)] = r.combine(values[at : at + len(x)], x)
                    else:
                        self._add_to_slot(r, slots[i], m, loop.index, x, lanes)

                ev.env[reduced] = Coord(loop.index)
                self.run_roots(take, lambda n: fn.splat(loop.index, n))
                loop.next = values
            ev.env.pop(reduced)
            ev.memo = {}
            ev.mem.floor = floor
            folded = [self._fold_slots(r, n, m, lanes) for r, n, m in zip(self.reductions, slots, memory, strict=True) if m is not None]
            return loop.results, folded

        if not chunked:
            direct, folded = run(0, extent, start)
        else:
            wide = [r for r, n in zip(self.reductions, slots, strict=True) if n > 1]
            totals = [v for r in wide for v in r.identity(lanes)]
            with fn.loop(0, extent, CHUNK, [*start, *totals]) as outer:
                some, parts = run(outer.index, fn.smin(fn.add(outer.index, CHUNK), extent), outer.carried[: len(start)])
                at = len(start)
                nexts = list(some)
                for r, part in zip(wide, parts, strict=True):
                    nexts += r.combine(outer.carried[at : at + len(part)], part)
                    at += len(part)
                outer.next = nexts
            direct = outer.results[: len(start)]
            rest = iter(outer.results[len(start) :])
            folded = [[next(rest) for _ in r.types(lanes)] for r in wide]
        return self._interleave(slots, direct, folded, lanes)

    def _interleave(self, slots: list[int], direct: list[Val], folded: list[list[Val]], lanes: int) -> list[list[Val]]:
        one, many = iter(direct), iter(folded)
        return [next(many) if n > 1 else [next(one) for _ in r.types(lanes)] for r, n in zip(self.reductions, slots, strict=True)]

    def _slots(self, r: Reduction, extent: Index) -> int:
        """Partial results needed to keep the order; one where order does not show."""
        if not r.ordered:
            return 1
        return min(r.partials, power_of_two(extent)) if isinstance(extent, int) and extent > 0 else r.partials

    def _slot_memory(self, r: Reduction, n: int, lanes: int) -> Val:
        parts = r.types(lanes)
        return self.fn.alloca(parts[0].scalar.text, n * lanes * len(parts))

    def _slot(self, r: Reduction, m: Val, i: Index, part: int, lanes: int) -> Val:
        t = r.types(lanes)[part]
        place = self.fn.add(self.fn.mul(i, len(r.types(lanes)) * lanes), part * lanes)
        return self.fn.gep(m, place, t.scalar.text)

    def _clear_slots(self, r: Reduction, n: int, m: Val, lanes: int) -> None:
        with self.fn.loop(0, n) as loop:
            for part, v in enumerate(r.identity(lanes)):
                self.fn.store(v, self._slot(r, m, loop.index, part, lanes))

    def _add_to_slot(self, r: Reduction, n: int, m: Val, index: Index, x: list[Val], lanes: int) -> None:
        at = self.fn.mod(index, n)
        places = [self._slot(r, m, at, part, lanes) for part in range(len(x))]
        old = [self.fn.load(p, v.ty) for p, v in zip(places, x, strict=True)]
        for p, v in zip(places, r.combine(old, x), strict=True):
            self.fn.store(v, p)

    def _fold_slots(self, r: Reduction, n: int, m: Val, lanes: int) -> list[Val]:
        parts = r.types(lanes)
        read = lambda i: [self.fn.load(self._slot(r, m, i, k, lanes), t) for k, t in enumerate(parts)]  # noqa: E731
        while n > 2:
            n //= 2
            with self.fn.loop(0, n) as loop:
                low, high = read(loop.index), read(self.fn.add(loop.index, n))
                for k, v in enumerate(r.combine(low, high)):
                    self.fn.store(v, self._slot(r, m, loop.index, k, lanes))
        return r.combine(read(0), read(1))

    # -- streaming stores --------------------------------------------------------------------------------------------
    def _aligned_stores(self, vector: int, lanes: int) -> Val | None:
        """For stores scheduled as non-temporal: whether all of them are aligned here. None without such stores."""
        fn, ev = self.fn, self.ev
        ok: Val | None = None
        for root in self.nest.roots:
            if root.op is None or root.op.name != "tile.store" or not root.op.attrs.get("nontemporal"):
                continue
            d = dtype_of(root.op.operands[0])
            p, strides, _, _ = ev.window(root.op)
            ev.env[vector] = Coord(0, 0, lanes)
            at, step, _ = ev.mem.address(p, d, [ev.coord(c) for c in root.classes], strides)
            ev.env.pop(vector)
            if step != 1 or root.op.attrs.get("masked"):
                return None
            size = lanes * d.itemsize
            number = fn.op(f"ptrtoint ptr {at.ref} to i64", I64, (at,))
            low = fn.op(f"and i64 {number.ref}, {size - 1}", I64, (number,))
            ok = ev.mem.both(ok, fn.icmp("eq", low, 0))
        return ok
