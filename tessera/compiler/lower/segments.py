"""The kernels of folds of segments: each result collects the slices that have its number, in ascending order.

Where one program is one thread (`Sizes.sorted_block` is 0), it walks over all slices and adds each where it belongs;
programs share what lies behind the axis. Elsewhere the numbers are sorted first, stably, and each result's program
finds its slices side by side: there are no atomic operations, and no result depends on who comes first.
"""

from __future__ import annotations

from typing import Any

from tessera.compiler.graph.operator import attributes_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape, TensorType, TileType, ViewType
from tessera.compiler.lower.chunked_reduction import identity
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, flops_of, inside
from tessera.compiler.lower.sorting import SortedLines, Sorting, scalar, temporary
from tessera.compiler.schedule.views import layout_of
from tessera.compiler.tile.dialect import TileBuilder
from tessera.language import dtypes
from tessera.language.dims import Dim, prod

COMBINE = {"sum": "add", "max": "maximum", "min": "minimum"}
STEP = 32
"""slices that a program of a sorted segment reads at a time"""


def fold_segments(group: Op, out: ProgramBuilder) -> None:
    (op,) = GroupBody.of(group).ops
    (result,) = group.results
    out.temp(result)
    fold = _Fold(op, group, out)
    if out.sizes.sorted_block:
        fold.by_segment()
    else:
        fold.by_slice()


class _Fold:
    """`x` is seen as [before, n, after], the result as [before, count, after]."""

    def __init__(self, op: Op, group: Op, out: ProgramBuilder) -> None:
        attrs: dict[str, Any] = attributes_of(op)
        x, ids = (layout_of(v) for v in op.operands)
        t, index = (v.type for v in op.operands)
        assert x is not None and ids is not None and isinstance(t, TensorType) and isinstance(index, TensorType)
        self.out, self.span, self.known, self.result = out, group.span, inside(group), op.result
        self.x, self.ids = x, ids
        self.how = op.name.rpartition("_")[2]
        axis: int = attrs["axis"]
        self.count: Dim = attrs["num_segments"]
        self.n: Dim = t.shape[axis]
        self.before, self.after = prod(t.shape[:axis]), prod(t.shape[axis + 1 :])
        self.dtype, self.index = t.dtype, index.dtype
        self.flops, self.name = flops_of([op]), op.name.partition(".")[2]

    def _launch(self, writer: KernelWriter, what: str) -> None:
        kernel = writer.finish(self.out.kernel_name(what))
        self.out.launch(kernel, writer.arguments, self.known, what, self.flops, self.span)

    def _views(self, writer: KernelWriter) -> tuple[Value, Value]:
        """Of x and of the result."""
        source = ViewType((self.before, self.n, self.after), self.dtype)
        target = ViewType((self.before, self.count, self.after), self.dtype)
        x = writer.window(self.x.base, self.x.offset, source, "x")
        return x, writer.window(self.result, 0, target, "out", write=True)

    def start(self) -> Any:
        return 0 if self.dtype.is_complex else identity(self.how, self.dtype)

    def by_slice(self) -> None:
        """One slice after the other: each is added to what its result has so far."""
        columns = self._columns()
        space: Shape = (self.before, self.after)
        writer = KernelWriter(Space(space, [(0,), (1,)], space, (1, columns), (False, False)), {}, set(), self.span)
        b = writer.b
        x, target = self._views(writer)
        ids = writer.window(self.ids.base, self.ids.offset, ViewType((self.n,), self.index), "segment_ids")
        outer, column = writer.offsets
        one, zero, shape = b.index(1), b.index(0), (1, 1, columns)
        rows = max(1, 4096 // columns)

        def fill(row: Value) -> list[Value]:
            b.store(target, b.full((1, rows, columns), self.start(), self.dtype), [outer, row, column])
            return []

        b.loop(zero, b.index(self.count), b.index(rows), [], fill)

        def add(i: Value) -> list[Value]:
            found = b.cast(b.reshape(b.load(ids, [i], (1,)), ()), dtypes.int64)
            count = scalar(b, b.index(self.count))
            outside = b.map("logical_or", b.map("lt", found, b.constant(0, dtypes.int64)), b.map("ge", found, count))
            row = b.value("tile.to_index", (b.map("where", outside, count, found),), zero.type)
            kept = b.load(target, [outer, row, column], shape)
            both = b.map(COMBINE[self.how], kept, b.load(x, [outer, i, column], shape))
            b.store(target, both, [outer, row, column])
            return []

        b.loop(zero, b.index(self.n), one, [], add)
        self._launch(writer, self.name)

    def _columns(self) -> int:
        """Of what lies behind the axis, as much as leaves every thread a part of it, in whole vectors."""
        s = self.out.sizes
        if not isinstance(self.after, int):
            return s.columns
        shares = s.programs if self.before == 1 else 1
        return max(1, min(self.after, max(16, -(-self.after // (16 * shares)) * 16)))

    def by_segment(self) -> None:
        """Numbers sorted, then each result from its run of them."""
        keys = self._keys()
        ordered = temporary((self.n,), dtypes.int64, "ordered", self.span, self.out)
        places = temporary((self.n,), dtypes.int64, "places", self.span, self.out)
        lines = SortedLines(keys, 0, 1, self.n, dtypes.int64)
        Sorting(self.out, lines, False, self.span, {}, self.n).run(ordered, places)
        columns = min(self.after, 64) if isinstance(self.after, int) else 64
        space: Shape = (self.before, self.count, self.after)
        writer = KernelWriter(
            Space(space, [(0,), (1,), (2,)], space, (1, 1, columns), (False, False, False)), {}, set(), self.span
        )
        b = writer.b
        x, target = self._views(writer)
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
            operands = (x, spread(scalar(b, outer), None), spread(found, 0), spread(line, 1), mask)
            values = b.value("tile.gather", operands, TileType(shape, self.dtype), attrs)
            values = b.map("where", mask, values, b.full(shape, self.start(), self.dtype))
            return [b.map(COMBINE[self.how], total, b.reduce(self.how, values, (0,)))]

        begin = b.full((columns,), self.start(), self.dtype)
        bounds = [b.value("tile.to_index", (v,), segment.type) for v in (first, last)]
        (total,) = b.loop(bounds[0], bounds[1], b.index(STEP), [begin], take)
        b.store(target, b.reshape(total, (1, 1, columns)), [outer, segment, column])
        self._launch(writer, self.name)

    def _keys(self) -> Value:
        """The segments' numbers as int64; what is in none comes behind all."""
        keys = temporary((self.n,), dtypes.int64, "keys", self.span, self.out)
        block = self.out.sizes.elements
        writer = KernelWriter(Space((self.n,), [(0,)], (self.n,), (block,), (False,)), {}, set(), self.span)
        b = writer.b
        ids = writer.window(self.ids.base, self.ids.offset, ViewType((self.n,), self.index), "segment_ids")
        found = b.cast(b.load(ids, writer.offsets, (block,)), dtypes.int64)
        count = b.broadcast(scalar(b, b.index(self.count)), (block,), ())
        outside = b.map("logical_or", b.map("lt", found, b.full((block,), 0, dtypes.int64)), b.map("ge", found, count))
        to = writer.window(keys, 0, ViewType((self.n,), dtypes.int64), "keys", write=True)
        b.store(to, b.map("where", outside, count, found), writer.offsets)
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
