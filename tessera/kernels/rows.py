"""Sums of exponentials along an axis.

Both subtract the largest element first, so that no exponential exceeds 1 (N. J. Higham, P. Blanchard and D. J. Higham,
"Accurately computing the log-sum-exp and softmax functions", 2021). The largest element's own difference is written as
0 and not computed, for inf - inf is NaN.
"""

from __future__ import annotations

import math

import tessera as ts
from tessera import Tensor


@ts.function
def softmax_safe(x: Tensor["..."], axis: int = -1):
    """exp(x) / sum(exp(x)) along `axis`; the shape and dtype of `x`, which is of floats.

    -inf gives 0. Where all are -inf, all get 0: nothing is chosen, as in a masked row that may see nothing. +inf takes
    everything, in equal parts if there are several. NaN makes its row NaN. Raises CompileError TS204 for an axis that
    `x` does not have and TS106 for integers.
    """
    v = wide(x)
    if x.size == 0:
        return x
    top = ts.max(v, axis=axis, keepdims=True)
    e = exp_below(v, top)
    share = e / ts.sum(e, axis=axis, keepdims=True)
    return ts.cast(ts.where(top == -math.inf, 0.0, share), x.dtype)


@ts.function
def logsumexp_safe(x: Tensor["..."], axis=-1, keepdims: bool = False):
    """log(sum(exp(x))) along `axis`, an axis, several, or None for all; the dtype of `x`, which is of floats.

    -inf where all are -inf or there are none, +inf where there is a +inf, NaN where there is a NaN. Raises CompileError
    TS204 for an axis that `x` does not have and TS106 for integers.
    """
    v = wide(x)
    if x.size == 0:
        return ts.full(reduced(x, axis, keepdims), -math.inf, x.dtype)
    e = exp_below(v, ts.max(v, axis=axis, keepdims=True))
    top = ts.max(v, axis=axis, keepdims=keepdims)
    return ts.cast(top + ts.log(ts.sum(e, axis=axis, keepdims=keepdims)), x.dtype)


def exp_below(v, top):
    """exp(v - top) for v <= top, which is 1 at the top even where that is infinite."""
    return ts.exp(ts.where(v == top, 0.0, v - top))


def reduced(x, axis, keepdims):
    """The shape of `x` after a reduction."""
    given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [a % x.ndim for a in given]
    return tuple(1 if i in axes else d for i, d in enumerate(x.shape) if keepdims or i not in axes)


def wide(x):
    """`x` in the dtype of sums. Plain Python functions like this one are inlined."""
    assert x.dtype.is_float, "x must be of floats: cast it first"
    return x if x.dtype == ts.f64 else ts.cast(x, ts.f32)
