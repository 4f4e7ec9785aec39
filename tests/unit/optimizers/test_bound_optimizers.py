"""Optimizers with parameters, as PyTorch has them: the same loop in both gives the same parameters."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import nn, optimizers
from tessera.optimizers import Group
from tests.conftest import require

torch = require("torch")

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 16, 3)).astype(np.float32)


class Tied(nn.Module):
    """Uses one layer twice."""

    def __init__(self):
        self.first = nn.Linear(3, 3, key=0)
        self.again = self.first

    def forward(self, x):
        return self.again(ts.tanh(self.first(x)))


def mine(make):
    model = Tied()
    optimizer = make(optimizers, model.parameters())
    for _ in range(10):
        optimizer.zero_grad()
        ts.mse(model(X), Y).backward()
        optimizer.step()
    return model


def theirs(make):
    first = Tied().first
    weight, bias = (torch.nn.Parameter(torch.tensor(a.numpy())) for a in (first.weight, first.bias))
    x, y = torch.tensor(X), torch.tensor(Y)
    optimizer = make(torch.optim, [weight, bias])
    for _ in range(10):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(torch.tanh(x @ weight + bias) @ weight + bias, y).backward()
        optimizer.step()
    return weight.detach().numpy()


@pytest.mark.parametrize(
    "make",
    [
        lambda library, parameters: library.Adam(parameters),
        lambda library, parameters: library.AdamW(parameters, lr=1e-2, weight_decay=0.1),
        lambda library, parameters: library.SGD(parameters, lr=0.1, momentum=0.9),
        lambda library, parameters: library.SGD((p for p in parameters), 0.1),
        lambda library, parameters: library.AdamW(
            [{"params": parameters[:1], "lr": 2e-2}, {"params": parameters[1], "weight_decay": 0.5}], lr=1e-2
        ),
    ],
    ids=["Adam", "AdamW", "momentum", "generator", "groups"],
)
def test_a_loop_of_pytorch_runs_as_it_is(make):
    np.testing.assert_allclose(mine(make).first.weight.numpy(), theirs(make), rtol=1e-5, atol=1e-6)


def test_the_same_bits_as_update_in_the_memory_of_the_parameters():
    model, rule = nn.Linear(3, 3, key=0), optimizers.AdamW(1e-2, clip=0.1)
    weight, optimizer = model.weight, optimizers.AdamW(model, 1e-2, clip=0.1)
    other = nn.Linear(3, 3, key=0)
    state = rule.init(other)
    for _ in range(3):
        optimizer.step(ts.mse(model(X), Y))
        other, state = rule.update(other, ts.grad(lambda model: ts.mse(model(X), Y))(other), state)
    assert model.weight is weight and weight.grad is None
    assert weight.numpy().tobytes() == other.weight.numpy().tobytes()
    assert optimizer.report == state.report and optimizer.grad_norm == state.report.grad_norm > 0.1
    assert "AdamW(lr=0.01" in repr(optimizer) and "of 2 parameters, after 3 steps" in repr(optimizer)


def test_rates_scales_and_what_is_not_finite():
    model = nn.Linear(3, 3, key=0)
    optimizer = optimizers.AdamW(model.named_parameters(), 1e-2, loss_scale="dynamic")
    optimizer.lr = 0.0
    before = model.weight.numpy().copy()
    optimizer.step(ts.mse(model(X), Y))
    assert np.array_equal(model.weight.numpy(), before) and optimizer.lr == 0.0 and optimizer.report.applied
    norm = np.sqrt(sum((g.detach().numpy() ** 2).sum() for g in gradient(model)))
    assert optimizer.grad_norm == pytest.approx(norm, rel=1e-5)
    optimizer.step(ts.mse(model(X * np.nan), Y), lr=1.0)
    assert np.array_equal(model.weight.numpy(), before)
    assert "the gradient of weight, and of 1 more, holds nan" in optimizer.report.reason
    assert float(optimizer.scale) == 32768


def gradient(model):
    return ts.grad(lambda model: ts.mse(model(X), Y))(model).parameters()


def test_parameters_that_require_no_gradient_stay():
    model = nn.Sequential(nn.Linear(3, 3, key=0), nn.Linear(3, 3, key=1)).requires_grad_()
    for p in model.layers[0].parameters():
        p.requires_grad = False
    frozen = optimizers.SGD(model, 0.1, groups=[Group(lambda name, p: "bias" in name, frozen=True)])
    before = [p.detach().numpy().copy() for p in model.parameters()]
    frozen.step(ts.mse(model(X), Y))
    changed = [not np.array_equal(a, p.detach().numpy()) for a, p in zip(before, model.parameters(), strict=True)]
    assert changed == [False, False, True, False]


def test_a_checkpoint_holds_its_state(tmp_path):
    model = nn.Linear(3, 3, key=0)
    optimizer = optimizers.Adam(model.parameters(), lr=1e-2)
    optimizer.step(ts.mse(model(X), Y))
    ts.checkpoint.save_async(tmp_path, model=model, optimizer=optimizer, step=1)
    other = nn.Linear(3, 3, key=1)
    again = optimizers.Adam(other.parameters(), lr=1e-2)
    saved = ts.checkpoint.load(tmp_path, model=other, optimizer=again)
    other.load_state_dict(saved["model"].state_dict())
    again.load_state_dict(saved["optimizer"].state_dict())
    for one, by in ((model, optimizer), (other, again)):
        by.step(ts.mse(one(X), Y))
    assert model.weight.numpy().tobytes() == other.weight.numpy().tobytes() and int(again.memory.step) == 2


def step_of_a_part(parameters=lambda model: model):
    model = nn.Sequential(nn.Linear(3, 3, key=0), nn.Linear(3, 3, key=1))
    optimizers.SGD(parameters(model), 0.1).step(ts.sum(model.layers[0](X)))


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda: optimizers.AdamW([{"params": nn.Linear(2, 2, key=0).parameters(), "betas": (0.9, 0.99)}]),
            "TS105.*group 0 of the parameters has betas, which all parameters share",
        ),
        (lambda: optimizers.AdamW([{"params": nn.Linear(2, 2, key=0)}, {"lr": 0.1}]), "group 1 of .* has no 'params'"),
        (lambda: optimizers.AdamW([]), "TS105.*there are no parameters"),
        (lambda: optimizers.AdamW([np.ones(3)]), r"TS105.*parameter 0 is a ndarray.*model\.requires_grad_\(\)"),
        (lambda: optimizers.AdamW(nn.Linear(2, 2, key=0)).step(), r"TS362.*call loss\.backward\(\)"),
        (lambda: optimizers.AdamW(nn.Linear(2, 2, key=0)).step(1.5), r"TS105.*not float"),
        (step_of_a_part, r"TS362.*the loss does not depend on .*: layers\.1\.weight \[3, 3\], layers\.1\.bias"),
        (lambda: step_of_a_part(nn.Module.parameters), r"TS362.*: number 2 \[3, 3\], number 3 \[3\]; leave them out"),
    ],
    ids=["groups", "no parameters", "none", "numpy", "no gradient", "a number", "a part", "a part of a list"],
)
def test_what_does_not_fit(call, said):
    with pytest.raises(ts.TesseraError, match=f"(?s){said}"):
        call()
    with pytest.raises(AttributeError, match="no attribute 'param_groups'; groups="):
        _ = optimizers.AdamW(nn.Linear(2, 2, key=0)).param_groups
