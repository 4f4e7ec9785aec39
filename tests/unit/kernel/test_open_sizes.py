"""Kernels that run, before their sizes are known: editors and `tessera check` say nothing against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32
from tests.kernel_runner import check


@ts.kernel
def numbered(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    for i in ts.tile.range(0, M, 8):
        y[i : i + 8, 0:N] = x[i : i + 8, ts.tile.arange(N)] * ts.tile.arange(1, N + 1)[None, :]


@ts.kernel
def doubled(x: Tensor["n", f32], y: Tensor["n", f32], steps: int):
    i = ts.tile.linear_id()
    v = x[i]
    for _ in ts.tile.static_range(steps):
        v = v * 2
    y[i] = v


@ts.kernel
def backwards(x: Tensor["n", "K", f32], y: Tensor["n", "K", f32]):
    i = ts.tile.program_id(0)
    for s in ts.tile.static_range(K - 1, -1, -1):
        y[i, s] = x[i, s] * s


@ts.kernel
def butterfly(x: Tensor["S", "D", f32], y: Tensor["S", "D", f32]):
    assert D % 2 == 0
    for i in ts.tile.range(0, S, 8):
        a, b = x[i : i + 8, 0 : D // 2], x[i : i + 8, D // 2 : D]
        y[i : i + 8, 0 : D // 2] = a + b
        y[i : i + 8, D // 2 : D] = a - b


@ts.kernel
def pairs(x: Tensor["S", "D", f32], y: Tensor["S", "D//2", f32]):
    assert D % 2 == 0
    for i in ts.tile.range(0, S, 8):
        y[i : i + 8] = ts.tile.sum(x[i : i + 8].reshape(8, D // 2, 2), axis=2)


@ts.kernel
def of_a_list(xs: list[Tensor["n", f32]], y: Tensor["n", f32]):
    i = ts.tile.linear_id()
    y[i] = xs[0][i] + xs[1][i]


@ts.kernel
def of_all(*args):
    i = ts.tile.linear_id()
    args[1][i] = args[0][i] * 2


@ts.kernel
def without_annotations(x, y):
    i = ts.tile.linear_id()
    y[i] = x[i] * 2


X = np.random.default_rng(0).standard_normal((11, 6), np.float32)
V = X[:, 0].copy()
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = [
    (numbered, (X, np.zeros_like(X)), X * np.arange(1, 7)),
    (backwards, (X, np.zeros_like(X)), X * np.arange(6)),
    (butterfly, (X, np.zeros_like(X)), np.concatenate([X[:, :3] + X[:, 3:], X[:, :3] - X[:, 3:]], 1)),
    (pairs, (X, np.zeros((11, 3), np.float32)), X.reshape(11, 3, 2).sum(2)),
    (of_a_list, ([V, V], np.zeros_like(V)), V + V),
    (of_all, (V, np.zeros_like(V)), V * 2),
    (without_annotations, (V, np.zeros_like(V)), V * 2),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "arguments", "wanted"), CALLS, ids=[k.__name__ for k, _, _ in CALLS])
def test_what_runs_is_right_before_its_sizes_are_known(
    kernel: Callable[..., Any], arguments: tuple[Any, ...], wanted: Any
) -> None:
    assert [d.render() for d in check(kernel).diagnostics if d.severity == "error"] == []
    kernel(*arguments)
    np.testing.assert_allclose(arguments[-1], wanted, rtol=1e-5, atol=1e-6)


def test_the_number_of_unrolled_steps_is_known_at_the_call() -> None:
    analysis = check(doubled)
    assert not analysis.diagnostics
    assert ["loop with ts.tile.range_k(...)" in d.message for d in analysis.undecided] == [True]
    y = np.zeros_like(V)
    doubled(V, y, 3)
    np.testing.assert_array_equal(y, V * 8)


def test_parts_that_nothing_says_are_equal_are_refused() -> None:
    def halves(x: Tensor["S", "D", f32], y: Tensor["S", "D", f32]):
        for i in ts.tile.range(0, S, 8):
            y[i : i + 8, 0 : D // 2] = x[i : i + 8, D // 2 : D]

    assert [d.code for d in check(halves).diagnostics] == ["TS402"]
