"""Scaled tensors: their scales at all magnitudes, what infinity and NaN do, products, and training with them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor
from tessera.optimizers import AdamW

rng = np.random.default_rng(2)
RECIPES = {
    "tensor": ts.scaled("tensor"), "range": ts.scaled("tensor", ts.fp8_e5m2), "block": ts.scaled("block", block=32),
    "mx": ts.scaled("mx"), "mx4": ts.scaled("mx", ts.fp4_e2m1), "mx6": ts.scaled("mx", ts.fp6_e3m2),
}  # fmt: skip
QUANTIZE = {n: ts.function(lambda x, how=how: how.quantize(x)) for n, how in RECIPES.items()}
RESTORE = ts.function(lambda q: q.dequantize())


def scales_by_hand(name, x):
    """In Python's floats, one block at a time."""
    how = RECIPES[name]
    out = []
    for block in x.reshape(-1, how.block or x.size):
        finite = np.abs(block[np.isfinite(block)])
        most = float(finite.max()) if finite.size else 0.0
        if how.kind != "mx":
            out.append(1.0 if most == 0 else max(float(np.float32(most) / np.float32(how.most)), 2.0**-126))
        else:
            power = math.frexp(most)[1] - 1 if most else -1000
            out.append(2.0 ** max(power - (math.frexp(how.most)[1] - 1), -127))
    return np.array(out)


@pytest.mark.parametrize("name", RECIPES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_scales_and_data_are_those_of_the_formula(name, data):
    how, power = RECIPES[name], data.draw(st.integers(-149, 120))
    x = (rng.normal(size=(2, 64)) * 2.0**power).astype(np.float32)
    for i, value in enumerate(data.draw(st.lists(st.sampled_from([0.0, np.inf, -np.inf, 3e38, 1e-45]), max_size=4))):
        x[i % 2, 5 * i] = value
    q = QUANTIZE[name](x)
    scales = np.asarray(q.scales).astype(np.float64).ravel()
    np.testing.assert_array_equal(scales, scales_by_hand(name, x))
    per = np.repeat(scales, how.block).reshape(x.shape) if how.block else scales
    with np.errstate(all="ignore"):
        wanted = np.clip(x / per.astype(np.float32), -how.most, how.most).astype(how.dtype.numpy)
    assert np.array_equal(np.asarray(q.data), wanted) and not np.any(np.isnan(np.asarray(RESTORE(q))))


@pytest.mark.parametrize("name", ["tensor", "block", "mx"])
def test_nan_stays_where_it_is(name):
    x = np.ones((2, 64), np.float32)
    x[1, 3] = np.nan
    assert np.argwhere(np.isnan(np.asarray(RESTORE(QUANTIZE[name](x))))).tolist() == [[1, 3]]


@pytest.mark.parametrize("target", ["reference", "emulator:sm_80"])
@pytest.mark.parametrize("name", ["tensor", "mx", "mx4"])
def test_other_targets_give_the_same_bits(name, target):
    x = (rng.normal(size=(4, 64)) * 2.0 ** rng.integers(-30, 30, (4, 1))).astype(np.float32)
    here = QUANTIZE[name](x)
    with ts.knobs.target.override(target):
        there = QUANTIZE[name](x)
    for a, b in ((here.data, there.data), (here.scales, there.scales)):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("name", RECIPES)
def test_a_product_is_that_of_the_scaled_operands(name):
    x, w = rng.normal(size=(8, 64)).astype(np.float32), rng.normal(size=(64, 32)).astype(np.float32)
    how = RECIPES[name]
    a, b = (np.asarray(RESTORE(QUANTIZE[name](v))).astype(np.float64) for v in (x, np.ascontiguousarray(w.T)))
    found = np.asarray(ts.function(lambda x, w: how.matmul(x, w))(x, w))
    np.testing.assert_allclose(found, a @ b.T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["tensor", "mx"])
def test_gradients_are_products_of_scaled_cotangents(name):
    x, w, ct = (rng.normal(size=s).astype(np.float32) for s in ((32, 64), (64, 32), (32, 32)))
    how, back = RECIPES[name], ts.scaled(RECIPES[name].kind, ts.fp8_e5m2)

    def held(recipe, v):
        return np.asarray(RESTORE(ts.function(lambda v: recipe.quantize(v))(np.ascontiguousarray(v)))).astype(float)

    dx, dw = ts.grad(ts.function(lambda x, w, ct: ts.sum(how.matmul(x, w) * ct)), argnums=(0, 1))(x, w, ct)
    np.testing.assert_allclose(dx, held(back, ct) @ held(how, w).T, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(dw, held(how, x.T) @ held(back, ct.T).T, rtol=1e-5, atol=1e-3)


HOW = ts.scaled("tensor")


@ts.function
def step(w: dict, x: Tensor["B", "D"], y: Tensor["B", "K"]):
    def loss(w):
        return ts.mse(HOW.matmul(ts.relu(HOW.matmul(x, w["up"])), w["down"]), y)

    return ts.value_and_grad(loss)(w)


def test_training_with_scaled_products():
    """Products in fp8 forwards and backwards, weights and sums in f32."""
    x = rng.normal(size=(64, 16)).astype(np.float32)
    y = np.tanh(x @ rng.normal(size=(16, 8))).astype(np.float32)
    w = {n: ts.asarray((rng.normal(size=s) / 4).astype(np.float32)) for n, s in (("up", (16, 32)), ("down", (32, 8)))}
    opt = AdamW(1e-2)
    state, losses = opt.init(w), []
    for _ in range(150):
        value, gradient = step(w, x, y)
        w, state = opt.update(w, gradient, state)
        losses.append(float(value))
    assert losses[-1] < 0.1 * losses[0] and losses[-1] < 0.1


@pytest.mark.parametrize(
    "kind, dtype, said",
    [
        ("row", ts.fp8_e4m3, "'tensor' or 'block' or 'mx', not"),
        ("mx", ts.bf16, "not bf16"),
        ("mx", ts.fp8_e8m0, "not fp8_e8m0"),
    ],
)
def test_what_cannot_be_scaled_is_refused(kind, dtype, said):
    with pytest.raises(ValueError, match=said):
        ts.scaled(kind, dtype)
    with pytest.raises(ValueError, match="no blocks"):
        ts.scaled("tensor", block=32)
    with pytest.raises(ts.TesseraError):
        QUANTIZE["mx"](np.ones((2, 33), np.float32))


@pytest.mark.parametrize("name", ["tensor", "mx"])
def test_numpy_arrays_are_scaled_outside_of_functions(name):
    how, x = RECIPES[name], rng.standard_normal((4, 64)).astype(np.float32)
    found, inside = how.quantize(x), QUANTIZE[name](x)
    assert np.array_equal(found.data, inside.data) and np.array_equal(found.scales, inside.scales)
    assert np.array_equal(found.dequantize(), RESTORE(inside))
    assert np.array_equal(how.matmul(x, x.T.copy()), ts.function(lambda x, w: how.matmul(x, w))(x, x.T.copy()))


def test_an_axis_that_is_not_a_multiple_of_the_block_says_so_where_it_is_called():
    how, x = RECIPES["mx"], np.ones((4, 50), np.float32)
    with pytest.raises(ValueError, match="32 elements, which does not divide 50"):
        how.quantize(x)
    with pytest.raises(ts.CompileError, match=r"TS105 in lambda at .*test_scaled(.|\n)*does not divide 3"):
        ts.grad(lambda w: ts.sum(how.matmul(np.ones((4, 64), np.float32), w)))(np.ones((64, 3), np.float32))
