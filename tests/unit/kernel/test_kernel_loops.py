"""Loops that kernels leave early: break, continue and return under conditions known only when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import check, program, run

rng = np.random.default_rng(3)
targets = pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])


def square_roots(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], steps: ts.Tensor["m", ts.int32]):
    for i in ts.tile.range(0, n, 8):
        a = x[i : i + 8]
        r = a
        count = 0
        for _ in ts.tile.range_k(0, 50):
            new = (r + a / r) / 2
            count = count + 1
            done = ts.tile.max(ts.tile.abs(new - r)) < 1e-6
            r = new
            if done:
                break
        y[i : i + 8] = r
        steps[i // 8] = count


@targets
def test_break_ends_a_counted_loop(target: str) -> None:
    x = rng.uniform(0.5, 50, 21).astype(np.float32)
    y, steps = np.zeros_like(x), np.zeros(3, np.int32)
    run(square_roots, x, y, steps, target=target)
    np.testing.assert_allclose(y, np.sqrt(x), rtol=1e-6)
    assert ((steps > 3) & (steps < 12)).all()


def test_a_loop_says_how_it_is_left() -> None:
    x = np.ones(8, np.float32)
    (loop,) = [op for op in program(square_roots, x, x, np.zeros(1, np.int32)).launches[0].kernel.walk()
               if op.name == "tile.for"]  # fmt: skip
    assert loop.attrs["going"] == 0


def selected_sums(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 1):
        total = 0.0
        for k in ts.tile.range_k(0, N, 4):
            v = x[i, k : k + 4]
            if ts.tile.min(v) < -1.5:
                continue
            s = ts.tile.sum(v)
            if s > 3:
                break
            total = total + s
        y[i] = total


def selected_sums_python(row: Any) -> Any:
    total = 0.0
    for k in range(0, len(row), 4):
        v = row[k : k + 4]
        if v.min() < -1.5:
            continue
        if v.sum() > 3:
            break
        total = total + v.sum()
    return total


def first_rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 1):
        total = 0.0
        for k in ts.tile.range_k(0, N, 4):
            for j in ts.tile.range_k(0, 4):
                s = x[i, k + j]
                if s > 2:
                    return
                total = total + s
            if total < -5:
                break
        y[i] = total


def first_rows_python(row: Any) -> Any:
    total = 0.0
    for k in range(0, len(row), 4):
        for s in row[k : k + 4]:
            if s > 2:
                return 7
            total += s
        if total < -5:
            break
    return total


def skipped_programs(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 1):
        v = x[i, 0:N]
        if ts.tile.max(v) > 2:
            continue
        if ts.tile.min(v) < -2:
            y[i] = 1.0
        else:
            y[i] = ts.tile.sum(v)


def skipped_programs_python(row: Any) -> Any:
    return 7 if row.max() > 2 else 1 if row.min() < -2 else row.sum()


def halved(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 1):
        v = ts.tile.sum(ts.tile.abs(x[i, 0:N]))
        while True:
            v = v / 2
            if v < 1:
                break
        k = 0
        while k < 10:
            k = k + 1
            if k == 3:
                continue
            v = v + k
            if v > 20:
                break
        y[i] = v


def halved_python(row: Any) -> Any:
    v = np.float32(np.abs(row).sum())
    while True:
        v = v / 2
        if v < 1:
            break
    for k in range(1, 11):
        if k == 3:
            continue
        v = v + k
        if v > 20:
            break
    return v


@targets
@pytest.mark.parametrize(
    ("kernel", "python"),
    [
        (selected_sums, selected_sums_python),
        (first_rows, first_rows_python),
        (skipped_programs, skipped_programs_python),
        (halved, halved_python),
    ],
)
def test_a_row_per_program(kernel: Callable[..., Any], python: Callable[..., Any], target: str) -> None:
    x = rng.standard_normal((12, 32)).astype(np.float32)
    y = np.full(12, 7, np.float32)
    run(kernel, x, y, target=target)
    np.testing.assert_allclose(y, [python(row) for row in x], rtol=1e-4, atol=1e-5)


def capped(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    v = x[i]
    for _ in ts.tile.range_k(0, 5):
        if v > 3:
            continue
        v = v + 1
    y[i] = v


def two_ways(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if x[i] > 3:
        y[i] = 3.0
    else:
        y[i] = 0.0
        return
    y[i] = y[i] + 1


@targets
def test_lanes_skip_steps_each_for_itself(target: str) -> None:
    x = rng.uniform(0, 9, 70).astype(np.float32)
    y, z, want = np.zeros_like(x), np.zeros_like(x), x
    run(capped, x, y, target=target, BLOCK=32)
    run(two_ways, x, z, target=target, BLOCK=32)
    for _ in range(5):
        want = np.where(want > 3, want, want + 1)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    np.testing.assert_array_equal(z, np.where(x > 3, 4, 0))


def ragged_state(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 4):
        v = x[i : i + 4]
        while ts.tile.sum(v) < 60:
            v = v + 1
        y[i : i + 4] = v


@targets
def test_padding_stays_out_of_sums_in_while_loops(target: str) -> None:
    x = np.ones(9, np.float32)
    y = np.zeros_like(x)
    run(ragged_state, x, y, target=target)
    np.testing.assert_array_equal(y, [15] * 8 + [60])


def in_place_twice(x: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    x[i] = x[i] + 1
    if alpha == 0:
        return x
    x[i] = x[i] * alpha
    return x


@targets
@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_a_parameter_is_given_back_from_several_places(alpha: float, target: str) -> None:
    x = rng.standard_normal(40).astype(np.float32)
    want = (x + 1) * np.float32(alpha or 1)
    assert run(in_place_twice, x, alpha, target=target, BLOCK=32) is x
    np.testing.assert_array_equal(x, want)


def return_of_lanes(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    while x[i] < 3:
        if x[i] < 0:
            return
        x[i] = x[i] + 1


def value_from_a_loop(x: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", ts.f32]:
    total = ts.tile.zeros((8,))
    for k in ts.tile.range_k(0, N, 8):
        total += ts.tile.row_sum(x[tile_m : tile_m + 8, k : k + 8])
        if ts.tile.max(total) > 3:
            return total
    return total


def first_large(x, start, stop):
    for k in ts.tile.range_k(start, stop):
        if x[k] > 3:
            return k
    return stop


def value_from_a_loop_of_a_helper(x: ts.Tensor["n", ts.f32], y: ts.Tensor["m", ts.int64]):
    y[0] = first_large(x, 0, n)


def parameter_from_a_loop(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
    for k in ts.tile.range_k(0, n):
        x[k] = x[k] + 1
        if x[k] > 3:
            return x
    return x


def unrolled_break(x: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 8):
        v = x[i : i + 8]
        for _ in ts.tile.static_range(3):
            v = v + 1
            if ts.tile.max(v) > 3:
                break
        x[i : i + 8] = v


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (return_of_lanes, "leave it with break"),
        (value_from_a_loop, "keep it in a name"),
        (value_from_a_loop_of_a_helper, "keep it in a name"),
        (parameter_from_a_loop, "keep it in a name"),
        (unrolled_break, "ts.tile.range_k"),
    ],
)
def test_what_has_no_meaning_says_so(kernel: Callable[..., Any], says: str) -> None:
    found = [d for d in check(kernel).diagnostics if d.severity == "error"]
    assert [d.code for d in found] == ["TS102"], [d.message for d in found]
    assert says in found[0].message
