"""`ts.tile.reduce_across`: what all programs have a share in, combined in their order by a second launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, bf16, f32, int32
from tests.differential.test_folds import everywhere
from tests.kernel_runner import check, codes, program, run

rng = np.random.default_rng(0)


def added(a, b):  # type: ignore[no-untyped-def]
    return a + b


def column_sums(x: Tensor["M", "N", f32], out: Tensor["N", f32]):
    for i in ts.tile.range(0, M, 8):
        block = x[i : i + 8, tile_n : tile_n + 16]
        out[tile_n : tile_n + 16] = ts.tile.reduce_across(ts.tile.reduce(block, added, axis=0))


def loss(x: Tensor["n", f32], y: Tensor["n", f32], out: Tensor[2, f32]):
    i = ts.tile.linear_id()
    d = x[i] - y[i]
    out[1] = ts.tile.reduce_across(ts.tile.reduce(d * d, added) / n)


def largest(x: Tensor["M", "N", f32]) -> Tensor["M", f32]:
    for j in ts.tile.range(0, N, 8):
        out = ts.tile.reduce_across(ts.tile.row_max(x[:, j : j + 8]), "max")
    return out


def counts(x: Tensor["B", "M", "N", int32], least: Tensor["B", "N", int32], product: Tensor["B", int32]):
    for i in ts.tile.range(0, M, 4):
        block = x[ts.tile.each(), i : i + 4, :]
        least[ts.tile.each(), :] = ts.tile.reduce_across(ts.tile.col_min(block), op="min")
        product[ts.tile.each()] = ts.tile.reduce_across(ts.tile.prod(block), op="prod")


def in_order(values: Any, rows: int) -> Any:
    """The shares of consecutive programs: as many rows at a time, neighbours first, then row by row."""
    total = np.zeros_like(values[0])
    for start in range(0, len(values), rows):
        part = np.zeros((rows, *values.shape[1:]), values.dtype)
        part[: len(values[start : start + rows])] = values[start : start + rows]
        while len(part) > 1:
            part = part[::2] + part[1::2]
        total = total + part[0]
    return total


def test_column_sums_in_the_order_of_the_programs() -> None:
    x = rng.standard_normal((301, 45)).astype(np.float32)
    (out,) = everywhere(column_sums, x, np.full(45, 9, np.float32), results=1)
    np.testing.assert_allclose(out, x.sum(0), rtol=1e-4, atol=1e-5)
    whole = np.zeros((304, 45), np.float32)
    whole[:301] = x
    shares = whole.reshape(38, 8, 45)
    while shares.shape[1] > 1:
        shares = shares[:, ::2] + shares[:, 1::2]
    np.testing.assert_array_equal(out, in_order(shares[:, 0], 32))


def test_a_loss_is_one_number() -> None:
    x, y = rng.standard_normal((2, 1000)).astype(np.float32)
    out = np.full(2, 9, np.float32)
    (out,) = everywhere(ts.kernel(BLOCK=16)(loss), x, y, out, results=1)
    np.testing.assert_allclose(out, [9, ((x - y) ** 2).mean()], rtol=1e-5)


def test_results_that_are_returned_and_batches() -> None:
    x = rng.standard_normal((13, 45)).astype(np.float32)
    for target in ("reference", "cpu"):
        np.testing.assert_array_equal(run(largest, x, target=target), x.max(1))
    x = rng.integers(-3, 4, (3, 11, 5)).astype(np.int32)
    least, product = everywhere(counts, x, np.zeros((3, 5), np.int32), np.zeros(3, np.int32), results=2)
    np.testing.assert_array_equal(least, x.min(1))
    np.testing.assert_array_equal(product, x.astype(np.int64).prod((1, 2)).astype(np.int32))


def first_twice(x: Tensor["n", f32]) -> Tensor[1, f32]:
    i = ts.tile.linear_id()
    return ts.tile.reduce_across(ts.tile.sum(ts.tile.where(i < 3, x[i] * 2, x[i]), keepdim=True))


def with_the_next(x: Tensor["n", f32]) -> Tensor[1, f32]:
    i = ts.tile.linear_id()
    following = ts.tile.where(i < n - 1, ts.tile.load(x[i + 1], other=0), 0)
    return ts.tile.reduce_across(ts.tile.sum(x[i] * 2 + following, keepdim=True))


def in_blocks_of_four(x: Tensor["n", f32]) -> Tensor[1, f32]:
    i = ts.tile.program_id() * 4 + ts.tile.arange(4)
    return ts.tile.reduce_across(ts.tile.sum(ts.tile.where(i < 3, x[i] * 2, x[i]), keepdim=True))


@pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])
def test_elements_behind_a_comparison_have_programs(target: str) -> None:
    x = np.arange(19, dtype=np.float32)
    for kernel, wanted in ((first_twice, 171 + 3), (with_the_next, 3 * 171), (in_blocks_of_four, 171 + 3)):
        assert run(kernel, x, target=target, BLOCK=4) == wanted, kernel


def test_one_program_needs_no_second_launch() -> None:
    x = rng.standard_normal((7, 45)).astype(np.float32)
    assert len(program(column_sums, x, np.zeros(45, np.float32)).launches) == 1
    assert len(program(column_sums, np.zeros((9, 45), np.float32), np.zeros(45, np.float32)).launches) == 2
    (out,) = everywhere(column_sums, x, np.zeros(45, np.float32), results=1, emulated=False)
    np.testing.assert_allclose(out, x.sum(0), rtol=1e-5, atol=1e-6)


def test_no_program_has_a_share() -> None:
    (out,) = everywhere(column_sums, np.zeros((0, 5), np.float32), np.full(5, 9, np.float32), results=1)
    np.testing.assert_array_equal(out, 0)


@ts.kernel
def summed(x: Tensor["M", "N", f32]) -> Tensor["N", f32]:
    for i in ts.tile.range(0, M, 8):
        out = ts.tile.reduce_across(ts.tile.reduce(x[i : i + 8, :], added, axis=0))
    return out


@ts.function
def centred(x: Tensor["M", "N", f32]):
    return x - summed(x * 2) / (2 * x.shape[0])


def test_in_a_function_and_by_any_number_of_threads() -> None:
    x = rng.standard_normal((77, 33)).astype(np.float32)
    found = []
    before = ts.get_num_threads()
    try:
        for threads in (1, 2, 3):
            ts.set_num_threads(threads)
            with ts.knobs.target.override("cpu"):
                found.append((summed(x).tobytes(), centred(x).tobytes()))
    finally:
        ts.set_num_threads(before)
    assert len(set(found)) == 1
    np.testing.assert_allclose(centred(x), x - x.mean(0), atol=1e-6)
    with ts.knobs.target.override("reference"):
        assert centred(x).tobytes() == found[0][1]


def test_sizes_that_are_not_known() -> None:
    """Code for any number of rows."""
    compiled = ts.compile(summed, target="cpu", dims={"N": 33})
    for rows in (5, 77, 300):
        x = rng.standard_normal((rows, 33)).astype(np.float32)
        np.testing.assert_allclose(compiled(x), x.sum(0), rtol=1e-4, atol=1e-5)


# What is refused


def under_a_condition(x: Tensor["M", "N", f32], out: Tensor["N", f32], at: Tensor["k", int32]):
    for i in ts.tile.range(0, M, 8):
        if ts.tile.sum(x[i : i + 8, :]) > 0:
            out[:] = ts.tile.reduce_across(ts.tile.col_sum(x[i : i + 8, :]))


def used_before(x: Tensor["M", "N", f32], out: Tensor["N", f32], at: Tensor["k", int32]):
    for i in ts.tile.range(0, M, 8):
        out[:] = ts.tile.reduce_across(ts.tile.col_sum(x[i : i + 8, :])) + 1


def read_too(x: Tensor["M", "N", f32], out: Tensor["N", f32], at: Tensor["k", int32]):
    for i in ts.tile.range(0, M, 8):
        out[:] = ts.tile.reduce_across(ts.tile.col_sum(x[i : i + 8, :] + out[:]))


def at_a_loaded_place(x: Tensor["M", "N", f32], out: Tensor["N", f32], at: Tensor["k", int32]):
    for i in ts.tile.range(0, M, 8):
        out[at[0]] = ts.tile.reduce_across(ts.tile.sum(x[i : i + 8, :]))


def no_such(x: Tensor["M", "N", f32], out: Tensor["N", f32], at: Tensor["k", int32]):
    for i in ts.tile.range(0, M, 8):
        out[:] = ts.tile.reduce_across(ts.tile.col_sum(x[i : i + 8, :]), "mean")


def rounded(x: Tensor["M", "N", f32], out: Tensor["N", bf16], at: Tensor["k", int32]):
    for i in ts.tile.range(0, M, 8):
        out[:] = ts.tile.reduce_across(ts.tile.col_sum(x[i : i + 8, :]))


@pytest.mark.parametrize(
    "kernel,code",
    [(under_a_condition, "TS102"), (used_before, "TS406"), (read_too, "TS406"), (at_a_loaded_place, "TS406"),
     (no_such, "TS105"), (rounded, "TS303")],
)  # fmt: skip
def test_what_is_refused(kernel: Any, code: str) -> None:
    out = np.zeros(9, bf16.numpy if kernel is rounded else np.float32)
    assert codes(kernel, np.zeros((20, 9), np.float32), out, np.zeros(3, np.int32)) == [code]
    assert [d.code for d in check(kernel).diagnostics if d.severity == "error"] == [code]
