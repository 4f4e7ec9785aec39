"""`ts.scan`, held against jax.lax.scan: values, structures, derivatives of both modes and orders, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f64
from tessera.compiler.tile.program import Loop
from tests.conftest import require

jax = require("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((19, 3)), 0.4 * RNG.standard_normal((3, 3))


@ts.function
def recurrent(x: Tensor["N", "D", f64], w: Tensor["D", "D", f64]):
    def step(h, x):
        h = ts.tanh(h @ w + x)
        return h, h * h

    h, ys = ts.scan(step, ts.zeros((x.shape[1],), x.dtype), x)
    return ts.sum(ys) + ts.sum(ts.sin(h))


def peer(x, w):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h * h

    h, ys = jax.lax.scan(step, jnp.zeros(x.shape[1]), x)
    return ys.sum() + jnp.sin(h).sum()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 19])
def test_gradients(n):
    x = X[:n]
    np.testing.assert_allclose(recurrent(x, W), peer(x, W), rtol=1e-12)
    have = ts.grad(recurrent, argnums=(0, 1))(x, W)
    for a, b in zip(have, jax.grad(peer, argnums=(0, 1))(x, W), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def test_second_derivatives():
    x, v = X[:5], RNG.standard_normal((3, 3))
    have = ts.hvp(lambda w: recurrent(x, w), (W,), (v,))
    want = jax.jvp(jax.grad(lambda w: peer(x, w)), (W,), (v,))[1]
    np.testing.assert_allclose(have, want, rtol=1e-9)

    def twice(f, of, total):
        return of(lambda w: total(of(f)(w) * v))

    have = twice(lambda w: recurrent(x, w), ts.grad, ts.sum)(W)
    np.testing.assert_allclose(have, twice(lambda w: peer(x, w), jax.grad, jnp.sum)(W), rtol=1e-9)


def test_tangents():
    have = ts.jvp(recurrent, (X, W), (X[::-1].copy(), W.T.copy()))
    for a, b in zip(have, jax.jvp(peer, (X, W), (X[::-1], W.T)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@dataclass
class Moving:
    mean: Tensor["D", f64]
    count: Tensor[f64]


def step(state, xs):
    moving, last = state["moving"], state["last"]
    a, b = xs
    mean = moving.mean + (a - moving.mean) / (moving.count + 1)
    new = {"moving": Moving(mean, moving.count + 1), "last": a * b}
    return new, (mean, {"last": last, "is": ts.sum(a) > 0})


@pytest.mark.parametrize("reverse", [False, True])
def test_structures(reverse):
    first = {"moving": Moving(np.zeros(3), np.array(0.0)), "last": np.ones(3)}
    f = ts.function(lambda first, a, b: ts.scan(step, first, (a, b), reverse=reverse))
    y = np.arange(19.0)
    for state, (means, rest) in (f(first, X, y), ts.scan(step, first, (X, y), reverse=reverse)):
        order = slice(None, None, -1) if reverse else slice(None)
        mean = np.cumsum(X[order], 0) / np.arange(1, 20)[:, None]
        np.testing.assert_allclose(means, mean[order], rtol=1e-12)
        np.testing.assert_allclose(state["moving"].mean, X.mean(0), rtol=1e-12)
        assert float(state["moving"].count) == 19
        lasts = np.concatenate([np.ones((1, 3)), (X * y[:, None])[order]])
        np.testing.assert_allclose(state["last"], lasts[-1])
        np.testing.assert_allclose(rest["last"], lasts[:-1][order])
        np.testing.assert_array_equal(rest["is"], X.sum(1) > 0)


@dataclass
class Repeated:
    weight: Tensor["D", f64]
    times: int = 2

    def __call__(self, x):
        for _ in range(self.times):
            x = ts.sin(x * self.weight)
        return x


def test_numbers_of_a_dataclass_are_configuration():
    """They are known while the function of a scan is compiled, unless a round changes them."""
    layers = Repeated(X[:4])
    want = np.ones(3)
    for w in X[:4]:
        want = np.sin(np.sin(want * w) * w)
    last, seen = ts.scan(lambda x, layer: (layer(x), layer), np.ones(3), layers)
    np.testing.assert_allclose(last, want)
    assert seen.times == 2 and np.array_equal(seen.weight, X[:4])
    same, ys = ts.scan(lambda layer, x: (layer, layer(x)), Repeated(X[0]), X)
    np.testing.assert_allclose(ys, np.sin(np.sin(X * X[0]) * X[0]))
    assert type(same.times) is int and same.times == 2
    grown, ys = ts.scan(lambda s, x: (ts.replace(s, times=s.times + 1), x * s.times), Repeated(X[0]), X[:4])
    np.testing.assert_allclose(ys, X[:4] * np.arange(2, 6)[:, None])
    assert int(grown.times) == 6


@pytest.mark.parametrize("of", ["results", "carried", "branch"])
def test_derivatives_where_a_part_has_no_elements(of):
    """Nothing changes through what is empty, but the rest of what a loop or branch hands on does."""

    def loss(x, none):
        if of == "results":  # one for each of no rounds
            x, rows = ts.scan(lambda h, r: (h * r, h), x, none)
        elif of == "carried":
            for _ in ts.range(2):
                x, none = x * x, none * 2
            rows = none
        elif ts.sum(x) > 0:
            x, rows = x * x, none
        else:
            rows = none * 2
        return ts.sum(x * x) + ts.sum(rows)

    def peer(x):
        y = {"results": x, "carried": x**4, "branch": x * x}[of]
        return jnp.sum(y * y)

    x, none = np.array([1.5, 0.5, -1.0]), np.ones((0, 3))
    np.testing.assert_allclose(ts.grad(loss)(x, none), jax.grad(peer)(x))
    np.testing.assert_allclose(ts.hessian(loss)(x, none), jax.hessian(peer)(x))
    tangents = np.array([1.0, 2.0, 3.0]), none
    np.testing.assert_allclose(ts.jvp(loss, (x, none), tangents)[1], jax.jvp(peer, (x,), tangents[:1])[1])


def test_without_anything_to_go_through():
    def fibonacci(pair, _):
        a, b = pair
        return (b, a + b), a

    pair, numbers = ts.scan(fibonacci, (0, 1), length=10)
    assert numbers.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34] and int(pair[0]) == 55


def test_numbers_take_the_dtype_that_they_have_after_a_round():
    f = ts.function(lambda x: ts.scan(lambda c, x: (c + x, None), 0, x)[0])  # None is no result of a function
    total = f(X[:, 0])
    assert np.asarray(total).dtype == np.float64
    np.testing.assert_allclose(total, X[:, 0].sum())


@ts.function
def doubled(x: Tensor["N", "M", f64]):
    """A scan in a scan, whose function branches."""

    def inner(c, v):
        if v > c:
            c = v
        return c, c

    def outer(best, line):
        best, tops = ts.scan(inner, best, line)
        return best, tops

    return ts.scan(outer, ts.full((), -9.0, f64), x)


def test_scans_in_scans():
    best, tops = doubled(X)
    np.testing.assert_array_equal(np.ravel(tops), np.maximum.accumulate(X.ravel()))
    assert float(best) == X.max()
    by = ts.grad(lambda x: ts.sum(doubled(x)[1]))(X)
    want = np.zeros(X.size)
    np.add.at(want, [np.argmax(X.ravel()[: i + 1]) for i in range(X.size)], 1)
    np.testing.assert_array_equal(by, want.reshape(X.shape))


def loops(steps):
    for s in steps:
        if isinstance(s, Loop):
            yield s
            yield from loops(s.body)


@ts.function
def running(x: Tensor["N", "D", f64], w: Tensor["D", "D", f64]):
    return ts.scan(lambda c, v: (c + v @ w, c * v), x[0], x)


@pytest.mark.parametrize("f", [running, recurrent, ts.grad(recurrent, argnums=(0, 1))], ids=str)
def test_nothing_of_the_length_is_written_in_a_round(f):
    """In a loop nothing but `put` writes to memory of the length of what is gone through."""
    program = ts.compile(f, arguments=[np.ones((5000, 3)), W]).lowered.program
    found = [s for loop in loops(program.steps) for s in loop.body if not isinstance(s, Loop)]
    written = [program.buffers[s.args[i].buffer] for s in found if s.label != "put" for i in s.kernel.attrs["writes"]]
    assert written and all(np.prod(b.shape) < 50 for b in written)
    assert any(s.label == "put" for s in found)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda x: ts.scan(lambda c, v: c, x[0], x), "TS105"),
        (lambda x: ts.scan(lambda c, v: (c[:1], v), x[0], x), "TS212"),
        (lambda x: ts.scan(lambda c, v: ((c, c), v), x[0], x), "TS212"),
        (lambda x: ts.scan(lambda c, v: (c, v), x[0], (x, x[1:])), "TS213"),
        (lambda x: ts.scan(lambda c, v: (c, v), x[0]), "TS105"),
        (lambda x: ts.scan(lambda c, v: (c, v), x[0], length=x[0, 0]), "TS105"),
        (lambda x: ts.scan(lambda c, v: (c, v), x[0], x, length=7), "TS213"),
        (lambda x: ts.scan(lambda c, v: (c, v), x[0], x[0, 0]), "TS105"),
        (lambda x: ts.scan(lambda c, v: (c, v), x[0], x, reverse=1), "TS105"),
        (lambda x: ts.scan(3, x[0], x), "TS105"),
    ],
)
def test_what_does_not_fit_is_said(wrong, code):
    with pytest.raises(ts.CompileError) as caught:
        ts.function(wrong)(X)
    assert caught.value.code == code
