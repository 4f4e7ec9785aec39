"""`saturate_cast` and `stochastic_cast` on every target: edge values, chances, keys; the policies `saturate` and
`loss_scale` in programs."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor, f16, f32, knobs
from tessera.language.dtypes import BY_NAME

TARGETS = ("cpu", "reference", "emulator:sm_80")
FORMATS = ("f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1")


def edges(dtype):
    """Around the largest value, where what is above rounds to infinity, and around the smallest ones."""
    d = BY_NAME[dtype]
    least = 2.0 ** (2 - 2 ** (d.exponent - 1))
    most = [d.maximum, d.maximum * (1 + 2.0 ** -(d.mantissa + 1)), d.maximum * 1.5]
    return [*most, least, least * 2.0**-d.mantissa, 1.0, 0.0, 1e-44, math.inf, math.nan]


with np.errstate(all="ignore"):
    EDGES = np.array([s * v for d in (*FORMATS, "f32") for v in edges(d) for s in (1, -1)]).astype(np.float32)
HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)


def saturating(dtype):
    return ts.function(lambda x: ts.saturate_cast(x, dtype))


def stochastic(dtype):
    return ts.function(lambda x, key: ts.stochastic_cast(x, dtype, key))


SATURATE = {name: saturating(BY_NAME[name]) for name in (*FORMATS, "f32", "int8", "uint16", "int64")}
STOCHASTIC = {name: stochastic(BY_NAME[name]) for name in (*FORMATS, "f32", "tf32")}


def raw(x):
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def same(a, b):
    """Bit by bit, but for which NaN it is."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    nan = np.isnan(a.astype(np.float64))
    np.testing.assert_array_equal(nan, np.isnan(b.astype(np.float64)))
    np.testing.assert_array_equal(raw(a)[~nan], raw(b)[~nan])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_floats_are_held_at_the_largest_value(dtype, target):
    """Against ml_dtypes: rounded to nearest even, then held."""
    limit = np.float32(BY_NAME[dtype].maximum)
    x = np.concatenate([EDGES, HALVES if target == "cpu" else HALVES[::331]])
    with knobs.target.override(target), np.errstate(all="ignore"):
        held = np.where(np.isinf(x), np.copysign(limit, x), x)
        held = held if BY_NAME[dtype].has_nan else np.where(np.isnan(x), 0, held)
        near = np.clip(held, -limit, limit).astype(BY_NAME[dtype].numpy)
        same(SATURATE[dtype](x), near)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [f for f in FORMATS if BY_NAME[f].bits < 8])
def test_nan_becomes_0_in_dtypes_that_have_none(dtype, target):
    """Also where it is not stored but read at once."""
    d = BY_NAME[dtype]
    x = np.array([np.nan, -np.nan, 0, 1], np.float32)

    @ts.function
    def quotients(x):
        y = ts.cast(x, d)
        return y, y / y, ts.cast(y / y, ts.f32) + 2

    with knobs.target.override(target):
        y, ratio, read = quotients(x)
    assert [raw(v).tolist() for v in (y, ratio)] == [raw(np.array(v, d.numpy)).tolist() for v in ([0, 0, 0, 1],) * 2]
    assert read.tolist() == [2, 2, 2, 3]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
@pytest.mark.parametrize("source", ["int8", "int64", "uint64"])
def test_integers_are_held_within_the_range(source, dtype, target):
    info, to = np.iinfo(source), np.iinfo(dtype)
    values = {
        info.min,
        info.max,
        info.min // 2,
        info.max // 2,
        0,
        1,
        100,
        *(v for v in (to.min, to.max) if v <= info.max),
    }
    x = np.array(sorted(v for v in values if info.min <= v), source)
    with knobs.target.override(target):
        got = np.asarray(SATURATE[dtype](x))
    assert got.tolist() == [min(max(int(v), to.min), to.max) for v in x.tolist()] and got.dtype == dtype


def test_a_wider_float_is_held_too():
    x = np.array([1e300, -1e300, 1e-300, np.nan, np.inf])
    same(SATURATE["f32"](x), np.array([ts.f32.maximum, -ts.f32.maximum, 0, np.nan, ts.f32.maximum], np.float32))


@cache
def every(dtype):
    """All finite numbers of a dtype."""
    bits = np.arange(2 ** BY_NAME[dtype].bits, dtype=np.uint16 if BY_NAME[dtype].bits == 16 else np.uint8)
    with np.errstate(all="ignore"):
        values = bits.view(BY_NAME[dtype].numpy).astype(np.float32)
    return values[np.isfinite(values)]


def neighbours(x, dtype):
    """The value of `dtype` that is not above x, and the one that is not below."""
    values = np.unique(every(dtype).astype(np.float64))
    at = np.searchsorted(values, x, "right") - 1
    below = values[at]
    return below, np.where(below == x, below, values[np.minimum(at + 1, values.size - 1)])


@pytest.mark.parametrize("dtype", FORMATS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_neighbour_is_taken(dtype, data):
    limit = min(BY_NAME[dtype].maximum, 2.0**127)
    values = (
        st.floats(-limit, limit, width=32) | st.floats(-(2.0**-13), 2.0**-13, width=32) | st.floats(-8, 8, width=32)
    )
    x = np.array(data.draw(st.lists(values, min_size=16, max_size=16)), np.float32)
    x = x[np.abs(x) <= limit]
    got = np.asarray(STOCHASTIC[dtype](x, data.draw(st.integers(0, 2**31)))).astype(np.float64)
    below, above = neighbours(x.astype(np.float64), dtype)
    assert np.all((got == below) | (got == above)), (x, got, below, above)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


@pytest.mark.parametrize("dtype", [*FORMATS, "f32"])
def test_what_is_held_exactly_stays(dtype):
    x = every("f16" if dtype == "f32" else dtype)
    same(STOCHASTIC[dtype](x, 3), x.astype(BY_NAME[dtype].numpy))


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_has_no_bias(dtype):
    """2**16 draws of a value with a known chance: the mean is within five standard deviations, all over the range.

    With p the chance of the upper neighbour, n draws give it n p times, give or take sqrt(n p (1 - p)).
    """
    n, to = 2**16, BY_NAME[dtype]
    least = 2.0 ** (2 - 2 ** (to.exponent - 1))
    for k, base in enumerate((1.0, least, least / 2, to.maximum / 2, -1.0)):
        for p in (0.25, 0.01, 0.9):
            below, above = neighbours(np.array([np.float32(abs(base)) * (1 + 1e-6)]), dtype)
            x = np.float32(np.copysign(below[0] + p * (above[0] - below[0]), base))
            got = np.abs(np.asarray(STOCHASTIC[dtype](np.full(n, x), 100 + k)).astype(np.float64))
            exact = (abs(float(x)) - below[0]) / (above[0] - below[0])
            up = np.mean(got == above[0])
            assert abs(up - exact) < 5 * math.sqrt(exact * (1 - exact) / n), (base, p, up)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "fp8_e4m3", "fp4_e2m1"])
def test_a_key_rounds_alike_everywhere(dtype):
    """On every target, for any number of threads, and for parts of shapes that are scheduled in other ways."""
    x = np.concatenate([EDGES, (HALVES[::61].astype(np.float64) * 1.01).astype(np.float32)])
    x = x[~np.isnan(x)] if BY_NAME[dtype].bits < 8 else x
    want = np.asarray(STOCHASTIC[dtype](x, 5))
    for target in TARGETS[1:]:
        with knobs.target.override(target):
            same(STOCHASTIC[dtype](x, 5), want)
    threads = ts.get_num_threads()
    try:
        ts.set_num_threads(1)
        same(STOCHASTIC[dtype](x, 5), want)
    finally:
        ts.set_num_threads(threads)
    rows = x[: x.size // 2 * 2].reshape(2, -1)
    same(np.asarray(STOCHASTIC[dtype](rows, 5)).ravel(), want[: rows.size])
    assert np.any(raw(STOCHASTIC[dtype](x, 6)) != raw(want))


@pytest.mark.parametrize("draw", [0, 1, 2])
def test_random_bits_carry_into_bf16(draw):
    """The definition: 16 bits of a draw are added to the half that is cut off; what is no number stays."""
    x = np.concatenate(
        [EDGES, np.random.default_rng(0).standard_normal(5000).astype(np.float32), np.float32(1e-40) * np.arange(99)]
    )
    x = x.astype(np.float32)
    bits = np.asarray(ts.random_bits(5, x.shape, dtype=ts.uint32))
    part = (bits >> 16, bits & 0xFFFF, (bits >> 16) ^ (bits & 0xFFFF))[draw]
    want = (((x.view(np.uint32) + part) >> 16).astype(np.uint16)).view(BY_NAME["bf16"].numpy)
    with np.errstate(all="ignore"):
        want = np.where(np.isnan(x), x.astype(BY_NAME["bf16"].numpy), want)
        nearest = x.astype(BY_NAME["bf16"].numpy)
    same(ts.stochastic_cast(x, ts.bf16, 5, draw=draw), want)
    inside = np.isfinite(nearest)
    assert 0.2 < np.mean(want[inside] != nearest[inside]) < 0.3


@pytest.mark.parametrize("dtype", ["bf16", "f16", "fp8_e4m3"])
def test_draws_of_one_key_are_independent(dtype):
    """Each rounds up with the right chance, and two of them both do with the product of their chances."""
    n, x = 2**16, np.full(2**16, 1 + 0.3 * 2.0 ** -BY_NAME[dtype].mantissa, np.float32)
    ups = [np.asarray(ts.stochastic_cast(x, BY_NAME[dtype], 11, draw=d)).astype(np.float32) > 1 for d in range(3)]
    for i in range(3):
        assert abs(ups[i].mean() - 0.3) < 5 * (0.21 / n) ** 0.5
        assert abs((ups[i] & ups[i - 1]).mean() - 0.09) < 5 * (0.0819 / n) ** 0.5
    with pytest.raises(ts.CompileError, match=r"TS213[\s\S]*draw 3; use another key"):
        ts.stochastic_cast(x, BY_NAME[dtype], 11, draw=3)


def test_a_gradient_goes_through_conversions():
    for f in (
        lambda x: ts.sum(ts.saturate_cast(x, f16).to(f32)),
        lambda x: ts.sum(ts.stochastic_cast(x, f16, 3).to(f32)),
    ):
        assert ts.grad(f)(np.array([1.0, 1e9, 0.3], np.float32)).tolist() == [1, 1, 1]


def test_a_key_may_be_a_number_outside_of_functions():
    """It is an integer beside floats; as a number of the floats' dtype it was refused."""
    x = np.full(100, 1.001, np.float32)
    same(ts.stochastic_cast(x, ts.bf16, 3), STOCHASTIC["bf16"](x, 3))
    assert np.any(np.asarray(ts.dropout(x, 3, 0.5)) == 0)


def test_what_conversions_refuse():
    x = np.ones(3, np.float32)
    for bad in (lambda: ts.saturate_cast(x, ts.bool_), lambda: ts.stochastic_cast(x, ts.int8, 1),
                lambda: ts.stochastic_cast(x, ts.fp8_e8m0, 1), lambda: ts.saturate_cast(x.astype(np.complex64), f16),
                lambda: ts.stochastic_cast(x, f16, 1.5)):  # fmt: skip
        with pytest.raises(ts.CompileError, match="TS301"):
            bad()
    with pytest.raises(ts.CompileError, match="a key is one integer"):
        ts.stochastic_cast(x, f16, np.arange(3))


# policies


@ts.function
def powers(x: Tensor["N", f16 @ ts.saturate]):
    y = x * x
    masked = ts.where(x > 0, x, -math.inf)
    return y, ts.exp(x), masked, ts.softmax(masked), x / 0.0, ts.sum(ts.abs(x) * 100.0), ts.sum(y.to(f32))


@pytest.mark.parametrize("target", TARGETS)
def test_a_tensor_that_saturates(target):
    x = np.array([1, 300, -300, 200], np.float16)
    with knobs.target.override(target):
        y, e, masked, weights, over, total, wide = map(np.asarray, powers(x))
    assert y.tolist() == [1, 65504, 65504, 40000] and e.tolist()[1:] == [65504, 0, 65504]
    assert masked.tolist() == [1, 300, -math.inf, 200]  # an infinity that is written stays
    assert weights[2] == 0 and weights[1] == 1
    assert over.tolist() == [65504, 65504, -65504, 65504] and total == 65504 and wide == 171009


def test_nan_is_not_hidden():
    assert np.isnan(powers(np.array([np.nan, 1], np.float16))[0][0])


def test_results_and_variables_say_what_holds():
    @ts.function
    def held(x: Tensor["N", f16 @ ts.saturate]) -> Tensor["N", f16 @ ts.saturate]:
        y: Tensor["N", f16 @ ts.saturate] = x * x
        return y

    assert held(np.array([300], np.float16))[0] == 65504

    @ts.function
    def not_held(x: Tensor["N", f16]) -> Tensor["N", f16 @ ts.saturate]:
        return x * x

    with pytest.raises(ts.CompileError, match=r"TS306.*[\s\S]*say it of a parameter"):
        not_held(np.array([300], np.float16))


@ts.function
def difference(x: Tensor["N", f32 @ ts.accum(ts.f64)]):
    return ts.sum(x)


@ts.function
def of_another(x: Tensor["N"]):
    return difference(x * 1.0), difference(x)


def test_policies_of_a_function_hold_where_it_is_called():
    """2**30 + 1 - 2**30 is 0 in f32."""
    x = np.array([2**30, 1, -(2**30)], np.float32)
    assert [float(v) for v in of_another(x)] == [1, 1] and difference(x) == 1

    @ts.function
    def disagrees(x: Tensor["N", f32 @ ts.accum(f32)]):
        return difference(x)

    with pytest.raises(ts.CompileError, match="TS305"):
        disagrees(x)


def test_a_backward_pass_saturates():
    @ts.function
    def loss(x: Tensor["N", f16 @ ts.saturate]):
        return ts.sum(x * x * x)

    assert ts.grad(loss)(np.array([300, 2], np.float16)).tolist() == [65504, 12]


def test_kernels_say_themselves_how_they_round():
    @ts.kernel
    def k(x: Tensor["N", f16 @ ts.saturate], y: Tensor["N", f16]):
        i = ts.tile.linear_id()
        if i < N:
            y[i] = x[i]

    with pytest.raises(ts.CompileError, match=r"TS306.*[\s\S]*ts.tile.minimum"):
        k(np.ones(3, np.float16), np.ones(3, np.float16))


def test_kernels_say_themselves_what_they_multiply_in():
    @ts.kernel
    def k(x: Tensor["N", f32 @ ts.compute(ts.bf16)], y: Tensor["N", f32]):
        i = ts.tile.linear_id()
        if i < N:
            y[i] = x[i] * x[i]

    with pytest.raises(ts.CompileError, match=r"TS306.*[\s\S]*@compute\(bf16\) is not enforced in kernels"):
        k(np.ones(3, np.float32), np.ones(3, np.float32))


def test_a_loss_scale_keeps_small_gradients():
    """Cotangents of 2.4e-10 are 0 in f16, 2048 times as large they are not."""

    def loss(w: Tensor["N", f32], x: Tensor["N", f16]):
        return ts.mean(w.to(f16) * x * 1e-4)

    def scaled(w: Tensor["N", f32], x: Tensor["N", f16 @ ts.loss_scale(2048.0)]):
        return ts.mean(w.to(f16) * x * 1e-4)

    w, x = np.ones(4096, np.float32), np.full(4096, 0.01, np.float16)
    exact = 0.01 * 1e-4 / 4096
    assert not np.any(ts.grad(ts.function(loss))(w, x))
    np.testing.assert_allclose(ts.grad(ts.function(scaled))(w, x), exact, rtol=0.15)
    _, pullback = ts.vjp(ts.function(scaled), w, x)
    np.testing.assert_allclose(pullback(np.float16(1))[0], exact, rtol=0.15)
