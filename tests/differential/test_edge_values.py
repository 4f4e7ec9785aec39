"""Signed zeros, NaN, infinities, halves, division by zero, what integers cannot hold: as in NumPy on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import knobs
from tessera.language.dtypes import BY_NAME
from tests.conftest import require
from tests.fuzz.levels import NARROWER
from tests.together import ahead, builds

require("g++")
EMULATOR = "emulator:sm_80"
TARGETS = ("cpu", "reference", EMULATOR)
LENGTH = 32

FLOATS = [
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 7.25, -7.25, 255.5, -300.0, 4097.0, 1e-45, -1e-45,
    1e38, -1e38, np.inf, -np.inf, np.nan,
]  # fmt: skip
OUTSIDE = [
    *FLOATS, 127.0, 128.0, -128.0, -129.0, 254.75, 255.0, 256.0, 32767.5, -40000.0, 65535.0, 65536.0, 2147483520.0,
    2.0**31, -(2.0**31), -(2.0**31) - 512, 2.0**32, 2.0**33, 2.0**63, -(2.0**63), -(2.0**64), 2.0**64, 1e20, -1e20,
]  # fmt: skip
INTEGERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100]
INTEGER_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

Program = Callable[..., Any]
UNARY: dict[str, tuple[Program, Program]] = {
    "sign": (lambda x: ts.sign(x), np.sign),
    "abs": (lambda x: ts.abs(x), np.abs),
    "neg": (lambda x: -x, np.negative),
    "round": (lambda x: ts.round(x), np.round),
    "floor": (lambda x: ts.floor(x), np.floor),
    "ceil": (lambda x: ts.ceil(x), np.ceil),
    "trunc": (lambda x: ts.trunc(x), np.trunc),
    "square": (lambda x: ts.square(x), np.square),
    "sqrt": (lambda x: ts.sqrt(x), np.sqrt),
    "reciprocal": (lambda x: ts.reciprocal(x), np.reciprocal),
    "isnan": (lambda x: ts.isnan(x), np.isnan),
    "isinf": (lambda x: ts.isinf(x), np.isinf),
    "isfinite": (lambda x: ts.isfinite(x), np.isfinite),
    "relu": (lambda x: ts.relu(x), lambda x: np.where(x == 0, np.zeros_like(x), np.maximum(x, 0))),
    "logical_not": (lambda x: ts.logical_not(x), np.logical_not),
}
BINARY: dict[str, tuple[Program, Program]] = {
    "maximum": (lambda x, y: ts.maximum(x, y), np.maximum),
    "minimum": (lambda x, y: ts.minimum(x, y), np.minimum),
    "mod": (lambda x, y: x % y, np.mod),
    "floordiv": (lambda x, y: x // y, np.floor_divide),
    "div": (lambda x, y: x / y, np.divide),
    "sub": (lambda x, y: x - y, np.subtract),
    "mul": (lambda x, y: x * y, np.multiply),
    "less": (lambda x, y: x < y, np.less),
    "equal": (lambda x, y: x == y, np.equal),
    "where": (lambda x, y: ts.where(x < y, x, y), lambda x, y: np.where(x < y, x, y)),
}
WHOLE = {name: BINARY[name] for name in ("maximum", "minimum", "mod", "floordiv", "sub", "mul")}
PROGRAMS = {key: ts.function(program) for key, (program, _) in {**UNARY, **BINARY}.items()}
SIGNLESS_ZERO = ("maximum", "minimum", "relu")
"""which of 0 and -0 is larger is not said"""


def same(got: Any, want: Any, about: str, zeros: bool = True) -> None:
    """Equal element by element, NaN to NaN, and zeros with their signs."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, about
    equal = got == want
    if want.dtype.kind == "f":
        if zeros:
            equal &= np.signbit(got) == np.signbit(want)
        equal |= np.isnan(got) & np.isnan(want)
    if not equal.all():
        pytest.fail(f"{about}: {got[~equal]} instead of {want[~equal]} at {np.flatnonzero(~equal)}")


def agree(name: str, *args: Any) -> None:
    want = {**UNARY, **BINARY}[name][1]
    with np.errstate(all="ignore"):
        expected = want(*args)
    for target in TARGETS:
        with knobs.target.override(target):
            same(PROGRAMS[name](*args), expected, f"{name} on {target}", name not in SIGNLESS_ZERO)


def pairs(values: list[Any], dtype: str) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        x = np.array(values).astype(dtype)
    return np.repeat(x, len(x)), np.tile(x, len(x))


def whole(dtype: str) -> tuple[Any, Any]:
    """Pairs of integers, the least and the largest among them."""
    ends = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return pairs([*(np.array(INTEGERS).astype(dtype)), *(np.array(ends, dtype))], dtype)


def single(dtype: str) -> Any:
    return np.array([*INTEGERS, np.iinfo(dtype).max]).astype(dtype)


@builds(lambda name, dtype: ahead(EMULATOR, PROGRAMS[name], np.array(FLOATS).astype(dtype)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_floats(name: str, dtype: str, built: None) -> None:
    agree(name, np.array(FLOATS).astype(dtype))


@builds(lambda name, dtype: ahead(EMULATOR, PROGRAMS[name], *pairs(FLOATS, dtype)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_floats(name: str, dtype: str, built: None) -> None:
    agree(name, *pairs(FLOATS, dtype))


PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 88.9, -100.0, 1e30, -1e30, np.inf, -np.inf, np.nan]
COMPLEX: dict[str, tuple[Program, Program]] = {
    "abs": (lambda z: ts.abs(z), np.abs),
    "exp": (lambda z: ts.exp(z), np.exp),
    "log": (lambda z: ts.log(z), np.log),
    "sqrt": (lambda z: ts.sqrt(z), np.sqrt),
    "reciprocal": (lambda z: ts.reciprocal(z), np.reciprocal),
    "neg": (lambda z: -z, np.negative),
}


def parts_agree(got: Any, want: Any, about: str) -> None:
    """Real and imaginary parts: NaN to NaN, infinities and zeros with their signs, other numbers to a few places."""
    rtol = 2e-6 if want.dtype in (np.complex64, np.float32) else 1e-14
    got = np.asarray(got)
    assert got.dtype == want.dtype, about
    for a, b in ((got.real, want.real), (got.imag, want.imag)):
        right = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= rtol * np.abs(want))
        right &= (np.signbit(a) == np.signbit(b)) | np.isnan(b) | ((b != 0) & np.isfinite(b))
        if not right.all():
            pytest.fail(f"{about}: {got[~right]} instead of {want[~right]}")


OF_COMPLEX = {name: ts.function(program) for name, (program, _) in COMPLEX.items()}


def numbers(dtype: str) -> Any:
    re, im = pairs(PARTS, dtype.replace("complex64", "float32").replace("complex128", "float64"))
    z = np.empty(re.shape, dtype)
    z.real, z.imag = re, im
    if dtype == "complex128":
        z.real[np.abs(z.real) == 88.9] = 709.9
    return z


@builds(lambda name, dtype: ahead(EMULATOR, OF_COMPLEX[name], numbers(dtype)))
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_functions(name: str, dtype: str, built: None) -> None:
    z, of = numbers(dtype), COMPLEX[name][1]
    with np.errstate(all="ignore"):
        want = of(z)
    for target in TARGETS:
        with knobs.target.override(target):
            parts_agree(OF_COMPLEX[name](z), want, f"{name} of {dtype} on {target}")


@builds(lambda name, dtype: ahead(EMULATOR, PROGRAMS[name], *whole(dtype)))
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
@pytest.mark.parametrize("name", WHOLE)
def test_binary_integers(name: str, dtype: str, built: None) -> None:
    agree(name, *whole(dtype))


@builds(lambda name, dtype: ahead(EMULATOR, PROGRAMS[name], single(dtype)))
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16"])
@pytest.mark.parametrize("name", ["sign", "abs", "neg", "square"])
def test_unary_integers(name: str, dtype: str, built: None) -> None:
    agree(name, single(dtype))


@pytest.mark.parametrize("name", ["mod", "floordiv", "sign", "round", "maximum"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_floats(name: str, data: st.DataObject) -> None:
    values = st.lists(st.floats(width=32) | st.sampled_from(FLOATS[:17]), min_size=LENGTH, max_size=LENGTH)
    count = 1 if name in UNARY else 2
    args = [np.array(data.draw(values)).astype(np.float32) for _ in range(count)]
    if name == "floordiv":  # beyond 2**22 the last place of a quotient is what NumPy's own two roundings make of it
        with np.errstate(all="ignore"):
            large = (
                np.isfinite(args[0]) & (np.abs(args[1]) > 0) & (np.abs(args[0].astype(np.float64) / args[1]) > 2**22)
            )
        args = [np.where(large, np.float32(1), x) for x in args]
    agree(name, *args)


# Casts


def saturated(x: Any, dtype: str) -> Any:
    """One element at a time in Python's integers: cut off, held within the range, NaN is 0."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def one(v: float) -> int:
        if np.isnan(v):
            return 0
        return (low if v < 0 else high) if np.isinf(v) else min(max(int(v), low), high)

    return np.array([one(float(v)) for v in x], dtype)


def cast_to(dtype: str) -> Any:
    to = BY_NAME[dtype]
    return ts.function(lambda x: ts.cast(x, to))


CASTS = {dtype: cast_to(dtype) for dtype in INTEGER_TYPES}


def outside(source: str) -> Any:
    with np.errstate(all="ignore"):
        return np.array(OUTSIDE).astype(source)


@builds(lambda dtype, source: ahead(EMULATOR, CASTS[dtype], outside(source)))
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_floats_become_integers(dtype: str, source: str, built: None) -> None:
    x = outside(source)
    for target in TARGETS:
        with knobs.target.override(target):
            same(CASTS[dtype](x), saturated(x, dtype), f"{source} to {dtype} on {target}")


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_constants_become_integers_in_the_same_way(dtype: str) -> None:
    """What is folded at compile time is what would have been computed."""
    values, to = [-1.5, 300.0, 1e20, -1e20, np.nan, -np.inf], BY_NAME[dtype]
    program = ts.function(lambda x: ts.stack([ts.cast(ts.full((), v, ts.f32), to) for v in values]) + ts.cast(x, to))
    same(program(np.zeros((), np.float32)), saturated(np.array(values, np.float32), dtype), dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32"])
def test_integers_wrap(dtype: str) -> None:
    x = np.array([0, -1, 127, 128, 255, 256, 2**31 - 1, -(2**31), 2**40 + 5], np.int64)
    for target in TARGETS:
        with knobs.target.override(target):
            same(CASTS[dtype](x), x.astype(dtype), f"int64 to {dtype} on {target}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_exponent_for_all_is_a_power_too(dtype: str) -> None:
    """NumPy takes the root of -inf for a power of 0.5, and gives NaN."""
    x = np.array([-np.inf, -0.0, 4.0, -4.0], dtype)
    halves = np.full(4, 0.5, dtype)
    with np.errstate(all="ignore"):
        want = np.power(x, halves)
    power = ts.function(lambda x, y: (x**0.5, x**y))
    for target in TARGETS:
        with knobs.target.override(target):
            for got in power(x, halves):
                same(got, want, f"a power of 0.5 on {target}")


MOVES: dict[str, tuple[Program, Program]] = {
    "flip": (lambda x: ts.flip(x, 0), lambda x: x[::-1]),
    "take": (lambda x: ts.take(x, ts.arange(4), axis=0), lambda x: x[:4]),
    "where": (lambda x: ts.where(ts.arange(LENGTH) < 9, x, ts.flip(x, 0)), lambda x: [*x[:9], *x[::-1][9:]]),
    "concat": (lambda x: ts.concat([x, x], 0), lambda x: [*x, *x]),
    "sort": (lambda x: ts.sort(x), lambda x: x),
    "neg": (lambda x: -x, lambda x: ~x),
    "abs": (lambda x: ts.abs(x), lambda x: x & False),
    "copysign": (lambda x: ts.copysign(x, -ts.ones_like(x)), lambda x: x | True),
}
"""What moves NaN or changes its sign, and what becomes of the sign (docs/decisions/0008-one-order-for-reductions.md)"""


@pytest.mark.parametrize("target", ["cpu", *NARROWER, "reference"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_the_sign_of_nan_is_moved_and_changed_as_that_of_numbers(dtype: str, target: str) -> None:
    negative = np.random.default_rng(1).integers(0, 2, LENGTH).astype(bool)
    x = np.copysign(np.full(LENGTH, np.nan), np.where(negative, -1, 1)).astype(BY_NAME[dtype].numpy)
    with knobs.target.override(target):
        found = ts.function(lambda x: tuple(f(x) for f, _ in MOVES.values()))(x)
    for name, value, (_, signs) in zip(MOVES, found, MOVES.values(), strict=True):
        assert np.isnan(value.astype(np.float64)).all(), name
        np.testing.assert_array_equal(np.signbit(value.astype(np.float64)), signs(negative), err_msg=name)
