"""Products of every dtype against NumPy, at sizes around the blocks of every way that they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.language import dtypes as dt

DTYPES = [
    *(d for d in dt.ALL if d.kind in ("int", "uint") and d.bits >= 8),
    dt.f16, dt.bf16, dt.fp8_e4m3, dt.fp8_e5m2, dt.f32, dt.f64, dt.complex64, dt.complex128,
]  # fmt: skip

# (rows, k, columns): register blocks have 6 or 14 rows and two vectors of columns (4 to 128 of them), slabs and chains
# of k are powers of two up to 256; a program takes 504 x 512; few rows or columns and single ones have their own ways.
SIZES = [
    (2, 16, 129), (3, 17, 257), (1, 5, 300), (129, 16, 2), (300, 3, 1), (1, 300, 1), (1, 257, 33), (15, 129, 15),
    (13, 128, 63), (14, 127, 64), (29, 255, 65), (6, 256, 31), (7, 511, 17), (17, 1025, 3), (5, 513, 127), (4, 0, 3),
    (510, 9, 8), (3, 70, 515), (64, 64, 64), (43, 65, 128),
]  # fmt: skip


@ts.function
def plain(a: Any, b: Any) -> Any:
    return a @ b


@ts.function
def left_turned(a: Any, b: Any) -> Any:
    return a.T @ b


@ts.function
def right_turned(a: Any, b: Any) -> Any:
    return a @ b.T


@ts.function
def strided(a: Any, b: Any) -> Any:
    return a[:, 1::2] @ b[1::3, ::2]


@ts.function
def vectors(a: Any, b: Any) -> Any:
    return a @ b[:, 0], a[0] @ b


@ts.function
def batched(a: Any, b: Any) -> Any:
    return ts.stack([a, a + a]) @ b


def operand(rng: Any, shape: tuple[int, ...], dtype: dt.DType) -> Any:
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return rng.integers(info.min, info.max, shape, dtype=dtype.numpy, endpoint=True)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.is_complex else x).astype(dtype.numpy)


def check(got: Any, a: Any, b: Any, dtype: dt.DType) -> None:
    """Integers wrap around as NumPy's; floats are near the exact value, rounded once."""
    got = np.asarray(got)
    if dtype.is_integer:
        np.testing.assert_array_equal(got, a @ b)
        return
    wide = np.clongdouble if dtype.is_complex else np.longdouble
    exact, size = a.astype(wide) @ b.astype(wide), np.abs(a.astype(wide)) @ np.abs(b.astype(wide))
    single = dtype in (dt.f64, dt.complex128)
    bound = size * (np.finfo(np.float64 if single else np.float32).eps * 128)
    if dtype.is_low_precision:
        normal = 2.0 ** (2 - 2 ** (dtype.exponent - 1))
        bound = bound + np.maximum(np.abs(exact), normal) * 2.0 ** -(dtype.mantissa + 1)
    assert np.all(np.abs(got.astype(wide) - exact) <= bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", range(len(SIZES)), ids=lambda i: "x".join(map(str, SIZES[i])))
def test_sizes_and_dtypes(number: int, dtype: dt.DType) -> None:
    m, k, n = SIZES[number]
    rng = np.random.default_rng(number)
    a, b = operand(rng, (m, k), dtype), operand(rng, (k, n), dtype)
    check(plain(a, b), a, b, dtype)
    match (number + DTYPES.index(dtype)) % 5:
        case 0:
            check(left_turned(np.ascontiguousarray(a.T), b), a, b, dtype)
        case 1:
            check(right_turned(a, np.ascontiguousarray(b.T)), a, b, dtype)
        case 2:
            check(strided(a, b := operand(rng, (3 * (k // 2), n), dtype)), a[:, 1::2], b[1::3, ::2], dtype)
        case 3:
            by_column, by_row = vectors(a, b)
            check(by_column, a, b[:, 0], dtype)
            check(by_row, a[0], b, dtype)
        case _:
            check(np.asarray(batched(a, b))[0], a, b, dtype)


@ts.function
def parts_of_k(a: Any, x: Any) -> Any:
    return a[:, :64] @ x[:64], a[:, :100] @ x[:100], a[:, :100] @ a[:20, :100].T, a[:, :64] @ a[:20, :64].T


def test_products_that_differ_in_k_alone() -> None:
    """Their operands lie at the same strides, but each has code of its own."""
    rng = np.random.default_rng(0)
    a, x = operand(rng, (40, 128), dt.f32), operand(rng, (128,), dt.f32)
    for k, vector, matrix in zip((64, 100), parts_of_k(a, x)[:2], parts_of_k(a, x)[:1:-1], strict=True):
        check(vector, a[:, :k], x[:k], dt.f32)
        check(matrix, a[:, :k], np.ascontiguousarray(a[:20, :k].T), dt.f32)


def error(got: Any, exact: Any) -> float:
    return float(np.sqrt(np.mean((np.asarray(got).astype(np.float64) - exact) ** 2)))


@pytest.mark.parametrize("k", [64, 256, 1024, 4096, 16384, 65536])
@pytest.mark.parametrize("distribution", ["normal", "uniform", "ones"])
def test_errors_are_at_most_those_of_numpy(distribution: str, k: int) -> None:
    """Half as much again is allowed for chance. For vectors NumPy has shorter chains, which are worse from K = 1024."""
    rng = np.random.default_rng(k)
    draw = rng.standard_normal if distribution == "normal" else rng.random
    a, b = draw((64, k)).astype(np.float32), draw((k, 48)).astype(np.float32)
    if distribution == "ones":
        a, b = np.repeat(a[:, :1], k, axis=1), np.ones_like(b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert error(plain(a, b), exact) <= 1.5 * error(a @ b, exact)
    if k >= 1024:
        x = b[:, 0].copy()
        assert error(plain(a, x), exact[:, 0]) <= 1.5 * error(a @ x, exact[:, 0])


def test_many_equal_products() -> None:
    a, b = np.full((4, 65536), 0.1, np.float32), np.ones((65536, 3), np.float32)
    exact = 65536 * float(np.float32(0.1))
    for got in (plain(a, b), plain(a, b[:, 0].copy()), plain(a[0], b), plain(a[0], b[:, 0].copy())):
        assert np.all(np.abs(np.asarray(got) - exact) < 0.02)


@pytest.mark.parametrize(("rows", "fetches"), [(128, False), (1024, True), (4096, True)])
def test_what_no_core_caches_is_asked_for_ahead(rows: int, fetches: bool) -> None:
    """Lines that come next are fetched: twice the speed from memory, a little more from a shared cache."""
    a = np.empty((rows, 1024), np.float32)
    text = ts.compile(plain, target="cpu", arguments=(a, a[0])).ir("target")
    assert ("call void @llvm.prefetch" in text) == fetches
    assert "call void @llvm.prefetch" in ts.compile(plain, target="cpu", arguments=(a[0], a[1])).ir("target")


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("k", [5, 128, 300, 2100, 4500])
def test_a_part_of_a_product_is_the_product_of_the_parts(k: int, target: str) -> None:
    """One column, one row, one element and a block have the bits that they have in the whole product."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((33, k)).astype(np.float32), rng.standard_normal((k, 40)).astype(np.float32)
    whole = ts.compile(plain, target=target, arguments=(a, b))(a, b)
    for rows in (slice(0, 33), slice(7, 8), slice(3, 20)):
        for columns in (slice(0, 1), slice(39, 40), slice(5, 38)):
            part = ts.compile(plain, target=target, arguments=(a[rows], b[:, columns]))(a[rows], b[:, columns])
            np.testing.assert_array_equal(part, whole[rows, columns])
    vector = b[:, 6].copy()
    np.testing.assert_array_equal(ts.compile(plain, target=target, arguments=(a, vector))(a, vector), whole[:, 6])
    dot = ts.compile(plain, target=target, arguments=(a[4], vector))(a[4], vector)
    np.testing.assert_array_equal(np.asarray(dot), whole[4, 6])
