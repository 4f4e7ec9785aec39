"""Reductions along axes, and prefix sums.

`axis` is an axis, a tuple of axes or None for all of them; negative axes count from the end. Narrow floats are summed
in f32 and integers in 64 bits. The order of summation belongs to the target and never depends on sizes of tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from tessera.compiler.graph.cut import Combine, Cut
from tessera.compiler.graph.infer import at_least_zero
from tessera.compiler.graph.operator import GraphBuilder, Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.scalars import Accepts

Axes: TypeAlias = "int | tuple[int, ...] | None"


def reduced(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """The shape that is left of `shape`."""
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def expanded(g: GraphBuilder, v: Value, x: Value, axis: Sequence[int]) -> Value:
    """A result of a reduction of `x` with its axes put back as size 1, so that it broadcasts against `x`."""
    return g.reshape(v, reduced(tensor(x).shape, axis, True))


def elements(x: Value, axis: Sequence[int]) -> Dim:
    """How many elements of `x` each result of a reduction over `axis` is made of."""
    return dims.prod(tensor(x).shape[a] for a in axis)


def combined(cut: Cut, x: TensorType, axis: Sequence[int], how: Combine | None) -> Combine | None:
    """The `partition` rule of reductions: those over the cut axis leave a result of each part, to be combined."""
    if cut.axis(x) not in axis:
        return None
    return how or cut.whole(f"it compares elements all along {cut.dim}")


class Reduction(Operator, abstract=True):
    """A reduction that lowering knows."""

    kind = "reduce"
    accepts: ClassVar[Accepts] = "number"
    needs_elements: ClassVar[bool] = False
    combine: ClassVar[Combine | None] = None
    """how the results of parts of the elements give that of all; None: they do not"""

    def infer(self, t: Infer, x: TensorType, axis: Axes = None, keepdims: bool = False) -> TensorType:
        axes = t.axes(x, axis)
        x = self.operand(t, x)
        if self.needs_elements and any(x.shape[a] == 0 for a in axes):
            t.fail("TS213", f"{self.name} of no elements is undefined: {x.pretty()} has size 0 along axis {axis}")
        t.canonical(axis=axes, keepdims=t.flag(keepdims, "keepdims"))
        return TensorType(reduced(x.shape, axes, keepdims), self.result(x.dtype))

    def operand(self, t: Infer, x: TensorType) -> TensorType:
        """Checks and converts the operand."""
        t.require(x, self.accepts)
        return x

    def result(self, dtype: DType) -> DType:
        return dtype

    def partition(self, cut: Cut, x: TensorType, axis: tuple[int, ...], keepdims: bool) -> Combine | None:
        return combined(cut, x, axis, self.combine)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape)


class Sum(Reduction):
    """The sum of the elements along `axis`. Integers and bools are summed as 64-bit integers."""

    accepts = "any"
    combine = "sum"

    def operand(self, t: Infer, x: TensorType) -> TensorType:
        return x if x.dtype.is_float or x.dtype.is_complex else t.convert(0, x, x.dtype.accumulate)

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.sum(x, axis=axis, keepdims=keepdims)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...], keepdims: bool) -> Any:
        return (g.broadcast_to(expanded(g, ct, x, axis), tensor(x).shape),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, axis: Axes, keepdims: bool) -> Value:
        return g.sum(tangents[0], axis=axis, keepdims=keepdims)


class Prod(Reduction):
    """The product of the elements along `axis`. Integers and bools are multiplied as 64-bit integers."""

    accepts = "any"
    combine = "prod"
    operand = Sum.operand

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.prod(x, axis=axis, keepdims=keepdims)


def extreme(x: Any, sign: int) -> Any:
    """The value of the array's dtype that no other is below (sign -1) or above (1): what max and min of nothing are."""
    if x.dtype.kind == "b":
        return sign > 0
    if x.dtype.kind in "iu":
        return np.iinfo(x.dtype).max if sign > 0 else np.iinfo(x.dtype).min
    return sign * np.inf


class Extremum(Reduction, abstract=True):
    accepts = "ordered"
    needs_elements = True
    of_bools: ClassVar[str]

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], keepdims: bool) -> Value | None:
        if tensor(x).dtype.kind != "bool":
            return None
        return getattr(g, self.of_bools)(x, axis=axis, keepdims=keepdims)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...], keepdims: bool) -> Any:
        hit = g.cast(g.eq(x, expanded(g, out, x, axis)), tensor(x).dtype)  # ties share the cotangent
        share = g.div(expanded(g, ct, x, axis), g.sum(hit, axis=axis, keepdims=True))
        return (g.mul(hit, share),)


class Max(Extremum):
    """The largest element along `axis`; NaN if there is one."""

    functions = methods = ("max", "amax")
    combine = "max"
    of_bools = "any"

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.max(x, axis=axis, keepdims=keepdims, initial=extreme(x, -1))


class Min(Extremum):
    """The smallest element along `axis`; NaN if there is one."""

    functions = methods = ("min", "amin")
    combine = "min"
    of_bools = "all"

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.min(x, axis=axis, keepdims=keepdims, initial=extreme(x, 1))


class Any_(Reduction):
    """Whether any element along `axis` is true (not zero)."""

    name = "any"
    accepts = "any"
    combine = "any"

    def operand(self, t: Infer, x: TensorType) -> TensorType:
        return t.convert(0, x, dtypes.bool_)

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.any(x, axis=axis, keepdims=keepdims)


class All(Reduction):
    """Whether all elements along `axis` are true (not zero)."""

    accepts = "any"
    combine = "all"
    operand = Any_.operand

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.all(x, axis=axis, keepdims=keepdims)


class ArgExtremum(Reduction, abstract=True):
    accepts = "ordered"
    needs_elements = True

    def operand(self, t: Infer, x: TensorType) -> TensorType:
        t.require(x, self.accepts)
        return t.convert(0, x, dtypes.uint8) if x.dtype.kind == "bool" else x

    def infer(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, t: Infer, x: TensorType, axis: int | None = None, keepdims: bool = False
    ) -> TensorType:
        if len(t.axes(x, axis)) not in (1, x.rank):
            t.fail("TS204", f"{self.name} takes one axis, or None for the index into the flattened tensor")
        return super().infer(t, x, axis, keepdims)

    def result(self, dtype: DType) -> DType:
        return dtypes.int64

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], keepdims: bool) -> Value | None:
        if len(axis) == 1 and axis[0] < tensor(x).rank:
            return None
        flat = g.reshape(x, (dims.prod(tensor(x).shape),))
        return g.reshape(g.emit(self, [flat], {"axis": 0}), reduced(tensor(x).shape, axis, keepdims))

    def found(self, search: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        """`search` (NumPy's argmax or argmin); 0 among no elements, which a symbolic size may turn out to be."""
        if any(x.shape[a] == 0 for a in axis):
            return np.zeros(reduced(x.shape, axis, keepdims), np.int64)
        return search(x, axis=axis[0] if len(axis) == 1 else None, keepdims=keepdims)


class Argmax(ArgExtremum):
    """The index of the first largest element along `axis`; the first NaN if there is one."""

    def reference(self, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        return self.found(np.argmax, x, axis, keepdims)


class Argmin(ArgExtremum):
    """The index of the first smallest element along `axis`; the first NaN if there is one."""

    def reference(self, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        return self.found(np.argmin, x, axis, keepdims)


class Statistic(Operator, abstract=True):
    """A reduction to floats that is made of simpler ones; integers count as f32."""

    accepts: ClassVar[Accepts] = "any"

    def infer(self, t: Infer, x: TensorType, axis: Axes = None, keepdims: bool = False) -> TensorType:
        return self.rule(t, x, axis, keepdims)

    def rule(self, t: Infer, x: TensorType, axis: Axes, keepdims: bool, **rest: Any) -> TensorType:
        axes = t.axes(x, axis)
        t.require(x, self.accepts)
        t.canonical(axis=axes, keepdims=t.flag(keepdims, "keepdims"), **rest)
        return TensorType(reduced(x.shape, axes, keepdims), t.floating(0, x).dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape)


def mean(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """NumPy's mean without its warning: of no elements it is NaN."""
    with np.errstate(all="ignore"):
        return np.sum(x, axis=axis, keepdims=keepdims) / np.asarray(math.prod(x.shape[a] for a in axis), x.dtype)


class Mean(Statistic):
    """The sum of the elements along `axis` divided by their number."""

    def reference(self, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        return mean(x, axis, keepdims)

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], keepdims: bool) -> Value:
        wide = g.compute(x)
        mean = g.div(g.sum(wide, axis=axis, keepdims=keepdims), g.size(elements(x, axis), tensor(wide).dtype))
        return g.to(mean, tensor(x).dtype)

    def partition(self, cut: Cut, x: TensorType, axis: tuple[int, ...], keepdims: bool) -> Combine | None:
        return combined(cut, x, axis, "mean")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...], keepdims: bool) -> Any:
        share = g.div(expanded(g, ct, x, axis), g.size(elements(x, axis), tensor(x).dtype))
        return (g.broadcast_to(share, tensor(x).shape),)


class Var(Statistic):
    """The variance along `axis`: squared distances from the mean, summed, divided by the number less `correction`.

    Two passes, so that nothing cancels. `correction` (NumPy's `ddof`) 0 is the population's, 1 the sample's variance.
    Complex numbers have the real variance of their distances from the mean.
    """

    def infer(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, t: Infer, x: TensorType, axis: Axes = None, correction: float = 0, keepdims: bool = False
    ) -> TensorType:
        less = t.number(correction, "correction", -(2**52), 2**52)
        out = self.rule(t, x, axis, keepdims, correction=int(less) if less.is_integer() else less)
        return out.with_dtype(out.dtype.part)

    def reference(self, x: Any, axis: tuple[int, ...], correction: float, keepdims: bool) -> Any:
        with np.errstate(all="ignore"):
            squares = np.square(np.abs(x - mean(x, axis, True)))
            count = max(math.prod(x.shape[a] for a in axis) - correction, 0)
            return np.sum(squares, axis=axis, keepdims=keepdims) / np.asarray(count, squares.dtype)

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], correction: float, keepdims: bool) -> Value:
        wide, dtype = g.compute(x), tensor(x).dtype.part
        far = g.sub(wide, g.mean(wide, axis=axis, keepdims=True))
        squares = g.square(far)
        if dtype != tensor(x).dtype:
            squares = g.add(g.square(g.real(far)), g.square(g.imag(far)))
        var = g.div(g.sum(squares, axis=axis, keepdims=keepdims), self.count(g, x, axis, correction, dtype.compute))
        return g.to(var, dtype)

    def count(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], correction: float, dtype: DType) -> Value:
        """The number of elements less `correction`, at least 0."""
        if isinstance(correction, int):
            return g.size(at_least_zero(elements(x, axis) - correction), dtype)
        return g.maximum(g.sub(g.size(elements(x, axis), dtype), correction), 0.0)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 4


class Std(Var):
    """The standard deviation along `axis`: the square root of the variance."""

    def reference(self, x: Any, axis: tuple[int, ...], correction: float, keepdims: bool) -> Any:
        return np.sqrt(super().reference(x, axis, correction, keepdims))

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], correction: float, keepdims: bool) -> Value:
        wide = g.var(g.compute(x), axis=axis, correction=correction, keepdims=keepdims)
        return g.to(g.sqrt(wide), tensor(x).dtype.part)


class CountNonzero(Operator):
    """How many elements along `axis` are not zero, as int64."""

    methods = ()

    def infer(self, t: Infer, x: TensorType, axis: Axes = None, keepdims: bool = False) -> TensorType:
        axes = t.axes(x, axis)
        t.canonical(axis=axes, keepdims=t.flag(keepdims, "keepdims"))
        return TensorType(reduced(x.shape, axes, keepdims), dtypes.int64)

    def reference(self, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        return np.sum(x != 0, axis=axis, keepdims=keepdims, dtype=np.int64)

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], keepdims: bool) -> Value:
        return g.sum(g.cast(x, dtypes.bool_), axis=axis, keepdims=keepdims)


class Logsumexp(Statistic):
    """log(sum(exp(x))) along `axis`, without overflow. Of elements that are all -inf it is -inf."""

    accepts = "real"

    def reference(self, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        with np.errstate(all="ignore"):
            top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
            top = np.where(np.isfinite(top), top, 0).astype(x.dtype)
            total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
            return total if keepdims else np.squeeze(total, axis)

    def decompose(self, g: GraphBuilder, x: Value, axis: tuple[int, ...], keepdims: bool) -> Value:
        wide, out = g.compute(x), tensor(x).with_shape(reduced(tensor(x).shape, axis, keepdims))
        if any(tensor(x).shape[a] == 0 for a in axis):  # a maximum of no elements has no meaning, log(0) has
            return g.full(out.shape, -math.inf, out.dtype)
        top = g.max(wide, axis=axis, keepdims=True)
        top = g.where(g.isfinite(top), top, 0.0)
        total = g.add(g.log(g.sum(g.exp(g.sub(wide, top)), axis=axis, keepdims=True)), top)
        return g.to(g.reshape(total, out.shape), out.dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...], keepdims: bool) -> Any:
        p = g.exp(g.sub(x, expanded(g, out, x, axis)))
        return (g.mul(p, expanded(g, ct, x, axis)),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 13


class Norm(Statistic):
    """The norm of order `ord` of the elements along `axis`: (sum |x|**ord)**(1/ord).

    The orders `inf` and `-inf` give the largest and the smallest |x|.
    """

    def infer(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, t: Infer, x: TensorType, ord: float = 2, axis: Axes = None, keepdims: bool = False
    ) -> TensorType:
        if t.number(ord, "ord") == 0:
            t.fail("TS213", "norm needs a number other than 0 as ord")
        out = self.rule(t, x, axis, keepdims)
        return out if not out.dtype.is_complex else out.with_dtype(dtypes.f32 if out.dtype.bits == 64 else dtypes.f64)

    def reference(self, x: Any, ord: float, axis: tuple[int, ...], keepdims: bool) -> Any:
        with np.errstate(all="ignore"):
            a = np.abs(x)
            if math.isinf(ord):
                return (np.max if ord > 0 else np.min)(
                    a, axis=axis, keepdims=keepdims, initial=-math.copysign(np.inf, ord)
                )
            return np.sum(a**ord, axis=axis, keepdims=keepdims) ** (1 / ord)

    def decompose(self, g: GraphBuilder, x: Value, ord: float, axis: tuple[int, ...], keepdims: bool) -> Value:
        a = g.abs(g.compute(x))
        dtype = tensor(a).dtype if tensor(x).dtype.is_complex else tensor(x).dtype
        if math.isinf(ord):
            return g.to((g.max if ord > 0 else g.min)(a, axis=axis, keepdims=keepdims), dtype)
        power = a if ord == 1 else g.square(a) if ord == 2 else g.pow(a, float(ord))
        total = g.sum(power, axis=axis, keepdims=keepdims)
        return g.to(total if ord == 1 else g.sqrt(total) if ord == 2 else g.pow(total, 1 / ord), dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 2


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


class Cumulative(Operator, abstract=True):
    """The Array API's scan: along `axis`, which only a vector need not name; elements may count as `dtype` first."""

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
