"""The kernels that put lines in order.

Where one program can sort any line (`Sizes.sorted_block` is 0), there is one for each, but a long line that has a known
length is sorted in runs, and programs merge a part of all runs each. Elsewhere a program sorts a
block of a line, and merges follow, which double the sorted runs: every element finds its place by counting, with a
binary search, how many of the run beside its own come before it. A left element comes before a right one that equals
it, so that equal elements keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tessera.compiler.graph.operator import attributes_of
from tessera.compiler.ir.core import Attr, Op, Value
from tessera.compiler.ir.types import Shape, TensorType, TileType, ViewType
from tessera.compiler.lower.chunked_reduction import identity
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, flops_of, inside
from tessera.compiler.schedule.blocks import row_block
from tessera.compiler.schedule.views import contiguous, is_view, layout_of
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.loops.sizes import sample_of
from tessera.errors import Span
from tessera.immutable import immutable, mutable
from tessera.language import dtypes
from tessera.language.dims import Dim, dim_max, dim_min, floordiv, prod
from tessera.language.dtypes import DType

SIDE_BY_SIDE = 16384
"""elements of the longest lines that one program sorts several of"""
RUNS, RUN = 16, 1 << 17
"""A longer line is sorted in so many runs of at least SIDE_BY_SIDE elements, or in more that have so many elements."""
PART = 1 << 16
"""elements that a program merges from all runs; at least SHARE of each, for it looks for them in each"""
SHARE = 2048
LONGEST = 1 << 31
"""assumed length of lines whose length is known at launch only: it decides the number of merges"""


def sort_lines(group: Op, out: ProgramBuilder) -> None:
    """`sort` and `argsort` of the last axis."""
    (op,) = GroupBody.of(group).ops
    t = op.operands[0].type
    layout = layout_of(op.operands[0])
    assert isinstance(t, TensorType) and layout is not None
    (result,) = group.results
    out.temp(result)
    positions = op.name == "graph.argsort"
    lines = SortedLines(layout.base, layout.offset, prod(t.shape[:-1]), t.shape[-1], t.dtype)
    sorting = Sorting(out, lines, bool(attributes_of(op)["descending"]), group.span, inside(group), flops_of([op]))
    if not out.sizes.sorted_block:
        sorting.first = foremost(result)
    sorting.run(None if positions else result, result if positions else None)


def foremost(lines: Value) -> int | None:
    """How many elements of each of these lines are read, counted from the first; None where that is not known to be
    fewer than all."""
    assert isinstance(lines.type, TensorType)
    shape = lines.type.shape
    found = [_foremost(contiguous(shape), at) for at in _readers(lines)] if shape[-1] != 1 else []
    known = [k for k in found if k is not None]
    return max(known) if known and len(known) == len(found) and max(known) != shape[-1] else None


def _readers(v: Value) -> Iterator[tuple[Value, Value]]:
    """The readers of `v`, through views and into groups: the reader's value for the memory, and the view of it."""
    todo = [(v, v)]
    while todo:
        base, seen = todo.pop()
        for op, i in seen.uses:
            if is_view(op):
                todo.append((base, op.result))
            elif op.name == "schedule.group" and seen is base:
                todo.append((op.region.block.args[i], op.region.block.args[i]))
            else:
                yield base, seen


def _foremost(strides: Shape, reader: tuple[Value, Value]) -> int | None:
    """The same of one reader: a window that starts where lines start, and steps from line to line or within lines."""
    layout = layout_of(reader[1])
    if layout is None or layout.base is not reader[0] or layout.offset != 0:
        return None
    steps = [(d, s) for d, s in zip(layout.shape, layout.strides, strict=True) if d != 1 and s != 0]
    along = [d for d, s in steps if s == 1]
    if len(along) > 1 or any(s != 1 and s not in strides[:-1] for _, s in steps):
        return None
    most = along[0] if along else 1
    return max(most, 1) if isinstance(most, int) else None


@immutable
class SortedLines:
    """`count` lines of `n` elements, one behind the other in the memory of `base` from `offset` on."""

    base: Value
    offset: Dim
    count: Dim
    n: Dim
    dtype: DType

    @property
    def view(self) -> ViewType:
        return ViewType((self.count, self.n), self.dtype)


def temporary(shape: tuple[Dim, ...], dtype: DType, name: str, span: Span, out: ProgramBuilder) -> Value:
    """Memory that launches of one group share."""
    value = Op("graph.partials", (), (TensorType(shape, dtype),), span, {}, hints=(name,)).result
    out.temp(value)
    return value


@mutable
class Sorting:
    """The launches for one value. `known` maps values of the group to those of the function."""

    out: ProgramBuilder
    lines: SortedLines
    descending: bool
    span: Span
    known: dict[Value, Value]
    flops: Dim
    first: int | None = None
    """how many elements of each line are wanted; None: all"""

    def run(self, values: Value | None, positions: Value | None) -> None:
        """Adds launches that leave the sorted elements, and where they were, in buffers that exist."""
        block, n = self.out.sizes.sorted_block, self.lines.n
        if block and not (isinstance(n, int) and n <= block):
            self._merged(values, positions, block)
            return
        if not block and isinstance(n, int) and n > SIDE_BY_SIDE:
            if self.first is not None and n <= RUN and sample_of(n, self.first) and self.lines.count != 1:
                self._sort((1, n), values, positions)
            else:
                self._in_parts(n, values, positions)
            return
        rows = max(1, block // max(1, int(n))) if block else self._side_by_side()  # type: ignore[call-overload]
        self._sort((rows, n), values, positions)

    def _side_by_side(self) -> Dim:
        """How many lines a program sorts: in number enough for vectors that have one in each lane."""
        (rows, _), s = row_block((self.lines.count, self.lines.n), (False, True), self.out.sizes), self.out.sizes
        most = floordiv(s.sorted_lines * SIDE_BY_SIDE, dim_max(self.lines.n, 1))
        few = dim_min(dim_min(self.lines.count, s.sorted_lines), most)
        return dim_max(rows, few)

    def _in_parts(self, n: int, values: Value | None, positions: Value | None) -> None:
        """Sorted runs of each line, then parts of it, each merged from all runs."""
        lines, first = self.lines, self.first
        run = min(max(SIDE_BY_SIDE, -(-n // (RUNS * 1024)) * 1024), RUN)
        part = max(min(run, PART), SHARE * -(-n // run))
        if first is not None and first < run:
            part = min(part, first)
        dtype = lines.dtype if positions is None else dtypes.int64
        runs = temporary(lines.view.shape, dtype, "runs", self.span, self.out)
        self._sort((1, run), *((runs, None) if positions is None else (None, runs)))
        size = (lines.count, n if first is None else first)
        writer = KernelWriter(Space(size, [(0,), (1,)], size, (1, part), (False, False)), {}, set(), self.span)
        b, view = writer.b, ViewType(lines.view.shape, dtype)
        sources = [writer.window(runs, 0, view, "runs")]
        if positions is not None:
            sources.insert(0, writer.window(lines.base, lines.offset, lines.view, "x"))
        attrs: dict[str, Attr] = {"run": run, "descending": self.descending}
        if first is not None and first < run:
            attrs["first"] = first
        found = b.value("tile.merge", (*writer.offsets, *sources), TileType((1, part), dtype), attrs)
        target = values if positions is None else positions
        assert target is not None
        b.store(writer.window(target, 0, view, "out", write=True), found, writer.offsets)
        self._launch(writer, "merge")

    def _writer(self, block: tuple[Dim, ...]) -> KernelWriter:
        size = (self.lines.count, self.lines.n)
        return KernelWriter(Space(size, [(0,), (1,)], size, block, (False, False)), {}, set(), self.span)

    def _launch(self, writer: KernelWriter, what: str) -> None:
        self.out.launch(
            writer.finish(self.out.kernel_name(what)), writer.arguments, self.known, what, self.flops, self.span
        )

    def _sort(self, block: tuple[Dim, ...], values: Value | None, positions: Value | None) -> None:
        """Every block of a line by itself."""
        writer = self._writer(block)
        b, lines = writer.b, self.lines
        view = writer.window(lines.base, lines.offset, lines.view, "x")
        x = b.load(view, writer.offsets, block, fill=self._behind_all())
        for target, moved in ((values, False), (positions, True)):
            if target is None:
                continue
            attrs: dict[str, Attr] = {"axis": 1, "descending": self.descending, "positions": moved}
            dtype, shape = dtypes.int64 if moved else lines.dtype, block
            if self.first is not None and not (isinstance(block[1], int) and self.first >= block[1]):
                attrs["first"], shape = self.first, (block[0], self.first)
            found = b.value("tile.sort", (x,), TileType(shape, dtype), attrs)
            if moved and block[1] != lines.n:
                found = b.map("add", found, b.broadcast(scalar(b, writer.offsets[1]), shape, ()))
            view = writer.window(target, 0, ViewType(lines.view.shape, dtype), "out", write=True)
            b.store(view, found, writer.offsets)
        self._launch(writer, "argsort" if values is None else "sort")

    def _behind_all(self) -> float | int:
        """The filler at the end of a block that is longer than the rest of its line."""
        if self.lines.dtype.is_float and not self.descending:
            return math.nan
        return identity("max" if self.descending else "min", self.lines.dtype)

    def _merged(self, values: Value | None, positions: Value | None, block: int) -> None:
        n, shape = self.lines.n, self.lines.view.shape
        longest = n if isinstance(n, int) else LONGEST
        widths: list[int] = []
        while block << len(widths) < longest:
            widths.append(block << len(widths))
        last = len(widths)

        def buffers(target: Value | None, dtype: DType, name: str) -> list[Value]:
            """The buffers that the launches write: they alternate, so that the last launch writes the target."""
            other = temporary(shape, dtype, name, self.span, self.out)
            end = target or temporary(shape, dtype, name, self.span, self.out)
            return [end if (last - i) % 2 == 0 else other for i in range(last + 1)]

        keys = buffers(values, self.lines.dtype, "keys")
        places = buffers(positions, dtypes.int64, "places") if positions is not None else []
        self._sort((1, block), keys[0], places[0] if places else None)
        runs = self.out.constant(widths, dtypes.int64, "widths", self.span)
        for i in range(last):
            final = i == last - 1 and values is None
            self._merge(runs, i, block, keys[i : i + 1 if final else i + 2], places[i : i + 2])

    def _merge(self, runs: Value, number_of: int, block: int, keys: list[Value], places: list[Value]) -> None:
        """Sorted runs become runs of twice as many elements; `keys` and `places`: from and to, where each is wanted.
        How long they are is read from memory, so that all merges are one kernel."""
        writer = self._writer((1, block))
        b, n, shape = writer.b, self.lines.n, (1, block)
        width = b.load(writer.window(runs, number_of, ViewType((1,), dtypes.int64), "width"), [b.index(0)], (1,))
        width = b.broadcast(b.reshape(width, ()), shape, ())
        line, first = (b.broadcast(scalar(b, o), shape, ()) for o in writer.offsets)
        at = b.map("add", first, b.value("tile.iota", (), TileType(shape, dtypes.int64), {"axis": 1}))

        def number(value: int) -> Value:
            return b.full(shape, value, dtypes.int64)

        end_of_line = b.broadcast(scalar(b, b.index(n)), shape, ())
        both = b.map("add", width, width)
        start = b.map("mul", b.map("floordiv", at, both), both)
        middle = b.map("minimum", b.map("add", start, width), end_of_line)
        end = b.map("minimum", b.map("add", start, both), end_of_line)
        left = b.map("lt", at, middle)
        view = writer.window(keys[0], 0, self.lines.view, "keys")
        key = b.load(view, writer.offsets, shape)
        mine = b.cast(key, self.lines.dtype.compute)

        def halve(_: Value, low: Value, high: Value) -> tuple[Value, Value]:
            is_open = b.map("lt", low, high)
            between = b.map("shift_right", b.map("add", low, high), number(1))
            operands = (view, line, between, is_open)
            found = b.value("tile.gather", operands, TileType(shape, self.lines.dtype), {"fill": 0, "masked": True})
            other = b.cast(found, self.lines.dtype.compute)
            ahead = b.map(
                "where", left, self._before(b, other, mine), b.map("logical_not", self._before(b, mine, other))
            )
            behind = b.map("logical_and", is_open, b.map("logical_not", ahead))
            ahead = b.map("logical_and", is_open, ahead)
            low = b.map("where", ahead, b.map("add", between, number(1)), low)
            return low, b.map("where", behind, between, high)

        bounds = [b.map("where", left, middle, start), b.map("where", left, end, middle)]
        low, _ = b.loop(b.index(0), b.index(LONGEST.bit_length()), b.index(1), bounds, halve)
        place = b.map("add", at, b.map("sub", low, middle))
        within = b.map("lt", at, end_of_line)
        for pair, dtype in ((keys, self.lines.dtype), (places, dtypes.int64)):
            if len(pair) < 2:
                continue
            kind = ViewType(self.lines.view.shape, dtype)
            moved = (
                key
                if dtype is self.lines.dtype and pair is keys
                else b.load(writer.window(pair[0], 0, kind, "places"), writer.offsets, shape)
            )
            target = writer.window(pair[1], 0, kind, "to", write=True)
            b.op("tile.scatter", [target, moved, line, place, within], (), {"masked": True})
        self._launch(writer, "merge")

    def _before(self, b: TileBuilder, x: Value, y: Value) -> Value:
        """Whether x must come before y: NaN is the largest."""
        found = b.map("gt" if self.descending else "lt", x, y)
        if not self.lines.dtype.is_float:
            return found
        large, small = (x, y) if self.descending else (y, x)
        only = b.map("logical_and", b.map("isnan", large), b.map("logical_not", b.map("isnan", small)))
        return b.map("logical_or", found, only)


def scalar(b: TileBuilder, index: Value) -> Value:
    """An index as a rank-0 int64 tile."""
    return b.value("tile.to_scalar", (index,), TileType((), dtypes.int64))
