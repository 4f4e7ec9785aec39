"""Statistics beside means and variances: those that leave out NaN, quantiles, counts."""

from __future__ import annotations

import math

import tessera as ts
from tessera.functions.numbers import real


def nansum(x, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """The sum of the elements that are not NaN."""
    return ts.sum(ts.where(ts.isnan(x), 0.0, x), axis=axis, keepdims=keepdims)


def nanmean(x, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """The mean of the elements that are not NaN; NaN where there are none."""
    count = ts.sum(ts.where(ts.isnan(x), 0.0, ts.ones_like(x)), axis=axis, keepdims=keepdims)
    return nansum(x, axis, keepdims) / count


def nanmax(x, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """The greatest element that is not NaN; NaN where there is none."""
    return _of_numbers(x, ts.max(ts.where(ts.isnan(x), -math.inf, x), axis=axis, keepdims=keepdims), axis, keepdims)


def nanmin(x, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """The least element that is not NaN; NaN where there is none."""
    return _of_numbers(x, ts.min(ts.where(ts.isnan(x), math.inf, x), axis=axis, keepdims=keepdims), axis, keepdims)


def _of_numbers(x, found, axis, keepdims: bool):
    return ts.where(ts.all(ts.isnan(x), axis=axis, keepdims=keepdims), math.nan, found)


def quantile(x, q: float | tuple[float, ...], axis: int | None = None, keepdims: bool = False):
    """The value below which the fraction `q` of the elements lies, between the two nearest ones in proportion.

    `q` is a number or a list of numbers, whose quantiles lie along a new first axis. NaN where an element is NaN, or
    there is none.
    """
    if isinstance(q, (list, tuple)):
        return ts.stack([quantile(x, one, axis, keepdims) for one in q], axis=0)
    if not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise ValueError(f"a quantile is a fraction from 0 to 1, not {q}")
    rank = len(x.shape)
    line = ts.reshape(x, (-1,)) if axis is None else ts.moveaxis(x, axis, -1)
    n = line.shape[-1]
    ordered = real(ts.sort(line, axis=-1))
    place = ts.asarray(q, dtype=ts.f64) * (n - 1)
    below = ts.astype(ts.floor(place), ts.int64)
    share = ts.astype(place - below, ordered.dtype)
    low, high = ts.take(ordered, below, axis=-1), ts.take(ordered, ts.minimum(below + 1, n - 1), axis=-1)
    between = ts.where(share == 0, low, low + (high - low) * share)
    found = ts.where(ts.any(ts.isnan(line), axis=-1) | (n == 0), math.nan, between)
    if not keepdims:
        return found
    return ts.reshape(found, (1,) * rank) if axis is None else ts.expand_dims(found, axis)


def median(x, axis: int | None = None, keepdims: bool = False):
    """The element in the middle, and the mean of the two in the middle of an even number, as in NumPy."""
    return quantile(x, 0.5, axis, keepdims)


def percentile(x, q: float | tuple[float, ...], axis: int | None = None, keepdims: bool = False):
    """`quantile` of q / 100."""
    return quantile(x, [one / 100 for one in q] if isinstance(q, (list, tuple)) else q / 100, axis, keepdims)


def nanmedian(x, axis: int | None = None, keepdims: bool = False):
    """The median of the elements that are not NaN; NaN where there are none."""
    rank = len(x.shape)
    line = ts.reshape(x, (-1,)) if axis is None else ts.moveaxis(x, axis, -1)
    count = ts.sum(ts.astype(ts.logical_not(ts.isnan(line)), ts.int64), axis=-1, keepdims=True)
    ordered = real(ts.sort(line, axis=-1))  # NaN last
    low = ts.take_along_axis(ordered, ts.maximum(count - 1, 0) // 2, axis=-1)
    high = ts.take_along_axis(ordered, ts.minimum(count // 2, ts.maximum(count - 1, 0)), axis=-1)
    found = (low + (high - low) / 2)[..., 0]
    if not keepdims:
        return found
    return ts.reshape(found, (1,) * rank) if axis is None else ts.expand_dims(found, axis)


def nanvar(x, axis: int | tuple[int, ...] | None = None, correction: float = 0, keepdims: bool = False):
    """The variance of the elements that are not NaN: squared distances from their mean, summed, divided by their number
    less `correction`."""
    count = ts.sum(ts.where(ts.isnan(x), 0.0, ts.ones_like(x)), axis=axis, keepdims=keepdims)
    far = x - nanmean(x, axis, True)
    return ts.where(count > correction, nansum(far * far, axis, keepdims) / (count - correction), math.nan)


def nanstd(x, axis: int | tuple[int, ...] | None = None, correction: float = 0, keepdims: bool = False):
    """The square root of `nanvar`."""
    return ts.sqrt(nanvar(x, axis, correction, keepdims))


def average(x, axis: int | None = None, weights=None, keepdims: bool = False):
    """The mean with these weights: sum(x w) / sum(w). Weights of one axis are those of `axis`."""
    if weights is None:
        return ts.mean(x, axis=axis, keepdims=keepdims)
    x, weights = real(x), real(weights)
    if len(weights.shape) == 1 and len(x.shape) > 1:
        place = axis % len(x.shape)
        weights = ts.reshape(weights, tuple(weights.shape[0] if i == place else 1 for i in range(len(x.shape))))
    total = ts.sum(ts.broadcast_to(weights, x.shape), axis=axis, keepdims=keepdims)
    return ts.sum(x * weights, axis=axis, keepdims=keepdims) / total


def ptp(x, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """The greatest element less the least."""
    return ts.max(x, axis=axis, keepdims=keepdims) - ts.min(x, axis=axis, keepdims=keepdims)


def cov(x, correction: float = 1):
    """Covariances of the rows of x [variables, observations], as a matrix [variables, variables]."""
    x = real(x)
    far = x - ts.mean(x, axis=1, keepdims=True)
    return far @ ts.conj(far).T / (x.shape[1] - correction)


def corrcoef(x):
    """Correlations of the rows of x [variables, observations], limited to [-1, 1]."""
    c = cov(x)
    deviation = ts.sqrt(ts.sum(ts.where(ts.eye(c.shape[0]) > 0, c, 0.0), axis=1))
    return ts.clip(c / deviation[:, None] / deviation[None, :], -1.0, 1.0)


def bincount(x, weights=None, *, length: int):
    """How often each of 0 ... length - 1 stands in `x` [n], or the sum of its `weights`. Other numbers do not count.

    NumPy finds the length in the elements; here, sizes do not depend on them.
    """
    ones = ts.ones(x.shape, dtype=ts.int64) if weights is None else weights
    return ts.segment_sum(ones, x, length)


def histogram(x, bins: int = 10, range: tuple[float, float] | None = None):
    """How many elements lie in each of `bins` equal parts of `range`, by default from the least to the greatest
    element, and the edges of the parts. The last part has both its edges."""
    x = real(ts.reshape(x, (-1,)))
    low, high = (ts.min(x), ts.max(x)) if range is None else range
    edges = low + (high - low) * (ts.arange(bins + 1, dtype=x.dtype) / bins)
    place = ts.sum(x[:, None] >= edges[None, :-1], axis=1) - 1
    inside = ts.logical_and(x >= low, x <= high)
    return bincount(ts.where(inside, place, bins), length=bins), edges


def trapezoid(y, x=None, dx: float = 1.0, axis: int = -1):
    """The integral of `y` along `axis` by the rule of trapezoids, at the points `x` or with the distance `dx`."""
    y, x = real(ts.moveaxis(y, axis, -1)), real(x)
    step = dx if x is None else x[..., 1:] - x[..., :-1]
    return ts.sum(step * (y[..., 1:] + y[..., :-1]) / 2, axis=-1)
