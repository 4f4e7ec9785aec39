"""Parameters in bf16: rounded at random they learn as in f32, rounded to nearest they stay where steps are small."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.optimizers import SGD, SOAP, Adafactor, Adam, AdamW, Lion, Muon, Shampoo

RULES = (SGD(0.1, 0.9), Adam(0.1), AdamW(0.1), Lion(0.1), Muon(0.1), Adafactor(0.1), Shampoo(0.1), SOAP(0.1))

X = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)


@ts.function
def wide(model: nn.MLP, x: Tensor["B", "D"]):
    return ts.value_and_grad(lambda model: ts.mse(model(x), ts.flip(x, 1)))(model)


@ts.function
def narrow(model: nn.MLP, x: Tensor["B", "D", ts.bf16]):
    return ts.value_and_grad(lambda model: ts.mse(model(x).to(ts.f32), ts.flip(x, 1).to(ts.f32)))(model)


def trained(dtype, numerics=None, steps=600, seed=0, **options):
    """The last loss, and the model."""
    model, opt = nn.MLP(4, 32, key=0).to(dtype), AdamW(3e-4, numerics=numerics, seed=seed, **options)
    state, x = opt.init(model), ts.asarray(X).astype(dtype)
    for _ in range(steps):
        loss, gradient = (wide if dtype == ts.f32 else narrow)(model, x)
        model, state = opt.update(model, gradient, state)
    return float(loss), model


def test_stochastic_rounding_learns_what_f32_learns():
    """Steps of 3e-4 are less than half a last place of bf16 above 0.15: to nearest, such parameters stay."""
    exact, stuck, found = (trained(*how)[0] for how in ((ts.f32,), (ts.bf16,), (ts.bf16, ts.stochastic_round)))
    assert exact < 0.09 and stuck > 4 * exact and abs(found - exact) < 0.1 * exact, (exact, stuck, found)


def test_moments_in_bf16_learn_what_f32_learns_if_they_are_rounded_at_random():
    """To nearest, an average that forgets a thousandth a step stays where a step is less than half a last place."""
    exact, found = (trained(*how, **more)[0] for how, more in (
        ((ts.f32,), {}), ((ts.bf16, ts.stochastic_round), {"state_dtype": ts.bf16})))  # fmt: skip
    assert exact < 0.09 and abs(found - exact) < 0.15 * exact, (exact, found)


def second_moments(numerics, n=4096, steps=3000):
    """The average of g^2 for gradients of 1, in bf16."""
    opt = Adam(0.0, numerics=numerics, state_dtype=ts.bf16)
    model = {"w": ts.ones((n,))}
    state = opt.init(model)
    assert state.moments["w"]["second"].dtype == ts.bf16
    for _ in range(steps):
        model, state = opt.update(model, {"w": np.ones(n, np.float32)}, state)
    return np.asarray(state.moments["w"]["second"].astype(ts.f32), np.float64)


def test_rounding_to_nearest_biases_moments_and_stochastic_rounding_does_not():
    """The mean is right to within five times its standard error; elements spread by no more than u / sqrt(1 - beta^2),
    the bound of docs/numerics.md."""
    exact = 1 - 0.999**3000
    nearest, drawn = second_moments(None), second_moments(ts.stochastic_round)
    assert nearest.min() == nearest.max() and abs(nearest[0] / exact - 1) > 0.5, nearest[0]
    bound = 2.0**-8 / (1 - 0.999**2) ** 0.5
    spread = drawn.std() / exact
    assert 0.1 * bound < spread < bound and abs(drawn.mean() / exact - 1) < 5 * spread / 64


@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
def test_every_rule_keeps_its_moments_in_bf16(rule):
    """The first step of each is that of moments in f32: they start at 0, and are rounded after it."""
    rng = np.random.default_rng(1)
    model = {"w": rng.standard_normal((8, 6)).astype(np.float32), "b": rng.standard_normal(6).astype(np.float32)}
    gradient = {n: rng.standard_normal(a.shape).astype(np.float32) for n, a in model.items()}
    narrow = replace(rule, state_dtype=ts.bf16)
    state, exact = narrow.init(model), rule.init(model)
    for name, arrays in state.moments.items():
        assert {m: a.dtype for m, a in arrays.items()} == {
            m: ts.f32 if m in rule.exact else ts.bf16 for m in exact.moments[name]
        }
    moved, state = narrow.update(model, gradient, state)
    want, exact = rule.update(model, gradient, exact)
    for n in model:
        np.testing.assert_array_equal(np.asarray(moved[n]), np.asarray(want[n]))
        for m, a in state.moments[n].items():
            same = np.asarray(exact.moments[n][m])
            np.testing.assert_array_equal(np.asarray(a), same.astype(np.asarray(a).dtype))


def test_a_state_in_another_dtype_and_dtypes_without_range_are_refused():
    model = {"w": ts.ones((3,))}
    with pytest.raises(ts.LaunchError, match=r"TS362[\s\S]*the first of w is f32, and this AdamW keeps it in bf16"):
        AdamW(0.1, state_dtype=ts.bf16).update(model, model, AdamW(0.1).init(model))
    with pytest.raises(ts.LaunchError, match=r"TS105[\s\S]*squares of gradients are smaller than what f16 holds"):
        AdamW(0.1, state_dtype=ts.f16)


def bits(model):
    return [np.asarray(ts.asarray(p).astype(ts.f32)).tobytes() for p in model.parameters()]


def test_the_seed_decides_for_any_number_of_threads():
    first = bits(trained(ts.bf16, ts.stochastic_round, 3)[1])
    threads = ts.get_num_threads()
    try:
        ts.set_num_threads(1)
        assert bits(trained(ts.bf16, ts.stochastic_round, 3)[1]) == first
    finally:
        ts.set_num_threads(threads)
    assert bits(trained(ts.bf16, ts.stochastic_round, 3, seed=1)[1]) != first


def test_steps_and_parameters_draw_apart():
    """With one gradient for all, equal parameters part, and what they move by is right in the mean."""
    model = {n: ts.ones((4096,), ts.bf16) for n in "ab"}
    opt = SGD(2.0**-12, numerics="@stochastic_round")  # 1/16 of the last place of bf16 below 1
    state, gradient = opt.init(model), {n: ts.ones((4096,), ts.f32) for n in "ab"}
    moved = []
    for _ in range(2):
        before = {n: np.asarray(model[n].astype(ts.f32)) for n in "ab"}
        model, state = opt.update(model, gradient, state)
        moved += [np.asarray(model[n].astype(ts.f32)) - before[n] for n in "ab"]
    for step in moved:
        assert abs(step.mean() + 2.0**-12) < 2.0**-12 / 3
    assert len({(m != 0).tobytes() for m in moved}) == 4


def test_a_parameter_that_would_overflow_is_held():
    model, gradient = {"w": ts.full((3,), 60000.0, ts.f16)}, {"w": ts.full((3,), -60000.0, ts.f16)}
    for numerics, want in ((None, np.inf), (ts.saturate, 65504), ("f16 @saturate @stochastic_round", 65504)):
        opt = SGD(1.0, numerics=numerics)
        assert opt.update(model, gradient, opt.init(model))[0]["w"].tolist() == [want] * 3


def test_a_loss_scale_may_come_from_a_policy():
    assert Adam(0.1, numerics=ts.loss_scale("dynamic")).loss_scale == "dynamic"
    opt = AdamW(0.1, numerics=ts.NumericalPolicy(rounding="stochastic", loss_scale="dynamic"))
    assert opt.init({"w": ts.ones((3,))}).report.scale == 65536
    with pytest.raises(ValueError, match=r"loss_scale is 8.0 and 16.0 in numerics"):
        Adam(0.1, loss_scale=8.0, numerics=ts.loss_scale(16.0))
    with pytest.raises(ValueError, match="device"):
        Adam(0.1, numerics=ts.device("gpu:0"))
