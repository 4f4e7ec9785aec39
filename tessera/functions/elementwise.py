"""Elementwise functions of NumPy and PyTorch that a line of operators expresses."""

from __future__ import annotations

import math

import tessera as ts
from tessera.functions.numbers import real


def isclose(x, y, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False):
    """Where |x - y| <= atol + rtol |y|. Infinities are close to themselves, NaN to NaN with `equal_nan`."""
    x, y = real(x, ts.f64), real(y, ts.f64)
    finite = ts.logical_and(ts.isfinite(x), ts.isfinite(y))
    close = ts.where(finite, ts.abs(x - y) <= atol + rtol * ts.abs(y), x == y)
    if equal_nan:
        close = ts.logical_or(close, ts.logical_and(ts.isnan(x), ts.isnan(y)))
    return close


def allclose(x, y, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False):
    """Whether all elements are close, as `isclose` says."""
    return ts.all(isclose(x, y, rtol, atol, equal_nan))


def nan_to_num(x, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None):
    """`x` with numbers for NaN and the infinities: by default 0 and the greatest and least finite numbers."""
    maximum = ts.asarray(x).dtype.maximum
    greatest = maximum if posinf is None else posinf
    least = -maximum if neginf is None else neginf
    finite = ts.where(x == math.inf, greatest, ts.where(x == -math.inf, least, x))
    return ts.where(ts.isnan(x), nan, finite)


def fmod(x, y):
    """The remainder of x / y with the sign of x, as in C; it is exact."""
    rest = ts.remainder(x, y)
    if not ts.asarray(rest).dtype.is_float:  # whose least number has no positive counterpart
        return ts.where(ts.logical_and(rest != 0, (x < 0) != (y < 0)), rest - y, rest)
    rest = ts.remainder(ts.abs(real(x)), ts.abs(real(y)))
    return ts.where(x < 0, -rest, rest)


def frac(x):
    """x without its integer part, with the sign of x."""
    return x - ts.trunc(x)


def fmax(x, y):
    """The greater of both; of NaN and a number, the number."""
    return ts.where(ts.isnan(x), y, ts.where(ts.isnan(y), x, ts.maximum(x, y)))


def fmin(x, y):
    """The smaller of both; of NaN and a number, the number."""
    return ts.where(ts.isnan(x), y, ts.where(ts.isnan(y), x, ts.minimum(x, y)))


def heaviside(x, at_zero):
    """0 for negative x, 1 for positive x, `at_zero` at 0, NaN for NaN."""
    return ts.where(x == 0, at_zero, ts.where(x < 0, 0.0, ts.where(ts.isnan(x), x, 1.0)))


def logit(x, eps: float | None = None):
    """log(x / (1 - x)); with `eps`, x is first limited to [eps, 1 - eps]."""
    x = x if eps is None else ts.clip(x, eps, 1 - eps)
    return ts.log(x) - ts.log1p(-x)


def sinc(x):
    """sin(pi x) / (pi x), 1 at 0."""
    angle = math.pi * ts.where(x == 0, 1.0, x)
    return ts.where(x == 0, 1.0, ts.sin(angle) / angle)


def deg2rad(x):
    """Degrees as radians."""
    return x * (math.pi / 180)


def rad2deg(x):
    """Radians as degrees."""
    return x * (180 / math.pi)


def degrees(x):
    """Radians as degrees: NumPy's name for `rad2deg`."""
    return rad2deg(x)


def radians(x):
    """Degrees as radians: NumPy's name for `deg2rad`."""
    return deg2rad(x)


def angle(z):
    """The angle of complex numbers in radians, from -pi to pi; 0 or pi for real ones."""
    z = real(z)
    return ts.atan2(z.imag, z.real) if z.dtype.is_complex else ts.where(ts.isnan(z), z, ts.where(z < 0, math.pi, 0.0))


def cbrt(x):
    """The cube root, of negative numbers too: a power, and a step of Newton's method, which makes it exact to 1 unit in
    the last place."""
    x = real(x)
    size = ts.abs(x)
    usual = ts.logical_and(size > 0, ts.isfinite(x))
    size = ts.where(usual, size, 1.0)
    y = ts.pow(size, 1 / 3)
    y = y - (y - size / (y * y)) / 3
    return ts.where(usual, ts.where(x < 0, -y, y), x)


def isposinf(x):
    """Where an element is infinity."""
    return real(x) == math.inf


def isneginf(x):
    """Where an element is -infinity."""
    return real(x) == -math.inf


def has_nan(x):
    """Whether an element is NaN, as one bool."""
    return ts.any(ts.isnan(x))
