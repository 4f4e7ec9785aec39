"""Kernels as people write them, against NumPy, on the interpreter and on the processor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import run

rng = np.random.default_rng(11)
TARGETS = ["reference", "cpu"]


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def masked2d(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    v = x[tile_m : tile_m + 8, tile_n : tile_n + 8]
    y[tile_m : tile_m + 8, tile_n : tile_n + 8] = 1.0
    if v > 0:
        y[tile_m : tile_m + 8, tile_n : tile_n + 8] = v


def three_d(x: ts.Tensor["B", "S", "D", ts.f32], y: ts.Tensor["B", "S", ts.f32]):
    for b in ts.tile.range(0, B, 2):
        v = x[b : b + 2, tile_s : tile_s + 4, :]
        m = ts.tile.max(v, axis=-1)
        y[b : b + 2, tile_s : tile_s + 4] = ts.tile.log(ts.tile.sum(ts.tile.exp(v - m), axis=2)) + m


def gqa(
    Q: ts.Tensor["B", "H", "S", "D", ts.f32],
    K: ts.Tensor["B", "G", "S", "D", ts.f32],
    O: ts.Tensor["B", "H", "S", "S", ts.f32],
):
    b = ts.tile.program_id(0)
    h = ts.tile.program_id(1)
    for q in ts.tile.range(0, S, 8):
        for t in ts.tile.range(0, S, 8):
            O[b, h, q : q + 8, t : t + 8] = Q[b, h, q : q + 8] @ K[b, h // (H // G), t : t + 8].T


def hist(x: ts.Tensor["n", ts.int32], h: ts.Tensor["K", ts.int32]):
    for k in ts.tile.range(0, K, 4):
        bins = k + ts.tile.arange(0, 4)
        total = ts.tile.zeros((4,), ts.int64)
        for i in ts.tile.range(0, n, 16):
            hit = x[i : i + 16][None, :] == bins[:, None]
            total += ts.tile.sum(ts.tile.where(hit, 1, 0), axis=1)
        h[k : k + 4] = total


def conv(x: ts.Tensor["n", ts.f32], w: ts.Tensor[3, ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    acc = 0.0
    for j in ts.tile.static_range(3):
        k = i + j - 1
        if (k >= 0) & (k < n):
            acc = acc + w[j] * x[k]
    y[i] = acc


def cond_scalar_load(f: ts.Tensor["M", ts.int32], x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    r = ts.tile.program_id()
    if f[r] > 0:
        y[r, :] = x[r, :] * 2
    else:
        y[r, :] = x[f[r] + 1, :]


def mlp(
    x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32], b: ts.Tensor["N", ts.f32]
) -> ts.Tensor["M", "N", ts.bf16]:
    acc = ts.tile.zeros((16, 16))
    acc += x[tile_m : tile_m + 16, tile_k : tile_k + 8] @ w[tile_k : tile_k + 8, tile_n : tile_n + 16]
    return ts.tile.gelu(acc + b[tile_n : tile_n + 16]).to(ts.bf16)


def softmax_online(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    m = ts.tile.full((4,), -float("inf"))
    s = ts.tile.zeros((4,))
    for k in ts.tile.range_k(0, N, 8):
        v = x[tile_m : tile_m + 4, k : k + 8]
        m_new = ts.tile.maximum(m, ts.tile.row_max(v))
        s = s * ts.tile.exp(m - m_new) + ts.tile.row_sum(ts.tile.exp(v - m_new))
        m = m_new
    for k in ts.tile.range_k(0, N, 8):
        y[tile_m : tile_m + 4, k : k + 8] = ts.tile.exp(x[tile_m : tile_m + 4, k : k + 8] - m) / s


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def pairs_first(x: ts.Tensor[5, 5, 5, ts.f32], y: ts.Tensor[4, 4, ts.f32], total: ts.Tensor[1, ts.f32]):
    rows, columns = ts.tile.arange(4)[:, None], (1 + ts.tile.arange(4))[None, :]
    y[:, :] = x[rows, rows, columns]
    total[0] = ts.tile.sum(x[rows, rows, columns])


def pairs_apart(x: ts.Tensor[5, 5, 5, ts.f32], y: ts.Tensor[4, 4, ts.f32], total: ts.Tensor[1, ts.f32]):
    rows, columns = ts.tile.arange(4)[:, None], (1 + ts.tile.arange(4))[None, :]
    y[:, :] = x[rows, columns, rows]
    total[0] = ts.tile.sum(x[rows, columns, rows])


def pairs_last(x: ts.Tensor[5, 5, 5, ts.f32], y: ts.Tensor[4, 4, ts.f32], total: ts.Tensor[1, ts.f32]):
    rows, columns = ts.tile.arange(4)[:, None], (1 + ts.tile.arange(4))[None, :]
    y[:, :] = x[rows, columns, columns]
    total[0] = ts.tile.sum(x[rows, columns, columns])


@pytest.mark.parametrize("target", TARGETS)
class TestPrograms:
    def test_condition_over_a_block(self, target: str) -> None:
        x, y = normal(11, 13), normal(11, 13)
        run(masked2d, x, y, target=target)
        np.testing.assert_array_equal(y, np.where(x > 0, x, 1))

    def test_tiles_of_three_axes(self, target: str) -> None:
        x, y = normal(3, 9, 6), normal(3, 9)
        run(three_d, x, y, target=target)
        np.testing.assert_allclose(y, np.log(np.exp(x).sum(-1)), rtol=1e-4, atol=1e-5)

    def test_grouped_heads(self, target: str) -> None:
        q, k, o = normal(2, 4, 10, 5), normal(2, 2, 10, 5), normal(2, 4, 10, 10)
        run(gqa, q, k, o, target=target)
        np.testing.assert_allclose(o, q @ np.repeat(k, 2, 1).transpose(0, 1, 3, 2), rtol=1e-4, atol=1e-5)

    def test_histogram_without_atomics(self, target: str) -> None:
        x, h = rng.integers(0, 10, 50).astype(np.int32), np.zeros(10, np.int32)
        run(hist, x, h, target=target)
        np.testing.assert_array_equal(h, np.bincount(x, minlength=10))

    def test_convolution_with_masked_neighbours(self, target: str) -> None:
        x, w, y = normal(37), normal(3), normal(37)
        run(conv, x, w, y, target=target, BLOCK=16)
        np.testing.assert_allclose(y, np.convolve(x, w[::-1], "same"), rtol=1e-4, atol=1e-5)

    def test_branch_and_row_from_memory(self, target: str) -> None:
        f, x, y = np.array([1, 0, 2, 0], np.int32), normal(4, 5), normal(4, 5)
        run(cond_scalar_load, f, x, y, target=target)
        np.testing.assert_array_equal(y, np.where((f > 0)[:, None], x * 2, x[np.minimum(f + 1, 3)]))

    def test_fused_product_bias_and_gelu(self, target: str) -> None:
        x, w, b = normal(20, 30), normal(30, 17), normal(17)
        z = x @ w + b
        want = 0.5 * z * (1 + np.vectorize(math.erf)(z / 2**0.5))
        np.testing.assert_allclose(run(mlp, x, w, b, target=target).astype(np.float32), want, rtol=1e-2, atol=1e-2)

    def test_online_softmax_in_two_passes(self, target: str) -> None:
        x, y = normal(9, 21) * 5, normal(9, 21)
        run(softmax_online, x, y, target=target)
        np.testing.assert_allclose(y, softmax(x), rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("kernel", [pairs_first, pairs_apart, pairs_last])
    def test_index_tiles_along_one_axis_go_by_pairs(self, target: str, kernel: Callable[..., Any]) -> None:
        """As in NumPy: two index tiles along the same axis of the result give one element for each place of it."""
        x, y, total = normal(5, 5, 5), normal(4, 4), normal(1)
        run(kernel, x, y, total, target=target)
        rows, columns = np.arange(4)[:, None], np.arange(1, 5)[None, :]
        index = {"first": (rows, rows, columns), "apart": (rows, columns, rows), "last": (rows, columns, columns)}
        want = x[index[kernel.__name__.partition("_")[2]]]
        np.testing.assert_array_equal(y, want)
        np.testing.assert_allclose(total, want.sum(), rtol=1e-5, atol=1e-5)
