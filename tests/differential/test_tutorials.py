"""What tutorials and puzzles of tile languages begin with, in Tessera's words, on every target against NumPy.

Attention, grouped products, blocks in groups and the backward pass of layer norm stand in test_tile_programs.py.
"""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.conftest import require
from tests.kernel_runner import run as run_kernel

TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])


def run(kernel, *args, target: str, **config):
    if target.startswith("emulator"):
        require("g++")
    return run_kernel(kernel, *args, target=target, **config)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def added(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    return x[tile_n : tile_n + 32] + y[tile_n : tile_n + 32]


def softmax(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    rows = x[tile_m : tile_m + 4, :]
    e = ts.tile.exp(rows - ts.tile.row_max(rows))
    return e / ts.tile.row_sum(e)


def layernorm(
    x: Tensor["M", "N", ts.f32], g: Tensor["N", ts.f32], b: Tensor["N", ts.f32], eps: ts.f32
) -> Tensor["M", "N", ts.f32]:
    rows = x[tile_m : tile_m + 4, :]
    centred = rows - ts.tile.row_sum(rows) / N
    return centred / ts.tile.sqrt(ts.tile.row_sum(centred * centred) / N + eps) * g[:] + b[:]


def dropout(x: Tensor["n", ts.f32], kept: Tensor["n", ts.f32], p: ts.f32) -> Tensor["n", ts.f32]:
    block = kept[tile_n : tile_n + 32]
    return ts.tile.where(block > p, x[tile_n : tile_n + 32] / (1 - p), 0)


def outer_sum(x: Tensor["n", ts.f32], y: Tensor["m", ts.f32], z: Tensor["m", "n", ts.f32]):
    for j in ts.tile.range(0, m, 8):
        for i in ts.tile.range(0, n, 16):
            z[j : j + 8, i : i + 16] = x[i : i + 16] + y[j : j + 8]


def outer_product_relu(x: Tensor["n", ts.f32], y: Tensor["m", ts.f32], z: Tensor["m", "n", ts.f32]):
    for j in ts.tile.range(0, m, 8):
        for i in ts.tile.range(0, n, 8):
            z[j : j + 8, i : i + 8] = ts.tile.maximum(x[i : i + 8] * y[j : j + 8], 0)


def long_sums(x: Tensor["B", "T", ts.f32]) -> Tensor["B", ts.f32]:
    total = ts.tile.zeros((4,))
    for t in ts.tile.range_k(0, T, 16):
        total += ts.tile.row_sum(x[tile_b : tile_b + 4, t : t + 16])
    return total


def running_sums(x: Tensor["B", "T", ts.f32], y: Tensor["B", "T", ts.f32]):
    for i in ts.tile.range(0, B, 2):
        carry = ts.tile.zeros((2,))
        for t in ts.tile.range_k(0, T, 16):
            block = x[i : i + 2, t : t + 16]
            y[i : i + 2, t : t + 16] = ts.tile.cumsum(block, axis=1) + carry[:, None]
            carry = carry + ts.tile.row_sum(block)


def convolution(x: Tensor["B", "H", "W", ts.f32], k: Tensor["R", "S", ts.f32], z: Tensor["B", "H", "W", ts.f32]):
    """Beyond the ends of the image stand zeros."""
    for b in ts.tile.range(0, B):
        for i in ts.tile.range(0, H, 4):
            for j in ts.tile.range(0, W, 8):
                acc = ts.tile.zeros((4, 8))
                for r in ts.tile.range_k(0, R):
                    for s in ts.tile.range_k(0, S):
                        rows, columns = i + r + ts.tile.arange(4), j + s + ts.tile.arange(8)
                        acc = acc + x[b, rows[:, None], columns[None, :]] * k[r, s]
                z[b, i : i + 4, j : j + 8] = acc


def quantised(
    scale: Tensor["N", "G", ts.f32], offset: Tensor["N", "G", ts.int32], w: Tensor["N", "P", ts.int32],
    a: Tensor["K", "M", ts.f32], z: Tensor["N", "M", ts.f32],
):  # fmt: skip
    """Weights of four bits, eight in each word; each word is a group with a scale and an offset of its own."""
    for n in ts.tile.range(0, N, 8):
        for m in ts.tile.range(0, M, 8):
            acc = ts.tile.zeros((8, 8))
            for p in ts.tile.range_k(0, P):
                bits = (w[n : n + 8, p][:, None] >> (ts.tile.arange(8) * 4)[None, :]) & 15
                shifted = ts.tile.cast(bits - offset[n : n + 8, p][:, None], ts.f32)
                acc += ts.tile.mma(shifted * scale[n : n + 8, p][:, None], a[p * 8 : p * 8 + 8, m : m + 8])
            z[n : n + 8, m : m + 8] = acc


@TARGETS
def test_vector_add_and_dropout(target: str) -> None:
    x, y, kept = normal(75), normal(75) * 2, np.random.default_rng(0).random(75, np.float32)
    np.testing.assert_array_equal(run(added, x, y, target=target), x + y)
    got = run(dropout, x, kept, 0.25, target=target)
    np.testing.assert_allclose(got, np.where(kept > 0.25, x / 0.75, 0), rtol=1e-6)


@TARGETS
def test_softmax_and_layer_norm(target: str) -> None:
    x, g, b = normal(7, 45), normal(45), normal(45) * 3
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(softmax, x, target=target), e / e.sum(1, keepdims=True), rtol=1e-5)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(run(layernorm, x, g, b, 1e-5, target=target), want, rtol=1e-4, atol=1e-5)


@TARGETS
def test_outer_sums_and_products(target: str) -> None:
    x, y, z = normal(21), normal(11), np.zeros((11, 21), np.float32)
    run(outer_sum, x, y, z, target=target)
    np.testing.assert_array_equal(z, x + y[:, None])
    run(outer_product_relu, x, y, z, target=target)
    np.testing.assert_array_equal(z, np.maximum(x * y[:, None], 0))


@TARGETS
def test_long_and_running_sums(target: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (5, 70)).astype(np.float32)
    np.testing.assert_array_equal(run(long_sums, x, target=target), x.sum(1))
    y = np.zeros_like(x)
    run(running_sums, x, y, target=target)
    np.testing.assert_array_equal(y, x.cumsum(1))


@TARGETS
def test_convolution(target: str) -> None:
    rng = np.random.default_rng(0)
    x, k = rng.integers(-4, 4, (2, 9, 11)).astype(np.float32), rng.integers(-4, 4, (3, 2)).astype(np.float32)
    z, padded = np.zeros_like(x), np.pad(x, ((0, 0), (0, 3), (0, 2)))
    run(convolution, x, k, z, target=target, debug=False)
    want = sum(padded[:, r : r + 9, s : s + 11] * k[r, s] for r in range(3) for s in range(2))
    np.testing.assert_array_equal(z, want)


@TARGETS
def test_product_with_weights_of_four_bits(target: str) -> None:
    rng = np.random.default_rng(0)
    q, offset = rng.integers(0, 16, (10, 24)), rng.integers(0, 16, (10, 3)).astype(np.int32)
    scale, a = rng.integers(1, 4, (10, 3)).astype(np.float32), rng.integers(-3, 4, (24, 13)).astype(np.float32)
    words = (q.reshape(10, 3, 8).astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))).sum(2, dtype=np.uint32)
    z = np.zeros((10, 13), np.float32)
    run(quantised, scale, offset, words.view(np.int32), a, z, target=target)
    weights = (q - np.repeat(offset, 8, 1)) * np.repeat(scale, 8, 1)
    np.testing.assert_array_equal(z, weights @ a)
