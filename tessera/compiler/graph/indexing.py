"""Elements at computed positions, masks made of positions, and what subscripts mean.

The primitive is `take`. Negative indices count from the end; what lies outside the axis reads as 0 (debug mode reports
it).
"""

from __future__ import annotations

from typing import Any

from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import GraphBuilder, Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np


class Take(Operator):
    """The slices of `x` at `indices` along `axis`, which the axes of `indices` replace; None: of the flattened tensor.

    Negative indices count from the end; indices outside read as 0.
    """

    apart = ("indices",)

    kind = "gather"

    def infer(self, t: Infer, x: TensorType, indices: TensorType, axis: int | None = None) -> TensorType:
        t.require(indices, "integer", operand=1)
        if axis is None and x.rank != 1:
            return x.with_shape(indices.shape)
        a = t.axis(x, 0 if axis is None else axis)
        t.canonical(axis=a)
        return x.with_shape((*x.shape[:a], *indices.shape, *x.shape[a + 1 :]))

    def reference(self, x: Any, indices: Any, axis: int | None) -> Any:
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
        return taken(x, indices, axis)

    def decompose(self, g: GraphBuilder, x: Value, indices: Value, axis: int | None) -> Value | None:
        if axis is not None:
            return None
        return g.take(g.reshape(x, (dims.prod(tensor(x).shape),)), indices, axis=0)

    def partition(self, cut: Cut, x: TensorType, indices: TensorType, axis: int | None) -> None:
        a = cut.axis(x)
        if a is not None and axis in (a, None):
            cut.whole(f"an index may lead anywhere along {cut.dim}")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, indices: Value, axis: int | None) -> Any:
        """A contraction with the indices' one-hot rows: sums in ascending order, whatever the indices are."""
        shape = tensor(x).shape if axis is not None else (dims.prod(tensor(x).shape),)
        a, count = axis or 0, dims.prod(tensor(indices).shape)
        at = g.to(g.reshape(indices, (count,)), dtypes.int64)
        rows = g.one_hot(g.where(g.lt(at, 0), g.add(at, shape[a]), at), shape[a], dtype=tensor(ct).dtype)
        before, after = dims.prod(shape[:a]), dims.prod(shape[a + 1 :])
        summed = g.contract(g.reshape(ct, (before, count, after)), rows, lhs="bna", rhs="ni", out="bia")
        return (g.reshape(summed, tensor(x).shape), None)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, indices: Value, axis: int | None) -> Any:
        return None if tangents[0] is None else g.take(tangents[0], indices, axis=axis)


def taken(x: Any, indices: Any, axis: int) -> Any:
    n = x.shape[axis]
    at = np.where(indices < 0, indices.astype(np.int64) + n, indices).astype(np.int64)
    inside = (at >= 0) & (at < n)
    if n == 0:
        return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    found = np.take(x, np.where(inside, at, 0), axis)
    mask = inside.reshape([1] * axis + list(indices.shape) + [1] * (x.ndim - axis - 1))
    return np.where(mask, found, np.zeros((), x.dtype))


class TakeAlongAxis(Operator):
    """`out[i, j, k] = x[i, indices[i, j, k], k]` for axis 1: one index per element. Other axes broadcast."""

    apart = ("indices",)

    functions = methods = ("take_along_axis", "gather")

    def infer(self, t: Infer, x: TensorType, indices: TensorType, axis: int = -1) -> TensorType:
        t.require(indices, "integer", operand=1)
        a = t.axis(x, axis)
        if indices.rank != x.rank:
            both = f"{shape_text(indices.shape)} for {shape_text(x.shape)}"
            t.fail("TS213", f"take_along_axis needs as many axes of indices as of x, not {both}", operand=1)
        t.canonical(axis=a)
        rest = t.broadcast((*x.shape[:a], 1, *x.shape[a + 1 :]), (*indices.shape[:a], 1, *indices.shape[a + 1 :]))
        return x.with_shape((*rest[:a], indices.shape[a], *rest[a + 1 :]))

    def reference(self, x: Any, indices: Any, axis: int) -> Any:
        rest = np.broadcast_shapes(_without(x.shape, axis), _without(indices.shape, axis))
        x = np.broadcast_to(x, (*rest[:axis], x.shape[axis], *rest[axis:]))
        indices = np.broadcast_to(indices, (*rest[:axis], indices.shape[axis], *rest[axis:]))
        n = x.shape[axis]
        at = np.where(indices < 0, indices.astype(np.int64) + n, indices).astype(np.int64)
        inside = (at >= 0) & (at < n)
        if n == 0:
            return np.zeros(indices.shape, x.dtype)
        return np.where(inside, np.take_along_axis(x, np.where(inside, at, 0), axis), np.zeros((), x.dtype))

    def partition(self, cut: Cut, x: TensorType, indices: TensorType, axis: int) -> None:
        if cut.axis(x) == axis:
            cut.whole(f"an index may lead anywhere along {cut.dim}")
        cut.aligned([x, indices])

    def decompose(self, g: GraphBuilder, x: Value, indices: Value, axis: int) -> Value:
        """One take from the flattened tensor, at the row-major position of each element; outside stays outside."""
        shape, total = tensor(x).shape, dims.prod(tensor(x).shape)
        rank, n = len(shape), shape[axis]
        at = g.cast(indices, dtypes.int64)
        at = g.where(g.lt(at, 0), g.add(at, n), at)
        ok = g.logical_and(g.ge(at, 0), g.lt(at, n))
        position = g.mul(at, dims.prod(shape[axis + 1 :]))
        for i, d in enumerate(shape):
            if i != axis and d != 1:
                line = g.iota(tuple(d if k == i else 1 for k in range(rank)), axis=i)
                position = g.add(position, g.mul(line, dims.prod(shape[i + 1 :])))
        return g.take(g.reshape(x, (total,)), g.where(ok, position, total), axis=0)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


class OneHot(Operator):
    """A new last axis of size `depth`, 1 at the position that `indices` says and 0 elsewhere."""

    def infer(self, t: Infer, indices: TensorType, depth: Dim, dtype: DType = dtypes.f32) -> TensorType:
        t.require(indices, "integer")
        t.canonical(depth=t.dim(depth, "depth"), dtype=t.dtype(dtype))
        return TensorType((*indices.shape, t.dim(depth)), t.dtype(dtype))

    def reference(self, indices: Any, depth: int, dtype: DType) -> Any:
        return indices[..., None] == np.arange(depth)

    def decompose(self, g: GraphBuilder, indices: Value, depth: Dim, dtype: DType) -> Value:
        rank = tensor(indices).rank
        line = g.iota((1,) * rank + (depth,), axis=rank)
        return g.cast(g.eq(g.unsqueeze(g.cast(indices, dtypes.int64), -1), line), dtype)


class Tril(Operator):
    """`x` with zeros above diagonal number k of its last two axes."""

    lower = True

    def infer(self, t: Infer, x: TensorType, k: int = 0) -> TensorType:
        if x.rank < 2:
            t.fail("TS213", f"{self.name} needs at least two axes, {shape_text(x.shape)} has {x.rank}")
        t.canonical(k=t.integer(k, "k"))
        return x

    def reference(self, x: Any, k: int) -> Any:
        return np.tril(x, k) if self.lower else np.triu(x, k)

    def decompose(self, g: GraphBuilder, x: Value, k: int) -> Value:
        rows, columns = tensor(x).shape[-2:]
        row, column = g.iota((rows, 1), axis=0), g.iota((1, columns), axis=1)
        rest = False if tensor(x).dtype.kind == "bool" else 0
        return g.where((g.le if self.lower else g.ge)(column, g.add(row, k)), x, rest)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, k: int) -> tuple[Value]:
        return (g.emit(self, [ct], {"k": k}),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, k: int) -> Value:
        return g.emit(self, [tangents[0]], {"k": k})


class Triu(Tril):
    """`x` with zeros below diagonal number k of its last two axes."""

    lower = False
