"""Last axes of few elements, such as colours: lanes run along the axis before, of elements a few places apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS
from tessera.compiler.targets.cpu.target import CpuTarget

RNG = np.random.default_rng(3)
DTYPES = [np.uint8, np.int16, np.float16, np.float32, np.float64, np.bool_, np.complex64]


def results(level: str, f: Any, *arrays: Any) -> list[Any]:
    """What code for a narrower processor gives, of a known shape."""
    compiled = ts.compile(f, target="cpu", arguments=arrays)
    program, target = compiled.lowered.program, CpuTarget(level)
    found = [np.asarray(x) for x in ts.function(f)(*arrays)]
    out = [np.zeros_like(x) for x in found]
    placed = [out[program.outputs.index(b.id)] for b in program.buffers if b.role == "output"]
    target.load(generate(program, target)).run([x.ctypes.data for x in (*arrays, *placed)], [], [])
    return out


def numbers(dtype: Any, *shape: int) -> Any:
    return RNG.integers(0, 2 if dtype == np.bool_ else 9, shape).astype(dtype)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_rows_of_few_elements(count: int, dtype: Any, level: str) -> None:
    """Rows one behind the other, columns beside each other, one number for each row, and for each element."""
    sizes = (16, 17, 31, 135) if count == 3 else (135,)
    for n in sizes:
        x, turned, row, one = (numbers(dtype, *s) for s in ((n, count), (count, n), (n, 1), (count,)))

        def mixed(x: Any, turned: Any, row: Any, one: Any) -> Any:
            return x * row + one, turned.T * x, turned.T

        if dtype == np.bool_:

            def mixed(x: Any, turned: Any, row: Any, one: Any) -> Any:
                return x & row | one, turned.T & x, turned.T

        for got, want in zip(results(level, mixed, x, turned, row, one), mixed(x, turned, row, one), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=str(n))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_few_elements(dtype: Any, level: str) -> None:
    """The last element wanted is the last of the array: no other memory is touched."""
    steps = range(2, 10)

    def taken(*lines: Any) -> Any:
        return tuple(line[k - 2 :: k] | line[k - 2 :: k] if dtype == np.bool_ else line[k - 2 :: k] + line[k - 2 :: k]
                     for k, line in zip(steps, lines, strict=True))  # fmt: skip

    lines = [numbers(dtype, k * 132 + k - 1) for k in steps]
    for got, want in zip(results(level, taken, *lines), taken(*lines), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("count", [3, 4])
def test_colours_are_stored_in_whole_vectors(count: int) -> None:
    def shaded(x: Any, light: Any) -> Any:
        return (x.to(ts.f32) * light).to(ts.uint8)

    given = numbers(np.uint8, 4096, count), numbers(np.float32, 4096, 1)
    source = ts.compile(shaded, target="cpu", arguments=given).source
    assert "masked.scatter" not in source and "masked.gather" not in source


def test_bytes_change_their_order_in_registers() -> None:
    @ts.function
    def channels_first(x: ts.Tensor[2, 64, 64, 3, ts.uint8]):
        return x.permute(0, 3, 1, 2)

    @ts.function
    def channels_last(x: ts.Tensor[2, 3, 64, 64, ts.uint8]):
        return x.permute(0, 2, 3, 1)

    for f, shape, order in (
        (channels_first, (2, 64, 64, 3), (0, 3, 1, 2)),
        (channels_last, (2, 3, 64, 64), (0, 2, 3, 1)),
    ):
        x = numbers(np.uint8, *shape)
        np.testing.assert_array_equal(f(x), x.transpose(order))
    source = ts.compile(channels_last, target="cpu").source
    assert "masked.scatter" not in source and "shufflevector" in source
