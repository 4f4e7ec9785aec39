"""Reductions to floats that are made of simpler ones: means, variances, norms; and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Combine, Cut
from tessera.compiler.graph.infer import at_least_zero
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.reductions import Axes, combined, elements, expanded, reduced
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.scalars import Accepts


class Statistic(Operator, abstract=True):
    """A reduction to floats that is made of simpler ones; integers count as f32."""

    batching = "axis"

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
        far, dtype = self.distances(g, x, axis), tensor(x).dtype.part
        squares = g.square(far)
        if dtype != tensor(x).dtype:
            squares = g.add(g.square(g.real(far)), g.square(g.imag(far)))
        var = g.div(g.sum(squares, axis=axis, keepdims=keepdims), self.count(g, x, axis, correction, dtype.compute))
        return g.to(var, dtype)

    def distances(self, g: GraphBuilder, x: Value, axis: tuple[int, ...]) -> Value:
        """From the mean."""
        wide = g.compute(x)
        return g.sub(wide, g.mean(wide, axis=axis, keepdims=True))

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...], correction: float, keepdims: bool
    ) -> tuple[Value]:
        """2 (x - mean) / count: what the mean adds sums up to 0."""
        wide, far = tensor(x).dtype.part.compute, self.distances(g, x, axis)
        share = g.div(g.mul(g.to(expanded(g, ct, x, axis), wide), 2), self.count(g, x, axis, correction, wide))
        return (g.to(g.mul(g.conj(far), g.to(share, tensor(far).dtype)), tensor(x).dtype),)

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

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: tuple[int, ...], correction: float, keepdims: bool
    ) -> tuple[Value]:
        """That of the variance over 2 std; 0 where all elements are equal, as in PyTorch."""
        flat = g.eq(out, 0)
        share = g.where(flat, 0, g.div(g.mul(ct, 0.5), g.where(flat, 1, out)))
        return super().adjoint(g, out, share, x, axis, correction, keepdims)


class CountNonzero(Operator):
    """How many elements along `axis` are not zero, as int64."""

    differentiable = False
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
        """The softmax of x; of elements that are all -inf it is 0."""
        p = g.exp(g.sub(x, expanded(g, g.where(g.eq(out, -math.inf), 0, out), x, axis)))
        return (g.mul(p, expanded(g, ct, x, axis)),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 13


class Norm(Statistic):
    """The norm of order `ord` of the elements along `axis`: (sum |x|**ord)**(1/ord).

    The orders `inf` and `-inf` are the largest and the smallest |x|.
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

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, ord: float, axis: tuple[int, ...], keepdims: bool
    ) -> tuple[Value]:
        """The direction of x, weighted by (|x| / norm)**(ord - 1); 0 where x is. Ties of extremes share."""
        wide, size = g.compute(x), g.abs(g.compute(x))
        real = tensor(size).dtype
        whole, share = (g.to(expanded(g, v, x, axis), real) for v in (out, ct))
        if math.isinf(ord):
            hit = g.to(g.eq(g.to(size, tensor(out).dtype), expanded(g, out, x, axis)), real)
            weight = g.div(g.mul(hit, share), g.sum(hit, axis=axis, keepdims=True))
        elif ord == 2:
            none = g.eq(whole, 0)
            weight = g.where(none, 0, g.div(share, g.where(none, 1, whole)))
            return (g.to(g.mul(g.conj(wide), g.to(weight, tensor(wide).dtype)), tensor(x).dtype),)
        elif ord == 1:
            weight = share
        else:  # without ratios of 0, whose powers may be infinite
            none = g.eq(size, 0)
            ratio = g.div(g.where(none, 1, size), g.where(g.eq(whole, 0), 1, whole))
            weight = g.where(none, 0, g.mul(share, g.pow(ratio, ord - 1)))
        return (g.to(g.mul(g.conj(g.sign(wide)), g.to(weight, tensor(wide).dtype)), tensor(x).dtype),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 2
