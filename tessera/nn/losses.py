"""Losses that are not operators; `ts.cross_entropy` and `ts.mse` are."""

from __future__ import annotations

import tessera as ts
from tessera.errors import Diagnostic, LaunchError


def binary_cross_entropy(logits, labels):
    """The mean of -(y log p + (1 - y) log(1 - p)) with p = sigmoid(logits), for labels y in [0, 1] of the same shape.

    Computed as max(x, 0) - x y + log(1 + e^-|x|), which neither overflows nor cancels.
    """
    _demand_pairs("binary_cross_entropy", logits, labels)
    return ts.mean(ts.maximum(logits, 0.0) - logits * labels + ts.log1p(ts.exp(-ts.abs(logits))))


def huber(x, y, delta: float = 1.0):
    """The mean of (x - y)^2 / 2 where |x - y| <= delta, and of delta (|x - y| - delta / 2) elsewhere (P. J. Huber,
    1964)."""
    _demand_pairs("huber", x, y)
    apart = ts.abs(x * 1.0 - y * 1.0)  # integers are numbers of f32, which do not wrap
    near = ts.minimum(apart, delta)
    return ts.mean(near * (apart - 0.5 * near))


def _demand_pairs(name, x, y):
    """Raises LaunchError TS213 where broadcasting would pair each element of x with all of y: of [B, 1] and [B]."""
    if hasattr(x, "shape") and hasattr(y, "shape") and len(y.shape) and len(x.shape) and len(x.shape) != len(y.shape):
        both = f"{x.shape} and {y.shape}"
        raise LaunchError(Diagnostic("TS213", f"{name} compares elements in pairs, not {both}; give both one shape"))
