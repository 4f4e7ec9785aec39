"""Conversions of wider numbers to small floats round once on every target; numbers in programs and arguments too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tessera.language.dtypes import BY_NAME
from tests.conftest import require

require("g++")
TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
SMALL = ("f16", "bf16", "fp8_e4m3", "fp8_e5m2")
WIDE = ("f64", "int32", "int64", "uint32", "uint64")
RNG = np.random.default_rng(3)


def nearest(value, d):
    """A number rounded once to the nearest value of a float dtype, ties to even."""
    exact = Fraction(int(value)) if isinstance(value, np.integer) else Fraction(float(value))
    exponent = 2 - 2 ** (d.exponent - 1)
    while Fraction(2) ** (exponent + 1) <= abs(exact):
        exponent += 1
    step = Fraction(2) ** (exponent - d.mantissa)
    return float(round(exact / step) * step)


def around_ties(d, wide):
    """Halves between two neighbours of `d`, and what lies a little beside them."""
    bits = d.mantissa
    if not wide.is_integer:
        exponents = RNG.integers(2 - 2 ** (d.exponent - 1), 2 ** (d.exponent - 1) - 1, 200)
        ties = np.ldexp(1 + (RNG.integers(0, 2**bits, 200) + 0.5) / 2.0**bits, exponents)
        beside = np.ldexp(1.0, exponents - RNG.integers(25, 50, 200)) * RNG.choice([-1, 0, 1], 200)
        return (ties + beside) * RNG.choice([-1, 1], 200)
    limits = np.iinfo(wide.numpy)
    shifts = RNG.integers(1, min(2 ** (d.exponent - 1) - 1, limits.bits - 1) - bits, 200)
    ties = [
        (2 ** (bits + 1) + 2 * int(m) + 1) << int(s) >> 1
        for m, s in zip(RNG.integers(0, 2**bits, 200), shifts, strict=True)
    ]
    signs = RNG.choice([-1, 1], 200) if wide.kind == "int" else np.ones(200, int)
    found = [int(s) * (t + int(b)) for s, t, b in zip(signs, ties, RNG.integers(-1, 2, 200), strict=True)]
    return np.array([min(max(v, limits.min), limits.max) for v in found], wide.numpy)


@ts.kernel(BLOCK=64)
def converted(x: Tensor["n"], y: Tensor["n"]):
    i = ts.tile.linear_id()
    y[i] = x[i]


CASTING = {s: ts.function(lambda x, s=BY_NAME[s]: x.to(s)) for s in SMALL}


@TARGETS
@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("wide", WIDE)
def test_conversions(wide, small, target):
    d = BY_NAME[small]
    x = around_ties(d, BY_NAME[wide])
    wanted = np.array([nearest(v, d) for v in x])
    inside = np.abs(wanted) <= d.maximum
    found = np.zeros(len(x), d.numpy)
    with knobs.target.override(target):
        converted(x, found)
        cast = np.asarray(CASTING[small](x))
    for result in (found, cast):
        np.testing.assert_array_equal(result.astype(np.float64)[inside], wanted[inside])


ABOVE_A_TIE = {
    "f16": 1 + 2**-11 + 2**-40,
    "bf16": 1 + 2**-8 + 2**-40,
    "tf32": 1 + 2**-11 + 2**-40,
    "fp8_e4m3": 2.125 + 2**-40,
}
"""Each is the next value above 1 or 2, but the even one below where it goes by way of f32"""


def numbers(name):
    d, value = BY_NAME[name], ABOVE_A_TIE[name]

    @ts.kernel
    def written() -> Tensor[8, ts.f64]:
        out: Tensor[8, ts.f64]
        out[0:8] = ts.tile.full((8,), value, d)
        return out

    @ts.kernel
    def given(v: d) -> Tensor[8, ts.f64]:
        out: Tensor[8, ts.f64]
        out[0:8] = ts.tile.full((8,), v, d)
        return out

    return written, given


@TARGETS
@pytest.mark.parametrize("name", ABOVE_A_TIE)
def test_numbers(name, target):
    d = BY_NAME[name]
    wanted = 2.25 if name == "fp8_e4m3" else 1 + 2.0**-d.mantissa
    written, given = numbers(name)
    with knobs.target.override(target):
        assert (np.asarray(written()) == wanted).all()
        assert (np.asarray(given(ABOVE_A_TIE[name])) == wanted).all()


@ts.kernel
def one_by_one(x: Tensor["n"], y: Tensor["n", ts.f32]):
    p = ts.tile.program_id()
    y[p] = x[p]


@TARGETS
@pytest.mark.parametrize("name", ["fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "bf16", "f16", "int8"])
def test_single_elements_of_every_small_dtype(name, target):
    x, y = np.array([1, 0, 2, 3], np.float32).astype(BY_NAME[name].numpy), np.zeros(4, np.float32)
    with knobs.target.override(target):
        one_by_one(x, y)
    assert y.tolist() == [1, 0, 2, 3]


@ts.kernel(BLOCK=16)
def powers(x: Tensor["n", ts.int32], y: Tensor["n", ts.int32], z: Tensor["n", ts.int32]):
    i = ts.tile.linear_id()
    z[i] = x[i] ** y[i]


@TARGETS
def test_negative_powers_of_integers(target):
    x, y = np.array([2, 1, -1, -1, 0, 3, -2], np.int32), np.array([-1, -5, -2, -3, -1, 4, 3], np.int32)
    z = np.zeros_like(x)
    with knobs.target.override(target):
        powers(x, y, z)
    assert z.tolist() == [0, 1, 1, -1, 0, 81, -8]
