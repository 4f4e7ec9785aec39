"""`ts.no_grad()` in functions: what is computed there is constant for derivatives of what follows."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn

X, Y = np.array([1.0, 2.0]), np.array([3.0, 5.0])


@ts.function
def mixed(x: Tensor["N"], y: Tensor["N"]):
    with ts.no_grad():
        slope = ts.grad(lambda x: ts.sum(x**3))(x)  # gradients that the block itself takes are not cut
        held = [x * y, slope]
    return ts.sum(x * held[0] + y * held[1])


def test_values_of_the_block_are_constant():
    np.testing.assert_allclose(mixed(X, Y), np.sum(X * X * Y + Y * 3 * X**2))
    gx, gy = ts.grad(mixed, argnums=(0, 1))(X, Y)
    np.testing.assert_allclose(gx, X * Y)
    np.testing.assert_allclose(gy, 3 * X**2)
    _, tangent = ts.jvp(mixed, (X, Y), (np.ones(2), np.ones(2)))
    np.testing.assert_allclose(tangent, np.sum(X * Y + 3 * X**2))


def test_loops_and_branches_in_the_block_are_constant():
    @ts.function
    def f(x: Tensor["N"], n: ts.int64):
        with ts.no_grad():
            y = x
            for _ in ts.range(n):
                y = y * x
            if ts.sum(x) > 0:
                y = y + x
        return ts.sum(y * x)

    np.testing.assert_allclose(ts.grad(f)(X, 2), X**3 + X)


@ts.no_grad()
def _target(q):
    return q * 2


class _Doubling(nn.Module):
    weight: Tensor

    @ts.no_grad()
    def __call__(self, x):
        return self.weight * x


def test_decorated_functions_and_methods_are_constant():
    @ts.function
    def f(x: Tensor["N"]):
        return ts.sum(_target(x) * x)

    @ts.function
    def g(model: _Doubling, x: Tensor["N"]):
        return ts.sum(model(x) * x)

    np.testing.assert_allclose(ts.grad(f)(X), 2 * X)
    np.testing.assert_allclose(ts.grad(g, argnums=1)(_Doubling(Y), X), Y * X)


def test_a_return_in_the_block_is_constant():
    @ts.function
    def f(x: Tensor["N"]):
        def inner(x):
            with ts.no_grad():
                return x * 2

        return ts.sum(inner(x) * x)

    np.testing.assert_allclose(ts.grad(f)(X), 2 * X)


def test_kernels_and_arguments_are_refused():
    @ts.kernel
    def kernel(x: Tensor["N"], y: Tensor["N"]):
        with ts.no_grad():
            i = ts.tile.linear_id()
        y[i] = x[i]

    with pytest.raises(ts.errors.CompileError, match="no_grad\\(\\) is for functions"):
        kernel(X, np.empty(2))

    @ts.function
    def f(x: Tensor["N"]):
        with ts.no_grad(x):
            return x

    with pytest.raises(ts.errors.CompileError, match="no_grad takes no arguments"):
        f(X)
