"""The kernels of folds of segments: each result collects the slices that have its number, in ascending order.

A sum of floats is collected in f64 and rounded once: one chain in f32 would lose digits with every duplicate.

Where one program is one thread (`Sizes.sorted_block` is 0), the numbers of slices are put in the order of their
segments by counting, and programs share the results. Narrow slices, and those of few segments, are walked over instead:
each is added where it belongs. They are shared out in parts where sizes are known and any order gives the same bits;
else programs share the axes behind the indexed one, and the f64 sums have rows only for the segments that occur, in the
order of their first slices, so that they take no more memory than the slices or the results. Elsewhere the numbers are
sorted first, stably, and each result's program finds its slices side by side. There are no atomic operations, and no
result depends on which thread comes first.

Slices that are one number everywhere, as for a histogram, are not in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tessera.compiler.graph.operator import attributes_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX, Shape, TensorType, TileType, ViewType
from tessera.compiler.lower.chunked_reduction import identity
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, flops_of, inside, scalars_of
from tessera.compiler.lower.sorting import SortedLines, Sorting, scalar, temporary
from tessera.compiler.schedule.views import layout_of, number_everywhere
from tessera.compiler.tile.builder import TileBuilder
from tessera.language import dtypes
from tessera.language.dims import Dim, dim_min, prod
from tessera.language.dtypes import DType

COMBINE = {"sum": "add", "max": "maximum", "min": "minimum"}
PART, SPARSE, MOST_PARTS = 1 << 14, 8, 64
"""slices of a part: at least PART, and SPARSE for each segment; there are at most MOST_PARTS parts"""
AT_ONCE, COPIES, AHEAD = 8, 4, 1024
"""slices that one round of a loop takes, the copies of the results that they are added to in turn, and slices whose
numbers are made together"""
MOST = (1 << 32) - 1
"""segments whose numbers fit into 32 bits"""
CACHED = 1 << 14
"""bytes of results that a part has several copies of at most: half of a first-level cache"""
LANES = 16
"""elements of a slice from which on it is vectors that are added"""
STEP = 32
"""slices that a program of a sorted segment reads at a time"""
LOST = 2**62
"""the row of a slice that is in no segment"""
NEAR = 1 << 24
"""bytes of sums that stay in a cache, so that slices are read where they lie one behind the other"""


def fold_segments(group: Op, out: ProgramBuilder) -> None:
    (result,) = group.results
    out.temp(result)
    fold = _Fold(group, out)
    if out.sizes.sorted_block:
        fold.by_segment()
    elif fold.few and (fold.narrow or fold.dense):
        fold.in_parts()
    elif not fold.narrow:
        fold.by_group()
    else:
        fold.by_slice()


class _Fold:
    """`x` is seen as [before, n, after], the result as [before, count, after]."""

    def __init__(self, group: Op, out: ProgramBuilder) -> None:
        self.body = GroupBody.of(group)
        *self.numbering, op = self.body.ops
        """what computes the segments' numbers, element by element"""
        self.scalars = scalars_of(group, out)
        attrs: dict[str, Any] = attributes_of(op)
        x, ids = (layout_of(v) for v in op.operands)
        t, index = (v.type for v in op.operands)
        assert x is not None and ids is not None and isinstance(t, TensorType) and isinstance(index, TensorType)
        self.out, self.span, self.known, self.result = out, group.span, inside(group), op.result
        self.x, self.ids, self.number = x, ids, number_everywhere(op.operands[0])
        self.how = op.name.rpartition("_")[2]
        axis: int = attrs["axis"]
        self.count: Dim = attrs["num_segments"]
        self.n: Dim = t.shape[axis]
        self.before, self.after = prod(t.shape[:axis]), prod(t.shape[axis + 1 :])
        self.dtype, self.index = t.dtype, index.dtype
        self.wide = self.dtype
        if self.how == "sum" and (t.dtype.is_float or t.dtype.is_complex):
            self.wide = dtypes.complex128 if t.dtype.is_complex else dtypes.f64
        self.exact = self.how != "sum" or not (t.dtype.is_float or t.dtype.is_complex) or self._exact_multiples()
        """whether any order of additions gives the same bits"""
        self.narrow = isinstance(self.after, int) and self.after < LANES
        self.dense = False
        """whether the sums of wider slices are in a cache, and most slices are added to one"""
        if isinstance(self.n, int) and isinstance(self.count, int) and isinstance(self.after, int):
            self.dense = 2 * self.count <= self.n and self.count * self.after * self.wide.itemsize <= NEAR
        self.few = isinstance(self.n, int) and isinstance(self.count, int) and self.count <= min(self.n, MOST)
        self.flops, self.name = flops_of(self.body.ops), op.name.partition(".")[2]

    def _launch(self, writer: KernelWriter, what: str) -> None:
        kernel = writer.finish(self.out.kernel_name(what))
        self.out.launch(kernel, writer.arguments, self.known, what, self.flops, self.span)

    def _exact_multiples(self) -> bool:
        """Whether all sums of up to `n` times the one number are floats: its digits, and those of the count, fit."""
        c, n = self.number, self.n
        if not isinstance(n, int) or not isinstance(c, (bool, int, float)) or not math.isfinite(c):
            return False
        digits = abs(float(c).as_integer_ratio()[0])
        return (digits // (digits & -digits) if digits else 0) * n <= 1 << 53

    def _slices(self, writer: KernelWriter) -> Callable[[list[Value], Shape], Value]:
        """What gives the elements of x from a place on, in this shape; 0 or the like behind the last."""
        b, number = writer.b, self.number
        if number is not None:
            return lambda at, shape: b.full(shape, number, self.dtype)
        source = ViewType((self.before, self.n, self.after), self.dtype)
        x = writer.window(self.x.base, self.x.offset, source, "x")
        return lambda at, shape: b.load(x, at, shape, fill=self.start(self.dtype))

    def _target(self, writer: KernelWriter) -> Value:
        view = ViewType((self.before, self.count, self.after), self.dtype)
        return writer.window(self.result, 0, view, "out", write=True)

    def start(self, dtype: DType) -> Any:
        return 0 if dtype.is_complex else identity(self.how, dtype)

    def by_slice(self) -> None:
        """One slice after the other: each is added to what its result has so far."""
        columns = self._columns()
        space: Shape = (self.before, self.after)
        writer = KernelWriter(Space(space, [(0,), (1,)], space, (1, columns), (False, False)), {}, set(), self.span)
        b = writer.b
        slices, target = self._slices(writer), self._target(writer)
        places = writer.window(self.keys, 0, ViewType((self.n,), dtypes.int64), "places")
        outer, column = writer.offsets
        one, zero, shape = b.index(1), b.index(0), (1, 1, columns)

        def place(view: Value, i: Value) -> list[Value]:
            row = b.value("tile.to_index", (b.reshape(b.load(view, [i], (1,)), ()),), zero.type)
            return [outer, row, column]

        height = max(1, 4096 // columns)

        def fill(view: Value, rows: Dim, dtype: DType) -> None:
            start = b.full((1, height, columns), self.start(dtype), dtype)

            def step(row: Value) -> list[Value]:
                b.store(view, start, [outer, row, column])
                return []

            b.loop(zero, b.index(rows), b.index(height), [], step)

        into, found, last = target, places, self.dtype
        if self.wide != self.dtype:
            most = dim_min(self.n, self.count)
            held = temporary((self.before, most, self.after), self.wide, "sums", self.span, self.out)
            into = writer.window(held, 0, ViewType((self.before, most, self.after), self.wide), "sums", write=True)
            found = writer.window(self._rows(), 0, ViewType((self.n,), dtypes.int64), "rows")
            last = self.wide
            fill(into, most, self.wide)
        fill(target, self.count, self.dtype)

        def add(i: Value) -> list[Value]:
            at = place(found, i)
            value = b.cast(slices([outer, i, column], shape), last)
            b.store(into, b.map(COMBINE[self.how], b.load(into, at, shape), value), at)
            return []

        def round_(i: Value) -> list[Value]:
            b.store(target, b.cast(b.load(into, place(found, i), shape), self.dtype), place(places, i))
            return []

        b.loop(zero, b.index(self.n), one, [], add)
        if found is not places:
            b.loop(zero, b.index(self.n), one, [], round_)
        self._launch(writer, self.name)

    def in_parts(self) -> None:
        """Parts of the slices, each walked over by a program that has results of its own; these are added in order.
        Sums of floats have one part: their bits are those of the other ways, which sizes that are not known take.

        The numbers of the next slices are made first, in vectors, and are in a cache where slices are walked over. What
        is in no segment goes to a row behind the last. Slices that follow each other go to different copies of the
        results where these fit into a cache: an addition would wait for the one before, if both are of one segment."""
        n, count, held_as = self.n, self.count, self._held_as()
        assert isinstance(n, int) and isinstance(count, int) and isinstance(self.after, int)
        part = max(PART, SPARSE * count, -(-n // MOST_PARTS)) if self.exact else max(1, n)
        part = -(-part // AHEAD) * AHEAD
        parts, columns, ahead = max(1, -(-n // part)), self.after, max(1, min(AHEAD, n))
        rows = count + 1
        copies = COPIES if self.exact and COPIES * rows * columns * held_as.itemsize <= CACHED else 1
        view = ViewType((self.before, parts, copies, rows, self.after), held_as)
        made = ViewType((self.before, parts, ahead), dtypes.uint32)
        held = temporary(view.shape, held_as, "parts", self.span, self.out)
        next_ = temporary(made.shape, made.dtype, "numbers", self.span, self.out)
        space: Shape = (self.before, parts, self.after)
        writer = KernelWriter(
            Space(space, [(0,), (1,), (2,)], space, (1, 1, columns), (False, False, False)), self.body.axes,
            self.scalars, self.span,
        )  # fmt: skip
        b, slices = writer.b, self._slices(writer)
        into = writer.window(held, 0, view, "parts", write=True)
        numbers = writer.window(next_, 0, made, "numbers", write=True)
        outer, mine, column = writer.offsets
        zero, last, height = b.index(0), b.index(count), max(1, min(4096 // columns, rows))
        start = b.full((1, 1, 1, height, columns), self.start(held_as), held_as)

        def fill(row: Value) -> list[Value]:
            for copy in range(copies):
                b.store(into, start, [outer, mine, b.index(copy), row, column])
            return []

        def walk(i: Value) -> list[Value]:
            line = writer.over(Space((n,), [(0,)], (n,), (ahead,), (False,)), [i])
            b.store(numbers, b.reshape(b.cast(self._numbers(line), made.dtype), (1, 1, ahead)), [outer, mine, zero])
            here = b.iop("imin", b.iop("isub", end, i), b.index(ahead))
            whole = here
            if n % AT_ONCE:
                whole = b.iop("imul", b.iop("idiv", here, b.index(AT_ONCE)), b.index(AT_ONCE))
            add(i, zero, whole, AT_ONCE)
            if n % AT_ONCE:
                add(i, whole, here, 1)
            return []

        def add(i: Value, low: Value, high: Value, many: int) -> None:
            """Slices of a line, one after the other; one round of the loop takes `many`."""

            def few(j: Value) -> list[Value]:
                for k in range(many):
                    add_one(i, b.iop("iadd", j, b.index(k)) if k else j, k % copies)
                return []

            b.loop(low, high, b.index(many), [], few)

        def add_one(i: Value, at: Value, copy: int) -> None:
            number = b.cast(b.reshape(b.load(numbers, [outer, mine, at], (1, 1, 1)), ()), dtypes.int64)
            row = b.iop("imin", b.value("tile.to_index", (number,), INDEX), last)
            place, shape = [outer, mine, b.index(copy), row, column], (1, 1, 1, 1, columns)
            if held_as == self.wide:
                value = slices([outer, b.iop("iadd", i, at), column], (1, 1, columns))
                value = b.reshape(b.cast(value, held_as), shape)
            else:
                value = b.full(shape, 1, held_as)
            b.store(into, b.map(COMBINE[self.how], b.load(into, place, shape), value), place)

        first = b.iop("imul", mine, b.index(part))
        end = b.iop("imin", b.iop("iadd", first, b.index(part)), b.index(n))
        b.loop(zero, b.index(rows), b.index(height), [], fill)
        b.loop(first, end, b.index(ahead), [], walk)
        if copies > 1:
            places = [[outer, mine, b.index(copy), zero, column] for copy in range(copies)]
            total, *others = (b.load(into, place, (1, 1, 1, rows, columns)) for place in places)
            for other in others:
                total = b.map(COMBINE[self.how], total, other)
            b.store(into, total, places[0])
        self._launch(writer, self.name)
        self._join(held, view)

    def _held_as(self) -> DType:
        """The dtype of a part's results: for sums of one number, how often it is added, where that says all."""
        n = self.n
        counted = self.how == "sum" and self.number is not None and self.exact and isinstance(n, int) and n <= MOST
        return dtypes.uint32 if counted and (self.dtype.is_float or self.dtype.is_integer) else self.wide

    def _numbers(self, writer: KernelWriter) -> Value:
        """A tile of the segments' numbers as int64; `count` stands for slices that are in no segment."""
        b, (block,) = writer.b, writer.space.block
        for op in self.numbering:
            writer.compute(op)
        found = writer.tiles.get(self.ids.base)
        if found is None:
            ids = writer.window(self.ids.base, self.ids.offset, ViewType((self.n,), self.index), "segment_ids")
            found = b.load(ids, writer.offsets, (block,))
        count = b.cast(b.broadcast(scalar(b, b.index(self.count)), (block,), ()), dtypes.uint64)
        least = b.map("minimum", b.cast(b.cast(found, dtypes.int64), dtypes.uint64), count)  # -1 is above any count
        return b.cast(least, dtypes.int64)

    def _join(self, held: Value, view: ViewType) -> None:
        """The results of all parts, added in order and rounded."""
        columns, parts, count = self._columns(), view.shape[1], self.count
        assert isinstance(count, int)
        height = max(1, min(4096 // columns, count))
        space: Shape = (self.before, self.count, self.after)
        writer = KernelWriter(
            Space(space, [(0,), (1,), (2,)], space, (1, height, columns), (False, False, False)), {}, set(), self.span
        )
        b = writer.b
        found = writer.window(held, 0, view, "parts")
        target = self._target(writer)
        outer, row, column = writer.offsets
        shape = (1, height, columns)

        def add(i: Value, total: Value) -> list[Value]:
            more = b.reshape(b.load(found, [outer, i, b.index(0), row, column], (1, 1, *shape)), shape)
            return [b.map(COMBINE[self.how], total, more)]

        begin = b.full(shape, self.start(view.dtype), view.dtype)
        (total,) = b.loop(b.index(0), b.index(parts), b.index(1), [begin], add)
        if view.dtype != self.wide and self.number is not None:
            # `total` says how often the number is added; 0 times a negative one is -0, which no sum is.
            total = b.map("mul", b.cast(total, self.wide), b.full(shape, self.number, self.wide))
            total = b.map("add", total, b.full(shape, 0, self.wide))
        b.store(target, b.cast(total, self.dtype), [outer, row, column])
        self._launch(writer, "join")

    def _rows(self) -> Value:
        """For each slice the number of its segment among those that occur; for slices in none, one beyond the last."""
        rows = temporary((self.n,), dtypes.int64, "rows", self.span, self.out)
        taken = temporary((self.count,), dtypes.int64, "taken", self.span, self.out)
        writer = KernelWriter(Space((1,), [(0,)], (1,), (1,), (False,)), {}, set(), self.span)
        b = writer.b
        one_by_one = ViewType((self.n,), dtypes.int64)
        keys = writer.window(self.keys, 0, one_by_one, "keys")
        to = writer.window(rows, 0, one_by_one, "rows", write=True)
        known = writer.window(taken, 0, ViewType((self.count,), dtypes.int64), "taken", write=True)
        one, zero, n = b.index(1), b.index(0), b.index(self.n)

        def segment(i: Value) -> Value:
            return b.value("tile.to_index", (b.reshape(b.load(keys, [i], (1,)), ()),), zero.type)

        def forget(i: Value) -> list[Value]:
            b.store(known, b.full((1,), -1, dtypes.int64), [segment(i)])
            return []

        most = b.full((1,), 0, dtypes.int64)
        most = b.map("add", most, b.broadcast(scalar(b, b.index(dim_min(self.n, self.count))), (1,), ()))

        def number(i: Value, used: Value) -> list[Value]:
            at = segment(i)
            have = b.load(known, [at], (1,), fill=LOST)
            new = b.map("lt", have, b.full((1,), 0, dtypes.int64))
            mine = b.map("where", new, used, have)
            b.store(known, mine, [at])
            lost = b.map("eq", have, b.full((1,), LOST, dtypes.int64))
            b.store(to, b.map("where", lost, most, mine), [i])
            return [b.map("where", new, b.map("add", used, b.full((1,), 1, dtypes.int64)), used)]

        b.loop(zero, n, one, [], forget)
        b.loop(zero, n, one, [b.full((1,), 0, dtypes.int64)], number)
        self._launch(writer, "segments in use")
        return rows

    def by_group(self) -> None:
        """Each result from its own slices, in ascending order."""
        ends, order = self._grouped()
        rows, columns = self._share()
        space: Shape = (self.before, self.count, self.after)
        writer = KernelWriter(
            Space(space, [(0,), (1,), (2,)], space, (1, rows, columns), (False, False, False)), {}, set(), self.span
        )
        b = writer.b
        slices, target = self._slices(writer), self._target(writer)
        bounds = writer.window(ends, 0, ViewType((self.count + 1,), dtypes.int64), "ends")
        places = writer.window(order, 0, ViewType((self.n,), dtypes.int64), "order")
        outer, segment, column = writer.offsets
        start, one = b.full((1, 1, columns), self.start(self.wide), self.wide), b.index(1)

        def add(i: Value, total: Value) -> list[Value]:
            found = slices([outer, _number(b, places, i), column], (1, 1, columns))
            return [b.map(COMBINE[self.how], total, b.cast(found, self.wide))]

        def put(row: Value, total: Value) -> None:
            b.store(target, b.cast(total, self.dtype), [outer, row, column])

        def fold(row: Value) -> list[Value]:
            low, high = (_number(b, bounds, at) for at in (row, b.iop("iadd", row, one)))
            many = scalar(b, b.iop("isub", high, low))

            def some() -> None:
                (first,) = add(low, start)

                def several() -> None:
                    put(row, b.loop(b.iop("iadd", low, one), high, one, [first], add)[0])

                b.branch(b.map("gt", many, b.constant(1, dtypes.int64)), several, lambda: put(row, first))

            b.branch(b.map("gt", many, b.constant(0, dtypes.int64)), some, lambda: put(row, start))
            return []

        end = b.iop("imin", b.iop("iadd", segment, b.index(rows)), b.index(self.count))
        b.loop(segment, end, b.index(1), [], fold)
        self._launch(writer, self.name)

    def _grouped(self) -> tuple[Value, Value]:
        """The numbers of all slices, those of one segment side by side and in ascending order; and where each segment's
        begin, behind the last one where they end."""
        view, one_by_one = ViewType((self.count + 1,), dtypes.int64), ViewType((self.n,), dtypes.int64)
        ends = temporary((self.count + 2,), dtypes.int64, "ends", self.span, self.out)
        order = temporary((self.n,), dtypes.int64, "order", self.span, self.out)
        writer = KernelWriter(Space((1,), [(0,)], (1,), (1,), (False,)), {}, set(), self.span)
        b = writer.b
        keys = writer.window(self.keys, 0, one_by_one, "keys")
        begin = writer.window(ends, 1, view, "begin", write=True)
        start = writer.window(ends, 0, view, "start", write=True)
        places = writer.window(order, 0, one_by_one, "order", write=True)
        one, zero, n, step = b.index(1), b.index(0), b.index(self.n), 1024
        single = b.full((1,), 1, dtypes.int64)

        def clear(i: Value) -> list[Value]:
            b.store(begin, b.full((step,), 0, dtypes.int64), [i])
            return []

        def count(i: Value) -> list[Value]:
            at = _number(b, keys, i)
            b.store(begin, b.map("add", b.load(begin, [at], (1,)), single), [at])
            return []

        def sum_(i: Value, total: Value) -> list[Value]:
            many = b.load(begin, [i], (1,))
            b.store(begin, total, [i])
            return [b.map("add", total, many)]

        def place(i: Value) -> list[Value]:
            at = _number(b, keys, i)
            to = b.load(begin, [at], (1,))
            b.store(places, b.reshape(scalar(b, i), (1,)), [b.value("tile.to_index", (b.reshape(to, ()),), INDEX)])
            b.store(begin, b.map("add", to, single), [at])
            return []

        b.store(start, b.full((1,), 0, dtypes.int64), [zero])
        b.loop(zero, b.index(self.count + 1), b.index(step), [], clear)
        b.loop(zero, n, one, [], count)
        b.loop(zero, b.index(self.count + 1), one, [b.full((1,), 0, dtypes.int64)], sum_)
        b.loop(zero, n, one, [], place)
        self._launch(writer, "groups")
        return ends, order

    def _columns(self) -> int:
        """How many elements of the axes behind the indexed one a program takes: whole vectors, and few enough that
        every thread gets a part."""
        s = self.out.sizes
        if not isinstance(self.after, int):
            return s.columns
        shares = s.programs if self.before == 1 else 1
        return max(1, min(self.after, max(16, -(-self.after // (16 * shares)) * 16)))

    def _share(self) -> tuple[int, int]:
        """Segments and columns of a program that follows chains: whole slices where all threads have segments."""
        s, count = self.out.sizes, self.count
        few = isinstance(count, int) and count < s.programs
        columns = self._columns() if few else _most(self.after, s.most_columns)
        rows = max(1, 4096 // columns)
        return (min(rows, max(1, count // (4 * s.programs))) if isinstance(count, int) else rows), columns

    def by_segment(self) -> None:
        """Numbers sorted, then each result from its run of them."""
        ordered = temporary((self.n,), dtypes.int64, "ordered", self.span, self.out)
        places = temporary((self.n,), dtypes.int64, "places", self.span, self.out)
        lines = SortedLines(self.keys, 0, 1, self.n, dtypes.int64)
        Sorting(self.out, lines, False, self.span, {}, self.n).run(ordered, places)
        columns = min(self.after, 64) if isinstance(self.after, int) else 64
        space: Shape = (self.before, self.count, self.after)
        writer = KernelWriter(
            Space(space, [(0,), (1,), (2,)], space, (1, 1, columns), (False, False, False)), {}, set(), self.span
        )
        b = writer.b
        target = self._target(writer)
        numbers = writer.window(ordered, 0, ViewType((self.n,), dtypes.int64), "ordered")
        where = writer.window(places, 0, ViewType((self.n,), dtypes.int64), "places")
        outer, segment, column = writer.offsets
        mine = scalar(b, segment)
        first = self._bound(b, numbers, mine)
        last = self._bound(b, numbers, b.map("add", mine, b.constant(1, dtypes.int64)))
        shape = (STEP, columns)

        def spread(v: Value, axis: int | None) -> Value:
            return b.broadcast(v, shape, () if axis is None else (axis,))

        line = b.value("tile.iota", (), TileType((columns,), dtypes.int64), {"axis": 0})
        line = b.map("add", line, b.broadcast(scalar(b, column), (columns,), ()))
        real = b.map("lt", line, b.broadcast(scalar(b, b.index(self.after)), (columns,), ()))

        def take(at: Value, total: Value) -> list[Value]:
            rows = b.value("tile.iota", (), TileType((STEP,), dtypes.int64), {"axis": 0})
            rows = b.map("add", rows, b.broadcast(scalar(b, at), (STEP,), ()))
            wanted = b.map("lt", rows, b.broadcast(last, (STEP,), ()))
            attrs: dict[str, Any] = {"fill": 0, "masked": True}
            found = b.value("tile.gather", (where, rows, wanted), TileType((STEP,), dtypes.int64), attrs)
            mask = b.map("logical_and", spread(wanted, 0), spread(real, 1))
            if self.number is not None:
                values = b.full(shape, self.number, self.dtype)
            else:
                source = ViewType((self.before, self.n, self.after), self.dtype)
                x = writer.window(self.x.base, self.x.offset, source, "x")
                operands = (x, spread(scalar(b, outer), None), spread(found, 0), spread(line, 1), mask)
                values = b.value("tile.gather", operands, TileType(shape, self.dtype), attrs)
            work = self.dtype.compute
            values = b.map("where", mask, b.cast(values, work), b.full(shape, self.start(work), work))
            return [b.map(COMBINE[self.how], total, b.cast(b.reduce(self.how, values, (0,)), self.wide))]

        begin = b.full((columns,), self.start(self.wide), self.wide)
        bounds = [b.value("tile.to_index", (v,), segment.type) for v in (first, last)]
        (total,) = b.loop(bounds[0], bounds[1], b.index(STEP), [begin], take)
        b.store(target, b.reshape(b.cast(total, self.dtype), (1, 1, columns)), [outer, segment, column])
        self._launch(writer, self.name)

    @cached_property
    def keys(self) -> Value:
        """The segments' numbers in memory."""
        keys = temporary((self.n,), dtypes.int64, "keys", self.span, self.out)
        space = Space((self.n,), [(0,)], (self.n,), (self.out.sizes.elements,), (False,))
        writer = KernelWriter(space, self.body.axes, self.scalars, self.span)
        to = writer.window(keys, 0, ViewType((self.n,), dtypes.int64), "keys", write=True)
        writer.b.store(to, self._numbers(writer), writer.offsets)
        self._launch(writer, "segments")
        return keys

    def _bound(self, b: TileBuilder, numbers: Value, wanted: Value) -> Value:
        """How many of the sorted `numbers` are less than `wanted`."""
        steps = self.n.bit_length() if isinstance(self.n, int) else 63
        one = b.constant(1, dtypes.int64)

        def halve(_: Value, low: Value, high: Value) -> list[Value]:
            is_open = b.map("lt", low, high)
            between = b.map("shift_right", b.map("add", low, high), one)
            at = b.value("tile.to_index", (between,), b.index(0).type)
            found = b.reshape(b.load(numbers, [at], (1,)), ())
            ahead = b.map("logical_and", is_open, b.map("lt", found, wanted))
            behind = b.map("logical_and", is_open, b.map("ge", found, wanted))
            low = b.map("where", ahead, b.map("add", between, one), low)
            return [low, b.map("where", behind, between, high)]

        bounds = [b.constant(0, dtypes.int64), scalar(b, b.index(self.n))]
        return b.loop(b.index(0), b.index(steps), b.index(1), bounds, halve)[0]


def _most(d: Dim, limit: int) -> int:
    return max(1, min(d, limit)) if isinstance(d, int) else min(256, limit)


def _number(b: TileBuilder, view: Value, at: Value) -> Value:
    """An element of a view of whole numbers, as an index."""
    return b.value("tile.to_index", (b.reshape(b.load(view, [at], (1,)), ()),), INDEX)
