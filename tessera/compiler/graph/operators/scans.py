"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, TileKernel, tensor
from tessera.compiler.graph.operators.joining import following, preceding
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Dim
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
        """The product of those before, times what follows: ct[i] + x[i + 1] (ct[i + 1] + x[i + 2] (...)). Nothing is
        divided, so that derivatives of any order are right at 0."""
        if axis is None:
            line, axis = g.reshape(x, (dims.prod(tensor(x).shape),)), 0
        else:
            line = x
        before = preceding(g, out, axis, 1)
        found = g.mul(before, g.recurrence(following(g, line, axis, 0), ct, axis, True))
        return (g.reshape(found, tensor(x).shape),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Sequence[Value], x: Value, axis: int | None) -> Value:
        line, change = x, tangents[0]
        if axis is None:
            axis, flat = 0, (dims.prod(tensor(x).shape),)
            line, change = g.reshape(x, flat), g.reshape(change, flat)
        return g.recurrence(line, g.mul(preceding(g, out, axis, 1), change), axis)


class RunningExtremum(Scan, abstract=True):
    """Its derivative is that at the place of the extreme; of equal ones, that of the last, as in PyTorch."""

    ufunc: ClassVar[str]

    def infer(self, t: Infer, x: TensorType, axis: int | None = None) -> TensorType:
        t.require(x, "real", operand=0)
        t.canonical(axis=None if axis is None and x.rank != 1 else t.axis(x, 0 if axis is None else axis))
        return x.with_shape((dims.prod(x.shape),)) if axis is None else x

    def reference(self, x: Any, axis: int | None) -> Any:
        return getattr(np, self.ufunc).accumulate(x.ravel() if axis is None else x, axis=axis or 0)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: int | None) -> tuple[Value]:
        """The sum of the cotangents from each place that is the extreme up to the next one."""
        line, axis = self._line(g, x, axis)
        at = self._taken(g, out, line)
        stays = g.sub(1.0, following(g, g.to(at, tensor(ct).dtype), axis, 1))
        found = g.where(at, g.recurrence(stays, ct, axis, True), 0.0)
        return (g.reshape(found, tensor(x).shape),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Sequence[Value], x: Value, axis: int | None) -> Value:
        line, along = self._line(g, x, axis)
        at, change = self._taken(g, out, line), g.reshape(tangents[0], tensor(line).shape)
        stays = g.sub(1.0, g.to(at, tensor(change).dtype))
        return g.recurrence(stays, g.where(at, change, 0.0), along)

    def _line(self, g: GraphBuilder, x: Value, axis: int | None) -> tuple[Value, int]:
        return (g.reshape(x, (dims.prod(tensor(x).shape),)), 0) if axis is None else (x, axis)

    def _taken(self, g: GraphBuilder, out: Value, line: Value) -> Value:
        """Which elements are the extreme of those up to them."""
        return g.logical_or(g.eq(line, out), g.isnan(line))


class Cummax(RunningExtremum):
    """The largest element so far along `axis` (None: of the flattened tensor); NaN from the first NaN on."""

    ufunc = "maximum"


class Cummin(RunningExtremum):
    """The smallest element so far along `axis` (None: of the flattened tensor); NaN from the first NaN on."""

    ufunc = "minimum"


LANES = 16
"""lines that a program of a recurrence takes at once"""


class Recurrence(Operator):
    """h[i] = a[i] * h[i - 1] + b[i] along `axis`, from h = 0 before the first; `reverse`: from the last element on.

    The derivative of running products. Its own derivative is of the same form, so that it has all orders.
    """

    kind = "scan"
    batching = "axis"
    functions = ()
    methods = ()

    def infer(self, t: Infer, a: TensorType, b: TensorType, axis: int = -1, reverse: bool = False) -> TensorType:
        t.canonical(axis=t.axis(a, axis), reverse=t.flag(reverse, "reverse"))
        return TensorType(t.broadcast(a.shape, b.shape), t.promote(a, b))

    def reference(self, a: Any, b: Any, axis: int, reverse: bool) -> Any:
        a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
        out, h = np.empty_like(b), np.zeros_like(b[0]) if len(b) else None
        for i in range(len(b))[:: -1 if reverse else 1]:
            h = out[i] = a[i] * h + b[i]
        return np.moveaxis(out, 0, axis)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        shape = operands[0].shape
        if len(shape) != 3 or attrs["axis"] != 1:
            return None
        lanes = {"ROWS": 1, "COLUMNS": LANES} if shape[2] != 1 else {"ROWS": LANES, "COLUMNS": 1}
        if shape[0] == 1:
            lanes["ROWS"] = 1
        return TileKernel("recurrence.recurrence", "running products of {0}, differentiated", {"axis": 1}, lanes)

    def decompose(self, g: GraphBuilder, a: Value, b: Value, axis: int, reverse: bool) -> Value | None:
        """With one axis before and one behind; of nothing, nothing."""
        shape = tensor(a).shape
        if 0 in shape:
            return b
        if len(shape) == 3 and axis == 1:
            return None
        three = (dims.prod(shape[:axis]), shape[axis], dims.prod(shape[axis + 1 :]))
        return g.reshape(g.recurrence(g.reshape(a, three), g.reshape(b, three), 1, reverse), shape)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, a: Value, b: Value, axis: int, reverse: bool) -> Any:
        ahead, behind = (preceding, following) if reverse else (following, preceding)
        back = g.recurrence(ahead(g, a, axis, 0), ct, axis, not reverse)
        return (g.mul(back, behind(g, out, axis, 0)), back)

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Sequence[Value | None], a: Value, b: Value, axis: int,
        reverse: bool,
    ) -> Value:  # fmt: skip
        behind = following if reverse else preceding
        of_a, of_b = tangents
        change = None if of_a is None else g.mul(of_a, behind(g, out, axis, 0))
        change = of_b if change is None else change if of_b is None else g.add(change, of_b)
        assert change is not None
        return g.recurrence(a, change, axis, reverse)

    def partition(self, cut: Cut, a: TensorType, b: TensorType, axis: int, reverse: bool) -> None:
        if cut.axis(a) == axis:
            cut.whole(f"it runs along {cut.dim}")

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 2


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
