"""Recurrent and layered models as people write them: loops over sizes, lists, dicts and dataclasses of tensors."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tessera as ts
from tessera import Tensor, int64


@dataclass
class Feed:
    up: Tensor["D", "F"]
    down: Tensor["F", "D"]
    bias: Tensor["F"]
    eps: float = 1e-5


@dataclass
class Layer:
    feed: Feed
    gain: Tensor["D"]
    next: Layer | None = None


class Cache(NamedTuple):
    keys: Tensor["B", "H", "T", "E"]
    values: Tensor["B", "H", "T", "E"]


@ts.function
def feed_forward(x: Tensor["B", "S", "D"], feed: Feed) -> Tensor["B", "S", "D"]:
    hidden = ts.gelu(x @ feed.up + feed.bias)  #: [B, S, F] f32
    mean = x.mean(-1, keepdim=True) + feed.eps  #: [B, S, 1] f32
    return hidden @ feed.down - mean


@ts.function
def wrong_way_down(x: Tensor["B", "S", "D"], feed: Feed):
    hidden = x @ feed.down
    #        ^^^^^^^^^^^^^ TS203
    return hidden


@ts.function
def decoder(x: Tensor["B", "S", "D"], layers: list[Layer], heads: Sequence[Tensor["D", "V"]]):
    for i, layer in enumerate(layers):
        normed = x * ts.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * layer.gain  #: [B, S, D] f32
        x = x + feed_forward(normed, layer.feed)
    logits = x @ heads[0]  #: [B, S, V] f32
    several = [x @ head for head in heads]  #: [D, V] f32
    last = several[-1]  #: [B, S, V] f32
    return logits + last


@ts.function
def attend(q: Tensor["B", "H", 1, "E"], cache: Cache, k: Tensor["B", "H", 1, "E"], v: Tensor["B", "H", 1, "E"]):
    keys = ts.concat([cache.keys, k], axis=2)  #: [B, H, T+1, E] f32
    values = ts.concat([cache.values, v], axis=2)  #: [B, H, T+1, E] f32
    weights = ts.softmax(q @ keys.mT / math.sqrt(64), axis=-1)  #: [B, H, 1, T+1] f32
    out = weights @ values  #: [B, H, 1, E] f32
    mixed = weights @ cache.values
    #       ^^^^^^^^^^^^^^^^^^^^^^ TS203
    one, two = cache  #: [B, H, T, E] f32 | [B, H, T, E] f32
    return Cache(keys, two)


@ts.function
def by_name(x: Tensor["B", "D"], params: dict[str, Tensor["D", "D"]], *biases: Tensor["D"], **gains: Tensor["D"]):
    for name, w in params.items():  #: [D, D] f32
        x = ts.tanh(x @ w)
    for w, b in zip(params.values(), biases):  #: [D] f32
        x = x @ w + b
    y = x * gains["out"] @ params["out"]  #: [B, D] f32
    return y


@ts.function
def lstm(x: Tensor["B", "S", "I"], wx: Tensor["I", "4*H"], wh: Tensor["H", "4*H"], bias: Tensor["4*H"]):
    h, c = ts.zeros((B, H)), ts.zeros((B, H))  #: [B, H] f32 | [B, H] f32
    outputs = []
    for t in range(S):
        gates = x[:, t] @ wx + h @ wh + bias  #: [B, 4*H] f32
        i, f, g, o = ts.split(gates, 4, axis=-1)  #: [B, H] f32 | [B, H] f32 | [B, H] f32 | [B, H] f32
        c = ts.sigmoid(f) * c + ts.sigmoid(i) * ts.tanh(g)
        h = ts.sigmoid(o) * ts.tanh(c)
        outputs.append(h)
    return h, c


@ts.function
def gru(x: Tensor["S", "B", "I"], w: tuple[Tensor["I", "3*H"], Tensor["H", "3*H"]], h: Tensor["B", "H"]):
    inward, onward = w  #: [I, 3*H] f32 | [H, 3*H] f32
    for step in x:  #: [B, I] f32
        a, b = step @ inward, h @ onward  #: [B, 3*H] f32 | [B, 3*H] f32
        r, z, n = a[:, :H], a[:, H : 2 * H], a[:, 2 * H :]  #: [B, H] f32 | [B, H] f32 | [B, H] f32
        h = ts.sigmoid(z) * h + ts.tanh(n + ts.sigmoid(r) * b[:, 2 * H :])
        wrong = h * step
        #       ^^^^^^^^ TS202
    return h


@ts.function
def blocks(x: Tensor["B", "S", "D"], w: Tensor["D", "D"]):
    total = ts.zeros((B, D))  #: [B, D] f32
    for start in range(0, S, 64):
        part = x[:, start : start + 64]  #: [B, 64, D] f32
        total = total + (part @ w).sum(axis=1)
    for i in range(1, S - 1):
        curve = x[:, i - 1] - 2 * x[:, i] + x[:, i + 1]  #: [B, D] f32
        seen = x[:, : i + 1].mean(axis=1)  #: [B, D] f32
    rows = [x[:, i] @ w for i in range(S)]
    first = rows[0]  #: [B, D] f32
    return total + first
