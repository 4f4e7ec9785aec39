"""Optimizers against PyTorch over 100 steps from equal weights, and what surrounds their rules."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.optimizers import (
    EMA,
    LAMB,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    ClipNorm,
    ClipValue,
    Constant,
    Cosine,
    Exponential,
    Group,
    InverseSqrt,
    Joined,
    Linear,
    Lion,
    Muon,
    OneCycle,
    Polynomial,
    RMSprop,
    accumulate,
    base,
    chain,
    clip_grad_norm,
)
from tessera.optimizers.base import updated
from tests.conftest import require

torch = require("torch")
rng = np.random.default_rng(8)
X = rng.standard_normal((10, 4)).astype(np.float32)
Y = rng.standard_normal((10, 3)).astype(np.float32)


class Net(nn.Module):
    up: nn.Linear
    norm: nn.LayerNorm
    down: nn.Linear

    def __call__(self, x):
        return self.down(ts.tanh(self.norm(self.up(x))))


def net():
    return Net(nn.Linear(4, 6, key=0), nn.LayerNorm(6), nn.Linear(6, 3, key=1))


@ts.function
def step(model: Net, x: Tensor["B", "D"], y: Tensor["B", "K"]):
    return ts.value_and_grad(lambda model: ts.mse(model(x), y))(model)


def test_a_step_in_one_function_reads_and_writes_each_parameter_in_one_kernel():
    rule = AdamW(0.01)

    @ts.function
    def whole(model: Net, x: Tensor["B", "D"], y: Tensor["B", "K"], state):
        loss, gradient = ts.value_and_grad(lambda model: ts.mse(model(x), y))(model)
        return loss, rule.update(model, gradient, state)

    model = net()
    state = rule.init(model)
    compiled = ts.compile(whole, arguments=(model, X, Y, state), target="cpu")
    groups = [g for g in compiled.lowered.schedule.walk() if g.name == "schedule.group"]
    held = {n: [g for g in groups if any(f".{n}" in v.hint for v in g.operands)] for n in ("first", "second")}
    assert [len(found) for found in held.values()] == [len(state.moments)] * 2 and held["first"] == held["second"]
    loss, (changed, after) = compiled(model, X, Y, state)
    want, gradient = step(model, X, Y)
    same, its = rule.update(model, gradient, state)
    assert float(loss) == float(want) and float(after.norm) == float(its.norm)
    for name, p in weights(changed).items():
        np.testing.assert_array_equal(p, weights(same)[name])


def in_torch(p):
    h = torch.tensor(X, dtype=torch.float64) @ p["up.weight"] + p["up.bias"]
    h = torch.tanh(torch.nn.functional.layer_norm(h, (6,), p["norm.weight"], p["norm.bias"]))
    return (h @ p["down.weight"] + p["down.bias"] - torch.tensor(Y, dtype=torch.float64)).square().mean()


def weights(model):
    return {n: np.array(ts.asarray(p).numpy()) for n, p in model.named_parameters().items()}


O, L = torch.optim, torch.optim.lr_scheduler
RULES = {
    "sgd": (SGD(0.1), lambda p: O.SGD(p, 0.1)),
    "momentum": (SGD(0.05, 0.9), lambda p: O.SGD(p, 0.05, 0.9)),
    "nesterov": (
        SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda p: O.SGD(p, 0.05, 0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam": (Adam(0.01, weight_decay=0.1), lambda p: O.Adam(p, 0.01, weight_decay=0.1)),
    "adamw": (AdamW(0.01, betas=(0.8, 0.9), eps=1e-6), lambda p: O.AdamW(p, 0.01, (0.8, 0.9), 1e-6)),
    "rmsprop": (
        RMSprop(0.003, eps=1e-4, weight_decay=0.1),  # near a gradient of 0, steps grow rounding errors
        lambda p: O.RMSprop(p, 0.003, eps=1e-4, weight_decay=0.1),
    ),
    "rmsprop, all": (
        RMSprop(0.003, 0.9, momentum=0.5, centered=True, eps=1e-3),
        lambda p: O.RMSprop(p, 0.003, 0.9, momentum=0.5, centered=True, eps=1e-3),
    ),
    "adagrad": (Adagrad(0.1, 0.01, weight_decay=0.1), lambda p: O.Adagrad(p, 0.1, 0.01, weight_decay=0.1)),
}


@pytest.mark.parametrize("rule", RULES)
def test_100_steps_are_pytorchs(rule):
    opt, make = RULES[rule]
    model, x, y = net().to(ts.f64), X.astype(np.float64), Y.astype(np.float64)  # in f32, Adam follows rounding errors
    named = {n: torch.tensor(p, requires_grad=True) for n, p in weights(model).items()}
    theirs, state = make(list(named.values())), opt.init(model)
    for _ in range(100):
        loss, gradient = step(model, x, y)
        model, state = opt.update(model, gradient, state)
        theirs.zero_grad()
        expected = in_torch(named)
        expected.backward()
        theirs.step()
        assert float(loss) == pytest.approx(expected.item(), rel=1e-7)
    for name, found in weights(model).items():
        np.testing.assert_allclose(found, named[name].detach(), rtol=1e-6, atol=1e-8, err_msg=name)
    assert int(state.step) == 100 and state.report.applied


def one_step(opt, arrays, gradient, steps=1, **more):
    state = opt.init(arrays)
    for _ in range(steps):
        arrays, state = opt.update(arrays, gradient, state, **more)
    return arrays, state


P = {"w": np.array([[1.0, -2.0]], np.float32), "b": np.array([3.0], np.float32)}
G = {"w": np.array([[0.3, -0.4]], np.float32), "b": np.array([0.0], np.float32)}


def test_lamb():
    found, _ = one_step(LAMB(0.1, weight_decay=0.5), P, G, 2)
    for name, p in P.items():
        g, first, second = G[name], 0.0, 0.0
        for t in (1, 2):
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
            u = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-6) + 0.5 * p
            p = p - 0.1 * np.linalg.norm(p) / np.linalg.norm(u) * u
        np.testing.assert_allclose(found[name], p, rtol=1e-5)
    still, _ = one_step(LAMB(0.1, weight_decay=0.0), {"p": np.zeros(2, np.float32)}, {"p": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(still["p"], np.zeros(2))


def test_lion():
    found, state = one_step(Lion(0.1, weight_decay=0.5), P, G, 2)
    first = {n: 0.01 * g for n, g in G.items()}
    wanted = {n: p - 0.1 * (np.sign(G[n]) + 0.5 * p) for n, p in P.items()}
    wanted = {n: p - 0.1 * (np.sign(0.9 * first[n] + 0.1 * G[n]) + 0.5 * p) for n, p in wanted.items()}
    for n in P:
        np.testing.assert_allclose(found[n], wanted[n], rtol=1e-6)
        np.testing.assert_allclose(state.moments[n]["first"], 0.99 * first[n] + 0.01 * G[n], rtol=1e-6)


def orthonormal(u):
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x.T if u.shape[0] > u.shape[1] else x


@pytest.mark.parametrize("shape", [(3, 5), (6, 3), (4, 4)])
def test_muon(shape):
    p, g = rng.standard_normal((2, *shape))
    opt = Muon(0.1, momentum=0.9, weight_decay=0.5)
    found, state = one_step(opt, {"w": p, "b": p[0]}, {"w": g, "b": g[0]}, 2)
    m, wanted = 0.0, p
    for _ in range(2):
        m = 0.9 * m + 0.1 * g
        way = orthonormal(0.1 * g + 0.9 * m)
        wanted = wanted * (1 - 0.05) - 0.1 * max(1, shape[0] / shape[1]) ** 0.5 * way
    np.testing.assert_allclose(found["w"], wanted, rtol=1e-9)
    assert np.linalg.svd(way)[1].min() > 0.6 and np.linalg.svd(way)[1].max() < 1.3
    adam, _ = one_step(AdamW(0.01, weight_decay=0.5), {"b": p[0]}, {"b": g[0]}, 2)
    np.testing.assert_allclose(found["b"], adam["b"], rtol=1e-9)
    assert set(state.moments["w"]) == {"momentum"} and set(state.moments["b"]) == {"first", "second"}


def test_muon_is_pytorchs():
    """To the precision of bf16, in which PyTorch iterates."""
    p, g = rng.standard_normal((2, 6, 4)).astype(np.float32)
    theirs = torch.tensor(p, requires_grad=True)
    theirs.grad = torch.tensor(g)
    O.Muon([theirs], 0.1, weight_decay=0.1, adjust_lr_fn="original").step()
    found, _ = one_step(Muon(0.1, weight_decay=0.1), {"w": p}, {"w": g})
    np.testing.assert_allclose(found["w"], theirs.detach(), atol=0.1 * 0.05)


@pytest.mark.parametrize("target", ["reference", "emulator:sm_90a"])
def test_other_targets_give_the_same(target, monkeypatch):
    opt = AdamW(0.1, clip=0.2, weight_decay=0.1)
    found, _ = one_step(opt, P, G, 3)
    monkeypatch.setenv("TESSERA_TARGET", target)
    wanted, _ = one_step(opt, P, G, 3)
    for n in P:
        np.testing.assert_allclose(found[n], wanted[n], rtol=1e-6)


def test_another_rate_needs_no_new_code():
    one_step(SGD(0.1), P, G)
    built = updated.launcher.last.key
    for opt, more, rate in ((SGD(0.25), {}, 0.25), (SGD(0.1), {"lr": 0.5}, 0.5)):
        found, _ = one_step(opt, P, G, **more)
        np.testing.assert_allclose(found["w"], P["w"] - rate * G["w"], rtol=1e-6)
        assert updated.launcher.last.key == built
    schedule = Linear(1.0, 0.0, 4)
    found, _ = one_step(SGD(schedule), P, G)
    built = updated.launcher.last.key
    found, _ = one_step(SGD(schedule), P, G, 6)
    np.testing.assert_allclose(found["w"], P["w"] - (1 + 0.75 + 0.5 + 0.25) * G["w"], rtol=1e-6)
    assert updated.launcher.last.key == built


def test_schedules():
    cosine = Cosine(2.0, 10, warmup=4, end=1.0)
    wanted = [0.5, 1.0, 1.5, 2.0, 2.0, *(1.5 + 0.5 * math.cos(math.pi * i / 6) for i in range(1, 7)), 1.0]
    assert [float(cosine(np.float32(i))) for i in range(12)] == pytest.approx(wanted, rel=1e-6)
    assert [float(Constant(3.0, 2)(np.float32(i))) for i in range(3)] == [1.5, 3.0, 3.0]
    assert [float(Linear(0.0, 1.0, 2)(np.float32(i))) for i in range(4)] == [0.0, 0.5, 1.0, 1.0]


STEPS = 12
SCHEDULES = {
    "stairs": (Exponential(2.0, 0.5, 3, stairs=True), lambda o: L.StepLR(o, 3, 0.5)),
    "exponential": (Exponential(2.0, 0.9), lambda o: L.ExponentialLR(o, 0.9)),
    "polynomial": (Polynomial(2.0, 0.0, 8, 3.0), lambda o: L.PolynomialLR(o, 8, 3.0)),
    "one cycle": (OneCycle(2.0, STEPS), lambda o: L.OneCycleLR(o, 2.0, STEPS)),
    "one cycle, short rise": (
        OneCycle(2.0, STEPS, 0.5, 10.0, 5.0),
        lambda o: L.OneCycleLR(o, 2.0, STEPS, pct_start=0.5, div_factor=10.0, final_div_factor=5.0),
    ),
    "joined": (
        Joined((Constant(1.0), Exponential(2.0, 0.5), Constant(0.25)), at=(3, 7)),
        lambda o: L.SequentialLR(
            o, [L.ConstantLR(o, 0.5, 99), L.ExponentialLR(o, 0.5), L.ConstantLR(o, 0.125, 99)], [3, 7]
        ),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of its own order of calls
def test_schedules_are_pytorchs(name):
    schedule, make = SCHEDULES[name]
    optimizer = O.SGD([torch.zeros(1)], 2.0)
    theirs, wanted = make(optimizer), []
    for _ in range(STEPS):
        wanted.append(theirs.get_last_lr()[0])
        optimizer.step()
        if len(wanted) < STEPS:
            theirs.step()
    assert [float(schedule(np.float64(i))) for i in range(STEPS)] == pytest.approx(wanted, rel=1e-12)
    found, _ = one_step(SGD(schedule), P, G, STEPS)
    np.testing.assert_allclose(found["w"], P["w"] - sum(wanted) * G["w"], rtol=1e-5)


def test_the_rate_falls_with_the_square_root_after_the_warmup():
    schedule = InverseSqrt(2.0, 4)
    assert [float(schedule(np.float64(i))) for i in (0, 1, 3, 15, 63)] == pytest.approx([0.5, 1.0, 2.0, 1.0, 0.5])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Joined((Constant(1.0),), at=(3,)),
        lambda: Joined((Constant(1.0), Constant(2.0), Constant(3.0)), at=(5, 3)),
        lambda: Exponential(1.0, 0.5, every=0),
        lambda: InverseSqrt(1.0, 0),
        lambda: OneCycle(1.0, 1),
        lambda: Polynomial(1.0, 0.0, 0),
    ],
)
def test_schedules_without_steps_are_refused(make):
    with pytest.raises(ts.LaunchError, match="TS105"):
        make()


def test_a_chain_changes_gradients_before_the_rule():
    """As Optax composes: the norm first, then each element, then what somebody wrote."""
    opt = chain(ClipNorm(0.1), ClipValue(0.07), lambda g, p: g + 0.01 * p, SGD(1.0))
    found, _ = one_step(opt, P, G)
    for name, p in P.items():
        g = np.clip(G[name] * 0.1 / (0.5 + 1e-6), -0.07, 0.07) + 0.01 * p
        np.testing.assert_allclose(found[name], p - g, rtol=1e-5)
    assert chain(ClipNorm(1.0), AdamW(1e-3)) == AdamW(1e-3, clip=1.0)
    assert chain(ClipValue(1.0), SGD(1.0, transforms=ClipValue(2.0))).transforms == (ClipValue(1.0), ClipValue(2.0))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((), "the last part is an optimizer"),
        ((SGD(0.1), ClipValue(1.0)), "the last part is an optimizer"),
        ((ClipValue(1.0), ClipNorm(1.0), SGD(0.1)), "stands first"),
        ((0.5, SGD(0.1)), "is not a function"),
    ],
)
def test_chains_of_something_else_are_refused(parts, said):
    with pytest.raises(ts.LaunchError, match=f"TS105(.|\n)*{said}"):
        chain(*parts)


def test_clipping():
    found, state = one_step(SGD(1.0, clip=0.1), P, G)
    np.testing.assert_allclose(found["w"], P["w"] - G["w"] * 0.2, rtol=1e-5)
    assert state.report.grad_norm == pytest.approx(0.5)
    clipped, norm = clip_grad_norm(G, 0.1)
    np.testing.assert_allclose(clipped["w"], G["w"] * 0.2, rtol=1e-5)
    assert float(norm) == pytest.approx(0.5) and np.array_equal(clip_grad_norm(G, 1.0)[0]["w"], G["w"])


def test_clipping_what_backward_gave():
    """As PyTorch's `clip_grad_norm_`; the parameters themselves stay."""
    model, x = nn.Linear(2, 2, key=0).requires_grad_(), np.array([[3.0, -4.0]], np.float32)
    model(x).sum().backward()
    found, before = [torch.nn.Parameter(torch.tensor(p.detach().numpy())) for p in model.parameters()], model.weight
    for theirs, ours in zip(found, model.parameters(), strict=True):
        theirs.grad = torch.tensor(ours.grad.numpy())
    norm = torch.nn.utils.clip_grad_norm_(found, 0.5)
    same, ours = clip_grad_norm(model, 0.5)
    assert same is model and model.weight is before and float(ours) == pytest.approx(float(norm))
    for theirs, p in zip(found, model.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)
    model.zero_grad()
    for nothing, said in ((model, "no parameter has a gradient"), ([], "list has no gradient to scale down")):
        with pytest.raises(ts.LaunchError, match=f"(?s)TS362.*{said}"):
            clip_grad_norm(nothing, 0.5)


def test_parameters_of_f64_are_clipped_added_and_averaged_in_f64():
    a, b = (np.random.default_rng(i).standard_normal((3, 4)) for i in range(2))
    norm = np.linalg.norm(b)
    same = partial(np.testing.assert_allclose, rtol=1e-14)
    clipped, found = clip_grad_norm([b], 0.1)
    same(clipped[0], b * 0.1 / (norm + 1e-6))
    same(found, norm)
    same(accumulate([a], [b], 1 / 3)[0], a + b / 3)
    same(ts.optimizers.EMA(0.9).update([a], [b])[0], 0.9 * a + 0.1 * b)
    opt = SGD(0.1, clip=0.5)
    same(opt.update([a], [b], opt.init([a]))[0][0], a - 0.1 * b * 0.5 / (norm + 1e-6))


def test_arrays_of_other_shapes_are_not_added():
    """One element for all would be spread."""
    one, all_ = {"w": np.ones((3, 1), np.float32)}, {"w": np.ones((3, 4), np.float32)}
    for add in (accumulate, ts.optimizers.EMA(0.9).update):
        with pytest.raises(ts.LaunchError, match=r"(?s)TS362.*w is \[3, 4\], and in the (sum|average) \[3, 1\]"):
            add(one, all_)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    opt = Adam(0.1, loss_scale="dynamic")
    scaled = {n: g * 65536 for n, g in G.items()}
    arrays, state = one_step(opt, P, scaled)
    wrong = {**scaled, "w": np.array([[bad, 1.0]], np.float32)}
    after, skipped = opt.update(arrays, wrong, state)
    for n in P:
        assert np.array_equal(after[n], arrays[n])
        assert all(np.array_equal(a, state.moments[n][k]) for k, a in skipped.moments[n].items())
    report = skipped.report
    assert not report.applied and "the gradient of w holds" in report.reason and int(skipped.step) == 1
    assert ("nan" in report.reason) == math.isnan(bad) and report.scale == 32768
    again, state = opt.update(after, {n: g * 32768 for n, g in G.items()}, skipped)
    assert state.report.applied and int(state.step) == 2
    wanted, _ = one_step(Adam(0.1), P, G, 2)
    np.testing.assert_allclose(again["w"], wanted["w"], rtol=1e-6)


def test_a_dynamic_loss_scale_grows(monkeypatch):
    opt = SGD(0.0, loss_scale="dynamic")
    state = opt.init(P)
    state.good = np.array(1998, np.int32)
    arrays, state = opt.update(P, G, state)
    assert float(state.scale) == 65536
    _, state = opt.update(arrays, G, state)
    assert float(state.scale) == 131072 and int(state.good) == 0


def test_groups():
    model = net()
    _, gradient = step(model, X, Y)
    groups = (
        Group(lambda name, p: name.startswith("down"), frozen=True),
        Group(lambda name, p: len(p.shape) < 2, weight_decay=0.0, lr_scale=2.0),
    )
    opt = SGD(0.1, weight_decay=0.5, groups=groups)
    state = opt.init(model)
    after, state = opt.update(model, gradient, state)
    p, g, found = weights(model), weights(gradient), weights(after)
    np.testing.assert_allclose(found["up.weight"], p["up.weight"] - 0.1 * (g["up.weight"] + 0.5 * p["up.weight"]), 1e-5)
    np.testing.assert_allclose(found["up.bias"], p["up.bias"] - 0.2 * g["up.bias"], 1e-5)
    assert after.down.weight is model.down.weight and "down.weight" not in state.moments


@pytest.mark.parametrize("rate", [0.05, ts.optimizers.Constant(0.05), lambda step: 0.05 + 0.0 * step])
def test_a_rate_of_a_group_replaces_the_optimizers(rate):
    model = net()
    _, gradient = step(model, X, Y)
    named = (
        Group(lambda name, p: name == "up.weight", lr=rate),
        Group(lambda name, p: name == "up.bias", lr=rate, lr_scale=3.0),
    )
    p, g = weights(model), weights(gradient)
    falling = [(ts.optimizers.Linear(0.1, 0.0, 10), None, 0.1)] if callable(rate) else []
    for own, given, others in [(0.1, None, 0.1), (0.1, 0.2, 0.2), *falling]:
        opt = SGD(own, groups=named)
        found = weights(opt.update(model, gradient, opt.init(model), given)[0])
        for name, lr in {"up.weight": 0.05, "up.bias": 0.15, "down.weight": others}.items():
            np.testing.assert_allclose(found[name], p[name] - lr * g[name], 1e-5)


@pytest.mark.parametrize("schedule", [ts.optimizers.Constant(0.1), lambda step: 0.1])
def test_a_schedule_may_give_a_number(schedule):
    found, _ = one_step(SGD(schedule), P, G)
    np.testing.assert_array_equal(found["w"], one_step(SGD(0.1), P, G)[0]["w"])


def test_a_number_in_a_group_is_no_rate_beside_a_function_of_the_step():
    with pytest.raises(ts.LaunchError, match=r"that of a group the number 0\.01: give the group a function"):
        AdamW(ts.optimizers.Cosine(1e-3, steps=10), groups=Group(lambda name, p: True, lr=0.01))


def test_dtypes():
    half = {n: ts.asarray(p).astype(ts.bf16) for n, p in P.items()}
    found, state = one_step(AdamW(0.1), half, {n: ts.asarray(g).astype(ts.bf16) for n, g in G.items()})
    assert found["w"].dtype == ts.bf16 and state.moments["w"]["first"].dtype == ts.f32
    wide, state = one_step(AdamW(0.1), {n: p.astype(np.float64) for n, p in P.items()}, G)
    assert wide["w"].dtype == np.float64 and state.moments["w"]["first"].dtype == np.float64


def test_what_does_not_belong_is_refused():
    model, opt = net(), Adam(0.1)
    _, gradient = step(model, X, Y)
    state = opt.init(model)
    other = model.replace(up=nn.Linear(5, 6, key=0))
    with pytest.raises(ts.LaunchError, match=r"(?s)TS362.*up.weight is \[5, 6\] and its gradient \[4, 6\]"):
        opt.update(other, gradient, state)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS362.*the gradient has no down.bias"):
        opt.update(model, gradient.replace(down=nn.Linear(6, 3, key=0, bias=False)), state)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS362.*the state has no norm.weight"):
        opt.update(model, gradient, opt.init(model.replace(norm=ts.tanh)))
    with pytest.raises(ts.LaunchError, match=r"(?s)TS362.*up.weight and down.weight are one array"):
        opt.init(model.replace(down=model.up))
    with pytest.raises(ValueError, match="loss_scale"):
        Adam(0.1, loss_scale="static")


def test_accumulation_is_the_gradient_of_the_whole():
    model, total = net(), None
    _, whole = step(model, X, Y)
    for part in range(2):
        _, gradient = step(model, X[part::2], Y[part::2])
        total = accumulate(total, gradient, 1 / 2)
    assert type(total) is Net
    for name, found in weights(total).items():
        np.testing.assert_allclose(found, weights(whole)[name], rtol=1e-4, atol=1e-6)


def test_averages():
    ema, model = EMA(0.9), net()
    moved = model.replace(up=nn.Linear(4, 6, key=7))
    found = ema.update(ema.update(model, moved), moved)
    a, b = weights(model)["up.weight"], weights(moved)["up.weight"]
    np.testing.assert_allclose(found.up.weight, 0.81 * a + 0.19 * b, rtol=1e-4, atol=1e-6)


def test_an_update_of_many_arrays_runs_without_python_in_between():
    """Parameters, gradients, two moments of each, their new values: more than 80 arrays."""
    model = {f"p{i}": ts.ones((3,)) for i in range(12)}
    opt = AdamW(0.1)
    changed, _ = opt.update(model, model, opt.init(model))
    assert all(p.tolist() == pytest.approx([0.899] * 3) for p in changed.values())
    assert base.updated.launcher.ready.prepared.built.code.executable().fast() is not None


def test_what_is_not_a_state_or_a_rate():
    model, rule = nn.Linear(2, 2, key=0), ts.optimizers.AdamW(1e-3)
    with pytest.raises(
        ts.LaunchError, match=r"(?s)TS362.*the state is a Linear: .*opt\.update\(model, gradient, state\)"
    ):
        rule.update(model, rule.init(model), model)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*lr is a number of at least 0 or a function, not '1e-3'"):
        ts.optimizers.AdamW("1e-3")


def test_inside_of_functions_by_any_name():
    """`accumulate` is also the name of a decorator, which it must not be taken for."""

    @ts.function
    def half(gradient: nn.Linear, step: ts.f32):
        first = ts.optimizers.accumulate(None, gradient, 0.25)
        both, norm = ts.optimizers.clip_grad_norm(accumulate(first, gradient, 0.25), 1e9)
        return both, norm, ts.optimizers.Cosine(1e-3, 10)(step)

    gradient = nn.Linear(2, 2, key=0)
    found, norm, rate = half(gradient, 0.0)
    np.testing.assert_allclose(found.weight.numpy(), gradient.weight.numpy() / 2, rtol=1e-6)
    assert float(norm) > 0 and float(rate) == pytest.approx(1e-3)
    with pytest.raises(ts.CompileError, match="lr is a number"):
        ts.function(lambda model, x: ts.optimizers.SGD(model.parameters()).update(model, model, None))(gradient, 1.0)


def test_gradients_are_added_by_name():
    a = {"a": np.full(2, 1.0, np.float32), "b": np.full(2, 10.0, np.float32)}
    b = {"b": np.full(2, 20.0, np.float32), "a": np.full(2, 2.0, np.float32)}
    found = ts.optimizers.accumulate(a, b)
    with ts.accumulate_gradients(steps=2) as total:
        total.add(a)
        total.add(b)
    average = ts.optimizers.EMA(0.5).update(a, b)
    for name, of in (("a", 1.0), ("b", 10.0)):
        assert found[name].tolist() == [3 * of] * 2
        assert total.gradient[name].tolist() == average[name].tolist() == [1.5 * of] * 2
    for f in (ts.optimizers.accumulate, ts.optimizers.EMA(0.5).update):
        with pytest.raises(ts.TesseraError, match=r"TS362(.|\n)*has no c"):
            f(a, {**b, "c": b["a"]})
        with pytest.raises(ts.TesseraError, match=r"TS362(.|\n)*has b"):
            f(a, {"a": b["a"]})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: AdamW(-1e-3), "AdamW: lr is a number of at least 0 or a function, not -0.001"),
        (lambda: AdamW(math.nan), "AdamW: lr is a number of at least 0 or a function, not nan"),
        (
            lambda: AdamW(1e-3, betas=(0.9, 1.5)),
            r"betas is a tuple of 2, each a number of at least 0 and less than 1, not \(0.9, 1.5\)",
        ),
        (lambda: SGD(0.1, momentum=-0.9), "momentum is a number of at least 0"),
        (lambda: Lion(1e-4, weight_decay=-0.1), "weight_decay is a number of at least 0"),
        (lambda: SGD(0.1, clip=-1.0), "clip is a number of at least 0 or None"),
        (lambda: SGD(0.1, loss_scale=0.0), "loss_scale is a number of more than 0 or 'dynamic'"),
        (lambda: SGD(0.1, groups=Group(lambda name, p: True, lr=-1.0)), "Group: lr is a number of at least 0"),
        (lambda: ts.optimizers.EMA(2.0), "decay is a number from 0 to 1"),
        (lambda: ts.optimizers.Cosine(1e-3, steps=10, warmup=20), "steps is at least 20, those of the warmup"),
        (lambda: ts.optimizers.Linear(1e-3, 0.0, steps=0), "steps is a whole number of at least 1"),
    ],
)
def test_settings_out_of_range(make, said):
    with pytest.raises(ts.LaunchError, match=f"TS105(.|\n)*{said}"):
        make()


def test_one_group_needs_no_tuple():
    frozen = AdamW(1e-2, groups=Group(lambda name, p: True, frozen=True))
    assert not frozen.init(nn.Linear(4, 4, key=0)).moments


def test_scalars_of_numpy_are_arrays_without_axes():
    """NumPy's arithmetic makes them of such arrays."""

    class Scaled(nn.Module):
        by: Tensor[ts.f32]
        weight: Tensor["D"]

        def __call__(self, x):
            return self.by * x * self.weight

    x = np.array([1.0, 2.0, 3.0], np.float32)
    gradient = ts.grad(lambda model: ts.sum(model(x)))
    model = Scaled(np.ones((), np.float32), x)
    halved = model.replace(by=model.by * np.float32(0.5))
    assert isinstance(halved.by, np.float32)
    for each in (halved, ts.tree_map(lambda a: a * np.float32(0.5), model)):
        found = gradient(each)
        assert found.by == x @ each.weight and gradient(each.replace(by=np.float32(3.0))).weight.tolist() == [3, 6, 9]
        rule = SGD(0.1)
        new, _ = rule.update(each, found, rule.init(each))
        assert np.isclose(new.by, each.by - 0.1 * found.by)
    rule, tree = SGD(0.1), {"a": np.float32(2.0)}
    assert np.isclose(rule.update(tree, {"a": np.float32(1.0)}, rule.init(tree))[0]["a"], 1.9)


@pytest.mark.parametrize("scale", [1 / np.sqrt(4), np.float32(0.5)], ids=["f64", "f32"])
def test_scalars_of_numpy_are_numbers_where_no_tensor_is_declared(scale):
    """As Python's numbers are: a scale that is computed with NumPy is not trained."""

    class Scaled(nn.Module):
        def __init__(self):
            self.weight, self.by = ts.ones((3,)), scale

        def forward(self, x):
            return self.by * x * self.weight

    x, model = np.ones((2, 3), np.float32), Scaled()
    assert [*model.named_parameters()] == ["weight"] and "by: 0.5" in repr(model)
    run = ts.train(model, SGD(0.1), lambda m, x: ts.sum(m(x)), [x], steps=1, live=False)
    assert np.allclose(run.model.weight, 0.9) and run.model.by == 0.5
