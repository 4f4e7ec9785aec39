"""The kernels that every target test runs: each function gives a Case at small sizes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from tessera.compiler.ir.core import Block, Region, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType
from tessera.compiler.tile.program import Program
from tessera.language import dtypes as dt
from tessera.language.dims import Dim, ceildiv, symbol
from tests.emulator.harness import Arg, Case, LineBuilder, build

RNG = np.random.default_rng(20)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def saxpy(n: int = 1000, block: int = 256, dim: Dim | None = None, warps: int = 4) -> Case:
    """y = alpha * x + y in place, with the mask of a linear_id kernel."""
    d = n if dim is None else dim

    def body(t: LineBuilder, x: Value, y: Value, alpha: Value) -> None:
        start = t.iop("imul", t.program_id(0), t.index(block))
        lane = t.value("tile.iota", (), TileType((block,), dt.int64), {"axis": 0})
        first = t.broadcast(t.value("tile.to_scalar", (start,), TileType((), dt.int64)), (block,), ())
        size = t.broadcast(t.value("tile.to_scalar", (t.index(d),), TileType((), dt.int64)), (block,), ())
        inside = t.map("lt", t.map("add", lane, first), size)
        scaled = t.map("mul", t.broadcast(alpha, (block,), ()), t.load(x, [start], (block,), inside))
        t.store(y, t.map("add", scaled, t.load(y, [start], (block,), inside)), [start], inside)

    args = [Arg("x", (d,), dt.f32), Arg("y", (d,), dt.f32, out=True), Arg("alpha", None, dt.f32)]
    free = () if dim is None else ("n",)
    program = build("saxpy", args, (ceildiv(d, block),), body, free, num_warps=warps)
    x, y = normal(n), normal(n)
    return Case(
        program, {"x": x, "y": y, "alpha": 2.5}, {"y": np.float32(2.5) * x + y}, {} if dim is None else {"n": n}
    )


def keep_rows(t: LineBuilder, v: Value, rows: Dim, cols: Dim) -> Value:
    """A vector with one element per row, over the whole tile."""
    return t.broadcast(t.reshape(v, (rows, 1)), (rows, cols), (0, 1))


def softmax(
    rows: int = 6,
    cols: int = 200,
    block: int = 2,
    dtype: dt.DType = dt.f32,
    dim: Dim | None = None,
    warps: int | None = 4,
) -> Case:
    d: Dim = cols if dim is None else dim

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        row = t.iop("imul", t.program_id(0), t.index(block))
        tile = t.cast(t.load(x, [row, t.index(0)], (block, d)), dt.f32)
        shifted = t.map("sub", tile, keep_rows(t, t.reduce("max", tile, (1,)), block, d))
        e = t.map("exp", shifted)
        out = t.map("div", e, keep_rows(t, t.reduce("sum", e, (1,)), block, d))
        t.store(y, t.cast(out, dtype), [row, t.index(0)])

    args = [Arg("x", (rows, d), dtype), Arg("y", (rows, d), dtype, out=True)]
    attrs = {} if warps is None else {"num_warps": warps}
    program = build("softmax", args, (-(-rows // block),), body, () if dim is None else ("n",), **attrs)
    x = (normal(rows, cols) * 3).astype(dtype.numpy)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    tolerance = 1e-6 if dtype == dt.f32 else 1e-2
    expected = {"y": e / e.sum(1, keepdims=True)}
    return Case(program, {"x": x}, expected, {} if dim is None else {"n": cols}, rtol=tolerance, atol=tolerance)


def layernorm(rows: int = 5, cols: int = 96, warps: int = 4) -> Case:
    def body(t: LineBuilder, x: Value, gamma: Value, beta: Value, y: Value) -> None:
        at = [t.program_id(0), t.index(0)]
        tile = t.load(x, at, (1, cols))
        count = t.full((1, 1), float(cols), dt.f32)
        mean = t.map("div", t.reshape(t.reduce("sum", tile, (1,)), (1, 1)), count)
        centred = t.map("sub", tile, t.broadcast(mean, (1, cols), (0, 1)))
        var = t.map("div", t.reshape(t.reduce("sum", t.map("square", centred), (1,)), (1, 1)), count)
        scale = t.map("rsqrt", t.map("add", var, t.full((1, 1), 1e-5, dt.f32)))
        normed = t.map("mul", centred, t.broadcast(scale, (1, cols), (0, 1)))
        g, b = (t.broadcast(t.load(v, [t.index(0)], (cols,)), (1, cols), (1,)) for v in (gamma, beta))
        t.store(y, t.map("fma", normed, g, b), at)

    args = [
        Arg("x", (rows, cols), dt.f32),
        Arg("gamma", (cols,), dt.f32),
        Arg("beta", (cols,), dt.f32),
        Arg("y", (rows, cols), dt.f32, out=True),
    ]
    program = build("layernorm", args, (rows,), body, num_warps=warps)
    x, g, b = normal(rows, cols), normal(cols), normal(cols)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * g + b
    return Case(program, {"x": x, "gamma": g, "beta": b}, {"y": expected}, rtol=1e-5, atol=1e-5)


def loop(
    t: LineBuilder,
    lower: Value,
    upper: Value,
    step: Value,
    carried: list[Value],
    body: Any,
    hints: tuple[str, ...] = (),
) -> list[Value]:
    """tile.for with `body(counter, *carried)` giving the next values."""
    block = Block([INDEX, *(v.type for v in carried)], ["k", *hints])
    with t.inside(block):
        t.op("tile.yield", body(*block.args))
    op = t.op("tile.for", [lower, upper, step, *carried], [v.type for v in carried], {}, [Region([block])])
    return op.results


def branch(t: LineBuilder, cond: Value, then: Any, orelse: Any, types: list[Any]) -> list[Value]:
    regions: list[Region] = []
    for body in (then, orelse):
        block = Block()
        with t.inside(block):
            t.op("tile.yield", body())
        regions.append(Region([block]))
    return t.op("tile.if", [cond], types, {}, regions).results


def gemm(
    m: int = 128,
    n: int = 64,
    k: int = 96,
    dtype: dt.DType = dt.bf16,
    block: tuple[int, int, int] = (64, 64, 32),
    warps: int = 4,
) -> Case:
    """C += A @ B with explicit shared tiles, as in the language's examples: copy, barrier, mma, for every step of k."""
    bm, bn, bk = block

    def body(t: LineBuilder, a: Value, b: Value, c: Value) -> None:
        row, col = (t.iop("imul", t.program_id(i), t.index(s)) for i, s in ((0, bm), (1, bn)))
        sa = t.value("tile.alloc_shared", (), SharedType((bm, bk), dtype, "xor"), hint="smem_a")
        sb = t.value("tile.alloc_shared", (), SharedType((bk, bn), dtype, "xor"), hint="smem_b")

        def step(at: Value, acc: Value) -> list[Value]:
            t.op("tile.copy_async", [sa, a, row, at])
            t.op("tile.copy_async", [sb, b, at, col])
            t.op("tile.barrier")
            return [t.value("tile.mma", [sa, sb, acc], acc.type)]

        start = t.load(c, [row, col], (bm, bn))
        (acc,) = loop(t, t.index(0), t.index(k), t.index(bk), [start], step, ("acc",))
        t.store(c, acc, [row, col])

    args = [Arg("A", (m, k), dtype), Arg("B", (k, n), dtype), Arg("C", (m, n), dt.f32, out=True)]
    program = build("gemm", args, (ceildiv(m, bm), ceildiv(n, bn)), body, num_warps=warps)
    a, b, c = normal(m, k).astype(dtype.numpy), normal(k, n).astype(dtype.numpy), normal(m, n)
    expected = c + a.astype(np.float64) @ b.astype(np.float64)
    return Case(program, {"A": a, "B": b, "C": c}, {"C": expected}, rtol=1e-4, atol=2e-4)


def product(
    m: int = 70,
    n: int = 50,
    k: int = 45,
    dtype: dt.DType = dt.f32,
    block: tuple[int, int] = (32, 32),
    warps: int = 4,
    transposed: str = "",
    gelu: bool = False,
) -> Program:
    """A contraction as lowering writes it; `transposed` names operands whose memory is the other way round."""
    bm, bn = block

    def body(t: LineBuilder, a: Value, b: Value, c: Value) -> None:
        row, col = (t.iop("imul", t.program_id(i), t.index(s)) for i, s in ((0, bm), (1, bn)))
        acc = t.value("tile.contract", [a, b, row, col], TileType((bm, bn), dtype.accumulate))
        if gelu:
            acc = t.map("gelu", acc)
        t.store(c, t.cast(acc, dtype), [row, col])

    args = [
        Arg("A", (m, k), dtype, strides=(1, m) if "A" in transposed else None),
        Arg("B", (k, n), dtype, strides=(1, k) if "B" in transposed else None),
        Arg("C", (m, n), dtype, out=True),
    ]
    return build("matmul", args, (ceildiv(m, bm), ceildiv(n, bn)), body, num_warps=warps)


def matmul(
    m: int = 70, n: int = 50, k: int = 45, dtype: dt.DType = dt.f32, *, transposed: str = "", gelu: bool = False,
    **how: Any,
) -> Case:  # fmt: skip
    """`product` with operands and what is wanted of it."""
    program = product(m, n, k, dtype, transposed=transposed, gelu=gelu, **how)
    a, b = normal(m, k).astype(dtype.numpy), normal(k, n).astype(dtype.numpy)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    if gelu:
        exact = 0.5 * exact * (1 + np.vectorize(math.erf)(exact / math.sqrt(2)))
    tolerance = {"f32": 2e-5, "f64": 1e-12, "tf32": 3e-2}.get(dtype.name, 2e-2)
    given = {
        "A": a.T.copy().reshape(m, k) if "A" in transposed else a,
        "B": b.T.copy().reshape(k, n) if "B" in transposed else b,
    }
    return Case(program, given, {"C": exact}, rtol=tolerance, atol=tolerance)


def attention(
    s: int = 96, d: int = 32, bm: int = 32, bn: int = 32, dtype: dt.DType = dt.bf16, warps: int = 2, causal: bool = True
) -> Case:
    """Flash attention for one head: online softmax over blocks of keys, products on shared tiles."""

    def body(t: LineBuilder, q: Value, k: Value, v: Value, o: Value) -> None:
        row, zero = t.iop("imul", t.program_id(0), t.index(bm)), t.index(0)
        sq, sk, sv = (
            t.value("tile.alloc_shared", (), SharedType((n, d), dtype), hint=h)
            for n, h in ((bm, "smem_q"), (bn, "smem_k"), (bn, "smem_v"))
        )
        t.op("tile.copy_async", [sq, q, row, zero])
        scale = t.full((bm, bn), 1 / math.sqrt(d), dt.f32)
        low = t.full((bm, bn), -1e30, dt.f32)

        def step(at: Value, m: Value, l: Value, acc: Value) -> list[Value]:
            t.op("tile.copy_async", [sk, k, at, zero])
            t.op("tile.copy_async", [sv, v, at, zero])
            t.op("tile.barrier")
            kt = t.transpose(t.value("tile.load_shared", [sk], TileType((bn, d), dtype)), (1, 0))
            scores = t.value("tile.mma", [sq, kt, t.full((bm, bn), 0.0, dt.f32)], TileType((bm, bn), dt.f32))
            scores = t.map("mul", scores, scale)
            r, c = (t.value("tile.iota", (), TileType((bm, bn), dt.int64), {"axis": i}) for i in (0, 1))
            r, c = (
                t.map("add", x, t.broadcast(t.value("tile.to_scalar", (i,), TileType((), dt.int64)), (bm, bn), ()))
                for x, i in ((r, row), (c, at))
            )
            visible = t.map("lt", c, t.full((bm, bn), s, dt.int64))
            if causal:
                visible = t.map("logical_and", visible, t.map("le", c, r))
            scores = t.map("where", visible, scores, low)
            new = t.map("maximum", m, t.reduce("max", scores, (1,)))
            p = t.map("exp", t.map("sub", scores, t.broadcast(new, (bm, bn), (0,))))
            alpha = t.map("exp", t.map("sub", m, new))
            total = t.map("add", t.map("mul", l, alpha), t.reduce("sum", p, (1,)))
            acc = t.map("mul", acc, t.broadcast(alpha, (bm, d), (0,)))
            return [new, total, t.value("tile.mma", [t.cast(p, dtype), sv, acc], acc.type)]

        start = [t.full((bm,), -1e30, dt.f32), t.full((bm,), 0.0, dt.f32), t.full((bm, d), 0.0, dt.f32)]
        _, total, acc = loop(t, zero, t.index(s), t.index(bn), start, step, ("m_i", "l_i", "acc"))
        t.store(o, t.cast(t.map("div", acc, t.broadcast(total, (bm, d), (0,))), dtype), [row, zero])

    args = [Arg(n, (s, d), dtype) for n in "QKV"] + [Arg("O", (s, d), dtype, out=True)]
    program = build("attention", args, (ceildiv(s, bm),), body, num_warps=warps)
    q, k, v = (normal(s, d).astype(dtype.numpy) for _ in range(3))
    scores = q.astype(np.float64) @ k.astype(np.float64).T / math.sqrt(d)
    if causal:
        scores = np.where(np.tri(s, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(1, keepdims=True))
    expected = p / p.sum(1, keepdims=True) @ v.astype(np.float64)
    return Case(program, {"Q": q, "K": k, "V": v}, {"O": expected}, rtol=3e-2, atol=3e-2)


BF16 = ml_dtypes.bfloat16
N = symbol("n")
TYPICAL = {
    "saxpy": saxpy,
    "saxpy_symbolic": lambda: saxpy(dim=N),
    "softmax": softmax,
    "softmax_bf16": lambda: softmax(dtype=dt.bf16),
    "softmax_symbolic": lambda: softmax(cols=2500, block=1, dim=N),
    "layernorm": layernorm,
    "gemm_bf16": gemm,
    "gemm_f16": lambda: gemm(dtype=dt.f16),
    "matmul_f32": matmul,
    "matmul_bf16": lambda: matmul(dtype=dt.bf16, gelu=True),
    "attention": attention,
}
"""Kernels that stand for what users write: run in the emulator, compiled for every architecture."""
