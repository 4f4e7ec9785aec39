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


def momentum(p: V, g: V, m: V, v: V) -> None:
    """What has been stored is read again."""
    i = ts.tile.linear_id()
    if i < n:
        m[i] = 0.5 * m[i] + g[i]
        p[i] = p[i] - 0.25 * m[i]


def under_a_mask_and_again(p: V, g: V, m: V, v: V) -> None:
    i = ts.tile.linear_id()
    if i < n:
        if g[i] > 2:
            p[i] = 2 * p[i]
        m[i] = p[i] + 1
        if m[i] > 3:
            p[i] = m[i] - p[i]
        v[i] = p[i] * m[i]


def sums_of_what_was_stored(p: V, g: V, v: ts.Tensor["k"]) -> None:
    """The last tile reaches past the end, where nothing is added."""
    i = ts.tile.program_id(0)
    ts.tile.grid(k)
    p[i * 64 : i * 64 + 64] = g[i * 64 : i * 64 + 64] + 1
    v[i] = ts.tile.sum(p[i * 64 : i * 64 + 64])


def lion(p: V, g: V, m: V, v: V) -> None:
    """Two computations that have arrays in common, and no value."""
    i = ts.tile.linear_id()
    if i < n:
        p[i] = p[i] - 0.25 * ts.tile.sign(0.75 * m[i] - 0.25 * g[i])
        m[i] = 0.5 * m[i] + 0.25 * g[i]


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


FLAT = [adam, swap, turn, under_a_mask, twice, momentum, under_a_mask_and_again, lion, shifted, summed]
APART = [adam, swap, turn, under_a_mask, momentum, lion]


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


def residual(x: M, y: M) -> None:
    """A sum is kept, not the part of it that is overwritten."""
    i = ts.tile.program_id(0)
    ts.tile.grid(r)
    h = x[i, :] + y[i, :]
    y[i, :] = h
    x[i, :] = h * ts.tile.sum(h * h)


def turned_and_again(x: M, y: M) -> None:
    ts.tile.grid(1)
    x[0:24, 0:24] = y[0:24, 0:24].T + 1
    a = x[0:24, 0:24]
    y[0:24, 0:24] = a * 2
    x[0:24, 0:24] = a.T + y[0:24, 0:24]


def read_as_columns(x: M, y: M) -> None:
    """What is stored is read turned, in the same program."""
    ts.tile.grid(1)
    x[0:24, 0:24] = y[0:24, 0:24] + 1
    y[0:24, 0:24] = x[0:24, 0:24].T * 2 + x[0:24, 0:24]


def turned_beside(x: M, y: M) -> None:
    """The loops of both stores could be one, but for what the first reads."""
    ts.tile.grid(1)
    a = x[0:24, 16:40]
    x[0:24, 16:40] = y[0:24, 0:24].T + a
    y[0:24, 0:24] = a * 2


def moved_beside(x: M, y: M) -> None:
    ts.tile.grid(1)
    a = x[0:24, 8:40]
    x[0:24, 8:40] = y[0:24, 1:33] + y[0:24, 0:32] + a
    y[0:24, 2:34] = a * 2


def moved_down(x: M, y: M) -> None:
    ts.tile.grid(1)
    x[1:24, 0:40] = x[0:23, 0:40] * 2


def rows_moved_down(x: M, y: M) -> None:
    ts.tile.grid(1)
    a = x[0:23, 0:40]
    x[1:24, 0:40] = a * (1 + ts.tile.row_sum(a)[:, None])


def stored_over(x: M, y: M) -> None:
    """The second store is of rows that the first one has stored too."""
    ts.tile.grid(1)
    a = y[0:23, 0:40]
    x[0:23, 0:40] = a * 2
    x[1:24, 0:40] = a + 1


def columns_that_are_read_between(x: M, y: M) -> None:
    ts.tile.grid(1)
    a, b = y[0:24, 0], y[0:24, 1]
    x[0:24, 0] = a + b
    y[0:24, 2] = x[0:24, 1] + a
    x[0:24, 1] = x[0:24, 0] * 2 + b


def in_a_loop(x: M, y: M) -> None:
    i = ts.tile.program_id(0)
    ts.tile.grid(r)
    for j in ts.tile.range_k(0, c):
        a, b = x[i, j], y[i, j]
        x[i, j] = b + 1
        y[i, j] = a - b


SQUARE = [
    rows, columns, turned, halves, short, beside_each_other, residual, turned_and_again, read_as_columns, turned_beside,
    moved_beside, moved_down, rows_moved_down, stored_over, columns_that_are_read_between, in_a_loop,
]  # fmt: skip


def vectors(size: int, dtype: Any) -> list[Any]:
    return [np.random.default_rng(i).integers(1, 4, size).astype(dtype) for i in range(4)]


def matrices(kernel: Any, dtype: Any) -> list[Any]:
    shape = (24, 3 if kernel is short else 40)
    return [np.random.default_rng(i).integers(1, 4, shape).astype(dtype) for i in range(2)]


def same_as_reference(kernel: Any, *arrays: Any, target: str = "cpu") -> None:
    wanted, got = ([x.copy() for x in arrays] for _ in range(2))
    compiled(kernel, *wanted, target="reference")()
    compiled(kernel, *got, target=target, debug=False)()
    assert any(not np.array_equal(x, y) for x, y in zip(arrays, wanted, strict=True))
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kernel", FLAT, ids=lambda k: k.__name__)
def test_vectors(kernel: Any, dtype: Any) -> None:
    for size in (65, 1024, 1031, 2051):
        same_as_reference(kernel, *vectors(size, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", SQUARE, ids=lambda k: k.__name__)
def test_matrices(kernel: Any, dtype: Any) -> None:
    same_as_reference(kernel, *matrices(kernel, dtype))


@pytest.mark.parametrize("kernel", [*APART, halves], ids=lambda k: k.__name__)
def test_nothing_is_kept_in_scratch_memory(kernel: Any) -> None:
    arrays = [np.ones(1000, np.float32)] * 4 if kernel in FLAT else [np.ones((24, 40), np.float32)] * 2
    found = ts.compile(ts.kernel(kernel), target="cpu", arguments=arrays)
    assert all(r["stack_bytes"] == 0 for r in found.resources.values())


def test_a_row_is_kept_once() -> None:
    found = ts.compile(ts.kernel(residual), target="cpu", arguments=[np.ones((24, 40), np.float32)] * 2)
    assert [r["stack_bytes"] for r in found.resources.values()] == [40 * 4]


def test_sums_of_what_was_stored() -> None:
    p, v, g = np.ones(100, np.float32), np.zeros(2, np.float32), np.arange(100, dtype=np.float32)
    compiled(sums_of_what_was_stored, p, g, v, target="cpu", debug=False)()
    np.testing.assert_array_equal(p, g + 1)
    np.testing.assert_array_equal(v, [(g[:64] + 1).sum(), (g[64:] + 1).sum()])
