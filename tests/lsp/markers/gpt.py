"""A GPT: embeddings, blocks of causal attention and a gated feed-forward, the loss of the next token."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import math
from dataclasses import dataclass

import tessera as ts
from tessera import Const, Tensor, int64

EPS = 1e-5
HEADS = 12
ROTARY_BASE = 10_000.0


@dataclass(frozen=True)
class Config:
    layers: int = 2
    heads: int = HEADS
    dropout: float = 0.0
    bias: bool = False


CONFIG = Config(layers=3)


def rotate_half(x):
    a, b = ts.split(x, 2, axis=-1)
    return ts.concatenate([-b, a], axis=-1)


def rotary(x, cos, sin):
    """Rotary position embedding of [B, H, S, E]."""
    return x * cos + rotate_half(x) * sin


@ts.function
def rms_norm(x: Tensor["B", "S", "D"], gain: Tensor["D"]) -> Tensor["B", "S", "D"]:
    scale = ts.rsqrt((x * x).mean(axis=-1, keepdim=True) + EPS)  #: [B, S, 1] f32
    return x * scale * gain


@ts.function
def angles(positions: Tensor["S"], E: Const["E"]):
    assert E % 2 == 0
    steps = ts.arange(0, E // 2)  #: [E//2] int64
    rates = ts.exp(steps * (-2 * math.log(ROTARY_BASE) / 64))  #: [E//2] f32
    table = positions[:, None] * rates  #: [S, E//2] f32
    both = ts.concatenate([table, table], axis=-1)  #: [S, E] f32
    cos, sin = ts.cos(both), ts.sin(both)  #: [S, E] f32 | [S, E] f32
    return cos, sin


@ts.function
def causal_attention(
    x: Tensor["B", "S", "D"],
    wqkv: Tensor["D", "3*D"],
    wo: Tensor["D", "D"],
    cos: Tensor["S", "D//12"],
    sin: Tensor["S", "D//12"],
    bias: Tensor["S", "S"] | None = None,
) -> Tensor["B", "S", "D"]:
    assert D % HEADS == 0
    qkv = (x @ wqkv).reshape(B, S, 3, HEADS, D // HEADS)  #: [B, S, 3, 12, D//12] f32
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]  #: [B, S, 12, D//12] f32 | [B, S, 12, D//12] f32 | [B, S, 12, D//12] f32
    q = q.transpose(1, 2)  #: [B, 12, S, D//12] f32
    k = k.transpose(1, 2)  #: [B, 12, S, D//12] f32
    v = v.transpose(1, 2)  #: [B, 12, S, D//12] f32
    scores = q @ k.mT / math.sqrt(64)  #: [B, 12, S, S] f32
    if bias is not None:
        scores = scores + bias
    rows = ts.arange(0, S)  #: [S] int64
    visible = rows[:, None] >= rows[None, :]  #: [S, S] bool
    scores = ts.where(visible, scores, -1e9)
    weights = ts.softmax(scores, axis=-1)  #: [B, 12, S, S] f32
    mixed = (weights @ v).transpose(1, 2).reshape(B, S, D)  #: [B, S, D] f32
    return mixed @ wo


@ts.function
def gated_feed_forward(
    x: Tensor["B", "S", "D"], up: Tensor["D", "F"], gate: Tensor["D", "F"], down: Tensor["F", "D"]
) -> Tensor["B", "S", "D"]:
    hidden = ts.silu(x @ gate) * (x @ up)  #: [B, S, F] f32
    return hidden @ down


@ts.function
def block(x: Tensor["B", "S", "D"], g1: Tensor["D"], g2: Tensor["D"], up: Tensor["D", "F"], down: Tensor["F", "D"]):
    normed = rms_norm(x, g1)  #: [B, S, D] f32
    x = x + gated_feed_forward(normed, up, up, down)
    for layer in range(CONFIG.layers):
        mean = x.mean(axis=(0, 1))  #: [D] f32
        x = x + mean * g2
    return x


@ts.function
def next_token_loss(logits: Tensor["B", "S", "V"], tokens: Tensor["B", "S", int64]):
    predicted = logits[:, :-1]  #: [B, S-1, V] f32
    wanted = tokens[:, 1:]  #: [B, S-1] int64
    shifted = predicted - predicted.max(axis=-1, keepdim=True)  #: [B, S-1, V] f32
    normalizer = ts.log(ts.exp(shifted).sum(axis=-1))  #: [B, S-1] f32
    picked = ts.take_along_axis(shifted, wanted[:, :, None], axis=-1).squeeze(-1)  #: [B, S-1] f32
    losses = normalizer - picked  #: [B, S-1] f32
    return losses.mean()


@ts.function
def tied_head(x: Tensor["B", "S", "D"], embedding: Tensor["V", "D"]) -> Tensor["B", "S", "V"]:
    pooled = x.mean(axis=-1)  #: [B, S] f32
    logits = x @ embedding
    #        ^^^^^^^^^^^^^ TS203
    return logits
