"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims, dtypes
from tessera.language.dtypes import DType
from tessera.language.lazy import np


class Scan(Operator, abstract=True):
    """An inclusive prefix along one axis, in ascending order."""

    kind = "scan"

    def infer(self, t: Infer, x: TensorType, axis: int | None = None) -> TensorType:
        wide = x if x.dtype.is_float or x.dtype.is_complex else t.convert(0, x, x.dtype.accumulate)
        if axis is None and x.rank != 1:
            t.canonical(axis=None)
            return wide.with_shape((dims.prod(x.shape),))
        t.canonical(axis=t.axis(x, 0 if axis is None else axis))
        return wide

    def decompose(self, g: GraphBuilder, x: Value, axis: int | None) -> Value | None:
        if axis is not None:
            return None
        return g.emit(self, [g.reshape(x, (dims.prod(tensor(x).shape),))], {"axis": 0})

    def partition(self, cut: Cut, x: TensorType, axis: int | None) -> None:
        if (a := cut.axis(x)) is not None and axis in (a, None):
            cut.whole(f"it runs along {cut.dim}")


class Cumsum(Scan):
    """Running sums along `axis` (None: of the flattened tensor). Integers and bools are summed as 64-bit integers."""

    def reference(self, x: Any, axis: int | None) -> Any:
        return np.cumsum(x, axis=axis)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: int | None) -> Any:
        if axis is None:
            return (g.reshape(g.flip(g.cumsum(g.flip(ct, 0), 0), 0), tensor(x).shape),)
        return (g.flip(g.cumsum(g.flip(ct, axis), axis), axis),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Sequence[Value], x: Value, axis: int | None) -> Value:
        return g.cumsum(tangents[0], axis=axis)


class Cumprod(Scan):
    """Running products along `axis` (None: of the flattened tensor). Integers and bools count as 64-bit integers."""

    def reference(self, x: Any, axis: int | None) -> Any:
        return np.cumprod(x, axis=axis)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: int | None) -> tuple[Value]:
        """Sums of what follows, over x. From the first 0 on all products are 0: it alone has a derivative there, and
        its products are those of the elements around it."""
        if axis is None:
            line, axis = g.reshape(x, (dims.prod(tensor(x).shape),)), 0
        else:
            line = x
        zero = g.eq(line, 0)
        seen = g.cumsum(g.to(zero, dtypes.int64), axis)
        first = g.logical_and(zero, g.eq(seen, 1))
        filled = g.where(first, 1, line)

        def behind(v: Value) -> Value:
            return g.flip(g.cumsum(g.flip(v, axis), axis), axis)

        regular = g.div(behind(g.mul(ct, out)), g.where(zero, 1, line))
        at_zero = behind(g.mul(ct, g.cumprod(filled, axis)))
        found = g.where(g.eq(seen, 0), regular, g.where(first, at_zero, 0))
        return (g.reshape(found, tensor(x).shape),)


class Cumulative(Operator, abstract=True):
    """The Array API's scan: along `axis`, which only a vector need not name; elements may count as `dtype` first."""

    batching = "axis"

    methods = ()
    scan: ClassVar[str]
    initial: ClassVar[int]

    def infer(
        self, t: Infer, x: TensorType, axis: int | None = None, dtype: DType | None = None,
        include_initial: bool = False,
    ) -> TensorType:  # fmt: skip
        if axis is None and x.rank != 1:
            t.fail("TS204", f"{self.name} needs an axis: its operand has {x.rank} axes")
        a = t.axis(x, 0 if axis is None else axis)
        wanted = x.dtype.accumulate if x.dtype.is_integer or x.dtype.kind == "bool" else x.dtype
        found = wanted if dtype is None else t.dtype(dtype)
        initial = t.flag(include_initial, "include_initial")
        t.canonical(axis=a, dtype=found, include_initial=initial)
        t.convert(0, x, found)
        return TensorType(tuple(d + 1 if initial and i == a else d for i, d in enumerate(x.shape)), found)

    def reference(self, x: Any, axis: int, dtype: DType, include_initial: bool) -> Any:
        out = getattr(np, self.scan)(x, axis=axis, dtype=x.dtype)
        if not include_initial:
            return out
        first = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), self.initial, x.dtype)
        return np.concatenate([first, out], axis)

    def decompose(self, g: GraphBuilder, x: Value, axis: int, dtype: DType, include_initial: bool) -> Value:
        out = g.to(getattr(g, self.scan)(x, axis=axis), dtype)
        if not include_initial:
            return out
        shape = tensor(x).shape
        first = g.full((*shape[:axis], 1, *shape[axis + 1 :]), self.initial, dtype)
        return g.concat([first, out], axis=axis)


class CumulativeSum(Cumulative):
    """Running sums along `axis`; with `include_initial` a 0 stands before them."""

    scan, initial = "cumsum", 0


class CumulativeProd(Cumulative):
    """Running products along `axis`; with `include_initial` a 1 stands before them."""

    scan, initial = "cumprod", 1
