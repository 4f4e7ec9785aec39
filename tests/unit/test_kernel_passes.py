"""Tile passes of source semantics: barriers, ragged edges, accumulators. The interpreter is the judge."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.tile.dialect import TileBuilder
from tessera.compiler.tile.interpret import run_kernel
from tessera.compiler.tile.memory import View
from tessera.compiler.tile.passes.place_barriers import place_barriers
from tessera.errors import DebugCheckError, Span
from tessera.language.dtypes import f32
from tests.kernel_runner import program, run

SPAN = Span("hand.py", 1, 1, 1, 2)
rng = np.random.default_rng(7)


def shared_program(seed: int) -> Op:
    """A random program over two shared tiles with loops, in which every tile is filled before all else."""
    choose = random.Random(seed)
    block = Block([ViewType((4,), f32), ViewType((4,), f32)], ["out", "x"])
    b = TileBuilder(block, span=SPAN)
    out, x = block.args
    tiles = [b.value("tile.alloc_shared", (), SharedType((4,), f32), hint=f"s{i}") for i in range(2)]
    zero = b.index(0)

    def access(kind: str, tile: Value) -> None:
        if kind == "copy":
            b.op("tile.copy_async", (tile, x, zero))
        elif kind == "store":
            b.op("tile.store_shared", (tile, b.full((4,), 1.0, f32)))
        elif kind == "read":
            b.store(out, b.value("tile.load_shared", (tile,), TileType((4,), f32)), [zero])
        else:
            b.op("tile.barrier")

    def steps(depth: int) -> None:
        for _ in range(choose.randint(1, 4)):
            if depth < 2 and choose.random() < 0.3:
                body = Block([INDEX])
                with b.inside(body):
                    steps(depth + 1)
                    b.op("tile.yield")
                b.op("tile.for", (zero, b.index(choose.randint(1, 3)), b.index(1)), (), regions=[Region([body])])
            else:
                access(choose.choice(["copy", "store", "read", "read", "barrier"]), choose.choice(tiles))

    for t in tiles:
        access("store", t)
    steps(0)
    b.op("tile.return")
    attrs = {"sym_name": "k", "grid": (), "arg_names": ("out", "x"), "writes": (0,)}
    return Op("tile.func", (), (), SPAN, attrs, [Region([block])])


def interpret(op: Op) -> None:
    run_kernel(op, [View("out", np.zeros(4, np.float32)), View("x", np.ones(4, np.float32))], {})


@given(st.integers(0, 10**6))
def test_no_hazard_is_left(seed: int) -> None:
    op = shared_program(seed)
    try:
        interpret(op)
        was_safe = True
    except DebugCheckError:
        was_safe = False
    notes = place_barriers(op)
    verify(op)
    interpret(op)
    if not was_safe:
        assert notes and all(n.code == "TS408" and n.severity == "note" for n in notes)
    assert place_barriers(op) == []  # what was inserted is enough


# ragged edges


def smallest(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    best = ts.tile.full((4,), float("inf"))
    for k in ts.tile.range_k(0, N, 8):
        best = ts.tile.minimum(best, ts.tile.row_min(x[tile_m : tile_m + 4, k : k + 8]))
    y[tile_m : tile_m + 4] = best


def elementwise_then_reduced(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    best = ts.tile.full((4, 8), float("inf"))
    for k in ts.tile.range_k(0, N, 8):
        best = ts.tile.minimum(best, x[tile_m : tile_m + 4, k : k + 8])
    y[tile_m : tile_m + 4] = ts.tile.row_min(best)


def product(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    total = ts.tile.ones((4,))
    for k in ts.tile.range_k(0, N, 8):
        total *= ts.tile.prod(x[tile_m : tile_m + 4, k : k + 8], axis=1)
    y[tile_m : tile_m + 4] = total


def exponentials(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    total = ts.tile.zeros((4,))
    for k in ts.tile.range_k(0, N, 8):
        total += ts.tile.row_sum(ts.tile.exp(x[tile_m : tile_m + 4, k : k + 8]))
    y[tile_m : tile_m + 4] = total


def weighted(x: ts.Tensor["M", "N", ts.f32], w: ts.Tensor["N", "D", ts.f32], y: ts.Tensor["M", "D", ts.f32]):
    acc = ts.tile.zeros((4, 8))
    for k in ts.tile.range_k(0, N, 8):
        e = 1.0 / x[tile_m : tile_m + 4, k : k + 8]  # infinite in the padding
        acc += ts.tile.mma(e, w[k : k + 8, tile_d : tile_d + 8])
    y[tile_m : tile_m + 4, tile_d : tile_d + 8] = acc


def through_shared_memory(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    s = ts.tile.alloc_shared((4, 8), ts.f32)
    total = ts.tile.full((4,), -float("inf"))
    for k in ts.tile.range_k(0, N, 8):
        ts.tile.cp_async(s, x[tile_m : tile_m + 4, k : k + 8])
        ts.tile.barrier()
        total = ts.tile.maximum(total, ts.tile.row_max(s - 100))
    y[tile_m : tile_m + 4] = total


def mean_of_blocks(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        block = x[i : i + 4]
        y[i : i + 4] = ts.tile.row_sum(block * 0) + ts.tile.mean(block)


MODELS = {
    smallest: lambda x: x.min(1),
    elementwise_then_reduced: lambda x: x.min(1),
    product: lambda x: x.prod(1),
    exponentials: lambda x: np.exp(x).sum(1),
    through_shared_memory: lambda x: x.max(1) - 100,
    mean_of_blocks: lambda x: np.concatenate([np.full(len(b), b.mean()) for b in np.split(x, range(4, len(x), 4))]),
}


@pytest.mark.parametrize("shape", [(4, 8), (4, 16), (5, 13), (1, 1), (9, 7)])
@pytest.mark.parametrize("kernel", MODELS, ids=lambda k: k.__name__)
def test_padding_never_enters_a_result(kernel: object, shape: tuple[int, int]) -> None:
    x = (rng.random(shape) + 0.5).astype(np.float32)
    y = np.empty(shape[0], np.float32)
    run(kernel, x, y)  # type: ignore[arg-type]
    np.testing.assert_allclose(y, MODELS[kernel](x), rtol=1e-5)  # type: ignore[index]


@pytest.mark.parametrize("n", [8, 13])
def test_padding_never_enters_a_product(n: int) -> None:
    x, w, y = (
        (rng.random((5, n)) + 0.5).astype(np.float32),
        rng.random((n, 6)).astype(np.float32),
        np.empty((5, 6), np.float32),
    )
    run(weighted, x, w, y)
    np.testing.assert_allclose(y, (1 / x) @ w, rtol=1e-5)


def masks(kernel: object, *args: np.ndarray) -> int:
    return sum(op.name == "tile.where" for op in program(kernel, *args).launches[0].kernel.walk())  # type: ignore[arg-type]


def test_even_sizes_need_no_mask() -> None:
    even, ragged = np.ones((4, 16), np.float32), np.ones((4, 13), np.float32)
    y = np.empty(4, np.float32)
    for kernel in (smallest, product, exponentials, through_shared_memory):
        assert masks(kernel, even, y) == 0 and masks(kernel, ragged, y) > 0


def test_accumulation_is_one_chain_of_products() -> None:
    x, w, y = np.ones((4, 16), np.float32), np.ones((16, 8), np.float32), np.empty((4, 8), np.float32)
    kernel = program(weighted, x, w, y).launches[0].kernel
    (loop,) = [op for op in kernel.walk() if op.name == "tile.for"]
    (product_,) = [op for op in loop.walk() if op.name == "tile.mma"]
    assert product_.operands[2] is loop.region.block.args[1]
    assert loop.region.block.terminator.operands[0] is product_.result
