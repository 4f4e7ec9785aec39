"""Lengths of vectors and distances between them."""

from __future__ import annotations

import tessera as ts
from tessera.functions.numbers import real


def normalize(x, ord: float = 2, axis: int = 1, eps: float = 1e-12):
    """`x` divided by its norms along `axis`, which count as at least `eps`."""
    x = real(x)
    return x / ts.maximum(ts.norm(x, ord=ord, axis=axis, keepdims=True), eps)


def cosine_similarity(x, y, axis: int = 1, eps: float = 1e-8):
    """Products of the vectors along `axis`, divided by their lengths, each at least `eps`."""
    x, y = real(x), real(y)
    lengths = ts.maximum(ts.norm(x, axis=axis), eps) * ts.maximum(ts.norm(y, axis=axis), eps)
    return ts.sum(x * y, axis=axis) / lengths


def cdist(x, y, p: float = 2):
    """The distances [..., n, m] between the rows of x [..., n, d] and those of y [..., m, d], as p-norms.

    Computed from differences, which do not cancel.
    """
    x, y = real(x), real(y)
    return ts.norm(ts.expand_dims(x, -2) - ts.expand_dims(y, -3), ord=p, axis=-1)
