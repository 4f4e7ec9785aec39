"""Attention, a block of queries at a time."""

from __future__ import annotations

import math

import tessera as ts
from tessera import Tensor


@ts.kernel(BLOCK_M=64, BLOCK_N=32)
def attention_safe(
    Q: Tensor["...", "S", "D"],
    K: Tensor["...", "T", "D"],
    V: Tensor["...", "T", "E"],
    mask: Tensor["...", "S", "T", ts.bool] | None = None,
    causal: bool = False,
    scale=None,
) -> Tensor["...", "S", "E"]:
    """softmax(Q K^T * scale) V without the scores ever standing in memory; of the dtype of `Q`.

    Q is [..., S, D], K [..., T, D] and V [..., T, E], with the same leading axes (batches, heads). K and V may have
    fewer heads: each serves a group of as many neighbouring heads of Q. `mask` says which keys [S, T] a query may see;
    `causal` lets query i see keys 0 to i. `scale` is 1 / sqrt(D) unless given; every value compiles. A query that may
    see no key gets 0. Scores beyond the range of f32 count as its ends. A NaN among the keys that a query may see makes
    its row NaN; so does one anywhere in V.
    Raises CompileError TS106 where Q, K and V are not of one float dtype, TS203 where shapes do not fit, TS207
    where Q's heads are not a multiple of K's.

    One pass over the keys, by the online softmax of M. Milakov and N. Gimelshein ("Online normalizer calculation for
    softmax", 2018), as T. Dao et al. use it ("FlashAttention", 2022). Unlike theirs, what is carried is the mean of V
    so far and not the sum, so that no V overflows.
    """
    ctx = ts.tile.context()
    BM, BN = ctx.BLOCK_M, ctx.BLOCK_N
    assert Q.dtype.is_float and Q.dtype == K.dtype == V.dtype, "Q, K and V must be of one float dtype: cast them first"
    wide = ts.f64 if Q.dtype == ts.f64 else ts.f32
    most = 1.7976931348623157e308 if wide == ts.f64 else 3.4028234663852886e38
    factor = 1 / math.sqrt(ctx.D) if scale is None else scale
    for i in ts.tile.range(0, ctx.S, BM):
        q = Q[i : i + BM]
        q_unit = power_of_two(q)
        q = ts.tile.cast(q / q_unit, Q.dtype)
        top = ts.tile.full((BM,), -math.inf, wide)
        total = ts.tile.zeros((BM,), wide)
        mean = ts.tile.zeros((BM, ctx.E), wide)
        for j in ts.tile.range(0, ctx.T, BN):
            if causal and j >= i + BM:  # these keys and all behind them are later than every query
                break
            k = K[j : j + BN]
            k_unit = power_of_two(k)
            scores = ts.tile.mma(q, ts.tile.cast(k / k_unit, K.dtype).T) * factor * q_unit * k_unit
            scores = ts.tile.minimum(ts.tile.maximum(scores, -most), most)  # -inf is for what may not be seen
            if mask is not None:
                scores = ts.tile.where(mask[i : i + BM, j : j + BN], scores, -math.inf)
            if causal:
                scores = ts.tile.causal_mask(scores, i, j)
            new = ts.tile.maximum(top, ts.tile.row_max(scores))
            before = total * exp_below(top, new)
            p = exp_below(scores, new)
            total = before + ts.tile.row_sum(p)
            seen = ts.tile.where(total == 0, 1.0, total)
            mean = mean * (before / seen) + ts.tile.mma(p / seen, V[j : j + BN])
            top = new
    return ts.tile.cast(mean, Q.dtype)


def exp_below(x, top):
    """exp(x - top) for x <= top, which is 0 at -inf even if that is the top."""
    return ts.tile.where(x == -math.inf, 0.0, ts.tile.exp(x - top))


def power_of_two(x):
    """For each row a power of two near its largest magnitude, at least 1: with rows divided by it no product overflows.

    The division is exact, and the scores get the factors back one by one, so that only those overflow that must.
    """
    exponent = ts.tile.floor(ts.tile.log2(ts.tile.row_max(ts.tile.abs(x))))
    most = 1022.0 if x.dtype == ts.f64 else 126.0
    return ts.tile.exp2(ts.tile.minimum(ts.tile.maximum(exponent, 0.0), most))
