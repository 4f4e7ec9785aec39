"""`open_dims`: one compilation for all sizes of a dim, with the results of known sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import CompileError, LaunchError, Tensor, nn
from tessera.runtime.code.why_recompiled import compilations

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@ts.function(open_dims="N")
def rows(x: Tensor["N", "D", ts.f32], w: Tensor["D", "E", ts.f32]):  # type: ignore[name-defined]
    return ts.softmax(x @ w, axis=-1), ts.cumsum(ts.sort(x, axis=0), axis=0), ts.sum(x[: x.shape[0] // 2])


@ts.function
def known_rows(x: Tensor["N", "D", ts.f32], w: Tensor["D", "E", ts.f32]):  # type: ignore[name-defined]
    return ts.softmax(x @ w, axis=-1), ts.cumsum(ts.sort(x, axis=0), axis=0), ts.sum(x[: x.shape[0] // 2])


def test_all_sizes_have_one_compilation_and_the_bits_of_known_sizes() -> None:
    w = normal(8, 5)
    for n in (3, 4, 17, 1, 0, 130):
        x = normal(n, 8)
        for mine, want in zip(rows(x, w), known_rows(x, w), strict=True):
            assert np.asarray(mine).tobytes() == np.asarray(want).tobytes(), n
    assert len({str(c.fields) for c in compilations(rows)}) == 1
    rows(normal(3, 6), normal(6, 5))
    assert len({str(c.fields) for c in compilations(rows)}) == 2, "the other dims are known"
    assert "[N, 8]" in rows.explain()._repr_html_() or "[N, 6]" in str(rows.explain())


def test_kernels_take_open_dims() -> None:
    @ts.kernel(open_dims="n", num_warps=4)
    def saxpy(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], a: ts.f32):  # type: ignore[name-defined]
        i = ts.tile.linear_id()
        if i < n:  # type: ignore[name-defined]
            y[i] = a * x[i] + y[i]

    for n in (5, 6, 1000, 4097):
        x, y = normal(n), normal(n)
        want = np.float32(2) * x + y
        saxpy(x, y, 2.0)
        np.testing.assert_allclose(y, want, rtol=1e-6)
    assert len({str(c.fields) for c in compilations(saxpy)}) == 1


def test_leading_axes_and_optional_dims() -> None:
    @ts.function(open_dims=("S",))
    def last(x: Tensor["...", "S", ts.f32]):  # type: ignore[name-defined]
        return ts.max(x, axis=-1)

    for s in (2, 3, 9):
        x = normal(2, 3, s)
        np.testing.assert_array_equal(np.asarray(last(x)), x.max(-1))
    assert len({str(c.fields) for c in compilations(last)}) == 1


def test_derivatives_and_training_steps_keep_dims_open() -> None:
    @ts.function(open_dims="N")
    def loss(w: Tensor["D", ts.f32], x: Tensor["N", "D", ts.f32]):  # type: ignore[name-defined]
        return ts.mean((x @ w) ** 2)

    gradient: Callable[..., Any] = ts.grad(loss)
    for n in (3, 4, 7):
        w, x = normal(6), normal(n, 6)
        np.testing.assert_allclose(np.asarray(gradient(w, x)), 2 * x.T @ (x @ w) / n, rtol=1e-5, atol=1e-6)
    assert len({str(c.fields) for c in compilations(gradient)}) <= 1

    @ts.function(open_dims="N")
    def step(state: ts.optimizers.TrainingState, x: Tensor["N", 4, ts.f32]):  # type: ignore[name-defined]
        value, g = ts.value_and_grad(lambda model: ts.mean(model(x) ** 2))(state.model)
        state.step(g)
        return value

    @ts.function
    def known_step(state: ts.optimizers.TrainingState, x: Tensor["N", 4, ts.f32]):  # type: ignore[name-defined]
        value, g = ts.value_and_grad(lambda model: ts.mean(model(x) ** 2))(state.model)
        state.step(g)
        return value

    states = [ts.optimizers.TrainingState(nn.Linear(4, 3, key=0), ts.optimizers.SGD(0.1)) for _ in range(2)]
    for n in (5, 2, 3):
        x = normal(n, 4)
        assert float(step(states[0], x)) == float(known_step(states[1], x))
    np.testing.assert_array_equal(*(np.asarray(s.model.weight) for s in states))
    assert len({str(c.fields) for c in compilations(step)}) == 1


def test_examples_of_compile_leave_dims_open() -> None:
    compiled = ts.compile(rows, target="cpu", arguments=(normal(4, 8), normal(8, 5)))
    x, w = normal(9, 8), normal(8, 5)
    np.testing.assert_array_equal(np.asarray(compiled(x, w)[0]), np.asarray(known_rows(x, w)[0]))


def test_mistakes() -> None:
    @ts.function(open_dims="M")
    def other(x: Tensor["N", "D"]):  # type: ignore[name-defined]
        return x

    @ts.function(open_dims="N")
    def half(x: Tensor["N*D"], y: Tensor["D"], z: Tensor["N"]):  # type: ignore[name-defined]
        return ts.sum(x) + ts.sum(y) + ts.sum(z)

    @ts.function(open_dims="N")
    def many(model, *xs: Tensor["N"]):  # type: ignore[name-defined]
        return ts.sum(xs[0])

    @ts.function(open_dims="N")
    def given(x: Tensor["N"], N: ts.Const):  # type: ignore[name-defined]
        return ts.sum(x) * N

    @ts.function(open_dims="N")
    def unrolled(x: Tensor["N"]):  # type: ignore[name-defined]
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i]
        return total

    x = normal(12)
    for call, code, words in (
        (lambda: other(normal(3, 4)), "TS105", "'M', which other's annotations do not name"),
        (lambda: half(x, x[:4], x[:3]), "TS105", "add D to open_dims"),
        (lambda: given(x, 12), "TS105", "N is known when given is compiled"),
        (lambda: unrolled(x), "TS502", "must be known"),
        (lambda: ts.function(open_dims=3), "TS105", "open_dims names dims"),  # type: ignore[call-overload]
        (lambda: ts.train(nn.Linear(2, 2, key=0), ts.optimizers.SGD(0.1), half, [(x,)]), "TS105", "missing a required"),
        (lambda: ts.train(nn.Linear(2, 2, key=0), ts.optimizers.SGD(0.1), many, [(x,)]), "TS105", "name each of them"),
    ):
        with pytest.raises((CompileError, LaunchError), match=words) as raised:
            call()
        assert [d.code for d in raised.value.diagnostics] == [code]


def test_advice_after_several_sizes() -> None:
    @ts.function
    def total(x: Tensor["N", "D"], y: Tensor["N"], k=1):  # type: ignore[name-defined]
        return ts.sum(x, axis=1) * y * k

    total(normal(3, 2), normal(3))
    total(normal(4, 2), normal(4))
    assert "open_dims" not in str(ts.why_recompiled(total))
    total(normal(5, 2), normal(5))
    assert '@ts.function(open_dims="N") compiles once' in str(ts.why_recompiled(total))
    total(normal(6, 3), normal(6))
    assert '@ts.function(open_dims=("N", "D"))' in str(ts.why_recompiled(total))
    total(normal(6, 3), normal(6), k=2)
    assert "open_dims" not in str(ts.why_recompiled(total)), "something else has changed"
