"""Products of operands whose rows, columns or summed axes are several strided axes in memory: they are read while they
are packed, with the bits of products of copies, in every instruction set, for all blocks and with open sizes."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS, host
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language import dtypes as dt
from tessera.language.dims import ceildiv
from tests.emulator.harness import Arg, LineBuilder, build
from tests.fuzz.guard import Guarded

BF16 = ml_dtypes.bfloat16
Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""sizes, strides, and how many of these axes are the matrix' rows"""

WINDOWS: Layout = ((5, 3, 2, 9, 20), (11 * 25, 25, 1, 25, 1), 3)  # of 5 channels of 11 x 25: runs of 20 columns
SMALL: Layout = ((150, 3, 3, 5, 5), (49, 7, 1, 7, 1), 3)  # 1350 k; runs shorter than a vector
STEPS: Layout = ((3, 3, 3, 4, 11), (9 * 24, 24, 1, 48, 2), 3)  # nothing has neighbours but 3 elements of a window
LONG_STEPS: Layout = ((3, 3, 3, 4, 37), (9 * 75, 75, 1, 150, 2), 3)  # whole vectors of every second one, and parts
PATCHES: Layout = ((3, 16, 20, 2, 3), (32 * 60, 60, 1, 16 * 60, 20), 3)  # neighbours along k
HEADS: Layout = ((4, 37, 2, 50), (50, 400, 200, 1), 2)
PLAIN: Layout = ((33, 40), (40, 1), 1)

CASES: list[tuple[dt.DType, dt.DType, Layout, Layout]] = [
    (dt.f32, dt.f32, ((45, 30), (30, 1), 1), WINDOWS),
    (dt.f64, dt.f64, ((13, 1350), (1350, 1), 1), SMALL),
    (dt.f32, dt.f32, ((29, 27), (1, 29), 1), STEPS),
    (dt.f32, dt.f32, ((29, 27), (1, 29), 1), LONG_STEPS),
    (dt.bf16, dt.f32, ((29, 27), (1, 29), 1), LONG_STEPS),
    (dt.f32, dt.f32, ((30, 8, 120), (120, 3600, 1), 1), PATCHES),
    (dt.bf16, dt.f32, ((16, 5, 6), (6, 96, 1), 1), WINDOWS),
    (dt.f16, dt.f32, HEADS, ((2, 50, 35), (1, 2, 100), 2)),
    (dt.int8, dt.int32, ((16, 30), (30, 1), 1), WINDOWS),
]


def array(layout: Layout, dtype: dt.DType, seed: int) -> tuple[Any, Any]:
    """Memory with random elements, and the matrix that it is seen as."""
    shape, strides, lead = layout
    rng = np.random.default_rng(seed)
    size = sum((d - 1) * s for d, s in zip(shape, strides, strict=True)) + 1
    numbers = rng.integers(-128, 128, size) if dtype.is_integer else rng.standard_normal(size)
    memory = numbers.astype(dtype.numpy)
    seen = np.lib.stride_tricks.as_strided(memory, shape, [s * memory.itemsize for s in strides])
    return memory, np.ascontiguousarray(seen).reshape(int(np.prod(shape[:lead])), -1)


def product(
    level: str,
    a: Arg,
    b: Arg,
    given: Any,
    size: tuple[int, int],
    acc: dt.DType,
    block: Any,
    lead: Any,
    *,
    text: str | None = None,
    out: Any = None,
) -> Any:
    """`text`: what names of functions are to contain."""
    out = np.empty(size, acc.numpy) if out is None else out

    def body(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
        i, j = (t.iop("imul", t.program_id(x), t.index(block[x])) for x in (0, 1))
        t.store(y, t.value("tile.contract", (a, b, i, j), TileType(block, acc), {"lead": lead}), [i, j])

    args = [a, b, Arg("y", size, acc, out=True)]
    program = build("product", args, (ceildiv(size[0], block[0]), ceildiv(size[1], block[1])), body)
    code = generate(program, CpuTarget(level))
    assert text is None or f"{text}(" in code.source
    CpuTarget(level).load(code).run([v.ctypes.data for v in (*given, out)], [], [])
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[3][0]}")
def test_bits_of_products_of_copies(case: Any) -> None:
    dtype, acc, left, right = case
    (a, x), (b, y) = array(left, dtype, 1), array(right, dtype, 2)
    size = len(x), y.shape[1]
    plain = [Arg(n, v.shape, dtype) for n, v in (("a", x), ("b", y))]
    want = product("avx512", *plain, (x, y), size, acc, (504, 512), (1, 1))
    wide = np.int64 if acc.is_integer else np.float64
    exact = x.astype(wide) @ y.astype(wide)
    np.testing.assert_allclose(want.astype(wide), exact, 1e-5, 1e-3)
    seen = [Arg(n, v[0], dtype, strides=v[1]) for n, v in (("a", left), ("b", right))]
    for level, block in zip(LEVELS, ((504, 512), (14, 48), (9, 70)), strict=True):
        got = product(level, *seen, (a, b), size, acc, block, (left[2], right[2]))
        np.testing.assert_array_equal(got, want)


def test_functions_have_the_bits_of_products_of_copies() -> None:
    """Known and open sizes; a convolution has the bits of a product with copied windows."""

    def run(x: Any, w: Any, y: Any) -> Any:
        return ts.conv2d(x, w, stride=(1, 2), dilation=(2, 1)), ts.einsum("aib,cjbi->acj", y, x)

    def opened(x: ts.Tensor["N", "C", "H", "W"], w: ts.Tensor["O", "C", 3, 3], y: ts.Tensor[...]) -> Any:
        return run(x, w, y)

    rng = np.random.default_rng(0)
    x, w, y = (rng.standard_normal(s).astype(np.float32) for s in ((2, 21, 12, 23), (9, 21, 3, 3), (10, 23, 12)))
    seen = np.lib.stride_tricks.sliding_window_view(x, (5, 3), (2, 3))[:, :, :, ::2, ::2]
    windows = np.ascontiguousarray(seen.transpose(0, 1, 4, 5, 2, 3)).reshape(2, 21 * 9, 8 * 11)
    want = [
        np.asarray(ts.function(lambda w, v: w @ v)(w.reshape(9, -1), windows)).reshape(2, 9, 8, 11),
        np.asarray(ts.function(lambda a, b: a @ b)(y.reshape(10, -1), x.transpose(3, 2, 0, 1).reshape(23 * 12, -1))),
    ]
    want[1] = want[1].reshape(10, 2, 21)
    for f in (run, opened):
        got = ts.function(f)(x, w, y)
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(mine), theirs)


@pytest.mark.parametrize("dtype", [dt.f32, dt.f16])
def test_packing_touches_nothing_behind_an_array(dtype: dt.DType) -> None:
    """The last panel of either side is filled by part, under masks where there are some; the block leaves one more."""
    rng = np.random.default_rng(3)
    x, y = (Guarded(rng.standard_normal(s).astype(dtype.numpy), at_end=True) for s in ((210, 151), (210, 173)))
    args = Arg("a", (151, 210), dtype, strides=(1, 151)), Arg("b", (210, 173), dtype)
    exact = x.array.T.astype(np.float64) @ y.array
    found = [
        product(level, *args, (x.array, y.array), exact.shape, dt.f32, block, (1, 1))
        for level in LEVELS
        for block in ((151, 173), (130, 150))
    ]
    for got in found:
        np.testing.assert_array_equal(got, found[0])
    np.testing.assert_allclose(found[0], exact, 1e-4, 1e-3)


@pytest.mark.parametrize(
    ("dtype", "layout", "rows", "block"),
    [
        (dt.f32, ((5, 3, 2, 9, 20), (11 * 25, 25, 1, 25, 1), 3), 9, (9, 60)),  # runs of 20 columns, whole blocks
        (dt.f32, ((5, 3, 2, 9, 20), (11 * 25, 25, 1, 25, 1), 3), 2, (2, 80)),  # the last block has one run of four
        (dt.f64, ((70, 2, 3, 3, 11), (5 * 13, 13, 1, 13, 1), 3), 40, (40, 22)),  # four chains, a rest of three lanes
        (dt.f32, ((70, 5, 101), (110, 2, 1), 2), 64, (64, 64)),  # one run for each program, the last one shorter
        (dt.f32, ((3, 3, 57), (60, 1, 1), 2), 7, (7, 57)),
        (dt.f32, ((220, 3, 3, 6, 33), (8 * 35, 35, 1, 35, 1), 3), 19, (19, 66)),  # sixteen chains, the last one short
    ],
)
def test_windows_that_are_read_in_place(dtype: dt.DType, layout: Layout, rows: int, block: Any) -> None:
    """The bits of a product with copied windows. Nothing behind an array is touched, nor what other programs store."""
    memory, windows = array(layout, dtype, 5)
    weights = np.random.default_rng(6).standard_normal((rows, len(windows))).astype(dtype.numpy)
    x, y = Guarded(weights, at_end=True).array, Guarded(memory, at_end=True).array
    size, plain = (rows, windows.shape[1]), [Arg(n, v.shape, dtype) for n, v in (("a", weights), ("b", windows))]
    want = product("avx512", *plain, (weights, windows), size, dtype, (504, 512), (1, 1))
    np.testing.assert_allclose(want, weights.astype("f8") @ windows, 1e-4, 1e-4)
    b = Arg("b", layout[0], dtype, strides=layout[1])
    turned = np.ascontiguousarray(weights.reshape(rows, *layout[0][: layout[2]]).swapaxes(0, 1))  # as in a gradient
    apart = tuple(s // dtype.itemsize for s in turned.swapaxes(0, 1).strides)
    given = Guarded(turned, at_end=True).array
    for left, a, lead, text in (
        (x, Arg("a", weights.shape, dtype), 1, "_walked_b"),
        (given, Arg("a", (rows, *layout[0][: layout[2]]), dtype, strides=apart), 1, "_walked_a_walked_b"),
    ):
        text = text if host().masks else None  # others pack them
        out = Guarded(np.zeros(size, dtype.numpy), at_end=True).array
        got = product("avx512", a, b, (left, y), size, dtype, block, (lead, layout[2]), text=text, out=out)
        np.testing.assert_array_equal(got, want)


def test_blocks_of_convolutions_hold_whole_rows_of_an_image() -> None:
    def run(x: Any, w: Any) -> Any:
        return ts.conv2d(x, w)

    def opened(x: ts.Tensor["N", 20, "H", "W", ts.f32], w: ts.Tensor[40, 20, 3, 3, ts.f32]) -> Any:
        return run(x, w)

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 20, 42, 42), (40, 20, 3, 3)))
    known = ts.compile(ts.function(opened), target="cpu", dims={"N": 2, "H": 42, "W": 42})
    source = generate(known.lowered.program, CpuTarget("avx512")).source
    assert ("_40x40x180_" in source and "_walked_b(" in source) or not host().masks
    np.testing.assert_array_equal(known(x, w), ts.compile(ts.function(opened), target="cpu")(x, w))


@pytest.mark.parametrize(
    "shapes", [((2, 20, 42, 42), (40, 20, 3, 3)), ((3, 16, 300), (24, 16, 5)), ((1, 3, 70, 66), (9, 3, 5, 7))]
)
def test_convolutions_have_the_same_bits_with_narrower_vectors(shapes: Any) -> None:
    """Which pack their windows, in the same blocks of whole rows. So do the gradients."""
    x, w = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes))

    def run(x: Any, w: Any) -> Any:
        conv = ts.conv1d if x.ndim == 3 else ts.conv2d
        return conv(x, w, padding=1), ts.grad(lambda x, w: ts.sum(ts.square(conv(x, w))), argnums=(0, 1))(x, w)

    known = ts.compile(ts.function(run), target="cpu", arguments=(x, w))
    program, found = known.lowered.program, {}
    for level in LEVELS:
        out = [np.empty(s, np.float32) for s in (np.shape(known(x, w)[0]), x.shape, w.shape)]
        code = generate(program, CpuTarget(level))
        assert ("_walked_b(" in code.source) == host(level).masks
        CpuTarget(level).load(code).run([v.ctypes.data for v in (x, w, *out)], [], [])
        found[level] = [v.tobytes() for v in out]
    assert found["avx512"] == found["avx2"] == found["baseline"]
