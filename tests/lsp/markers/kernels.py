"""Kernels: elementwise, a row softmax, a tiled product, attention, a norm with a residual."""
# fmt: off
# ruff: noqa

import tessera as ts
from tessera import Tensor, bf16, f16, f32

BLOCK = 64
STEP = 32


@ts.kernel
def saxpy(x: Tensor["N", f32], y: Tensor["N", f32], a: f32):
    i = ts.tile.linear_id()  #: lanes of N, 1024 at a time
    if i < N:
        y[i] = a * x[i] + y[i]


@ts.kernel
def scale_rows(x: Tensor["M", "N", f32], s: Tensor["M", f32], out: Tensor["M", "N", f32]):
    rows = x[tile_m : tile_m + BLOCK, :]  #: [64, N] f32
    factors = s[tile_m : tile_m + BLOCK]  #: [64] f32
    out[tile_m : tile_m + BLOCK, :] = rows * factors


@ts.kernel
def softmax(x: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    rows = x[tile_m : tile_m + 4, :]  #: [4, N] f32
    top = ts.tile.row_max(rows)  #: [4] f32
    e = ts.tile.exp(rows - top)  #: [4, N] f32
    total = ts.tile.row_sum(e)  #: [4] f32
    out[tile_m : tile_m + 4, :] = e / total


@ts.kernel
def matmul(a: Tensor["M", "K", f16], b: Tensor["K", "N", f16], c: Tensor["M", "N", f32]):
    acc = ts.tile.zeros((BLOCK, BLOCK), f32)  #: [64, 64] f32
    for k in ts.tile.range_k(0, K, STEP):
        left = a[tile_m : tile_m + BLOCK, k : k + STEP]  #: [64, 32] f16
        right = b[k : k + STEP, tile_n : tile_n + BLOCK]  #: [32, 64] f16
        acc += ts.tile.mma(left, right)
    c[tile_m : tile_m + BLOCK, tile_n : tile_n + BLOCK] = acc


@ts.kernel
def matmul_bf16(a: Tensor["M", "K", bf16], b: Tensor["K", "N", bf16], c: Tensor["M", "N", bf16]):
    acc = ts.tile.zeros((BLOCK, BLOCK), f32)  #: [64, 64] f32
    for k in ts.tile.range_k(0, K, STEP):
        acc += ts.tile.mma(a[tile_m : tile_m + BLOCK, k : k + STEP], b[k : k + STEP, tile_n : tile_n + BLOCK])
    rounded = ts.tile.cast(acc, bf16)  #: [64, 64] bf16
    c[tile_m : tile_m + BLOCK, tile_n : tile_n + BLOCK] = rounded


@ts.kernel
def rms_norm(x: Tensor["M", "N", f32], residual: Tensor["M", "N", f32], gain: Tensor["N", f32], out: Tensor["M", "N", f32]):
    rows = x[tile_m : tile_m + 4, :] + residual[tile_m : tile_m + 4, :]  #: [4, N] f32
    squares = ts.tile.row_sum(rows * rows)  #: [4] f32
    scale = ts.tile.rsqrt(squares / N + 1e-6)  #: [4] f32
    out[tile_m : tile_m + 4, :] = rows * scale * gain[:]


@ts.kernel
def attention(
    q: Tensor["B*H", "S", "D", f16], k: Tensor["B*H", "S", "D", f16], v: Tensor["B*H", "S", "D", f16]
) -> Tensor["B*H", "S", "D", f32]:
    for start in ts.tile.range(0, S, BLOCK):
        queries = q[start : start + BLOCK]  #: [64, D] f16
        top = ts.tile.full((BLOCK,), float("-inf"), f32)  #: [64] f32
        total = ts.tile.zeros((BLOCK,), f32)  #: [64] f32
        acc = ts.tile.zeros((BLOCK, D), f32)  #: [64, D] f32
        for at in ts.tile.range(0, S, BLOCK):
            keys = k[at : at + BLOCK]  #: [64, D] f16
            scores = ts.tile.mma(queries, keys.T) * 0.125  #: [64, 64] f32
            higher = ts.tile.maximum(top, ts.tile.row_max(scores))  #: [64] f32
            p = ts.tile.exp(scores - higher)  #: [64, 64] f32
            shrink = ts.tile.exp(top - higher)  #: [64] f32
            total = total * shrink + ts.tile.row_sum(p)
            acc = acc * shrink + ts.tile.mma(ts.tile.cast(p, f16), v[at : at + BLOCK])
            top = higher
        return acc / total


@ts.kernel
def mismatched(a: Tensor["M", "K", f16], b: Tensor["N", "K", f16], c: Tensor["M", "N", f32]):
    left = a[tile_m : tile_m + BLOCK, :]  #: [64, K] f16
    right = b[tile_n : tile_n + BLOCK, :]  #: [64, K] f16
    c[tile_m : tile_m + BLOCK, tile_n : tile_n + BLOCK] = ts.tile.mma(left, right)
    #                                                     ^^^^^^^^^^^^^^^^^^^^^^^^ TS402
