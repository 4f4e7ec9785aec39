"""Losses that are not operators; `ts.cross_entropy` and `ts.mse` are."""

from __future__ import annotations

from typing import Literal

import tessera as ts
from tessera.errors import Diagnostic, LaunchError


def binary_cross_entropy(logits, labels, pos_weight=None, reduction: Literal["mean", "sum", "none"] = "mean"):
    """The mean of -(w y log p + (1 - y) log(1 - p)) with p = sigmoid(logits), for labels y in [0, 1] of the same shape.

    w is `pos_weight`, a number or one for each of the last axis, 1 without. Computed as max(x, 0) - x y +
    log(1 + e^-|x|), which neither overflows nor cancels.
    """
    _demand_pairs("binary_cross_entropy", logits, labels)
    small = ts.log1p(ts.exp(-ts.abs(logits)))
    if pos_weight is None:
        return _reduced(ts.maximum(logits, 0.0) - logits * labels + small, reduction)
    weight = 1.0 + (pos_weight - 1.0) * labels
    return _reduced((1.0 - labels) * logits + weight * (small + ts.maximum(-logits, 0.0)), reduction)


def huber(x, y, delta: float = 1.0, reduction: Literal["mean", "sum", "none"] = "mean"):
    """The mean of (x - y)^2 / 2 where |x - y| <= delta, and of delta (|x - y| - delta / 2) elsewhere (P. J. Huber,
    1964)."""
    _demand_pairs("huber", x, y)
    apart = ts.abs(x * 1.0 - y * 1.0)  # integers are numbers of f32, which do not wrap
    near = ts.minimum(apart, delta)
    return _reduced(near * (apart - 0.5 * near), reduction)


def _reduced(loss, reduction):
    if reduction not in ("mean", "sum", "none"):
        raise LaunchError(Diagnostic("TS213", f"reduction is 'mean', 'sum' or 'none', not {reduction!r}"))
    return ts.mean(loss) if reduction == "mean" else ts.sum(loss) if reduction == "sum" else loss


def _demand_pairs(name, x, y):
    """Raises LaunchError TS213 where broadcasting would pair each element of x with all of y: of [B, 1] and [B]."""
    if hasattr(x, "shape") and hasattr(y, "shape") and len(y.shape) and len(x.shape) and len(x.shape) != len(y.shape):
        both = f"{x.shape} and {y.shape}"
        raise LaunchError(Diagnostic("TS213", f"{name} compares elements in pairs, not {both}; give both one shape"))
