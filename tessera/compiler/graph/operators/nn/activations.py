"""Softmax, and activations with a parameter. Those without one are elementwise functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class Softmax(Operator):
    """exp(x) / sum(exp(x)) along `axis`, with the maximum subtracted first. Of elements that are all -inf it is NaN."""

    batching = "axis"

    def infer(self, t: Infer, x: TensorType, axis: int = -1) -> TensorType:
        t.require(x, "float")
        t.canonical(axis=t.axis(x, axis))
        return x

    def reference(self, x: Any, axis: int) -> Any:
        with np.errstate(all="ignore"):
            e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
            return e / np.sum(e, axis=axis, keepdims=True)

    def decompose(self, g: GraphBuilder, x: Value, axis: int) -> Value:
        wide = g.compute(x)
        e = g.exp(g.sub(wide, g.max(wide, axis=axis, keepdims=True)))
        return g.to(g.div(e, g.sum(e, axis=axis, keepdims=True)), tensor(x).dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: int) -> tuple[Value]:
        along = g.sum(g.mul(ct, out), axis=axis, keepdims=True)
        return (g.mul(out, g.sub(ct, along)),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * 14


class LogSoftmax(Softmax):
    """log(softmax(x)) along `axis`, computed as x - max - log(sum(exp(x - max)))."""

    def reference(self, x: Any, axis: int) -> Any:
        with np.errstate(all="ignore"):
            far = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
            return far - np.log(np.sum(np.exp(far), axis=axis, keepdims=True))

    def decompose(self, g: GraphBuilder, x: Value, axis: int) -> Value:
        wide = g.compute(x)
        far = g.sub(wide, g.max(wide, axis=axis, keepdims=True))
        return g.to(g.sub(far, g.log(g.sum(g.exp(far), axis=axis, keepdims=True))), tensor(x).dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, axis: int) -> tuple[Value]:
        return (g.sub(ct, g.mul(g.exp(out), g.sum(ct, axis=axis, keepdims=True))),)


class LeakyRelu(Operator):
    """x where it is positive, else slope * x."""

    batching = "map"

    def infer(self, t: Infer, x: TensorType, slope: float = 0.01) -> TensorType:
        t.require(x, "float")
        t.canonical(slope=t.number(slope, "slope"))
        return x

    def reference(self, x: Any, slope: float) -> Any:
        return np.where(x > 0, x, x * x.dtype.type(slope))

    def decompose(self, g: GraphBuilder, x: Value, slope: float) -> Value:
        return g.where(g.gt(x, 0.0), x, g.mul(x, slope))


class Elu(Operator):
    """x where it is positive, else alpha * (e**x - 1)."""

    batching = "map"

    def infer(self, t: Infer, x: TensorType, alpha: float = 1.0) -> TensorType:
        t.require(x, "float")
        t.canonical(alpha=t.number(alpha, "alpha"))
        return x

    def reference(self, x: Any, alpha: float) -> Any:
        return np.where(x > 0, x, x.dtype.type(alpha) * np.expm1(np.minimum(x, 0)))

    def decompose(self, g: GraphBuilder, x: Value, alpha: float) -> Value:
        wide = g.compute(x)
        low = g.mul(g.expm1(g.minimum(wide, 0.0)), alpha)
        return g.to(g.where(g.gt(wide, 0.0), wide, low), tensor(x).dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, alpha: float) -> tuple[Value]:
        return (g.where(g.gt(x, 0), ct, g.mul(ct, g.mul(g.exp(g.where(g.gt(x, 0), 0, x)), alpha))),)
