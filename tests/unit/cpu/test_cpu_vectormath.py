"""The vector elementary functions: distance from the exact value in units of the last place, and special values."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cpu.llvm.emit import I64, PTR, LLVMFunction, LLVMModule, ty
from tessera.compiler.targets.cpu.llvm.isa import LEVELS, VectorISA, host

WIDE = np.longdouble
exact_erf: Callable[[Any], Any] = np.vectorize(math.erf, otypes=[np.float64])
exact_erfc: Callable[[Any], Any] = np.vectorize(math.erfc, otypes=[np.float64])

# name -> (exact function in long double, interval of arguments, ulp allowed)
UNARY: dict[str, tuple[Callable[[Any], Any], tuple[float, float], float]] = {
    "exp": (np.exp, (-80, 80), 1.0),
    "exp2": (np.exp2, (-120, 120), 1.0),
    "expm1": (np.expm1, (-20, 80), 2.0),
    "log": (np.log, (1e-30, 1e30), 1.0),
    "log2": (np.log2, (1e-30, 1e30), 1.0),
    "log10": (np.log10, (1e-30, 1e30), 2.0),
    "log1p": (np.log1p, (-0.999, 1e6), 1.0),
    "sin": (np.sin, (-1e4, 1e4), 1.6),
    "cos": (np.cos, (-1e4, 1e4), 1.6),
    "tan": (np.tan, (-1e4, 1e4), 3.0),
    "atan": (np.arctan, (-100, 100), 2.0),
    "sinh": (np.sinh, (-80, 80), 2.0),
    "cosh": (np.cosh, (-80, 80), 2.0),
    "tanh": (np.tanh, (-12, 12), 2.5),
    "erf": (exact_erf, (-5, 5), 1.5),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), (-80, 80), 2.5),
    "silu": (lambda x: x / (1 + np.exp(-x)), (-80, 80), 3.5),
    "softplus": (lambda x: np.logaddexp(WIDE(0), x), (-80, 80), 2.0),
    "gelu_tanh": (
        lambda x: x / (1 + np.exp(-2 * np.sqrt(2 / WIDE(np.pi)) * (x + WIDE("0.044715") * x**3))),
        (-4, 6),
        24.0,  # the exponent, up to 11, is rounded
    ),
    "gelu": (lambda x: x * exact_erfc(-(x / np.sqrt(WIDE(2))).astype("f8")) / 2, (-4, 6), 8.0),
}
BINARY: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "atan2": (np.arctan2, 2.5),
    "pow": (np.power, 1.0),
    "mod": (np.mod, 1.0),
    "floordiv": (np.floor_divide, 0.0),
}


@cache
def compiled(name: str, bits: int, isa: VectorISA) -> tuple[jit.Loaded, Any]:
    """`f(a, b, out, n)` over arrays of full vectors."""
    module = LLVMModule(jit.attributes(isa))
    fn = LLVMFunction(module, "f", [("a", PTR), ("b", PTR), ("out", PTR), ("n", I64)])
    t = ty("f", bits, isa.lanes(bits))
    with fn.loop(0, fn.param(3), t.lanes) as at:
        args = [fn.load(fn.gep(fn.param(i), at.index, t.elem), t) for i in range(2 if name in BINARY else 1)]
        fn.store(getattr(VectorMath(fn, isa), name)(*args), fn.gep(fn.param(2), at.index, t.elem))
    code = jit.Loaded(jit.compile_object(module.render()[0], isa, name))
    return code, ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(code.address("f"))


def apply(name: str, isa: VectorISA, x: Any, y: Any = None) -> Any:
    pad = -len(x) % 64
    x = np.pad(x, (0, pad), constant_values=1)
    y = x if y is None else np.pad(y, (0, pad), constant_values=1)
    out = np.empty_like(x)
    compiled(name, 8 * x.itemsize, isa)[1](x.ctypes.data, y.ctypes.data, out.ctypes.data, len(x))
    return out[: len(out) - pad]


def ulps(got: Any, exact: Any) -> float:
    with np.errstate(all="ignore"):
        near = exact.astype(got.dtype)
        unit = np.spacing(np.maximum(np.abs(near), np.finfo(got.dtype).tiny)).astype(WIDE)
        return float(np.max(np.abs(got.astype(WIDE) - exact) / unit))


def arguments(dtype: Any, low: float, high: float) -> Any:
    rng = np.random.default_rng(3)
    if low > 0:
        x = np.exp(rng.uniform(math.log(low), math.log(high), 4096))
    else:
        tiny = np.clip(rng.standard_normal(1024) * 10.0 ** rng.uniform(-20, 0, 1024), low, high)
        x = np.concatenate([rng.uniform(low, high, 2048), rng.uniform(max(low, -1), min(high, 1), 1024), tiny])
    return x.astype(dtype)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_functions_are_close_to_exact(name: str, dtype: Any, level: str) -> None:
    exact, (low, high), allowed = UNARY[name]
    x = arguments(dtype, low, high)
    if name in ("erf", "gelu") and dtype == np.float64:
        allowed = 24.0  # the reference itself: erfc of a rounded argument, in f64
    assert ulps(apply(name, host(level), x), np.asarray(exact(x.astype(WIDE)), WIDE)) <= allowed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments_are_close_to_exact(name: str, dtype: Any) -> None:
    exact, allowed = BINARY[name]
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(4096) * 5).astype(dtype), (rng.standard_normal(4096) * 3).astype(dtype)
    x = np.abs(x) if name == "pow" else x
    assert ulps(apply(name, host(), x, y), exact(x.astype(WIDE), y.astype(WIDE))) <= allowed


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_over_the_whole_range(dtype: Any, level: str) -> None:
    """Bases of all magnitudes, with exponents that keep the result in range: the logarithm must be very exact."""
    rng = np.random.default_rng(11)
    most = 126 if dtype == np.float32 else 1021
    x = np.concatenate(
        [np.exp2(rng.uniform(-most, most, 8192)), 1 + rng.standard_normal(8192) * 2.0 ** -rng.integers(2, 20, 8192)]
    )
    x = np.abs(np.concatenate([x, [np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny * 0.3] * 64])).astype(dtype)
    log2 = np.log2(x.astype(WIDE))
    y = (rng.uniform(-most, most, x.size) / np.where(log2 == 0, 1, log2)).astype(dtype)
    y = np.clip(y, -1e30, 1e30)
    assert ulps(apply("pow", host(level), x, y), np.power(x.astype(WIDE), y.astype(WIDE))) <= 1.0


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
    0.5,
    -2.0,
    3.0,
    1e-40,
    -1e-40,
    88.73,
    -104.5,
    710.5,
    -746.0,
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("gelu", "silu")])
def test_special_arguments(name: str, dtype: Any) -> None:
    """Infinities, NaN, signed zeros, subnormals, and where results overflow or vanish."""
    with np.errstate(all="ignore"):
        x = np.array(SPECIAL, dtype)
        want = np.asarray(UNARY[name][0](x.astype(WIDE)), WIDE).astype(dtype)
        if name == "erf":
            want[np.isnan(x)] = np.nan
        got = apply(name, host(), x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    zero = (want == 0) & (x == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-6, atol=0 if dtype == np.float64 else 2e-45)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_special_pairs(name: str, dtype: Any) -> None:
    with np.errstate(all="ignore"):
        x, y = (g.ravel() for g in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype)))
        want = BINARY[name][0](x, y)
        got = apply(name, host(), x, y)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-45 if dtype == np.float32 else 0)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_arguments_beyond_the_range_reduction(name: str) -> None:
    x = np.array([1e6, 1e10, -3e20, 2.5, 3.4e38, -1e38], np.float32)
    want = UNARY[name][0](x.astype("f8")).astype(np.float32)
    np.testing.assert_allclose(apply(name, host(), x), want, rtol=3e-7)


def test_gelu_of_narrow_floats_is_nearly_rounded_once() -> None:
    """All values of both dtypes; and the same bits from vectors of any width."""
    every = np.arange(1 << 16, dtype=np.uint16)
    for dtype, least, digits in ((np.dtype(np.float16), -14, 10), (np.dtype(ml_dtypes.bfloat16), -126, 7)):
        with np.errstate(all="ignore"):
            x = every.view(dtype).astype(np.float32)
        results = [short(host(level), 5 if least == -14 else 8, x).astype(dtype) for level in LEVELS]
        for other in results[1:]:
            np.testing.assert_array_equal(results[0].view(np.uint16), other.view(np.uint16))
        finite = np.isfinite(x) & (x < float(ml_dtypes.finfo(dtype).max))
        wide = x[finite].astype(np.float64)
        exact = wide * exact_erfc(-wide * math.sqrt(0.5)) / 2
        unit = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(exact), 1e-300))), least) - digits)
        assert np.max(np.abs(results[0][finite].astype(np.float64) - exact) / unit) <= 0.51
        assert np.isnan(results[0][np.isnan(x)]).all()
        assert results[0][x == np.inf] == np.inf and results[0][x == -np.inf] == 0


def short(isa: VectorISA, exponent: int, x: Any) -> Any:
    module = LLVMModule(jit.attributes(isa))
    fn = LLVMFunction(module, "f", [("x", PTR), ("out", PTR), ("n", I64)])
    t = ty("f", 32, isa.lanes(32))
    with fn.loop(0, fn.param(2), t.lanes) as at:
        places = [fn.gep(fn.param(i), at.index, t.elem) for i in range(2)]
        fn.store(VectorMath(fn, isa).short_gelu(fn.load(places[0], t), exponent), places[1])
    code = jit.Loaded(jit.compile_object(module.render()[0], isa, "short"))
    out = np.empty_like(x)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64)(code.address("f"))(
        x.ctypes.data, out.ctypes.data, len(x)
    )
    return out


def test_gelu_is_short_only_where_its_result_is_narrow() -> None:
    @ts.function
    def narrow(x: ts.Tensor["N", ts.f16]):
        return ts.gelu(x)

    @ts.function
    def widened(x: ts.Tensor["N", ts.f16]):
        return ts.gelu(x.to(ts.f32))

    x = np.linspace(-6, 6, 999).astype(np.float16)
    exact = x.astype(np.float64) * exact_erfc(-x.astype(np.float64) * math.sqrt(0.5)) / 2
    # every result of the narrow function lies at most half a unit of the last place, and a little, from the exact one
    unit = np.maximum(np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64), 2.0**-24)
    assert np.max(np.abs(narrow(x).astype(np.float64) - exact) / unit) <= 0.51
    assert ulps(widened(x), exact.astype(WIDE)) <= 8
    for function, short_one in ((narrow, True), (widened, False)):
        compiled = ts.compile(function, target="cpu", dims={"N": 999})
        assert ("narrow=f16" in compiled.ir("tile")) is short_one
