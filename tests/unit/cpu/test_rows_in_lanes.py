"""Rows shorter than a vector: many of them in lanes have the bits of each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm import isa
from tessera.compiler.targets.cpu.llvm.isa import LEVELS
from tessera.compiler.targets.cpu.loops.nest_rows import RowsInLanes
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.runtime.code import build

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "normalised": lambda x: x / ts.sqrt(ts.sum(x * x, axis=-1, keepdims=True)),
    "softmax": lambda x: ts.softmax(x, axis=-1),
    "weighted": lambda x: ts.softmax(x * ts.arange(x.shape[-1]).to(x.dtype), axis=-1),
    "layer norm": lambda x: (x - ts.mean(x, axis=-1, keepdims=True)) * ts.rsqrt(ts.var(x, axis=-1, keepdims=True) + 1),
    "several": lambda x: (ts.prod(x, axis=-1), ts.argmax(x, axis=-1), ts.max(x, axis=-1), ts.any(x > 1, axis=-1)),
    "signed zero": lambda x: 1 / ts.sum(ts.where(x > -9, -0.0, x), axis=-1),
}


@ts.function(open_dims="K")
def open_rows(x: ts.Tensor["N", "K", ts.f32]):
    return ts.softmax(x, axis=-1)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the rows that are computed in lanes."""
    found: list[int] = []
    write = RowsInLanes.write

    def noting(self: RowsInLanes, extent: Any) -> Any:
        found.append(self.count)
        return write(self, extent)

    monkeypatch.setattr(RowsInLanes, "write", noting)
    monkeypatch.setenv("TESSERA_CACHE_SIZE", "0")
    build.forget()
    return found


def rows(count: int, dtype: Any) -> Any:
    x = (np.random.default_rng(count).normal(size=(53, count)) * 2).astype(dtype)
    x[3], x[7, 0], x[11, -1], x[12] = -0.0, np.nan, np.inf, -np.inf
    return x


@pytest.mark.filterwarnings("ignore::tessera.errors.RecompilationWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_rows_have_the_bits_of_each(name: str, dtype: Any, written: list[int]) -> None:
    f = ts.function(FUNCTIONS[name])
    for count in (2, 3, 4, 5, 6):
        x = rows(count, dtype)
        found = f(x)
        assert written == [count] * len(written) and written
        written.clear()
        alone = [f(x[i : i + 1]) for i in range(len(x))]
        assert not written
        for k, whole in enumerate(found if isinstance(found, tuple) else [found]):
            each = np.concatenate([a[k] if isinstance(a, tuple) else a for a in alone])
            assert np.asarray(whole).tobytes() == each.tobytes()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_instruction_set_has_the_same_bits(level: str, dtype: Any, written: list[int]) -> None:
    if level == "avx512" and isa.host().name != "avx512":
        pytest.skip("this machine has no AVX-512")
    target = CpuTarget(level)

    def run(x: Any) -> Any:
        program = ts.compile(ts.function(FUNCTIONS["normalised"]), target="cpu", arguments=[x]).lowered.program
        written.clear()
        out = np.empty_like(x)
        target.load(generate(program, target)).run([x.ctypes.data, out.ctypes.data], [], [])
        return out

    for count in (2, 3, 5):
        x = np.random.default_rng(count).normal(size=(53, count)).astype(dtype)
        found = run(x)
        fits = 4 * count <= 3 * target.isa.bits // (8 * x.itemsize)
        assert written == [count] * fits
        for i in (0, 17, 52):  # the last one is left over
            assert found[i].tobytes() == run(x[i : i + 1].copy()).tobytes()


@pytest.mark.parametrize("count", [7, 10, 12])
def test_longer_rows(count: int, written: list[int]) -> None:
    x = rows(count, np.float32)
    f = ts.function(FUNCTIONS["softmax"])
    alone = np.concatenate([f(x[i : i + 1]) for i in range(len(x))])
    assert np.asarray(f(x)).tobytes() == alone.tobytes()


def test_rows_that_lie_apart_or_have_an_open_length_are_computed_one_by_one(written: list[int]) -> None:
    x = rows(4, np.float32)
    f = ts.function(FUNCTIONS["softmax"])
    wanted = np.asarray(f(x)).tobytes()
    assert written == [4]
    wide = np.zeros((53, 9), np.float32)
    wide[:, 2:6] = x
    assert np.asarray(ts.function(lambda w: ts.softmax(w[:, 2:6], axis=-1))(wide)).tobytes() == wanted
    assert np.asarray(open_rows(x)).tobytes() == wanted and written == [4]
