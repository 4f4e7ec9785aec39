"""The same mistakes in tile programs, which compute in f32. What is not marked is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor, bf16, f16, f32, fp8_e4m3


@ts.kernel
def softmax_rows(x: Tensor["M", "N", f16]) -> Tensor["M", "N", f16]:
    e = ts.tile.exp(x)
    return e / ts.tile.sum(e, axis=-1, keepdim=True)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    # says: exp of more than 88.72 is infinite in f32
    # fix of the line above: e = ts.tile.exp(x - ts.tile.max(x, axis=-1, keepdim=True))


@ts.kernel
def softmax_rows_right(x: Tensor["M", "N", f16]) -> Tensor["M", "N", f16]:
    far = x - ts.tile.max(x, axis=-1, keepdim=True)
    e = ts.tile.exp2(far * 1.44269504)
    return e / ts.tile.sum(e, axis=-1, keepdim=True)


@ts.kernel
def online_softmax(x: Tensor["M", "N", f32], y: Tensor["M", f32]):
    top = ts.tile.full((16,), -1e30)
    total = ts.tile.zeros((16,))
    for k in ts.tile.range_k(0, N, 32):
        block = x[tile_m:tile_m + 16, k:k + 32]
        new = ts.tile.maximum(top, ts.tile.row_max(block))
        total = total * ts.tile.exp(top - new) + ts.tile.row_sum(ts.tile.exp(block - new))
        top = new
    y[tile_m:tile_m + 16] = top + ts.tile.log(total)


@ts.kernel
def elementwise(x: Tensor["N", f32], y: Tensor["N", f32], z: Tensor["N", fp8_e4m3]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = ts.tile.log(1 + x[i])
        #      ^^^^^^^^^^^^^^^^^^^^^ TS314
        # fix: y[i] = ts.tile.log1p(x[i])
        z[i] = ts.tile.cast(x[i], fp8_e4m3)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS313


@ts.kernel
def unit_rows(x: Tensor["M", "N", f32]) -> Tensor["M", "N", f32]:
    return x / ts.tile.sqrt(ts.tile.sum(x * x, axis=-1, keepdim=True))
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # fix: return x / ts.tile.sqrt(ts.tile.sum(x * x, axis=-1, keepdim=True) + 1e-12)


@ts.kernel
def unit_rows_right(x: Tensor["M", "N", f32]) -> Tensor["M", "N", f32]:
    return x / ts.tile.sqrt(ts.tile.sum(x * x, axis=-1, keepdim=True) + 1e-6)


@ts.kernel
def rounded_at_each_step(a: Tensor["M", "K", bf16], y: Tensor["M", bf16]):
    acc = ts.tile.zeros((16,), bf16)
    for k in ts.tile.range_k(0, K, 32):
        acc = ts.tile.cast(acc + ts.tile.row_sum(a[tile_m:tile_m + 16, k:k + 32]), bf16)
        #                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS317
    y[tile_m:tile_m + 16] = acc


@ts.kernel
def softmax_in_two_passes(x: Tensor["M", "N", f16], y: Tensor["M", "N", f16]):
    row = ts.tile.program_id()
    total = ts.tile.zeros(())
    for k in ts.tile.range_k(0, N, 64):
        total += ts.tile.sum(ts.tile.exp(x[row, k:k + 64]))
    for k in ts.tile.range_k(0, N, 64):
        y[row, k:k + 64] = ts.tile.exp(x[row, k:k + 64]) / total
        #                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
        # says: the exponentials are taken here


@ts.kernel
def logsumexp_in_steps(x: Tensor["M", "N", f32], y: Tensor["M", f32]):
    row = ts.tile.program_id()
    total = ts.tile.zeros(())
    for k in ts.tile.range_k(0, N, 64):
        total += ts.tile.sum(ts.tile.exp(x[row, k:k + 64]))
    y[row] = ts.tile.log(total)
    #        ^^^^^^^^^^^^^^^^^^ TS315
    # says: Take the maximum m off first


@ts.kernel
def softmax_in_three_passes(x: Tensor["M", "N", f16], y: Tensor["M", "N", f16]):
    row = ts.tile.program_id()
    top, total = ts.tile.full((), -1e30), ts.tile.zeros(())
    for k in ts.tile.range_k(0, N, 64):
        top = ts.tile.maximum(top, ts.tile.max(x[row, k:k + 64]))
    for k in ts.tile.range_k(0, N, 64):
        total += ts.tile.sum(ts.tile.exp(x[row, k:k + 64] - top))
    for k in ts.tile.range_k(0, N, 64):
        y[row, k:k + 64] = ts.tile.exp(x[row, k:k + 64] - top) / total


@ts.kernel
def attention_without_a_rescale(
    Q: Tensor["B", "S", "D", bf16], K: Tensor["B", "S", "D", bf16], V: Tensor["B", "S", "D", bf16]
) -> Tensor["B", "S", "D", bf16]:
    for q in ts.tile.range(0, S, 64):
        top, total = ts.tile.full((64,), float("-inf")), ts.tile.zeros((64,))
        acc = ts.tile.zeros((64, D))
        for k in ts.tile.range(0, S, 64):
            scores = ts.tile.mma(Q[q:q + 64], K[k:k + 64].T) * 0.125
            new = ts.tile.maximum(top, ts.tile.row_max(scores))
            p = ts.tile.exp(scores - new)
            total = total * ts.tile.exp(top - new) + ts.tile.row_sum(p)
            acc += ts.tile.mma(p, V[k:k + 64])
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS311
            # says: those that it holds to the maximum of their time
            top = new
        out = acc / total
    return out


@ts.kernel
def attention_right(
    Q: Tensor["B", "S", "D", bf16], K: Tensor["B", "S", "D", bf16], V: Tensor["B", "S", "D", bf16]
) -> Tensor["B", "S", "D", bf16]:
    for q in ts.tile.range(0, S, 64):
        top, total = ts.tile.full((64,), float("-inf")), ts.tile.zeros((64,))
        acc = ts.tile.zeros((64, D))
        for k in ts.tile.range(0, S, 64):
            scores = ts.tile.mma(Q[q:q + 64], K[k:k + 64].T) * 0.125
            new = ts.tile.maximum(top, ts.tile.row_max(scores))
            p = ts.tile.exp(scores - new)
            kept = ts.tile.exp(top - new)
            total = total * kept + ts.tile.row_sum(p)
            acc = ts.tile.mma(p, V[k:k + 64], accumulator=acc * kept)
            top = new
        out = acc / total
    return out
