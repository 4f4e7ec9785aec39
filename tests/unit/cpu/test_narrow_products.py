"""Products of bf16 and of bytes: instructions that add several at once give the bits of those that add one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.pipeline import generate
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


def without_avx512() -> CpuTarget:
    """This machine, with what narrower registers have of such instructions."""
    features = {f[1:]: f[0] == "+" and "avx512" not in f for f in isa.host().features.split(",")}
    target = CpuTarget()
    target.__dict__["isa"] = isa.from_features(features)
    return target


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
    for target in (CpuTarget(), without_avx512(), CpuTarget("avx2"), CpuTarget("baseline")):
        got = product(target, a, b, (*types, dt.int32), layouts, (8, 32)[number % 2])
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", range(len(SIZES)), ids=["x".join(map(str, s)) for s in SIZES])
def test_pairs_of_bf16_are_added_in_order(number: int, layout: str) -> None:
    """The same bits with and without the instruction, for every block, also of infinities and zeros of either sign."""
    m, k, n = SIZES[number]
    rng = np.random.default_rng(number)
    a, b = (rng.standard_normal(s) * 2.0 ** rng.integers(-20, 20, s) for s in ((m, k), (k, n)))
    a[0], b[:, 0] = -0.0, 0.0
    if m > 2 and n > 2:
        a[1, 0], a[2, 0], b[0, 2] = np.inf, 2.0**120, -(2.0**20)
    a, b = a.astype(BF16), b.astype(BF16)
    types, layouts = (dt.bf16, dt.bf16, dt.f32), (layout, LAYOUTS[(number + LAYOUTS.index(layout)) % 3])
    with np.errstate(all="ignore"):
        found = [
            product(CpuTarget(level), a, b, types, layouts, block)
            for level, block in ((None, 32), (None, 8), ("avx512", 16), ("baseline", 8))
        ]
    for other in found[1:]:  # a NaN may have either sign
        np.testing.assert_array_equal(found[0], other)
        number = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(found[0])[number], np.signbit(other)[number])


def test_subnormal_products_of_bf16_count_as_zero_at_most() -> None:
    """The error is at most the smallest normal number for each product, with every instruction."""
    rng = np.random.default_rng(0)
    a, b = ((rng.standard_normal(s) * 2.0**-64).astype(BF16) for s in ((15, 70), (70, 20)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for level in (None, "baseline"):
        got = product(CpuTarget(level), a, b, (dt.bf16, dt.bf16, dt.f32), ("rows", "rows"), 32)
        assert np.all(np.abs(got - exact) <= 70 * 2.0**-126)


@pytest.mark.parametrize(
    ("features", "types", "instruction"),
    [
        ((*isa.AVX512, "avx512bf16"), (dt.bf16, dt.bf16, dt.f32), "vdpbf16ps"),
        ((*isa.AVX512, "avx512vnni"), (dt.int8, dt.int8, dt.int32), "vpdpbusd"),
        (("avxvnni",), (dt.uint8, dt.uint8, dt.int32), "vpdpbusd"),
    ],
    ids=["bf16", "bytes", "bytes of avx2"],
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
