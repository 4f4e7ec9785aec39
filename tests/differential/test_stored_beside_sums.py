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


@ts.kernel
def places_of_one(x: Tensor["M", 1, ts.f32], at: Tensor["M", ts.int64], y: Tensor["M", 1, ts.f32]):
    for i in ts.tile.range(0, M, 16):
        t = x[i : i + 16, :]
        e = ts.tile.exp(t)
        least = ts.tile.min(t * 3, axis=1)
        at[i : i + 16] = ts.tile.argmax(e, axis=1)
        y[i : i + 16, :] = least[:, None] + e


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_what_is_kept_where_its_largest_of_one_element_is_found(target):
    """The place of an extremum among one element is known without it, but others read it."""
    x = np.linspace(-1, 1, 21, dtype=np.float32)[:, None]
    at, y = np.full(21, 7), np.full_like(x, 7)
    with knobs.target.override(target):
        places_of_one(x, at, y)
    assert (at == 0).all()
    np.testing.assert_allclose(y, x * 3 + np.exp(x), rtol=1e-6)
