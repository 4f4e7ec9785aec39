"""The complement of the error function and its inverse. Computed in f64, so that f32 results are right to a unit."""

from __future__ import annotations

import math

import tessera as ts

_SLOPE = 2 / math.sqrt(math.pi)
_TAIL = (
    -0.6513268598908547, 0.6419697923564902, 0.019476473204185836, -0.009561514786808632, -0.0009465953444820369,
    0.00036683949785276145, 4.252332480690777e-05, -2.0278578112534242e-05, -1.6242900046470256e-06,
    1.3036558355805232e-06, 1.5626441722066142e-08, -8.523809591492654e-08, 6.5290544390988515e-09,
    5.059343495551469e-09, -9.91364156493033e-10, -2.273651222931836e-10, 9.646791102015527e-11, 2.3940380830391162e-12,
    -6.886027526497563e-12, 8.944879273090935e-13, 3.130921399343045e-13, -1.1270822361390627e-13,
    3.8109052630053813e-16, 7.10609761302164e-15, -1.523028207107287e-15, -9.457491907162407e-17, 1.210236801987318e-16,
    -2.8166766913289694e-17,
)  # fmt: skip
"""log(erfc(z) e^(z^2) / t) of t = 1 / (1 + z / 2) in [0, 1], by Chebyshev's polynomials of 2 t - 1: interpolated at
their points, error 3e-18"""


def erfc(x):
    """1 - erf(x), with all digits where erf(x) is close to 1. Integers count as f32. In f64 the relative error is at
    most 1e-15, in f32 1 unit in the last place."""
    return _erfc(x if hasattr(x, "dtype") else ts.asarray(x))


def erfinv(x):
    """The y with erf(y) = x, infinite at 1 and -1, NaN beyond. Integers count as f32. In f64 the relative error is at
    most 1e-15, in f32 1 unit in the last place.

    A formula with two digits (S. Winitzki, 2008), and three steps of Newton's method, for x near 1 on log(erfc(y)).
    """
    return _erfinv(x if hasattr(x, "dtype") else ts.asarray(x))


@ts.function
def _erfc(x):
    z = x.to(ts.f64)
    far = _complement(ts.abs(z))
    found = ts.where(ts.abs(z) < 0.5, 1.0 - ts.erf(z), ts.where(z < 0, 2.0 - far, far))
    return ts.where(ts.isnan(z), z, found).to(x.dtype if x.dtype.is_float else ts.f32)


@_erfc.vjp
def _erfc_slope(result, cotangent, x):
    return cotangent * (-_SLOPE * ts.exp(-x * x))


@ts.function
def _erfinv(x):
    given = x.to(ts.f64)
    far = ts.abs(given)
    outside = ts.where(far == 1, math.inf, math.nan)
    inside = ts.where(far < 1, far, 0.0)
    logarithm, c = ts.log1p(-inside * inside), 0.147
    b = 2 / (math.pi * c) + logarithm / 2
    y = ts.sqrt(ts.maximum(ts.sqrt(b * b - logarithm / c) - b, 0.0))
    for _ in range(3):
        slope = _SLOPE * ts.exp(-y * y)
        rest = _complement(y)
        near = (ts.erf(y) - inside) / slope
        y = y - ts.where(inside < 0.5, near, (ts.log1p(-inside) - ts.log(rest)) * rest / slope)
    found = ts.where(far < 1, y, outside)
    return ts.where(given < 0, -found, found).to(x.dtype if x.dtype.is_float else ts.f32)


@_erfinv.vjp
def _erfinv_slope(result, cotangent, x):
    return cotangent * (ts.exp(result * result) / _SLOPE)


def _complement(z):
    """erfc(z) for z >= 0. e^(-z^2) is that of z rounded to f32, whose square is exact, times the rest."""
    z = ts.minimum(z, 30.0)  # erfc(30) is 0 in f64
    t = 1.0 / (1.0 + 0.5 * z)
    place, later, last = 4.0 * t - 2.0, ts.zeros_like(t), ts.zeros_like(t)
    for term in _TAIL[:0:-1]:  # Clenshaw's recurrence
        later, last = place * later - last + term, later
    exponent = 0.5 * place * later - last + _TAIL[0]
    rounded = z.to(ts.f32).to(ts.f64)
    return t * ts.exp(-rounded * rounded) * ts.exp((rounded - z) * (rounded + z) + exponent)
