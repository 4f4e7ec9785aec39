"""Which elements exist, of tiles that loops carry, branches give, and sorts and scans go over; on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.errors import DebugCheckError
from tests.differential.test_outside_of_arrays import TARGETS, run
from tests.kernel_runner import program

X = -np.arange(1, 14, dtype=np.float32)
"""13 elements below 0: a padded 0 would be the greatest"""


def scanned(x: Tensor["N", ts.f32], y: Tensor["P", "I", ts.f32], z: Tensor["P", "I", ts.f32]):
    for p in ts.tile.range(0, P):
        some = ts.tile.load(x[p * 8 : p * 8 + 8], mask=ts.tile.arange(8) % 3 != 1)
        y[p, 0:8] = ts.tile.cummax(some.reshape(2, 4), axis=0).reshape(8)
        z[p, 0:8] = ts.tile.cumsum(ts.tile.exp(x[p * 8 : p * 8 + 8]).reshape(2, 4), axis=0).reshape(8)


@TARGETS
def test_scans_leave_out_what_does_not_exist(target: str) -> None:
    _, y, z = run(scanned, X, *(np.zeros((2, 8), np.float32) for _ in range(2)), target=target)
    padded = np.append(X, [-np.inf] * 3).reshape(2, 8)
    kept = np.where(np.arange(8) % 3 != 1, padded, -np.inf).reshape(2, 2, 4)
    np.testing.assert_array_equal(y, np.maximum.accumulate(kept, axis=1).reshape(2, 8))
    np.testing.assert_allclose(z, np.exp(padded).reshape(2, 2, 4).cumsum(axis=1).reshape(2, 8), rtol=1e-6)


def ordered(
    x: Tensor["N", ts.f32], up: Tensor["P", "I", ts.f32], down: Tensor["P", "I", ts.f32], least: Tensor["P", ts.f32]
):
    for p in ts.tile.range(0, P):
        some = ts.tile.load(x[p * 8 : p * 8 + 8], mask=ts.tile.arange(8) % 3 != 1)
        lines = ts.tile.sort(some.reshape(2, 4), axis=1)
        up[p, 0:8] = ts.tile.where(lines == lines, lines, 7).reshape(8)
        down[p, 0:8] = ts.tile.sort(ts.tile.exp(x[p * 8 : p * 8 + 8]).reshape(8), descending=True)
        least[p] = ts.tile.max(lines)


@TARGETS
def test_sorts_put_what_does_not_exist_behind(target: str) -> None:
    up, down = (np.zeros((2, 8), np.float32) for _ in range(2))
    _, up, down, least = run(ordered, X, up, down, np.zeros(2, np.float32), target=target)
    padded = np.append(X, [np.nan] * 3).reshape(2, 8)
    lines = np.sort(np.where(np.arange(8) % 3 != 1, padded, np.nan).reshape(2, 2, 4), axis=2)
    np.testing.assert_array_equal(up, np.nan_to_num(lines, nan=7).reshape(2, 8))
    np.testing.assert_array_equal(least, np.nanmax(lines, axis=(1, 2)))
    want = np.sort(np.exp(padded), axis=1)
    np.testing.assert_allclose(down[0], want[0, ::-1], rtol=1e-6)
    np.testing.assert_allclose(down[1, :5], want[1, 4::-1], rtol=1e-6)


def fetched_ahead(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    """The next block is loaded a step before it is used."""
    for p in ts.tile.range(0, P):
        best = ts.tile.full((), -100.0)
        block = x[p * 8 : p * 8 + 8].reshape(8)
        for t in ts.tile.range_k(1, 3):
            best = ts.tile.maximum(best, ts.tile.max(block))
            block = x[(p + t) * 8 : (p + t) * 8 + 8].reshape(8)
        y[p] = ts.tile.maximum(best, ts.tile.max(block))


def last_block(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        block = ts.tile.full((8,), -50.0)
        for t in ts.tile.range_k(0, p):
            block = x[t * 8 : t * 8 + 8].reshape(8)
        y[p] = ts.tile.max(block)


def best_until(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        best = ts.tile.full((8,), -100.0)
        for t in ts.tile.range_k(0, 3):
            best = ts.tile.maximum(best, x[t * 8 : t * 8 + 8].reshape(8))
            if t == p:
                break
        y[p] = ts.tile.min(best)


def one_of_two(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        block = x[0:8].reshape(8)
        if p % 2 == 1:
            block = x[p * 8 : p * 8 + 8].reshape(8)
        y[p] = ts.tile.max(block)


def added_in_a_branch(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32], inside: ts.Const = False):
    """Where `p * 8` is computed first changes nothing."""
    for p in ts.tile.range(0, P):
        total = ts.tile.full((8,), -1.0)
        if not inside:
            at = p * 8
            ts.tile.debug_assert(x[at : at + 8] < 100, "small")
        for t in ts.tile.range_k(0, 2):
            if t == 1:
                total = total + x[p * 8 : p * 8 + 8].reshape(8)
        y[p] = ts.tile.max(total)


def masked_steps(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        best = ts.tile.full((4,), -100.0)
        for t in ts.tile.range_k(0, 2):
            best = ts.tile.maximum(best, ts.tile.load(x[t * 4 : t * 4 + 4], mask=ts.tile.arange(4) > p).reshape(4))
        y[p] = ts.tile.max(best)


CARRIED: list[tuple[Callable[..., Any], int, list[float]]] = [
    (fetched_ahead, 1, [-1]), (last_block, 3, [-50, -1, -9]), (best_until, 3, [-8, -8, -8]),
    (one_of_two, 2, [-1, -9]), (added_in_a_branch, 2, [-2, -10]), (masked_steps, 3, [-2, -3, -4]),
]  # fmt: skip


@TARGETS
@pytest.mark.parametrize(("kernel", "count", "want"), CARRIED, ids=[k.__name__ for k, *_ in CARRIED])
def test_what_loops_carry_and_branches_give(
    kernel: Callable[..., Any], count: int, want: list[float], target: str
) -> None:
    _, y = run(kernel, X, np.zeros(count, np.float32), target=target)
    np.testing.assert_array_equal(y, want)


def chosen(x: Tensor["N", ts.f32], y: Tensor["P", "I", ts.f32]):
    for p in ts.tile.range(0, P):
        lanes = ts.tile.arange(8)
        m = lanes % 2 == 0
        some, rows = ts.tile.full((8,), 1.0), ts.tile.full((2, 4), -3.0)
        nested, counted = some * 2, ts.tile.zeros((8,))
        if m:
            some = x[p * 8 : p * 8 + 8].reshape(8) * 2
            if some < -6:
                nested = some
        else:
            nested = nested + 1
        if ts.tile.arange(2)[:, None] > 0:
            rows = x[p * 8 : p * 8 + 8].reshape(2, 4)
        for t in ts.tile.range_k(0, 3):
            at = ts.tile.arange(8) == t
            counted = ts.tile.where(at, ts.tile.load(x[p * 8 : p * 8 + 8], mask=at).reshape(8), counted + 1)
        loaded = ts.tile.load(x[p * 8 : p * 8 + 8], mask=lanes > 2).reshape(8)
        y[p, 0] = ts.tile.sum(some)
        y[p, 1] = ts.tile.max(ts.tile.where(lanes > 2, loaded, -2.0))
        y[p, 2] = ts.tile.sum(ts.tile.where(lanes > 4, loaded, 1.0))
        y[p, 3] = ts.tile.sum(nested)
        y[p, 4] = ts.tile.min(rows)
        y[p, 5] = ts.tile.sum(counted)
        y[p, 6] = ts.tile.sum(ts.tile.where(lanes > 4, 1.0, loaded))


@TARGETS
def test_what_a_condition_chooses_exists_where_the_chosen_does(target: str) -> None:
    lanes, x, counted = np.arange(8), X[:8], np.zeros(8)
    for t in range(3):
        counted = np.where(lanes == t, x, counted + 1)
    some = np.where(lanes % 2 == 0, 2 * x, 1)
    nested = np.where(lanes % 2 == 1, 3, np.where(some < -6, some, 2))
    rest = x[3:5].sum() + 3  # three of loaded do not exist
    want = [some.sum(), -2, x[5:].sum() + 5, nested.sum(), -8, counted.sum(), rest]
    np.testing.assert_allclose(run(chosen, x, np.zeros((1, 7), np.float32), target=target)[1][0], want)


def divided(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32], z: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        y[p] = x[7 // (p - 1)]
        z[p] = x[3 + p % (p - 1)]


@TARGETS
def test_an_index_divided_by_0_is_0(target: str) -> None:
    *_, y, z = run(divided, X, np.zeros(4, np.float32), np.zeros(4, np.float32), target=target)
    np.testing.assert_array_equal(y, [0, X[0], X[7], X[3]])
    np.testing.assert_array_equal(z, [X[3], X[3], X[3], X[4]])


def divided_everywhere(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        y[p] = x[7 // p]


@TARGETS
def test_debug_mode_tells_of_an_index_divided_by_0(target: str) -> None:
    arrays = [X, np.zeros(4, np.float32)]
    chosen = base.get(target)
    executable = chosen.load(generate(program(divided_everywhere, *arrays), chosen, debug=True))
    with pytest.raises(DebugCheckError, match=r"TS506[\s\S]*An index is divided by 0\.") as raised:
        executable.run([a.ctypes.data for a in arrays], [], [])
    assert "x[7 // p]" in str(raised.value)


def divided_below(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        if p > 0:
            y[p] = x[7 // p]


@TARGETS
def test_debug_mode_asks_only_where_the_division_is(target: str) -> None:
    arrays = [X, np.zeros(4, np.float32)]
    chosen = base.get(target)
    executable = chosen.load(generate(program(divided_below, *arrays), chosen, debug=True))
    executable.run([a.ctypes.data for a in arrays], [], [])
    np.testing.assert_array_equal(arrays[1], [0, X[7], X[3], X[2]])


def numbered(x: Tensor["N", ts.f32], y: Tensor["P", "Q", ts.f32]):
    """The condition ends elsewhere in each program, and says nothing of how many there are."""
    p = ts.tile.program_id()
    below = ts.tile.arange(4) + p * 2 < p + 3
    ts.tile.store(y[p, ts.tile.arange(4)], x[ts.tile.arange(4) + p], mask=below.reshape(4))


@TARGETS
def test_how_many_programs_there_are_does_not_depend_on_a_program(target: str) -> None:
    _, y = run(numbered, X, np.zeros((3, 4), np.float32), target=target)
    want = np.zeros((3, 4), np.float32)
    for p in range(3):
        want[p, : 3 - p] = X[p:3]
    np.testing.assert_array_equal(y, want)


def ordered_places(
    x: Tensor["M", "N", ts.f32], keep: Tensor["M", "N", ts.int32], up: Tensor["M", "N", ts.int64],
    down: Tensor["M", "N", ts.int64],
):  # fmt: skip
    for i in ts.tile.range(0, M, 2):
        kept = keep[i : i + 2, 0:8] > 0
        some = ts.tile.load(x[i : i + 2, 0:8], mask=kept)
        there = ts.tile.arange(8)[None, :] < ts.tile.sum(kept.cast(ts.int32), axis=1, keepdim=True)
        up[i : i + 2, 0:8] = ts.tile.where(there, ts.tile.argsort(some), -1)
        down[i : i + 2, 0:8] = ts.tile.where(there, ts.tile.argsort(some, descending=True), -1)


@TARGETS
def test_places_of_what_exists_whatever_the_elements_are(target: str) -> None:
    """NaN, inf and -inf are elements like others: what stands in gaps takes the place of none."""
    rng = np.random.default_rng(0)
    x = rng.choice([1, 2, np.nan, -np.inf, np.inf], (6, 8)).astype(np.float32)
    keep = rng.integers(0, 2, (6, 8)).astype(np.int32)
    _, _, up, down = run(ordered_places, x, keep, *(np.zeros((6, 8), np.int64) for _ in range(2)), target=target)
    for row, kept, rising, falling in zip(x, keep, up, down, strict=True):
        at = np.nonzero(kept)[0]
        last = [-1] * (8 - len(at))
        assert rising.tolist() == [*at[np.argsort(row[at], kind="stable")], *last]
        order = sorted(at, key=lambda j: (not np.isnan(row[j]), -np.nan_to_num(row[j], nan=0, posinf=9, neginf=-9), j))
        assert falling.tolist() == [*order, *last]


def shared_later(
    x: Tensor["M", "N", ts.f32], keep: Tensor["M", "N", ts.int32], last: Tensor["M", ts.f32], all: Tensor["M", ts.f32],
    either: Tensor["M", ts.f32],
):  # fmt: skip
    for i in ts.tile.range(0, M):
        s = ts.tile.alloc_shared((8,), ts.f32)
        ts.tile.store(s, x[i, 0:8])
        largest = ts.tile.full((), -100.0)
        for j in ts.tile.range_k(0, N, 4):
            largest = ts.tile.maximum(largest, ts.tile.max(s))
            ts.tile.store(s, ts.tile.load(x[i, j : j + 8], mask=keep[i, j : j + 8] > 0))
        last[i], all[i] = ts.tile.max(s), largest
        if x[i, 0] < -3:
            ts.tile.store(s, x[i, 4:12])
        either[i] = ts.tile.max(s)


@TARGETS
def test_shared_tiles_behind_loops_and_branches_that_store_them(target: str) -> None:
    """Each step, and each side of a branch, leaves other elements out: by a mask, or at the ragged end of the rows."""
    rng = np.random.default_rng(0)
    x, keep = -1 - rng.integers(0, 6, (6, 10)).astype(np.float32), rng.integers(0, 2, (6, 10)).astype(np.int32)
    out = run(shared_later, x, keep, *(np.zeros(6, np.float32) for _ in range(3)), target=target)[2:]
    for row, kept, last, largest, either in zip(x, keep, *out, strict=True):
        s, found = row[:8], -100.0
        for j in range(0, 10, 4):
            found = max(found, s.max(initial=-np.inf))
            s = row[j : j + 8][kept[j : j + 8] > 0]
        assert (last, largest) == (s.max(initial=-np.inf), found)
        assert either == (row[4:12] if row[0] < -3 else s).max(initial=-np.inf)


def test_masks_of_shared_tiles_are_carried_where_they_are_read() -> None:
    """A product fills its shared tiles in each step before it reads them: its loop carries the sum and nothing else."""

    def product(a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32], c: Tensor["M", "N", ts.f32]):
        left, right = ts.tile.alloc_shared((8, 8), ts.f32), ts.tile.alloc_shared((8, 8), ts.f32)
        for i in ts.tile.range(0, M, 8):
            total = ts.tile.zeros((8, 8))
            for k in ts.tile.range_k(0, K, 8):
                ts.tile.cp_async(left, a[i : i + 8, k : k + 8])
                ts.tile.cp_async(right, b[k : k + 8, 0:8])
                ts.tile.barrier()
                total += ts.tile.mma(left, right)
            c[i : i + 8, 0:8] = total

    arrays = [np.zeros(shape, np.float32) for shape in ((10, 11), (11, 8), (10, 8))]
    (launch,) = program(product, *arrays).launches
    (loop,) = [op for op in launch.kernel.walk() if op.name == "tile.for"]
    assert [str(r.type) for r in loop.results] == ["!tessera.tile<[8, 8], f32>"]
