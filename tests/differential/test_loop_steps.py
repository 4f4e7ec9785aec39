"""Steps of loops that sizes and coordinates make 0: an error where that is known, and no fault of the compiler."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import CompileError, DebugCheckError, Tensor, knobs
from tests.conftest import require
from tests.kernel_runner import check


@ts.kernel
def by_a_size(x: Tensor["n", ts.f32], m: Tensor["k", ts.f32], y: Tensor[1, ts.f32]):
    total = ts.tile.zeros(())
    for i in ts.tile.range_k(0, n, k - 3):
        total += x[i]
    y[0] = total


@ts.kernel
def by_a_coordinate(x: Tensor["B", "T", ts.f32], y: Tensor["B", "T", ts.f32]):
    for i in ts.tile.range(0, B, 2):
        for t in ts.tile.range_k(0, T, i):
            y[i : i + 2, t : t + 16] = x[i : i + 2, t : t + 16]


def test_steps_that_sizes_make_zero_or_less_are_refused():
    x, y = np.ones(9, np.float32), np.zeros(1, np.float32)
    by_a_size(x, np.ones(5, np.float32), y)
    assert y[0] == 5
    for k in (3, 2):
        with pytest.raises(CompileError, match=f"its step must be positive, not {k - 3}"):
            by_a_size(x, np.ones(k, np.float32), y)


@ts.kernel
def downwards(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    y: Tensor["n", ts.f32]
    for i in range(n - 4, -1, -4):
        y[i : i + 4] = x[i : i + 4]
    return y


@ts.kernel
def inside_downwards(x: Tensor["M", "n", ts.f32], y: Tensor["M", ts.f32]):
    for m in ts.tile.range(0, M):
        total = ts.tile.zeros(())
        for i in range(n - 1, -1, -1):
            total = total / 2 + x[m, i]
        y[m] = total


def test_pythons_range_does_not_count_down():
    for kernel in (downwards, inside_downwards):
        (error,) = check(kernel).diagnostics
        assert error.code == "TS105" and "ascends: its step must be positive, not -" in error.message
        assert "n - 1 - i counts down" in error.message


@ts.kernel
def by_data(x: Tensor["n", ts.f32], s: Tensor[1, ts.int32], y: Tensor[1, ts.f32]):
    total = ts.tile.zeros(())
    for i in ts.tile.range_k(0, n, s[0]):
        total += x[i]
    y[0] = total


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_steps_that_data_make_zero_or_less_are_one_and_reported_in_debug_mode(target):
    if target.startswith("emulator"):
        require("g++")
    x, y = np.ones(9, np.float32), np.zeros(1, np.float32)
    with knobs.target.override(target):
        for step, wanted in ((4, 3), (0, 9), (-2, 9)):
            by_data(x, np.array([step], np.int32), y)
            assert y[0] == wanted
        with (
            knobs.debug.override("1"),
            pytest.raises(DebugCheckError, match="The loop's step is -2; it must be positive"),
        ):
            by_data(x, np.array([-2], np.int32), y)


@ts.kernel
def behind_its_end(x: Tensor["M", "N", ts.f32], y: Tensor["N", ts.f32], least: Tensor[1, ts.f32]):
    for i in ts.tile.range(128, M, 4):
        rows = x[i : i + 4, 0:64]
        y[0:64] = ts.tile.reduce_across(ts.tile.col_sum(rows))
        least[0] = ts.tile.reduce_across(ts.tile.min(rows), "min")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_range_that_begins_behind_its_end_has_no_programs(target):
    y, least = np.ones(5, np.float32), np.ones(1, np.float32)
    with knobs.target.override(target):
        behind_its_end(np.ones((8, 5), np.float32), y, least)
    assert (y == 0).all() and least[0] == np.inf


def test_the_work_of_steps_of_zero_is_counted():
    ts.compile(by_a_coordinate, target="cpu", dims={"B": 2, "T": 5})
