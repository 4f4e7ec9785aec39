"""Scratch memory of kernels: values take over the place of those that nobody reads any more."""

# pyright: reportUndefinedVariable=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts

N = 32


@ts.kernel
def weighed(a: ts.Tensor["N", "N", ts.f32], b: ts.Tensor["N", "N", ts.f32], y: ts.Tensor["N", "N", ts.f32]):
    """Three matrices one after the other."""
    s = ts.tile.mma(a[0:32, 0:32], b[0:32, 0:32])
    p = ts.tile.exp(s - ts.tile.col_max(s)[None, :])
    y[0:32, 0:32] = ts.tile.mma(b[0:32, 0:32].T, p)


@ts.kernel
def used_twice(a: ts.Tensor["N", "N", ts.f32], b: ts.Tensor["N", "N", ts.f32], y: ts.Tensor["N", "N", ts.f32]):
    """Two matrices that are made of the same one, which only the second may replace."""
    s = ts.tile.mma(a[0:32, 0:32], b[0:32, 0:32])
    p = ts.tile.exp(s * 0.1)
    left = ts.tile.mma(p, b[0:32, 0:32])
    r = ts.tile.tanh(s)
    y[0:32, 0:32] = left + ts.tile.mma(r, b[0:32, 0:32])


@ts.kernel
def both_at_once(a: ts.Tensor["N", "N", ts.f32], b: ts.Tensor["N", "N", ts.f32], y: ts.Tensor["N", "N", ts.f32]):
    s = ts.tile.mma(a[0:32, 0:32], b[0:32, 0:32])
    p, r = ts.tile.exp(s * 0.1), ts.tile.tanh(s)
    y[0:32, 0:32] = ts.tile.mma(p, b[0:32, 0:32]) + ts.tile.mma(r, b[0:32, 0:32])


@ts.kernel
def turned_too(a: ts.Tensor["N", "N", ts.f32], b: ts.Tensor["N", "N", ts.f32], y: ts.Tensor["N", "N", ts.f32]):
    """An element is made of another place's."""
    s = ts.tile.mma(a[0:32, 0:32], b[0:32, 0:32])
    p = ts.tile.exp(s * 0.1) + ts.tile.tanh(s.T)
    y[0:32, 0:32] = ts.tile.mma(p, b[0:32, 0:32])


def softmax_part(s: Any) -> Any:
    return np.exp(s - s.max(axis=0))


@ts.kernel
def scaled_in_place(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    """A number that is read before its memory changes, and its root for all steps of a loop."""
    ts.tile.grid(1)
    first = x[0]
    root = ts.tile.sqrt(first)
    x[0] = ts.tile.zeros((), x.dtype)
    y[0] = root
    for i in ts.tile.range_k(1, n):
        y[i] = x[i] * root + root / first


KERNELS = [
    (weighed, lambda s, b: b.T @ softmax_part(s)),
    (used_twice, lambda s, b: np.exp(s * 0.1) @ b + np.tanh(s) @ b),
    (both_at_once, lambda s, b: np.exp(s * 0.1) @ b + np.tanh(s) @ b),
    (turned_too, lambda s, b: (np.exp(s * 0.1) + np.tanh(s.T)) @ b),
]


@pytest.mark.parametrize("number", range(len(KERNELS)), ids=lambda i: KERNELS[i][0].__name__)
def test_values_that_replace_others(number: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    y = np.empty((N, N), np.float32)
    kernel, want = KERNELS[number]
    kernel(a, b, y)
    exact = want(a.astype(np.float64) @ b.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


def test_one_place_serves_the_products_and_the_weights() -> None:
    a = np.zeros((N, N), np.float32)
    text = ts.compile(weighed, target="cpu", arguments=(a, a, a)).source
    body = text[text.index("@weighed(") :].split("\n}")[0]
    matrices = [size for size in re.findall(r"alloca \[(\d+) x i8\]", body) if int(size) > N * N * 4]
    assert len(matrices) == 2  # these, and the result


def test_blocks_that_are_whole_have_no_rest() -> None:
    """Keys are transposed in squares of registers; 64 rows of 64 elements leave no single ones."""

    @ts.function
    def attended(q: ts.Tensor[1, 8, 512, 64], k: ts.Tensor[1, 8, 512, 64], v: ts.Tensor[1, 8, 512, 64]):
        return ts.attention(q, k, v)

    assert "masked.gather" not in ts.compile(attended, target="cpu").source


def test_numbers_stay_in_registers_when_their_memory_changes() -> None:
    x, y = np.arange(4, 9, dtype=np.float32), np.zeros(5, np.float32)
    compiled = ts.compile(scaled_in_place, target="cpu", arguments=(x, y))
    body = compiled.source[compiled.source.index("@scaled_in_place(") :].split("\n}")[0]
    assert body.count("call float @llvm.sqrt") == body.count("fdiv float") == 1
    scaled_in_place(x, y)
    np.testing.assert_array_equal(x, [0, 5, 6, 7, 8])
    np.testing.assert_array_equal(y, [2, 10.5, 12.5, 14.5, 16.5])
