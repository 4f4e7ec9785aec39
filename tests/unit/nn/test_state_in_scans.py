"""Effects in the function of a scan, held against the same statements in a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KVCache, StatefulObject, Tensor, effect, f64, int64

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 3))


class Mean(StatefulObject):
    total: Tensor["D"]
    seen: Tensor[int64]

    @effect("update")
    def add(self, x: Tensor["D"]):
        self.total = self.total + x
        self.seen = self.seen + 1


class Two(StatefulObject):
    first: Tensor["D"]
    inner: Mean

    @effect("update")
    def turn(self, x: Tensor["D"]):
        self.first = x + self.inner.total
        self.inner.add(self.first)


def mean(first: Any = None) -> Mean:
    return Mean(np.zeros(3) if first is None else first.copy(), np.zeros((), np.int64))


def held(state: Any) -> list[Any]:
    return [np.array(a) for a in state.state_dict().values()]


@ts.function
def looped(m: Mean, x: Tensor["T", "D", f64], backwards: bool = False):
    out, h = ts.zeros_like(x), ts.zeros((x.shape[1],), f64)
    for i in ts.range(x.shape[0]):
        t = x.shape[0] - 1 - i if backwards else i
        h = 0.5 * h + m.total
        m.add(x[t])
        out = ts.put(out, t, h + m.total / m.seen)
    return h, out


@ts.function
def scanned(m: Mean, x: Tensor["T", "D", f64], backwards: bool = False):
    def step(h, x):
        h = 0.5 * h + m.total
        m.add(x)
        return h, h + m.total / m.seen

    return ts.scan(step, ts.zeros((x.shape[1],), f64), x, reverse=backwards)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 2, 7])
def test_as_in_a_loop(rounds: int, backwards: bool) -> None:
    one, other = mean(X[0]), mean(X[0])
    array = other.total
    for a, b in zip(looped(one, X[:rounds], backwards), scanned(other, X[:rounds], backwards), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(held(one), held(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert other.total is array and int(other.seen) == rounds


@ts.function
def several(two: Two, cache: KVCache, x: Tensor["T", "D", f64]):
    """What is read before and after, a branch, a scan in a scan, an inner state, and an effect that writes a slice."""

    def inner(n, x):
        two.inner.add(x)
        return n + 1, two.inner.seen

    def step(carry, x):
        if ts.sum(x) > 0:
            two.turn(x)
        k = x.to(ts.f32)[None, None, None, :]
        cache.append(k, k)
        n, seen = ts.scan(inner, 0, x[None, :] * ts.ones((2, 1), f64))
        return carry + n, (two.first, seen, cache.length)

    before = two.first
    two.turn(x[0])
    rounds, ys = ts.scan(step, 0, x)
    return before, rounds, ys, two.inner.total


def test_everything_that_holds_for_loops() -> None:
    two, cache = Two(np.ones(3), mean()), KVCache(1, 1, 8, 3, dtype=ts.f32)
    before, rounds, (firsts, seen, lengths), total = several(two, cache, X)
    first, sum_, count, wanted = np.ones(3), np.zeros(3), 0, []

    def turn(x: Any) -> None:
        nonlocal first, sum_, count
        first = x + sum_
        sum_, count = sum_ + first, count + 1

    turn(X[0])
    for x in X:
        if x.sum() > 0:
            turn(x)
        steps = []
        for _ in range(2):
            sum_, count = sum_ + x, count + 1
            steps.append(count)
        wanted.append((first, steps))
    np.testing.assert_allclose(firsts, [w[0] for w in wanted], rtol=1e-14)
    assert seen.tolist() == [w[1] for w in wanted]
    assert before.tolist() == [1, 1, 1] and int(rounds) == 14 and lengths.tolist() == list(range(1, 8))
    np.testing.assert_allclose(total, sum_, rtol=1e-14)
    np.testing.assert_allclose(two.first, first, rtol=1e-14)
    np.testing.assert_array_equal(cache.keys.numpy()[0, 0, :7], X.astype(np.float32))
    assert int(cache.length) == 7 and int(two.inner.seen) == count


def test_gradients_go_through_what_state_holds() -> None:
    """Those of a loop; the effects are those of the forward pass, once."""

    def gradient(of: Any) -> tuple[Any, Mean]:
        @ts.function
        def by_x(m: Mean, x: Tensor["T", "D", f64]):
            return ts.grad(lambda x: ts.sum(ts.square(of(m, x)[1])))(x)

        state = mean(X[0])
        return by_x(state, X), state

    (a, one), (b, other) = gradient(looped), gradient(scanned)
    np.testing.assert_allclose(a, b, rtol=1e-12)
    for x, y in zip(held(one), held(other), strict=True):
        np.testing.assert_array_equal(x, y)
    step = 1e-6
    moved = X.copy()
    moved[2, 1] += step
    losses = [float(np.square(scanned(mean(X[0]), x)[1]).sum()) for x in (X, moved)]
    assert abs((losses[1] - losses[0]) / step - b[2, 1]) < 1e-3 * abs(b[2, 1])


def test_no_gradient_by_state_and_no_array_twice() -> None:
    @ts.function
    def by_state(m: Mean, x: Tensor["T", "D", f64]):
        return ts.grad(lambda m: ts.sum(scanned(m, x)[1]))(m)

    with pytest.raises(ts.TesseraError, match="TS351"):
        by_state(mean(), X)
    shared = X.copy()
    with pytest.raises(ts.TesseraError, match="TS507"):
        scanned(Mean(shared[0], np.zeros((), np.int64)), shared)


def test_a_function_that_widens_state_is_refused() -> None:
    class Wide(StatefulObject):
        rows: Tensor["N", "D"]

        @effect("update")
        def widen(self, x: Tensor["D"]):
            self.rows = ts.concat([self.rows, x[None]])

    @ts.function
    def f(w: Wide, x: Tensor["T", "D", f64]):
        def step(c, x):
            w.widen(x)
            return c, x

        return ts.scan(step, 0, x)[1]

    with pytest.raises(ts.TesseraError, match="TS381"):
        f(Wide(np.zeros((2, 3))), X)
