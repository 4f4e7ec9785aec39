"""Kernels that store to several of the arrays that they read: a step reads what it stores to before it does."""

# pyright: reportUndefinedVariable=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import compiled

V = ts.Tensor["n"]
M = ts.Tensor["r", "c"]


def adam(p: V, g: V, m: V, v: V) -> None:
    i = ts.tile.linear_id()
    if i < n:
        first = 0.5 * m[i] + 0.25 * g[i]
        second = 0.5 * v[i] + 0.25 * g[i] * g[i]
        m[i] = first
        v[i] = second
        p[i] = p[i] - 0.5 * (first / (ts.tile.sqrt(second) + 1) + 0.25 * p[i])


def swap(p: V, g: V, m: V, v: V) -> None:
    i = ts.tile.linear_id()
    if i < n:
        a, b = p[i], g[i]
        p[i] = b
        g[i] = a


def turn(p: V, g: V, m: V, v: V) -> None:
    """Around through all four, the last from what the first held."""
    i = ts.tile.linear_id()
    if i < n:
        a, b, c, d = p[i], g[i], m[i], v[i]
        p[i] = b + d
        g[i] = c - a
        m[i] = d * b
        v[i] = a * c + d


def under_a_mask(p: V, g: V, m: V, v: V) -> None:
    i = ts.tile.linear_id()
    if i < n:
        a = p[i]
        if g[i] > 0:
            p[i] = 2 * a
        m[i] = a + g[i]


def twice(p: V, g: V, m: V, v: V) -> None:
    """The second store is of what the first one has stored."""
    i = ts.tile.linear_id()
    if i < n:
        a = p[i]
        p[i] = a + g[i]
        g[i] = a * 2
        p[i] = p[i] * p[i]
        m[i] = a + p[i]


def shifted(p: V, g: V, m: V, v: V) -> None:
    """What is read lies beside what is stored to, in the same program."""
    ts.tile.grid(1)
    a = p[0:64]
    b = p[1:65]
    p[0:64] = b * 2
    g[0:64] = a + b


def summed(p: V, g: V, m: V, v: V) -> None:
    """What one nest stores to is summed in it, and used when the sum is known."""
    ts.tile.grid(1)
    a = p[0:64]
    p[0:64] = g[0:64]
    total = ts.tile.sum(a)
    g[0:64] = a * total
    m[0:64] = p[0:64] + a


FLAT = [adam, swap, turn, under_a_mask, twice, shifted, summed]


def rows(x: M, y: M) -> None:
    """Each row by its sum, which is that of what was there before."""
    ts.tile.grid(1)
    a, b = x[0:24, 0:40], y[0:24, 0:40]
    x[0:24, 0:40] = b / (1 + ts.tile.row_sum(a * a)[:, None])
    y[0:24, 0:40] = a + ts.tile.row_sum(b)[:, None]


def columns(x: M, y: M) -> None:
    ts.tile.grid(1)
    a, b = x[0:24, 0:40], y[0:24, 0:40]
    x[0:24, 0:40] = b - ts.tile.col_sum(a)[None, :]
    y[0:24, 0:40] = a * b


def turned(x: M, y: M) -> None:
    """Elements go where others have been read."""
    ts.tile.grid(1)
    a, b = x[0:24, 0:24], y[0:24, 0:24]
    x[0:24, 0:24] = b.T
    y[0:24, 0:24] = a.T + b


def halves(x: M, y: M) -> None:
    """A rotation in place: two halves of a row are made of both."""
    ts.tile.grid(1)
    a, b = x[0:24, 0:20], x[0:24, 20:40]
    c, s = y[0:24, 0:20], y[0:24, 20:40]
    x[0:24, 0:20] = a * c - b * s
    x[0:24, 20:40] = b * c + a * s


def short(x: M, y: M) -> None:
    """Rows of few elements, one behind the other in memory."""
    ts.tile.grid(1)
    a, b = x[0:24, 0:3], y[0:24, 0:3]
    x[0:24, 0:3] = a + b
    y[0:24, 0:3] = a - b


def beside_each_other(x: M, y: M) -> None:
    """Columns that are stored side by side."""
    ts.tile.grid(1)
    a, b = x[0:24, 0], x[0:24, 1]
    x[0:24, 0] = b
    x[0:24, 1] = a + y[0:24, 0]
    y[0:24, 0] = a


def in_a_loop(x: M, y: M) -> None:
    i = ts.tile.program_id(0)
    ts.tile.grid(r)
    for j in ts.tile.range_k(0, c):
        a, b = x[i, j], y[i, j]
        x[i, j] = b + 1
        y[i, j] = a - b


SQUARE = [rows, columns, turned, halves, short, beside_each_other, in_a_loop]


def same_as_reference(kernel: Any, *arrays: Any) -> None:
    wanted, got = ([x.copy() for x in arrays] for _ in range(2))
    compiled(kernel, *wanted, target="reference")()
    compiled(kernel, *got, target="cpu", debug=False)()
    assert any(not np.array_equal(x, y) for x, y in zip(arrays, wanted, strict=True))
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kernel", FLAT, ids=lambda k: k.__name__)
def test_vectors(kernel: Any, dtype: Any) -> None:
    for size in (65, 1024, 1031, 2051):
        arrays = [np.random.default_rng(i).integers(1, 4, size).astype(dtype) for i in range(4)]
        same_as_reference(kernel, *arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", SQUARE, ids=lambda k: k.__name__)
def test_matrices(kernel: Any, dtype: Any) -> None:
    x, y = (np.random.default_rng(i).integers(1, 4, (24, 3 if kernel is short else 40)).astype(dtype) for i in range(2))
    same_as_reference(kernel, x, y)


@pytest.mark.parametrize("kernel", [adam, turn, under_a_mask, halves], ids=lambda k: k.__name__)
def test_nothing_is_kept_in_scratch_memory(kernel: Any) -> None:
    arrays = [np.ones(1000, np.float32)] * 4 if kernel in FLAT else [np.ones((24, 40), np.float32)] * 2
    found = ts.compile(ts.kernel(kernel), target="cpu", arguments=arrays)
    assert all(r["stack_bytes"] == 0 for r in found.resources.values())
