"""fp8_e8m0, the dtype of scales: which power of two a number becomes, and what bytes mean, on every target."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import run

TARGETS = ("reference", "cpu", "emulator:sm_80")


def rounded(x: Tensor["n", ts.f32], y: Tensor["n", ts.fp8_e8m0]):
    i = ts.tile.linear_id()
    y[i] = x[i]


def widened(x: Tensor["n", ts.fp8_e8m0], y: Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i]


def power(x: float) -> int:
    """The byte of the nearest power of two, by comparing with all of them; the greater one of two."""
    if not x >= 0:
        return 255
    powers = 2.0 ** np.arange(-127, 128, dtype=np.float64)
    far = np.abs(min(x, 2.0**127) - powers)
    return int(np.flatnonzero(far == far.min())[-1])


def numbers() -> Any:
    powers = (2.0 ** np.arange(-127, 128, dtype=np.float64)).astype(np.float32)
    near = [f(powers, np.float32(0)) for f in (lambda p, _: p, np.nextafter)]
    more = [powers[:-1] * np.float32(1.5), np.nextafter(powers[:-1] * np.float32(1.5), np.float32(0)), -powers[::9]]
    special = np.array([0, -0.0, 1e-45, np.inf, -np.inf, np.nan, 3.4e38, 2.0**-128, -1e-45], np.float32)
    return np.concatenate([*near, *more, special])


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_become_the_nearest_power(target: str) -> None:
    x = numbers()
    y, z = np.zeros(x.shape, ml_dtypes.float8_e8m0fnu), np.zeros(256, np.float32)
    bytes_ = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    run(rounded, x, y, target=target, debug=False, BLOCK=128)
    run(widened, bytes_, z, target=target, debug=False, BLOCK=128)
    np.testing.assert_array_equal(y.view(np.uint8), [power(float(v)) for v in x])
    np.testing.assert_array_equal(z, bytes_.astype(np.float32))
