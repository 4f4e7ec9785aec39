"""Lines of numbers: what neighbours make of each other, slopes, polynomials."""

from __future__ import annotations

import math

import tessera as ts
from tessera.functions.numbers import real


def convolve(x, kernel, mode: str = "full"):
    """The convolution of two vectors, as NumPy's: the sum of x[i] kernel[n - i] for each n.

    "full" has every n at which they overlap, "same" as many from the middle as the longer one has elements, "valid"
    those at which they overlap as a whole.
    """
    if x.shape[0] < kernel.shape[0]:
        x, kernel = kernel, x
    n, m = x.shape[0], kernel.shape[0]
    modes = {"full": (m - 1, m - 1), "same": (m // 2, (m - 1) // 2), "valid": (0, 0)}
    if mode not in modes:
        raise ValueError(f"mode {mode!r}: 'full', 'same' or 'valid'")
    padded = ts.pad(x, (modes[mode],))
    return ts.matmul(ts.sliding_window_view(padded, m, 0), ts.flip(kernel, 0))


def correlate(x, kernel, mode: str = "valid"):
    """The correlation of two vectors, as NumPy's: the sum of x[n + i] conj(kernel[i]) for each n. `mode` is that of
    `convolve`."""
    return convolve(x, ts.flip(ts.conj(kernel), 0), mode)


def gradient(y, x=1.0, axis: int | None = None):
    """Slopes of `y` along `axis` at each element, as NumPy's: by both neighbours, at the ends by one.

    `x` is the distance of neighbours, or a vector with a place for each element. Without `axis`, there is one result
    for each axis, in a list if there are several.
    """
    y = real(y)
    if axis is None and len(y.shape) > 1:
        return [gradient(y, x, k) for k in range(len(y.shape))]
    line = ts.moveaxis(y, 0 if axis is None else axis, -1)
    steps = line[..., 1:] - line[..., :-1]
    if hasattr(x, "shape") and len(x.shape):
        h = real(x)[1:] - real(x)[:-1]
        slopes = steps / h
        before, after = h[:-1], h[1:]
        inner = (slopes[..., :-1] * after + slopes[..., 1:] * before) / (before + after)
    else:
        slopes = steps / x
        inner = (line[..., 2:] - line[..., :-2]) / (2 * x)
    found = ts.concat([slopes[..., :1], inner, slopes[..., -1:]], axis=-1)
    return ts.moveaxis(found, -1, 0 if axis is None else axis)


def unwrap(x, period: float = 2 * math.pi, axis: int = -1):
    """`x` with multiples of `period` added, so that neighbours along `axis` are at most half of it apart."""
    line = ts.moveaxis(real(x), axis, -1)
    steps = line[..., 1:] - line[..., :-1]
    near = ts.mod(steps + period / 2, period) - period / 2
    near = ts.where(ts.logical_and(near == -period / 2, steps > 0), period / 2, near)
    added = ts.cumsum(ts.where(ts.abs(steps) < period / 2, 0.0, near - steps), axis=-1)
    return ts.moveaxis(ts.concat([line[..., :1], line[..., 1:] + added], axis=-1), -1, axis)


def polyval(p, x):
    """p[0] x^(n - 1) + ... + p[n - 1] by Horner's rule: `p` is a vector, or a list of numbers."""
    found = ts.zeros_like(x) + p[0]
    for k in range(1, len(p)):
        found = found * x + p[k]
    return found
