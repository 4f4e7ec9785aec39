"""Operators that collect values at numbered places: sums and extremes of segments, and stores at computed positions.

The primitives are the folds of segments. Each takes its elements, or those of each part of them, in ascending order of
their positions, whatever the indices are and however many threads share the work, so that equal operands give equal
bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Combine, Cut
from tessera.compiler.graph.infer import shown
from tessera.compiler.graph.operator import Cost, Infer, Operator, tensor
from tessera.compiler.graph.operators.indexing import positions
from tessera.compiler.graph.operators.reductions import extreme
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.scalars import Accepts


class SegmentFold(Operator, abstract=True):
    kind = "scatter"
    methods = ()
    apart = ("segment_ids",)
    accepts: ClassVar[Accepts]
    combine: ClassVar[Combine]

    def infer(self, t: Infer, x: TensorType, segment_ids: TensorType, num_segments: Dim, axis: int = 0) -> TensorType:
        t.require(x, self.accepts)
        t.require(segment_ids, "integer", operand=1)
        a, count = t.axis(x, axis), t.dim(num_segments, "num_segments")
        message = f"{self.name} along an axis of {x.shape[a]} takes one segment for each element of it"
        if segment_ids.rank != 1:
            t.fail("TS213", f"{message}, not {shape_text(segment_ids.shape)}", operand=1)
        t.same(segment_ids.shape[0], x.shape[a], "TS213", f"{message}, not {segment_ids.shape[0]}", operand=1)
        if isinstance(count, int) and count < 0:
            t.fail("TS213", f"num_segments is not negative, unlike {count}")
        t.canonical(num_segments=count, axis=a)
        x = self.operand(t, x)
        return x.with_shape((*x.shape[:a], count, *x.shape[a + 1 :]))

    def operand(self, t: Infer, x: TensorType) -> TensorType:
        return x

    def decompose(self, g: GraphBuilder, x: Value, segment_ids: Value, num_segments: Dim, axis: int) -> Value | None:
        t = tensor(x)
        if t.shape[axis] == 0:
            empty = (*t.shape[:axis], num_segments, *t.shape[axis + 1 :])
            return g.full(empty, self.start(np.empty(0, t.dtype.numpy)), t.dtype)
        wide = self.wide(t)
        if wide == t.dtype:
            return None
        out = g.emit(self, [g.to(x, wide), segment_ids], {"num_segments": num_segments, "axis": axis})
        return g.to(out, t.dtype)

    def wide(self, x: TensorType) -> DType:
        """The dtype that results are collected in."""
        return x.dtype

    def start(self, x: Any) -> Any:
        """The result for a segment of no elements."""
        raise NotImplementedError

    def reference(self, x: Any, segment_ids: Any, num_segments: int, axis: int) -> Any:
        wide = {"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype) if self.combine == "sum" else x.dtype
        out = np.full((*x.shape[:axis], num_segments, *x.shape[axis + 1 :]), self.start(x), wide)
        inside = (segment_ids >= 0) & (segment_ids < num_segments)
        fold = {"sum": np.add, "max": np.maximum, "min": np.minimum}[self.combine]
        fold.at(np.moveaxis(out, axis, 0), segment_ids[inside].astype(np.int64), np.moveaxis(x, axis, 0)[inside])
        return out

    def partition(
        self, cut: Cut, x: TensorType, segment_ids: TensorType, num_segments: Dim, axis: int
    ) -> Combine | None:
        along, ids = cut.axis(x) == axis, cut.axis(segment_ids) == 0
        if cut.mentioned(num_segments) or along != ids:
            cut.whole(f"a segment may have elements anywhere along {cut.dim}")
        return self.combine if along else None

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape)


def _spread(g: GraphBuilder, v: Value, segment_ids: Value, axis: int) -> Value:
    """For each slice what `v` has for its segment; 0 for those that are in none."""
    at, shape = g.to(segment_ids, dtypes.int64), tensor(v).shape
    inside = g.logical_and(g.ge(at, 0), g.lt(at, shape[axis]))
    found = g.take(v, g.where(inside, at, 0), axis=axis)
    line = tuple(d if i == axis else 1 for i, d in enumerate(tensor(found).shape))
    return g.where(g.reshape(inside, line), found, 0)


class SegmentSum(SegmentFold):
    """Sums of the slices of `x` along `axis` that have the same number in `segment_ids`: `num_segments` of them.

    Slices whose number is negative or too large are ignored. The others are added one after the other, in ascending
    order (many narrow ones in parts, whose sums are added in order); floats are collected in f64 and rounded once,
    integers and bools are summed as 64-bit integers.
    """

    accepts = "any"
    combine = "sum"

    def operand(self, t: Infer, x: TensorType) -> TensorType:
        return x if x.dtype.is_float or x.dtype.is_complex else t.convert(0, x, x.dtype.accumulate)

    def wide(self, x: TensorType) -> DType:
        return x.policy.accum if x.policy and x.policy.accum else x.dtype

    def start(self, x: Any) -> Any:
        return 0

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, segment_ids: Value, num_segments: Dim, axis: int
    ) -> tuple[Value, None]:
        return (_spread(g, ct, segment_ids, axis), None)

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Any, x: Value, segment_ids: Value, num_segments: Dim, axis: int
    ) -> Value | None:
        return None if tangents[0] is None else g.segment_sum(tangents[0], segment_ids, num_segments, axis)


class SegmentExtremum(SegmentFold, abstract=True):
    accepts = "ordered"
    sign: ClassVar[int]

    def wide(self, x: TensorType) -> DType:
        return dtypes.uint8 if x.dtype.kind == "bool" else x.dtype

    def start(self, x: Any) -> Any:
        return extreme(x, -self.sign)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, segment_ids: Value, num_segments: Dim, axis: int
    ) -> tuple[Value, None]:
        """To the elements that are the extreme; ties share."""
        hit = g.to(g.eq(x, _spread(g, out, segment_ids, axis)), tensor(x).dtype)
        count = g.segment_sum(hit, segment_ids, num_segments, axis)
        share = g.div(ct, g.maximum(count, 1))
        return (g.mul(hit, _spread(g, share, segment_ids, axis)), None)


class SegmentMax(SegmentExtremum):
    """The largest of the slices of `x` along `axis` that have the same number in `segment_ids`, element by element.

    A segment without elements gives the smallest value of the dtype; NaN wins. Slices with other numbers are ignored.
    """

    combine, sign = "max", 1


class SegmentMin(SegmentExtremum):
    """The smallest of the slices of `x` along `axis` that have the same number in `segment_ids`, element by element.

    A segment without elements gives the largest value of the dtype; NaN wins. Slices with other numbers are ignored.
    """

    combine, sign = "min", -1


def _fitting(t: Infer, x: TensorType, indices: TensorType, updates: TensorType, axis: object) -> int:
    """The axis, where `updates` has the shape of `indices`, which fits into that of `x` but for the axis."""
    t.require(indices, "integer", operand=1)
    a = t.axis(x, axis)
    message = f"{t.operator} into {shape_text(x.shape)} at {shape_text(indices.shape)} of {shape_text(updates.shape)}"
    if not indices.rank == updates.rank == x.rank:
        t.fail("TS213", f"{message}: all three have as many axes", operand=1)
    for i, (d, e, f) in enumerate(zip(x.shape, indices.shape, updates.shape, strict=True)):
        t.same(e, f, "TS213", f"{message}: axis {i} of the indices is {e}, that of the updates {f}", operand=2)
        if i != a:
            t.same(d, e, "TS213", f"{message}: axis {i} is {d} and {e}", operand=1)
    return a


def _by_parts(cut: Cut, axis: int, operands: Sequence[TensorType]) -> None:
    """Lines along `axis` are independent of each other."""
    if any(cut.axis(v) == axis for v in operands):
        cut.whole(f"an index may lead anywhere along {cut.dim}")
    cut.aligned(operands)


class Scattering(Operator, abstract=True):
    """Updates of elements at places along an axis."""

    apart = ("indices",)

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if len(args) == 4 and isinstance(args[1], int):
            name, axis = self.name, shown(args[1])
            message = f"PyTorch's x.{name}({axis}, index, source) is x.{name}(index, source, {axis}) here"
            raise TypeError(f"{self.signature} takes the axis last: {message}")
        return super().bind(args, kwargs)

    def infer(self, t: Infer, x: TensorType, indices: TensorType, updates: TensorType, axis: int = -1) -> TensorType:
        t.canonical(axis=_fitting(t, x, indices, updates, axis))
        t.convert(2, updates, x.dtype)
        return x

    def partition(self, cut: Cut, x: TensorType, indices: TensorType, updates: TensorType, axis: int) -> None:
        _by_parts(cut, axis, (x, indices, updates))


class Scatter(Scattering):
    """`x` with `updates` in place of the elements at `indices` along `axis`: `out[indices[i, j], j] = updates[i, j]`.

    Negative indices count from the end; indices outside are ignored. Of several updates of one place the last counts.
    """

    functions, methods = ("scatter", "put_along_axis"), ("scatter",)

    def reference(self, x: Any, indices: Any, updates: Any, axis: int) -> Any:
        out = x.copy()
        for at, place in _index_pairs(x, indices, axis):
            out[place] = updates[at]
        return out

    def decompose(self, g: GraphBuilder, x: Value, indices: Value, updates: Value, axis: int) -> Value:
        """A take from both, one behind the other: the element's last update, or itself."""
        shape, count = tensor(x).shape, dims.prod(tensor(indices).shape)
        total = dims.prod(shape)
        at = g.reshape(positions(g, shape, indices, axis, signed=True), (count,))
        last = g.segment_max(g.iota((count,)), at, total)
        both = g.concat([g.reshape(x, (total,)), g.reshape(updates, (count,))], axis=0)
        return g.reshape(g.take(both, g.where(g.lt(last, 0), g.iota((total,)), g.add(last, total)), axis=0), shape)


class ScatterAdd(Scattering):
    """`x` with `updates` added to the elements at `indices` along `axis`: `out[indices[i, j], j] += updates[i, j]`.

    Negative indices count from the end; indices outside are ignored. Several updates of one place are added in
    ascending order of their positions.
    """

    def infer(self, t: Infer, x: TensorType, indices: TensorType, updates: TensorType, axis: int = -1) -> TensorType:
        t.require(x, "number")
        return super().infer(t, x, indices, updates, axis)

    def reference(self, x: Any, indices: Any, updates: Any, axis: int) -> Any:
        out = np.zeros(x.shape, x.dtype)
        for at, place in _index_pairs(x, indices, axis):
            out[place] += updates[at]
        return x + out

    def decompose(self, g: GraphBuilder, x: Value, indices: Value, updates: Value, axis: int) -> Value:
        shape, count = tensor(x).shape, dims.prod(tensor(indices).shape)
        at = g.reshape(positions(g, shape, indices, axis, signed=True), (count,))
        wide = g.compute(g.reshape(updates, (count,)))
        total = g.reshape(g.segment_sum(wide, at, dims.prod(shape)), shape)
        return g.to(g.add(g.compute(x), g.to(total, tensor(x).dtype.compute)), tensor(x).dtype)


class Put(Operator):
    """`x` with `updates` in place of its slices at `indices` along `axis`: `out[:, indices[i]] = updates[:, i]` for 1.

    The counterpart of `take`: the axes of `indices` stand in `updates` where `axis` is in `x`. Negative indices count
    from the end; indices outside are ignored. If several updates have one place, the last counts. If nothing uses the
    old `x` afterwards, as in a loop that carries it, its memory is changed in place: only `updates` are copied.
    """

    kind = "put"
    apart = ("indices",)

    def infer(self, t: Infer, x: TensorType, indices: TensorType, updates: TensorType, axis: int = 0) -> TensorType:
        t.require(indices, "integer", operand=1)
        a = t.axis(x, axis)
        wanted = (*x.shape[:a], *indices.shape, *x.shape[a + 1 :])
        message = f"put into {shape_text(x.shape)} along axis {a} takes updates of {shape_text(wanted)}"
        if updates.rank != len(wanted):
            t.fail("TS213", f"{message}, not {shape_text(updates.shape)}", operand=2)
        for d, e in zip(wanted, updates.shape, strict=True):
            t.same(d, e, "TS213", f"{message}, not {shape_text(updates.shape)}", operand=2)
        t.canonical(axis=a)
        t.convert(2, updates, x.dtype)
        return x

    def reference(self, x: Any, indices: Any, updates: Any, axis: int) -> Any:
        out, n = np.moveaxis(x.copy(), axis, 0), x.shape[axis]
        slices = np.moveaxis(updates.reshape(*x.shape[:axis], indices.size, *x.shape[axis + 1 :]), axis, 0)
        for i, piece in zip(indices.ravel().tolist(), slices, strict=True):
            at = i + n if i < 0 else i
            if 0 <= at < n:
                out[at] = piece
        return np.moveaxis(out, 0, axis)

    def decompose(self, g: GraphBuilder, x: Value, indices: Value, updates: Value, axis: int) -> Value | None:
        if tensor(indices).rank == 1:
            return None
        shape, count = tensor(x).shape, dims.prod(tensor(indices).shape)
        row = g.reshape(updates, (*shape[:axis], count, *shape[axis + 1 :]))
        return g.put(x, g.reshape(indices, (count,)), row, axis=axis)

    def partition(self, cut: Cut, x: TensorType, indices: TensorType, updates: TensorType, axis: int) -> None:
        if cut.axis(x) == axis or cut.axis(indices) is not None or indices.rank != 1:
            cut.whole(f"an index may lead anywhere along {cut.dim}")
        cut.aligned((x, updates))

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, indices: Value, updates: Value, axis: int
    ) -> tuple[Value, None, Value]:
        """The cotangent of the old tensor is 0 where an update was put. That of an update is the cotangent at its
        place, if no later update replaced it."""
        found = self._own(g, g.take(ct, indices, axis=axis), tensor(x).shape[axis], indices, axis)
        return (g.put(ct, indices, g.zeros_like(updates), axis=axis), None, found)  # last: ct is changed in place

    def _own(self, g: GraphBuilder, found: Value, n: Dim, indices: Value, axis: int) -> Value:
        """`found` without the updates that a later one of the same place has replaced."""
        shape = tensor(indices).shape
        if (count := dims.prod(shape)) == 1:
            return found
        at, number = g.cast(g.reshape(indices, (count,)), dtypes.int64), g.iota((count,))
        at = g.where(g.lt(at, 0), g.add(at, n), at)
        last = g.reshape(g.eq(g.take(g.segment_max(number, at, n), at), number), shape)
        rank = tensor(found).rank
        return g.where(g.reshape(last, (*(1,) * axis, *shape, *(1,) * (rank - axis - len(shape)))), found, 0)

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Any, x: Value, indices: Value, updates: Value, axis: int
    ) -> Value:
        before = g.zeros_like(x) if tangents[0] is None else tangents[0]
        put = g.zeros_like(updates) if tangents[2] is None else tangents[2]
        return g.put(before, indices, put, axis=axis)

    def cost(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Cost:
        """In place: a copy that is needed is an op of its own."""
        _, indices, updates = operands
        moved = 2 * dims.prod(updates.shape) * updates.dtype.itemsize
        return Cost(0, moved + dims.prod(indices.shape) * indices.dtype.itemsize)


def _index_pairs(x: Any, indices: Any, axis: int) -> Any:
    """(index of an update, index of the element of x that it means), in order, but for those outside."""
    n = x.shape[axis]
    for at in np.ndindex(indices.shape):
        i = int(indices[at])
        i = i + n if i < 0 else i
        if 0 <= i < n:
            yield at, (*at[:axis], i, *at[axis + 1 :])
