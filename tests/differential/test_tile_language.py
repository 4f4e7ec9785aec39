"""Every form of `ts.tile` as its users write it: checked against NumPy on each target, assembled for each architecture.

A public name of `ts.tile` that no kernel here uses fails a test.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import tessera as ts
from tessera import tile
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.language.scalars import TABLE
from tests.kernel_runner import program, run

TARGETS = ("reference", "cpu", "emulator:sm_80")
ARCHITECTURES = ("sm_75", "sm_80", "sm_90a")
rng = np.random.default_rng(11)


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def bf16(*shape: int) -> Any:
    return normal(*shape).astype(ml_dtypes.bfloat16)


def empty(*shape: int, dtype: Any = np.float32) -> Any:
    """An output: nothing in it may be left."""
    return np.full(shape, 99, dtype)


@dataclass
class Form:
    kernel: Callable[..., Any]
    given: Callable[[], tuple[Any, ...]]
    wanted: Callable[..., Any]
    tolerance: float
    config: dict[str, Any]


FORMS: dict[str, Form] = {}


def form(given: Callable[[], tuple[Any, ...]], wanted: Callable[..., Any], tolerance: float = 0, **config: Any) -> Any:
    """`given()` makes the arguments, the outputs behind the inputs; `wanted(*inputs)` gives what the outputs hold."""

    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        FORMS[f.__name__] = Form(f, given, wanted, tolerance, config)
        return f

    return add


# where a program is, ranges


@form(lambda: (normal(70), empty(70)), lambda x: x + np.arange(70, dtype=np.float32), BLOCK=32)
def lanes(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] + ts.tile.cast(i, ts.f32)


@form(lambda: (normal(20, 30), empty(20, 30)), lambda x: x * 3 + 2)
def ids(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    r = ts.tile.program_id(0) * 8
    c = ts.tile.program_id(axis=1) * 16
    wide = ts.tile.num_programs(0)
    y[r : r + 8, c : c + 16] = x[r : r + 8, c : c + 16] * wide + ts.tile.num_programs(1)


@form(lambda: (normal(6, 5), empty(6, 15)), lambda x: np.repeat(x, 3, 1))
def repeated(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "P", ts.f32]):
    y[tile_m : tile_m + 4, :] = ts.tile.repeat(x[tile_m : tile_m + 4, :], 3)


@form(
    lambda: (np.arange(256, dtype=np.uint8), empty(512)),
    lambda x: np.stack((x & 15, x >> 4), 1).reshape(512).view(ml_dtypes.float4_e2m1fn).astype(np.float32),
)
def unpacked(x: ts.Tensor["n", ts.uint8], y: ts.Tensor["m", ts.f32]):
    y[0:512] = ts.tile.unpack_fp4(x[0:256])


@form(lambda: (normal(20, 30), empty(20, 30)), lambda x: x * 2)
def scheduled(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    ts.tile.grid(2, grouped=2, persistent=True)
    c = ts.tile.program_id(1) * 8
    for r in ts.tile.range(ts.tile.program_id(0) * 4, M, 4 * ts.tile.num_programs(0)):
        y[r : r + 4, c : c + 8] = x[r : r + 4, c : c + 8] * ts.tile.num_programs(0)


@form(lambda: (normal(3, 20, 6), empty(3, 20, 6)), lambda x: x * 3)
def one_each(x: ts.Tensor["B", "M", "N", ts.f32], y: ts.Tensor["B", "M", "N", ts.f32]):
    p = ts.tile.program_id(0)
    y[ts.tile.each(), p * 8 : p * 8 + 8, :] = x[ts.tile.each(), p * 8 : p * 8 + 8, :] * ts.tile.num_programs(0)


@form(lambda: (normal(19, 33), empty(19)), lambda x: x.sum(1) + 5 + 33, 1e-5, ROWS=8)
def ranges(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    ctx = ts.tile.context()
    for i in ts.tile.range(0, M, ctx.ROWS):
        total = ts.tile.zeros((ctx.ROWS,), ts.f32)
        for k in ts.tile.range_k(0, ctx.N, 8):
            total += ts.tile.row_sum(x[i : i + ctx.ROWS, k : k + 8])
        for _ in ts.tile.static_range(ts.tile.cdiv(N, 8)):
            total += ts.tile.ones((ctx.ROWS,))
        y[i : i + ctx.ROWS] = total + N


@form(
    lambda: (normal(12, 16), empty(12, 16), empty(12, 16, dtype=np.int64)),
    lambda x: (np.full((12, 16), 2.5, np.float32), np.broadcast_to(np.arange(16) + 3, (12, 16))),
)
def makers(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32], z: ts.Tensor["M", "N", ts.int64]):
    for i in ts.tile.range(0, M, 4):
        v = x[i : i + 4]
        y[i : i + 4] = ts.tile.zeros_like(v) + ts.tile.full((4, N), 2.5)
        z[i : i + 4] = ts.tile.arange(3, 3 + N)[None, :] + ts.tile.arange(4)[:, None] * 0


# memory


@form(lambda: (bf16(50, 40), bf16(40, 36), np.ones((50, 36), np.float32)), lambda a, b, c: c + f32(a) @ f32(b), 1e-5)
def shared_gemm(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    a = ts.tile.alloc_shared((32, 16), ts.bf16, swizzle="xor")
    b = ts.tile.alloc_shared((16, 32), ts.bf16)
    ts.tile.cp_async(a, A[tile_m : tile_m + 32, tile_k : tile_k + 16])
    ts.tile.copy_async(b, B[tile_k : tile_k + 16, tile_n : tile_n + 32])
    ts.tile.barrier()
    C[tile_m : tile_m + 32, tile_n : tile_n + 32] += ts.tile.mma(a, b, accumulator=ts.f32)


@form(lambda: (normal(20, 24), empty(24, 20)), lambda x: x.T * 2)
def staged(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", "M", ts.f32]):
    s = ts.tile.alloc_shared((8, 8), ts.f32)
    v = ts.tile.load(x[tile_m : tile_m + 8, tile_n : tile_n + 8])
    ts.tile.store(s, v + v)
    ts.tile.barrier()
    ts.tile.store(y[tile_n : tile_n + 8, tile_m : tile_m + 8], s.T)


@form(lambda: (bf16(40, 48), bf16(48, 40), empty(40, 40)), lambda a, b: f32(a) @ f32(b), 1e-5, BM=16, BN=16, BK=32)
def partitions(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(ctx.BM, ctx.BK), prefetch=3)
    b = ts.tile.load(B, shape=(ctx.BK, ctx.BN), prefetch=3)
    acc = ts.tile.zeros((ctx.BM, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, ctx.BK):
        acc = ts.tile.dot(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k), acc)
    ts.tile.store(C, acc)


@form(lambda: (normal(21, 30), empty(21, 30)), lambda x: np.where(x > 0, x, -1).astype(np.float32))
def masked(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    rows = ts.tile.program_id(0) * 8 + ts.tile.arange(0, 8)
    cols = ts.tile.program_id(1) * 16 + ts.tile.arange(0, 16)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    v = ts.tile.load(x[rows[:, None], cols[None, :]], mask=inside, other=0.0)
    v = ts.tile.load(x[rows[:, None], cols[None, :]], mask=inside & (v > 0), other=-1.0)
    ts.tile.store(y[rows[:, None], cols[None, :]], v, mask=inside)


@form(
    lambda: (
        normal(9, 24),
        rng.integers(0, 9, 30).astype(np.int32),
        rng.permutation(30).astype(np.int64),
        empty(30, 24),
    ),
    lambda table, index, to: table[index][np.argsort(to)],
)
def gathered(
    table: ts.Tensor["V", "D", ts.f32], index: ts.Tensor["n", ts.int32], to: ts.Tensor["n", ts.int64],
    y: ts.Tensor["n", "D", ts.f32],
):  # fmt: skip
    d = ts.tile.arange(D)
    for i in ts.tile.range(0, n, 6):
        v = ts.tile.gather(table, index[i : i + 6][:, None], d[None, :])
        ts.tile.scatter(y, (to[i : i + 6][:, None], d[None, :]), v)


# arithmetic


@form(
    lambda: (normal(24, 24), empty(24, 24), empty(24, 24), empty(24, 24)),
    lambda x: (
        np.where(np.tri(24) > 0, x, np.float32(-np.inf)),
        np.where(x > 0, x, x * x),
        np.where(np.tri(24).T > 0, x, 0),
    ),
)
def selected(
    x: ts.Tensor["M", "M", ts.f32], y: ts.Tensor["M", "M", ts.f32], z: ts.Tensor["M", "M", ts.f32],
    w: ts.Tensor["M", "M", ts.f32],
):  # fmt: skip
    for q in ts.tile.range(0, M, 8):
        for k in ts.tile.range(0, M, 8):
            v = x[q : q + 8, k : k + 8]
            y[q : q + 8, k : k + 8] = ts.tile.causal_mask(v, q, k)
            z[q : q + 8, k : k + 8] = ts.tile.where(v > 0, v, v * v)
            w[q : q + 8, k : k + 8] = ts.tile.causal_mask(v, k, q, 0.0, transposed=True)


@form(
    lambda: (normal(6, 4, 8), empty(8, 4, 6), empty(6, 32), empty(6, 4, 8)),
    lambda x: (x.T, x.reshape(6, 32), x + x[:, :1] + x[:1]),
)
def shapes(
    x: ts.Tensor["A", "B", "C", ts.f32], y: ts.Tensor["C", "B", "A", ts.f32], z: ts.Tensor["A", "BC", ts.f32],
    w: ts.Tensor["A", "B", "C", ts.f32],
):  # fmt: skip
    v = x[0:A, 0:B, 0:C]
    y[0:C, 0:B, 0:A] = ts.tile.permute(ts.tile.trans(ts.tile.transpose(v, 0, 2, 1), (0, 2, 1)), (2, 1, 0))
    z[0:A, 0:BC] = ts.tile.view(ts.tile.reshape(v, (A * B, C)), A, BC)
    first_b = ts.tile.expand_dims(x[0:A, 0, 0:C], 1)
    w[0:A, 0:B, 0:C] = v + first_b + ts.tile.unsqueeze(x[0, 0:B, 0:C], 0)


@form(
    lambda: (normal(13, 50), empty(13), empty(13), empty(13), empty(13), empty(13, dtype=np.int64)),
    lambda x: (
        x.sum(1) + x.max(1),
        x.min(1) * x.mean(1),
        (1 + x / 50).prod(1),
        (x > 2).any(1) + 2 * (x < 2).all(1),
        x.argmax(1) + 100 * x.argmin(1),
    ),
    1e-5,
)
def reductions(
    x: ts.Tensor["M", "N", ts.f32], a: ts.Tensor["M", ts.f32], b: ts.Tensor["M", ts.f32], c: ts.Tensor["M", ts.f32],
    d: ts.Tensor["M", ts.f32], e: ts.Tensor["M", ts.int64],
):  # fmt: skip
    for i in ts.tile.range(0, M, 4):
        v = x[i : i + 4, 0:64]
        a[i : i + 4] = ts.tile.sum(v, axis=1) + ts.tile.max(v, axis=-1)
        b[i : i + 4] = ts.tile.min(v, 1) * ts.tile.mean(v, axis=-1, keepdim=True).reshape(4)
        c[i : i + 4] = ts.tile.prod(1 + v / 50, axis=1)
        d[i : i + 4] = ts.tile.cast(ts.tile.any(v > 2, axis=1), ts.f32) + 2 * ts.tile.cast(
            ts.tile.all(v < 2, 1), ts.f32
        )
        e[i : i + 4] = ts.tile.argmax(v, axis=1) + 100 * ts.tile.argmin(v, axis=1)


def by_rows(x: Any, axis: int) -> Any:
    total = x.sum(axis) + x.max(axis) * x.min(axis) + x.mean(axis) + (1 + x / 50).prod(axis)
    return total + 2 * (x > 2).any(axis) + 4 * (x < 2).all(axis) + 8 * x.argmax(axis) + 16 * x.argmin(axis)


@form(lambda: (normal(13, 20), empty(13)), lambda x: by_rows(x, 1), 1e-5)
def rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        v = x[i : i + 4, 0:32]
        r = ts.tile.row_sum(v) + ts.tile.row_max(v) * ts.tile.row_min(v) + ts.tile.row_mean(v)
        r += ts.tile.row_prod(1 + v / 50) + ts.tile.where(ts.tile.row_any(v > 2), 2, 0)
        r += ts.tile.where(ts.tile.row_all(v < 2), 4, 0)
        y[i : i + 4] = r + 8 * ts.tile.row_argmax(v) + 16 * ts.tile.row_argmin(v)


@form(lambda: (normal(20, 13), empty(13)), lambda x: by_rows(x, 0), 1e-5)
def columns(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", ts.f32]):
    for i in ts.tile.range(0, N, 4):
        v = x[0:32, i : i + 4]
        r = ts.tile.col_sum(v) + ts.tile.col_max(v) * ts.tile.col_min(v) + ts.tile.col_mean(v)
        r += ts.tile.col_prod(1 + v / 50) + ts.tile.where(ts.tile.col_any(v > 2), 2, 0)
        r += ts.tile.where(ts.tile.col_all(v < 2), 4, 0)
        y[i : i + 4] = r + 8 * ts.tile.col_argmax(v) + 16 * ts.tile.col_argmin(v)


@form(
    lambda: (normal(6, 45), empty(6, 45), empty(6, 45), empty(6, 45), empty(6, 45)),
    lambda x: (x.cumsum(1), (1 + x / 50).cumprod(0), np.maximum.accumulate(x, 1), np.minimum.accumulate(x, 1)),
    1e-4,
)
def prefixes(
    x: ts.Tensor["M", "N", ts.f32], a: ts.Tensor["M", "N", ts.f32], b: ts.Tensor["M", "N", ts.f32],
    c: ts.Tensor["M", "N", ts.f32], d: ts.Tensor["M", "N", ts.f32],
):  # fmt: skip
    v = x[0:8, 0:64]
    a[0:8, 0:64] = ts.tile.cumsum(v)
    b[0:8, 0:64] = ts.tile.cumprod(1 + v / 50, axis=0)
    c[0:8, 0:64] = ts.tile.cummax(v, axis=1)
    d[0:8, 0:64] = ts.tile.cummin(v, -1)


def _moments(a, b):  # type: ignore[no-untyped-def]
    n, apart = a[2] + b[2], b[0] - a[0]
    return a[0] + apart * b[2] / n, a[1] + b[1] + apart * apart * a[2] * b[2] / n, n


@form(
    lambda: (normal(9, 45), empty(9), empty(9, 45)),
    lambda x: (x.var(1), (np.cumsum(x[:, ::-1], 1) % 2)[:, ::-1]),
    1e-4,
)
def combined(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32], z: ts.Tensor["M", "N", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        v = x[i : i + 4, 0:64]
        _, square, n = ts.tile.reduce((v, 0.0, 1.0), _moments, axis=1)
        y[i : i + 4] = square / n
        z[i : i + 4, 0:64] = ts.tile.associative_scan(v, lambda a, b: a + b, reverse=True) % 2


@form(lambda: (normal(21, 40), empty(40), empty(1)), lambda x: (x.sum(0), x.min().reshape(1)), 1e-4)
def across(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", ts.f32], z: ts.Tensor[1, ts.f32]):
    for i in ts.tile.range(0, M, 4):
        v = x[i : i + 4, 0:64]
        y[0:64] = ts.tile.reduce_across(ts.tile.col_sum(v))
        z[0] = ts.tile.reduce_across(ts.tile.min(v), "min")


def descending(x: Any) -> Any:
    return x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), -1, kind="stable"), -1)


def with_nan(x: Any) -> Any:
    x = np.round(x)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


@form(
    lambda: (with_nan(normal(7, 45)), empty(7, 45), empty(7, 45, dtype=np.int64)),
    lambda x: (np.sort(x, -1), descending(x)),
)
def sorted_rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32], at: ts.Tensor["M", "N", ts.int64]):
    for i in ts.tile.range(0, M, 4):
        v = x[i : i + 4, 0:64]
        y[i : i + 4, 0:64] = ts.tile.sort(v)
        at[i : i + 4, 0:64] = ts.tile.argsort(v, axis=-1, descending=True)


@form(
    lambda: (
        normal(8, 12),
        rng.integers(-3, 12, 5).astype(np.int32),
        *map(empty, (8, 8, 3, 2, 8), (12, 5, 12, 12, 6)),
    ),
    lambda x, at: (
        x[:, ::-1],
        np.where((at >= 0) & (at < 8), x[:8, np.clip(at, 0, 7)], 0),
        np.concatenate((x[6:8], x[:1])),
        np.stack((x[0], x[3])),
        x[:, :6] - x[:, 6:],
    ),
)
def parts(
    x: ts.Tensor["M", "N", ts.f32], at: ts.Tensor["k", ts.int32], a: ts.Tensor["M", "N", ts.f32],
    b: ts.Tensor["M", "k", ts.f32], c: ts.Tensor["P", "N", ts.f32], d: ts.Tensor["Q", "N", ts.f32],
    e: ts.Tensor["M", "H", ts.f32],
):  # fmt: skip
    t = x[0:8, 0:12]
    a[0:8, 0:12] = ts.tile.flip(t)
    b[0:8, 0:5] = ts.tile.take(t[:, 0:8], at[0:5], axis=1)
    two = ts.tile.cat((t[6:7], ts.tile.concatenate((t[7:8],), axis=0)), axis=0)
    c[0:3, 0:12] = ts.tile.concat((two, t[0:1]), axis=0)
    d[0:2, 0:12] = ts.tile.stack((t[0], t[3]))
    left, right = ts.tile.split(t, 2)
    e[0:8, 0:6] = left - right


def put(x: Any, at: Any, v: Any, add: bool) -> Any:
    out = x.copy()
    for j, place in enumerate(at):
        if 0 <= place < len(x[0]):
            out[:, place] = v[:, j] + out[:, place] * add
    return out


@form(
    lambda: (
        normal(8, 12), rng.integers(-2, 14, 16).astype(np.int32), normal(8, 16), *map(empty, (8, 8, 8), (16, 12, 12)),
    ),
    lambda x, at, v: (
        np.where((at >= 0) & (at < 12), x[:, np.clip(at, 0, 11)], 0), put(x, at, v, False), put(x, at, v, True),
    ),
)  # fmt: skip
def placed(
    x: ts.Tensor["M", "N", ts.f32], at: ts.Tensor["k", ts.int32], v: ts.Tensor["M", "k", ts.f32],
    a: ts.Tensor["M", "k", ts.f32], b: ts.Tensor["M", "N", ts.f32], c: ts.Tensor["M", "N", ts.f32],
):  # fmt: skip
    t, places = x[0:8, 0:12], at[0:16]
    a[0:8, 0:16] = ts.tile.gather(t, places[None, :] + ts.tile.zeros((8, 1), ts.int32))
    b[0:8, 0:12] = ts.tile.scatter(t, places, v[0:8, 0:16])
    c[0:8, 0:12] = ts.tile.scatter_add(t, places, v[0:8, 0:16])


# random numbers


@form(
    lambda: (np.array([3]), empty(70), empty(70, dtype=np.uint64)),
    lambda seed: (ts.uniform(int(seed[0]), (70,)), ts.random_bits(int(seed[0]), (70,))),
)
def drawn(seed: ts.Tensor["one", ts.int64], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.uint64]):
    for i in ts.tile.range(0, n, 32):
        at = ts.tile.arange(32) + i
        y[i : i + 32] = ts.tile.uniform(seed[0], at)
        z[i : i + 32] = ts.tile.random_bits(seed[0], at)


# looking at what happens


@form(lambda: (normal(12), empty(12)), lambda x: x)
def watched(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 4):
        v = x[i : i + 4]
        ts.tile.debug_assert(v < 100, "too large")
        ts.tile.device_assert(v > -100)
        ts.tile.static_assert(n > 0)
        ts.tile.print("v", v)
        ts.tile.debug_print("sum", ts.tile.sum(v))
        y[i : i + 4] = v


@form(lambda: (normal(40), normal(40), empty(40), empty(40)), lambda x, y: (x * x - y * y, 2 * x * y), 1e-6)
def complex_parts(
    x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], u: ts.Tensor["n", ts.f32], v: ts.Tensor["n", ts.f32]
):
    for i in ts.tile.range(0, n, 32):
        z = ts.tile.make_complex(x[i : i + 32], y[i : i + 32])
        u[i : i + 32] = ts.tile.real(z * z)
        v[i : i + 32] = ts.tile.imag(z * z)


# elementwise functions: kernels written from the table

NUMPY: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (*TABLE, "fabs", "power", "negative") if hasattr(np, name)},
    "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": np.floor_divide, "neg": np.negative,
    "pow": np.power,
    "atan": np.arctan, "atan2": np.arctan2, "round": np.round, "fma": lambda x, y, z: x * y + z, "erf": special.erf,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "bit_not": np.bitwise_not,
    "shift_left": np.left_shift, "shift_right": np.right_shift, "rsqrt": lambda x: 1 / np.sqrt(x),
    "relu": lambda x: np.maximum(x, 0), "sigmoid": special.expit, "silu": lambda x: x * special.expit(x),
    "softplus": lambda x: np.logaddexp(x, 0), "gelu": lambda x: x * special.ndtr(x.astype(np.float64)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip
ALIASES = {"fabs": "abs", "power": "pow", "negative": "neg"}
WIDTH = 40


def elementwise(name: str, functions: list[str], dtype: str, folder: Any) -> Any:
    """A kernel with a row of its output for each function, as a module of its own."""
    import importlib.util

    lines = [
        "import tessera as ts",
        "",
        "@ts.kernel",
        f"def {name}(a: ts.Tensor['n', ts.{dtype}], b: ts.Tensor['n', ts.{dtype}], y: ts.Tensor['F', 'n', ts.f64]):",
        "    for i in ts.tile.range(0, n, 32):",
        "        p, q = a[i : i + 32], b[i : i + 32]",
    ]
    for row, f in enumerate(functions):
        arity = TABLE[ALIASES.get(f, f)].arity
        args = "p > q, p, q" if f == "where" else ", ".join(("p", "q", "p")[:arity])
        lines.append(f"        y[{row}, i : i + 32] = ts.tile.cast(ts.tile.{f}({args}), ts.f64)")
    path = folder / f"{name}.py"
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def of_kind(*accepts: str) -> list[str]:
    names = [n for n in TABLE if TABLE[n].accepts in accepts and TABLE[n].gives != "complex"]
    return names + [alias for alias, of in ALIASES.items() if of in names]


KINDS = {
    "floats": (of_kind("any", "number", "real", "float"), "f32"),
    "whole": (of_kind("any", "integer", "integral_or_bool", "real"), "int32"),
}


@pytest.mark.parametrize("target", [*TARGETS, *ARCHITECTURES])
@pytest.mark.parametrize("kind", KINDS)
def test_elementwise_functions(kind: str, target: str, tmp_path: Any) -> None:
    functions, dtype = KINDS[kind]
    kernel = elementwise(kind, functions, dtype, tmp_path)
    if dtype == "f32":
        a, b = (rng.uniform(0.25, 3, WIDTH).astype(np.float32) for _ in range(2))
    else:
        a, b = rng.integers(1, 50, WIDTH).astype(np.int32), rng.integers(1, 6, WIDTH).astype(np.int32)
    y = empty(len(functions), WIDTH, dtype=np.float64)
    if target in ARCHITECTURES:
        assemble(kernel, (a, b, y), target, {})
        return
    run(kernel, a, b, y, target=target, debug=False)
    for row, f in zip(y, functions, strict=True):
        arity = TABLE[ALIASES.get(f, f)].arity
        wanted = NUMPY[f](*((a > b, a, b) if f == "where" else (a, b, a)[:arity]))
        np.testing.assert_allclose(row, wanted.astype(np.float64), rtol=3e-6, atol=1e-6, err_msg=f)


# the tests


def f32(x: Any) -> Any:
    return x.astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, target: str) -> None:
    f = FORMS[name]
    args = f.given()
    inputs = [np.copy(a) for a in args]
    run(f.kernel, *args, target=target, debug=False, **f.config)
    count = len(inspect.signature(f.wanted).parameters)
    wanted = f.wanted(*inputs[:count])
    outs = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(args[len(args) - len(outs) :], outs, strict=True):
        np.testing.assert_allclose(got, want, rtol=f.tolerance, atol=f.tolerance)
    for before, after in zip(inputs[: len(args) - len(outs)], args, strict=False):
        np.testing.assert_array_equal(before, after)


def assemble(kernel: Any, args: tuple[Any, ...], target: str, config: dict[str, Any]) -> None:
    artifact = generate(program(kernel, *args, **config), base.get(target))
    assert artifact.files


@pytest.mark.parametrize("target", ARCHITECTURES)
@pytest.mark.parametrize("name", FORMS)
def test_form_assembles(name: str, target: str) -> None:
    f = FORMS[name]
    assemble(f.kernel, f.given(), target, f.config)


def used(f: Callable[..., Any]) -> set[str]:
    """The names of `ts.tile` in a kernel's text."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(f)))
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "ts.tile"}


def test_every_name_has_a_form() -> None:
    elementwise_names = {f for functions, _ in KINDS.values() for f in functions}
    covered = set().union(*(used(f.kernel) for f in FORMS.values())) | elementwise_names
    assert set(dir(tile)) - covered == {"helper"}  # a decorator, for functions that kernels call
