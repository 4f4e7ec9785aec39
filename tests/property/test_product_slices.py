"""A slice of a product has the bits of the product of the slices, however it lies in memory and on every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import knobs
from tessera.compiler.targets.cpu.kernel import chains as sums
from tessera.language.order import CHAIN, GROUP, SPAN
from tests.conftest import require

EXTENTS = st.sampled_from([1, 2, 3, 7, 8, 14, 15, 16, 17, 31, 33, 64, 65, 130, 520])
DEPTHS = st.sampled_from([1, 3, 16, CHAIN - 1, CHAIN, CHAIN + 1, 300, 1000, SPAN - 1, SPAN, SPAN + 1, 2 * SPAN + 137])
DTYPES = st.sampled_from(["f4", "f8", "f2", "c8", "c16"])


@ts.function
def product(a: Any, b: Any) -> Any:
    return a @ b


@st.composite
def slices(draw: st.DrawFn) -> tuple[tuple[int, int, int], slice, slice]:
    m, k, n = draw(EXTENTS), draw(DEPTHS), draw(EXTENTS)

    def part(size: int) -> slice:
        start = draw(st.integers(0, size - 1))
        return slice(start, draw(st.sampled_from([start + 1, size])))

    return (m, k, n), part(m), part(n)


def operands(shape: tuple[int, ...], dtype: str, turned: bool) -> Any:
    rng = np.random.default_rng(shape)
    x = rng.standard_normal(shape)
    x = (x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if turned else x


def same(got: Any, want: Any) -> bool:
    return np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(want).tobytes()


def whole(size: int) -> slice:
    return slice(0, size)


@example(((65, 4096, 130), slice(0, 65), slice(0, 1)), "f4", (False, False))
@example(((65, 4096, 130), slice(3, 4), slice(0, 130)), "f4", (False, False))
@example(((16, 5000, 40), slice(3, 4), slice(7, 8)), "f4", (False, True))
@example(((520, 2100, 33), slice(0, 520), slice(0, 1)), "f8", (True, False))
@given(slices(), DTYPES, st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=25, deadline=None)
def test_rows_and_columns(
    case: tuple[tuple[int, int, int], slice, slice], dtype: str, turned: tuple[bool, bool]
) -> None:
    """Slices are taken in place and as copies; the copy of one column is a vector too."""
    (m, k, n), rows, columns = case
    a, b = operands((m, k), dtype, turned[0]), operands((k, n), dtype, turned[1])
    want = np.asarray(product(a, b))[rows, columns]
    assert same(product(a[rows], b[:, columns]), want)
    assert same(product(a[rows].copy(), b[:, columns].copy()), want)
    if want.shape[1] == 1:
        assert same(product(a[rows], b[:, columns.start].copy()), want[:, 0])
    if want.shape[0] == 1:
        assert same(product(a[rows.start].copy(), b[:, columns]), want[0])


@given(st.sampled_from([1, 3, 17, 140]), DEPTHS, st.sampled_from([1, 5, 40]), DTYPES)
@settings(max_examples=10, deadline=None)
def test_batches(m: int, k: int, n: int, dtype: str) -> None:
    a, b = operands((3, m, k), dtype, False), operands((3, k, n), dtype, True)
    together = np.asarray(product(a, b))
    assert all(same(product(a[i], b[i]), together[i]) for i in range(3))
    assert same(product(a, b[0]), np.stack([np.asarray(product(x, b[0])) for x in a]))


@ts.function
def dots(a: Any, b: Any) -> Any:
    return a[..., None, :] @ b[..., None]


def turned_batch(x: Any) -> Any:
    """The same elements with the batch along memory."""
    return np.ascontiguousarray(np.moveaxis(x, 0, -1)).transpose(x.ndim - 1, *range(x.ndim - 1))


@example(17, 2 * SPAN + 137, "f4", (False, False))
@example(600, CHAIN + 1, "f4", (True, False))
@given(st.sampled_from([2, 7, 16, 17, 140, 600]), DEPTHS, DTYPES, st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=20, deadline=None)
def test_batches_of_dot_products(count: int, k: int, dtype: str, turned: tuple[bool, bool]) -> None:
    """Many are computed side by side; each has the bits that it has alone, whatever its neighbours hold."""
    a, b = operands((count, k), dtype, False), operands((count + 1, k), dtype, False)[1:]
    a[1::5] = np.nan  # in neighbouring lanes
    a[2::5], b[2::5] = -0.0, 1
    want = np.stack([np.asarray(product(x, y)) for x, y in zip(a, b, strict=True)])
    a, b = (turned_batch(x) if t else x for x, t in zip((a, b), turned, strict=True))
    assert same(np.asarray(dots(a, b)).reshape(-1), want)
    if count % 20 == 0:  # two axes that do not lie as one
        a, b = a.reshape(20, -1, k), turned_batch(b.reshape(20, -1, k))
        assert same(np.asarray(dots(a, b)).reshape(-1), want)


@pytest.mark.parametrize("shape", [(16, 2, 1), (17, 4, 1), (100, 1, 3), (30, 5, 1), (3, 2, 1)], ids=str)
def test_batches_of_few_rows(shape: tuple[int, int, int]) -> None:
    count, m, n = shape
    for dtype in ("f4", "f8"):
        for k in (1, 64, SPAN + 130):
            a, b = operands((count, m, k), dtype, False), operands((count, k, n), dtype, True)
            assert same(product(a, b), np.stack([np.asarray(product(x, y)) for x, y in zip(a, b, strict=True)]))


def test_what_lies_behind_the_last_product_is_not_read() -> None:
    """Slices of a larger array: what follows would show, as it is infinite."""
    for k in (1, 15, 17, 100, 129, SPAN + 3):
        a, b = (np.full((37, k + 64), np.inf, np.float32) for _ in range(2))
        a[:, :k], b[:, :k] = operands((37, k), "f4", False), operands((37, k), "f4", False)
        want = np.stack([np.asarray(product(x.copy(), y.copy())) for x, y in zip(a[:, :k], b[:, :k], strict=True)])
        assert np.all(np.isfinite(want))
        assert same(np.asarray(dots(a[:, :k], b[:, :k])).reshape(-1), want)
        assert same(product(a[:, :k], b[3, :k]), product(a[:, :k].copy(), b[3, :k].copy()))


def test_threads() -> None:
    before = ts.get_num_threads()
    try:
        for shape in ((300, 4500, 200), (1, 9000, 3000), (3000, 2500, 1)):
            a, b = operands(shape[:2], "f4", False), operands(shape[1:], "f4", False)
            found: list[Any] = []
            for count in (1, 2):
                ts.set_num_threads(count)
                found.append(np.asarray(product(a, b)))
            assert same(*found)
    finally:
        ts.set_num_threads(before)


@pytest.mark.parametrize("target", ["reference", "emulator:sm_80"])
def test_other_targets(target: str) -> None:
    require("g++")
    k = CHAIN + SPAN + 3 if target == "reference" else 300
    a, b = operands((5, k), "f4", False), operands((k, 9), "f4", False)
    with knobs.target.override(target):
        want = np.asarray(product(a, b))
        assert same(product(a, np.ascontiguousarray(b[:, :1])), want[:, :1])
        assert same(product(a[2:3], b), want[2:3])
        assert same(product(a[1], b[:, 4].copy()), want[1, 4])
        many = np.stack([a[:2, :20] * i for i in range(16)])
        assert same(product(many, many[:, :1].swapaxes(1, 2)), [np.asarray(product(x, x[:1].T)) for x in many])
        assert same(dots(a, np.repeat(b[:, 4:5].T, 5, axis=0)).reshape(-1), want[:, 4])
    assert same(want, product(a, b)), "the CPU has the same order, with the same fused multiply-adds"


@ts.kernel
def owns_k(a: ts.Tensor[16, 400, ts.f32], b: ts.Tensor[400, 8, ts.f32]) -> ts.Tensor[16, 8, ts.f32]:
    return ts.tile.mma(a[0:16, 0:400], b[0:400, 0:8])


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_a_kernel_that_multiplies_whole_tiles(target: str) -> None:
    require("g++")
    a, b = operands((16, 400), "f4", False), operands((400, 8), "f4", False)
    with knobs.target.override(target):
        assert same(owns_k(a, b), np.asarray(product(a, b)))


def test_headers_have_the_numbers_of_the_order() -> None:
    text = (Path(sums.__file__).parents[2] / "cuda/include/tessera/sums.cuh").read_text()
    assert f"chain_length = {CHAIN}, group_length = {GROUP}," in text


def test_a_size_that_is_known_at_the_call_alone() -> None:
    @ts.function
    def open_sizes(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
        return a @ b

    for m, k, n in ((3, SPAN + 130, 7), (1, 2 * SPAN + 5, 40), (70, 300, 1), (1, 129, 1), (2, 0, 3), (40, 2, 33)):
        a, b = operands((m, k), "f4", False), operands((k, n), "f4", False)
        assert same(open_sizes(a, b), product(a, b))
