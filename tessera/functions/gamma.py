"""The logarithm of the gamma function and its derivative. Computed in f64, so that f32 results are right to a unit."""

from __future__ import annotations

import math

import tessera as ts

_NEAR_2 = (
    0.42278433509846713, -0.10031730167435393, 0.032965000621155836, -0.012384192193367468, 0.004998641164695469,
    -0.002108130834223415, 0.0009153769223805991, -0.00040570738897825623, 0.00018255263497305119,
    -8.309527325533694e-05, 3.816895987618124e-05, -1.7660194017271152e-05, 8.221478918059622e-06,
    -3.856313609317478e-06, 1.8124087986144874e-06, -8.208987442720822e-07, 3.8837480981603403e-07,
    -2.525485342958651e-07, 1.203490776346864e-07,
)  # fmt: skip
"""log gamma(2 + t) / (t (1 + t)) for |t| <= 1/2, by powers of t: interpolated at Chebyshev's points, error 6e-19"""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_LARGE = 8.5
"""from here on the asymptotic series has an error below 3e-17"""


def lgamma(x):
    """log |gamma(x)|, as PyTorch's; infinity at 0 and the negative integers. Integers count as f32.

    In f64 the relative error is at most 1e-15 for x > 0, also near 1 and 2, where the function is 0; for x < 0 the
    error is at most 1e-15 (1 + |lgamma(x)| + |lgamma(1 - x)|). In f32 it is 1 unit in the last place for x > 0.
    Stirling's series for large x, else the recurrence to the interval around 2; Euler's reflection for x < 0
    (M. Abramowitz, I. Stegun, 1964, 6.1.15, 6.1.17, 6.1.41). The derivative is `digamma`.
    """
    return _lgamma(x if hasattr(x, "dtype") else ts.asarray(x))


def digamma(x):
    """The derivative of `lgamma`, as PyTorch's: -infinity at 0, NaN at negative integers. Integers count as f32.

    In f64 the error is at most 2e-15 (1 + |digamma(x)|) for x > 0; in f32 1 unit in the last place. The asymptotic
    series for large x, else the recurrence up to it; reflection for x < 0 (M. Abramowitz, I. Stegun, 1964, 6.3.5,
    6.3.7, 6.3.18).
    """
    return _digamma(x if hasattr(x, "dtype") else ts.asarray(x))


@ts.function
def _lgamma(x):
    given = x.to(ts.f64)
    y = ts.where(given < 0, 1.0 - given, given)
    far = (y - 0.5) * (ts.log(y) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5) + _series(y, _stirling())
    found = ts.where(y >= _LARGE, far, _moderate(ts.minimum(y, _LARGE)))
    apart = given - ts.round(given)
    reflected = math.log(math.pi) - ts.log(ts.abs(ts.sin(math.pi * apart))) - found
    found = ts.where(given < 0, ts.where(given == -math.inf, math.inf, reflected), found)
    return found.to(x.dtype if x.dtype.is_float else ts.f32)


@ts.function
def _digamma(x):
    given = x.to(ts.f64)
    y = ts.where(given < 0, 1.0 - given, given)
    passed = ts.zeros_like(y)
    for _ in range(9):
        small = y < _LARGE
        passed = ts.where(small, passed + 1.0 / y, passed)
        y = ts.where(small, y + 1.0, y)
    terms = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))
    found = ts.log(y) - 0.5 / y - _series(y, terms) / y - passed
    apart = given - ts.round(given)
    reflected = ts.where(apart == 0, math.nan, found - math.pi / ts.tan(math.pi * apart))
    return ts.where(given < 0, reflected, found).to(x.dtype if x.dtype.is_float else ts.f32)


@_lgamma.vjp
def _slope(result, cotangent, x):
    return cotangent * _digamma(x)


def _stirling():
    return tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))


def _series(y, terms):
    """terms[0] / y + terms[1] / y^3 + ..."""
    inverse = 1.0 / y
    return inverse * _polynomial(inverse * inverse, terms)


def _polynomial(t, terms):
    found = terms[-1]
    for term in terms[-2::-1]:
        found = found * t + term
    return found


def _moderate(y):
    """log gamma(y) for 0 <= y <= 8.5: of y moved to [1.5, 2.5], and of the factors that were passed."""
    up, down = ts.where(y < 1.5, y, 1.0), ts.ones_like(y)
    up = ts.where(y < 0.5, up * (y + 1.0), up)
    t = ts.where(y < 0.5, y, y - 1.0)  # y + 2 - 2, y + 1 - 2
    for k in range(7):
        t = ts.where(y >= 1.5 + k, y - 2.0 - k, t)
        down = ts.where(y >= 2.5 + k, down * (y - 1.0 - k), down)
    factors = ts.log(ts.where(y < 1.5, up, down))
    return t * (1.0 + t) * _polynomial(t, _NEAR_2) + ts.where(y < 1.5, -factors, factors)
