"""Element types against NumPy and ml_dtypes, promotion, and the dtypes that other libraries speak of."""

from __future__ import annotations

import copy
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch

import tessera as ts
from tessera.language import dtypes
from tessera.language.dtypes import (
    ALIASES,
    ALL,
    BY_NAME,
    bf16,
    bool_,
    complex64,
    complex128,
    f16,
    f32,
    f64,
    fp4_e2m1,
    fp6_e2m3,
    fp8_e4m3,
    fp8_e5m2,
    fp8_e8m0,
    int8,
    int32,
    int64,
    named,
    of,
    promote,
    tf32,
    uint8,
    uint32,
    uint64,
    weak,
)  # fmt: skip
from tests.conftest import require

FLOATS = [d for d in ALL if d.is_float]
INTEGERS = [d for d in ALL if d.is_integer]


@pytest.mark.parametrize("d", [d for d in FLOATS if d is not tf32], ids=str)
def test_floats_are_what_ml_dtypes_says(d):
    info = ml_dtypes.finfo(d.numpy)
    assert (d.bits, d.mantissa) == (info.bits, info.nmant)
    assert d.maximum == float(info.max)
    assert d.exponent == d.bits - d.mantissa - (d is not fp8_e8m0)  # it has no sign


def test_tf32_is_stored_as_f32():
    assert tf32.numpy == np.dtype("float32")
    assert (tf32.itemsize, tf32.mantissa, tf32.compute) == (4, 10, f32)
    assert tf32.maximum == np.uint32(0x7F7FE000).view(np.float32)


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_integers_are_what_numpy_says(d):
    info = np.iinfo(d.numpy)
    assert (d.bits, d.maximum) == (info.bits, int(info.max))
    assert (d.kind == "uint") == (info.min == 0)


@pytest.mark.parametrize("d", ALL, ids=str)
def test_every_dtype(d):
    assert d.itemsize == d.numpy.itemsize
    assert of(d) is d
    assert of(d.name) is d
    assert of(d.numpy) is (f32 if d is tf32 else d)
    assert of(d.numpy.type) is (f32 if d is tf32 else d)
    assert str(d) == repr(d) == d.name
    assert promote(d, d) is d
    assert d.compute.compute is d.compute
    assert d.accumulate.accumulate is d.accumulate
    assert d.accumulate.bits >= max(32, d.bits)
    assert sum([d.is_float, d.is_integer, d.is_complex, d.kind == "bool"]) == 1


def test_small_floats_compute_in_f32():
    assert {d.name for d in FLOATS if d.compute is f32} == {d.name for d in FLOATS if d is not f64}
    assert not f32.is_low_precision
    assert {d.accumulate for d in (int8, int32, bool_)} == {int64}
    assert uint8.accumulate is uint64


def test_aliases_lead_to_dtypes():
    assert all(target in BY_NAME for target in ALIASES.values())
    assert not set(ALIASES) & set(BY_NAME)
    known = {
        "fp32": f32, "float16": f16, "bfloat16": bf16, "fp8": fp8_e4m3, "e5m2": fp8_e5m2, "fp4": fp4_e2m1, "half": f16,
        "double": f64, "i8": int8, "u32": uint32, "fp6": fp6_e2m3, "c64": complex64,
    }  # fmt: skip
    for name, want in known.items():
        assert named(name) is want
    assert named("f31") is None
    assert named("B") is None


@pytest.mark.parametrize(
    ("thing", "want"),
    [(float, f32), (int, int64), (bool, bool_), (complex, complex64), (np.float32, f32), (np.dtype("int8"), int8),
     (ml_dtypes.bfloat16, bf16), (np.dtype(ml_dtypes.float8_e4m3fn), fp8_e4m3), (np.dtype("float64"), f64),
     ("nothing", None), (object(), None), (None, None), (3, None), (str, None), (list, None)],
)  # fmt: skip
def test_what_other_objects_mean(thing, want):
    assert of(thing) is want


def test_dtypes_of_peers():
    torch, jnp = require("torch"), require("jax.numpy")
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool", "complex64"):
        want = named(name)
        assert want is not None
        assert of(getattr(torch, name)) is want
        assert of(jnp.dtype(name)) is want
    assert of(torch.float8_e5m2) is fp8_e5m2
    assert of(torch.float8_e4m3fn) is fp8_e4m3


@pytest.mark.parametrize(("a", "b"), list(product(ALL, ALL)), ids=str)
def test_promotion_laws(a, b):
    both = promote(a, b)
    assert both is promote(b, a)
    if both is None:
        assert (a.is_float and b.is_float) or {a.kind, b.kind} == {"int", "uint"}
        return
    assert promote(both, a) is both
    assert promote(both, b) is both
    ranks = ("bool", "uint", "int", "float", "complex")
    assert ranks.index(both.kind) == max(ranks.index(a.kind), ranks.index(b.kind))


def test_promotion_agrees_with_numpy_where_both_have_an_answer():
    """Except where NumPy widens a float because of an integer's width: there it is as in JAX and PyTorch."""
    classic = [d for d in ALL if d.kind != "float" or d in (f16, f32, f64)]
    for a, b in product(classic, classic):
        both, theirs = promote(a, b), np.promote_types(a.numpy, b.numpy)
        floating = {a.kind, b.kind} & {"float", "complex"}
        if floating and {a.kind, b.kind} & {"int", "uint"}:
            assert both in (a, b)
        elif both is not None:
            assert both.numpy == theirs, (a, b)
        else:
            assert theirs == np.float64  # uint64 with a signed integer: no integer holds both


def test_promotion_agrees_with_jax():
    jnp = require("jax.numpy")
    names = ["bool", "int8", "int32", "uint8", "uint32", "float16", "bfloat16", "float32", "complex64"]
    for x, y in product(names, names):
        a, b = named(x), named(y)
        assert a is not None and b is not None
        both, theirs = promote(a, b), jnp.promote_types(x, y)
        if {a, b} == {f16, bf16}:
            assert both is None  # JAX silently takes f32
        elif {a, b} == {uint32, int32} or {a, b} == {uint32, int8}:
            assert both is int64  # JAX has no int64 by default
        else:
            assert both is of(theirs), (x, y)


@pytest.mark.parametrize(
    ("a", "b"), [(f16, bf16), (fp8_e4m3, fp8_e5m2), (fp8_e4m3, f16), (fp4_e2m1, f32), (uint64, int8)], ids=str
)
def test_what_only_a_cast_may_decide(a, b):
    assert promote(a, b) is None


@pytest.mark.parametrize(
    ("value", "beside", "want"),
    [
        (True, None, bool_), (3, None, int64), (2.5, None, f32), (1j, None, complex64),
        (3, f16, f16), (3, int8, int8), (3, bool_, int64), (True, f16, f16), (2.5, bf16, bf16),
        (2.5, fp8_e4m3, fp8_e4m3),
        (2.5, int32, f32), (2.5, complex64, complex64), (1j, f32, complex64), (1j, f64, complex128), ("x", f32, None),
    ],
)  # fmt: skip
def test_python_numbers_adapt(value, beside, want):
    assert weak(value, beside) is want


def test_each_dtype_is_one_object():
    for dtype in ALL:
        assert copy.deepcopy(dtype) is dtype
        assert copy.copy(dtype) is dtype
    assert len(set(ALL)) == len(ALL)
    assert dtypes.BY_NAME["bool"] is bool_
    assert complex128.itemsize == 16
    with pytest.raises(AttributeError):
        f32.bits = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        f32 @ 3  # type: ignore[operator]


@ts.function
def one_more_if_single(x):
    return x + 1 if x.dtype == np.float32 and x.dtype in ("float32", torch.float16) else x


def test_dtypes_equal_those_of_other_libraries_and_their_names():
    for other in (np.float32, np.dtype("float32"), "float32", torch.float32):
        assert dtypes.f32 == other and other == dtypes.f32
        assert dtypes.f64 != other and dtypes.int32 != other
    assert dtypes.bf16 == ml_dtypes.bfloat16 and dtypes.f32 not in (None, 3, "text", np.int32, dtypes.tf32)
    assert {dtypes.f32: 1}[dtypes.f32] == 1
    ones, double = np.ones(2, np.float32), np.ones(2)
    assert one_more_if_single(ones).tolist() == [2, 2] and one_more_if_single(double).tolist() == [1, 1]


def test_numpy_takes_dtypes():
    for dtype in dtypes.ALL:
        assert np.dtype(dtype) == dtype.numpy and np.zeros(2, dtype).dtype == dtype.numpy
    assert np.finfo(dtypes.f64).eps == np.finfo(np.float64).eps
