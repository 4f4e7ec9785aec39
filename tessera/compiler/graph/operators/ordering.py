"""Elements in order: sorting, and the largest few. The primitives order the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.joining import part
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.unit import LaunchCheck
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np


def order(x: Any, axis: int, descending: bool) -> Any:
    """NumPy's stable positions; in descending order too, equal elements keep their order and NaN is the largest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    found = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - found


class Ordering(Operator, abstract=True):
    kind = "sort"

    def infer(
        self, t: Infer, x: TensorType, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> TensorType:
        t.require(x, "ordered")
        t.canonical(axis=t.axis(x, axis), descending=t.flag(descending, "descending"), stable=t.flag(stable, "stable"))
        return x

    def decompose(self, g: GraphBuilder, x: Value, axis: int, descending: bool, stable: bool) -> Value | None:
        last, dtype = tensor(x).rank - 1, tensor(x).dtype
        if axis == last and dtype.kind != "bool":
            return None
        ways = {"axis": last, "descending": descending, "stable": stable}
        bits = g.cast(x, dtypes.uint8) if dtype.kind == "bool" else x
        out = g.moveaxis(g.emit(self, [g.moveaxis(bits, axis, last)], ways), last, axis)
        return g.cast(out, dtype) if tensor(out).dtype == dtypes.uint8 else out

    def partition(self, cut: Cut, x: TensorType, axis: int, descending: bool, stable: bool) -> None:
        if cut.axis(x) == axis:
            cut.whole(f"it compares elements all along {cut.dim}")

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 20


class Sort(Ordering):
    """The elements along `axis` in ascending order, or in descending order; NaN counts as the largest."""

    def reference(self, x: Any, axis: int, descending: bool, stable: bool) -> Any:
        return np.take_along_axis(x, order(x, axis, descending), axis)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: int, descending: bool, stable: bool
    ) -> tuple[Value]:
        """Back to where the elements were: by the positions that sort the positions."""
        places = g.argsort(g.argsort(x, axis, descending), axis)
        return (g.take_along_axis(ct, places, axis=axis),)

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Any, x: Value, axis: int, descending: bool, stable: bool
    ) -> Value:
        return g.take_along_axis(tangents[0], g.argsort(x, axis, descending), axis=axis)


class Argsort(Ordering):
    """The positions of the elements along `axis` in ascending order, or in descending order, as int64.

    Equal elements keep their order; NaN counts as the largest.
    """

    differentiable = False

    def infer(
        self, t: Infer, x: TensorType, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> TensorType:
        return super().infer(t, x, axis, descending, stable).with_dtype(dtypes.int64)

    def reference(self, x: Any, axis: int, descending: bool, stable: bool) -> Any:
        return order(x, axis, descending)


class Topk(Operator):
    """The `k` largest elements along `axis` in descending order, and their positions as int64.

    With `largest=False` the smallest, in ascending order. Of equal elements the first come first.
    """

    multiple = True

    def infer(
        self, t: Infer, x: TensorType, k: Dim, axis: int = -1, largest: bool = True
    ) -> tuple[TensorType, TensorType]:
        t.require(x, "ordered")
        a, count = t.axis(x, axis), t.dim(k, "k")
        size = x.shape[a]
        room = size - count
        if (isinstance(count, int) and count < 0) or (isinstance(room, int) and room < 0):
            t.fail("TS213", f"topk takes 0 to {size} elements of an axis of {size}, not {count}")
        if not dims.at_most(count, size, t.facts):
            t.checks.append(LaunchCheck(dims.dim_min(count, size), count, f"topk: {count} elements of {size}"))
        t.canonical(k=count, axis=a, largest=t.flag(largest, "largest"))
        out = x.with_shape((*x.shape[:a], count, *x.shape[a + 1 :]))
        return out, out.with_dtype(dtypes.int64)

    def reference(self, x: Any, k: int, axis: int, largest: bool) -> Any:
        at = np.take(order(x, axis, largest), np.arange(k), axis)
        return np.take_along_axis(x, at, axis), at

    def decompose(self, g: GraphBuilder, x: Value, k: Dim, axis: int, largest: bool) -> tuple[Value, Value]:
        at = part(g, g.argsort(x, axis, largest), axis, 0, k)
        return g.take_along_axis(x, at, axis=axis), at
