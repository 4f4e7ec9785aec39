"""Random numbers in kernels are those that functions draw, whatever the blocks and the target are."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.conftest import require
from tests.kernel_runner import check, run

TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])


def drawn(like: Tensor["M", "N", ts.f32], seed: ts.Const[int]) -> Tensor["M", "N", ts.f32]:
    block = like[tile_m : tile_m + 4, tile_n : tile_n + 16]
    rows, columns = tile_m + ts.tile.arange(4), tile_n + ts.tile.arange(16)
    return block * 0 + ts.tile.uniform(seed, rows[:, None] * N + columns[None, :])


def dropout(x: Tensor["n", ts.f32], p: ts.f32) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    y = ts.tile.where(ts.tile.uniform(11, i) < p, 0, x[i] / (1 - p))
    return y


def kept(x: Tensor["n", ts.f32], y: Tensor["B", ts.f32]):
    for b in ts.tile.range(0, B):
        at = b * 8 + ts.tile.arange(8)
        y[b] = ts.tile.sum(ts.tile.where(ts.tile.uniform(5, at) < 0.5, x[at], 0))


@TARGETS
def test_kernels_draw_what_functions_draw(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    x = np.ones((7, 37), np.float32)
    want = np.asarray(ts.uniform(9, (7, 37)))
    np.testing.assert_array_equal(run(drawn, x, 9, target=target), want)
    assert 0.3 < want.mean() < 0.7 and want.min() >= 0 and want.max() < 1


@TARGETS
@pytest.mark.parametrize("block", [32, 256])
def test_dropout_is_a_line(block: int, target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    x = np.arange(1, 101, dtype=np.float32)
    draws = np.asarray(ts.uniform(11, (100,)))
    got = run(dropout, x, 0.25, target=target, BLOCK=block)
    np.testing.assert_array_equal(got, np.where(draws < 0.25, np.float32(0), x / np.float32(0.75)))


@TARGETS
def test_draws_of_what_does_not_exist_are_in_no_sum(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    x, y = np.ones(13, np.float32), np.zeros(2, np.float32)
    run(kept, x, y, target=target, debug=False)
    draws = np.asarray(ts.uniform(5, (13,)))
    np.testing.assert_array_equal(y, [(draws[:8] < 0.5).sum(), (draws[8:] < 0.5).sum()])


def by_floats(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    return ts.tile.uniform(3, x[i])


def by_tiles(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    return x[i] + ts.tile.uniform(ts.tile.arange(4), i)


@pytest.mark.parametrize(
    ("kernel", "code", "says"),
    [
        (by_floats, "TS301", "the number of each element is a whole number, not f32"),
        (by_tiles, "TS402", "a seed is one number, not a tile"),
    ],
)
def test_seeds_and_numbers_of_elements_are_whole(kernel, code: str, says: str) -> None:
    found = [d for d in check(kernel).diagnostics if d.severity == "error"]
    assert [d.code for d in found] == [code] and says in found[0].message
