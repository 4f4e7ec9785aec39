"""Pooling: the largest or the mean of each window of the last axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.reductions import extreme
from tessera.compiler.graph.operators.windows.sliding import Ints, end, fold, places, steps
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

CHAINED = 32
"""elements of a window that are taken together in one elementwise kernel; more are a reduction"""


class Pooling(Operator, abstract=True):
    """The common part of pooling over `spatial` axes."""

    methods = ()
    spatial: ClassVar[int]

    def axes(self, rank: int) -> Ints:
        return tuple(range(rank - self.spatial, rank))

    def rule(
        self, t: Infer, x: TensorType, kernel_size: object, stride: object, padding: object, dilation: object
    ) -> TensorType:
        t.require(x, "float")
        n = self.spatial
        if x.rank < n:
            t.fail("TS213", f"{self.name} needs at least {n} axes, {shape_text(x.shape)} has {x.rank}")
        size = places(t, kernel_size, "kernel_size", n)
        stride = size if stride is None else places(t, stride, "stride", n)
        pads, dilation = places(t, padding, "padding", n, least=0), places(t, dilation, "dilation", n)
        for p, k in zip(pads, size, strict=True):
            if 2 * p > k:
                t.fail("TS213", f"{self.name} takes a padding of at most half of its kernel, not {p} for {k}")
        t.canonical(kernel_size=size, stride=stride, padding=pads)
        out = list(x.shape)
        for a, k, s, p, d in zip(self.axes(x.rank), size, stride, pads, dilation, strict=True):
            whole = out[a] + 2 * p
            if isinstance(whole, int) and whole < d * (k - 1) + 1:
                t.fail("TS213", f"a window of {d * (k - 1) + 1} does not fit axis {a} of {shape_text(x.shape)}")
            out[a] = steps(whole, k, s, d)
        return x.with_shape(tuple(out))

    def padded(self, g: GraphBuilder, x: Value, padding: Ints, value: float) -> Value:
        if not any(padding):
            return x
        rank = tensor(x).rank
        return g.pad(x, tuple((0, 0) for _ in range(rank - self.spatial)) + tuple((p, p) for p in padding), value=value)

    def window_view(self, g: GraphBuilder, x: Value, size: Ints, stride: Ints, dilation: Ints) -> Value:
        return g.sliding_window_view(x, size, self.axes(tensor(x).rank), stride, dilation)

    def taps(self, g: GraphBuilder, x: Value, size: Ints, stride: Ints, dilation: Ints) -> list[Value]:
        """For each place of the window, what all windows have there: views, in order."""
        shape, axes, out = tensor(x).shape, self.axes(tensor(x).rank), list[Value]()
        for at in np.ndindex(*size):
            start, stop, step = [0] * len(shape), list(shape), [1] * len(shape)
            for a, i, k, s, d in zip(axes, at, size, stride, dilation, strict=True):
                start[a], step[a] = i * d, s
                stop[a] = end(i * d, steps(shape[a], k, s, d), s)
            out.append(g.slice(x, tuple(start), tuple(stop), tuple(step)))
        return out

    def combined(
        self, g: GraphBuilder, x: Value, all_of: Callable[..., Value], both: Callable[..., Value], size: Ints,
        stride: Ints, dilation: Ints,
    ) -> Value:  # fmt: skip
        """One value for each window: of small windows place by place (`both`), else by a reduction (`all_of`)."""
        if math.prod(size) > CHAINED:
            found = self.window_view(g, x, size, stride, dilation)
            return all_of(found, axis=self.axes(tensor(found).rank))
        return functools.reduce(both, self.taps(g, x, size, stride, dilation))

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * math.prod(attrs["kernel_size"])

    def seen(self, x: Any, size: Ints, stride: Ints, padding: Ints, dilation: Ints, value: float) -> Any:
        """The windows of the reference, with all places of one on the last axis."""
        pairs = [(0, 0)] * (x.ndim - self.spatial) + [(p, p) for p in padding]
        wide = tuple(d * (k - 1) + 1 for k, d in zip(size, dilation, strict=True))
        x = np.pad(x, pairs, constant_values=value)
        if any(x.shape[a] < w for a, w in zip(self.axes(x.ndim), wide, strict=True)):
            rest = tuple(max(0, steps(x.shape[a], *v)) for a, *v in zip(self.axes(x.ndim), size, stride, dilation))  # type: ignore[arg-type]  # noqa: B905
            return np.zeros((*x.shape[: -self.spatial], *rest, math.prod(size)), x.dtype)
        found = np.lib.stride_tricks.sliding_window_view(x, wide, self.axes(x.ndim))
        outer = (..., *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
        found = found[outer]
        return found.reshape(*found.shape[: -self.spatial], math.prod(size))


class MaxPool(Pooling, abstract=True):
    def infer(
        self, t: Infer, x: TensorType, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1,
    ) -> TensorType:  # fmt: skip
        t.canonical(dilation=places(t, dilation, "dilation", self.spatial))
        return self.rule(t, x, kernel_size, stride, padding, dilation)

    def reference(self, x: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
        return np.max(self.seen(x, kernel_size, stride, padding, dilation, extreme(x, -1)), axis=-1)

    def decompose(
        self, g: GraphBuilder, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
    ) -> Value:
        x = self.padded(g, x, padding, -math.inf)
        return self.combined(g, x, g.max, g.maximum, kernel_size, stride, dilation)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints,
        dilation: Ints,
    ) -> tuple[Value]:  # fmt: skip
        """To the first of a window's largest elements, as in PyTorch."""
        whole = self.padded(g, x, padding, -math.inf)
        seen = self.window_view(g, whole, kernel_size, stride, dilation)
        shape, count = tensor(ct).shape, math.prod(kernel_size)
        which = g.argmax(g.reshape(seen, (*shape, count)), axis=len(shape), keepdims=True)
        line = g.iota((*(1 for _ in shape), count), axis=len(shape))
        parts = g.reshape(g.where(g.eq(which, line), g.unsqueeze(ct, -1), 0), (*shape, *kernel_size))
        return (_folded(self, g, parts, x, kernel_size, stride, padding, dilation),)


class AvgPool(Pooling, abstract=True):
    def infer(
        self, t: Infer, x: TensorType, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0, count_include_pad: bool = True,
    ) -> TensorType:  # fmt: skip
        t.canonical(count_include_pad=t.flag(count_include_pad, "count_include_pad"))
        return self.rule(t, x, kernel_size, stride, padding, 1)

    def reference(self, x: Any, kernel_size: Ints, stride: Ints, padding: Ints, count_include_pad: bool) -> Any:
        one = (1,) * self.spatial
        total = np.sum(self.seen(x, kernel_size, stride, padding, one, 0), axis=-1)
        if count_include_pad:
            return total / x.dtype.type(math.prod(kernel_size))
        with np.errstate(all="ignore"):
            count = self.seen(np.ones(x.shape, x.dtype), kernel_size, stride, padding, one, 0)
            return total / np.sum(count, axis=-1)

    def decompose(
        self, g: GraphBuilder, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, count_include_pad: bool
    ) -> Value:
        total = self.total(g, g.compute(x), kernel_size, stride, padding)
        return g.to(g.div(total, self.count(g, x, kernel_size, stride, padding, count_include_pad)), tensor(x).dtype)

    def total(self, g: GraphBuilder, x: Value, kernel_size: Ints, stride: Ints, padding: Ints) -> Value:
        return self.combined(g, self.padded(g, x, padding, 0), g.sum, g.add, kernel_size, stride, (1,) * self.spatial)

    def count(
        self, g: GraphBuilder, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, count_include_pad: bool
    ) -> Value | float:
        """By how much each window's sum is divided."""
        if count_include_pad or not any(padding):
            return float(math.prod(kernel_size))
        wide = tensor(x).dtype.compute
        return self.total(g, g.ones(tensor(x).shape[-self.spatial :], wide), kernel_size, stride, padding)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints,
        count_include_pad: bool,
    ) -> tuple[Value]:  # fmt: skip
        share = g.div(g.compute(ct), self.count(g, x, kernel_size, stride, padding, count_include_pad))
        shape = tensor(ct).shape
        single = g.reshape(share, (*shape, *(1 for _ in kernel_size)))
        parts = g.broadcast_to(single, (*shape, *kernel_size))
        found = _folded(self, g, parts, x, kernel_size, stride, padding, (1,) * self.spatial)
        return (g.to(found, tensor(x).dtype),)


def _folded(
    pool: Pooling, g: GraphBuilder, parts: Value, x: Value, size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Value:
    """The cotangents that the windows give to the elements of x; those for padding are dropped."""
    shape, axes = tensor(x).shape, pool.axes(tensor(x).rank)
    wide = tuple(d + 2 * padding[axes.index(a)] if a in axes else d for a, d in enumerate(shape))
    whole = fold(g, parts, wide, size, axes, stride, dilation)
    if not any(padding):
        return whole
    start = tuple(padding[axes.index(a)] if a in axes else 0 for a in range(len(shape)))
    return g.slice(whole, start, tuple(p + d for p, d in zip(start, shape, strict=True)))


_WHAT = {MaxPool: ("max", "largest element"), AvgPool: ("avg", "mean")}
_MORE = {
    MaxPool: "Padding is never the largest; of equal elements the first gets the derivative.",
    AvgPool: "Padding counts as zeros; without `count_include_pad` it does not count.",
}
for _base, (_short, _said) in _WHAT.items():
    for _n in (1, 2, 3):
        _axes = "the last axis" if _n == 1 else f"the last {_n} axes"
        _doc = f"The {_said} of each window of `kernel_size` along {_axes}, `stride` apart (default: side by side).\n\n"
        type(f"{_base.__name__}{_n}d", (_base,), {
            "__doc__": _doc + _MORE[_base], "__module__": __name__, "name": f"{_short}_pool{_n}d", "spatial": _n,
        })  # fmt: skip
