"""Hard cases 2 to 5 and 11 to 15 of derivatives: loops, mutation, rules, closures, `vmap`, randomness, masked rows.

Each is tried in every form of derivative (`forms.check`). More of them, in `tests/differential`:
`test_gradients_of_loops.py`, `test_gradients_control.py`, `test_leaving_loops.py` (2, 3, 5),
`test_gradients_rules.py` (5), `test_vmap.py` (13), `test_attention_gradients.py` (15, also of second order); and
`tests/unit/memory/test_remat.py` (12, 14).
"""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, f64, nn
from tests.conftest import require
from tests.hard_cases.forms import check, direction, peer

jax = require("jax")
jnp = jax.numpy
X = np.linspace(0.2, 0.9, 3)


@ts.function
def newton(a: Tensor["N", f64], steps: ts.int64):
    y, i = a, 0
    while i < steps:
        y = 0.5 * (y + a / y)
        i = i + 1
    return ts.sum(y)


@pytest.mark.parametrize("steps", [0, 1, 10_000])
def test_02_newton(steps):
    limited = ts.remat(lambda a: newton(a, steps), memory="1MB")
    wanted = peer(jax, lambda a: jax.lax.fori_loop(0, min(steps, 50), lambda _, y: 0.5 * (y + a / y), a).sum(), X)
    if steps > 1:
        np.testing.assert_allclose(ts.grad(limited)(X), wanted["first"], rtol=1e-12)
        np.testing.assert_allclose(ts.jvp(limited, (X,), (X,))[1], np.sum(wanted["first"] * X), rtol=1e-12)
    else:
        check(newton, X, steps, **wanted)


@ts.function
def loops(x: Tensor["N", f64], rounds: ts.int64):
    """What was computed before a loop is used after it; a loop in a loop; `continue`, `break` and `else`."""
    before, total, i = ts.exp(x), ts.zeros_like(x), 0
    while i < rounds:
        i = i + 1
        if i % 2 == 0:
            continue
        y = x
        for j in ts.range(i):
            if j == 3:
                break
            y = ts.cos(y) + 0.1 * total
        else:
            y = y * x
        total = total + y * before
    return ts.sum(total * before)


def loops_by_jax(x, rounds):
    before, total = jnp.exp(x), jnp.zeros_like(x)
    for i in range(1, rounds + 1, 2):
        y = x
        for _ in range(min(i, 3)):
            y = jnp.cos(y) + 0.1 * total
        total = total + (y if i > 3 else y * x) * before
    return jnp.sum(total * before)


@pytest.mark.parametrize("rounds", [0, 5])
def test_03_nested_loops(rounds):
    wanted = peer(jax, lambda x: loops_by_jax(x, rounds), X)
    check(loops, X, rounds, **(wanted if rounds else {"first": wanted["first"]}))  # second orders compile for seconds


def test_04_aliases_that_change_between_calls():
    gradient = ts.grad(lambda x, y: ts.sum(x * ts.sin(y)), argnums=(0, 1))
    memory = np.concatenate([X, X])
    for x, y in ((X, X.copy()), (memory[:3], memory[:3]), (memory[:3], memory[1:4]), (memory[::2], memory[::-2])):
        by_x, by_y = gradient(x, y)
        np.testing.assert_allclose(by_x, np.sin(y), rtol=1e-12)
        np.testing.assert_allclose(by_y, x * np.cos(y), rtol=1e-12)


def test_04_what_was_read_is_mutated():
    w, other = ts.Tensor(X.copy(), requires_grad=True), ts.Tensor(X.copy())
    loss = (w * other).sum()
    other[0] = 5.0
    with pytest.raises(ts.LaunchError, match=r"TS356(?s:.)*has been changed in place since") as caught:
        loss.backward()
    assert caught.value.diagnostics[0].span.file == __file__ and w.grad is None
    state = ts.optimizers.TrainingState(nn.Linear(3, 3, key=0).requires_grad_(), ts.optimizers.SGD(0.1))
    x = np.ones((2, 3), np.float32)
    first, second = ts.mse(state.model(x), x), ts.mse(state.model(x) * 2, x)
    first.backward()
    state.step()  # changes the parameters that the second loss has read
    with pytest.raises(ts.LaunchError, match="TS356"):
        second.backward()


@ts.function
def cubed(x: Tensor["N", f64]):
    return x * x * x


@cubed.vjp
def cubed_back(result, cotangent, x):
    return 3 * x * x * cotangent


@ts.function
def wave(x: Tensor["N", f64]):
    return ts.sin(x)


@wave.jvp
def wave_ahead(result, tangents, x):
    return tangents[0] * ts.cos(x)


def test_05_rules_in_a_loop_under_remat():
    def f(x):
        part = ts.remat(lambda y: ts.tanh(cubed(y) + wave(x)))
        y = x
        for _ in ts.range(4):
            y = part(y) * 0.9
        return ts.sum(y * y)

    def theirs(x):
        y = x
        for _ in range(4):
            y = jnp.tanh(y**3 + jnp.sin(x)) * 0.9
        return jnp.sum(y * y)

    check(f, X, eager=False, **peer(jax, theirs, X))


WEIGHTS = np.array([1.0, 2.0, 3.0])


def test_11_closures_and_globals():
    """A closure over what is differentiated, over a tuple of arrays, and over a global array that changes."""
    batch = (X * 2, X * 3)

    def f(x):
        first, second = batch
        inner = ts.grad(lambda w: ts.sum(w * w * x * first))(x)
        return ts.sum(inner * second) + ts.sum(x * WEIGHTS)

    wanted = peer(jax, lambda x: jnp.sum(2 * x * x * batch[0] * batch[1]) + jnp.sum(x * WEIGHTS), X)
    check(f, X, eager=False, **wanted)
    gradient = ts.grad(lambda x: ts.sum(x * WEIGHTS))
    before = gradient(X)
    WEIGHTS[0] = 7
    np.testing.assert_array_equal(gradient(X) - before, [6, 0, 0])


class Twice(nn.Module):
    first: nn.Linear
    second: nn.Linear

    def __call__(self, x):
        return self.second(ts.tanh(self.first(x)))


def test_11_tied_weights():
    """One layer at two places: the parts of its gradient add up; an update that would separate them is refused."""
    layer, x = nn.Linear(3, 3, key=0), np.ones((2, 3), np.float32)
    tied = Twice(layer, layer)
    w, b = np.asarray(layer.weight), np.asarray(layer.bias)
    wanted = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w + b) @ w + b))(w)
    found = ts.grad(lambda m: ts.sum(m(x)))(tied)
    np.testing.assert_allclose(np.asarray(found.first.weight) + np.asarray(found.second.weight), wanted, rtol=1e-5)
    leaves = Twice(layer, layer).requires_grad_()
    ts.sum(leaves(x)).backward()
    np.testing.assert_allclose(leaves.first.weight.grad, wanted, rtol=1e-5)
    with pytest.raises(ts.LaunchError, match=r"TS362(?s:.)*first\.weight and second\.weight are one array"):
        ts.optimizers.SGD(0.1).init(tied)


def test_12_stop_gradient_in_remat_in_scan():
    def f(x, w=1.3):
        part = ts.remat(lambda c, v: ts.tanh(c * w + ts.stop_gradient(c) * v))
        return ts.sum(ts.square(ts.scan(lambda c, v: (part(c, v),) * 2, x[0] * 0.5, x)[1]))

    def theirs(x, w=1.3):
        step = jax.checkpoint(lambda c, v: jnp.tanh(c * w + jax.lax.stop_gradient(c) * v))
        return jnp.sum(jax.lax.scan(lambda c, v: (step(c, v),) * 2, x[0] * 0.5, x)[1] ** 2)

    check(f, X, eager=False, **peer(jax, theirs, X))


def test_12_frozen_groups_do_no_work():
    model, x = Twice(nn.Linear(64, 64, key=0), nn.Linear(64, 4, key=1)), np.ones((8, 64), np.float32)
    frozen = ts.optimizers.Group(lambda name, p: name.startswith("first"), frozen=True)

    @ts.function
    def step(model: Twice, state, x: Tensor["B", "D", f32]):
        _, gradient = ts.value_and_grad(lambda m: ts.mean(ts.square(m(x))))(model)
        return opt.update(model, gradient, state)

    products = {}
    for groups in ((), (frozen,)):
        opt = ts.optimizers.AdamW(1e-2, groups=groups)
        state = opt.init(model)
        changed, _ = step(model, state, x)
        products[len(groups)] = ts.compile(step, arguments=[model, state, x]).ir("graph").count("= contract(")
        assert np.array_equal(changed.first.weight, model.first.weight) == bool(groups)
        assert not np.array_equal(changed.second.weight, model.second.weight)
    assert products[1] <= products[0] - 2  # neither the weight's gradient nor what leads to it


def test_13_vmap_of_branches_loops_and_randomness():
    xs = np.array([4.0, -3, 0, 9])
    side = lambda x: ts.sqrt(x) * 2 if x > 0 else x * x  # noqa: E731
    bent = direction(xs) * [-0.5 * 4**-1.5, 2, 2, -0.5 * 9**-1.5]
    check(lambda x: ts.sum(ts.vmap(side)(x)), xs, first=[0.5, -6, 0, 1 / 3], second=bent, eager=False)

    def shrunk(x):
        y = x
        while ts.abs(y) > 0.1:
            y = y * 0.5 * ts.cos(x)
        return y

    starts = np.array([0.05, 0.3, 1.0, 5.0])  # no round, one, and several
    theirs = lambda x: jax.lax.while_loop(lambda y: jnp.abs(y) > 0.1, lambda y: y * 0.5 * jnp.cos(x), x)  # noqa: E731
    with jax.enable_x64(True):
        wanted = [float(jax.jvp(theirs, (x,), (1.0,))[1]) for x in starts]
    check(lambda x: ts.sum(ts.vmap(shrunk)(x)), starts, first=wanted, eager=False)

    keys = np.array([1, 2, 1])
    factors = [np.asarray(ts.function(lambda k: ts.normal(k, ()))(k), float) for k in keys]
    noisy = lambda x: ts.sum(ts.vmap(lambda x, k: x * x * ts.normal(k, ()))(x, keys))  # noqa: E731
    np.testing.assert_allclose(ts.grad(noisy)(X), 2 * X * factors, rtol=1e-6)


class Count(ts.StatefulObject):
    n: Tensor[()]

    @ts.effect("update")
    def add(self, x):
        self.n = self.n + x


def test_13_effects_of_the_side_that_is_taken():
    @ts.function
    def step(state: Count, x: Tensor["N", f64]):
        def loss(x):
            if ts.sum(x) > 0:
                state.add(1.0)
                y = x * 2
            else:
                y = x * x
            return ts.sum(y)

        return ts.grad(loss)(x)

    state = Count(ts.zeros((), ts.f64))
    np.testing.assert_allclose(step(state, X), [2, 2, 2])
    np.testing.assert_allclose(step(state, -X), -2 * X)
    assert float(state.n) == 1

    @ts.function
    def mapped(state: Count, x: Tensor["N", f64]):
        def one(v):
            state.add(v)
            return v

        return ts.vmap(one)(x)

    with pytest.raises(ts.CompileError, match=r"TS102(?s:.)*changed by a function that a transform runs"):
        mapped(state, X)
    assert float(state.n) == 1


def test_14_randomness_under_every_budget():
    """Dropout and stochastic rounding draw the same again, in both orders."""
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((2, 16, 16)).astype(np.float32) / 4, rng.standard_normal((32, 16)).astype(np.float32)

    def block(w, h, key):
        rounded = ts.stochastic_cast(ts.gelu(h @ w), ts.bf16, 5).to(f32)
        return h + ts.dropout(rounded, key, p=0.3)

    first, second = set(), set()
    for part in (lambda f: f, ts.remat, lambda f: ts.remat(f, memory="100kB")):

        def loss(w, part=part):
            h = x
            for i in range(2):
                h = part(block)(w[i], h, i)
            return ts.mean(ts.square(h))

        first.add(np.asarray(ts.grad(loss)(w)).tobytes())
        if part is ts.remat or not second:
            second.add(np.asarray(ts.hvp(loss, (w,), (w,))).tobytes())
    assert len(first) == len(second) == 1


ROWS = np.tril(np.ones((5, 5), bool), -1)
SEQUENCES = np.array([True, False])[:, None, None, None].repeat(5, -1)
MASKS = {"a row": ROWS, "all": np.full((5, 5), -np.inf), "keys of one sequence": SEQUENCES}


@pytest.mark.parametrize("name", MASKS)
def test_15_rows_that_see_nothing(name):
    mask, rng = MASKS[name], np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 2, 5, 4)) for _ in range(3))

    def theirs(q):
        scores = q @ k.swapaxes(-1, -2) / 2
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
        none = jnp.all(scores == -jnp.inf, -1, keepdims=True)
        weights = jnp.where(none, 0, jax.nn.softmax(jnp.where(none, 0, scores), -1))
        return jnp.sum(jnp.sin(weights @ v))

    wanted = peer(jax, theirs, q)
    check(lambda q: ts.sum(ts.sin(ts.attention(q, k, v, mask=mask))), q, rtol=1e-8, first=wanted["first"])
    if name == "a row":  # written out, with where around what is undefined
        turned = k.swapaxes(-1, -2).copy()

        def written(q):
            weights = ts.softmax(ts.where(mask, q @ turned / 2, -np.inf))
            return ts.sum(ts.sin(ts.where(mask, weights, 0) @ v))

        np.testing.assert_allclose(ts.grad(written)(q), wanted["first"], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("tokens", [6, 0])
def test_15_experts_without_tokens(tokens):
    x = np.zeros((tokens, 8), np.float32)
    x[:, :1] = 1  # all tokens are alike, so that one expert gets them
    layer = nn.MixtureOfExperts(8, 16, 4, key=0, k=1, capacity=None)
    value = layer(x)
    pick = (lambda m: m(x)[0]) if isinstance(value, tuple) else (lambda m: m(x))
    found = ts.grad(lambda m: ts.sum(ts.square(pick(m))))(layer)
    used = np.abs(np.asarray(found.up)).sum((1, 2))
    assert np.isfinite(used).all() and np.count_nonzero(used) == (tokens > 0)
    assert all(np.isfinite(np.asarray(p)).all() for p in found.parameters())
