"""Reductions along axes.

`axis` is an axis, a tuple of axes or None for all of them; negative axes count from the end. Narrow floats are summed
in f32 and integers in 64 bits. The order of summation belongs to the target and never depends on sizes of tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Combine, Cut
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.joining import preceding
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

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...], keepdims: bool) -> Any:
        """The product of all other elements: of those before and those behind, so that nothing is divided by 0."""
        shape = tensor(x).shape
        rest = [i for i in range(len(shape)) if i not in axis]
        perm = (*rest, *axis)
        line = g.reshape(g.transpose(x, perm), (*(shape[i] for i in rest), elements(x, axis)))
        last = len(rest)
        before = preceding(g, g.cumprod(line, last), last, 1)
        behind = g.flip(preceding(g, g.cumprod(g.flip(line, last), last), last, 1), last)
        others = g.reshape(g.mul(before, behind), tuple(shape[i] for i in perm))
        others = g.transpose(others, tuple(perm.index(i) for i in range(len(shape))))
        return (g.mul(expanded(g, ct, x, axis), others),)


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
    differentiable = False
    combine = "any"

    def operand(self, t: Infer, x: TensorType) -> TensorType:
        return t.convert(0, x, dtypes.bool_)

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.any(x, axis=axis, keepdims=keepdims)


class All(Reduction):
    """Whether all elements along `axis` are true (not zero)."""

    accepts = "any"
    combine = "all"
    differentiable = False
    operand = Any_.operand

    def reference(self, x: Any, axis: Axes, keepdims: bool) -> Any:
        return np.all(x, axis=axis, keepdims=keepdims)


class ArgExtremum(Reduction, abstract=True):
    accepts = "ordered"
    differentiable = False
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
