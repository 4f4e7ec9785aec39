"""`tile.scan`: inclusive prefixes, one element after the other along the axis. `tile.sort`."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.elementary import elementwise
from tessera.compiler.targets.cpu.elementary.convert import Elem, Pair, cast, round_to, storage_type, unpack
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.llvm.values import I64, Index, Val, const
from tessera.compiler.targets.cpu.loops.axes import shape_of
from tessera.compiler.targets.cpu.loops.index import dtype_of, unsupported
from tessera.compiler.targets.cpu.loops.memory import Cell, Coord, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.targets.cpu.loops.plan import Planner
from tessera.language.dims import Dim, prod
from tessera.language.dtypes import DType


@writes("scan")
def write_scan(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """Serial along the axis; lanes run along the last axis where that is another one."""
    ev, fn = k.ev, k.fn
    x, axis = op.operands[0], int(op.attrs["axis"])  # type: ignore[arg-type]
    shape, classes = shape_of(x), plan.spaces.of(x)
    if op.result not in ev.cells:
        ev.cells[op.result] = k.scratch(op.result)
    if classes[axis] is None:
        cell = ev.cells.pop(op.result)
        writer.write(plan.copy(x, cell))
        ev.cells[op.result] = cell
        return
    last = classes[-1] if axis != len(shape) - 1 else None
    lanes = 1 if last is None else ev.isa.lanes(max(8, 8 * dtype_of(op.result).compute.itemsize))
    others = [(c, d) for c, d in zip(classes, shape, strict=True) if c is not None and c not in (classes[axis], last)]
    saved = dict(ev.env)

    def serial() -> None:
        floor, ev.mem.floor = ev.mem.floor, fn.depth
        start = [fn.splat(v, lanes) for v in _start(op, dtype_of(op.result), k)]
        with fn.loop(0, ev.dim(shape[axis]), 1, start) as loop:
            ev.env[classes[axis]] = Coord(loop.index)  # type: ignore[index]
            ev.memo = {}
            loop.next = _step(op, k, classes, loop.carried, lanes)
        ev.memo = {}
        ev.mem.floor = floor

    def across(rest: list[tuple[int | None, object]]) -> None:
        if rest:
            (c, d), *inner = rest
            with fn.loop(0, ev.dim(d)) as loop:  # type: ignore[arg-type]
                ev.env[c] = Coord(loop.index)  # type: ignore[index]
                across(inner)
        elif last is None:
            serial()
        else:
            extent = ev.dim(shape[-1])
            ev.limits[last] = extent
            with fn.loop(0, extent, lanes) as loop:
                ev.env[last] = Coord(loop.index, 0, lanes)
                serial()
            del ev.limits[last]

    across(others)  # type: ignore[arg-type]
    ev.env = saved


def _start(op: Op, d: DType, k: KernelFunction) -> list[Val]:
    name = str(op.attrs["op"])
    if name in ("sum", "prod") and d.kind == "bool":
        unsupported(op, f"a {name} scan of bools")
    e = elementwise.identity(name, d.compute, k.ev.vm)
    return [e.re, e.im] if isinstance(e, Pair) else [const(e.const or 0, e.ty)]


def _step(op: Op, k: KernelFunction, classes: tuple[int | None, ...], carried: list[Val], lanes: int) -> list[Val]:
    ev, fn = k.ev, k.fn
    x, d = op.operands[0], dtype_of(op.result)
    element = cast(ev.element(x, classes), dtype_of(x), d.compute, ev.vm)
    before: Elem = Pair(*carried) if len(carried) == 2 else carried[0]
    total = elementwise.combine(str(op.attrs["op"]), before, element, d.compute, ev.vm)
    rounded = round_to(total, d, ev.vm) if isinstance(total, Val) and d.is_low_precision else total
    ev.write_cell(ev.cells[op.result], classes, rounded)
    return [fn.splat(v, lanes) for v in ([total.re, total.im] if isinstance(total, Pair) else [total])]


# `tile.sort`, one line after the other: a bottom-up merge sort, stable because the left run wins ties, and for longer
# lines a radix sort by the bytes of keys, the least one first (Knuth, The Art of Computer Programming 3, 5.2.5).

RADIX_FROM = 32
"""elements of a line from which on counting by bytes is quicker than merging"""
DIGITS = 256


@writes("sort")
def write_sort(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """Puts the sorted elements, or where they came from, into the result's memory."""
    ev, fn, x = k.ev, k.fn, op.operands[0]
    axis, shape = int(op.attrs["axis"]), shape_of(x)  # type: ignore[call-overload]
    kept = held(dtype_of(x))
    keys = Cell(k.raw(prod(shape) * kept.itemsize), ev.packed_strides(shape), kept)
    writer.write(plan.copy(x, keys))
    target = ev.cells.setdefault(op.result, k.scratch(op.result))
    line = SortedLine(k, kept, shape[axis], bool(op.attrs.get("descending")), bool(op.attrs.get("positions")))

    def across(axes: list[int], source: Index, place: Index) -> None:
        if not axes:
            line.read(fn.gep(keys.ptr, source, line.kinds[0].text), keys.strides[axis])
            line.write(line.sort(), fn.gep(target.ptr, place, line.kinds[-1].text), target.strides[axis])
            return
        first, *rest = axes
        with fn.loop(0, ev.dim(shape[first])) as loop:
            step = fn.mul(loop.index, keys.strides[first])
            across(rest, fn.add(source, step), fn.add(place, fn.mul(loop.index, target.strides[first])))

    across([a for a in range(len(shape)) if a != axis], 0, 0)


class SortedLine:
    """Room for the `n` elements of one line, twice: every pass merges from one half into the other. Where positions are
    asked for they move along with the elements."""

    def __init__(self, k: KernelFunction, dtype: DType, n: Dim, descending: bool, positions: bool) -> None:
        self.k, self.fn, self.vm, self.dtype, self.descending = k, k.fn, k.ev.vm, dtype, descending
        self.n = k.ev.dim(n)
        element = storage_type(dtype, 1)
        self.kinds = [element, I64] if positions else [element]
        self.halves = [[k.raw(n * size) for size in (dtype.itemsize, 8)[: len(self.kinds)]] for _ in range(2)]

    def read(self, start: Val, stride: Index) -> None:
        fn = self.fn
        with fn.loop(0, self.n) as loop:
            value = fn.load(fn.gep(start, fn.mul(loop.index, stride), self.kinds[0].text), self.kinds[0])
            for v, half, t in zip((value, loop.index), self.halves[0], self.kinds, strict=False):
                fn.store(v, fn.gep(half, loop.index, t.text))

    def write(self, found: list[Val], start: Val, stride: Index) -> None:
        """What was asked for moves last: the elements, or their positions."""
        fn, t = self.fn, self.kinds[-1]
        with fn.loop(0, self.n) as loop:
            value = fn.load(fn.gep(found[-1], loop.index, t.text), t)
            fn.store(value, fn.gep(start, fn.mul(loop.index, stride), t.text))

    def sort(self) -> list[Val]:
        """Gives the half that ends up sorted."""
        if isinstance(self.n, int):
            return self._by_bytes() if self.n >= RADIX_FROM else self._merged()
        table = self._table()
        return self.fn.choose(self.fn.icmp("sge", self.n, RADIX_FROM), lambda: self._by_bytes(table), self._merged)

    def _table(self) -> Val:
        """Room for how often each byte stands at each place of a key."""
        return self.k.raw(self._passes * DIGITS * 8)

    @property
    def _passes(self) -> int:
        """Bytes of a key: narrow floats are compared as f32."""
        return max(4, self.dtype.itemsize) if self.dtype.is_float else self.dtype.itemsize

    def _by_bytes(self, table: Val | None = None) -> list[Val]:
        """Counts all bytes of all keys, then moves the elements once for each byte in which keys differ."""
        fn, size = self.fn, len(self.kinds)
        counts = table or self._table()
        with fn.loop(0, self._passes * DIGITS) as loop:
            fn.store(const(0, I64), fn.gep(counts, loop.index, I64.text))
        with fn.loop(0, self.n) as loop:
            key = self._key(fn.load(fn.gep(self.halves[0][0], loop.index, self.kinds[0].text), self.kinds[0]))
            for place in range(self._passes):
                slot = self._slot(counts, key, place)
                fn.store(fn.index(fn.add(fn.load(slot, I64), 1)), slot)
        first = self._key(fn.load(self.halves[0][0], self.kinds[0]))
        source, target = ([fn.here(v) for v in half] for half in self.halves)
        for place in range(self._passes):
            same = fn.icmp("eq", fn.load(self._slot(counts, first, place), I64), self.n)
            with fn.loop(0, DIGITS, 1, [fn.here(const(0, I64))]) as loop:
                slot = fn.gep(counts, fn.add(loop.index, place * DIGITS), I64.text)
                many = fn.load(slot, I64)
                fn.store(loop.carried[0], slot)
                loop.next = [fn.index(fn.add(loop.carried[0], many))]
            with fn.loop(0, fn.select(same, const(0, I64), fn.index(self.n))) as loop:
                moved = [fn.load(fn.gep(p, loop.index, t.text), t) for p, t in zip(source, self.kinds, strict=True)]
                slot = self._slot(counts, self._key(moved[0]), place)
                at = fn.load(slot, I64)
                fn.store(fn.index(fn.add(at, 1)), slot)
                for v, p, t in zip(moved, target, self.kinds, strict=True):
                    fn.store(v, fn.gep(p, at, t.text))
            pairs = list(zip(source, target, strict=True))
            source = [fn.here(fn.select(same, a, b)) for a, b in pairs]
            target = [fn.here(fn.select(same, b, a)) for a, b in pairs]
        assert len(source) == size
        return source

    def _slot(self, counts: Val, key: Val, place: int) -> Val:
        """Where the table counts the byte of `key` at that place."""
        fn = self.fn
        wide = key if key.ty is I64 else fn.convert("zext", key, I64)
        byte = fn.binary("and", fn.binary("lshr", wide, const(8 * place, I64)), const(DIGITS - 1, I64))
        return fn.gep(counts, fn.add(byte, place * DIGITS), I64.text)

    def _key(self, v: Val) -> Val:
        """An unsigned integer in whose order elements are: equal for equal ones, the largest for all NaN."""
        fn, x = self.fn, unpack(v, self.dtype, self.vm)
        assert isinstance(x, Val)
        if x.ty.kind != "f":
            least = const(-(1 << (x.ty.bits - 1)), x.ty)
            key = fn.binary("xor", x, least) if self.dtype.kind == "int" else x
        else:
            word = x.ty.as_int()
            bits, least = fn.convert("bitcast", x, word), const(-(1 << (word.bits - 1)), word)
            below = fn.compare("icmp slt", bits, const(0, word))
            key = fn.select(below, fn.binary("xor", bits, const(-1, word)), fn.binary("or", bits, least))
            key = fn.select(fn.compare("fcmp oeq", x, const(0.0, x.ty)), least, key)
            key = fn.select(fn.compare("fcmp uno", x, x), const(-1, word), key)
        return fn.binary("xor", key, const(-1, key.ty)) if self.descending else key

    def _merged(self) -> list[Val]:
        """Merges runs of 1, 2, 4 ... elements."""
        fn, size = self.fn, len(self.kinds)
        start = [fn.here(v) for v in (fn.index(1), *self.halves[0], *self.halves[1])]

        def one_pass(state: list[Val]) -> list[Val]:
            width, source, target = state[0], state[1 : 1 + size], state[1 + size :]
            two = fn.index(fn.mul(width, 2))
            with fn.loop(0, self.n, two) as run:
                middle = fn.index(fn.smin(fn.add(run.index, width), self.n))
                end = fn.index(fn.smin(fn.add(run.index, two), self.n))
                self._merge(source, target, run.index, middle, end)
            return [two, *target, *source]

        state = fn.while_loop(start, lambda state: fn.icmp("slt", state[0], self.n), one_pass)
        return state[1 : 1 + size]

    def _merge(self, source: list[Val], target: list[Val], first: Val, middle: Val, end: Val) -> None:
        fn = self.fn
        last = fn.sub(self.n, 1)
        with fn.loop(first, end, 1, [fn.here(first), fn.here(middle)]) as out:
            i, j = out.carried
            at = [fn.smin(c, last) for c in (i, j)]
            pairs = [[fn.load(fn.gep(p, c, t.text), t) for c in at] for p, t in zip(source, self.kinds, strict=True)]
            left, right = fn.icmp("slt", i, middle), fn.icmp("slt", j, end)
            wins = fn.binary("and", right, self._before(pairs[0][1], pairs[0][0]))
            taken = fn.select(left, wins, right)  # the right one, where the left run is used up or it comes before
            for (a, b), p, t in zip(pairs, target, self.kinds, strict=True):
                fn.store(fn.select(taken, b, a), fn.gep(p, out.index, t.text))
            step = fn.convert("zext", taken, I64)
            out.next = [fn.index(fn.sub(fn.add(i, 1), step)), fn.index(fn.add(j, step))]

    def _before(self, a: Val, b: Val) -> Val:
        """Whether `a` must stand before `b`: NaN is the largest."""
        fn = self.fn
        x, y = (unpack(v, self.dtype, self.vm) for v in (a, b))
        assert isinstance(x, Val) and isinstance(y, Val)
        if x.ty.kind == "f":
            large, small = (x, y) if self.descending else (y, x)
            only = fn.binary("and", fn.compare("fcmp uno", large, large), fn.compare("fcmp ord", small, small))
            return fn.binary("or", fn.compare(f"fcmp {'ogt' if self.descending else 'olt'}", x, y), only)
        sign = "s" if self.dtype.kind == "int" else "u"
        return fn.compare(f"icmp {sign}{'gt' if self.descending else 'lt'}", x, y)
