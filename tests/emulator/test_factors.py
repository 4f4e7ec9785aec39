"""The kernels of factors of matrices, as CUDA C++ in the emulator: what the CPU computes, to the last digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64, knobs
from tests.conftest import require

FACTORS: dict[str, Any] = {
    "cholesky": lambda a: ts.linalg.cholesky(a @ a.mT + ts.eye(3, dtype=ts.f64)),
    "solve": lambda a: ts.linalg.solve(a, a[:, :, :2]),
    "qr": lambda a: ts.linalg.qr(a),
    "eigh": lambda a: ts.linalg.eigh(a + a.mT),
    "svd": lambda a: ts.linalg.svd(a),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors(name: str) -> None:
    require("g++")
    a = np.random.default_rng(3).standard_normal((2, 3, 3))
    found = []
    for target in ("cpu", "emulator:sm_80"):
        with knobs.target.override(target):
            made = ts.function(FACTORS[name])(a)
        found.append([np.asarray(v) for v in (made if isinstance(made, tuple) else (made,))])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-13, atol=1e-14)
    assert all(np.isfinite(v).all() for v in found[1])


@ts.kernel(num_warps=4)
def subtracted(x: Tensor["N", "K", f64], y: Tensor["K", "M", f64], out: Tensor["N", "M", f64]):
    ts.tile.grid(1)
    for i in ts.tile.range_k(0, N, 16):
        out[i : i + 16, 0:16] -= x[i : i + 16, 0:16] @ y[0:16, 0:16]


def test_threads_that_hold_the_same_elements_wait_for_the_one_that_stores() -> None:
    """16 x 16 results are those of two warps, of which the other two have a copy."""
    require("g++")
    rng = np.random.default_rng(0)
    x, y, out = (rng.standard_normal(s) for s in ((48, 16), (16, 16), (48, 16)))
    want = out - x @ y
    with knobs.target.override("emulator:sm_80"):
        subtracted(x, y, out)
    np.testing.assert_allclose(out, want, rtol=1e-12, atol=1e-13)
