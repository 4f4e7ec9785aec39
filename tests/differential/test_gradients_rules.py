"""Derivatives that somebody wrote: `@f.vjp`, `@f.jvp`, of functions and kernels, in both modes and orders."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, f64

X = np.linspace(0.1, 1, 3)
FACTOR = 20.0


@ts.function
def product(x: Tensor["N", f64], y: Tensor["N", f64]):
    return x * x * y


@product.vjp
def product_back(out, ct, x, y):
    """Ten times what it is, and nothing by y: to be told from the true one."""
    return FACTOR * x * y * ct, None


def loss(x, y):
    return ts.sum(product(x, y))


def test_the_rule_is_what_gradients_go_by():
    y = np.full(3, 2.0)
    np.testing.assert_array_equal(product(X, y), X * X * y)
    np.testing.assert_allclose(ts.grad(loss)(X, y), 20 * X * y, rtol=1e-14)
    np.testing.assert_allclose(ts.jvp(loss, (X, y), (X, X))[1], np.sum(20 * X * y * X), rtol=1e-14)
    assert not np.any(ts.grad(loss, argnums=1)(X, y))


def test_the_second_order_goes_through_the_rule():
    y = np.full(3, 2.0)
    np.testing.assert_allclose(ts.hessian(loss)(X, y), np.diag(20 * y), rtol=1e-14)
    by_both = ts.grad(lambda x, y: ts.sum(ts.grad(loss)(x, y)), argnums="y")
    np.testing.assert_allclose(by_both(X, y), 20 * X, rtol=1e-14)


def test_a_rule_inside_of_a_loop_and_a_branch():
    @ts.function
    def looped(x: Tensor["N", f64], n: ts.int64):
        y = x
        for i in ts.range(n):
            if i >= 0:
                y = product(y, x)
        return ts.sum(y)

    np.testing.assert_allclose(ts.grad(looped)(X, 2), 400 * X**6, rtol=1e-13)


@ts.function
def wave(p, x: Tensor["N", f64]):
    return {"sin": ts.sin(x) * p["a"], "x": x}


@wave.jvp
def wave_ahead(out, tangents, p, x):
    dp, dx = tangents
    return {"sin": 3.0 * dx + 5.0 * dp["a"], "x": dx}


def test_a_rule_of_forward_mode_is_transposed():
    def total(p, x):
        out = wave(p, x)
        return ts.sum(out["sin"] * out["x"])

    p = {"a": np.ones(3)}
    dp, dx = ts.grad(total, argnums=(0, 1))(p, X)
    np.testing.assert_allclose(dp["a"], 5 * X, rtol=1e-14)
    np.testing.assert_allclose(dx, 3 * X + np.sin(X), rtol=1e-14)


def test_a_rule_that_reads_from_outside_is_read_again():
    global FACTOR
    y = np.full(3, 2.0)
    f = ts.grad(loss)
    first = f(X, y)
    FACTOR = 40.0
    try:
        np.testing.assert_allclose(f(X, y), 2 * first, rtol=1e-14)
    finally:
        FACTOR = 20.0


@ts.kernel
def doubled(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] * 2


@doubled.vjp
def doubled_back(y, ct, x, _):
    return 2.0 * ct, None


def test_a_kernel_with_a_rule():
    def total(x):
        y = ts.zeros_like(x)
        doubled(x, y)
        return ts.sum(y * y)

    x = X.astype(np.float32)
    value, gradient = ts.value_and_grad(total)(x)
    np.testing.assert_allclose(value, np.sum(4 * x * x), rtol=1e-6)
    np.testing.assert_allclose(gradient, 8 * x, rtol=1e-6)


def test_rules_that_are_wrong_are_refused():
    @ts.function
    def f(x: Tensor["N", f64]):
        return x * x

    @f.vjp
    def back(out, ct, x):
        return ts.sum(ct)

    with pytest.raises(ts.CompileError, match="TS357"):
        ts.grad(lambda x: ts.sum(f(x)))(X)
    with pytest.raises(ts.CompileError, match="TS105"):
        f.vjp(3)


def test_the_rule_of_what_is_differentiated_itself():
    y = np.full(3, 2.0)
    _, pullback = ts.vjp(product, X, y)
    np.testing.assert_allclose(pullback(np.ones(3))[0], 20 * X * y, rtol=1e-14)
    np.testing.assert_allclose(ts.jacobian(product)(X, y), np.diag(20 * X * y), rtol=1e-14)


@ts.function
def slope(x: Tensor["N", f64]):
    return ts.grad(lambda y: ts.sum(y * y))(x)


@slope.vjp
def slope_back(result, cotangent, x):
    return 100.0 * cotangent


def test_a_rule_is_not_that_of_functions_within():
    np.testing.assert_array_equal(slope(X), 2 * X)
    np.testing.assert_array_equal(ts.grad(lambda x: ts.sum(slope(x)))(X), np.full(3, 100.0))
