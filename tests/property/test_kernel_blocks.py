"""Kernels give the same result for all shapes and all block sizes."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tests.kernel_runner import run
from tests.seeds.kernels import safe_softmax, saxpy

sizes = st.integers(1, 40)
blocks = st.sampled_from([4, 8, 16, 32])


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@given(st.integers(1, 300), st.sampled_from([1, 8, 64, 1024]), st.integers(0, 99))
def test_saxpy(n: int, block: int, seed: int) -> None:
    x, y = normal(seed, 2, n)
    want = np.float32(1.5) * x + y
    run(saxpy, x, y, 1.5, BLOCK=block)
    np.testing.assert_array_equal(y, want)


def matmul(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    ctx = ts.tile.context()
    a = A[tile_m : tile_m + ctx.BM, tile_k : tile_k + ctx.BK]
    b = B[tile_k : tile_k + ctx.BK, tile_n : tile_n + ctx.BN]
    C[tile_m : tile_m + ctx.BM, tile_n : tile_n + ctx.BN] += ts.tile.mma(a, b)


@settings(max_examples=25)
@given(sizes, sizes, sizes, blocks, blocks, blocks, st.integers(0, 99))
def test_bits_of_a_product_do_not_depend_on_blocks(
    M: int, K: int, N: int, bm: int, bn: int, bk: int, seed: int
) -> None:
    a, b = normal(seed, M, K), normal(seed + 1, K, N)
    found = []
    for config in ({"BM": bm, "BN": bn, "BK": bk}, {"BM": 64, "BN": 64, "BK": 64}):
        c = np.zeros((M, N), np.float32)
        run(matmul, a, b, c, **config)
        run(matmul, a, b, c, **config)  # accumulates
        found.append(c)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], 2 * (a @ b), rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 8), st.integers(0, 99))
def test_softmax_of_any_rank(shape: list[int], rows: int, seed: int) -> None:
    x = normal(seed, *shape) * 10
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(run(safe_softmax, x, ROWS=rows), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


def attention(
    Q: ts.Tensor["B", "S", "D", ts.f32], K: ts.Tensor["B", "T", "D", ts.f32], V: ts.Tensor["B", "T", "D", ts.f32]
) -> ts.Tensor["B", "S", "D", ts.f32]:
    ctx = ts.tile.context()
    acc = ts.tile.zeros((ctx.BLOCK_M, ctx.D))
    m = ts.tile.full((ctx.BLOCK_M,), -float("inf"))
    l = ts.tile.zeros((ctx.BLOCK_M,))
    for q in ts.tile.range(0, ctx.S, ctx.BLOCK_M):
        for t in ts.tile.range(0, ctx.T, ctx.BLOCK_N):
            s = Q[q : q + ctx.BLOCK_M] @ K[t : t + ctx.BLOCK_N].T * (1 / math.sqrt(ctx.D))
            new = ts.tile.maximum(m, ts.tile.row_max(s))
            p = ts.tile.exp(s - new)
            alpha = ts.tile.exp(m - new)
            l = l * alpha + ts.tile.row_sum(p)
            acc = acc * alpha + p @ V[t : t + ctx.BLOCK_N]
            m = new
    return acc / l[:, None]


@settings(max_examples=25)
@given(st.integers(1, 2), sizes, sizes, st.sampled_from([4, 8, 16]), blocks, blocks, st.integers(0, 99))
def test_attention(batch: int, S: int, T: int, D: int, bm: int, bn: int, seed: int) -> None:
    q, k, v = normal(seed, batch, S, D), normal(seed + 1, batch, T, D), normal(seed + 2, batch, T, D)
    s = q.astype(np.float64) @ k.transpose(0, 2, 1) / math.sqrt(D)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(run(attention, q, k, v, BLOCK_M=bm, BLOCK_N=bn), want, rtol=1e-4, atol=1e-4)
