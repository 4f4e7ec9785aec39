"""Operators of neural networks, each spelled in simpler ones: read this file to see how an operator is added.

All compute in f32 where their operands are narrower, and round once, to the operand's dtype, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from string import ascii_uppercase
from typing import Any, ClassVar

from tessera.compiler.graph.infer import shown
from tessera.compiler.graph.operator import GraphBuilder, Infer, Operator, OperatorParameter, tensor
from tessera.compiler.graph.operators.contraction import contract
from tessera.compiler.graph.operators.indexing import taken
from tessera.compiler.graph.operators.reductions import Axes
from tessera.compiler.graph.operators.statistics import mean as mean_of
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims, dtypes
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
        said = f"{t.operator} of {x.shape[1]} channels needs as many elements of {name}, not {shape_text(v.shape)}"
        if v.rank != 1:
            t.fail("TS213", said, operand=i)
        t.same(v.shape[0], x.shape[1], "TS213", said, operand=i)


def _beside(g: GraphBuilder, v: Value, x: Value) -> Value:
    """A vector of the channels in f32, so that it broadcasts against `x`."""
    return g.reshape(g.compute(v), (tensor(v).shape[0], *(1,) * (tensor(x).rank - 2)))


def _beside_reference(v: Any, x: Any) -> Any:
    return v.reshape(-1, *(1,) * (x.ndim - 2))


class BatchNorm(Operator):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of x [batch, channels, ...].

    `mean` and `var` are vectors, such as running averages. Without them the batch's own are taken: means over all axes
    but the channels, the variance with correction 0.
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
    """x [batch, channels, ...] normalised over groups of channels and all axes behind them, times weight plus bias.

    Each sample has `num_groups` means and variances; weight and bias are vectors of the channels (Wu, He 2018). As many
    groups as channels are an instance norm.
    """

    methods = ()

    @cached_property
    def parameters(self) -> tuple[OperatorParameter, ...]:
        """As PyTorch orders them."""
        x, weight, bias, num_groups, eps = super().parameters
        return (x, num_groups, weight, bias, eps)

    def infer(
        self, t: Infer, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None, *,
        num_groups: int, eps: float = 1e-5,
    ) -> TensorType:  # fmt: skip
        _per_channel(t, x, {"weight": weight, "bias": bias})
        groups = t.integer(num_groups, "num_groups")
        if groups < 1:
            t.fail("TS213", f"num_groups is at least 1, unlike {groups}")
        said = f"group_norm: {x.shape[1]} channels do not fall into {groups} groups"
        t.same(dims.mod(x.shape[1], groups), 0, "TS213", said, operand=0)
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
        out = g.reshape(out, shape)
        out = out if weight is None else g.mul(out, _beside(g, weight, x))
        return g.to(out if bias is None else g.add(out, _beside(g, bias, x)), tensor(x).dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * 8


def _averaged(t: Infer, reduction: object, rest: TensorType) -> TensorType:
    """The type of a loss under its `reduction`."""
    if reduction not in ("mean", "sum", "none"):
        t.fail("TS213", f"reduction is 'mean', 'sum' or 'none', not {shown(reduction)}")
    return rest if reduction == "none" else rest.with_shape(())


def _average(g: GraphBuilder, loss: Value, reduction: str) -> Value:
    return g.mean(loss) if reduction == "mean" else g.sum(loss) if reduction == "sum" else loss


def _average_reference(loss: Any, reduction: str) -> Any:
    with np.errstate(all="ignore"):
        return np.sum(loss) / loss.size if reduction == "mean" else np.sum(loss) if reduction == "sum" else loss


class CrossEntropy(Operator):
    """-log_softmax(logits)[label] over the last axis, for integer labels of the shape of the other axes.

    `label_smoothing` e mixes in the mean over all classes with weight e. A label outside the classes counts as 0.
    """

    apart = ("labels",)

    methods = ()

    def infer(
        self, t: Infer, logits: TensorType, labels: TensorType, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> TensorType:
        t.require(logits, "float", operand=0)
        t.require(labels, "integer", operand=1)
        message = f"cross_entropy of logits {shape_text(logits.shape)} needs labels {shape_text(logits.shape[:-1])}"
        message += f", not {shape_text(labels.shape)}"
        if not logits.rank or labels.rank != logits.rank - 1:
            t.fail("TS213", message, operand=1)
        for a, b in zip(logits.shape, labels.shape, strict=False):
            t.same(a, b, "TS213", message, operand=1)
        t.canonical(label_smoothing=t.number(label_smoothing, "label_smoothing", 0, 1))
        return _averaged(t, reduction, logits.with_shape(logits.shape[:-1]))

    def reference(self, logits: Any, labels: Any, reduction: str, label_smoothing: float) -> Any:
        with np.errstate(all="ignore"):
            far = logits - np.max(logits, axis=-1, keepdims=True, initial=-np.inf)
            logp = far - np.log(np.sum(np.exp(far), axis=-1, keepdims=True))
            hit = labels[..., None] == np.arange(logits.shape[-1])
            loss = -np.sum(np.where(hit, logp, 0), axis=-1) * (1 - label_smoothing)
            loss = loss if label_smoothing == 0 else loss - np.mean(logp, axis=-1) * label_smoothing
        return _average_reference(loss.astype(logits.dtype), reduction)

    def decompose(self, g: GraphBuilder, logits: Value, labels: Value, reduction: str, label_smoothing: float) -> Value:
        logp, hit = g.log_softmax(g.compute(logits), axis=-1), self.hit(g, logits, labels)
        loss = g.neg(g.sum(g.where(hit, logp, 0.0), axis=-1))
        if label_smoothing:
            loss = g.sub(g.mul(loss, 1 - label_smoothing), g.mul(g.mean(logp, axis=-1), label_smoothing))
        return g.to(_average(g, loss, reduction), tensor(logits).dtype)

    def hit(self, g: GraphBuilder, logits: Value, labels: Value) -> Value:
        """Which class [..., C] the label says."""
        rank, classes = tensor(labels).rank, tensor(logits).shape[-1]
        line = g.iota((1,) * rank + (classes,), axis=rank)
        return g.eq(g.unsqueeze(g.to(labels, dtypes.int64), -1), line)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, logits: Value, labels: Value, reduction: str,
        label_smoothing: float,
    ) -> tuple[Value, None]:  # fmt: skip
        """The probabilities less what the labels say of them, in one pass over each line of logits."""
        p, hit = g.softmax(g.compute(logits), axis=-1), self.hit(g, logits, labels)
        classes = tensor(logits).shape[-1]
        at, one = g.unsqueeze(g.to(labels, dtypes.int64), -1), g.to(hit, tensor(p).dtype)
        known = g.to(g.logical_and(g.ge(at, 0), g.lt(at, classes)), tensor(p).dtype)
        left = g.sub(g.mul(p, known), one)  # 0 where the label is none of the classes
        if label_smoothing:
            mixed = g.sub(p, g.div(1.0, g.size(classes, tensor(p).dtype)))
            left = g.add(g.mul(left, 1 - label_smoothing), g.mul(mixed, label_smoothing))
        slope = g.compute(ct)
        if reduction == "none":
            slope = g.unsqueeze(slope, -1)
        elif reduction == "mean":
            slope = g.div(slope, g.size(dims.prod(tensor(labels).shape), tensor(p).dtype))
        return g.to(g.mul(left, slope), tensor(logits).dtype), None

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 14


class Mse(Operator):
    """The mean (or sum, or each) of the squared differences of x and y."""

    functions = ("mse", "mse_loss")
    methods = ()

    def infer(self, t: Infer, x: TensorType, y: TensorType, reduction: str = "mean") -> TensorType:
        for i, v in enumerate((x, y)):
            t.require(v, "float", operand=i)
        return _averaged(t, reduction, TensorType(t.broadcast(x.shape, y.shape), t.promote(x, y)))

    def reference(self, x: Any, y: Any, reduction: str) -> Any:
        return _average_reference(np.square(x - y), reduction)

    def decompose(self, g: GraphBuilder, x: Value, y: Value, reduction: str) -> Value:
        dtype = tensor(x).dtype
        return g.to(_average(g, g.square(g.sub(g.compute(x), g.compute(y))), reduction), dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 3


class Linear(Operator):
    """x weight^T + bias: features [..., n] to [..., m], with a weight [m, n], as in PyTorch."""

    methods = ()

    def infer(self, t: Infer, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        t.require(x, "float", operand=0)
        if weight.rank != 2 or not x.rank or (bias is not None and bias.rank != 1):
            t.fail("TS213", f"linear needs a weight [m, n] and a bias [m], not {shape_text(weight.shape)}", operand=1)
        n, m = x.shape[-1], weight.shape[0]
        said = f"linear of {shape_text(x.shape)} with a weight {shape_text(weight.shape)}"
        message = f"{said}: {n} and {weight.shape[1]} differ"
        t.same(n, weight.shape[1], "TS203", message, operand=1)
        if bias is not None:
            t.same(m, bias.shape[0], "TS203", f"linear gives {m} features, its bias has {bias.shape[0]}", operand=2)
        return TensorType((*x.shape[:-1], m), t.promote(*(v for v in (x, weight, bias) if v is not None)))

    def reference(self, x: Any, weight: Any, bias: Any) -> Any:
        return np.matmul(x, weight.T) if bias is None else np.matmul(x, weight.T) + bias

    def decompose(self, g: GraphBuilder, x: Value, weight: Value, bias: Value | None) -> Value:
        rows = ascii_uppercase[: tensor(x).rank - 1]
        dtype = tensor(x).dtype
        out = contract(g, g.compute(x), g.compute(weight), rows + "k", "jk", rows + "j")
        return g.to(out if bias is None else g.add(out, g.compute(bias)), dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * operands[0].shape[-1] * 2


class Embedding(Operator):
    """The rows of `weight` at `indices`; a row outside reads as 0."""

    apart = ("indices",)

    methods = ()

    def infer(self, t: Infer, indices: TensorType, weight: TensorType) -> TensorType:
        if weight.dtype.is_integer and not indices.dtype.is_integer:
            said = f"embedding takes the indices first and then the weight, and here the first is of {indices.dtype}"
            t.fail("TS301", f"{said}, the second of {weight.dtype}: they are the wrong way round", operand=0)
        t.require(indices, "integer", operand=0)
        if weight.rank != 2:
            t.fail("TS213", f"embedding needs a weight [rows, features], not {shape_text(weight.shape)}", operand=1)
        return weight.with_shape((*indices.shape, weight.shape[1]))

    def reference(self, indices: Any, weight: Any) -> Any:
        return taken(weight, indices, 0)

    def decompose(self, g: GraphBuilder, indices: Value, weight: Value) -> Value:
        return g.take(weight, indices, axis=0)


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
