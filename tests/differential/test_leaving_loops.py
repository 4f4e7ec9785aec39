"""`continue` and `break` on conditions of tensors: values and gradients as Python and NumPy have them."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import StatefulObject, Tensor, effect

X = np.array([1.0, -2.0, 3.0, 0.5, -1.0, 4.0, 2.0])


@ts.function
def skipped(x: Tensor["N"]):
    total = ts.zeros((), ts.f64)
    for i in ts.range(x.shape[0]):
        if x[i] < 0:
            continue
        total = total + x[i] * x[i]
    return total


@ts.function
def left(x: Tensor["N"]):
    total = ts.zeros((), ts.f64)
    for i in ts.range(x.shape[0]):
        if total > 9.0:
            break
        total = total + x[i] * x[i]
    return total


@ts.function
def both(x: Tensor["N"]):
    total = ts.zeros((), ts.f64)
    for i in ts.range(1, x.shape[0], 2):
        if x[i] < 0:
            if x[i] < -1.5:
                total = total + 1.0
                continue
            total = total * x[i]
        elif total > 3.0:
            total = total * 2.0
            break
        total = total + x[i] * x[i]
    return total


@ts.function
def backwards(x: Tensor["N"]):
    total = ts.zeros((), ts.f64)
    for i in ts.range(6, -1, -2):
        total = total + x[i]
        if total < 2.25:
            break
    return total


@ts.function
def nested(x: Tensor["N"]):
    total = ts.zeros((), ts.f64)
    for i in ts.range(x.shape[0]):
        if x[i] < -1.5:
            continue
        for j in ts.range(x.shape[0]):
            if j > i:
                break
            if x[j] < 0:
                continue
            total = total + x[i] * x[j]
        if total > 20.0:
            break
    return total


@ts.function
def conditions(x: Tensor["N"]):
    total = ts.ones((), ts.f64)
    i = ts.zeros((), ts.int64)
    while i < x.shape[0] - 1:
        i = i + 1
        if x[i] < 0:
            continue
        total = total * (1.0 + x[i])
        if total > 8.0:
            break
        total = total + 0.25
    return total


@ts.function
def unrolled(x: Tensor["N"]):
    total = ts.zeros((), ts.f64)
    for i in range(4):
        if x[i] < 0:
            continue
        total = total + x[i] ** 2
    return total


@ts.function
def otherwise(x: Tensor["N"]):
    """The else of a loop runs unless break left it; break in the else of an inner loop leaves the outer one."""
    total = ts.zeros((), ts.f64)
    for i in ts.range(x.shape[0]):
        for j in ts.range(i):
            if x[j] < -1.5:
                break
            total = total + x[j] * x[i]
        else:
            if total > 12.0:
                break
            total = total + x[i]
            continue
        total = total * 1.25
    else:
        total = total + 100.0
    i = ts.zeros((), ts.int64)
    while i < 3:
        i = i + 1
    else:
        total = total * x[1]
    return total


PROGRAMS = [skipped, left, both, backwards, nested, conditions, unrolled, otherwise]


def in_python(f, x, monkeypatch):
    """The text of the function, run by Python."""
    monkeypatch.setitem(f.__wrapped__.__globals__, "ts", Eager)
    return float(f.__wrapped__(x))


class Eager:
    """The names that the programs use, in Python and NumPy."""

    f64, int64 = np.float64, np.int64
    range, zeros, ones = staticmethod(range), staticmethod(np.zeros), staticmethod(np.ones)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.name)
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["plus", "minus"])
def test_values_are_those_of_python(f, sign, monkeypatch):
    found = float(f(sign * X))
    assert found == pytest.approx(in_python(f, sign * X, monkeypatch), rel=1e-14)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.name)
def test_gradients_are_differences(f, monkeypatch):
    gradient = ts.grad(f)(X)
    for i in range(len(X)):
        step = np.zeros_like(X)
        step[i] = 1e-6
        wanted = (in_python(f, X + step, monkeypatch) - in_python(f, X - step, monkeypatch)) / 2e-6
        monkeypatch.undo()
        assert gradient[i] == pytest.approx(wanted, rel=1e-6, abs=1e-7), i


def test_rows_leave_each_for_itself():
    rows = np.stack([X, -X, X * 0.1])
    assert np.allclose(ts.vmap(left)(rows), [float(left(r)) for r in rows])


def test_no_round_and_one_round():
    assert float(left(X[:0])) == 0.0 and float(nested(X[:1])) == 1.0


class Sum(StatefulObject):
    total: Tensor[()]

    @effect("update")
    def add(self, x):
        self.total = self.total + x


def test_effects_happen_in_the_rounds_that_are_run():
    @ts.function
    def run(state: Sum, x: Tensor["N"]):
        for i in ts.range(x.shape[0]):
            if x[i] < 0:
                continue
            state.add(x[i])
            if state.total > 4.2:
                break
        return state.total

    state = Sum(ts.zeros((), ts.f64))
    assert float(run(state, X)) == 4.5 and float(state.total) == 4.5


def test_what_stays_refused():
    @ts.function
    def returns(x: Tensor["N"]):
        for i in ts.range(x.shape[0]):
            if x[i] < 0:
                return x[i]
        return x[0]

    @ts.function
    def at_compile_time(x: Tensor["N"]):
        for i in range(3):
            if x[i] < 0:
                break
        return x

    @ts.kernel
    def otherwise_in_a_kernel(x: Tensor["N"], y: Tensor["N"]):
        i = tile_n
        n = ts.tile.sum(x[i : i + 8])
        while n < 3:
            n += 1
        else:
            y[i : i + 8] = x[i : i + 8]

    for f in (returns, at_compile_time, lambda x: otherwise_in_a_kernel(x, np.zeros_like(x))):
        with pytest.raises(ts.CompileError, match="TS102"):
            f(X)
