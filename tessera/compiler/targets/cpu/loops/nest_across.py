"""Nests that reduce along one axis while lanes run along another: every lane has a result of its own.

Partial results are in memory, one row of lanes for each partial of the prescribed order. The reduced axis is the outer
loop, so that memory is read in ascending order; the vector axis is cut into pieces whose partials fit the cache.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.llvm.values import Index, Val, const
from tessera.compiler.targets.cpu.loops.ahead import rows_of_sums
from tessera.compiler.targets.cpu.loops.memory import Coord
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.compiler.targets.cpu.loops.nest_inner import VectorLoop
from tessera.compiler.targets.cpu.loops.reduce import ReductionWriter, power_of_two
from tessera.language.order import CHUNK

PIECE = 1024
"""elements of the vector axis whose partial results are kept at once"""
ROUNDS = 8
"""elements of one partial that are added while it is in registers, or partials of one element each"""
UNROLLED = 128
"""vector instructions up to which a short reduced axis is written out, with every partial result in a register"""
AHEAD = 2
"""rounds of rows from those that are added to those that are asked for, where rows lie anywhere in a large array"""


class Partials:
    """The partial results of one reduction: `slots` rows of `width` lanes (twice as many for a second component)."""

    def __init__(self, body: NestBody, r: ReductionWriter, slots: int, width: int) -> None:
        self.fn, self.r, self.slots, self.width = body.fn, r, slots, width
        types = r.types(1)
        self.row = width * len(types)
        self.unit = max(max(1, t.bits // 8) for t in types)
        self.memory = body.raw(slots * self.row * self.unit)

    def place(self, slot: Index, part: int, lane: Index) -> Val:
        at = self.fn.add(self.fn.add(self.fn.mul(slot, self.row), part * self.width), lane)
        return self.fn.gep(self.memory, self.fn.mul(at, self.unit), "i8")

    def read(self, slot: Index, lane: Index, lanes: int) -> list[Val]:
        out: list[Val] = []
        for k, t in enumerate(self.r.types(lanes)):
            p = self.place(slot, k, lane)
            if t.bits == 1:  # a bool takes a byte
                byte = self.fn.load(p, t.wide(lanes).as_byte(), 1)
                out.append(self.fn.compare("icmp ne", byte, const(0, byte.ty)))
            else:
                out.append(self.fn.load(p, t))
        return out

    def write(self, slot: Index, lane: Index, values: list[Val]) -> None:
        for k, v in enumerate(values):
            p = self.place(slot, k, lane)
            if v.ty.bits == 1:
                v = self.fn.convert("zext", v, v.ty.as_byte())
            self.fn.store(v, p)

    def clear(self, lanes: int) -> None:
        with self.fn.loop(0, self.slots) as slot, self.fn.loop(0, self.width, lanes) as lane:
            self.write(slot.index, lane.index, self.r.identity(lanes))

    def add(self, index: Index, x: list[Val]) -> None:
        """Adds element `index` of the reduced axis to its slot (of one lane)."""
        slot = self.fn.mod(index, self.slots)
        self.write(slot, 0, self.r.combine(self.read(slot, 0, 1), x))

    def fold(self, lane: Index, lanes: int) -> list[Val]:
        """The fixed tree: the upper half of the slots is added to the lower until one is left."""
        n = self.slots
        while n > 2:
            n //= 2
            with self.fn.loop(0, n) as j:
                low, high = self.read(j.index, lane, lanes), self.read(self.fn.add(j.index, n), lane, lanes)
                self.write(j.index, lane, self.r.combine(low, high))
        first = self.read(0, lane, lanes)
        return self.r.combine(first, self.read(1, lane, lanes)) if n > 1 else first


class Across:
    """Writes one nest with the reduced axis outside the vector axis."""

    def __init__(self, body: NestBody) -> None:
        self.body, self.ev, self.fn, self.reductions = body, body.ev, body.fn, body.reductions
        assert body.nest.reduced is not None
        self.reduced = body.nest.reduced
        self.length = self.ev.dim(body.plan.extents[self.reduced])
        vector = body.nest.vector
        self.far = rows_of_sums(body, vector) if vector is not None else []

    def slots(self, r: ReductionWriter) -> int:
        """Partial results needed to keep the order; one where order does not show."""
        if not r.ordered:
            return 1
        n = self.length
        return min(r.partials, power_of_two(n)) if isinstance(n, int) and n > 0 else r.partials

    @property
    def single(self) -> bool:
        """Whether every partial result is of one element, and none is of no element."""
        n = self.length
        most = min((r.partials for r in self.reductions if r.ordered), default=0)
        return isinstance(n, int) and 1 < n <= most

    def write(self, vector: int) -> None:
        fn, extent, lanes = self.fn, self.body.extent(vector), self.body.lanes(vector)
        width = PIECE
        if isinstance(extent, int):
            lanes = min(lanes, power_of_two(max(1, extent)))
            width = min(PIECE, -(-extent // lanes) * lanes)
        if self._is_short():
            self._unrolled(vector, extent, lanes)
            return
        together = ROUNDS if self.single else 1
        partials = [Partials(self.body, r, -(-self.slots(r) // together), width) for r in self.reductions]
        if isinstance(extent, int) and extent <= width:
            self._piece(vector, 0, extent, partials, lanes)
            return
        with fn.loop(0, extent, width) as piece:
            end = fn.smin(fn.add(piece.index, width), extent)
            self._piece(vector, piece.index, end, partials, lanes)

    def _is_short(self) -> bool:
        """Whether every partial result is of one element, and there are few."""
        n, most = self.length, min(r.partials for r in self.reductions)
        return isinstance(n, int) and 0 < n <= most and n * self.body.price() <= UNROLLED

    def _unrolled(self, vector: int, extent: Index, lanes: int) -> None:
        """The fixed tree, depth first: a few registers hold the values not yet combined, and no memory is needed."""
        body, ev, n = self.body, self.ev, int(self.length)  # type: ignore[arg-type]
        slots = power_of_two(n)

        def element(at: int) -> list[list[Val]]:
            found: dict[int, list[Val]] = {}
            ev.env[self.reduced] = Coord(0, at)
            body.step(found.__setitem__, Coord(0, at))
            return [found[i] for i in range(len(self.reductions))]

        def tree(slot: int, apart: int) -> list[list[Val]]:
            """The combined value of slots slot, slot + apart, slot + 2 * apart ...; those from n on are empty."""
            if apart == slots:
                return element(slot)
            low = tree(slot, 2 * apart)
            if slot + apart >= n:
                return low
            high = tree(slot + apart, 2 * apart)
            return [r.combine(a, b) for r, a, b in zip(self.reductions, low, high, strict=True)]

        def write(coord: Coord, u: int, values: list[Val]) -> None:
            for r, acc in zip(self.reductions, tree(0, 1), strict=True):
                body.finish(r, r.combine(r.identity(lanes), acc))  # 0 + -0 is 0, however it is added up

        ev.within[self.reduced] = self.length
        for at in range(n):
            self._ask(vector, 0, extent, at, 1, lanes)
        limit = self._limit(vector, extent, Coord(0, 0), Coord(0, n - 1))
        VectorLoop(body, vector, lanes, 1, write).run(0, extent, limit, [])
        ev.env.pop(self.reduced)
        ev.within.pop(self.reduced)

    def _limit(self, vector: int, extent: Index, first: Coord, last: Coord) -> Index:
        """How far the main part may run for all positions of the reduced axis from `first` to `last`: an access may
        leave its view at the last one, and one that starts before its view at the first one."""
        ev, limits = self.ev, list[Index]()
        before = any(lo is not None for op, _ in self.body.accesses for lo, _ in ev.extents(op))
        for at in (first, last) if before else (last,):
            ev.env[self.reduced] = at
            limits.append(self.body.limit(vector, extent))
        return self.fn.smin(*limits) if before else limits[0]

    def _piece(self, vector: int, lo: Index, hi: Index, partials: list[Partials], lanes: int) -> None:
        fn = self.fn
        short = isinstance(self.length, int) and self.length <= CHUNK
        if short or not any(r.ordered for r in self.reductions):
            self._accumulate(vector, lo, hi, 0, self.length, partials, lanes)
            self._finish(vector, lo, hi, partials, None, lanes)
            return
        totals = [Partials(self.body, p.r, 1, p.width) for p in partials]
        for t in totals:
            t.clear(lanes)
        with fn.loop(0, self.length, CHUNK) as chunk:
            end = fn.smin(fn.add(chunk.index, CHUNK), self.length)
            self._accumulate(vector, lo, hi, chunk.index, end, partials, lanes)
            with fn.loop(0, partials[0].width, lanes) as lane:
                for p, t in zip(partials, totals, strict=True):
                    t.write(0, lane.index, p.r.combine(t.read(0, lane.index, lanes), p.fold(lane.index, lanes)))
        self._finish(vector, lo, hi, partials, totals, lanes)

    def _accumulate(
        self, vector: int, lo: Index, hi: Index, start: Index, end: Index, partials: list[Partials], lanes: int
    ) -> None:
        """Adds elements start ... end - 1 of the reduced axis to cleared partials. `start` is a multiple of the slots.

        As long as there are ROUNDS more elements for every slot, a slot is loaded once for all of them; they are added
        in ascending order all the same.
        """
        fn, ev = self.fn, self.ev
        slots = max(p.slots for p in partials)
        if self.single:
            for p in partials:
                if not p.r.ordered:
                    p.clear(lanes)
            floor, ev.mem.floor = ev.mem.floor, fn.depth
            each, more = divmod(int(self.length), slots)  # type: ignore[arg-type]
            for first, stop, count in ((0, more, each + 1), (more, slots, each)) if more else ((0, slots, each),):
                with fn.loop(first, stop) as slot:
                    shifts = [k * slots for k in range(count)]
                    later = fn.add(slot.index, AHEAD)
                    for shift in shifts:
                        row = fn.add(fn.mod(later, slots), shift)
                        self._ask(vector, lo, hi, row, fn.div(later, slots), lanes)
                    self._rows(vector, lo, hi, slot.index, shifts, partials, lanes)
            ev.mem.floor = floor
            return
        for p in partials:
            p.clear(lanes)
        floor, ev.mem.floor = ev.mem.floor, fn.depth
        main = start
        if all(p.slots in (1, slots) for p in partials):
            round_ = slots * ROUNDS
            main = fn.add(start, fn.mul(fn.div(fn.sub(end, start), round_), round_))
            shifts = [k * slots for k in range(ROUNDS)]
            with fn.loop(start, main, round_) as first, fn.loop(0, slots) as slot:
                later = fn.add(slot.index, AHEAD)
                begin = fn.add(first.index, fn.mul(fn.div(later, slots), round_))
                for shift in shifts:
                    self._ask(vector, lo, hi, fn.add(fn.add(begin, fn.mod(later, slots)), shift), 0, lanes)
                self._rows(vector, lo, hi, fn.add(first.index, slot.index), shifts, partials, lanes)
        with fn.loop(main, end) as row:
            self._ask(vector, lo, hi, fn.add(row.index, AHEAD * ROUNDS), 0, lanes)
            self._rows(vector, lo, hi, row.index, [0], partials, lanes)
        ev.mem.floor = floor

    def _ask(self, vector: int, lo: Index, hi: Index, row: Index, further: Index, lanes: int) -> None:
        """Asks for a row that is added later, by the outer loop's turn `further` on. The last turns ask for the last
        one: the numbers of rows behind it may not exist."""
        fn, ev = self.fn, self.ev
        for far in self.far:
            at = {self.reduced: Coord(fn.smin(row, fn.sub(self.length, 1)))}
            if far.outer is not None:
                turn = fn.add(ev.env[far.outer].index, further)
                at[far.outer] = Coord(fn.smin(turn, fn.sub(ev.within[far.outer], 1)))
            far.write(ev, at, vector, lo, hi, lanes)

    def _rows(
        self, vector: int, lo: Index, hi: Index, row: Index, shifts: list[int], partials: list[Partials], lanes: int
    ) -> None:
        """Adds the elements row + shift, all of one slot, along the piece of the vector axis; or, where partial results
        are single elements, stores what the tree makes of them."""
        fn, ev = self.fn, self.ev

        def write(coord: Coord, u: int, values: list[Val]) -> None:
            lane = fn.add(fn.sub(coord.index, lo), coord.shift)
            alone = [self.single and p.r.ordered for p in partials]
            ascending = len(shifts) == 1  # else rows of other slots, which come earlier, are added later
            sums = [
                p.r.identity(lanes) if one else p.read(fn.mod(row, p.slots), lane, lanes)
                for p, one in zip(partials, alone, strict=True)
            ]
            found: list[list[list[Val]]] = [[] for _ in partials]

            def take(i: int, x: list[Val]) -> None:
                r = partials[i].r
                total = r.append(sums[i], x) if ascending else r.combine(sums[i], x)
                if alone[i]:
                    found[i].append(total)
                else:
                    sums[i] = total

            for shift in shifts:
                at = ev.env[self.reduced] = Coord(row, shift)
                self.body.step(take, at)
            for p, total, apart in zip(partials, sums, found, strict=True):
                p.write(fn.mod(row, p.slots), lane, p.r.tree(apart) if apart else total)

        ev.within[self.reduced] = self.length
        limit = self._limit(vector, hi, Coord(row, shifts[0]), Coord(row, shifts[-1]))
        VectorLoop(self.body, vector, lanes, 2 if len(shifts) == 1 else 1, write).run(lo, hi, limit, [])
        ev.env.pop(self.reduced)
        ev.within.pop(self.reduced)

    def _finish(
        self, vector: int, lo: Index, hi: Index, partials: list[Partials], totals: list[Partials] | None, lanes: int
    ) -> None:
        """Results, lane by lane."""
        fn = self.fn

        def write(coord: Coord, u: int, values: list[Val]) -> None:
            lane = fn.add(fn.sub(coord.index, lo), coord.shift)
            for i, p in enumerate(partials):
                acc = totals[i].read(0, lane, lanes) if totals is not None else p.fold(lane, lanes)
                self.body.finish(p.r, acc)

        VectorLoop(self.body, vector, lanes, 1, write).run(lo, hi, hi, [])


class SerialNest:
    """Writes a nest without a vector axis: single elements, and reductions element by element."""

    def __init__(self, body: NestBody) -> None:
        self.body = body

    def write(self) -> None:
        body, reduced = self.body, self.body.nest.reduced
        if reduced is None or reduced not in body.inner:
            body.step()
            return
        across = Across(body)
        partials = [Partials(body, r, across.slots(r), 1) for r in body.reductions]
        fn, ev = body.fn, body.ev
        chunked = not (isinstance(across.length, int) and across.length <= CHUNK) and any(
            r.ordered for r in body.reductions
        )
        totals = [Partials(body, r, 1, 1) for r in body.reductions] if chunked else None

        def accumulate(start: Index, end: Index) -> None:
            for p in partials:
                p.clear(1)
            floor, ev.mem.floor = ev.mem.floor, fn.depth
            with fn.loop(start, end) as row:
                ev.env[reduced] = Coord(row.index)
                body.step(lambda i, x: partials[i].add(row.index, x), Coord(row.index))
            ev.env.pop(reduced)
            ev.memo = {}
            ev.mem.floor = floor

        if totals is None:
            accumulate(0, across.length)
        else:
            for t in totals:
                t.clear(1)
            with fn.loop(0, across.length, CHUNK) as chunk:
                accumulate(chunk.index, fn.smin(fn.add(chunk.index, CHUNK), across.length))
                for p, t in zip(partials, totals, strict=True):
                    t.write(0, 0, p.r.combine(t.read(0, 0, 1), p.fold(0, 1)))
        for i, p in enumerate(partials):
            body.finish(p.r, totals[i].read(0, 0, 1) if totals is not None else p.fold(0, 1))
