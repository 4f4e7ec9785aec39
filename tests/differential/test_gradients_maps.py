"""Forward mode, linear maps, Jacobians and Hessians: against JAX, and against each other."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64

X, V = np.linspace(0.1, 1, 4), np.arange(4.0)


def stretched(x):
    return ts.sin(x) * ts.sum(x)


JACOBIAN = np.diag(np.cos(X) * X.sum()) + np.outer(np.sin(X), np.ones(4))


def test_a_tangent_and_a_cotangent():
    value, tangent = ts.jvp(stretched, (X,), (V,))
    np.testing.assert_allclose(value, np.sin(X) * X.sum(), rtol=1e-14)
    np.testing.assert_allclose(tangent, JACOBIAN @ V, rtol=1e-14)
    value, pullback = ts.vjp(stretched, X)
    (cotangent,) = pullback(V)
    np.testing.assert_allclose(cotangent, V @ JACOBIAN, rtol=1e-14)
    value, pushforward = ts.linearize(stretched, X)
    np.testing.assert_array_equal(pushforward(V), tangent)


@pytest.mark.parametrize("make", [ts.jacfwd, ts.jacrev, ts.jacobian])
def test_jacobians(make):
    np.testing.assert_allclose(make(stretched)(X), JACOBIAN, rtol=1e-14)


def test_jacobians_have_the_structure_of_result_and_argument():
    def f(p, x):
        return {"a": p["w"] @ x, "b": ts.sum(x)}

    found = ts.jacobian(f, argnums=(0, "x"))({"w": np.ones((2, 4))}, X)
    assert found["a"][0]["w"].shape == (2, 2, 4) and found["b"][0]["w"].shape == (2, 4)
    np.testing.assert_allclose(found["a"][0]["w"], np.einsum("ij,k->ijk", np.eye(2), X))
    np.testing.assert_array_equal(found["a"][1], np.ones((2, 4)))
    np.testing.assert_array_equal(found["b"][1], np.ones(4))


def test_hessians_as_jax():
    jax = pytest.importorskip("jax")

    def loss(x, exp, total):
        return total(exp(x) * x * total(x))

    with jax.enable_x64(True):
        expected = np.asarray(jax.hessian(lambda x: loss(x, jax.numpy.exp, jax.numpy.sum))(X))
    mine = lambda x: loss(x, ts.exp, ts.sum)  # noqa: E731
    np.testing.assert_allclose(ts.hessian(mine)(X), expected, rtol=1e-12)
    np.testing.assert_allclose(ts.hvp(mine, (X,), (V,)), expected @ V, rtol=1e-12)


def test_linear_maps_inside_of_functions():
    @ts.function
    def inside(x: Tensor["N", f64], v: Tensor["N", f64]):
        _, back = ts.vjp(stretched, x)
        _, ahead = ts.linearize(stretched, x)
        _, tangent = ts.jvp(stretched, (x,), (v,))
        return back(v)[0], back(2.0 * v)[0], ahead(v), tangent, ts.jacobian(stretched)(x)

    once, twice, ahead, tangent, jacobian = inside(X, V)
    np.testing.assert_allclose(once, V @ JACOBIAN, rtol=1e-14)
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-14)
    np.testing.assert_array_equal(ahead, tangent)
    np.testing.assert_allclose(jacobian, JACOBIAN, rtol=1e-14)


def test_forward_over_reverse_is_reverse_over_forward():
    def f(x):
        return ts.sum(ts.where(x > 0.3, ts.log(x) * ts.sum(x), x**3))

    ahead = ts.jvp(ts.grad(f), (X,), (V,))[1]

    @ts.function
    def back(x: Tensor["N", f64], v: Tensor["N", f64]):
        return ts.grad(lambda x: ts.jvp(f, (x,), (v,))[1])(x)

    np.testing.assert_allclose(ahead, back(X, V), rtol=1e-12)


@ts.function
def orbit(x: Tensor["N", f64], n: ts.int64):
    y = x
    for i in ts.range(n):
        if ts.sum(y) > 1:
            y = ts.cos(y) * x
        else:
            y = y + 0.1 * i * x
    return ts.sum(y * y)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_tangents_through_loops_are_those_of_reverse_mode(n):
    @ts.function
    def tangent(x: Tensor["N", f64], v: Tensor["N", f64], n: ts.int64):
        return ts.jvp(lambda x: orbit(x, n), (x,), (v,))[1]

    np.testing.assert_allclose(tangent(X, V, n), ts.grad(orbit)(X, n) @ V, rtol=1e-12)


def test_a_transform_of_a_function_is_one_object():
    """`ts.grad(f)(x)` in a loop compiles once."""
    assert ts.grad(orbit) is ts.grad(orbit) and ts.grad(stretched) is ts.grad(stretched)
    assert ts.grad(orbit) is not ts.grad(orbit, argnums=(0,))
    decorated = ts.function(stretched)
    assert ts.jacfwd(decorated) is not ts.jacfwd(stretched)


def test_check_grad_finds_rules_that_are_wrong():
    def f(x, w, n):
        return ts.sin(x @ w) * n

    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    ts.check_grad(f, x, w, np.int64(3))
    ts.check_grad(f, x.astype(np.float32), w.astype(np.float32), np.int64(3))
    ts.check_grad(lambda p: ts.sum(ts.exp(p["a"]) * p["b"][0]), {"a": x, "b": [x]}, order=2)

    @ts.function
    def wrong(x: Tensor["N", f64]):
        return x * x

    @wrong.vjp
    def wrong_back(out, ct, x):
        return 3.0 * x * ct

    with pytest.raises(AssertionError, match="differences and forward mode differ"):
        ts.check_grad(wrong, X)
    with pytest.raises(AssertionError, match="positions of arguments"):
        ts.check_grad(wrong, np.arange(3))
    with pytest.raises(AssertionError, match=r"positions of arguments, not \[9\]"):
        ts.check_grad(wrong, X, argnums=[9])


def test_operators_are_functions_to_transform():
    """They have no text of their own."""
    np.testing.assert_array_equal(ts.grad(ts.sum)(X), np.ones(4))
    np.testing.assert_array_equal(ts.grad(ts.sum)(np.ones((2, 3)), axis=None), np.ones((2, 3)))
    np.testing.assert_allclose(ts.jvp(ts.sin, (X,), (V,))[1], V * np.cos(X), rtol=1e-14)
    np.testing.assert_allclose(ts.vjp(ts.exp, X)[1](V)[0], V * np.exp(X), rtol=1e-14)
    np.testing.assert_allclose(ts.value_and_grad(ts.mse)(X, V)[1], (X - V) / 2, rtol=1e-14)
    np.testing.assert_array_equal(ts.vmap(ts.sum)(np.ones((3, 2))), [2, 2, 2])


@pytest.mark.parametrize(
    "name, f",
    {
        "added": lambda x, c: ts.sum(ts.reshape(c * 0.2 - ts.sum(x), (2, 3)), axis=1),
        "chosen": lambda x, c: ts.where(c > 0.3, ts.sum(x), c),
        "limited": lambda x, c: ts.cumsum(ts.clip(c, ts.sum(x) - 0.2, None)),
        "convolved": lambda x, c: ts.conv1d(c[None, None], ts.reshape(c[:4] + ts.sum(x), (2, 1, 2)))[0, 1],
    }.items(),
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_number_that_is_stretched_has_tangents_of_the_result(name, f):
    """The other operand, which has the shape of the result, does not change."""
    x, c = np.array([0.3, -0.2]), np.linspace(-1.0, 1.0, 6)

    @ts.function
    def both(x, c, way):
        value, tangent = ts.jvp(lambda x: f(x, c), (x,), (way,))
        return value, tangent, ts.jacrev(lambda x: f(x, c))(x), ts.hvp(lambda x: ts.sum(ts.sin(f(x, c))), (x,), (way,))

    way = np.array([0.5, 2.0])
    value, tangent, slopes, bend = both(x, c, way)
    assert tangent.shape == value.shape
    np.testing.assert_allclose(tangent, slopes @ way, rtol=1e-12)
    np.testing.assert_allclose(bend, -slopes.T @ (np.sin(value) * tangent), rtol=1e-9, atol=1e-12)
