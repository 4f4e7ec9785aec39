"""Lines of a tile that a loop's counter picks: where the counter cannot leave the tile, nothing is asked of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import program, run

TARGETS = ("reference", "cpu", "emulator:sm_80")


def ascending(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    t = x[0:8, 0:4]
    total = ts.tile.zeros((8,), ts.f32)
    for c in ts.tile.range_k(0, 4):
        total = total * 2 + t[:, c]
    y[0:8] = total


def descending(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    t = x[0:8, 0:4]
    total = ts.tile.zeros((8,), ts.f32)
    for c in ts.tile.range_k(0, 4):
        total = total * 2 + t[:, 3 - c]
    y[0:8] = total


def beyond(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    """The last two places are not in the tile, and the greatest element is that of the others."""
    t = x[0:8, 0:4]
    best = ts.tile.full((8,), -99.0, ts.f32)
    for c in ts.tile.range_k(0, 6):
        best = ts.tile.maximum(best, t[:, c])
    y[0:8] = best


def before(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    """The first place is not in the tile."""
    t = x[0:8, 0:4]
    best = ts.tile.full((8,), -99.0, ts.f32)
    for c in ts.tile.range_k(0, 5):
        best = ts.tile.maximum(best, t[:, c - 1])
    y[0:8] = best


def ragged(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    """The tile's last column is not in the tensor."""
    t = x[0:8, 0:5]
    best = ts.tile.full((8,), -99.0, ts.f32)
    for c in ts.tile.range_k(0, 5):
        best = ts.tile.maximum(best, t[:, c])
    y[0:8] = best


def powers(x: Any) -> Any:
    return x @ np.float32([8, 4, 2, 1])


def greatest(x: Any) -> Any:
    return x.max(1)


KERNELS = {
    "ascending": (ascending, powers), "descending": (descending, lambda x: powers(x[:, ::-1])),
    "beyond": (beyond, greatest), "before": (before, greatest), "ragged": (ragged, greatest),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_as_numpy_has_it(name: str, target: str) -> None:
    kernel, wanted = KERNELS[name]
    x, y = -np.arange(1, 33, dtype=np.float32).reshape(8, 4), np.zeros(8, np.float32)
    run(kernel, x, y, target=target)
    np.testing.assert_array_equal(y, wanted(x))


@pytest.mark.parametrize("name", KERNELS)
def test_only_what_may_be_missing_is_asked_for(name: str) -> None:
    x, y = np.zeros((8, 4), np.float32), np.zeros(8, np.float32)
    (launch,) = program(KERNELS[name][0], x, y).launches
    asked = any(op.name in ("tile.where", "tile.logical_and", "tile.lt") for op in launch.kernel.walk())
    assert asked == (name in ("beyond", "before", "ragged"))
