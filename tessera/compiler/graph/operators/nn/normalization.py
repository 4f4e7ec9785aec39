"""Values are shifted and scaled by their mean and variance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Infer, Operator, OperatorParameter, tensor
from tessera.compiler.graph.operators.reductions import Axes
from tessera.compiler.graph.operators.statistics import mean as mean_of
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class Normalization(Operator, abstract=True):
    """What the norms share: parameters have the shape of the normalised axes and are applied in f32."""

    centred: ClassVar[bool] = True

    def rule(
        self, t: Infer, x: TensorType, axis: Axes, eps: float, parameters: Sequence[TensorType | None]
    ) -> TensorType:
        t.require(x, "float", operand=0)
        axes = t.axes(x, axis)
        want = tuple(x.shape[a] for a in axes)
        for i, p in enumerate((p for p in parameters if p is not None), 1):
            message = f"{self.name} over {shape_text(want)} needs parameters of that shape, not {shape_text(p.shape)}"
            t.require(p, "float", operand=i)
            if p.rank != len(want):
                t.fail("TS213", message, operand=i)
            for d, e in zip(want, p.shape, strict=True):
                t.same(d, e, "TS213", message, operand=i)
        t.canonical(axis=axes, eps=t.number(eps, "eps"))
        return x

    def lined_up(self, g: GraphBuilder, p: Value, x: Value, axis: Sequence[int]) -> Value:
        """A parameter in f32, with size 1 along the axes of `x` that are not normalised."""
        shape = tuple(d if i in axis else 1 for i, d in enumerate(tensor(x).shape))
        trailing = tuple(axis) == tuple(range(len(shape) - len(axis), len(shape)))
        return g.compute(p) if trailing else g.reshape(g.compute(p), shape)

    def unit(self, g: GraphBuilder, x: Value, axis: Sequence[int], eps: float) -> tuple[Value, Value]:
        """The normalised `x`, and what its distances from the middle are multiplied by."""
        wide = g.compute(x)
        far = g.sub(wide, g.mean(wide, axis=axis, keepdims=True)) if self.centred else wide
        by = g.rsqrt(g.add(g.mean(g.square(far), axis=axis, keepdims=True), eps))
        return g.mul(far, by), by

    def pulled(
        self, g: GraphBuilder, ct: Value, x: Value, weight: Value | None, bias: Value | None, axis: Sequence[int],
        eps: float,
    ) -> tuple[Value, Value | None, Value | None]:  # fmt: skip
        """The cotangents of x, weight and bias: one pass over the lines of x, and one across them. The derivative of
        the normalised x is what is left of its argument once the mean and the part along it are taken out."""
        unit, by = self.unit(g, x, axis, eps)
        given = g.compute(ct)
        scaled = given if weight is None else g.mul(given, self.lined_up(g, weight, x, axis))
        left = g.sub(scaled, g.mul(unit, g.mean(g.mul(scaled, unit), axis=axis, keepdims=True)))
        left = g.sub(left, g.mean(scaled, axis=axis, keepdims=True)) if self.centred else left

        def parameter(p: Value | None, along: Value) -> Value | None:
            if p is None:
                return None
            others = tuple(i for i in range(tensor(x).rank) if i not in axis)
            return g.to(g.sum(along, axis=others) if others else along, tensor(p).dtype)

        dx = g.to(g.mul(left, by), tensor(x).dtype)
        return dx, parameter(weight, g.mul(given, unit)), parameter(bias, given)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * 8


def _lined_up(p: Any, x: Any, axis: tuple[int, ...]) -> Any:
    return p.reshape([n if i in axis else 1 for i, n in enumerate(x.shape)])


class LayerNorm(Normalization):
    """(x - mean) / sqrt(var + eps) * weight + bias over `axis`; weight and bias have the shape of those axes."""

    def infer(
        self, t: Infer, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None,
        axis: Axes = -1, eps: float = 1e-5,
    ) -> TensorType:  # fmt: skip
        return self.rule(t, x, axis, eps, (weight, bias))

    def reference(self, x: Any, weight: Any, bias: Any, axis: tuple[int, ...], eps: float) -> Any:
        far = x - mean_of(x, axis, True)
        out = far / np.sqrt(mean_of(np.square(far), axis, True) + x.dtype.type(eps))
        out = out if weight is None else out * _lined_up(weight, x, axis)
        return out if bias is None else out + _lined_up(bias, x, axis)

    def decompose(
        self, g: GraphBuilder, x: Value, weight: Value | None, bias: Value | None, axis: tuple[int, ...], eps: float
    ) -> Value:
        out, _ = self.unit(g, x, axis, eps)
        out = out if weight is None else g.mul(out, self.lined_up(g, weight, x, axis))
        out = out if bias is None else g.add(out, self.lined_up(g, bias, x, axis))
        return g.to(out, tensor(x).dtype)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, weight: Value | None, bias: Value | None,
        axis: tuple[int, ...], eps: float,
    ) -> tuple[Value | None, ...]:  # fmt: skip
        return self.pulled(g, ct, x, weight, bias, axis, eps)


class RmsNorm(Normalization):
    """x / sqrt(mean(x * x) + eps) * weight over `axis`; weight has the shape of those axes (Zhang, Sennrich 2019)."""

    centred = False

    def infer(
        self, t: Infer, x: TensorType, weight: TensorType | None = None, axis: Axes = -1, eps: float = 1e-6
    ) -> TensorType:
        return self.rule(t, x, axis, eps, (weight,))

    def reference(self, x: Any, weight: Any, axis: tuple[int, ...], eps: float) -> Any:
        out = x / np.sqrt(mean_of(np.square(x), axis, True) + x.dtype.type(eps))
        return out if weight is None else out * _lined_up(weight, x, axis)

    def decompose(self, g: GraphBuilder, x: Value, weight: Value | None, axis: tuple[int, ...], eps: float) -> Value:
        out, _ = self.unit(g, x, axis, eps)
        out = out if weight is None else g.mul(out, self.lined_up(g, weight, x, axis))
        return g.to(out, tensor(x).dtype)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, weight: Value | None, axis: tuple[int, ...], eps: float
    ) -> tuple[Value | None, ...]:
        return self.pulled(g, ct, x, weight, None, axis, eps)[:2]


def _per_channel(t: Infer, x: TensorType, named: dict[str, TensorType | None]) -> None:
    """Demands vectors with one element for each channel, which axis 1 counts."""
    t.require(x, "float", operand=0)
    if x.rank < 2:
        t.fail("TS213", f"{t.operator} needs x [batch, channels, ...], not {shape_text(x.shape)}", operand=0)
    for i, (name, v) in enumerate(((n, v) for n, v in named.items() if v is not None), 1):
        t.require(v, "float", operand=i)
        message = f"{t.operator} of {x.shape[1]} channels needs as many elements of {name}, not {shape_text(v.shape)}"
        if v.rank != 1:
            t.fail("TS213", message, operand=i)
        t.same(v.shape[0], x.shape[1], "TS213", message, operand=i)


def _beside(g: GraphBuilder, v: Value, x: Value) -> Value:
    """A vector of the channels in f32, so that it broadcasts against `x`."""
    return g.reshape(g.compute(v), (tensor(v).shape[0], *(1,) * (tensor(x).rank - 2)))


def _beside_reference(v: Any, x: Any) -> Any:
    return v.reshape(-1, *(1,) * (x.ndim - 2))


class BatchNorm(Operator):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of x [batch, channels, ...].

    `mean` and `var` are vectors, such as running averages. Without them those of the batch are used: means over all
    axes except the channels, and the variance with correction 0.
    """

    methods = ()

    def infer(
        self, t: Infer, x: TensorType, mean: TensorType | None = None, var: TensorType | None = None,
        weight: TensorType | None = None, bias: TensorType | None = None, eps: float = 1e-5,
    ) -> TensorType:  # fmt: skip
        _per_channel(t, x, {"mean": mean, "var": var, "weight": weight, "bias": bias})
        if (mean is None) != (var is None):
            t.fail("TS213", "batch_norm takes both mean and var, or neither of them")
        t.canonical(eps=t.number(eps, "eps"))
        return x

    def reference(self, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Any:
        axes = (0, *range(2, x.ndim))
        with np.errstate(all="ignore"):
            far = x - (mean_of(x, axes, True) if mean is None else _beside_reference(mean, x))
            spread = mean_of(np.square(far), axes, True) if var is None else _beside_reference(var, x)
            out = far / np.sqrt(spread + x.dtype.type(eps))
        out = out if weight is None else out * _beside_reference(weight, x)
        return out if bias is None else out + _beside_reference(bias, x)

    def decompose(
        self, g: GraphBuilder, x: Value, mean: Value | None, var: Value | None, weight: Value | None,
        bias: Value | None, eps: float,
    ) -> Value:  # fmt: skip
        wide, axes = g.compute(x), (0, *range(2, tensor(x).rank))
        far = g.sub(wide, g.mean(wide, axis=axes, keepdims=True) if mean is None else _beside(g, mean, x))
        spread = g.mean(g.square(far), axis=axes, keepdims=True) if var is None else _beside(g, var, x)
        scale = g.rsqrt(g.add(spread, eps))
        out = g.mul(far, scale if weight is None else g.mul(scale, _beside(g, weight, x)))
        return g.to(out if bias is None else g.add(out, _beside(g, bias, x)), tensor(x).dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * 8


class GroupNorm(Operator):
    """x [batch, channels, ...] normalised over groups of channels and all axes after them, times weight plus bias.

    Each sample has `num_groups` means and variances; weight and bias have an element for each channel (Wu, He 2018).
    With as many groups as channels it is an instance norm.
    """

    methods = ()

    @cached_property
    def parameters(self) -> tuple[OperatorParameter, ...]:
        """As PyTorch orders them."""
        x, weight, bias, num_groups, eps = super().parameters
        return (x, num_groups, weight, bias, eps)

    def infer(
        self, t: Infer, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None, *,
        num_groups: Dim, eps: float = 1e-5,
    ) -> TensorType:  # fmt: skip
        _per_channel(t, x, {"weight": weight, "bias": bias})
        groups = t.dim(num_groups, "num_groups")
        if isinstance(groups, int) and groups < 1:
            t.fail("TS213", f"num_groups is at least 1, unlike {groups}")
        message = f"group_norm: {x.shape[1]} channels do not fall into {groups} groups"
        t.same(dims.mod(x.shape[1], groups), 0, "TS213", message, operand=0)
        t.canonical(num_groups=groups, eps=t.number(eps, "eps"))
        return x

    def reference(self, x: Any, weight: Any, bias: Any, num_groups: int, eps: float) -> Any:
        each = math.prod(x.shape[1:]) // num_groups
        lines = x.reshape(x.shape[0], num_groups, each)
        with np.errstate(all="ignore"):
            far = lines - mean_of(lines, (2,), True)
            out = far / np.sqrt(mean_of(np.square(far), (2,), True) + x.dtype.type(eps))
        out = out.reshape(x.shape)
        out = out if weight is None else out * _beside_reference(weight, x)
        return out if bias is None else out + _beside_reference(bias, x)

    def decompose(
        self, g: GraphBuilder, x: Value, weight: Value | None, bias: Value | None, num_groups: int, eps: float
    ) -> Value:
        shape = tensor(x).shape
        split = (shape[0], num_groups, dims.floordiv(shape[1], num_groups), *shape[2:])
        axes = tuple(range(2, len(split)))
        lines = g.reshape(g.compute(x), split)
        far = g.sub(lines, g.mean(lines, axis=axes, keepdims=True))
        out = g.mul(far, g.rsqrt(g.add(g.mean(g.square(far), axis=axes, keepdims=True), eps)))
        beside = (*split[1:3], *(1,) * (len(shape) - 2))
        out = out if weight is None else g.mul(out, g.reshape(g.compute(weight), beside))
        out = out if bias is None else g.add(out, g.reshape(g.compute(bias), beside))
        return g.reshape(g.to(out, tensor(x).dtype), shape)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * 8
