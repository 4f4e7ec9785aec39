"""Gradients through what is decided when the program runs: branches, counted loops, loops until a condition."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64

X = np.linspace(0.1, 1, 5)


@ts.function
def branchy(x: Tensor[f64], w: Tensor["N", f64]):
    if x > 0:
        y = ts.sum(w * x)
    else:
        y = ts.sum(ts.sin(w)) * x * x
    return y * x


@pytest.mark.parametrize("x", [2.0, -1.5])
def test_branches(x):
    w = np.array([1.0, 2.0])
    by_x, by_w = ts.grad(branchy, argnums=(0, 1))(np.array(x), w)
    np.testing.assert_allclose(by_x, 2 * x * w.sum() if x > 0 else 3 * x * x * np.sin(w).sum(), rtol=1e-12)
    np.testing.assert_allclose(by_w, x * x * np.ones(2) if x > 0 else np.cos(w) * x**3, rtol=1e-12)


def test_a_branch_that_is_not_taken_has_no_derivative():
    f = ts.grad(lambda x: ts.sum(ts.sqrt(x)) if ts.sum(x) > 0 else ts.sum(x * x))
    np.testing.assert_array_equal(f(np.zeros(2)), 0)


@ts.function
def orbit(x: Tensor["N", f64], steps: ts.int64):
    y, i = x, 0
    while i < steps:
        y = ts.cos(y * 1.01) + 0.1 * x
        i = i + 1
    return ts.sum(y)


def orbit_gradient(x, n):
    ys = [x]
    for _ in range(n):
        ys.append(np.cos(ys[-1] * 1.01) + 0.1 * x)
    ct, out = np.ones_like(x), np.zeros_like(x)
    for y in reversed(ys[:-1]):
        out, ct = out + 0.1 * ct, ct * -np.sin(y * 1.01) * 1.01
    return out + ct


by_orbit = ts.grad(orbit)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 63, 64, 65, 100, 10_000])
def test_loops_until_a_condition(n):
    """However many rounds there are, the states that are kept are as many."""
    np.testing.assert_allclose(by_orbit(X, n), orbit_gradient(X, n), rtol=1e-10, atol=1e-14)


@ts.function
def counted(x: Tensor["N", f64], w: Tensor["N", f64], start: ts.int64, stop: ts.int64, step: ts.int64):
    y = x
    for i in ts.range(start, stop, step):
        y = ts.sin(y) * w + i * x
    return ts.sum(y)


by_counted = ts.grad(counted, argnums=(0, 1))


@pytest.mark.parametrize("bounds", [(0, 0, 1), (0, 1, 1), (2, 9, 3), (5, -2, -2), (3, 1, 1)])
def test_counted_loops(bounds):
    torch = pytest.importorskip("torch")
    tx, tw = torch.tensor(X, requires_grad=True), torch.tensor(X[::-1].copy(), requires_grad=True)
    y = tx
    for i in range(*bounds):
        y = torch.sin(y) * tw + i * tx
    y.sum().backward()
    by_x, by_w = by_counted(X, X[::-1].copy(), *bounds)
    np.testing.assert_allclose(by_x, tx.grad, rtol=1e-12)
    np.testing.assert_allclose(by_w, 0 * X if tw.grad is None else tw.grad, rtol=1e-12, atol=1e-15)


@ts.function
def nested(x: Tensor["N", f64], n: ts.int64):
    total, y = x * 0, x
    for i in ts.range(n):
        j = i * 0
        while j < i:
            if ts.sum(y) > 1:
                y = y * 0.9
            else:
                y = y + x * 0.1
            j = j + 1
        total = total + y * y
    return ts.sum(total)


by_nested = ts.grad(nested)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_branches_in_loops_in_loops(n):
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    total, y = x * 0, x
    for i in range(n):
        for _ in range(i):
            y = y * 0.9 if y.sum() > 1 else y + x * 0.1
        total = total + y * y
    total.sum().backward()
    np.testing.assert_allclose(by_nested(X, n), x.grad, rtol=1e-12)


def test_a_value_from_before_a_loop_is_used_after_it():
    @ts.function
    def f(x: Tensor["N", f64], n: ts.int64):
        before = ts.sin(x)
        y = before
        for _ in ts.range(n):
            y = y * x
        return ts.sum(y * before)

    found = ts.grad(f)(X, 3)
    np.testing.assert_allclose(found, 2 * np.sin(X) * np.cos(X) * X**3 + np.sin(X) ** 2 * 3 * X**2, rtol=1e-12)


@ts.function
def newton(a: Tensor[f64], steps: ts.int64):
    y, i = a, 0
    while i < steps:
        y = 0.5 * (y + a / y)
        i = i + 1
    return y


def test_a_newton_loop_has_the_slope_of_its_limit_in_both_orders():
    first, second = ts.grad(newton), ts.hessian(newton)
    assert float(first(np.array(2.0), 0)) == 1.0 and float(first(np.array(2.0), 1)) == 0.5
    for n in (20, 1000):
        np.testing.assert_allclose(first(np.array(2.0), n), 0.5 / np.sqrt(2), rtol=1e-14)
        np.testing.assert_allclose(second(np.array(2.0), n), -0.25 * 2**-1.5, rtol=1e-12)


def test_the_same_key_draws_the_same_numbers_again():
    """Dropout in a loop: the backward pass computes states again, and draws what the forward pass drew."""

    @ts.function
    def value(x: Tensor["N", f64], seed: ts.int64, n: ts.int64):
        y = x
        for i in ts.range(n):
            y = ts.dropout(y, seed + i, p=0.3) * 1.1
        return ts.sum(y)

    x = np.linspace(1, 2, 64)
    found = ts.grad(value)(x, 7, 5)
    np.testing.assert_allclose(np.sum(found * x), float(value(x, 7, 5)), rtol=1e-12)
    assert 0 < np.sum(found == 0) < 64
