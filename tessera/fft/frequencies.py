"""Which frequency each result of a transform belongs to, and results in the order of frequencies."""

from __future__ import annotations

import tessera as ts


def fftfreq(n: int, d: float = 1.0, dtype=ts.f32):
    """The frequencies of `fft`'s results, in cycles per unit of the spacing `d`: 0, 1 ... -2, -1 divided by n d."""
    k = ts.arange(n)
    return _per_unit(ts.where(k < (n + 1) // 2, k, k - n), n, d, dtype)


def rfftfreq(n: int, d: float = 1.0, dtype=ts.f32):
    """The frequencies of `rfft`'s results, in cycles per unit of the spacing `d`: 0, 1 ... n // 2 divided by n d."""
    return _per_unit(ts.arange(n // 2 + 1), n, d, dtype)


def _per_unit(k, n, d, dtype):
    if dtype is None:
        dtype = ts.f32
    return ts.astype(ts.astype(k, ts.f64) / (n * d), dtype)


def fftshift(x, axes: int | tuple[int, ...] | None = None):
    """Frequency 0 in the middle of `axes` (None: all), as NumPy has it."""
    return _shifted(ts.asarray(x), axes, 1)


def ifftshift(x, axes: int | tuple[int, ...] | None = None):
    """The inverse of `fftshift`."""
    return _shifted(ts.asarray(x), axes, -1)


def _shifted(x, axes, sign):
    if axes is None:
        axes = tuple(range(len(x.shape)))
    for a in axes if isinstance(axes, (list, tuple)) else (axes,):
        half = x.shape[a] // 2
        x = ts.roll(x, half if sign > 0 else -half, axis=a)
    return x
