"""Losses that are not operators; `ts.cross_entropy` and `ts.mse` are."""

from __future__ import annotations

import math
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


def triplet_margin(
    anchor, positive, negative, margin: float = 1.0, p: float = 2, reduction: Literal["mean", "sum", "none"] = "mean"
):
    """The mean of max(0, d(anchor, positive) - d(anchor, negative) + margin) over vectors [..., n], with the p-norm of
    the difference, to which 1e-6 is added, as d (PyTorch's)."""
    anchor = anchor * 1.0  # as in huber
    near = ts.norm(anchor - positive * 1.0 + 1e-6, ord=p, axis=-1)
    far = ts.norm(anchor - negative * 1.0 + 1e-6, ord=p, axis=-1)
    return _reduced(ts.maximum(near - far + margin, 0.0), reduction)


def ctc_loss(
    log_probs,
    labels,
    steps,
    lengths,
    blank: int = 0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    zero_infinity: bool = False,
):
    """-log of the probability that a sequence of labels stands in a longer one of predictions, with blanks and repeats
    at any place (A. Graves et al., 2006).

    `log_probs` [T, B, C] are log_softmax of each step's scores, of which `steps` [B] count; `labels` [B, L] are numbers
    below C, of which `lengths` [B] count. The mean is that of each loss divided by its number of labels. A loss is
    infinite where there are too few steps, with `zero_infinity` 0, and so is its gradient.
    """
    rows, most = log_probs.shape[1], labels.shape[1]
    never = -1e30  # -inf, of which differences are numbers
    odd = ts.arange(2 * most + 1) % 2 == 1
    inner = ts.reshape(ts.stack([ts.full_like(labels, blank), labels], axis=-1), (rows, 2 * most))
    states = ts.pad(inner, ((0, 0), (0, 1)), value=blank)
    before = ts.pad(states, ((0, 0), (2, 0)), value=blank)[:, :-2]
    skips = ts.logical_and(odd, states != before)  # a blank between two equal labels is not left out
    places = ts.broadcast_to(ts.astype(states, ts.int64), (log_probs.shape[0], rows, 2 * most + 1))
    said = ts.take_along_axis(log_probs, places, axis=2)
    state = ts.where(ts.arange(2 * most + 1) < 2, said[0], never)
    for t in ts.range(1, log_probs.shape[0]):
        one = ts.pad(state, ((0, 0), (1, 0)), value=never)[:, :-1]
        two = ts.where(skips, ts.pad(state, ((0, 0), (2, 0)), value=never)[:, :-2], never)
        further = ts.logsumexp(ts.stack([state, one, two], axis=0), axis=0) + said[t]
        state = ts.where(t < steps[:, None], ts.maximum(further, never), state)
    end = ts.astype(2 * lengths, ts.int64)[:, None]
    blanks = ts.take_along_axis(state, end, axis=1)[:, 0]
    last = ts.take_along_axis(state, ts.maximum(end - 1, 0), axis=1)[:, 0]
    found = -ts.where(lengths > 0, ts.logaddexp(blanks, last), blanks)
    loss = ts.where(found < 1e29, found, 0.0 if zero_infinity else math.inf)
    return _reduced(loss / ts.maximum(lengths, 1) if reduction == "mean" else loss, reduction)


def _reduced(loss, reduction):
    if reduction not in ("mean", "sum", "none"):
        raise LaunchError(Diagnostic("TS213", f"reduction is 'mean', 'sum' or 'none', not {reduction!r}"))
    return ts.mean(loss) if reduction == "mean" else ts.sum(loss) if reduction == "sum" else loss


def _demand_pairs(name, x, y):
    """Raises LaunchError TS213 where broadcasting would pair each element of x with all of y: of [B, 1] and [B]."""
    if hasattr(x, "shape") and hasattr(y, "shape") and len(y.shape) and len(x.shape) and len(x.shape) != len(y.shape):
        both = f"{x.shape} and {y.shape}"
        raise LaunchError(Diagnostic("TS213", f"{name} compares elements in pairs, not {both}; give both one shape"))
