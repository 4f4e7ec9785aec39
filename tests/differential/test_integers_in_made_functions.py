"""Integers of few bits, and without a sign, in functions that subtract, multiply and weigh: against NumPy in f64."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tests.conftest import require

torch = require("torch")
F = torch.nn.functional


def of(f):
    """What PyTorch computes of the same numbers in f64."""
    return lambda *arrays: f(*map(torch.tensor, arrays)).numpy()


def by_rows(f):
    return lambda a, b: f(a.reshape(4, 5), b.reshape(4, 5))


CASES = {
    "isclose": (lambda a, b: ts.isclose(a, b, rtol=0.6, atol=5.0), lambda a, b: np.isclose(a, b, rtol=0.6, atol=5.0)),
    "fmod": (lambda a, b: ts.fmod(a, ts.where(b == 0, 1, b)), lambda a, b: np.fmod(a, np.where(b == 0, 1, b))),
    "huber": (nn.huber, of(F.huber_loss)),
    "cdist": (by_rows(ts.cdist), by_rows(of(torch.cdist))),
    "cosine_similarity": (by_rows(ts.cosine_similarity), by_rows(of(F.cosine_similarity))),
    "normalize": (lambda a, b: ts.normalize(a.reshape(4, 5)), lambda a, b: of(F.normalize)(a.reshape(4, 5))),
    "median": (lambda a, b: ts.median(a), lambda a, b: np.median(a)),
    "quantile": (lambda a, b: ts.quantile(a, 0.37), lambda a, b: np.quantile(a, 0.37)),
    "average": (lambda a, b: ts.average(a, weights=b * b), lambda a, b: np.average(a, weights=b * b)),
    "trapezoid": (lambda a, b: ts.trapezoid(a, b), lambda a, b: np.trapezoid(a, b)),
    "interp": (lambda a, b: ts.interp(a, ts.sort(b), a), lambda a, b: np.interp(a, np.sort(b), a)),
    "histogram": (lambda a, b: ts.histogram(a, 5)[0], lambda a, b: np.histogram(a, 5)[0]),
    "edges": (lambda a, b: ts.histogram(a, 5)[1], lambda a, b: np.histogram(a, 5)[1]),
    "cov": (lambda a, b: ts.cov(ts.stack([a, b])), lambda a, b: np.cov(np.stack([a, b]))),
    "percentile": (lambda a, b: ts.percentile(a, 37), lambda a, b: np.percentile(a, 37)),
    "nanmedian": (lambda a, b: ts.nanmedian(a), lambda a, b: np.median(a)),
    "gradient": (lambda a, b: ts.gradient(a), lambda a, b: np.gradient(a)),
    "unwrap": (lambda a, b: ts.unwrap(a, 9.0), lambda a, b: np.unwrap(a, period=9.0)),
    "cbrt": (lambda a, b: ts.cbrt(a), lambda a, b: np.cbrt(a)),
    "softmin": (lambda a, b: ts.softmin(a), lambda a, b: of(lambda x: F.softmin(x, -1))(a)),
    "erfc": (lambda a, b: ts.erfc(a), lambda a, b: of(torch.erfc)(a)),
    "tanhshrink": (lambda a, b: ts.tanhshrink(a), lambda a, b: of(F.tanhshrink)(a)),
    "triplet_margin": (
        lambda a, b: nn.triplet_margin(a[:10], b[:10], a[10:]),
        lambda a, b: of(F.triplet_margin_loss)(a[:10], b[:10], a[10:]),
    ),
    "adaptive_avg_pool1d": (
        lambda a, b: ts.adaptive_avg_pool1d(a[None], 3),
        lambda a, b: of(lambda x: F.adaptive_avg_pool1d(x, 3))(a[None]),
    ),
    "softsign": (lambda a, b: ts.softsign(a), lambda a, b: of(F.softsign)(a)),
    "interpolate": (
        lambda a, b: ts.interpolate(a[None, None], size=7, mode="linear"),
        lambda a, b: of(lambda x: F.interpolate(x, size=7, mode="linear"))(a[None, None]),
    ),
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
@pytest.mark.parametrize("name", CASES)
def test_as_in_f64(name, dtype):
    ours, theirs = CASES[name]
    rng = np.random.default_rng(0)
    least, greatest = max(np.iinfo(dtype).min, -1000), min(np.iinfo(dtype).max, 1000)
    a, b = rng.integers(least, greatest, (2, 20), dtype=dtype, endpoint=True)
    a[:3], b[:3] = (least, greatest, 1), (greatest, least, 2)
    if name == "average":
        b = b % np.array(11, dtype)  # squares fit
    if name == "interp":
        b = rng.permutation(np.arange(20)).astype(dtype) * np.array(5, dtype)
    wanted = theirs(a.astype(np.float64), b.astype(np.float64))
    for found in (ours(a, b), ts.function(ours)(a, b)):
        np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=2e-5, atol=1e-5 * np.abs(wanted).max())
