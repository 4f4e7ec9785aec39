"""Windows that slide along axes, as a view: neighbours that overlap are the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.infer import at_least_zero, items, several, shown
from tessera.compiler.graph.operator import Infer, tensor
from tessera.compiler.graph.operators.joining import part
from tessera.compiler.graph.operators.shaping import Strided, ViewOperator
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

Ints = tuple[int, ...]
SUMMED = 16
"""places of a window that are added up one after the other where a derivative folds windows back; more are sorted"""


def places(t: Infer, value: object, name: str, count: int, least: int = 1) -> Ints:
    """An integer for each of `count` axes, given as one for all or as a tuple."""
    given = items(value) if several(value) else [value] * count
    out = tuple(t.integer(v, name, most=2**31) for v in given)
    if len(out) != count or any(v < least for v in out):
        t.fail("TS213", f"{name} is a number of at least {least}, or {count} of them, not {shown(value)}")
    return out


def steps(size: Dim, window: int, step: int, dilation: int) -> Dim:
    """How many windows an axis of that size has; without room for one it has none."""
    return at_least_zero(dims.floordiv(size - dilation * (window - 1) - 1 + step, step))


def end(start: int, count: Dim, step: int) -> Dim:
    """The end of a slice of `count` elements that are `step` apart."""
    return start if count == 0 else start + (count - 1) * step + 1


class SlidingWindowView(ViewOperator):
    """Windows of `x` along the axes `axis`, `step` apart; new last axes hold the elements of a window.

    `dilation` is the distance between elements of a window. An axis of n elements has
    (n - dilation * (window - 1) - 1) // step + 1 windows.
    """

    methods = ()

    def infer(
        self, t: Infer, x: TensorType, window_shape: int | Sequence[int], axis: int | Sequence[int] | None = None,
        step: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1,
    ) -> TensorType:  # fmt: skip
        axes = tuple(range(x.rank)) if axis is None else tuple(t.axis(x, a) for a in items(axis))
        if len(set(axes)) != len(axes):
            t.fail("TS204", f"axis={axis} names an axis twice")
        n = len(axes)
        window = places(t, window_shape, "window_shape", n)
        step, dilation = places(t, step, "step", n), places(t, dilation, "dilation", n)
        t.canonical(window_shape=window, axis=axes, step=step, dilation=dilation)
        shape = list(x.shape)
        for a, w, s, d in zip(axes, window, step, dilation, strict=True):
            size = x.shape[a]
            if isinstance(size, int) and size < d * (w - 1) + 1:
                t.fail("TS213", f"a window of {d * (w - 1) + 1} does not fit axis {a} of {shape_text(x.shape)}")
            shape[a] = steps(x.shape[a], w, s, d)
        return x.with_shape((*shape, *window))

    def reference(self, x: Any, window_shape: Ints, axis: Ints, step: Ints, dilation: Ints) -> Any:
        wide = tuple(d * (w - 1) + 1 for w, d in zip(window_shape, dilation, strict=True))
        short = [max(0, w - x.shape[a]) for a, w in zip(axis, wide, strict=True)]
        if any(short):
            shape = [0 if a in axis and short[axis.index(a)] else n for a, n in enumerate(x.shape)]
            return np.zeros((*shape, *window_shape), x.dtype)
        out = np.lib.stride_tricks.sliding_window_view(x, wide, axis)
        at: list[Any] = [slice(None)] * out.ndim
        for i, a in enumerate(axis):
            at[a], at[x.ndim + i] = slice(None, None, step[i]), slice(None, None, dilation[i])
        return out[tuple(at)]

    def strided(
        self, shape: Shape, strides: Shape, offset: Dim, /, window_shape: Ints, axis: Ints, step: Ints, dilation: Ints
    ) -> Strided:
        sizes, walks = list(shape), list(strides)
        for a, w, s, d in zip(axis, window_shape, step, dilation, strict=True):
            sizes[a], walks[a] = steps(shape[a], w, s, d), strides[a] * s
            sizes.append(w)
            walks.append(strides[a] * d)
        return tuple(sizes), tuple(walks), offset

    def partition(self, cut: Cut, x: TensorType, window_shape: Ints, axis: Ints, step: Ints, dilation: Ints) -> None:
        if cut.axis(x) in axis:
            cut.whole(f"windows along {cut.dim} reach into the next part")

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, window_shape: Ints, axis: Ints, step: Ints,
        dilation: Ints,
    ) -> tuple[Value]:  # fmt: skip
        return (fold(g, ct, tensor(x).shape, window_shape, axis, step, dilation),)


def fold(g: GraphBuilder, ct: Value, shape: Shape, window: Ints, axis: Ints, step: Ints, dilation: Ints) -> Value:
    """The adjoint of windows of a tensor of that shape: what all windows have for an element, summed."""
    for a, w, s, d in reversed(list(zip(axis, window, step, dilation, strict=True))):
        ct = _fold_axis(g, ct, a, shape[a], w, s, d)
    return ct


def _fold_axis(g: GraphBuilder, ct: Value, axis: int, size: Dim, window: int, step: int, dilation: int) -> Value:
    """The last axis of `ct` is that of the window, `axis` counts the windows."""
    have = tensor(ct).shape
    rank, count = len(have) - 1, have[axis]
    if dilation == 1 and step >= window:  # windows do not overlap: they are side by side
        side = g.moveaxis(ct, rank, axis + 1)
        side = g.pad(side, tuple((0, step - window if i == axis + 1 else 0) for i in range(rank + 1)))
        flat = g.reshape(side, (*have[:axis], count * step, *have[axis + 1 : rank]))
        return resized(g, flat, axis, size)
    if window > SUMMED:
        side = g.reshape(g.moveaxis(ct, rank, axis + 1), (*have[:axis], count * window, *have[axis + 1 : rank]))
        first, within = g.mul(g.iota((count, 1)), step), g.mul(g.iota((1, window), axis=1), dilation)
        return g.segment_sum(side, g.reshape(g.add(first, within), (count * window,)), size, axis=axis)
    reach, total = dilation * (window - 1), None  # an element is in the windows that start up to so much before it
    ct = spread(g, ct, axis, step)
    rest = at_least_zero(size - count * step)
    ct = g.pad(ct, tuple((reach, rest) if i == axis else (0, 0) for i in range(rank + 1)))
    for k in range(window):
        start = reach - k * dilation
        one = part(g, part(g, ct, rank, k, k + 1), axis, start, start + size)
        one = g.reshape(one, (*have[:axis], size, *have[axis + 1 : rank]))
        total = one if total is None else g.add(total, one)
    assert total is not None
    return total


def spread(g: GraphBuilder, x: Value, axis: int, step: int) -> Value:
    """`x` with step - 1 zeros behind each element along the axis."""
    if step == 1:
        return x
    have = tensor(x).shape
    wide = g.pad(g.unsqueeze(x, axis + 1), tuple((0, step - 1 if i == axis + 1 else 0) for i in range(len(have) + 1)))
    return g.reshape(wide, (*have[:axis], have[axis] * step, *have[axis + 1 :]))


def resized(g: GraphBuilder, x: Value, axis: int, size: Dim) -> Value:
    """`x` as long as `size` along the axis: what is beyond it is cut off, or zeros follow."""
    have = tensor(x).shape
    kept = dims.dim_min(have[axis], size)
    x = x if dims.equal(kept, have[axis]) else part(g, x, axis, 0, kept)
    rest = size - kept
    return x if dims.equal(rest, 0) else g.pad(x, tuple((0, rest if i == axis else 0) for i in range(len(have))))
