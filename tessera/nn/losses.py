"""Losses that are not operators; `ts.cross_entropy` and `ts.mse` are."""

from __future__ import annotations

import tessera as ts


def binary_cross_entropy(logits, labels):
    """The mean of -(y log p + (1 - y) log(1 - p)) with p = sigmoid(logits), for labels y in [0, 1] of the same shape.

    Computed as max(x, 0) - x y + log(1 + e^-|x|), which neither overflows nor cancels.
    """
    return ts.mean(ts.maximum(logits, 0.0) - logits * labels + ts.log1p(ts.exp(-ts.abs(logits))))


def huber(x, y, delta: float = 1.0):
    """The mean of (x - y)^2 / 2 where |x - y| <= delta, and of delta (|x - y| - delta / 2) elsewhere (P. J. Huber,
    1964)."""
    apart = ts.abs(x - y)
    near = ts.minimum(apart, delta)
    return ts.mean(near * (apart - 0.5 * near))
