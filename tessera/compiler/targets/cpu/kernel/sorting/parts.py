"""`tile.merge`: a part of a line whose runs are sorted. It lies between two cuts through all runs; what is between them
is merged as the runs of a line are that is sorted by itself.

A cut has a number of elements before it. To find its place in every run, the least key that so many elements do not
come behind is found by halving the range of keys; each step narrows the places too. Of elements with that key as many
as are missing come before the cut, those of the first runs first. So equal elements keep their order, and the parts are
the same whichever thread makes them.
"""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cpu.elementary.convert import memory_element, storage_type, unpack
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.kernel.sorting.line import restore
from tessera.compiler.targets.cpu.kernel.sorting.merging import Pieces
from tessera.compiler.targets.cpu.kernel.sorting.network import LaneNetwork
from tessera.compiler.targets.cpu.kernel.sorting.words import Words
from tessera.compiler.targets.cpu.llvm.values import I1, I64, Index, Ty, Val, const
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Cell, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.loops.plan import Planner
from tessera.language.dims import ceildiv
from tessera.language.dtypes import int64


@writes("merge")
def write_merge(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    ev = k.ev
    wanted = ev.cells.pop(op.result, None)
    ev.cells[op.result] = Cell(PartOfLine(k, op).write(), (0, 1), held(dtype_of(op.result)))
    if wanted is not None:
        writer.write(plan.copy(op.result, wanted))
        ev.cells[op.result] = wanted


class PartOfLine:
    def __init__(self, k: KernelFunction, op: Op) -> None:
        self.k, self.fn = k, k.fn
        line, at, x, *places = op.operands
        self.dtype = dtype_of(x)
        positions = bool(places)
        self.words = Words(k.fn, held(self.dtype), bool(op.attrs.get("descending")), positions)
        self.lanes = k.isa.lanes(self.words.kinds[0].bits)
        self.network = network = LaneNetwork(self.words, self.lanes, k.isa.registers)
        n, self.size = (cast("ViewType | TileType", v.type).shape[1] for v in (op.operands[-1], op.result))
        self.run = k.ev.dim(op.attrs["run"])  # type: ignore[arg-type]
        self.most = k.ev.dim(op.attrs.get("first", op.attrs["run"]))  # type: ignore[arg-type]
        """elements of a run"""
        self.n, self.at = k.ev.dim(n), k.ev.index(at)
        row = k.ev.index(line)
        self.x = k.fn.gep(k.ev.base(x), k.fn.mul(row, k.ev.view_strides(x)[0]), memory_element(self.dtype))
        self.places = (
            k.fn.gep(k.ev.base(places[0]), k.fn.mul(row, k.ev.view_strides(places[0])[0]), I64.text) if places else None
        )
        runs = ceildiv(n, op.attrs["run"])  # type: ignore[operator]
        self.runs = k.ev.dim(runs)
        self.pieces = Pieces(k, network, runs, self.size + runs * cast(int, Pieces.room(network, 2)))
        self.wide = I64.wide(k.isa.lanes(64))
        self.begins, self.ends, *self.bounds = (k.raw((runs + self.wide.lanes) * 8) for _ in range(5))
        room = self.size + self.lanes
        self.source = k.raw(room * (self.words.storage.bits // 8)) if self.words.restored else None
        self.target = k.raw(room * (self.words.result.bits // 8))

    def write(self) -> Val:
        """The address of the part."""
        fn, words = self.fn, self.words
        end = fn.index(fn.smin(fn.add(self.at, self.k.ev.dim(self.size)), self.n))
        count = fn.index(fn.sub(end, self.at))
        self._cut(fn.index(self.at), self.begins)
        self._cut(end, self.ends)
        special = self._collect()
        found = self.pieces.merge(self.runs, count)
        with fn.loop(0, count, self.lanes) as loop:
            word = words.load(found, loop.index, self.lanes)
            fn.store(words.found(word), fn.gep(self.target, loop.index, words.result.text))
        if self.source is not None:
            with fn.when(special):
                restore(words, count, self.source, self.target, fn.alloca("i8", 16, 16))
        return self.target

    # -- elements ----------------------------------------------------------------------------------------------------
    def _elements(self, at: Index, lanes: int) -> tuple[Val, Val]:
        """Elements of the runs one behind the other, and where in the line they are from."""
        fn, d, ev = self.fn, self.dtype, self.k.ev
        place = const(0, I64.wide(lanes))
        if self.places is not None and lanes > 1:
            numbers = fn.binary("add", fn.splat(fn.index(at), lanes), fn.lane_numbers(place.ty))
            return self._gathered(numbers, const(True, I1.wide(lanes)))
        if self.places is not None:
            at = place = self._get(self.places, at)
        v = fn.load(fn.gep(self.x, at, memory_element(d)), storage_type(d, lanes), d.itemsize)
        found = unpack(v, d, ev.vm)
        assert isinstance(found, Val)
        return found, place

    def _gathered(self, at: Val, mask: Val) -> tuple[Val, Val]:
        """The same of elements that lie anywhere in the runs, where `mask` is set."""
        mem, place = self.k.ev.mem, at
        if self.places is not None:
            found = mem.gather(mem.offset_pointers(self.places, int64, at), int64, mask, const(0, I64))
            assert isinstance(found, Val)
            place = found
        found = mem.gather(mem.offset_pointers(self.x, self.dtype, place), self.dtype, mask, const(0, I64))
        assert isinstance(found, Val)
        return found, place

    # -- cuts --------------------------------------------------------------------------------------------------------
    def _cut(self, rank: Val, places: Val) -> None:
        """Stores at `places` how many elements of each run are among the first `rank` of the line. Lanes hold runs."""
        fn, key, wide = self.fn, self.words.key, self.wide
        with fn.loop(0, self.runs, wide.lanes) as loop:
            left = fn.binary("sub", fn.splat(fn.index(self.n), wide.lanes), self._starts(loop.index))
            size = fn.intrinsic("smin", wide, left, fn.splat(fn.index(self.most), wide.lanes))
            self._put(self.bounds[0], loop.index, const(0, wide))
            self._put(self.bounds[1], loop.index, fn.intrinsic("smax", wide, size, const(0, wide)))
        low, high = (const(v, key) for v in self.words.range)

        def halve(state: list[Val]) -> list[Val]:
            low, high, before, behind, middles = state
            both, one = fn.binary("and", low, high), fn.binary("xor", low, high)
            middle = fn.binary("add", both, fn.binary("ashr", one, const(1, key)))
            with fn.loop(0, self.runs, wide.lanes, [fn.here(const(0, wide))]) as loop:
                some = [self._get(table, loop.index, wide) for table in (before, behind)]
                place = self._bound(self._starts(loop.index), some, fn.splat(middle, wide.lanes))
                self._put(middles, loop.index, place)
                loop.next = [fn.binary("add", loop.carried[0], place)]
            total = fn.call_pure(f"llvm.vector.reduce.add.v{wide.lanes}i64", I64, loop.results[0])
            enough = fn.icmp("sge", total, rank)
            above = fn.binary("add", middle, const(1, key))
            return [
                fn.select(enough, a, b)
                for a, b in ((low, above), (middle, high), (before, middles), (middles, behind), (behind, before))
            ]

        start = [fn.here(v) for v in (low, high, *self.bounds)]
        _, _, before, behind, _ = fn.while_loop(start, lambda state: fn.compare("icmp slt", *state[:2]), halve)
        with fn.loop(0, self.runs, 1, [rank]) as loop:
            loop.next = [fn.index(fn.sub(loop.carried[0], self._get(before, loop.index)))]
        with fn.loop(0, self.runs, 1, loop.results) as loop:
            a, b = (self._get(table, loop.index) for table in (before, behind))
            more = fn.index(fn.smin(fn.sub(b, a), loop.carried[0]))
            self._put(places, loop.index, fn.index(fn.add(a, more)))
            loop.next = [fn.index(fn.sub(loop.carried[0], more))]

    def _starts(self, first: Val) -> Val:
        """Where some runs begin, from the run with the number `first` on."""
        fn, wide = self.fn, self.wide
        numbers = fn.binary("add", fn.splat(first, wide.lanes), fn.lane_numbers(wide))
        return fn.binary("mul", numbers, fn.splat(fn.index(self.run), wide.lanes))

    def _bound(self, starts: Val, bounds: list[Val], key: Val) -> Val:
        """Up to which places between these bounds the keys of runs are at most `key`."""
        fn, lanes = self.fn, self.wide.lanes

        def open_lanes(state: list[Val]) -> Val:
            return fn.compare("icmp slt", *state)

        def halve(state: list[Val]) -> list[Val]:
            low, high = state
            middle = fn.binary("ashr", fn.binary("add", low, high), const(1, low.ty))
            some = open_lanes(state)
            v, _ = self._gathered(fn.binary("add", starts, middle), some)
            ahead = fn.compare("icmp sle", self.words.key_of(v), key)
            behind = fn.binary("and", some, fn.binary("xor", ahead, const(True, ahead.ty)))
            above = fn.binary("add", middle, const(1, low.ty))
            return [fn.select(fn.binary("and", some, ahead), above, low), fn.select(behind, middle, high)]

        def test(state: list[Val]) -> Val:
            return fn.call_pure(f"llvm.vector.reduce.or.v{lanes}i1", I1, open_lanes(state))

        return fn.while_loop([fn.here(v) for v in bounds], test, halve)[0]

    def _get(self, table: Val, i: Index, t: Ty = I64) -> Val:
        return self.fn.load(self.fn.gep(table, i, I64.text), t, 8)

    def _put(self, table: Val, i: Index, v: Val) -> None:
        self.fn.store(v, self.fn.gep(table, i, I64.text), 8)

    # -- words -------------------------------------------------------------------------------------------------------
    def _collect(self) -> Val:
        """The words between the cuts become pieces; gives whether there is an element that its word does not
        determine."""
        fn, lanes = self.fn, self.lanes
        start = [fn.here(v) for v in (fn.index(0), fn.index(0), const(False, I1))]
        with fn.loop(0, self.runs, 1, start) as loop:
            place, done, special = loop.carried
            begin, end = self._get(self.begins, loop.index), self._get(self.ends, loop.index)
            size = fn.index(fn.sub(end, begin))
            first = fn.add(fn.mul(loop.index, self.run), begin)
            whole = fn.mul(fn.div(size, lanes), lanes)
            for low, high, wide in ((0, whole, lanes), (whole, size, 1)):
                with fn.loop(low, high, wide, [special]) as some:
                    flags = self._word(
                        fn.add(first, some.index), fn.add(place, some.index), fn.add(done, some.index), wide
                    )
                    some.next = [fn.binary("or", some.carried[0], flags)]
                (special,) = some.results
            self.pieces.put(loop.index, place, size)
            loop.next = [
                fn.index(fn.add(place, Pieces.room(self.network, size))),
                fn.index(fn.add(done, size)),
                special,
            ]
        return loop.results[2]

    def _word(self, at: Index, place: Index, done: Index, lanes: int) -> Val:
        """Stores the words of some elements; gives whether one of these is special."""
        fn, words = self.fn, self.words
        v, position = self._elements(at, lanes)
        words.store(words.of(v, position), self.pieces.memory, place)
        if self.source is None:
            return const(False, I1)
        fn.store(v, fn.gep(self.source, done, words.storage.text))
        special = words.special(v)
        return special if lanes == 1 else fn.call_pure(f"llvm.vector.reduce.or.v{lanes}i1", I1, special)
