"""Derived backwards of kernels that read rows by numbers: against sums in NumPy, in one order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tests.kernel_runner import backward_refusal, check_backward

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
def computed(
    table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32], kind: Tensor["N", ts.int32]
) -> Tensor["N", "D", ts.f32]:
    which = ids[tile_n : tile_n + 8]
    return table[ts.tile.where(which < 0, 0, which * 2) + kind[tile_n : tile_n + 8], :]


@ts.kernel
def neighbours(table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32]) -> Tensor["N", "D", ts.f32]:
    """Each sum over steps of a loop, whose rows have numbers of their own."""
    y: Tensor["N", "D", ts.f32]
    for i in ts.tile.range(0, N, 8):
        total = ts.tile.zeros((8, D))
        for j in ts.tile.range_k(0, 3):
            total += ts.tile.square(table[ids[i : i + 8] + j, :])
        y[i : i + 8, :] = total
    return y


@ts.kernel
def pages(
    kv: Tensor["V", "D", ts.f32], table: Tensor["B", "P", ts.int32], w: Tensor["B", "D", ts.f32]
) -> Tensor["B", "D", ts.f32]:
    y: Tensor["B", "D", ts.f32]
    for b in ts.tile.range(0, B):
        acc = ts.tile.zeros((D,))
        for j in ts.tile.range_k(0, P):
            at = table[b, j] * 4
            acc += ts.tile.col_sum(kv[at : at + 4, :] * w[b, :])
        y[b, :] = acc
    return y


def pages_operators(kv: Any, table: Any, w: Any) -> Any:
    rows = ts.reshape(table[:, :, None] * 4 + np.arange(4, dtype=np.int32), (table.shape[0], -1))
    return ts.sum(ts.take(kv, rows, 0), 1) * w


@ts.kernel
def picked(x: Tensor["N", "C", ts.f32], label: Tensor["N", ts.int32]) -> Tensor["N", ts.f32]:
    y: Tensor["N", ts.f32]
    i = ts.tile.linear_id()
    if i < N:
        y[i] = ts.tile.log(x[i, label[i]])
    return y


@ts.kernel
def cross_entropy(x: Tensor["N", "C", ts.f32], label: Tensor["N", ts.int32]) -> Tensor["N", ts.f32]:
    y: Tensor["N", ts.f32]
    for n in ts.tile.range(0, N):
        row = x[n, :]
        top = ts.tile.max(row)
        y[n] = top + ts.tile.log(ts.tile.sum(ts.tile.exp(row - top))) - x[n, label[n]]
    return y


@ts.kernel
def routed(
    x: Tensor["T", "K", ts.f32], tokens: Tensor["N", ts.int32], w: Tensor["K", "F", ts.f32]
) -> Tensor["N", "F", ts.f32]:
    acc = ts.tile.zeros((8, 16))
    rows = tokens[tile_n : tile_n + 8]
    for k in ts.tile.range_k(0, K, 16):
        acc += x[rows, k : k + 16] @ w[k : k + 16, tile_f : tile_f + 16]
    return ts.tile.relu(acc)


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
    (
        computed,
        lambda t, ids, kind: ts.take(t, ts.where(ids < 0, 0, ids * 2) + kind, 0),
        [numbers(9, 10), *rng.integers(-2, 4, (1, 21), np.int32), rng.integers(0, 3, 21, np.int32)],
    ),
    (
        neighbours,
        lambda t, ids: sum(ts.square(ts.take(t, ids + j, 0)) for j in range(3)),
        [numbers(9, 10), rng.integers(0, 7, 21, np.int32)],
    ),
    (pages, pages_operators, [numbers(20, 6), rng.integers(0, 5, (3, 4), np.int32), numbers(3, 6)]),
    (
        picked,
        lambda x, label: ts.log(ts.gather(x, label[:, None], 1)[:, 0]),
        [np.exp(numbers(1100, 3)), rng.integers(0, 3, 1100, np.int32)],
    ),
    (
        cross_entropy,
        lambda x, label: ts.logsumexp(x, 1) - ts.gather(x, label[:, None], 1)[:, 0],
        [numbers(21, 10), rng.integers(0, 10, 21, np.int32)],
    ),
    (
        routed,
        lambda x, tokens, w: ts.relu(ts.take(x, tokens, 0) @ w),
        [numbers(12, 40), rng.integers(0, 12, 21, np.int32), numbers(40, 20)],
    ),
]


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_90a"])
@pytest.mark.parametrize(("kernel", "operators", "args"), CASES, ids=[k.name for k, _, _ in CASES])
def test_the_gradient_of_rows_is_that_of_the_operators(
    kernel: Any, operators: Any, args: list[Any], target: str
) -> None:
    moved = tuple(i for i, a in enumerate(args) if a.dtype == np.float32)
    check_backward(kernel, operators, args, target, moved)


@pytest.mark.parametrize("kernel", [computed, pages, cross_entropy, routed], ids=lambda k: k.name)
def test_the_texts_are_kept(kernel: Any, golden: Callable[[str, str], None]) -> None:
    golden(f"{kernel.name}_backward", kernel.backward().source)


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


def test_rows_that_cannot_be_told_apart_are_refused_at_their_line() -> None:
    @ts.kernel
    def of_many_blocks(
        table: Tensor["V", "D", ts.f32], ids: Tensor["N", ts.int32], x: Tensor["M", "D", ts.f32]
    ) -> Tensor["N", "M", ts.f32]:
        return table[ids[tile_n : tile_n + 8] + 1, :] @ x[tile_m : tile_m + 8, :].T

    @ts.kernel
    def in_columns(x: Tensor["M", "V", ts.f32], ids: Tensor["N", ts.int32], y: Tensor["M", "N", ts.f32]):
        for i in ts.tile.range(0, M, 8):
            y[i : i + 8, 0:4] = x[i : i + 8, ids[0:4]]

    @ts.kernel
    def turned(x: Tensor["N", "D", ts.f32]) -> Tensor["N", "D", ts.f32]:
        y: Tensor["N", "D", ts.f32]
        for i in ts.tile.range(0, N, 8):
            y[i : i + 8, :] = x[N - 1 - i - ts.tile.arange(8), :]
        return y

    @ts.kernel
    def stored(x: Tensor["N", "D", ts.f32], ids: Tensor["N", ts.int32]):
        for i in ts.tile.range(0, N, 8):
            x[i : i + 8, :] = x[ids[i : i + 8], :]

    found = backward_refusal(of_many_blocks)
    assert found.startswith("4: ") and "several programs read rows of table by the same numbers" in found
    assert backward_refusal(in_columns).startswith("3: ") and "and not rows" in backward_refusal(in_columns)
    assert backward_refusal(turned).startswith("4: ") and "where each program may store" in backward_refusal(turned)
    assert backward_refusal(stored).startswith("3: ") and "x is stored to" in backward_refusal(stored)


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
