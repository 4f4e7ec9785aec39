"""Derived backwards of kernels that read rows by numbers: against sums in NumPy, in one order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tests.kernel_runner import backward_refusal

rng = np.random.default_rng(11)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def embedded(
    table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32], place: Tensor["N", "D", ts.f32], scale: ts.f32
) -> Tensor["N", "D", ts.f32]:
    y: Tensor["N", "D", ts.f32]
    for i in ts.tile.range(0, N, 8):
        y[i : i + 8, :] = ts.tile.tanh(table[ids[i : i + 8], :] * scale) + place[i : i + 8, :]
    return y


@ts.kernel
def in_parts(table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int64]) -> Tensor["N", "D", ts.f32]:
    y: Tensor["N", "D", ts.f32]
    which = ids[tile_n : tile_n + 8]
    y[tile_n : tile_n + 8, tile_d : tile_d + 4] = table[which, tile_d : tile_d + 4]
    return y


@ts.kernel
def in_bags(table: Tensor["V", "D", ts.f32], ids: Tensor["N", "L", ts.int32]) -> Tensor["N", "D", ts.f32]:
    y: Tensor["N", "D", ts.f32]
    for i in ts.tile.range(0, N, 8):
        total = ts.tile.zeros((8, D))
        for j in ts.tile.range_k(0, L):
            total += table[ids[i : i + 8, j], :]
        y[i : i + 8, :] = total
    return y


@ts.kernel
def multiplied(
    table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32], w: Tensor["D", "E", ts.f32]
) -> Tensor["N", "E", ts.f32]:
    return table[ids[tile_n : tile_n + 8], :] @ w[:, :]


@ts.kernel
def from_two(
    table: Tensor["V", "D", ts.f32], left: Tensor["N", ts.int32], right: Tensor["N", ts.int32]
) -> Tensor["N", "D", ts.f32]:
    which = left[tile_n : tile_n + 8]
    other = table[right[tile_n : tile_n + 8], :]
    return table[which, :] * table[which, :] * other + ts.tile.exp(table[which, :])


@ts.kernel
def beside_its_own(table: Tensor["N", "D", ts.f32], ids: Tensor["N", ts.int32]) -> Tensor["N", "D", ts.f32]:
    return table[tile_n : tile_n + 8, :] * table[ids[tile_n : tile_n + 8], :]


@ts.kernel
def one_by_one(table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32], y: Tensor["N", "D", ts.f32]):
    i = ts.tile.program_id(0)
    y[i, :] = table[ids[i], :]


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_90a"])
def test_the_gradient_of_rows_is_a_sum_over_what_read_them(target: str) -> None:
    embedded.vjp(embedded.backward())
    table, place, weights = numbers(9, 12), numbers(21, 12), numbers(21, 12)
    ids = rng.integers(0, 9, 21).astype(np.int32)
    ids[:4] = -1, 9, 4, 4  # the first two read zeros
    with knobs.target.override(target):
        found = ts.grad(lambda *a: ts.sum(embedded(*a) * weights), argnums=(0, 2, 3))
        by_table, by_place, by_scale = found(table, ids, place, 0.5)
    inside = (ids >= 0) & (ids < 9)
    rows = np.where(inside[:, None], table[np.where(inside, ids, 0)], 0).astype(np.float64)
    bent = weights * (1 - np.tanh(rows * 0.5) ** 2)
    wanted = np.zeros((9, 12))
    np.add.at(wanted, ids[inside], (bent * 0.5)[inside])
    np.testing.assert_allclose(by_table, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(by_place, weights)
    np.testing.assert_allclose(by_scale, (bent * rows).sum(), rtol=1e-4)


CASES: list[tuple[Any, Any, list[Any]]] = [
    (in_parts, lambda t, ids: ts.take(t, ids, 0), [numbers(9, 10), rng.integers(0, 9, 21)]),
    (in_bags, lambda t, ids: ts.sum(ts.take(t, ids, 0), 1), [numbers(9, 10), rng.integers(0, 9, (21, 3), np.int32)]),
    (
        multiplied,
        lambda t, ids, w: ts.take(t, ids, 0) @ w,
        [numbers(9, 10), rng.integers(0, 9, 21, np.int32), numbers(10, 20)],
    ),
    (
        from_two,
        lambda t, a, b: ts.square(ts.take(t, a, 0)) * ts.take(t, b, 0) + ts.exp(ts.take(t, a, 0)),
        [numbers(9, 10), *rng.integers(0, 9, (2, 21), np.int32)],
    ),
    (
        beside_its_own,
        lambda t, ids: t * ts.take(t, ids, 0),
        [numbers(21, 10), rng.integers(0, 21, 21, np.int32)],
    ),
]


@pytest.mark.parametrize(("kernel", "operators", "args"), CASES, ids=[k.name for k, _, _ in CASES])
def test_the_gradient_of_rows_is_that_of_the_operators(kernel: Any, operators: Any, args: list[Any]) -> None:
    kernel.vjp(kernel.backward())
    weights = numbers(*np.shape(ts.function(operators)(*args)))
    moved = tuple(i for i, a in enumerate(args) if a.dtype == np.float32)
    wanted = ts.grad(lambda *a: ts.sum(operators(*a) * weights), argnums=moved)(*args)
    found = ts.grad(lambda *a: ts.sum(kernel(*a) * weights), argnums=moved)(*args)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_text_sums_rows_by_their_numbers() -> None:
    text = from_two.backward().source
    assert text.count("d_table_rows[tile_n:tile_n + 8, :] = ") == 1, "what one place gives is added before it is stored"
    assert "return ts.segment_sum(d_table_rows, left, table.shape[0]) + ts.segment_sum(d_table_rows_2, right," in text
    text = embedded.backward().source
    assert "d_table_rows[i:i + 8, :] = " in text
    assert "return ts.segment_sum(d_table_rows, ids, table.shape[0]), None, d_place, d_scale[0]" in text
    text = in_bags.backward().source
    assert "segment_sum(d_table_rows.reshape((-1, table.shape[1])), ids.reshape((-1,)), table.shape[0])" in text


def test_of_no_rows_the_gradient_is_zero_and_sums_of_small_floats_are_rounded_once() -> None:
    @ts.kernel
    def small(table: Tensor["V", "D", ts.bf16], ids: Tensor["N", ts.int32]) -> Tensor["N", "D", ts.bf16]:
        return table[ids[tile_n : tile_n + 8], :]

    in_parts.vjp(in_parts.backward())
    none = ts.grad(lambda t, ids: ts.sum(in_parts(t, ids)))(numbers(9, 10), np.zeros(0, np.int64))
    assert none.shape == (9, 10) and not none.any()
    small.vjp(small.backward())
    table, ids = np.ones((3, 4), ml_dtypes.bfloat16), np.ones(1001, np.int32)
    found = ts.grad(lambda t, ids: ts.sum(small(t, ids)))(table, ids)
    assert found.dtype == ml_dtypes.bfloat16 and found[:, 0].astype(np.float32).tolist() == [0, 1000, 0]


def test_rows_whose_numbers_are_not_a_block_of_their_own_are_refused_at_their_line() -> None:
    @ts.kernel
    def computed(table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32]) -> Tensor["N", "D", ts.f32]:
        return table[ids[tile_n : tile_n + 8] + 1, :]

    @ts.kernel
    def shared(
        table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32], x: Tensor["M", "D", ts.f32]
    ) -> Tensor["N", "M", ts.f32]:
        return table[ids[tile_n : tile_n + 8], :] @ x[tile_m : tile_m + 8, :].T

    @ts.kernel
    def from_a_start(x: Tensor["V", "D", ts.f32], start: Tensor["N", ts.int32], y: Tensor["N", 4, "D", ts.f32]):
        p = ts.tile.program_id(0)
        at = start[p]
        y[p, :, :] = x[at : at + 4, :]

    assert backward_refusal(from_a_start).startswith("4: ") and "computed places" in backward_refusal(from_a_start)
    assert backward_refusal(computed).startswith("2: ") and "whose numbers are a block" in backward_refusal(computed)
    assert backward_refusal(shared).startswith("4: ") and "several programs read rows" in backward_refusal(shared)


@ts.kernel
def elements(x: Tensor["V", ts.f32], at: Tensor["N", ts.int32], y: Tensor["N", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[at[i]]


def test_elements_that_lanes_read_have_gradients() -> None:
    elements.vjp(elements.backward())

    @ts.function
    def loss(x: Tensor["V", ts.f32], at: Tensor["N", ts.int32], weights: Tensor["N", ts.f32]):
        y = ts.zeros_like(weights)
        elements(x, at, y)
        return ts.sum(y * weights)

    at, weights = rng.integers(0, 7, 300).astype(np.int32), numbers(300)
    found = ts.grad(loss)(numbers(7), at, weights)
    np.testing.assert_allclose(found, np.bincount(at, weights, 7), rtol=1e-5, atol=1e-5)


def test_rows_that_are_read_one_by_one_have_gradients() -> None:
    one_by_one.vjp(one_by_one.backward())

    @ts.function
    def loss(table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32], weights: Tensor["N", "D", ts.f32]):
        y = ts.zeros_like(weights)
        one_by_one(table, ids, y)
        return ts.sum(y * weights)

    ids, weights = np.array([2, 0, 2], np.int32), numbers(3, 5)
    found = ts.grad(loss)(numbers(4, 5), ids, weights)
    np.testing.assert_array_equal(
        found, np.stack([weights[1], 0 * weights[0], weights[0] + weights[2], 0 * weights[0]])
    )
