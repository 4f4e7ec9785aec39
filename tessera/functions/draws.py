"""Random draws that are made of `ts.uniform` and `ts.randint`, by a key."""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera.functions.numbers import wide


def exponential(key: Any, shape: Any = (), dtype: Any = ts.f32):
    """Numbers of the exponential distribution with mean 1: -log(1 - u) of u in [0, 1)."""
    return ts.astype(_exponential(key, shape, dtype), dtype)


def gumbel(key: Any, shape: Any = (), dtype: Any = ts.f32):
    """Numbers of Gumbel's standard distribution: -log of those of the exponential distribution. All are finite."""
    return ts.astype(_gumbel(key, shape, dtype), dtype)


def laplace(key: Any, shape: Any = (), dtype: Any = ts.f32):
    """Numbers of Laplace's distribution around 0 with scale 1: the difference of two of the exponential one."""
    one, other = ts.split_key(key)
    return ts.astype(_exponential(one, shape, dtype) - _exponential(other, shape, dtype), dtype)


def categorical(key: Any, logits, axis: int = -1):
    """One index along `axis` for each of the others, drawn from softmax(logits), int64: the largest sum of a logit and
    noise of Gumbel's distribution (E. J. Gumbel, 1954). What is -inf is not drawn, unless all are."""
    return ts.argmax(logits + _gumbel(key, logits.shape, logits.dtype), axis=axis)


def gumbel_softmax(key: Any, logits, tau: float = 1.0, hard: bool = False, axis: int = -1):
    """Weights along `axis` that come close to one draw from softmax(logits) as `tau` comes close to 0, and have
    gradients (E. Jang, S. Gu, B. Poole, 2017). With `hard` they are 1 at the largest and 0 elsewhere, and the gradient
    is that of the weights."""
    soft = ts.softmax((logits + _gumbel(key, logits.shape, logits.dtype)) / tau, axis=axis)
    if not hard:
        return soft
    one = ts.moveaxis(ts.one_hot(ts.argmax(soft, axis=axis), soft.shape[axis], dtype=soft.dtype), -1, axis)
    return one + (soft - ts.stop_gradient(soft))


def permutation(key: Any, x: Any, axis: int = 0):
    """The numbers below `x` in random order, int64, or the slices of a tensor along `axis` in random order."""
    if isinstance(x, int):
        return ts.argsort(ts.randint(key, (x,), 0, 2**62), axis=0)
    return ts.take(x, permutation(key, x.shape[axis]), axis=axis)


def _exponential(key, shape, dtype):
    """At least of f32: uniform numbers of 16 bits have too few digits near 1."""
    return -ts.log1p(-ts.uniform(key, shape, dtype=wide(dtype)))


def _gumbel(key, shape, dtype):
    e = _exponential(key, shape, dtype)
    return -ts.log(ts.maximum(e, 2.0**-54 if dtype == ts.f64 else 2.0**-25))  # half of the least that is not 0
