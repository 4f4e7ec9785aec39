"""Calls of functions keep what `backward()` reads: nothing of the forward pass runs twice, and all bits are those of
`ts.value_and_grad`."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, nn
from tessera.errors import CompileError, LaunchError
from tessera.optimizers import SGD, TrainingState
from tessera.runtime.arrays.versions import watched
from tessera.runtime.eager import function_calls, tape


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaf(*shape, seed=0):
    return ts.Tensor(array(*shape, seed=seed), requires_grad=True)


@pytest.fixture
def programs(monkeypatch):
    """The programs of `backward()`, with what they were called with."""
    seen = []

    class Text(tape._Text):
        def program(self):
            seen.append((super().program().pullback, tuple(self.values)))
            return tape.RecordedProgram(seen[-1][0], "", ())

    monkeypatch.setattr(tape, "_Text", Text)
    return seen


def count(fn, args, *names):
    graph = ts.compile(fn, arguments=args).lowered.graph
    return sum(op.name.removeprefix("graph.") in names for op in graph.walk())


COSTLY = "contract", "attention", "attention_forward", "convolution", "cholesky", "launch"


def chain(w, x):
    return ts.mean(ts.square(ts.layer_norm(ts.gelu(x @ w)) @ w))


def attended(w, x):
    return ts.mean(ts.square(ts.attention(x @ w, x, x)))


def written(w, x):
    return ts.mean(ts.square(ts.softmax(x @ w @ x.T) @ x))


def masked(w, x):
    mask = ts.arange(4)[:, None] >= ts.arange(4)
    return ts.mean(ts.square(ts.attention(x @ w, x, x, mask=mask, softcap=3.0)))


def looped(w, x):
    h = x @ w
    for _ in ts.range(5):
        h = ts.tanh(h @ w)
    return ts.sum(ts.square(h @ w))


def branched(w, x):
    h = x @ w
    if ts.sum(h) > 0:
        y = h @ w
    else:
        y = ts.exp(h) @ w
    return ts.sum(ts.square(y @ w))


@ts.function
def halves(x: Tensor["N", "D"], w: Tensor["D", "D"]):
    return ts.gelu(x @ w), ts.sum(x @ w, axis=0)


def nested(w, x):
    a, b = halves(x, w)
    c, d = halves(a, w)
    return ts.sum(c * b) + ts.sum(d)


def random(w, x, key: ts.int64 = 3):
    return ts.mean(ts.square(ts.dropout(x @ w, key, p=0.5) @ w))


def factors(w, x):
    return ts.sum(ts.square(x @ ts.linalg.inv(w @ w.T + 3.0 * ts.eye(8))))


def waves(w, x):
    return ts.sum(ts.abs(ts.fft.fft(x @ w)))


def chosen(w, x):
    return ts.sum(ts.square(ts.sort(x @ w)[:, :3] @ w[:3]))


@ts.kernel
def doubled(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] * 2


@doubled.vjp
def doubled_back(y, cotangent, x, before):
    return 2 * cotangent, None


def launched(w, x):
    y = ts.zeros((32,))
    doubled(ts.exp(x @ w).reshape(32), y)
    return ts.sum(ts.square(y))


PROGRAMS = (chain, attended, written, masked, looped, branched, nested, random, factors, waves, chosen, launched)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_nothing_runs_twice_and_all_bits_are_those_of_value_and_grad(f, programs):
    f = ts.function(f)
    w, x = leaf(8, 8), array(4, 8, seed=1)
    loss = f(w, x)
    loss.backward()
    value, wanted = ts.value_and_grad(f)(w.detach(), x)
    assert loss.detach().numpy().tobytes() == value.numpy().tobytes()
    assert w.grad.numpy().tobytes() == wanted.numpy().tobytes()
    args = w.detach(), x
    ((back, given),) = programs
    both = count(ts.value_and_grad(f), args, *COSTLY)
    assert count(back, (given, ts.ones(())), *COSTLY) == both - count(f, args, *COSTLY)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.TransformerBlock(16, 4, key=0), (2, 6, 16)),
        (nn.LSTM(5, 4, key=0), (2, 3, 5)),
        (nn.Conv2d(3, 4, 3, key=0), (2, 3, 5, 5)),
        (nn.MLP(4, 8, key=0), (3, 4)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_modules_in_functions(model, shape, programs):
    x = array(*shape)

    @ts.function
    def loss(model, x):
        out = model(x)
        return ts.mean(ts.square(out[0] if isinstance(out, tuple) else out))

    value, gradient = ts.value_and_grad(loss)(model, x)
    both, forward = (count(f, (model, x), *COSTLY) for f in (ts.value_and_grad(loss), loss))
    made = loss(model.requires_grad_(), x)
    made.backward()
    assert made.detach().numpy().tobytes() == value.numpy().tobytes()
    for name, p in model.named_parameters().items():
        assert p.grad.numpy().tobytes() == np.asarray(gradient.named_parameters()[name]).tobytes(), name
    ((back, given),) = programs
    assert count(back, (given, ts.ones(())), *COSTLY) == both - forward


def test_programs_have_the_gradients_of_torch():
    torch = pytest.importorskip("torch")
    w, x = array(6, 6), array(5, 6, seed=1)

    def layer(m, w, x):
        h = x @ w
        return m.tanh(h) @ w.T, h.sum(0)

    def loss(m, layer, w, x):
        a, b = layer(w, x)
        c, d = layer(w, a * b)
        return (m.exp(-c * c) * d).mean() + (b * b).sum()

    ours, theirs = ts.Tensor(w, requires_grad=True), torch.tensor(w, requires_grad=True)
    loss(ts, ts.function(lambda w, x: layer(ts, w, x)), ours, x).backward()
    loss(torch, lambda w, x: layer(torch, w, x), theirs, torch.tensor(x)).backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=2e-4, atol=1e-5)


def test_what_is_excluded_has_gradient_zero_across_functions():
    """A mask of the caller reaches into the function, where the rules of operators divide by zero."""
    root = ts.function(lambda x: ts.sqrt(x * x))
    x = ts.Tensor([0.0, 4.0], requires_grad=True)
    ts.where(x > 0, root(x), 0).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_results_that_have_no_gradient_and_results_beside():
    @ts.function
    def both(w: Tensor["N", "N"]):
        h = w @ w
        return ts.sum(ts.square(h)), {"best": ts.argmax(h, axis=1), "hidden": h.reshape(9)}

    w = leaf(3, 3)
    loss, more = both(w)
    assert not more["best"].requires_grad and more["hidden"].requires_grad
    (loss + more["hidden"].sum()).backward()

    def total(w):
        loss, more = both(w)
        return loss + ts.sum(more["hidden"])

    wanted = ts.grad(total)(w.detach())
    assert w.grad.numpy().tobytes() == wanted.numpy().tobytes()


def test_a_result_that_is_changed_in_place_leaves_what_was_kept():
    @ts.function
    def parts(w: Tensor["N", "N"]):
        h = w @ w
        return ts.sum(ts.square(h)), h, h.reshape(9), h.T

    for i in (1, 2, 3):
        w = leaf(3, 3)
        found = parts(w)
        found[i].detach()[:] = 100.0
        found[0].backward()
        assert w.grad.numpy().tobytes() == ts.grad(lambda w: ts.sum(ts.square(w @ w)))(w.detach()).numpy().tobytes()


def test_what_a_function_has_read_stays():
    held = ts.Tensor(array(3, 3, seed=2))
    product = ts.function(lambda w, x: ts.sum(ts.square(ts.tanh(w @ x) @ held)))
    for change in ("parameter", "argument", "closure"):
        w, x = leaf(3, 3), ts.Tensor(array(3, 3, seed=1))
        loss = product(w, x)
        with ts.no_grad():
            {"parameter": w, "argument": x, "closure": held}[change][0] = 7.0
        with pytest.raises(LaunchError, match="TS356"):
            loss.backward()
        assert w.grad is None


def test_a_captured_array_that_is_another_one_now_is_seen():
    held = ts.Tensor(array(3, 3, seed=2))
    product = ts.function(lambda w: ts.sum(ts.square(ts.tanh(w @ held) @ held)))
    w = leaf(3, 3)
    loss = product(w)
    held = ts.Tensor(array(3, 3, seed=3))
    with pytest.raises(LaunchError, match="TS356"):
        loss.backward()


def test_parameters_that_a_step_changed_are_seen():
    loss = ts.function(lambda model, x: ts.mse(model(x), x))
    state = TrainingState(nn.MLP(2, 4, key=0).requires_grad_(), SGD(0.1))
    x = array(3, 2)
    stale = loss(state.model, x)
    loss(state.model, x).backward()
    state.step()
    with pytest.raises(LaunchError, match="TS356"):
        stale.backward()


def test_backward_twice():
    f = ts.function(chain)
    w, x = leaf(8, 8), array(4, 8)
    loss = f(w, x)
    loss.backward(retain_graph=True)
    once = w.grad.numpy().copy()
    loss.backward()
    assert np.array_equal(w.grad.numpy(), once + once)
    with pytest.raises(LaunchError, match=r"TS356[\s\S]*retain_graph"):
        loss.backward()


@pytest.mark.usefixtures("young")
def test_what_is_kept_goes_with_the_result_or_with_backward():
    f = ts.function(chain)
    w, x = leaf(8, 8), array(4, 8)
    gc.collect()
    before = len(watched)
    loss = f(w, x)
    step = loss._tape[0].step
    assert step.kept.values and len(watched) > before
    loss.backward()
    assert step.kept is None
    del loss, step
    assert len(watched) == before
    loss = f(w, x)
    assert len(watched) > before
    del loss
    assert len(watched) == before


def test_other_numbers_need_no_new_program():
    @ts.function
    def noisy(w: Tensor["N", "N"], key: ts.int64, *, scale: f32):
        return ts.sum(ts.dropout(w @ w, key, p=0.5)) * scale

    w, made = leaf(4, 4), set()
    for key in range(3):
        w.grad = None
        noisy(w, key, scale=key + 0.5).backward()
        made.add(len(tape._programs))
        wanted = ts.grad(lambda w, key: noisy(w, key, scale=key + 0.5))(w.detach(), key)
        assert w.grad.numpy().tobytes() == wanted.numpy().tobytes()
    assert len(made) == 1


def test_nothing_is_kept_where_nothing_is_recorded():
    f = ts.function(chain)
    w, x = leaf(8, 8), array(4, 8)
    with ts.no_grad():
        assert not f(w, x).requires_grad
    assert type(f(w.detach(), x)) is ts.Tensor
    assert function_calls.call(f.launcher, (w.detach(), x), f.launcher.sites) is NotImplemented


def test_what_ts_remat_does_not_save_is_not_kept():
    def part(w, x):
        return ts.gelu(ts.gelu(x @ w) @ w)

    x, kept = array(4, 8), {}
    wanted = ts.grad(lambda w: ts.mean(ts.square(part(w, x))))(array(8, 8))
    for name, inner in (("all", part), ("nothing", ts.remat(part)), ("products", ts.remat(part, ts.save.products))):
        w = leaf(8, 8)
        loss = ts.function(lambda w, x, inner=inner: ts.mean(ts.square(inner(w, x))))(w, x)
        kept[name] = len(loss._tape[0].step.kept.values)
        loss.backward()
        assert w.grad.numpy().tobytes() == wanted.tobytes()
    assert kept["nothing"] == 0 and kept["products"] == kept["all"] == 2


def test_sizes_that_stay_open():
    @ts.function(open_dims=("N",))
    def f(w: Tensor["D", "D"], x: Tensor["N", "D"]):
        return ts.mean(ts.square(ts.tanh(x @ w) @ w))

    for rows in (3, 5):
        w, x = leaf(4, 4), array(rows, 4)
        f(w, x).backward()
        np.testing.assert_allclose(w.grad.numpy(), ts.grad(f)(w.detach(), x).numpy(), rtol=1e-5)


def test_a_gradient_that_goes_by_a_rule_has_a_gradient():
    """The rule is that of the function, not of its gradient."""

    @ts.function
    def cubes(x: Tensor["N", f32]):
        return ts.sum(x**3)

    @cubes.vjp
    def five(result, cotangent, x):
        return cotangent * x * 5.0

    gradient = ts.grad(cubes)
    x = np.array([1.0, 2.0], np.float32)
    assert ts.grad(lambda x: ts.sum(gradient(x) * x))(x).tolist() == [10.0, 20.0]


def test_what_does_not_fit_is_said_of_the_function():
    with pytest.raises(LaunchError, match=r"TS208 in halves"):
        halves(leaf(4, 3), leaf(4, 4))


def test_what_has_no_derivative_is_said_by_backward():
    @ts.function
    def through(x: Tensor["N", f32]):
        y = ts.zeros_like(x)
        undefined(x, y)
        return ts.sum(y)

    loss = through(leaf(4))
    with pytest.raises(CompileError, match="TS355"):
        loss.backward()


@ts.kernel
def undefined(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] * 2
