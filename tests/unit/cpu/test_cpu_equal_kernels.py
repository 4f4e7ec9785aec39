"""Kernels of a program that are the same code are compiled once, and give the bits that they gave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.targets.cpu.kernel.function import KernelFunction
from tessera.errors import DebugCheckError

rng = np.random.default_rng(3)
X, A, B, C = (rng.normal(size=s).astype(np.float32) for s in ((40, 32), (32, 32), (32, 32), (32, 32)))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that code has been generated for."""
    found: list[str] = []
    write = KernelFunction.write

    def counted(self: KernelFunction, *args: Any) -> None:
        found.append(self.fn.name)
        write(self, *args)

    monkeypatch.setattr(KernelFunction, "write", counted)
    return found


def test_equal_products_and_rows_are_compiled_once(written: list[str]) -> None:
    @ts.function
    def f(x: ts.Tensor["S", "D", ts.f32], a: ts.Tensor["D", "D", ts.f32], b: ts.Tensor["D", "D", ts.f32],
          c: ts.Tensor["D", "D", ts.f32]):  # type: ignore[name-defined]  # fmt: skip
        q = x @ a
        k = x @ b
        v = x @ c
        return ts.softmax(q), ts.softmax(k), ts.softmax(v)

    @ts.function
    def alone(x: ts.Tensor["S", "D", ts.f32], a: ts.Tensor["D", "D", ts.f32]):  # type: ignore[name-defined]
        return ts.softmax(x @ a)

    compiled = ts.compile(f, target="cpu", dims={"S": 40, "D": 32})
    assert len(compiled.built.plan.launches) == 6 and len(written) == 2
    assert len(compiled.resources) == 6  # every launch has its figures
    one = ts.compile(alone, target="cpu", dims={"S": 40, "D": 32})
    for got, weight in zip(compiled(X, A, B, C), (A, B, C), strict=True):
        np.testing.assert_array_equal(got, one(X, weight))


def test_repeated_layers_are_compiled_once_with_open_sizes_too(written: list[str]) -> None:
    @ts.function
    def f(x: ts.Tensor["S", "D", ts.f32], a: ts.Tensor["D", "D", ts.f32]):  # type: ignore[name-defined]
        for _ in range(6):
            x = ts.softmax(x @ a)
        return x

    got, want = ts.compile(f, target="cpu")(X, A), X
    for _ in range(6):
        want = np.exp(want @ A)
        want /= want.sum(-1, keepdims=True)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert len(written) < 6


def test_launches_of_equal_kernels_are_rows_of_a_table_in_loops_and_branches_too() -> None:
    @ts.function
    def f(x: ts.Tensor[40, 32, ts.f32], a: ts.Tensor[32, 32, ts.f32], b: ts.Tensor[32, 32, ts.f32], n: ts.i32):
        x = (x @ a) @ b
        for i in ts.range(n):
            x = (x @ a) @ b if i % 2 == 0 else (x @ b) @ a
        return x @ a

    compiled = ts.compile(f, target="cpu")
    text = compiled.artifact.source
    products = sum("contract" in launch.label for launch in compiled.built.plan.launches)
    (code,) = {line for line in text.splitlines() if line.startswith("@launched = ")}
    assert products == 7 and text.count("; f_") >= 7 and code.count("contract") == 1
    small, other = A / 8, B / 8
    want = X @ small @ other
    for i in range(3):
        want = want @ small @ other if i % 2 == 0 else want @ other @ small
    np.testing.assert_allclose(compiled(X, small, other, 3), want @ small, rtol=1e-4, atol=1e-6)


def test_other_sizes_scalars_or_operators_are_other_code(written: list[str]) -> None:
    @ts.function
    def f(x: ts.Tensor[40, 32, ts.f32], y: ts.Tensor[32, 32, ts.f32], a: ts.f32, b: ts.f32):
        return ts.sum(x, axis=1) * a, ts.sum(y, axis=1) * a, ts.max(x, axis=1) * a, ts.sum(x, axis=1) * b

    got = ts.compile(f, target="cpu")(X, A, 2.0, 3.0)
    for found, want in zip(got, (X.sum(1) * 2, A.sum(1) * 2, X.max(1) * 2, X.sum(1) * 3), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)


@ts.kernel
def positive(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):  # type: ignore[name-defined]
    tile = x[tile_n : tile_n + 16]  # type: ignore[name-defined]
    assert ts.tile.all(tile > 0.0), "not positive"
    y[tile_n : tile_n + 16] = ts.tile.sqrt(tile)  # type: ignore[name-defined]


def test_kernels_that_are_launched_twice_still_say_where_they_fail() -> None:
    @ts.function
    def twice(x: ts.Tensor["N", ts.f32], z: ts.Tensor["N", ts.f32]):  # type: ignore[name-defined]
        y = ts.zeros_like(x)
        positive(x, y)
        w = ts.zeros_like(z)
        positive(z, w)
        return y + w

    good = np.full(32, 4, np.float32)
    with ts.knobs.debug.override(True):
        np.testing.assert_array_equal(twice(good, good), np.full(32, 4))
        with pytest.raises(DebugCheckError, match="not positive"):
            twice(good, -good)
