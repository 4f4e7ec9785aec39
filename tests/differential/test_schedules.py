"""Blocks chosen for memory's sake leave results as they are: transpositions and reductions of awkward shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import knobs

SIZES = st.sampled_from([0, 1, 2, 3, 7, 16, 17, 64, 129])
DTYPES = st.sampled_from(["float32", "float64", "int8", "int32", "bool"])


@ts.function
def turned(x, perm: ts.Const):
    return x.transpose(*perm)


@ts.function
def turned_sum(x, y):
    return x + y.T, y.T * 2 - x


@ts.function
def folds_across(x):
    return x.sum(axis=1), x.prod(axis=1), x.max(axis=1), x.argmin(axis=1), (x * x).sum(axis=1)


@ts.function
def folds_along(x):
    return x.sum(axis=2), x.prod(axis=2), x.max(axis=2), x.argmin(axis=2), (x * x).sum(axis=2)


@pytest.fixture(autouse=True, scope="module")
def _on_the_cpu() -> Iterator[None]:
    with knobs.target.override("cpu"):
        yield


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


@settings(max_examples=60, deadline=None)
@given(st.permutations([0, 1, 2]), st.tuples(SIZES, SIZES, SIZES), DTYPES, st.integers(1, 3))
def test_axes_in_another_order(perm: list[int], shape: tuple[int, ...], dtype: str, step: int) -> None:
    x = numbers((shape[0], shape[1], shape[2] * step), dtype, sum(shape))[:, :, ::step]
    np.testing.assert_array_equal(turned(x, tuple(perm)), x.transpose(perm))


@settings(max_examples=40, deadline=None)
@given(SIZES, SIZES)
def test_operands_that_lie_across_each_other(m: int, n: int) -> None:
    x, y = numbers((m, n), "float32", m), numbers((n, m), "float32", n)
    for got, want in zip(turned_sum(x, y), (x + y.T, y.T * np.float32(2) - x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("n", [1, 2, 3, 31, 33, 64, 65])
def test_a_reduction_across_rows_has_the_bits_of_one_along_them(dtype: str, n: int) -> None:
    """However few elements there are, and in whatever order memory gives them: the order is the same."""
    for before, after in ((1, 1), (2, 17), (3, 300), (1, 1100)):
        x = numbers((before, n, after), dtype, n)
        x[0, : n // 2 + 1, 0] = -0.0
        results = zip(folds_across(x), folds_along(np.ascontiguousarray(x.transpose(0, 2, 1))), strict=True)
        for i, (a, b) in enumerate(results):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), (i, before, after)


@ts.function
def read_across(x, y, v):
    return x + y.T


@ts.function
def read_in_order(x, y, v):
    return x + y


@ts.function
def column_repeated(x, y, v):
    return x * v.reshape(512, 1)


@ts.function
def every_other(x, y, v):
    return x[:, ::2] + 1.0


@pytest.mark.parametrize(
    ("function", "block"),
    [(read_across, [128, 128]), (read_in_order, [16384]), (column_repeated, [32, 512]), (every_other, [16384])],
)
def test_the_blocks_that_memory_order_asks_for(function: Any, block: list[int]) -> None:
    x, v = numbers((512, 512), "float32", 0), numbers((512,), "float32", 1)
    (launch,) = ts.compile(function, arguments=[x, x, v]).lowered.program.steps
    (store,) = [op for op in launch.kernel.region.block.ops if op.name == "tile.store"]
    assert list(store.operands[1].type.shape) == block


@ts.function
def bordered(x, width: ts.Const):
    return ts.pad(x, width, value=7)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SIZES, st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4), DTYPES)
def test_a_border_is_filled_side_by_side(axes: list[tuple[int, int, int]], dtype: str) -> None:
    shape = tuple(min(n, 17) if i > 1 else n for i, (n, _, _) in enumerate(axes))
    width = tuple((before, after) for _, before, after in axes)
    x = numbers(shape, dtype, len(shape))
    np.testing.assert_array_equal(bordered(x, width), np.pad(x, width, constant_values=np.asarray(7).astype(dtype)))


@ts.function
def bordered_by_one(x: ts.Tensor["M", "N"]):
    return ts.pad(x, ((0, 1), (2, 1)))


def test_only_what_is_written_once_is_filled() -> None:
    program = ts.compile(bordered_by_one, arguments=[numbers((40, 30), "float32", 0)]).lowered.program
    stored = []
    for launch in program.steps:
        (store,) = [op for op in launch.kernel.region.block.ops if op.name == "tile.store"]
        stored.append(int(np.prod(store.operands[0].type.shape)))
    assert sorted(stored) == [33, 40, 80, 1200]
    open_ = ts.compile(bordered_by_one)  # sizes that are known at launch only
    for m, n in ((0, 0), (1, 5), (40, 30)):
        x = numbers((m, n), "float32", m)
        np.testing.assert_array_equal(open_(x), np.pad(x, ((0, 1), (2, 1))))


@ts.function
def mirrored(x):
    return ts.flip(x, axis=1), ts.flip(x, axis=0) + ts.flip(x, axis=1), x[:, ::-1].T


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 0), (5, 17), (2, 64), (33, 131)])
def test_rows_read_backwards(dtype: str, shape: tuple[int, int]) -> None:
    x = numbers(shape, "float32", 1).astype(dtype)
    got = mirrored(x)
    want = (np.flip(x, 1), np.flip(x, 0) + np.flip(x, 1), x[:, ::-1].T)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@ts.function
def positions(x):
    return (
        ts.one_hot(x, 37),
        ts.tril(ts.arange(35).reshape(5, 7)) + ts.arange(7),
        ts.flip(ts.arange(6).reshape(2, 3), 1),
    )


def test_positions_along_an_axis() -> None:
    x = np.arange(41) % 37
    hot, low, back = positions(x)
    np.testing.assert_array_equal(hot, np.eye(37)[x])
    np.testing.assert_array_equal(low, np.tril(np.arange(35).reshape(5, 7)) + np.arange(7))
    np.testing.assert_array_equal(back, np.arange(6).reshape(2, 3)[:, ::-1])


@ts.function
def scores_of_heads(q, k, b):
    return q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1) * 0.5 + b


@ts.function
def two_batches(x, y, z):
    return ts.einsum("abmk,bkn->abmn", x, y), ts.einsum("abmk,bakn->abmn", x, z)


@pytest.mark.parametrize("shape", [(2, 33, 3, 8), (1, 5, 4, 16), (3, 1, 2, 4), (2, 0, 3, 8), (2, 40, 1, 8)])
def test_batch_axes_of_a_product_stay_where_they_are(shape: tuple[int, ...]) -> None:
    """`[B, S, H, D]` is read head by head, and what is added may lie along some of the batch axes alone."""
    q, k = numbers(shape, "float32", 1), numbers(shape, "float32", 2)
    b, s, h, _ = shape
    product = q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1) * np.float32(0.5)
    for bias_shape in ((b, h, s, s), (h, s, s), (b, 1, s, 1), (1, h, 1, s), (s,)):
        bias = numbers(bias_shape, "float32", 3)
        np.testing.assert_allclose(scores_of_heads(q, k, bias), product + bias, rtol=1e-4, atol=1e-4)
    program = ts.compile(scores_of_heads, arguments=[q, k, numbers((h, s, s), "float32", 3)]).lowered.program
    assert len(program.steps) == 1


def test_batch_axes_that_one_operand_lacks_or_holds_in_another_order() -> None:
    x, y, z = (numbers(s, "float32", 4) for s in ((2, 3, 5, 7), (3, 7, 6), (3, 2, 7, 6)))
    first, second = two_batches(x, y, z)
    np.testing.assert_allclose(first, np.einsum("abmk,bkn->abmn", x, y), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second, np.einsum("abmk,bakn->abmn", x, z), rtol=1e-4, atol=1e-4)
