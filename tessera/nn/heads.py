"""Attention over heads, and encodings of positions."""

from __future__ import annotations

import math
from typing import Any, Literal

import tessera as ts
from tessera import Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import init
from tessera.nn.dense import Linear
from tessera.nn.module import Module


def rope(x, base: float = 10000.0, start=0):
    """x [..., S, D] with the pair of features (i, i + D/2) at position s rotated by the angle s * base^(-2i/D); D is
    even. The first position is `start`, a number or a tensor of one.

    Rotary position embedding (J. Su et al., "RoFormer", 2021), with the halves of a head as pairs, as in Llama. Angles
    are f32, the result has the dtype of x.
    """
    half = x.shape[-1] // 2
    places = (start + ts.arange(x.shape[-2])).to(ts.f32)
    speed = ts.exp(ts.arange(half).to(ts.f32) * (-math.log(base) / half))
    angle = places[:, None] * speed
    cos, sin = ts.cos(angle), ts.sin(angle)
    first, second = x[..., :half], x[..., half:]
    return ts.concat([first * cos - second * sin, second * cos + first * sin], axis=-1).to(x.dtype)


def alibi(q, k):
    """The bias [H, S, T] of the scores of q [..., H, S, D] and k [..., G, T, D]: -2^(-8(h+1)/H) times the distance of
    query and key (O. Press, N. A. Smith, M. Lewis, "Train short, test long", 2022). The last query is at the last key;
    H is a power of 2. It has the dtype of q.
    """
    heads, queries, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    slopes = ts.exp2((ts.arange(heads).to(ts.f32) + 1) * (-8.0 / heads))
    apart = (ts.arange(queries)[:, None] + (keys - queries) - ts.arange(keys)).to(ts.f32)
    return (-slopes[:, None, None] * ts.abs(apart)).to(q.dtype)


class RoPE(Module):
    """`rope` as a layer: x [..., S, D] rotated by its positions."""

    base: float = 10000.0

    def __call__(self, x: Tensor["...", "S", "D"]):
        return rope(x, self.base)


class ALiBi(Module):
    """`alibi` as a layer: a bias of the scores, for the mask of `ts.attention`."""

    def __call__(self, q: Tensor["...", "S", "D"], k: Tensor["...", "T", "D"]):
        return alibi(q, k)


class MultiHeadAttention(Module):
    """Attention of `heads` heads over x [..., S, D]: [..., S, D] (A. Vaswani et al., 2017).

    softmax(Q K^T / sqrt(D / heads)) V for each head, joined and mapped by `out`, where Q, K and V are linear in x.
    `groups`: the number of heads of K and V, each shared by heads / groups neighbouring heads of Q (J. Ainslie et al.,
    2023). `causal`: a position sees itself and those before. `positions`: "rotary" rotates Q and K by `rope`, "alibi"
    adds `alibi` to the scores, None uses no positions. `window`: a query sees only keys less than this distance away. D
    is a multiple of heads, and heads of groups.
    """

    _one_result = "it stores no weights that it could give"
    query: Linear
    key: Linear
    value: Linear
    out: Linear
    heads: int
    groups: int
    causal: bool
    positions: str | None
    window: int | None

    def __init__(
        self, features: int, heads: int, *, key: int | None = None, groups: int | None = None, causal: bool = False,
        positions: Literal["rotary", "alibi"] | None = None, window: int | None = None, bias: bool = False,
        dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        groups = heads if groups is None else groups
        if features % heads or heads % groups:
            message = f"{features} features, {heads} heads and {groups} groups do not divide each other"
            raise LaunchError(Diagnostic("TS105", f"{message}: heads divides features, and groups heads"))
        if positions == "rotary" and features // heads % 2:
            message = f"rotary positions need an even number of features in a head, not {features // heads}"
            raise LaunchError(Diagnostic("TS105", message))
        if positions == "alibi" and heads & (heads - 1):
            message = f"alibi needs a power of 2 as the number of heads, not {heads}"
            raise LaunchError(Diagnostic("TS105", message))
        narrow = features // heads * groups
        a, b, c, d = init.split(key, 4)
        self.query = Linear(features, features, key=a, bias=bias, dtype=dtype)
        self.key = Linear(features, narrow, key=b, bias=bias, dtype=dtype)
        self.value = Linear(features, narrow, key=c, bias=bias, dtype=dtype)
        self.out = Linear(features, features, key=d, bias=bias, dtype=dtype)
        self.heads = heads
        self.groups = groups
        self.causal = causal
        self.positions = positions
        self.window = window

    def __call__(self, x: Tensor["...", "S", "D"], mask=None, memory=None, cache=None):
        """`mask`: bools [..., S, T], true where a key is seen. `memory` [..., T, D]: the input of K and V, if not x.
        `cache`: a `KVCache` [B, groups, S_max, D / heads] that x [B, S, D] continues: the keys and values of x are
        appended, and the queries see all cached ones."""
        known = x if memory is None else memory
        q = _parted(self.query(x), self.heads)
        k = _parted(self.key(known), self.groups)
        v = _parted(self.value(known), self.groups)
        if cache is not None:
            seen = self.continued(q, k, v, mask, cache)
        else:
            if self.positions == "rotary":
                q, k = rope(q), rope(k)
            if self.positions == "alibi":
                far = alibi(q, k)
                mask = far if mask is None else ts.where(mask, far, -math.inf)
            seen = ts.attention(q, k, v, mask, causal=self.causal, window=self.window)
        return self.out(ts.reshape(ts.swapaxes(seen, -2, -3), x.shape))

    def continued(self, q, k, v, mask, cache):
        """Attention to the cached keys, and to k and v, which are appended: positions without tokens cost nothing. In a
        circular cache a token that takes the place of an older one hides it from all of q."""
        start, batch, count = cache.length.copy(), q.shape[0], q.shape[2]  # appending changes `length` in place
        if self.positions == "rotary":
            q, k = rope(q, start=start), rope(k, start=start)
        cache.append(k, v)
        keys, values = cache.keys.to(q.dtype), cache.values.to(q.dtype)
        starts = ts.broadcast_to(start, (batch,))
        lengths, causal, window = starts + count, self.causal, self.window
        own, held = start + ts.arange(count)[:, None], cache.positions()
        if cache.overflow == "wrap":  # keys are not in order
            seen = (held >= 0) & (held <= own) if causal else ts.broadcast_to(held >= 0, (count, held.shape[0]))
            if window is not None:
                seen = seen & (held > own - window) & (held < own + window)
            mask, causal, window = seen if mask is None else seen & mask, False, None
        if self.positions == "alibi":
            slopes = ts.exp2((ts.arange(self.heads).to(ts.f32) + 1) * (-8.0 / self.heads))
            far = (-slopes[:, None, None] * ts.abs((own - held).to(ts.f32))).to(q.dtype)
            mask = far if mask is None else ts.where(mask, far, -math.inf)
        return ts.attention(q, keys, values, mask, lengths, starts, causal=causal, window=window)


class SlidingWindowAttention(MultiHeadAttention):
    """`MultiHeadAttention` in which a position sees itself and the `window` - 1 before it (I. Beltagy, M. E. Peters, A.
    Cohan, "Longformer", 2020), and with `causal=False` as many after it: the time is proportional to S times `window`.
    """

    def __init__(
        self, features: int, heads: int, window: int, *, key: int | None = None, groups: int | None = None,
        causal: bool = True, positions: str | None = None, bias: bool = False, dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        super().__init__(
            features, heads, key=key, groups=groups, causal=causal, positions=positions, window=window, bias=bias,
            dtype=dtype,
        )  # fmt: skip


class FlashAttention2(Module):
    """`ts.attention` as a layer without parameters: q [..., H, S, D], k [..., G, T, D] and v [..., G, T, E] give [...,
    H, S, E]. Neither it nor its gradient stores the scores (T. Dao, "FlashAttention-2", 2023).
    """

    causal: bool = False
    window: int | None = None
    softcap: float | None = None
    scale: float | None = None

    def __call__(
        self, q: Tensor["...", "S", "D"], k: Tensor["...", "T", "D"], v: Tensor["...", "T", "E"], mask=None,
        lengths=None,
    ):  # fmt: skip
        """`mask`: bools, true where a key is seen, or floats to add; `lengths`: the number of keys in each batch."""
        return ts.attention(
            q, k, v, mask, lengths, causal=self.causal, window=self.window, softcap=self.softcap, scale=self.scale
        )


def _parted(x, heads: int):
    """[..., S, heads * K] as [..., heads, S, K]."""
    return ts.swapaxes(ts.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads)), -2, -3)
