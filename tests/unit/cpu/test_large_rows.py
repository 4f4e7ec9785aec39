"""Kernels over arrays too large for the caches: what they ask memory for, and stores that bypass the caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import host
from tessera.compiler.targets.cpu.target import CpuTarget

pytestmark = pytest.mark.skipif(host().name == "neon", reason="stores bypass the caches on x86 only")


@ts.function
def softmax(x: ts.Tensor["B", "D", ts.f32]):
    return ts.softmax(x, axis=-1)


@ts.function
def norm(x: ts.Tensor["B", "D", ts.f32], g: ts.Tensor["D", ts.f32]):
    h = x + 1.0
    return h * ts.rsqrt((h * h).mean(axis=-1, keepdims=True) + 1e-5) * g, h.to(ts.bf16)


def target(cached: int, level: str | None = None) -> CpuTarget:
    """As if the caches held that many bytes."""
    found = CpuTarget(level)
    found.__dict__["isa"] = replace(found.isa, cached_bytes=cached, own_bytes=cached)
    return found


def run(f: Any, to: CpuTarget, args: list[np.ndarray], shift: int = 0) -> tuple[list[np.ndarray], str]:
    """The results, stored `shift` elements behind a multiple of 64 bytes, and the LLVM IR."""
    program = ts.compile(f, target="cpu", arguments=args).lowered.program
    artifact = generate(program, to)
    outs: list[np.ndarray] = []
    for b in (b for b in program.buffers if b.role == "output"):
        size, dtype = int(np.prod(b.shape)), np.dtype(b.dtype.numpy)
        memory = np.zeros(size + 128, dtype)
        start = (-memory.ctypes.data % 64) // dtype.itemsize + shift
        outs.append(memory[start : start + size].reshape(b.shape))
    to.load(artifact).run([a.ctypes.data for a in (*args, *outs)], [], [])
    return outs, artifact.source


@pytest.mark.parametrize("level", [None, "avx2"])
@pytest.mark.parametrize("columns", [144, 1040, 777])
@pytest.mark.parametrize("shift", [0, 3])
def test_rows_are_the_same_where_stores_bypass_the_caches(columns: int, shift: int, level: str | None) -> None:
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((9, columns)).astype(np.float32)
    g = x[1].copy()
    for f, args in ((softmax, [x]), (norm, [x, g])):
        want, plain = run(f, target(1 << 30, level), args)
        got, text = run(f, target(64, level), args, shift)
        assert "nontemporal" in text and "nontemporal" not in plain
        for a, b in zip(got, want, strict=True):
            assert a.tobytes() == b.tobytes()


def test_the_next_row_is_asked_for_where_arrays_are_large() -> None:
    x = np.ones((64, 1024), np.float32)
    assert run(softmax, target(1 << 30), [x])[1].count("call void @llvm.prefetch") == 0
    text = run(softmax, target(1 << 10), [x])[1]
    requests = [line for line in text.splitlines() if "call void @llvm.prefetch" in line]
    lanes = host().lanes(32)
    assert len(requests) == 64 * 4 // max(64, 4 * lanes)  # each line of 64 bytes of one step of 64 elements, once


@pytest.mark.skipif(not host().masks, reason="for AVX-512: two lines of one vector, not four")
@pytest.mark.parametrize("columns", [1024, 4096])
def test_long_rows_of_two_arrays_are_asked_for_by_two_loops(columns: int) -> None:
    """Memory would rest during the loop that asks for nothing. Short rows are still in the first-level cache."""

    @ts.function
    def residual(x: ts.Tensor["B", "D", ts.f32], r: ts.Tensor["B", "D", ts.f32]):
        h = x + r
        return h * ts.rsqrt((h * h).mean(axis=-1, keepdims=True))

    text = run(residual, target(1 << 10), [np.ones((64, columns), np.float32)] * 2)[1]
    loops = [block for block in text.split("br label %h") if "call void @llvm.prefetch" in block]
    assert len(loops) == (2 if columns == 4096 else 1)
    assert len({block.count("call void @llvm.prefetch") for block in loops}) == 1, "one array each"


def levels(f: Any, arguments: list[Any]) -> set[str]:
    """The levels of caches that requests go into, as LLVM counts them: 3 is the first."""
    lines = run(f, target(64), arguments)[1].splitlines()
    return {line.split("i32 ")[2][0] for line in lines if "call void @llvm.prefetch" in line}


def test_requests_leave_room_in_the_first_level_cache() -> None:
    assert levels(softmax, [np.ones((8, 1008), np.float32)]) == {"3"}
    assert levels(softmax, [np.ones((8, 1024), np.float32)]) == {"2"}


@ts.function
def layer_norm(x: ts.Tensor["B", "D", ts.f32]):
    return ts.layer_norm(x)


@ts.function
def shares(x: ts.Tensor["B", "D", ts.f32]):
    return x / x.sum(axis=1, keepdims=True)


@ts.function
def variances(x: ts.Tensor["B", "D", ts.f32]):
    return x.var(axis=1)


@ts.function
def sums_and_extremes(x: ts.Tensor["B", "D", ts.f32]):
    return x.sum(axis=1) - x.max(axis=1)


@ts.function
def sums_of_exponentials(x: ts.Tensor["B", "D", ts.f32]):
    return ts.exp(x).sum(axis=1)


def test_the_loop_that_computes_asks_for_the_next_row() -> None:
    text = run(layer_norm, target(64), [np.ones((8, 1024), np.float32)])[1]
    assert text.index(" fsub ") < text.index("call void @llvm.prefetch") < text.index("nontemporal")


def test_rows_are_asked_for_only_where_memory_would_rest() -> None:
    x = np.ones((8, 1024), np.float32)
    asked = {
        f.__name__: "call void @llvm.prefetch" in run(f, target(64), [x])[1]
        for f in (variances, sums_and_extremes, sums_of_exponentials, shares)
    }
    assert asked == {"variances": False, "sums_and_extremes": False, "sums_of_exponentials": True, "shares": True}


@ts.function
def scaled(x: ts.Tensor["B", "D", ts.f32], r: ts.Tensor["B", "D", ts.f32]):
    h = x + r
    return h / (h * h).sum(axis=1, keepdims=True)


@ts.function
def scaled_further(x: ts.Tensor["B", "D", ts.f32], r: ts.Tensor["B", "D", ts.f32]):
    h = (x + r) * x
    return h / (h * h).sum(axis=1, keepdims=True)


def test_a_sum_of_two_loads_is_computed_again() -> None:
    """What takes more lies in scratch memory, which the second loop reads instead."""
    args = [np.ones((8, 1024), np.float32)] * 2
    loads = {f: run(f, target(1 << 30), args)[1].count("fadd <") for f in (scaled, scaled_further)}
    assert loads[scaled] > loads[scaled_further]


@ts.function
def rows(x: ts.Tensor["B", "D", ts.f32], i: ts.Tensor["N", ts.int64]):
    return x[i]


@ts.function
def sums(x: ts.Tensor["B", "D", ts.f32], i: ts.Tensor["N", ts.int64]):
    return x[i].sum(axis=1)


def test_gathered_rows_stay_out_of_the_way_of_stores_past_the_caches() -> None:
    x, i = np.ones((9, 768), np.float32), np.arange(9)
    assert levels(rows, [x, i]) == {"2"} and levels(sums, [x, i]) == {"3"}


@ts.function
def looked_up(x: ts.Tensor["B", "D", ts.f32], i: ts.Tensor["N", ts.int64]):
    return x[i], ts.layer_norm(x[i])


@pytest.mark.parametrize("numbers", [[3, -1, 0, 6, 3], [5]])
def test_the_next_gathered_row_is_asked_for(numbers: list[int]) -> None:
    x = np.random.default_rng(3).standard_normal((7, 777)).astype(np.float32)
    i = np.array(numbers)
    want, plain = run(looked_up, target(1 << 30), [x, i])
    got, text = run(looked_up, target(64), [x, i])
    asked = [line for line in text.splitlines() if "call void @llvm.prefetch" in line]
    assert bool(asked) == (len(numbers) > 1) and "call void @llvm.prefetch" not in plain
    assert "masked.gather" not in text  # lanes hold neighbours of a row, whatever reads it
    np.testing.assert_array_equal(got[0], x[i])
    for a, b in zip(got, want, strict=True):
        assert a.tobytes() == b.tobytes()


@ts.function
def bags(x: ts.Tensor["B", "D", ts.f32], i: ts.Tensor["N", "L", ts.int64]):
    return x[i].sum(axis=1), x[i].max(axis=1)


@pytest.mark.parametrize("count", [3, 8, 20, 32, 50, 64, 70, 1100])
def test_rows_that_are_added_up_are_asked_for_before(count: int) -> None:
    rng = np.random.default_rng(count)
    x = rng.standard_normal((90, 41)).astype(np.float32)
    i = rng.integers(-90, 90, (5, count))
    want, plain = run(bags, target(1 << 30), [x, i])
    got, text = run(bags, target(64), [x, i])
    assert "call void @llvm.prefetch" in text and "call void @llvm.prefetch" not in plain
    np.testing.assert_allclose(got[0], x.astype("f8")[i].sum(axis=1), rtol=0, atol=1e-6 * count)
    np.testing.assert_array_equal(got[1], x[i].max(axis=1))
    for a, b in zip(got, want, strict=True):
        assert a.tobytes() == b.tobytes()


@ts.function
def added(x: ts.Tensor["N", "D", ts.f32]):
    return ts.sum(x, axis=0)


@pytest.mark.parametrize("count", range(2, 65, 3))
def test_sums_of_a_few_rows_are_in_the_order_of_the_tree(count: int) -> None:
    """Element i belongs to partial result i; the upper half of 64 is added to the lower one until one is left."""
    x = np.random.default_rng(count).standard_normal((count, 300)).astype(np.float32)
    x[::2, ::3] = -0.0
    tree = np.concatenate([x, np.zeros((64 - count, 300), np.float32)]) + np.float32(0)
    while len(tree) > 1:
        tree = tree[: len(tree) // 2] + tree[len(tree) // 2 :]
    assert np.asarray(added(x)).tobytes() == tree[0].tobytes()


def test_short_and_very_long_rows_are_not_asked_for() -> None:
    @ts.function
    def shares(x):
        return x / x.sum(axis=1, keepdims=True)

    for columns, asked in ((1 << 17, False), (4096, True)):
        program = ts.compile(shares, target="cpu", arguments=[np.ones((2, columns), np.float32)]).lowered.program
        assert ("prefetch" in generate(program, target(64)).source) == asked


@ts.function
def spectrum(x: ts.Tensor["B", "D", ts.f32]):
    return ts.fft.rfft(x)


def test_rows_that_are_read_in_pieces_are_asked_for() -> None:
    """The first pass reads 16 pieces of 256 bytes, of each of which even and odd numbers are two loads."""
    x = np.random.default_rng(4).standard_normal((33, 1024)).astype(np.float32)
    want, plain = run(spectrum, target(1 << 30), [x])
    got, text = run(spectrum, target(1 << 16), [x])
    assert "call void @llvm.prefetch" not in plain
    steps = 32 // host().lanes(32)
    assert text.count("call void @llvm.prefetch") * steps == 1024 * 4 // 64  # each line of the next row, once
    assert got[0].tobytes() == want[0].tobytes()
