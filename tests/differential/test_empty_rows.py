"""Kernels over rows without elements: nothing is read, and sums of nothing are 0."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import run


@ts.kernel
def sums(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        y[i : i + 4] = ts.tile.row_sum(x[i : i + 4])


@ts.kernel
def largest(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    r = ts.tile.program_id(0)
    y[r] = ts.tile.max(x[r, :])


@ts.kernel
def doubled(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    r = ts.tile.program_id(0)
    y[r, :] = x[r, :] * 2


@ts.kernel
def columns(
    x: ts.Tensor["M", "N", ts.f32],
    total: ts.Tensor["N", ts.f32],
    high: ts.Tensor["N", ts.bool],
    at: ts.Tensor["N", ts.int64],
):
    total[:] = ts.tile.sum(x[:, :], axis=0)
    high[:] = ts.tile.any(x[:, :] > 1, axis=0)
    at[:] = ts.tile.argmax(x[:, :], axis=0)


TARGETS = ["reference", "cpu", "emulator:sm_80"]


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_of_empty_rows(target: str) -> None:
    x, y = np.ones((5, 0), np.float32), np.ones(5, np.float32)
    run(sums, x, y, target=target)
    assert y.tolist() == [0] * 5
    run(largest, x, y, target=target)
    assert y.tolist() == [-np.inf] * 5


@pytest.mark.parametrize("target", TARGETS)
def test_empty_rows_are_read_and_written(target: str) -> None:
    x, y = np.ones((5, 0), np.float32), np.ones((5, 0), np.float32)
    run(doubled, x, y, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_there_is_nothing_to_reduce_to(target: str) -> None:
    x = np.ones((5, 0), np.float32)
    run(columns, x, *(np.ones(0, dtype) for dtype in (np.float32, np.bool_, np.int64)), target=target)
