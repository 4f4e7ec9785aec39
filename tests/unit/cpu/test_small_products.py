"""Products that read both operands where they are, or copy blocks of the right one: what is written for them, and
their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.kernel.small_matmul import Shape, direct_kind
from tessera.compiler.targets.cpu.llvm import isa
from tessera.compiler.targets.cpu.llvm.isa import LEVELS
from tessera.compiler.targets.cpu.target import CpuTarget
from tests.fuzz.guard import Guarded

SIZES = [
    (17, 130, 17),
    (50, 60, 35),
    (100, 64, 40),
    (100, 100, 100),
    (33, 20, 67),
    (29, 1, 18),
    (300, 20, 20),
    (7, 129, 3),
    (64, 128, 136),  # rows of b crowd a first-level cache, as do 128 lines with 64 places
    (60, 192, 128),
]


@ts.function
def single(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32]):
    return a @ b


@ts.function
def double(a: ts.Tensor["M", "K", ts.f64], b: ts.Tensor["K", "N", ts.f64]):
    return a @ b


@ts.function
def right_turned(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["N", "K", ts.f32]):
    return a @ b.T


@ts.function
def left_turned(a: ts.Tensor["K", "M", ts.f32], b: ts.Tensor["K", "N", ts.f32]):
    return a.T @ b


@ts.function
def summed(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["N", "K", ts.f32]):
    return (a @ b.T).sum(axis=1)


def _compiled(product: Any, m: int, k: int, n: int) -> Any:
    return ts.compile(product, target="cpu", dims={"M": m, "K": k, "N": n})


@pytest.mark.parametrize(("product", "dtype"), [(single, np.float32), (double, np.float64)], ids=["f32", "f64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_widths_and_slices_do_not_change_a_bit(size: tuple[int, int, int], product: Any, dtype: Any) -> None:
    m, k, n = size
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    a[m // 2, 0], b[0, n - 1] = -0.0, np.inf
    compiled = _compiled(product, m, k, n)
    with np.errstate(invalid="ignore"):
        want = np.asarray(compiled(a, b))
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
        bound = np.abs(a) @ np.abs(b) * np.finfo(dtype).eps
    finite = np.isfinite(exact)
    assert np.all(np.abs(want[finite] - exact[finite]) <= 4 * bound[finite])
    np.testing.assert_array_equal(np.isnan(want), np.isnan(exact))
    for level in LEVELS:
        target, out = CpuTarget(level), np.full_like(want, 7)
        code = target.load(generate(compiled.lowered.program, target))
        code.run([x.ctypes.data for x in (a, b, out)], [], [])
        np.testing.assert_array_equal(out, want)
    half = -(-n // 2)
    np.testing.assert_array_equal(np.asarray(product(a[1:], np.ascontiguousarray(b[:, half:]))), want[1:, half:])


def test_fuller_panels_are_no_reason_to_pack() -> None:
    """Turned, 35 columns would fill panels of 12 rows; but without packing there are no panels to fill."""
    assert "@pack_" not in _compiled(single, 50, 300, 35).source


def test_the_last_columns_need_no_packing() -> None:
    """A program takes 64 of 100 columns, so the second one has 36."""
    assert "@direct_f32_100x36x100_" in _compiled(single, 100, 100, 100).source


@pytest.mark.parametrize(
    ("size", "how"), [((64, 128, 128), "copied"), ((64, 256, 128), ""), ((64, 128, 120), "direct")], ids=str
)
def test_columns_whose_rows_crowd_a_cache_are_copied(size: tuple[int, int, int], how: str) -> None:
    """128 or 256 rows that lie 512 bytes apart have 64 places in a first-level cache, which matters to AVX2."""
    m, k, n = size
    shape = Shape(CpuTarget("avx2").isa, ts.f32, m, n, k, (k, 1, n, 1, n), False)
    assert direct_kind(shape) == how


def test_neighbours_are_not_copied_to_panels_of_six() -> None:
    """16 rows would fill a panel of 16 if they were columns; the other operand's columns then are panels of six."""
    source = generate(_compiled(single, 16, 2048, 2048).lowered.program, CpuTarget("avx2")).source
    assert "@pack_f32_f32_p6_avx2" not in source


LARGER = [
    (single, (150, 300, 130), "direct"),
    (single, (260, 128, 200), "direct"),
    (single, (40, 700, 900), "copied"),  # lines of b are spread over 2.5 MB
    (right_turned, (300, 300, 130), "copied"),
    (right_turned, (57, 129, 37), "copied"),
    (right_turned, (300, 260, 11), "copied"),
    (right_turned, (64, 130, 40), "copied"),
    (right_turned, (64, 64, 104), "copied"),
    (right_turned, (40, 300, 700), "packed"),
    (left_turned, (150, 300, 130), "direct"),
    (left_turned, (900, 700, 300), "packed"),  # as those of a
    (single, (20, 1500, 100), "packed"),
]


@pytest.mark.parametrize(("product", "size", "how"), LARGER, ids=str)
def test_larger_products_pack_nothing_on_the_left(product: Any, size: tuple[int, int, int], how: str) -> None:
    """Nor on the right, unless columns do not lie side by side, or too far apart. With narrower vectors both
    operands are packed; the bits are the same."""
    m, k, n = size
    compiled = _compiled(product, m, k, n)
    rng = np.random.default_rng(k)
    shapes = [p.shape for p in compiled.lowered.program.params[:2]]
    a, b = (np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes)
    out, found = np.empty((m, n), np.float32), list[Any]()
    for level in LEVELS:
        target = CpuTarget(level)
        written = generate(compiled.lowered.program, target)
        target.load(written).run([x.ctypes.data for x in (a, b, out)], [], [])
        found.append(out.copy())
        if target.isa.masks:
            assert ("_copied" in written.source, "@matmul_" in written.source) == (how == "copied", how == "packed")
        else:
            assert "_copied" not in written.source, level
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    left, right = (a.T if product is left_turned else a), (b.T if product is right_turned else b)
    np.testing.assert_allclose(found[0], left.astype(np.float64) @ right, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("columns", [40, 72, 104, 130])
def test_no_row_beyond_the_last_is_copied(columns: int) -> None:
    a, b = (np.random.default_rng(n).standard_normal((n, 140)).astype(np.float32) for n in (60, columns))
    compiled = _compiled(right_turned, 60, 140, columns)
    for at_end in (True, False):
        memory = [Guarded(x, at_end) for x in (a, b, np.full((60, columns), 7, np.float32))]
        target = CpuTarget()
        code = target.load(generate(compiled.lowered.program, target))
        code.run([m.address for m in memory], [], [])
        np.testing.assert_array_equal(memory[2].array, np.asarray(compiled(a, b)))


def test_what_reads_a_block_meets_no_filler() -> None:
    """70 columns are four vectors and one that begins among them."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((200, 300)).astype(np.float32), rng.standard_normal((70, 300)).astype(np.float32)
    np.testing.assert_array_equal(
        np.asarray(summed(a, b)), np.asarray(ts.sum(ts.asarray(np.asarray(right_turned(a, b))), axis=1))
    )


@ts.kernel(ROWS=64, DEPTH=48)
def accumulated(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor[72, "K", ts.f32], out: ts.Tensor["M", 72, ts.f32]):
    ctx = ts.tile.context()
    i = ts.tile.program_id(0) * ctx.ROWS
    sums = ts.tile.zeros((ctx.ROWS, 72), ts.f32)
    for k in ts.tile.range_k(0, ctx.K, ctx.DEPTH):
        sums = ts.tile.mma(a[i : i + ctx.ROWS, k : k + ctx.DEPTH], b[:, k : k + ctx.DEPTH].T, sums)
    out[i : i + ctx.ROWS, :] = sums


def test_no_column_is_added_to_twice() -> None:
    """The last eight of 72 columns are a part of a vector."""
    a, b = (np.random.default_rng(i).standard_normal((n, 96)).astype(np.float32) for i, n in enumerate((64, 72)))
    out = np.empty((64, 72), np.float32)
    accumulated(a, b, out)
    np.testing.assert_allclose(out, a @ b.T, rtol=1e-4, atol=1e-4)


LONG = [(64, 6000, 32), (33, 4099, 64), (70, 3079, 64), (20, 2049, 128)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("size", LONG, ids=str)
def test_long_products_are_added_group_by_group(size: tuple[int, int, int], dtype: Any) -> None:
    """The bits of narrower vectors, which pack."""
    (m, k, n), rng = size, np.random.default_rng(3)
    a, b = rng.standard_normal((k, m)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)

    def turned(a: Any, b: Any) -> Any:
        return a.T @ b

    def plain(a: Any, b: Any) -> Any:
        return a @ b

    for function, given in ((turned, (a, b)), (plain, (np.ascontiguousarray(a.T), b))):
        program = ts.compile(ts.function(function), target="cpu", arguments=given).lowered.program
        found: list[Any] = []
        for level in LEVELS:
            memory = [Guarded(x, True) for x in (*given, np.full((m, n), 7, dtype))]
            code = generate(program, CpuTarget(level))
            if level == "avx512" and isa.host().masks:
                assert "_continued(" in code.source
            CpuTarget().load(code).run([x.address for x in memory], [], [])
            found.append(memory[2].array.copy())
        assert all(x.tobytes() == found[0].tobytes() for x in found)
        np.testing.assert_allclose(found[0], a.T.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)
