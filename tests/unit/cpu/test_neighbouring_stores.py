"""Results that lie side by side in memory: computed together, transposed in registers, stored in whole vectors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.float16, np.int32])
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_parts_of_a_stack(count: int, dtype: Any) -> None:
    """Also of numbers that are not stored in this way, and behind the last whole vector."""

    @ts.function
    def stacked(x: Any):
        return ts.stack([x + k for k in range(count)], axis=-1)

    for n in (1, 37):
        x = RNG.integers(-9, 9, (3, n)).astype(dtype)
        np.testing.assert_array_equal(stacked(x), np.stack([x + dtype(k) for k in range(count)], axis=-1))


def test_stores_are_whole_vectors() -> None:
    @ts.function
    def pairs(z: ts.Tensor[4096, ts.complex64]):
        return ts.stack([ts.real(z), ts.imag(z)], axis=-1)

    @ts.function
    def halves(x: ts.Tensor[4096, ts.f32]):
        return ts.make_complex(x[::2], x[1::2])

    compiled = ts.compile(pairs, target="cpu")
    assert "masked.scatter" not in compiled.source and len(compiled.lowered.program.launches) == 1
    assert "masked.gather" not in ts.compile(halves, target="cpu").source


def test_every_second_element_touches_no_other_memory() -> None:
    """The last one wanted is the last of the array."""

    @ts.function
    def both(x: Any):
        return x[::2] + 1, x[1::2] * 2

    for n in (2, 31, 64, 66):
        x = RNG.normal(size=n).astype(np.float32)
        even, odd = both(x)
        np.testing.assert_array_equal(even, x[::2] + 1)
        np.testing.assert_array_equal(odd, x[1::2] * 2)


def test_long_computations_keep_few_values() -> None:
    """A transform computes its short transforms one after the other, not result by result."""

    @ts.function
    def transformed(z: ts.Tensor[4096, 64, ts.complex64]):
        return ts.fft.fft(z)

    source = ts.compile(transformed, target="cpu").source
    assert _vectors_alive(source) < 2 * 64 + 40  # each number is two vectors


def _vectors_alive(source: str) -> int:
    """The most vectors of a block of LLVM IR that are needed later, at one place."""
    most = 0
    for block in re.split(r"^\w+:$", source, flags=re.MULTILINE):
        lines = block.splitlines()
        last = {name: i for i, line in enumerate(lines) for name in re.findall(r"%\w+", line)}
        alive: set[str] = set()
        for i, line in enumerate(lines):
            alive = {name for name in alive if last[name] > i}
            if found := re.match(r"  (%\w+) = .*<\d+ x (?:float|double)>", line):
                alive.add(found[1])
            most = max(most, len(alive))
    return most
