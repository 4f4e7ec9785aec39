"""Parameters in bf16: rounded at random they learn as in f32, rounded to nearest they stay where steps are small."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.optimizers import SGD, Adam, AdamW

X = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)


@ts.function
def wide(model: nn.MLP, x: Tensor["B", "D"]):
    return ts.value_and_grad(lambda model: ts.mse(model(x), ts.flip(x, 1)))(model)


@ts.function
def narrow(model: nn.MLP, x: Tensor["B", "D", ts.bf16]):
    return ts.value_and_grad(lambda model: ts.mse(model(x).to(ts.f32), ts.flip(x, 1).to(ts.f32)))(model)


def trained(dtype, numerics=None, steps=600, seed=0):
    """The last loss, and the model."""
    model, opt = nn.MLP(4, 32, key=0).to(dtype), AdamW(3e-4, numerics=numerics, seed=seed)
    state, x = opt.init(model), ts.asarray(X).astype(dtype)
    for _ in range(steps):
        loss, gradient = (wide if dtype == ts.f32 else narrow)(model, x)
        model, state = opt.update(model, gradient, state)
    return float(loss), model


def test_stochastic_rounding_learns_what_f32_learns():
    """Steps of 3e-4 are less than half a last place of bf16 above 0.15: to nearest, such parameters stay."""
    exact, stuck, found = (trained(*how)[0] for how in ((ts.f32,), (ts.bf16,), (ts.bf16, ts.stochastic_round)))
    assert exact < 0.09 and stuck > 4 * exact and abs(found - exact) < 0.1 * exact, (exact, stuck, found)


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
