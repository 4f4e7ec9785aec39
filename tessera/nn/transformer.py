"""Transformers, and layers in sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import tessera as ts
from tessera import Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import init
from tessera.nn.dense import MLP, Dropout, SwiGLU
from tessera.nn.heads import MultiHeadAttention
from tessera.nn.module import Module
from tessera.nn.norms import LayerNorm, RMSNorm


class _Row(Module):
    """Base of layers in sequence: `model[0]` is the first, and `for layer in model` visits them."""

    layers: list

    def __getitem__(self, index):
        return self.layers[index]

    def __setitem__(self, index, layer):
        self.layers[index] = layer

    def __len__(self):
        return len(self.layers)

    def __iter__(self):
        return iter(self.layers)


def _demand_key(key, layer, named):
    """Raises LaunchError TS105 for a mask or the like in the place of a key."""
    if getattr(key, "ndim", 0):
        message = f"the key of {layer} is one integer, not {key.ndim} axes of {key.dtype}; give others by name: {named}"
        raise LaunchError(Diagnostic("TS105", message))


class Stack(_Row):
    """Layers in sequence, each called as `layer(x, key, *args)`, or as `layer(x)` without further arguments. Arguments
    by name go to each layer by name: `stack(x, memory=memory)`.

    `Stack(make, n, key=k)` makes them with `make(key=...)` and n keys derived from k. Each layer gets its own key,
    derived from the call's key, for dropout. Equal layers are compiled once. `stack[i]`, `len(stack)` and
    `for layer in stack` reach them.
    """

    def __init__(self, make: Callable[..., Any], count: int, *, key: int | None = None) -> None:
        if isinstance(make, Module):
            message = f"Stack: make is a function that makes a layer, not a layer: Stack(lambda key: ..., {count})"
            raise LaunchError(Diagnostic("TS105", f"{message}; Sequential takes layers"))
        self.layers = [make(key=k) for k in init.split(key, count)]

    def __call__(self, x, key=None, *args, caches=None, **named):
        """`caches`: one for each layer, passed as `cache=`."""
        _demand_key(key, "a Stack", "stack(x, mask=mask), stack(x, memory=memory)")
        count = len(self.layers)
        keys = [None] * count if key is None else ts.random_bits(key, (count,))
        for i, (layer, cache) in enumerate(zip(self.layers, [None] * count if caches is None else caches, strict=True)):
            own = named if caches is None else {**named, "cache": cache}
            if args or (key is not None and not named):
                x = layer(x, keys[i], *args, **own)
            elif key is not None:
                x = layer(x, key=keys[i], **own)
            else:
                x = layer(x, **own)
        return x


class Sequential(_Row):
    """Layers and functions in sequence: `Sequential(nn.Linear(4, 8, key=0), ts.relu)`. `model[0]` is the first of them,
    `model[:-1]` all but the last."""

    def __init__(self, *layers: Callable[..., Any]) -> None:
        self.layers = list(layers)

    def __getitem__(self, index):
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class TransformerBlock(Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)): [..., S, D] (the norm first: R. Xiong et al., 2020).

    `feed_forward` is "gelu" (an MLP of 4 D features) or "swiglu" (8/3 D, rounded up to a multiple of 8); norms are
    `LayerNorm` for the first and `RMSNorm` for the second. `dropout` applies to both added parts, as `Dropout` does.
    Other arguments are those of `MultiHeadAttention`.
    """

    attention: MultiHeadAttention
    feed: MLP
    before_attention: LayerNorm
    before_feed: LayerNorm
    drop: Dropout

    def __init__(
        self, features: int, heads: int, *, key: int | None = None, groups: int | None = None, causal: bool = True,
        positions: Literal["rotary", "alibi"] | None = None, feed_forward: Literal["gelu", "swiglu"] = "gelu",
        hidden: int | None = None, dropout: float = 0.0,
        dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        first, second = init.split(key, 2)
        self.attention = MultiHeadAttention(
            features, heads, key=first, groups=groups, causal=causal, positions=positions, dtype=dtype
        )
        if feed_forward == "swiglu":
            self.feed = SwiGLU(features, hidden or (features * 8 // 3 + 7) // 8 * 8, key=second, dtype=dtype)
        else:
            self.feed = MLP(features, hidden or 4 * features, key=second, dtype=dtype)
        norm = RMSNorm if feed_forward == "swiglu" else LayerNorm
        self.before_attention, self.before_feed = norm(features, dtype=dtype), norm(features, dtype=dtype)
        self.drop = Dropout(dropout)

    def __call__(self, x: Tensor["...", "S", "D"], key=None, mask=None, cache=None):
        """`cache`: a `KVCache` that x continues, as in `MultiHeadAttention`."""
        _demand_key(key, "a TransformerBlock", "block(x, mask=mask)")
        first, second = (None, None) if key is None else ts.unstack(ts.random_bits(key, (2,)))
        return self.fed(self.attended(x, first, mask, cache), second)

    def attended(self, x, key=None, mask=None, cache=None):
        """x with what attention adds."""
        return x + self.drop(self.attention(self.before_attention(x), mask, cache=cache), key)

    def fed(self, x, key=None):
        """x with what the feed-forward part adds."""
        return x + self.drop(self.feed(self.before_feed(x)), key)


class EncoderLayer(TransformerBlock):
    """A `TransformerBlock` without a causal mask."""

    def __init__(
        self, features: int, heads: int, *, key: int | None = None, causal: bool = False, **options: Any
    ) -> None:
        super().__init__(features, heads, key=key, causal=causal, **options)


class DecoderLayer(Module):
    """A `TransformerBlock` with attention to an encoder's output between its two parts (A. Vaswani et al., 2017; the
    norms first). x [..., S, D] and memory [..., T, D] to [..., S, D].

    `mask` [..., S, T] is true where a position of the memory is seen. Arguments are those of `TransformerBlock`;
    `positions` apply only to x.
    """

    block: TransformerBlock
    across: MultiHeadAttention
    before_across: LayerNorm

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        key: int | None = None,
        groups: int | None = None,
        dtype: Any = ts.f32,
        **options: Any,
    ) -> None:
        first, second = init.split(key, 2)
        self.block = TransformerBlock(features, heads, key=first, groups=groups, dtype=dtype, **options)
        self.across = MultiHeadAttention(features, heads, key=second, groups=groups, dtype=dtype)
        self.before_across = type(self.block.before_feed)(features, dtype=dtype)

    def __call__(self, x: Tensor["...", "S", "D"], memory: Tensor["...", "T", "D"], key=None, mask=None):
        _demand_key(key, "a DecoderLayer", "layer(x, memory, mask=mask)")
        first, second, third = (None, None, None) if key is None else ts.unstack(ts.random_bits(key, (3,)))
        x = self.block.attended(x, first)
        x = x + self.block.drop(self.across(self.before_across(x), mask, memory), second)
        return self.block.fed(x, third)
