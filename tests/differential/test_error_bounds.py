"""The error bounds of docs/numerics.md, held against f64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, bf16, f32
from tessera.language.dtypes import BY_NAME
from tessera.language.order import CHAIN, CHUNK, GROUP, SPAN

rng = np.random.default_rng(11)
U = 2.0**-24


def products(k):
    """How many additions in a row a sum of k products has at most."""
    return min(k, CHAIN) + min(math.ceil(k / CHAIN), GROUP) + math.ceil(k / SPAN)


def terms(n):
    """How many additions in a row a sum of n elements has at most, on any target."""
    return min(n, 1024) + 64 + math.ceil(n / CHUNK)


def gamma(d):
    return d * U / (1 - d * U)


ROWS = {
    "equal": lambda n: np.full((n, 3), 0.1),
    "even": lambda n: rng.random((n, 3)),
    "signs": lambda n: rng.normal(size=(n, 3)),
}
TOTALS = [ts.function(lambda x, axis=axis: ts.sum(x, axis=axis)) for axis in (0, 1)]


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("n", [1, 100, 5000, 100_000])
def test_sums(n, kind):
    x = ROWS[kind](n).astype(np.float32)
    wide = x.astype(np.float64)
    for f, given in zip(TOTALS, (x, np.ascontiguousarray(x.T)), strict=True):
        error = np.abs(np.asarray(f(given)) - wide.sum(0))
        assert np.all(error <= gamma(terms(n)) * np.abs(wide).sum(0))


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("k", [1, 100, 3000, 50_000])
def test_products(k, kind):
    x, y = (ROWS[kind](k).astype(np.float32) for _ in range(2))
    found = np.asarray(ts.matmul(np.ascontiguousarray(x.T), y))
    wide, other = x.astype(np.float64), y.astype(np.float64)
    assert np.all(np.abs(found - wide.T @ other) <= gamma(products(k)) * (np.abs(wide).T @ np.abs(other)))


def test_products_of_bf16_are_summed_in_f32():
    x, y = (rng.normal(size=(64, 700)).astype(ml_dtypes.bfloat16) for _ in range(2))
    found = np.asarray(ts.matmul(x, np.ascontiguousarray(y.T))).astype(np.float64)
    wide, other = x.astype(np.float64), y.astype(np.float64)
    exact, size = wide @ other.T, np.abs(wide) @ np.abs(other).T
    assert np.all(np.abs(found - exact) <= 2.0**-8 * np.abs(exact) + (1 + 2.0**-8) * gamma(products(700)) * size)


@ts.function
def biased(b: Tensor["D", bf16], x: Tensor["N", "D", bf16]):
    return ts.sum((x + b).to(f32) * 0.1)


def test_the_gradient_of_a_bias_over_many_rows():
    """10^5 cotangents in bf16 are summed in f32 and rounded once: within the last place of bf16."""
    x = np.zeros((100_000, 4), ml_dtypes.bfloat16)
    found = np.asarray(ts.grad(biased)(x[0], x)).astype(np.float64)
    exact = 100_000 * float(np.float32(0.1).astype(ml_dtypes.bfloat16))
    assert np.all(np.abs(found - exact) <= (2.0**-8 + 2 * gamma(terms(100_000))) * exact)


@ts.function
def mixed(b: Tensor["D", f32], w: Tensor["K", "D", ts.fp8_e4m3], x: Tensor["N", "K", bf16]):
    return ts.sum(x @ w.to(bf16) + b)


def test_cotangents_have_the_dtypes_of_their_values():
    """bf16 times what is kept in fp8, with a bias in f32: each gradient in its own dtype, sums in f32."""
    b, w = np.zeros(3, np.float32), np.ones((8, 3), ml_dtypes.float8_e4m3fn)
    x = np.ones((200, 8), ml_dtypes.bfloat16)
    db, dw, dx = ts.grad(mixed, argnums=(0, 1, 2))(b, w, x)
    assert [str(x.dtype) for x in (db, dw, dx)] == ["float32", "float8_e4m3fn", "bfloat16"]
    assert db.tolist() == [200] * 3 and dx.tolist() == [[3.0] * 8] * 200
    assert np.all(np.asarray(dw).astype(float) == 192)  # 200 lies between 192 and 208: to even


@pytest.mark.parametrize("n", [7, 300, 5000])
def test_softmax(n):
    x = (rng.normal(size=(20, n)) * 8).astype(np.float32)
    wide = x.astype(np.float64)
    below = wide.max(-1, keepdims=True) - wide
    exact = np.exp(-below) / np.exp(-below).sum(-1, keepdims=True)
    error = np.abs(np.asarray(ts.softmax(x)) - exact)
    assert np.all(error <= (below + terms(n) + 8) * U * exact + 2.0**-149)


@pytest.mark.parametrize("shift", [0.0, 100.0])
@pytest.mark.parametrize("n", [16, 1000])
def test_layer_norm(n, shift):
    x = (rng.normal(size=(20, n)) + shift).astype(np.float32)
    wide = x.astype(np.float64)
    std = np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    exact = (wide - wide.mean(-1, keepdims=True)) / std
    size = np.sqrt((wide**2).mean(-1, keepdims=True)) / std
    error = np.abs(np.asarray(ts.layer_norm(x)) - exact)
    assert np.all(error <= (terms(n) + 8) * U * (1 + np.abs(exact)) * (1 + size))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1"])
def test_conversions(dtype):
    """Half a last place to nearest, less than one at random, from the largest value down to the smallest."""
    d = BY_NAME[dtype]
    least = 2.0 ** (2 - 2 ** (d.exponent - 1))
    low, high = math.log2(least) - d.mantissa - 3, math.log2(d.maximum)
    x = (rng.choice([-1, 1], 4000) * 2.0 ** rng.uniform(low, high, 4000)).astype(np.float32)
    near = np.maximum(2.0 ** -(d.mantissa + 1) * np.abs(x), 2.0 ** -(d.mantissa + 1) * least)
    for cast in (ts.cast, ts.saturate_cast):
        assert np.all(np.abs(np.asarray(cast(x, d)).astype(np.float64) - x) <= near)
    drawn = np.asarray(ts.stochastic_cast(x, d, 1)).astype(np.float64)
    assert np.all(np.abs(drawn - x) < 2 * near)


@pytest.mark.parametrize("kind, dtype", [(k, d) for k in ("tensor", "block", "mx") for d in ("fp8_e4m3", "fp4_e2m1")])
def test_scaled_tensors(kind, dtype):
    """Half a last place, or of the smallest values beside the largest of the block."""
    d = BY_NAME[dtype]
    x = (rng.normal(size=(16, 256)) * 2.0 ** rng.integers(-6, 6, (16, 256))).astype(np.float32)
    how = ts.scaled(kind, d)
    found = np.asarray(how.quantize(ts.asarray(x)).dequantize()).astype(np.float64)
    parts = x if not how.block else x.reshape(16, -1, how.block)
    most = np.abs(parts).max() if not how.block else np.repeat(np.abs(parts).max(-1), how.block, axis=-1)
    least = 2.0 ** (2 - 2 ** (d.exponent - 1))
    top = d.maximum if kind != "mx" else 2.0 ** math.floor(math.log2(d.maximum))  # a power of two may be half as large
    bound = 2.0 ** -(d.mantissa + 1) * np.maximum(np.abs(x), 2 * most * least / top) * (1 + 1e-6)
    if kind == "mx":  # above the largest value, up to twice the power of two below it
        bound = np.maximum(bound, most * (1 - d.maximum / (2 * top)))
    assert np.all(np.abs(found - x) <= bound)
