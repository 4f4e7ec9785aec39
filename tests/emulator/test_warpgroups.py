"""Contractions on sm_90a: tensor copies into swizzled stages, warpgroup products, a producer warp; against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cuda.generate import generate
from tessera.compiler.targets.cuda.target import settings_for
from tessera.language import dtypes as dt
from tessera.language.dims import ceildiv, symbol
from tests.emulator import kernels as k
from tests.emulator.harness import Arg, Case, LineBuilder, Ready, build, check, checked, ready

SM90 = "emulator:sm_90a"


def source(case: Case, arch: int = 90) -> str:
    return generate(case.program, settings_for(arch, False, False)).source


def on_warpgroups(case: Case) -> bool:
    text = source(case)
    return "ts::start_products" in text and "fetch(" in text and "copy_async" not in text


@checked
@pytest.mark.parametrize("dtype", [dt.bf16, dt.f16], ids=str)
@pytest.mark.parametrize("transposed", ["", "A", "B", "AB"])
def test_either_order_of_either_operand(dtype: dt.DType, transposed: str) -> Ready:
    case = k.matmul(m=88, n=72, k=136, dtype=dtype, block=(64, 32), transposed=transposed)
    assert on_warpgroups(case)
    return ready(case, SM90)


def test_tf32_is_rounded_by_the_copy_and_read_with_k_inside() -> None:
    case = k.matmul(m=70, n=40, k=100, dtype=dt.tf32, block=(64, 32), transposed="B")
    assert on_warpgroups(case)
    check(case, SM90)
    assert "Without wgmma: the right operand: wgmma reads tf32 only" in source(k.matmul(n=48, k=48, dtype=dt.tf32))


@pytest.mark.parametrize("block", [(16, 8), (1, 64), (17, 40), (64, 64), (100, 24), (128, 96), (256, 16)], ids=str)
def test_bits_do_not_depend_on_the_block(block: tuple[int, int]) -> None:
    def bits(block: tuple[int, int]) -> bytes:
        k.RNG = np.random.default_rng(3)
        case = k.matmul(m=130, n=104, k=72, dtype=dt.bf16, block=block, gelu=True)
        assert on_warpgroups(case)
        return check(case, SM90, (5,))["C"].tobytes()

    assert bits(block) == bits((128, 64))


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_threads_and_copies(seed: int) -> None:
    """More steps of k than stages, so that slots are filled again."""
    check(k.matmul(m=128, n=32, k=520, dtype=dt.f16, block=(128, 32), warps=8), SM90, (0, 2 * seed + 1, 2 * seed + 2))


@checked
@pytest.mark.parametrize("size", [(1, 8, 8), (8, 16, 8), (65, 8, 64), (64, 64, 72), (129, 136, 264)], ids=str)
def test_ragged_sizes(size: tuple[int, int, int]) -> Ready:
    m, n, depth = size
    case = k.matmul(m=m, n=n, k=depth, dtype=dt.bf16, block=(64, 64))
    assert on_warpgroups(case)
    return ready(case, SM90)


def test_operands_that_copies_cannot_fetch_take_the_older_path() -> None:
    for case, why in (
        (k.matmul(m=64, n=64, k=45, dtype=dt.bf16), "the left operand: its lines may start between"),
        (k.matmul(m=64, n=60, k=48, dtype=dt.bf16), "the right operand: its lines may start between"),
        (k.matmul(m=64, n=64, k=48, dtype=dt.f32), "these dtypes have no wgmma"),
    ):
        text = source(case)
        assert f"// Without wgmma: {why}" in text and "ts::start_products" not in text
        check(case, SM90)
    assert "wgmma" not in source(k.matmul(m=64, n=64, k=45, dtype=dt.bf16), 80)


@pytest.mark.parametrize("dtype", [dt.fp8_e4m3, dt.fp8_e5m2], ids=str)
def test_8_bit_floats_keep_all_bits_of_their_sums(dtype: dt.DType) -> None:
    """wgmma would align their products to fewer bits than f32 has (see docs/decisions)."""
    case = k.matmul(m=64, n=32, k=64, dtype=dtype, block=(64, 32), transposed="B")
    assert "// Without wgmma: these dtypes" in source(case)


def batched(b: int, m: int, n: int, depth: int, *, shared_right: bool = False, free: bool = False) -> Case:
    """As lowering writes batches: a window of each operand per program, an epilogue with a bias, a symbolic size."""
    mm = symbol("m") if free else m
    row_count = mm

    def body(t: LineBuilder, a: Value, w: Value, bias: Value, c: Value) -> None:
        batch, zero = t.program_id(0), t.index(0)
        row, col = t.iop("imul", t.program_id(1), t.index(64)), t.iop("imul", t.program_id(2), t.index(32))

        def matrix(v: Value, rows: Any, cols: Any) -> Value:
            at = [batch, zero, zero]
            return t.value(
                "tile.subview", [v, *at], ViewType((rows, cols), dt.bf16), {"sizes": (1, rows, cols), "drop": (0,)}
            )

        left = matrix(a, mm, depth)
        right = w if shared_right else matrix(w, depth, n)
        acc = t.value("tile.contract", [left, right, row, col], TileType((64, 32), dt.f32))
        added = t.map("add", acc, t.broadcast(t.load(bias, [col], (32,)), (64, 32), (1,)))
        out = t.reshape(t.cast(t.map("gelu", added), dt.bf16), (1, 64, 32))
        t.store(c, out, [batch, row, col])

    args = [
        Arg("A", (b, mm, depth), dt.bf16),
        Arg("W", (depth, n) if shared_right else (b, depth, n), dt.bf16),
        Arg("bias", (n,), dt.f32),
        Arg("C", (b, mm, n), dt.bf16, out=True),
    ]
    grid = (b, ceildiv(row_count, 64), ceildiv(n, 32))
    program = build("batched", args, grid, body, ("m",) if free else ())
    x = k.normal(b, m, depth).astype(k.BF16)
    w = k.normal(*((depth, n) if shared_right else (b, depth, n))).astype(k.BF16)
    bias = k.normal(n)
    sums = x.astype(np.float64) @ w.astype(np.float64) + bias
    expected = 0.5 * sums * (1 + np.vectorize(math.erf)(sums / math.sqrt(2)))
    return Case(
        program, {"A": x, "W": w, "bias": bias}, {"C": expected}, {"m": m} if free else {}, rtol=2e-2, atol=2e-2
    )


@checked
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("shared_right", [False, True])
def test_batches_bias_and_sizes_known_at_launch(shared_right: bool, free: bool) -> Ready:
    case = batched(3, 70, 48, 80, shared_right=shared_right, free=free)
    assert on_warpgroups(case)
    return ready(case, SM90)


def summed(depth: int, rows: int = 40) -> Case:
    """k is known at launch only, and the row sums of the product are kept."""
    size = 8 * symbol("q")

    def body(t: LineBuilder, a: Value, b: Value, c: Value) -> None:
        acc = t.value("tile.contract", [a, b, t.index(0), t.index(0)], TileType((rows, 24), dt.f32))
        t.store(c, t.reduce("sum", acc, (1,)), [t.index(0)])

    args = [Arg("A", (rows, size), dt.f16), Arg("B", (size, 24), dt.f16), Arg("C", (rows,), dt.f32, out=True)]
    program = build("summed", args, (1,), body, ("q",))
    a, b = k.normal(rows, depth).astype(np.float16), k.normal(depth, 24).astype(np.float16)
    expected = (a.astype(np.float64) @ b.astype(np.float64)).sum(1)
    return Case(program, {"A": a, "B": b}, {"C": expected}, {"q": depth // 8}, rtol=1e-4, atol=1e-3)


@checked
@pytest.mark.parametrize("depth", [0, 8, 64, 200])
def test_any_length_of_k_also_none(depth: int) -> Ready:
    case = summed(depth)
    assert on_warpgroups(case)
    return ready(case, SM90)
