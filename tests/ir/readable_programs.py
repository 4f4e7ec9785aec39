"""Programs whose IR is kept as people read it, in golden/."""

from __future__ import annotations

import tessera as ts
from tessera import Tensor


@ts.function
def attend(q: Tensor["B", "S", "D", ts.bf16], k: Tensor["B", "S", "D", ts.bf16], causal: ts.Const[bool] = True):
    scores = q @ k.transpose(-1, -2)
    if causal:
        scores = ts.where(ts.triu(ts.ones_like(scores), 1) > 0, -1e30, scores)
    return ts.softmax(scores / 8, axis=-1)


@ts.function
def until(x: Tensor["N", ts.f32], n: ts.int64):
    y = x * 2.0
    for _ in ts.range(n):
        y = y + x if ts.sum(y) > 3.0 else y - x
    return ts.clip(y, min=None, max=1.0), ts.cat([x, y], axis=0)


@ts.kernel
def product(a: Tensor["M", "K", ts.bf16], b: Tensor["K", "N", ts.bf16]) -> Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in range(0, K, 32):
        acc += ts.tile.mma(a[tile_m : tile_m + 64, k : k + 32], b[k : k + 32, tile_n : tile_n + 64])
    return acc


@ts.function
def continued(
    q: Tensor["B", "H", "1", "D", ts.bf16], k: Tensor["B", "H", "T", "D", ts.bf16],
    v: Tensor["B", "H", "T", "D", ts.bf16], lengths: Tensor["B", ts.int64],
):  # fmt: skip
    return ts.attention(q, k, v, None, lengths)
