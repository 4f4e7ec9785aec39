"""Integer division on vectors: every path, at the ends of each type and next to multiples of the divisor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.compiler.ir.core import Value
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language import dtypes as dt
from tests.emulator.harness import Arg, LineBuilder, build

TYPES = [dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64]


def operands(dtype: dt.DType) -> tuple[Any, Any]:
    info = np.iinfo(dtype.numpy)
    rng = np.random.default_rng(dtype.bits)
    special = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 10, 100]
    if dtype.kind == "int":
        special += [-1, -2, -3, -7, -100]
    y = np.array(special, dtype.numpy)
    y = np.concatenate(
        [y, rng.integers(info.min, info.max, 40, dtype.numpy), (rng.integers(1, 120, 40)).astype(dtype.numpy)]
    )
    x = np.concatenate([y, rng.integers(info.min, info.max, 60, dtype.numpy)])
    x, y = (g.ravel() for g in np.meshgrid(x, y))
    with np.errstate(all="ignore"):
        near = (x // np.where(y == 0, 1, y)) * y  # multiples of the divisor, and their neighbours
    return np.concatenate([x, near, near + dtype.numpy.type(1), near - dtype.numpy.type(1)]), np.tile(y, 4)


def divide(x: Any, y: Any, dtype: dt.DType, level: str, constant: int | None = None) -> tuple[Any, Any]:
    n = x.size

    def body(t: LineBuilder, a: Value, b: Value, q: Value, r: Value) -> None:
        left = t.load(a, t.ints(0), (n,))
        right = t.load(b, t.ints(0), (n,)) if constant is None else t.full((n,), constant, dtype)
        t.store(q, t.map("floordiv", left, right), t.ints(0))
        t.store(r, t.map("mod", left, right), t.ints(0))

    args = [
        Arg("a", (n,), dtype),
        Arg("b", (n,), dtype),
        Arg("q", (n,), dtype, out=True),
        Arg("r", (n,), dtype, out=True),
    ]
    target = CpuTarget(level)
    q, r = np.empty_like(x), np.empty_like(x)
    executable = target.load(generate(build("divide", args, (1,), body), target))
    executable.run([v.ctypes.data for v in (x, y, q, r)], [], [])
    return q, r


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_quotients_and_remainders(dtype: dt.DType, level: str) -> None:
    x, y = operands(dtype)
    q, r = divide(x, y, dtype, level)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(q, x // y)
        np.testing.assert_array_equal(r, x % y)


@pytest.mark.parametrize("constant", [1, 2, 3, 7, 10, 64, 100, 127])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_known_divisors(dtype: dt.DType, constant: int) -> None:
    x, _ = operands(dtype)
    q, r = divide(x, x, dtype, "avx512", constant)
    np.testing.assert_array_equal(q, x // dtype.numpy.type(constant))
    np.testing.assert_array_equal(r, x % dtype.numpy.type(constant))


@pytest.mark.parametrize("constant", [-1, -7, 641, 65537, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("dtype", [dt.int32, dt.int64], ids=str)
def test_large_and_negative_divisors(dtype: dt.DType, constant: int) -> None:
    x, _ = operands(dtype)
    q, r = divide(x, x, dtype, "avx512", constant)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(q, x // dtype.numpy.type(constant))
        np.testing.assert_array_equal(r, x % dtype.numpy.type(constant))
