"""Places in ordered vectors, and membership."""

from __future__ import annotations

import tessera as ts
from tessera.functions.numbers import real


def searchsorted(a, v, side: str = "left"):
    """Where each element of `v` would be inserted into the ascending vector `a`: before equal ones (left) or behind
    them (right). int64, by bisection; NaN is the greatest."""
    if side not in ("left", "right"):
        raise ValueError(f"side is 'left' or 'right', not {side!r}")
    low = ts.zeros_like(v, dtype=ts.int64)  # also of a number
    left = ts.full((), a.shape[0], ts.int64)  # how many places behind `low` may be the one: for all elements as many
    while left > 0:
        half = (left + 1) // 2
        there = ts.take(a, low + (half - 1))
        if side == "left":
            behind = ts.logical_or(there < v, ts.logical_and(ts.isnan(v), ts.logical_not(ts.isnan(there))))
        else:
            behind = ts.logical_or(there <= v, ts.isnan(v))
        low, left = ts.where(behind, low + half, low), left - half
    return low


def bucketize(x, boundaries, right: bool = False):
    """PyTorch's: the number of `boundaries` below x; with `right`, below or equal."""
    return searchsorted(boundaries, x, side="right" if right else "left")


def digitize(x, bins, right: bool = False):
    """NumPy's, for ascending bins: the number of `bins` below or equal to x; with `right`, below."""
    return searchsorted(bins, x, side="left" if right else "right")


def isin(x, values):
    """Whether each element of `x` is one of `values`."""
    values = ts.reshape(values, (-1,))
    return ts.any(ts.expand_dims(x, -1) == values, axis=-1)


def interp(x, xp, fp):
    """The line through the points (xp, fp), xp ascending, at `x`; outside of them the first and the last value."""
    if xp.shape[0] != fp.shape[0]:
        raise ValueError(f"each point has a place and a value, and here are {xp.shape[0]} and {fp.shape[0]} of them")
    right = ts.clip(searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    x, xp, fp = real(x), real(xp), real(fp)
    x0, x1 = ts.take(xp, right - 1), ts.take(xp, right)
    y0, y1 = ts.take(fp, right - 1), ts.take(fp, right)
    between = y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
    return ts.where(x <= xp[0], fp[0], ts.where(x >= xp[-1], fp[-1], between))
