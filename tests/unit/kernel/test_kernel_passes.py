"""Tile passes of source semantics: barriers, ragged edges, accumulators. The interpreter is the judge."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.interpret.interpreter import run_kernel
from tessera.compiler.tile.interpret.memory import WatchedView
from tessera.compiler.tile.passes.place_barriers import barrier_notes, place_barriers
from tessera.errors import DebugCheckError, Span, source_line
from tessera.language.dtypes import f32
from tests.kernel_runner import check, program, run

SPAN = Span("hand.py", 1, 1, 1, 2)
rng = np.random.default_rng(7)


def shared_program(seed: int) -> Op:
    """A random program over two shared tiles with loops, in which every tile is filled before all else."""
    choose, numbers = random.Random(seed), itertools.count(2)
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
            b.op("tile.barrier", span=replace(SPAN, line=next(numbers)))

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
    run_kernel(op, [WatchedView("out", np.zeros(4, np.float32)), WatchedView("x", np.ones(4, np.float32))], {})


@given(st.integers(0, 10**6))
def test_no_hazard_is_left(seed: int) -> None:
    op = shared_program(seed)
    try:
        interpret(op)
        was_safe = True
    except DebugCheckError:
        was_safe = False
    before = print_op(op)
    notes = barrier_notes(op)
    assert print_op(op) == before  # it only tells
    place_barriers(op)
    verify(op)
    interpret(op)
    assert all(n.severity == "note" for n in notes)
    idle = {n.span for n in notes if n.code == "TS414"}
    if not was_safe:
        assert any(n.code == "TS408" for n in notes)
    for barrier in [x for x in op.walk() if x.name == "tile.barrier" and x.span in idle]:
        barrier.erase()
    interpret(op)  # what orders nothing may go
    assert (
        barrier_notes(op) == place_barriers(op) == []
    )  # what was inserted is enough, and what is left is needed or was inserted


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


# barriers that order nothing


def notes_of(kernel: object, *args: np.ndarray) -> list[tuple[str, str]]:
    """The code of each note with the line that it is about."""
    found = check(kernel, *args).diagnostics  # type: ignore[arg-type]
    return [(d.code, (source_line(d.span.file, d.span.line) or "").strip()) for d in found]


def two_barriers(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    s = ts.tile.alloc_shared((4, 8), ts.f32)
    ts.tile.barrier()  # first
    ts.tile.cp_async(s, x[tile_m : tile_m + 4, 0:8])
    ts.tile.barrier()  # second
    y[tile_m : tile_m + 4] = ts.tile.row_sum(s)


def filled(s, block):
    ts.tile.cp_async(s, block)
    ts.tile.barrier()


def in_a_helper(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    s = ts.tile.alloc_shared((4, 8), ts.f32)
    t = ts.tile.alloc_shared((4, 8), ts.f32)
    filled(s, x[tile_m : tile_m + 4, 0:8])
    filled(t, x[tile_m : tile_m + 4, 8:16])
    y[tile_m : tile_m + 4] = ts.tile.row_sum(s) + ts.tile.row_sum(t)


def for_a_tensor(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    y[tile_m : tile_m + 4, 0:8] = x[tile_m : tile_m + 4, 0:8]
    ts.tile.barrier()
    y[tile_m : tile_m + 4, 0:8] = y[tile_m : tile_m + 4, 0:8] + 1


def test_barriers_that_order_nothing() -> None:
    x, y = np.ones((4, 16), np.float32), np.empty(4, np.float32)
    assert notes_of(two_barriers, x, y) == [("TS414", "ts.tile.barrier()  # first")]
    assert notes_of(in_a_helper, x, y) == []  # one of its two calls needs it
    assert notes_of(for_a_tensor, x, x.copy()) == []  # whoever wrote it may have meant the tensor
    run(two_barriers, x, y)
    assert (y == 8).all()


def test_a_hazard_is_told_with_both_lines() -> None:
    (found,) = check(through_shared_memory, np.ones((4, 16), np.float32), np.empty(4, np.float32)).diagnostics
    assert found.code == "TS408" and found.severity == "note" and "s would be overwritten" in found.message
    assert "(write after read)" in found.message
    (earlier,) = found.notes
    lines = [source_line(s.file, s.line) or "" for s in (found.span, earlier.span) if s is not None]
    assert "cp_async" in lines[0] and "row_max(s" in lines[1] and earlier.message == "read here"


PRODUCT = """import tessera as ts
from tessera import tile


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Tensor["M", "N", ts.f32]):
    a = tile.alloc_shared((64, 32), ts.f16)
    b = tile.alloc_shared((32, 64), ts.f16)
    tile.barrier()
    for k in tile.range_k(0, K, 32):
        tile.cp_async(a, A[tile_m : tile_m + 64, k : k + 32])
        tile.cp_async(b, B[k : k + 32, tile_n : tile_n + 64])
        tile.barrier()
        C[tile_m : tile_m + 64, tile_n : tile_n + 64] += tile.mma(a, b)
"""


def test_a_barrier_for_an_implicit_loop_stands_where_it_is_in_the_loop() -> None:
    """One before the loads would be before the first step: what is offered is tried."""
    body = PRODUCT.partition("    tile.barrier()\n    for")[0]
    text = f"""{body}    tile.cp_async(a, A[tile_m : tile_m + 64, tile_k : tile_k + 32])
    tile.cp_async(b, B[tile_k : tile_k + 32, tile_n : tile_n + 64])
    tile.barrier()
    acc = tile.mma(a, b)
    C[tile_m : tile_m + 64, tile_n : tile_n + 64] += acc
"""
    file = FileAnalysis("product.py")
    file.update(text)
    (found,) = file.diagnostics
    assert [found.code, *(f.message for f in found.fixes)] == [
        "TS408",
        "Write the barrier behind the line that reads it",
    ]
    mended = apply(text, found.fixes[0])
    assert mended == text.replace("mma(a, b)\n", "mma(a, b)\n    tile.barrier()\n")
    file.update(mended)
    assert not file.diagnostics


def test_notes_of_barriers_come_with_fixes() -> None:
    text, codes = PRODUCT, []
    while True:
        file = FileAnalysis("product.py")
        file.update(text)
        if not file.diagnostics:
            break
        codes.append(file.diagnostics[0].code)
        text = apply(text, file.diagnostics[0].fixes[0])
    assert codes == ["TS408", "TS414"]
    barrier = "        tile.barrier()\n"
    expected = PRODUCT.replace("    tile.barrier()\n    for", "    for")
    assert text == expected.replace("        tile.cp_async(a", f"{barrier}        tile.cp_async(a")
