"""Products of a matrix and a vector: near the exact value, the same bits for every block and width."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language import dtypes as dt
from tessera.language.dims import ceildiv
from tests.emulator.harness import Arg, LineBuilder, build

SIZES = [(1, 1), (3, 5), (17, 64), (70, 63), (33, 129), (5, 2001), (101, 4230)]
PAGES = [(70, 2048, 1024), (150, 2300, 1024), (70, 4096, 1024), (300, 1000, 1024), (101, 1024, 1024), (70, 1024, 2048)]
"""rows, columns, and a page of memory in elements, of which the distance of rows is a multiple"""


@ts.function
def product(a: Any, b: Any) -> Any:
    return a @ b


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_layout(size: tuple[int, int], dtype: Any) -> None:
    rng = np.random.default_rng(1)
    m = rng.standard_normal(size).astype(dtype)
    left, right = (rng.standard_normal(n).astype(dtype) for n in size)
    columns = np.asfortranarray(m)
    for a, b in ((m, right), (left, m), (right, m.T), (m.T, left), (right, right), (columns, right), (left, columns)):
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
        bound = np.abs(a) @ np.abs(b) * np.finfo(dtype).eps
        assert np.all(np.abs(np.asarray(product(a, b)) - exact) <= 8 * bound)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("size", [*((*size, 1) for size in SIZES), *PAGES], ids=str)
def test_blocks_and_widths_do_not_change_a_bit(size: tuple[int, int, int], turned: bool) -> None:
    """Rows, columns, and of how many elements the distance of rows is a multiple. `turned`: the vector on the left and
    the matrix seen transposed."""
    m, k, unit = size
    pitch = ceildiv(k, unit) * unit
    rng = np.random.default_rng(2)
    held, vector = rng.standard_normal((m, pitch)).astype(np.float32), rng.standard_normal(k).astype(np.float32)
    matrix = held[:, :k]
    found: list[Any] = []
    for level in LEVELS:
        for block in (1, 4, 32, 96):

            def body(t: LineBuilder, a: Value, b: Value, y: Value, block: int = block) -> None:
                at, zero = t.iop("imul", t.program_id(0), t.index(block)), t.index(0)
                where, shape = ((zero, at), (1, block)) if turned else ((at, zero), (block, 1))
                t.store(y, t.value("tile.contract", (a, b, *where), TileType(shape, dt.f32)), list(where))

            a = Arg("a", (m, k), dt.f32, strides=(pitch, 1))
            b = Arg("b", (k, 1), dt.f32)
            if turned:
                a, b = Arg("a", (1, k), dt.f32), Arg("b", (k, m), dt.f32, strides=(1, pitch))
            y = Arg("y", (1, m) if turned else (m, 1), dt.f32, out=True)
            target = CpuTarget(level)
            executable = target.load(generate(build("product", [a, b, y], (ceildiv(m, block),), body), target))
            out = np.empty(m, np.float32)
            arrays = (vector, matrix, out) if turned else (matrix, vector, out)
            executable.run([v.ctypes.data for v in arrays], [], [])
            found.append(out)
    np.testing.assert_allclose(found[0], matrix.astype("f8") @ vector, rtol=1e-4, atol=1e-4)
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize(("columns", "level", "way"), [
    (1024, "avx512", "lines"), (1024, "avx2", "lines"), (1024, "baseline", "turned"), (1152, "avx512", "turned"),
    (512, "avx512", "turned"), (2048, "baseline", "lines"),
])  # fmt: skip
def test_rows_that_lie_pages_apart_are_read_one_by_one(columns: int, level: str, way: str) -> None:
    a, b = np.ones((64, columns), np.float32), np.ones(columns, np.float32)
    program = ts.compile(product, target="cpu", arguments=[a, b]).lowered.program
    assert f"@{way}_f32" in generate(program, CpuTarget(level)).source


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("k", [0, 1, 7, 100, 129, 2200])
def test_widths_and_neighbours_do_not_change_a_dot_product(k: int, turned: bool) -> None:
    """Many dot products at once in lanes, against each of them alone. `turned`: the left rows lie along memory."""
    n, rng = 37, np.random.default_rng(k)
    left, right = (rng.standard_normal((n, k)).astype(np.float32) for _ in range(2))
    left[5], right[9], left[20] = np.nan, np.inf, -0.0
    alone = np.array([np.asarray(product(x, y)) for x, y in zip(left, right, strict=True)])

    def body(block: int) -> Callable[[LineBuilder, Value, Value, Value], None]:
        def write(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
            at, zero = t.iop("imul", t.program_id(0), t.index(block)), t.index(0)
            where, result = (a, b, at, zero), TileType((block, 1), dt.f32)
            t.store(y, t.value("tile.contract", where, result, {"diagonal": True}), [at, zero])

        return write

    for level in LEVELS:
        for block in (1, 24, 64):
            a = Arg("a", (n, k), dt.f32, strides=(1, n) if turned else (k, 1))
            b, y = Arg("b", (k, n), dt.f32, strides=(1, k)), Arg("y", (n, 1), dt.f32, out=True)
            target = CpuTarget(level)
            executable = target.load(generate(build("dots", [a, b, y], (ceildiv(n, block),), body(block)), target))
            given, out = np.ascontiguousarray(left.T if turned else left), np.empty(n, np.float32)
            executable.run([v.ctypes.data for v in (given, right, out)], [], [])
            np.testing.assert_array_equal(out.view(np.int32), alone.view(np.int32))


def test_products_of_the_same_block_share_its_code() -> None:
    """The right operand lies along rows in one and along columns in the other; packed they are alike."""

    @ts.function
    def both(x: ts.Tensor[512, 4096], w: ts.Tensor[4096, 512]):
        return x @ w, x @ w.reshape(512, 4096).T

    @ts.function
    def one(x: ts.Tensor[512, 4096], w: ts.Tensor[4096, 512]):
        return x @ w

    def functions(f: Any, name: str) -> list[str]:
        return re.findall(rf"^define .*@({name}_\w+)\(", ts.compile(f, target="cpu").source, re.MULTILINE)

    assert len(functions(both, "matmul")) == 2 * len(functions(one, "matmul"))
    assert functions(both, "micro") == functions(one, "micro") != []
