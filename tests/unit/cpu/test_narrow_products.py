"""Products of bf16 and of bytes: instructions that add several at once give the bits of those that add one."""

# pyright: reportUndefinedVariable=false
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.kernel.packed_matmul import panel_rows
from tessera.compiler.targets.cpu.llvm import isa
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language import dtypes as dt
from tessera.language.dims import ceildiv
from tests.emulator.harness import Arg, LineBuilder, build

BF16 = ml_dtypes.bfloat16
SIZES = [(1, 1, 1), (3, 5, 7), (14, 64, 32), (17, 131, 33), (13, 255, 40), (16, 1030, 17), (5, 2, 70), (29, 2201, 16)]
PAIRS = [(dt.int8, dt.int8), (dt.uint8, dt.int8), (dt.int8, dt.uint8), (dt.uint8, dt.uint8)]
LAYOUTS = ["rows", "columns", "strided"]


def placed(x: Any, layout: str) -> tuple[Any, tuple[int, int]]:
    """The memory of a matrix in this layout, and its strides in elements."""
    m, n = x.shape
    if layout == "rows":
        return np.ascontiguousarray(x), (n, 1)
    if layout == "columns":
        return np.ascontiguousarray(x.T), (1, m)
    wide = np.zeros((m, 3 * n), x.dtype)
    wide[:, ::3] = x
    return wide, (3 * n, 3)


@pytest.mark.parametrize(
    ("rows", "panels"),
    [(1, (1, 0)), (14, (14, 0)), (15, (8, 0)), (64, (12, 4)), (256, (14, 4)), (504, (14, 0)), (512, (13, 5)),
     (1 << 30, (14, 0))],
)  # fmt: skip
def test_panels_are_filled_up(rows: int, panels: tuple[int, int]) -> None:
    """256 rows are 18 panels of 14 and one of 4, which has code of its own, not 20 of 13 with 4 of filler."""
    assert panel_rows(rows) == panels


@pytest.mark.parametrize(("rows", "panels"), [(1, (1, 0)), (6, (6, 0)), (10, (5, 0)), (128, (6, 0)), (1 << 30, (6, 0))])
def test_panels_for_sixteen_registers_have_six_rows(rows: int, panels: tuple[int, int]) -> None:
    """12 sums are under way: those of fewer rows wait for themselves."""
    assert panel_rows(rows, 6, 6) == panels


def without(word: str) -> CpuTarget:
    """This machine without the features whose names contain `word`: what is left of such instructions."""
    features = {f[1:]: f[0] == "+" and word not in f for f in isa.host().features.split(",")}
    target = CpuTarget()
    target.__dict__["isa"] = isa.from_features(features)
    return target


def added_in_tiles(a: Any, b: Any) -> Any:
    """a @ b in the order of `tdpbf16ps` (decision 117), for normal numbers: numbers of 64 bits hold a product and a
    sum before it is rounded."""

    def add(x: Any, y: Any) -> Any:
        return (x.astype(np.longdouble) + y).astype(np.float32)

    (m, k), n = a.shape, b.shape[1]
    whole = -(-k // 2048) * 2048
    a, b = np.pad(a, ((0, 0), (0, whole - k))), np.pad(b, ((0, whole - k), (0, 0)))
    total = np.zeros((m, n), np.float32)
    for group in range(0, whole, 2048):
        sums = np.zeros((m, n), np.float32)
        for at in range(group, group + 2048, 32):
            halves = [np.zeros((m, n), np.float32) for _ in range(2)]
            for i in range(32):
                x, y = (v.astype(np.longdouble) for v in (a[:, at + i, None], b[None, at + i]))
                halves[i % 2] = add(halves[i % 2], x * y)
            sums = add(sums, add(*halves))
        total = add(total, sums)
    return total


def product(
    target: CpuTarget, a: Any, b: Any, types: tuple[dt.DType, dt.DType, dt.DType], layouts: tuple[str, str], block: int
) -> Any:
    """a @ b by a kernel whose programs take `block` rows and columns each."""
    (m, k), n = a.shape, b.shape[1]
    (a, sa), (b, sb) = placed(a, layouts[0]), placed(b, layouts[1])
    left, right = Arg("a", (m, k), types[0], strides=sa), Arg("b", (k, n), types[1], strides=sb)
    out = np.empty((m, n), types[2].numpy)

    def body(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
        i, j = (t.iop("imul", t.program_id(x), t.index(block)) for x in (0, 1))
        t.store(y, t.value("tile.contract", (a, b, i, j), TileType((block, block), types[2])), [i, j])

    args = [left, right, Arg("y", (m, n), types[2], out=True)]
    program = build("product", args, (ceildiv(m, block), ceildiv(n, block)), body)
    target.load(generate(program, target)).run([v.ctypes.data for v in (a, b, out)], [], [])
    return out


@pytest.mark.parametrize("types", PAIRS, ids=lambda p: f"{p[0]}-{p[1]}")
@pytest.mark.parametrize("number", range(len(SIZES)), ids=["x".join(map(str, s)) for s in SIZES])
def test_bytes_are_multiplied_exactly(number: int, types: tuple[dt.DType, dt.DType]) -> None:
    """Extreme values, in every instruction set that this machine has."""
    m, k, n = SIZES[number]
    rng = np.random.default_rng(number)
    ends = [np.array([0 if t.kind == "uint" else -128, int(t.maximum), 1, 99], t.numpy) for t in types]
    a, b = rng.choice(ends[0], (m, k)), rng.choice(ends[1], (k, n))
    want = a.astype(np.int64) @ b.astype(np.int64)
    layouts = LAYOUTS[number % 3], LAYOUTS[(number // 3 + PAIRS.index(types)) % 3]
    for target in (CpuTarget(), without("amx"), without("avx512"), CpuTarget("avx2"), CpuTarget("baseline")):
        got = product(target, a, b, (*types, dt.int32), layouts, (8, 32)[number % 2])
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", range(len(SIZES)), ids=["x".join(map(str, s)) for s in SIZES])
def test_pairs_of_bf16_are_added_in_order(number: int, layout: str) -> None:
    """The same bits with and without the instruction, for every block, also of infinities and zeros of either sign.

    Tile registers have an order of their own, which blocks do not change either.
    """
    m, k, n = SIZES[number]
    rng = np.random.default_rng(number)
    a, b = (rng.standard_normal(s) * 2.0 ** rng.integers(-20, 20, s) for s in ((m, k), (k, n)))
    a[0], b[:, 0] = -0.0, 0.0
    if m > 2 and n > 2:
        a[1, 0], a[2, 0], b[0, 2] = np.inf, 2.0**120, -(2.0**20)
    a, b = a.astype(BF16), b.astype(BF16)
    types, layouts = (dt.bf16, dt.bf16, dt.f32), (layout, LAYOUTS[(number + LAYOUTS.index(layout)) % 3])
    with np.errstate(all="ignore"):
        chains = [(without("amx"), 32), (without("amx"), 8), (CpuTarget("avx512"), 16), (CpuTarget("baseline"), 8)]
        found = [product(target, a, b, types, layouts, block) for target, block in chains]
        tiles = [product(CpuTarget(), a, b, types, layouts, block) for block in (32, 8, 20)]
        if isa.host().bf16_tiles:
            tiles.append(added_in_tiles(a, b))
        else:
            found += tiles
    for same in (found, tiles):
        for other in same[1:]:  # a NaN may have either sign
            np.testing.assert_array_equal(same[0], other)
            number = ~np.isnan(other)
            np.testing.assert_array_equal(np.signbit(same[0])[number], np.signbit(other)[number])


def test_subnormal_products_of_bf16_count_as_zero_at_most() -> None:
    """The error is at most the smallest normal number for each product, with every instruction, and as many times as
    much as the other operand of a subnormal one is larger than 1; for tile registers also for each of their sums."""
    rng = np.random.default_rng(0)
    for powers in ((-64, -64), (-130, 90)):
        a, b = (
            (rng.standard_normal(s) * 2.0**p).astype(BF16) for s, p in zip(((15, 70), (70, 20)), powers, strict=True)
        )
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = 2.0**-126 * np.maximum(1, np.abs(b.astype(np.float64))).sum(axis=0)
        for target in (CpuTarget(), without("amx"), CpuTarget("baseline")):
            got = product(target, a, b, (dt.bf16, dt.bf16, dt.f32), ("rows", "rows"), 32)
            assert np.all(np.abs(got - exact) <= 1.01 * bound)


@pytest.mark.parametrize(
    ("features", "types", "instruction"),
    [
        ((*isa.AVX512, "avx512bf16"), (dt.bf16, dt.bf16, dt.f32), "vdpbf16ps"),
        ((*isa.AVX512, "avx512bf16", "amx-bf16", "amx-tile"), (dt.bf16, dt.bf16, dt.f32), "tdpbf16ps"),
        ((*isa.AVX512, "amx-tile", "amx-int8"), (dt.int8, dt.uint8, dt.int32), "tdpbsud"),
        ((*isa.AVX512, "avx512vnni"), (dt.int8, dt.int8, dt.int32), "vpdpbusd"),
        (("avxvnni",), (dt.uint8, dt.uint8, dt.int32), "vpdpbusd"),
    ],
    ids=["bf16", "tiles of bf16", "tiles of bytes", "bytes", "bytes of avx2"],
)
def test_features_choose_the_instruction(
    features: tuple[str, ...], types: tuple[dt.DType, dt.DType, dt.DType], instruction: str
) -> None:
    """Nothing is run, so that it holds on every machine with this architecture."""
    if isa.host("baseline").name != "sse2":
        pytest.skip("these are instructions of x86-64")
    plain = dict.fromkeys((f[1:] for f in isa.host("baseline").features.split(",") if f.startswith("+")), True)
    plain |= dict.fromkeys((*isa.AVX512, *isa.AVX2, *isa.NARROW, "avx"), False)
    args = [Arg("a", (32, 64), types[0]), Arg("b", (64, 32), types[1]), Arg("y", (32, 32), types[2], out=True)]

    def body(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
        i, j = (t.iop("imul", t.program_id(x), t.index(32)) for x in range(2))
        t.store(y, t.value("tile.contract", (a, b, i, j), TileType((32, 32), types[2])), [i, j])

    program = build("product", args, (1, 1), body)
    for some, found in ((features, True), (features[:-1], False)):
        target = CpuTarget()
        target.__dict__["isa"] = isa.from_features(plain | dict.fromkeys((*some, "avx", *isa.AVX2), True))
        text = target.assembly(generate(program, target))
        assert (instruction in text) == found
        assert text.count("ldtilecfg\t") == text.count("\ttilerelease") == (found and instruction.startswith("td"))


@ts.function
def turned(a: Any, b: Any) -> Any:
    return (b.to(ts.int32).T @ a.to(ts.int32).T) * 2 + 1


@ts.function
def also_wanted(a: Any, b: Any) -> Any:
    left = a.to(ts.int32)
    return left @ b.to(ts.int32), left + 1


@ts.function
def several(a: Any, b: Any) -> Any:
    return ts.einsum("ik,bkj->bij", a.to(ts.uint32), ts.stack([b, b - b]).to(ts.uint32))


PROGRAMS: list[tuple[Any, Callable[[Any, Any], Any]]] = [
    (turned, lambda a, b: ((a @ b).T * 2 + 1,)),
    (also_wanted, lambda a, b: (a @ b, a + 1)),
    (several, lambda a, b: (np.stack([a @ b, 0 * (a @ b)]).astype(np.uint32),)),
]


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("types", [("i1", "i1"), ("u1", "i1")], ids="-".join)
def test_bytes_that_are_widened_for_a_product(types: tuple[str, str], number: int, target: str) -> None:
    rng = np.random.default_rng(number)
    a, b = (rng.integers(-128, 256, n).astype(t) for t, n in zip(types, ((37, 131), (131, 29)), strict=True))
    program, want = PROGRAMS[number]
    found = ts.compile(program, target=target, arguments=(a, b))(a, b)
    expected = want(a.astype(np.int32), b.astype(np.int32))
    for x, y in zip(found if len(expected) > 1 else (found,), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(x), y)


def test_bytes_are_widened_where_the_product_reads_them() -> None:
    a = np.zeros((64, 64), np.int8)
    text = ts.compile(turned, target="cpu", arguments=(a, a)).ir("schedule")
    assert text.count("= group(") == 1


SEVERAL = [("abck,kn->bcan", (3, 5, 7, 40), (40, 33)), ("akbl,kln->abn", (6, 7, 30, 10), (7, 10, 33)),
           ("akbl,kln->abn", (2, 5, 9, 7), (5, 7, 3)), ("abkc,kbn->acn", (3, 4, 17, 9), (17, 4, 20))]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SEVERAL)), ids=["run", "even runs", "odd runs", "across"])
def test_operands_of_several_axes_have_words_of_neighbours_in_k(number: int) -> None:
    """Rows or columns that are several axes, with runs of k that are, or are not, whole words."""
    text, *shapes = SEVERAL[number]
    rng = np.random.default_rng(number)
    a, b = (rng.integers(-100, 100, s).astype(np.int8) for s in shapes)
    want = np.einsum(text, a.astype(np.int32), b.astype(np.int32))

    @ts.function
    def both(a: Any, b: Any, x: Any, y: Any) -> Any:
        return ts.einsum(text, a.to(ts.int32), b.to(ts.int32)), ts.einsum(text, x, y)

    x, y = a.astype(BF16), b.astype(BF16)
    compiled = ts.compile(both, target="cpu", arguments=(a, b, x, y))
    results = [compiled(a, b, x, y)]
    for target in (without("amx"), without("avx512")):
        results.append((np.empty(want.shape, np.int32), np.empty(want.shape, BF16)))
        code = target.load(generate(compiled.lowered.program, target))
        code.run([v.ctypes.data for v in (a, b, x, y, *results[-1])], [], [])
    for found in results:
        np.testing.assert_array_equal(found[0], want)
        np.testing.assert_array_equal(found[1], want.astype(BF16))


WHOLE_PROCESS = """
import os, signal, sys, threading
import ml_dtypes, numpy as np
import tessera as ts

@ts.function
def product(a: ts.Tensor["M", "K", ts.bf16], b: ts.Tensor["K", "N", ts.bf16]):
    return a @ b

rng = np.random.default_rng(0)
a, b = (rng.standard_normal((300, 300)).astype(ml_dtypes.bfloat16) for _ in range(2))
go, found = threading.Event(), []
early = threading.Thread(target=lambda: (go.wait(), found.append(product(a, b))), daemon=True)
early.start()  # before anything has asked for the state
want = product(a, b)
go.set()
early.join()
signals = []
signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
while len(signals) < 20:
    found.append(product(a, b))
signal.setitimer(signal.ITIMER_REAL, 0)
child = os.fork()
if child == 0:
    os._exit(0 if (product(a, b) == want).all() else 3)
assert os.waitpid(child, 0)[1] == 0
assert all((x == want).all() for x in found)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_older_threads_signals_and_children_multiply_alike(tmp_path: Path) -> None:
    """State of tile registers is permitted to a whole process and its children, and survives signals."""
    script = tmp_path / "whole_process.py"
    script.write_text(WHOLE_PROCESS, encoding="utf-8")
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)


def test_a_process_without_permission_has_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "tiles_are_permitted", lambda: False)
    isa.host.cache_clear()
    refused = CpuTarget().fingerprint
    found = isa.host()
    monkeypatch.undo()
    isa.host.cache_clear()
    assert not (found.bf16_tiles or found.byte_tiles) and "+amx" not in found.features
    assert (CpuTarget().fingerprint == refused) == (not isa.host().bf16_tiles and not isa.host().byte_tiles)


def forms(
    a: ts.Tensor["M", "K", ts.bf16],
    b: ts.Tensor["K", "N", ts.bf16],
    y: ts.Tensor["M", "N", ts.f32],
    z: ts.Tensor["N", "M", ts.f32],
    x: ts.Tensor["M", "N", ts.f32],
):
    for i in ts.tile.range(0, M, 40):
        twice = ts.tile.cast(a[i : i + 40] * 2.0, ts.bf16)
        half = ts.tile.cast(b[0:K] * 0.5, ts.bf16)
        y[i : i + 40] = ts.tile.mma(twice, half)
        z[0:N, i : i + 40] = ts.tile.mma(half.T, twice.T)
        x[i : i + 40] = ts.tile.mma(a[i : i + 40], b[0:K])


@pytest.mark.parametrize("k", [17, 70, 128])
def test_tiles_that_a_kernel_computes_are_multiplied_as_those_in_memory(k: int) -> None:
    """Scratch memory holds bf16 as f32, in either order of the axes."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(s).astype(BF16) for s in ((80, k), (k, 24)))
    y, z, x = (np.empty(s, np.float32) for s in ((80, 24), (24, 80), (80, 24)))
    ts.kernel(forms)(a, b, y, z, x)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z.T, x)
    if isa.host().bf16_tiles:
        np.testing.assert_array_equal(x, added_in_tiles(a, b))
    program = ts.compile(ts.kernel(forms), target="cpu", arguments=(a, b, y, z, x)).lowered.program
    found = [] if isa.host().bf16_tiles else [x]
    for target in (without("amx"), without("bf16")):  # two products at a time, and one
        results = [np.empty_like(v) for v in (y, z, x)]
        target.load(generate(program, target)).run([v.ctypes.data for v in (a, b, *results)], [], [])
        found += [results[0], results[1].T, results[2]]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@ts.function
def attended(q: Any, k: Any, v: Any, ct: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return ts.sum(ts.cast(ts.attention(q, k, v, causal=True), ts.f32) * ts.cast(ct, ts.f32))

    return ts.attention(q, k, v, causal=True), *ts.grad(loss, argnums=(0, 1, 2))(q, k, v)


@pytest.mark.parametrize("shape", [(2, 128, 64, 64), (1, 132, 32, 128), (1, 192, 128, 32)], ids=str)
def test_words_are_multiplied_as_their_halves_are(shape: tuple[int, int, int, int]) -> None:
    """Attention and its derivative have left and right operands in memory and in scratch, in either order of the axes,
    some of which loops do not change."""
    heads, length, depth, wide = shape
    rng = np.random.default_rng(depth)
    q, k, v, ct = (rng.standard_normal((1, heads, length, n)).astype(BF16) for n in (depth, depth, wide, wide))
    compiled = ts.compile(attended, target="cpu", arguments=(q, k, v, ct))
    found: list[list[Any]] = []
    for target in (without("amx"), without("avx512bf16"), CpuTarget("baseline")):
        out = [np.empty(x.shape, BF16) for x in (v, q, k, v)]
        out[0] = np.empty((1, heads, length, wide), BF16)
        artifact = generate(compiled.lowered.program, target)
        if target.isa.bf16_products:
            assert "_pairs(" in artifact.source
        target.load(artifact).run([x.ctypes.data for x in (q, k, v, ct, *out)], [], [])
        found.append(out)
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)
