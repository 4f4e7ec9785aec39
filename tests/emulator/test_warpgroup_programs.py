"""Less usual programs with products on sm_90a: both operands from one tile, tiles that threads fill or read as well,
chains, turned operands, loops inside loops and one behind another; against NumPy in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.emulator.warpgroup_kernels import compiled, normal, source
from tests.together import builds

BF16, F16 = ml_dtypes.bfloat16, np.float16


@ts.kernel
def both(A: ts.Tensor["M", "K", ts.bf16]) -> ts.Tensor["M", "M", ts.f32]:
    """A A^T from one shared tile: both operands."""
    ctx = ts.tile.context()
    s = ts.tile.alloc_shared((48, 32), ts.bf16)
    acc = ts.tile.zeros((48, 48), ts.f32)
    for k in ts.tile.range(0, ctx.K, 32):
        ts.tile.cp_async(s, A[0:48, k : k + 32])
        ts.tile.barrier()
        acc = acc + ts.tile.mma(s, s.T)
        ts.tile.barrier()
    return acc


@ts.kernel
def stored(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    """A shared tile filled from registers, twice used."""
    ctx = ts.tile.context()
    s = ts.tile.alloc_shared((32, 32), ts.bf16)
    acc = ts.tile.zeros((32, 40), ts.f32)
    for k in ts.tile.range(0, ctx.K, 32):
        s[:] = ts.tile.cast(ts.tile.load(A[tile_m : tile_m + 32, k : k + 32]) * 2.0, ts.bf16)
        ts.tile.barrier()
        acc = acc + ts.tile.mma(s, B[k : k + 32, tile_n : tile_n + 40])
        ts.tile.barrier()
    C[tile_m : tile_m + 32, tile_n : tile_n + 40] = acc
    return C


@ts.kernel
def chain(
    A: ts.Tensor["M", "K", ts.f16],
    B: ts.Tensor["K", "N", ts.f16],
    W: ts.Tensor["N", "P", ts.f16],
    C: ts.Tensor["M", "P", ts.f32],
):
    """Product of a product: the first one's accumulator is the second's left operand; transposed left operand too."""
    ctx = ts.tile.context()
    a = ts.tile.load(A[tile_m : tile_m + 64, 0:32])
    b = ts.tile.load(B[0:32, 0:48])
    h = ts.tile.cast(ts.tile.maximum(ts.tile.mma(a, b), 0.0), ts.f16)
    w = ts.tile.load(W[0:48, 0:24])
    C[tile_m : tile_m + 64, 0:24] = ts.tile.mma(h, w)
    return C


@ts.kernel
def turned(A: ts.Tensor["K", "M", ts.bf16], B: ts.Tensor["N", "K", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    ctx = ts.tile.context()
    acc = ts.tile.zeros((80, 24), ts.f32)
    for k in ts.tile.range(0, ctx.K, 16):
        acc = acc + ts.tile.mma(A[k : k + 16, tile_m : tile_m + 80].T, B[tile_n : tile_n + 24, k : k + 16].T)
    C[tile_m : tile_m + 80, tile_n : tile_n + 24] = acc
    return C


@ts.kernel
def nested(A: ts.Tensor["B", "M", "K", ts.bf16], W: ts.Tensor["B", "K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    """A pipelined loop inside a serial one."""
    ctx = ts.tile.context()
    acc = ts.tile.zeros((128, 32), ts.f32)
    for e in ts.tile.range(0, ctx.B, 1):
        part = ts.tile.zeros((128, 32), ts.f32)
        for k in ts.tile.range(0, ctx.K, 32):
            part = part + ts.tile.mma(A[e, tile_m : tile_m + 128, k : k + 32], W[e, k : k + 32, tile_n : tile_n + 32])
        acc = acc + part * 0.5
    C[tile_m : tile_m + 128, tile_n : tile_n + 32] = acc
    return C


@ts.kernel
def twice(
    A: ts.Tensor["M", "K", ts.bf16],
    B: ts.Tensor["K", "N", ts.bf16],
    D: ts.Tensor["K", "N", ts.bf16],
    C: ts.Tensor["M", "N", ts.f32],
):
    """Two pipelined loops, one behind the other, with 8 warps; K loaded elementwise from the ring as well."""
    ctx = ts.tile.context()
    acc = ts.tile.zeros((128, 32), ts.f32)
    for k in ts.tile.range(0, ctx.K, 32):
        acc = acc + ts.tile.mma(A[tile_m : tile_m + 128, k : k + 32], B[k : k + 32, tile_n : tile_n + 32])
    for k in ts.tile.range(0, ctx.K, 32):
        acc = acc * 0.5 + ts.tile.mma(A[tile_m : tile_m + 128, k : k + 32], D[k : k + 32, tile_n : tile_n + 32])
    C[tile_m : tile_m + 128, tile_n : tile_n + 32] = acc
    return C


@ts.kernel
def read_too(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    """The ring's tile is a product's operand and is read by threads."""
    ctx = ts.tile.context()
    sa = ts.tile.alloc_shared((64, 32), ts.bf16)
    sb = ts.tile.alloc_shared((32, 32), ts.bf16)
    acc = ts.tile.zeros((64, 32), ts.f32)
    rows = ts.tile.zeros((64,), ts.f32)
    for k in ts.tile.range(0, ctx.K, 32):
        ts.tile.cp_async(sa, A[tile_m : tile_m + 64, k : k + 32])
        ts.tile.cp_async(sb, B[k : k + 32, tile_n : tile_n + 32])
        ts.tile.barrier()
        acc = acc + ts.tile.mma(sa, sb)
        rows = rows + ts.tile.row_sum(ts.tile.cast(sa[:], ts.f32))
        ts.tile.barrier()
    C[tile_m : tile_m + 64, tile_n : tile_n + 32] = acc + rows[:, None]
    return C


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def halves(a: Any, b: Any, d: Any) -> Any:
    """What `twice` gives."""
    acc = wide(a) @ wide(b)
    for k in range(0, a.shape[1], 32):
        acc = acc * 0.5 + wide(a)[:, k : k + 32] @ wide(d)[k : k + 32]
    return acc


def a_product(m: int, k: int, n: int, *more: tuple[int, ...]) -> tuple[Any, ...]:
    shapes = [(m, k), (k, n), *more]
    return (*(normal(*s, seed=i) for i, s in enumerate(shapes)), np.zeros((m, n), np.float32))


# kernel -> (arguments, what it should give of them, tensor copies in its text)
PROGRAMS: dict[Any, tuple[tuple[Any, ...], Any, int]] = {
    both: ((normal(48, 96),), lambda a: wide(a) @ wide(a).T, 1),
    stored: (a_product(70, 96, 80), lambda a, b, c: 2 * wide(a) @ wide(b), 1),
    chain: (
        (*(normal(*s, dtype=F16) for s in ((100, 32), (32, 48), (48, 24))), np.zeros((100, 24), np.float32)),
        lambda a, b, w, c: wide(np.maximum(wide(a) @ wide(b), 0).astype(F16)) @ wide(w),
        3,
    ),
    turned: (
        (normal(64, 160), normal(48, 64), np.zeros((160, 48), np.float32)),
        lambda a, b, c: wide(a).T @ wide(b).T,
        2,
    ),
    nested: (
        (normal(3, 130, 96), normal(3, 96, 40), np.zeros((130, 40), np.float32)),
        lambda a, w, c: 0.5 * (wide(a) @ wide(w)).sum(0),
        2,
    ),
    twice: (a_product(130, 96, 40, (96, 40)), lambda a, b, d, c: halves(a, b, d), 4),
    read_too: (a_product(70, 96, 40), lambda a, b, c: wide(a) @ wide(b) + wide(a).sum(1)[:, None], 2),
}


SCHEDULES = ((1, 4), (2, 8), (3, 4))
"""stages and warps"""


def schedules(kernel: Any) -> list[Callable[[], Any]]:
    """On warpgroups with each, and without them."""
    args = PROGRAMS[kernel][0]
    ours = [compiled(kernel, *(a.copy() for a in args), num_stages=s, num_warps=w) for s, w in SCHEDULES]
    return [*ours, compiled(kernel, *(a.copy() for a in args), target="emulator:sm_80", num_stages=2)]


@builds(schedules)
@pytest.mark.parametrize("kernel", PROGRAMS, ids=lambda k: k.__name__)
def test_program(kernel: Any, built: list[Callable[[], Any]]) -> None:
    args, expected, fetches = PROGRAMS[kernel]
    bits: set[bytes] = set()
    for stages, warps in SCHEDULES:
        text = source(kernel, *args, num_stages=stages, num_warps=warps)
        assert "ts::mma_warpgroups(" in text and "ts::mma(" not in text
        assert text.count(".fetch(") == fetches and "copy_async" not in text
    *ours, other = built
    for run_it in ours:
        got = run_it()
        np.testing.assert_allclose(got, expected(*args), rtol=1e-4, atol=2e-2 if kernel is chain else 1e-3)
        bits.add(got.tobytes())
    # The emulator sums 16 of k exactly and rounds, for either instruction: what differs is misplaced, not rounded.
    bits.add(other().tobytes())
    assert len(bits) == 1


def test_a_producer_fills_what_follows_from_indices_alone() -> None:
    for kernel, produced in ((turned, True), (twice, True), (nested, False), (stored, False)):
        text = source(kernel, *PROGRAMS[kernel][0], num_stages=2, num_warps=8)
        assert ("is_producer" in text) == produced, kernel.__name__
