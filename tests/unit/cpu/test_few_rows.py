"""Products whose rows are counted at launch: few rows have code of their own, with the bits of known sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS, host
from tessera.compiler.targets.cpu.target import CpuTarget
from tests.fuzz.guard import Guarded

ROWS = (29, 1, 2, 3, 4, 5, 8, 9, 16, 17)


def product(x: ts.Tensor["B", "D"], w: ts.Tensor["D", "H"]):
    return x @ w


def transposed(x: ts.Tensor["B", "D"], w: ts.Tensor["H", "D"]):
    return x @ w.T


def layer(x: ts.Tensor["B", "D"], w: ts.Tensor["D", "H"]):
    y = x @ w
    return ts.gelu(y), y.sum(axis=1), y.sum(axis=0)


@ts.function
def single(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["D", "H", ts.f32]):
    return x @ w


@ts.function
def whole_numbers(x: ts.Tensor["B", "D", ts.int8], w: ts.Tensor["D", "H", ts.int8]):
    return x.to(ts.int32) @ w.to(ts.int32)


def arrays(rows: int, shape: tuple[int, int], dtype: Any, turned: bool = False) -> tuple[Any, Any]:
    rng = np.random.default_rng(rows)
    if dtype == np.int8:
        return rng.integers(-128, 128, (rows, shape[0])).astype(dtype), rng.integers(-128, 128, shape).astype(dtype)
    w = rng.standard_normal(shape[::-1] if turned else shape).astype(dtype)
    return rng.standard_normal((rows, shape[0])).astype(dtype), w


def bits(result: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in (result if isinstance(result, tuple) else (result,))]


CASES = [
    (product, (300, 700), np.float32),
    (product, (40, 24), np.float64),
    (product, (1000, 17), ml_dtypes.bfloat16),
    (product, (300, 700), ml_dtypes.bfloat16),
    (product, (300, 96), np.float16),
    (transposed, (300, 700), np.float32),
    (transposed, (1000, 17), np.float32),
    (transposed, (300, 96), ml_dtypes.bfloat16),
]


@pytest.mark.parametrize(("function", "shape", "dtype"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_bits_are_those_of_known_sizes(function: Any, shape: tuple[int, int], dtype: Any) -> None:
    known, opened = ts.function(function), ts.function(open_dims="B")(function)
    x, w = arrays(ROWS[0], shape, dtype, function is transposed)
    want = known(x, w)
    for rows in ROWS:
        assert bits(opened(x[:rows], w)) == bits(want[:rows]), rows


def test_what_is_summed_over_the_rows_does_not_see_filler() -> None:
    known, opened = ts.function(layer), ts.function(open_dims="B")(layer)
    for rows in (29, 1, 3, 16):
        x, w = arrays(rows, (200, 70), np.float32)
        assert bits(opened(x, w)) == bits(known(x, w)), rows


def test_bytes_and_all_sizes_open() -> None:
    compiled = ts.compile(whole_numbers, target="cpu")
    for rows in ROWS:
        x, w = arrays(rows, (515, 70), np.int8)
        np.testing.assert_array_equal(compiled(x, w), x.astype(np.int32) @ w.astype(np.int32))


def test_no_row_beyond_the_last_is_read() -> None:
    compiled = ts.compile(single, target="cpu", dims={"D": 200, "H": 96})
    for level in LEVELS:
        target = CpuTarget(level)
        code = target.load(generate(compiled.lowered.program, target))
        for rows in ROWS:
            x, w = arrays(rows, (200, 96), np.float32)
            for at_end in (True, False):
                memory = [Guarded(a, at_end) for a in (x, w, np.full((rows, 96), 7, np.float32))]
                code.run([m.address for m in memory], [], [rows])
                np.testing.assert_array_equal(memory[2].array, single(x, w), err_msg=f"{level} {rows}")


@pytest.mark.skipif(not host().masks, reason="for AVX-512")
def test_few_rows_are_not_packed() -> None:
    source = ts.compile(single, target="cpu", dims={"D": 256, "H": 1024}).source
    written = [line for line in source.splitlines() if line.startswith("define")]
    assert sum("@direct_" in line for line in written) == 4, "one row, up to 4, what is small, and whole blocks"
    assert "memset" not in source, "only stores read the block"


@pytest.mark.parametrize(("depth", "columns", "together"), [(300, 2048, 4), (131, 4096, 4), (300, 1024, 8)])
def test_one_row_reads_few_rows_of_one_set_together(depth: int, columns: int, together: int) -> None:
    """Lines of the cache that are many pages apart drive each other out; the bits are the same."""
    x, w = arrays(ROWS[0], (depth, columns), np.float32)
    assert bits(ts.function(product)(x[:1], w)) == bits(ts.function(product)(x, w)[:1])
    source = ts.compile(single, target="cpu", dims={"B": 1, "D": depth, "H": columns}).source
    asked = [line for line in source.splitlines() if "call <" in line and "@llvm.fma" in line]
    assert asked and len(asked) % (together + 1) == 0
