"""Activations that are not operators; `ts.relu`, `ts.gelu`, `ts.silu` and others are."""

from __future__ import annotations

import tessera as ts
from tessera.functions.numbers import real


def mish(x):
    """x tanh(log(1 + e^x)) (D. Misra, 2019)."""
    return x * ts.tanh(ts.softplus(x))


def selu(x):
    """1.0507 x for positive x, 1.7581 (e^x - 1) below (G. Klambauer et al., 2017)."""
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * ts.where(x > 0, x, alpha * ts.expm1(ts.minimum(x, 0.0)))


def celu(x, alpha: float = 1.0):
    """x for positive x, alpha (e^(x / alpha) - 1) below."""
    return ts.where(x > 0, x, alpha * ts.expm1(ts.minimum(x, 0.0) / alpha))


def hardtanh(x, low: float = -1.0, high: float = 1.0):
    """`x` limited to [low, high]."""
    return ts.clip(x, low, high)


def relu6(x):
    """`x` limited to [0, 6]."""
    return ts.clip(x, 0.0, 6.0)


def hardsigmoid(x):
    """x / 6 + 1/2, limited to [0, 1]."""
    return ts.clip(x / 6 + 0.5, 0.0, 1.0)


def hardswish(x):
    """x times hardsigmoid(x)."""
    return x * hardsigmoid(x)


def logsigmoid(x):
    """log(1 / (1 + e^-x)), which neither overflows nor cancels."""
    return -ts.softplus(-x)


def softsign(x):
    """x / (1 + |x|)."""
    x = real(x)
    return x / (1 + ts.abs(x))


def glu(x, axis: int = -1):
    """The first half of `x` along `axis` times the sigmoid of the second."""
    value, gate = ts.split(x, 2, axis=axis)
    return value * ts.sigmoid(gate)


def prelu(x, weight):
    """x for positive x, `weight` times x below."""
    return ts.where(x > 0, x, weight * x)


def softmin(x, axis: int = -1):
    """The softmax of -x."""
    return ts.softmax(-real(x), axis=axis)


def softshrink(x, lambd: float = 0.5):
    """`x` moved towards 0 by `lambd`, and 0 where that is further than it is away."""
    return ts.where(x > lambd, x - lambd, ts.where(x < -lambd, x + lambd, 0 * x))


def hardshrink(x, lambd: float = 0.5):
    """`x`, and 0 where |x| <= `lambd`."""
    return ts.where(ts.abs(x) > lambd, x, ts.zeros_like(x))


def tanhshrink(x):
    """x - tanh(x)."""
    return x - ts.tanh(x)


def threshold(x, threshold: float, value: float):
    """`x` where it is more than `threshold`, else `value`."""
    return ts.where(x > threshold, x, value)
