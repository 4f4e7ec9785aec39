"""`logical_and` and its like of operands without a common dtype: only whether they are zero counts.

And bools as numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import run

SIGNED = np.array([0, 3, 0, -1, 2**62], np.int64)
UNSIGNED = np.array([0, 0, 7, 2**63, 2**64 - 1], np.uint64)
NAMES = ["logical_and", "logical_or", "logical_xor"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_in_a_function(name: str, target: str) -> None:
    operator: Any = getattr(ts, name)

    @ts.function
    def f(x: Tensor["N", ts.int64], y: Tensor["N", ts.uint64]):
        return operator(x, y), operator(y.cast(ts.f16), x.cast(ts.bf16))

    want = getattr(np, name)(SIGNED, UNSIGNED)
    for found in ts.compile(f, target=target, arguments=(SIGNED, UNSIGNED))(SIGNED, UNSIGNED):
        np.testing.assert_array_equal(found, want)


FAST, SLOW = True, False


def test_a_flag_behind_elements() -> None:
    @ts.function
    def f(x: Tensor["N", ts.f32]):
        y = x * 2 if x[0] > 0 and SLOW else x
        return y + 1 if x[0] > 5 or FAST else y

    def kernel(x: Tensor["N", ts.f32], y: Tensor["N", ts.f32]):
        i = ts.tile.linear_id()
        v = ts.tile.where(x[i] > 0 and SLOW, 0.0, x[i])
        if v > 1 and SLOW:
            v = v + None
        if v > 1 or FAST:
            y[i] = v + 1

    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    run(kernel, x, y)
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(f(x), x + 1)


@pytest.mark.parametrize("name", NAMES)
def test_eager(name: str) -> None:
    want = getattr(np, name)(SIGNED, UNSIGNED)
    np.testing.assert_array_equal(np.asarray(getattr(ts, name)(SIGNED, UNSIGNED)), want)


def in_a_kernel(x: Tensor[5, ts.int64], y: Tensor[5, ts.uint64], z: Tensor[3, 5, ts.bool_]):
    for _p in ts.tile.range(0, 1, 1):
        z[0, :] = ts.tile.logical_and(x[:], y[:])
        z[1, :] = ts.tile.logical_or(x[:], y[:])
        z[2, :] = ts.tile.logical_xor(y[:], x[:])


def test_in_a_kernel() -> None:
    z = np.zeros((3, 5), bool)
    run(in_a_kernel, SIGNED, UNSIGNED, z, target="cpu")
    np.testing.assert_array_equal(z, [getattr(np, name)(SIGNED, UNSIGNED) for name in NAMES])


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_statistics_of_bools(target: str) -> None:
    """They count as 0 and 1, as NumPy has it."""
    x = np.array([[True, False, True, True, False]])

    @ts.function
    def f(x: Tensor["M", "N", ts.bool_]):
        return ts.mean(x, axis=1), ts.var(x, axis=1), ts.std(x, axis=1, correction=1)

    want = np.mean(x, axis=1), np.var(x, axis=1), np.std(x, axis=1, ddof=1)
    for found, expected in zip(ts.compile(f, target=target, arguments=(x,))(x), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert abs(float(ts.var(x)) - np.var(x)) < 1e-6
