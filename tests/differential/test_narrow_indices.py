"""Index tiles of every integer dtype: at ragged edges, at the ends of tables, and in index arithmetic of kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tests.conftest import require

require("g++")
TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
INTEGERS = pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"])
RNG = np.random.default_rng(3)
N = 100
"""is no multiple of the blocks, so that the last one has places that do not exist"""


@ts.kernel
def histogram(x: Tensor["n"], counts: Tensor[256, ts.int32]):
    found = ts.tile.zeros((256,), ts.int32)
    for i in ts.tile.range_k(0, n, 64):
        found = ts.tile.scatter_add(found, x[i : i + 64], 1)
    counts[0:256] = found


@ts.kernel
def stored(x: Tensor["n"], y: Tensor[256, ts.int64]):
    t = ts.tile.zeros((256,), ts.int64)
    for i in ts.tile.range_k(0, n, 64):
        t[x[i : i + 64]] = i + ts.tile.arange(64)
    y[0:256] = t


@ts.kernel
def taken(t: Tensor[256, ts.f32], x: Tensor["n"], y: Tensor["n", ts.f32], least: Tensor["n", ts.f32]):
    table = t[0:256]
    for i in ts.tile.range(0, n, 64):
        found = table[x[i : i + 64]]
        y[i : i + 64] = found
        least[i] = ts.tile.min(found)


@INTEGERS
@TARGETS
def test_index_tiles_at_ragged_edges(dtype, target):
    most = min(np.iinfo(dtype).max, 255)
    x = RNG.integers(0, most + 1, N).astype(dtype)
    x[:3] = most
    counts, y = np.zeros(256, np.int32), np.zeros(256, np.int64)
    table = RNG.random(256).astype(np.float32) + 1
    found, least = np.zeros(N, np.float32), np.zeros(N, np.float32)
    with knobs.target.override(target):
        histogram(x, counts)
        stored(x, y)
        taken(table, x, found, least)
    at = x.astype(int)
    np.testing.assert_array_equal(counts, np.bincount(at, minlength=256))
    wanted = np.zeros(256, np.int64)
    for number, place in enumerate(at):
        wanted[place] = number
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(found, table[at])
    assert (least[0], least[64]) == (table[at[:64]].min(), table[at[64:]].min())


@ts.kernel
def index_arithmetic(
    x: Tensor["m", ts.f32], at: Tensor["k", ts.int8], less: Tensor["k", ts.uint8], y: Tensor["m", 6, ts.f32]
):
    p = ts.tile.program_id()
    y[p, 0] = x[p + at[0]]
    y[p, 1] = x[p - at[1]]
    y[p, 2] = x[less[0] - p + m - 1]
    y[p, 3] = ts.tile.cast(at[0] < p, ts.f32)
    y[p, 4] = ts.tile.cast(at[0] * m, ts.f32)
    y[p, 5] = less[1] / m


@TARGETS
def test_coordinates_and_sizes_beside_narrow_integers_are_wide(target):
    m = 300
    x, y = np.arange(1, m + 1, dtype=np.float32), np.zeros((m, 6), np.float32)
    p = np.arange(m)
    with knobs.target.override(target):
        index_arithmetic(x, np.array([3, -4], np.int8), np.array([2, 200], np.uint8), y)
    padded = np.concatenate([x, np.zeros(10, np.float32)])
    np.testing.assert_array_equal(y[:, 0], padded[p + 3])
    np.testing.assert_array_equal(y[:, 1], padded[p + 4])
    np.testing.assert_array_equal(y[:, 2], padded[2 - p + m - 1])
    np.testing.assert_array_equal(y[:, 3], p > 3)
    assert (y[:, 4] == 900).all() and (y[:, 5] == np.float32(200 / 300)).all()


@ts.kernel
def rotated(x: Tensor["n", ts.uint32], y: Tensor["n", "m", ts.uint32]):
    i = ts.tile.linear_id()
    for k in ts.tile.range_k(1, m):
        y[i, k] = ((x[i] << k) >> 3) | (x[i] >> (32 - k))


@TARGETS
def test_shift_counts_widen_nothing(target):
    x, y = RNG.integers(0, 2**32, 20).astype(np.uint32), np.zeros((20, 32), np.uint32)
    with knobs.target.override(target):
        rotated(x, y)
    k = np.arange(1, 32, dtype=np.uint32)
    np.testing.assert_array_equal(y[:, 1:], ((x[:, None] << k) >> np.uint32(3)) | (x[:, None] >> (np.uint32(32) - k)))
