"""Transformers, and layers one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tessera as ts
from tessera import Tensor
from tessera.nn import init
from tessera.nn.dense import MLP, Dropout, SwiGLU
from tessera.nn.heads import MultiHeadAttention
from tessera.nn.module import Module
from tessera.nn.norms import LayerNorm, RMSNorm


class Stack(Module):
    """Layers one after the other, each called as `layer(x, key, *args)`, or as `layer(x)` where nothing else is given.

    `Stack(make, n, key=k)` makes them by `make(key=...)`, with n keys that follow from k. A call's key, for dropout,
    gives each layer its own. Equal layers are compiled once.
    """

    layers: list

    def __init__(self, make: Callable[..., Any], count: int, *, key: int) -> None:
        self.layers = [make(key=k) for k in init.split(key, count)]

    def __call__(self, x, key=None, *args):
        keys = None if key is None else ts.random_bits(key, (len(self.layers),))
        for i, layer in enumerate(self.layers):
            if keys is not None:
                x = layer(x, keys[i], *args)
            elif args:
                x = layer(x, None, *args)
            else:
                x = layer(x)
        return x


class TransformerBlock(Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)): [..., S, D] (the norm first: R. Xiong et al., 2020).

    `feed_forward` is "gelu" (an MLP of 4 D features) or "swiglu" (8/3 D, rounded up to a multiple of 8); norms are
    `LayerNorm` for the first and `RMSNorm` for the second. `dropout` acts on what both add, where a call is given a
    key. Other arguments are those of `MultiHeadAttention`.
    """

    attention: MultiHeadAttention
    feed: MLP
    before_attention: LayerNorm
    before_feed: LayerNorm
    drop: Dropout

    def __init__(
        self, features: int, heads: int, *, key: int, groups: int | None = None, causal: bool = True,
        positions: str | None = None, feed_forward: str = "gelu", hidden: int | None = None, dropout: float = 0.0,
        dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        first, second = init.split(key, 2)
        self.attention = MultiHeadAttention(
            features, heads, key=first, groups=groups, causal=causal, positions=positions, dtype=dtype
        )
        if feed_forward == "swiglu":
            self.feed = SwiGLU(features, hidden or (features * 8 // 3 + 7) // 8 * 8, key=second, dtype=dtype)
        elif feed_forward == "gelu":
            self.feed = MLP(features, hidden or 4 * features, key=second, dtype=dtype)
        else:
            raise ValueError(f"feed_forward is 'gelu' or 'swiglu', not {feed_forward!r}")
        norm = RMSNorm if feed_forward == "swiglu" else LayerNorm
        self.before_attention, self.before_feed = norm(features, dtype=dtype), norm(features, dtype=dtype)
        self.drop = Dropout(dropout)

    def __call__(self, x: Tensor["...", "S", "D"], key=None, mask=None):
        first, second = (None, None) if key is None else ts.unstack(ts.random_bits(key, (2,)))
        x = x + self.drop(self.attention(self.before_attention(x), mask), first)
        return x + self.drop(self.feed(self.before_feed(x)), second)
