"""Attention as a kernel that one writes, whose backward is derived from its text, beside that of `ts.attention`.

Rows of `python -m benchmarks training`.
"""

from __future__ import annotations

import math

import numpy as np

import tessera as ts
from benchmarks.harness import Run
from tessera import Tensor, f32

DEPTH = 64
SCALE = DEPTH**-0.5


@ts.kernel
def attend(
    q: Tensor["...", "S", "D", f32], k: Tensor["...", "T", "D", f32], v: Tensor["...", "T", "E", f32]
) -> Tensor["...", "S", "E", f32]:
    top = ts.tile.full((64,), -math.inf)
    total = ts.tile.zeros((64,))
    acc = ts.tile.zeros((64, E))
    for j in ts.tile.range_k(0, T, 64):
        s = q[tile_s : tile_s + 64, :] @ k[j : j + 64, :].T * SCALE
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        p, shrink = ts.tile.exp(s - new[:, None]), ts.tile.exp(top - new)
        total = total * shrink + ts.tile.row_sum(p)
        acc = acc * shrink[:, None] + p @ v[j : j + 64, :]
        top = new
    return acc / total[:, None]


@ts.kernel
def attend_before(
    q: Tensor["...", "S", "D", f32], k: Tensor["...", "S", "D", f32], v: Tensor["...", "S", "E", f32]
) -> Tensor["...", "S", "E", f32]:
    top = ts.tile.full((64,), -math.inf)
    total = ts.tile.zeros((64,))
    acc = ts.tile.zeros((64, E))
    for j in ts.tile.range_k(0, min(tile_s + 64, S), 64):
        s = ts.tile.causal_mask(q[tile_s : tile_s + 64, :] @ k[j : j + 64, :].T * SCALE, tile_s, j)
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        p, shrink = ts.tile.exp(s - new[:, None]), ts.tile.exp(top - new)
        total = total * shrink + ts.tile.row_sum(p)
        acc = acc * shrink[:, None] + p @ v[j : j + 64, :]
        top = new
    return acc / total[:, None]


def attention(heads: int, length: int, causal: bool) -> dict[str, Run]:
    """The result and the gradients by q, k and v. The loss is a square, so that the forward pass is needed."""
    kernel = attend_before if causal else attend
    kernel.vjp(kernel.backward())

    @ts.function
    def derived(q, k, v):
        return ts.value_and_grad(lambda q, k, v: ts.sum(ts.square(kernel(q, k, v))), argnums=(0, 1, 2))(q, k, v)

    @ts.function
    def by_hand(q, k, v):
        return ts.value_and_grad(
            lambda q, k, v: ts.sum(ts.square(ts.attention(q, k, v, causal=causal))), argnums=(0, 1, 2)
        )(q, k, v)

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, heads, length, DEPTH), np.float32) for _ in range(3))

    return {"tessera": lambda: derived(q, k, v), "ts.attention": lambda: by_hand(q, k, v)}
