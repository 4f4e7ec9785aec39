"""Products that are small enough to read both operands where they are: what is written for them, and their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS
from tessera.compiler.targets.cpu.target import CpuTarget

SIZES = [
    (17, 130, 17),
    (50, 60, 35),
    (100, 64, 40),
    (100, 100, 100),
    (33, 20, 67),
    (29, 1, 18),
    (300, 20, 20),
    (7, 129, 3),
]


@ts.function
def single(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32]):
    return a @ b


@ts.function
def double(a: ts.Tensor["M", "K", ts.f64], b: ts.Tensor["K", "N", ts.f64]):
    return a @ b


def _compiled(product: Any, m: int, k: int, n: int) -> Any:
    return ts.compile(product, target="cpu", dims={"M": m, "K": k, "N": n})


@pytest.mark.parametrize(("product", "dtype"), [(single, np.float32), (double, np.float64)], ids=["f32", "f64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_widths_and_slices_do_not_change_a_bit(size: tuple[int, int, int], product: Any, dtype: Any) -> None:
    m, k, n = size
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    a[m // 2, 0], b[0, n - 1] = -0.0, np.inf
    compiled = _compiled(product, m, k, n)
    with np.errstate(invalid="ignore"):
        want = np.asarray(compiled(a, b))
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
        bound = np.abs(a) @ np.abs(b) * np.finfo(dtype).eps
    finite = np.isfinite(exact)
    assert np.all(np.abs(want[finite] - exact[finite]) <= 4 * bound[finite])
    np.testing.assert_array_equal(np.isnan(want), np.isnan(exact))
    for level in LEVELS:
        target, out = CpuTarget(level), np.full_like(want, 7)
        code = target.load(generate(compiled.lowered.program, target))
        code.run([x.ctypes.data for x in (a, b, out)], [], [])
        np.testing.assert_array_equal(out, want)
    half = -(-n // 2)
    np.testing.assert_array_equal(np.asarray(product(a[1:], np.ascontiguousarray(b[:, half:]))), want[1:, half:])


def test_fuller_panels_are_no_reason_to_pack() -> None:
    """Turned, 35 columns would fill panels of 12 rows; but without packing there are no panels to fill."""
    assert "@pack_" not in _compiled(single, 50, 300, 35).source


def test_the_last_columns_need_no_packing() -> None:
    """A program takes 64 of 100 columns, so the second one has 36."""
    assert "@direct_f32_100x36x100_" in _compiled(single, 100, 100, 100).source
