"""Loops under every combination of derivatives, against JAX."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64
from tests.conftest import require

jax = require("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


X = np.linspace(0.2, 0.9, 3)
V, U = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -1.0])


@ts.function
def spiral(x: Tensor["N", f64], rounds: ts.int64):
    """A loop until a condition, whose rounds are given: 0, one, or very many."""
    y, i = x, 0
    while i < rounds:
        y = y - 0.3 * ts.sin(y) + 0.01 * x
        i = i + 1
    return ts.sum(y * y)


def peer(x, rounds):
    y = jax.lax.fori_loop(0, rounds, lambda i, y: y - 0.3 * jnp.sin(y) + 0.01 * x, x)
    return jnp.sum(y * y)


@pytest.mark.parametrize("rounds", [0, 1, 10_000])
def test_any_number_of_rounds_in_both_modes(rounds):
    given = np.array(rounds)
    np.testing.assert_allclose(ts.grad(spiral)(X, given), jax.grad(peer)(X, rounds), rtol=1e-9)
    have = ts.jvp(lambda x: spiral(x, given), (X,), (V,))
    want = jax.jvp(lambda x: peer(x, rounds), (X,), (V,))
    np.testing.assert_allclose(have, want, rtol=1e-9)


def test_memory_does_not_grow_with_the_rounds():
    """The program does not know how many there are: what it holds is fixed."""
    program = ts.compile(ts.grad(spiral), arguments=[X, np.array(10_000)]).lowered.program
    held = [b for b in program.buffers if b.role == "temp"]
    assert max(np.prod(b.shape) for b in held) <= 33 * X.size
    assert sum(np.prod(b.shape) for b in held) < 200 * X.size


@ts.function
def skipping(x: Tensor["N", f64], rounds: ts.int64):
    """A round that is skipped, a loop in a loop whose rounds depend on data, a value from before them used after."""
    early = ts.exp(x)
    total = ts.zeros_like(x)
    for t in ts.range(rounds):
        if t % 3 != 1:
            y, n = x, 0
            while n < t:
                y = ts.cos(y) + 0.1 * total
                n = n + 1
            total = total + y * early
    return ts.sum(total * early)


def skipping_peer(x, rounds):
    early, total = jnp.exp(x), jnp.zeros_like(x)
    for t in range(rounds):
        if t % 3 == 1:
            continue
        y = x
        for _ in range(t):
            y = jnp.cos(y) + 0.1 * total
        total = total + y * early
    return jnp.sum(total * early)


@pytest.mark.parametrize("rounds", [0, 2, 12])
def test_rounds_that_are_skipped_and_loops_in_loops(rounds):
    np.testing.assert_allclose(ts.grad(skipping)(X, np.array(rounds)), jax.grad(skipping_peer)(X, rounds), rtol=1e-9)


@ts.function
def cubed(x: Tensor["N", f64]):
    return x * x * x


@cubed.vjp
def cubed_back(result, cotangent, x):
    return 3 * x * x * cotangent


def looped(x):
    """A function with a rule of its own, in a loop, some of it computed again in the backward pass."""
    part = ts.remat(lambda y: ts.tanh(cubed(y) + x))
    y = x
    for _ in ts.range(5):
        y = part(y) * 0.9
    return ts.sum(y * y)


def looped_peer(x):
    y = x
    for _ in range(5):
        y = jnp.tanh(y * y * y + x) * 0.9
    return jnp.sum(y * y)


def test_modes_of_modes():
    """jvp of vjp, vjp of vjp, vjp of jvp and the Hessian, through a rule of one's own in a loop."""
    want = jax.hessian(looped_peer)(X)
    np.testing.assert_allclose(ts.jvp(ts.grad(looped), (X,), (V,))[1], want @ V, rtol=1e-8)
    np.testing.assert_allclose(ts.grad(lambda x: ts.sum(ts.grad(looped)(x) * V))(X), want @ V, rtol=1e-8)
    np.testing.assert_allclose(ts.grad(lambda x: ts.jvp(looped, (x,), (V,))[1])(X), want @ V, rtol=1e-8)
    np.testing.assert_allclose(ts.hessian(looped)(X), want, rtol=1e-8)


def test_mapped_over_samples():
    xs = np.stack([X, -X, 2 * X])
    want = jax.vmap(jax.hessian(looped_peer))(xs)
    np.testing.assert_allclose(ts.vmap(ts.hessian(looped))(xs), want, rtol=1e-8, atol=1e-12)


ZEROS = np.array([[2.0, 3, 4, 5], [2, 0, 4, 5], [0, 3, 0, 1.5], [0, 0, 0, 2], [0, 0, 0, 0]])
"""lines without a zero, with one, and with several"""


@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_products_of_zeros_have_all_derivatives(name):
    """Three orders at once: what is wrong in a lower one is wrong in the next."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((5, 4) if name == "cumprod" else 5)
    ways = rng.standard_normal((2, 5, 4))

    def third(lib, grad):
        def f(x):
            return lib.sum(lib.exp(getattr(lib, name)(x, axis=1) * weights))

        def slope(x):
            return lib.sum(grad(f)(x) * ways[0])

        def bend(x):
            return lib.sum(grad(slope)(x) * ways[1])

        return [grad(g)(ZEROS) for g in (f, slope, bend)]

    for have, want in zip(third(ts, ts.grad), third(jnp, jax.grad), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)
    if name == "cumprod":
        given, way = ZEROS.ravel(), ways[0].ravel()
        have = ts.jvp(lambda x: ts.cumprod(x), (given,), (way,))
        np.testing.assert_allclose(have, jax.jvp(jnp.cumprod, (given,), (way,)), rtol=1e-9)


def test_running_products_of_what_a_mask_lets_through():
    """The recurrence that differentiates them has two operands, and so two masks."""
    x, way, weights = np.random.default_rng(3).standard_normal((3, 6))

    def f(lib, x):
        return lib.sum(lib.sin(lib.cumprod(lib.maximum(x, 0.1), axis=0)) * weights)

    have = ts.hvp(lambda x: f(ts, x), (x,), (way,))
    want = jax.jvp(jax.grad(lambda x: f(jnp, x)), (x,), (way,))[1]
    np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)
