"""Chains of products turned: the same bits as straight ones, and what is no chain stays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import Lowered, generate, lower
from tessera.compiler.targets.cpu.target import CpuTarget


class Straight(CpuTarget):
    passes = tuple(name for name in CpuTarget.passes if name != "turn_products")


@ts.kernel(ROWS=32, COLUMNS=32)
def softmax_between(
    q: Tensor["S", 24, ts.f32], k: Tensor["T", 24, ts.f32], v: Tensor["T", 20, ts.f32], out: Tensor["S", 20, ts.f32]
):  # fmt: skip
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    i = ts.tile.program_id(0) * rows
    x = q[i : i + rows, :]
    top, total = ts.tile.full((rows,), -math.inf, ts.f32), ts.tile.zeros((rows,), ts.f32)
    sums = ts.tile.zeros((rows, 20), ts.f32)
    for j in ts.tile.range_k(0, ctx.T, columns):
        s = ts.tile.mma(x, k[j : j + columns, :].T) * 0.2
        place = (i + ts.tile.arange(rows))[:, None] + 3
        s = ts.tile.where((j + ts.tile.arange(columns))[None, :] <= place, s, -math.inf)
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        p, shrink = ts.tile.exp(s - new), ts.tile.exp(top - new)
        total = total * shrink + ts.tile.row_sum(p)
        sums = sums * shrink + ts.tile.mma(p, v[j : j + columns, :])
        top = new
    out[i : i + rows, :] = sums / total


@ts.kernel(ROWS=32, COLUMNS=16)
def two_products_meet(
    q: Tensor["S", 24, ts.f32], k: Tensor["T", 24, ts.f32], v: Tensor["T", 20, ts.f32], out: Tensor["S", 20, ts.f32]
):  # fmt: skip
    """As in the gradient of attention; what stands between two products is read both ways round."""
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    i = ts.tile.program_id(0) * rows
    x, y = q[i : i + rows, :], ts.tile.cast(q[i : i + rows, :20], ts.f32)
    sums, both = ts.tile.zeros((rows, 20), ts.f32), ts.tile.zeros((rows,), ts.f32)
    for j in ts.tile.range_k(0, ctx.T, columns):
        a = ts.tile.mma(x, k[j : j + columns, :].T)
        b = ts.tile.tanh(a) * (ts.tile.mma(y, v[j : j + columns, :].T) - 1.0)
        both = both + ts.tile.col_sum(ts.tile.mma(b.T, b)).sum()
        sums = sums + ts.tile.mma(b, v[j : j + columns, :])
    out[i : i + rows, :] = sums + both[:, None]


@ts.kernel(ROWS=32, COLUMNS=32)
def loops_in_loops(
    q: Tensor["S", 24, ts.f32], k: Tensor["T", 24, ts.f32], v: Tensor["T", 20, ts.f32], out: Tensor["S", 20, ts.f32]
):  # fmt: skip
    """The square tile that both loops carry starts as a part of memory, and one step in two changes it."""
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    i = ts.tile.program_id(0) * rows
    x = q[i : i + rows, :]
    sums, last = ts.tile.zeros((rows, 20), ts.f32), ts.tile.zeros((rows, columns), ts.f32)
    for r in ts.tile.range_k(0, 2):
        for j in ts.tile.range_k(0, ctx.T, columns):
            s = ts.tile.mma(x, k[j : j + columns, :].T) + last * 0.5
            sums = sums + ts.tile.mma(s, v[j : j + columns, :]) * (r + 1)
            last = s
    out[i : i + rows, :] = sums + ts.tile.row_max(last)[:, None]


@ts.kernel(ROWS=8, COLUMNS=32)
def few_rows(
    q: Tensor["S", 24, ts.f32], k: Tensor["T", 24, ts.f32], v: Tensor["T", 20, ts.f32], out: Tensor["S", 20, ts.f32]
):  # fmt: skip
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    i = ts.tile.program_id(0) * rows
    x, sums = q[i : i + rows, :], ts.tile.zeros((rows, 20), ts.f32)
    for j in ts.tile.range_k(0, ctx.T, columns):
        sums = sums + ts.tile.mma(ts.tile.exp(ts.tile.mma(x, k[j : j + columns, :].T)), v[j : j + columns, :])
    out[i : i + rows, :] = sums


@ts.kernel(ROWS=32, COLUMNS=32)
def one_product(
    q: Tensor["S", 24, ts.f32], k: Tensor["T", 24, ts.f32], v: Tensor["T", 20, ts.f32], out: Tensor["S", 20, ts.f32]
):  # fmt: skip
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    i = ts.tile.program_id(0) * rows
    x, most = q[i : i + rows, :], ts.tile.zeros((rows,), ts.f32)
    for j in ts.tile.range_k(0, ctx.T, columns):
        most = ts.tile.maximum(most, ts.tile.row_max(ts.tile.mma(x, k[j : j + columns, :].T)))
    out[i : i + rows, :] = most[:, None] + v[i : i + rows, :]


def lowered(f: Any, target: CpuTarget, queries: int, keys: int) -> Lowered:
    found = lower(analyse(f.definition(), None, {"S": queries, "T": keys}).unit(), target)
    for launch in found.program.launches:
        verify(launch.kernel)
    return found


def products(f: Any, target: CpuTarget) -> list[Any]:
    """The shapes of a kernel's products."""
    (launch,) = lowered(f, target, 40, 70).program.launches
    return [op.result.type.shape for op in launch.kernel.walk() if op.name == "tile.mma"]


def run(f: Any, target: CpuTarget, arrays: list[np.ndarray]) -> np.ndarray:
    program = lowered(f, target, len(arrays[0]), len(arrays[1])).program
    out = np.full((len(arrays[0]), 20), np.nan, np.float32)
    target.load(generate(program, target)).run([x.ctypes.data for x in (*arrays, out)], [], [])
    return out


@pytest.mark.parametrize("keys", [64, 70])
@pytest.mark.parametrize("queries", [32, 45])
@pytest.mark.parametrize("f", [softmax_between, two_products_meet, loops_in_loops], ids=lambda f: f.name)
def test_turned_products_have_the_bits_of_straight_ones(f: Any, queries: int, keys: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((queries, 24), (keys, 24), (keys, 20))]
    wanted = run(f, Straight(), arrays)
    assert np.isfinite(wanted).all()
    np.testing.assert_array_equal(run(f, CpuTarget(), arrays), wanted)


@pytest.mark.parametrize("f", [softmax_between, two_products_meet, loops_in_loops], ids=lambda f: f.name)
def test_chains_are_turned(f: Any) -> None:
    assert (products(f, Straight())[-1], products(f, CpuTarget())[-1]) == ((32, 20), (20, 32))


@pytest.mark.parametrize("f", [few_rows, one_product], ids=lambda f: f.name)
def test_what_gains_nothing_stays(f: Any) -> None:
    assert products(f, CpuTarget()) == products(f, Straight())


def test_the_operand_that_stays_is_laid_out_without_scattered_stores() -> None:
    program = lowered(softmax_between, CpuTarget(), 64, 64).program
    assert "scatter" not in generate(program, CpuTarget()).source
