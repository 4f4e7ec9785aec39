"""Blocks at ragged edges that are summed and, in the same pass, stored for a product."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs


@ts.kernel
def summed_and_multiplied(
    a: Tensor["M", "D", ts.f64], b: Tensor["N", "D", ts.f64], d: Tensor["M", "N", ts.f64]
) -> Tensor["N", "D", ts.f64]:
    out = ts.tile.zeros_like(b[tile_n : tile_n + 4, :])
    for i in ts.tile.range_k(0, M, 4):
        block = d[i : i + 4, tile_n : tile_n + 4]
        opposite = -block
        out += (
            ts.tile.mma(opposite.T, a[i : i + 4, :]) + ts.tile.sum(block, axis=-2)[:, None] * b[tile_n : tile_n + 4, :]
        )
    return out


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("m, n", [(6, 5), (8, 8), (5, 9), (1, 1)])
def test_sums_and_products_of_one_block(m, n, target):
    rng = np.random.default_rng(m + n)
    a, b, d = rng.random((m, 3)), rng.random((n, 3)), rng.random((m, n))
    with knobs.target.override(target):
        found = summed_and_multiplied(a, b, d)
    np.testing.assert_allclose(found, -d.T @ a + d.sum(0)[:, None] * b)
