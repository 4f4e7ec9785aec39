"""A gradient in the place of the model: refused where it can be told, as both have the same names and shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.optimizers import SGD, AdamW

X = np.ones((8, 4), np.float32)
SWAPPED = pytest.raises(
    ts.TesseraError, match=r"TS362(.|\n)*in place of the model: opt.update\(model, gradient, state\)"
)


@ts.function
def step(model: nn.MLP, x: Tensor["B", "D"]):
    return ts.grad(lambda model: ts.mse(model(x), x))(model)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_the_model_of_an_earlier_step_is_not_a_gradient(steps):
    opt = AdamW(1e-2)
    model = nn.MLP(4, 8, key=0)
    state = opt.init(model)
    for _ in range(steps):  # from the third on an update is like an earlier one
        model, state = opt.update(model, step(model, X), state)
    gradient = step(model, X)
    with SWAPPED:
        opt.update(gradient, model, state)
    changed, after = opt.update(model, gradient, state)
    assert int(after.step) == steps + 1 and not np.array_equal(changed.up.weight, model.up.weight)


def test_another_model_of_the_same_optimizer():
    opt, model = AdamW(1e-2), nn.MLP(4, 8, key=0)
    state = opt.init(model)
    for _ in range(5):  # later updates are like an earlier one
        model, state = opt.update(model, step(model, X), state)
    other = nn.MLP(4, 8, key=1)
    state = opt.init(other)
    with SWAPPED:
        opt.update(step(other, X), other, state)


def test_a_model_that_was_loaded(tmp_path):
    opt, saved = AdamW(1e-2), nn.MLP(4, 8, key=0)
    state = opt.init(saved)
    ts.checkpoint.save(tmp_path, model=saved, state=state)
    found = ts.checkpoint.load(tmp_path, model=nn.MLP(4, 8, key=1), state=state)
    taken = nn.MLP(4, 8, key=2)
    taken.load_state_dict(saved.state_dict())
    for model in (found["model"], taken):
        gradient = step(model, X)
        with SWAPPED:
            opt.update(gradient, model, found["state"])
        assert int(opt.update(model, gradient, found["state"])[1].step) == 1


def test_dicts_of_arrays():
    opt, p = SGD(0.1), {"w": np.ones(3, np.float32), "b": np.zeros(2, np.float32)}
    gradient, state = ts.grad(lambda p: ts.sum(p["w"] ** 2) + ts.sum(p["b"]))(p), opt.init(p)
    with SWAPPED:
        opt.update(gradient, p, state)
    assert opt.update(p, gradient, state)[0]["w"].tolist() == pytest.approx([0.8] * 3)


def test_a_gradient_has_no_integers_and_requires_no_gradient():
    @dataclass
    class Counted:
        w: Tensor["D"]
        seen: Tensor["D", ts.int64]

    opt, other = SGD(0.1), Counted(np.ones(2, np.float32), np.zeros(2, np.int64))
    state, model = opt.init(other), Counted(np.ones(2, np.float32), np.zeros(2, np.int64))
    with SWAPPED:
        opt.update(ts.grad(lambda m: ts.sum(m.w**2))(model), model, state)
    tracked = nn.Linear(4, 4, key=0).requires_grad_()
    ts.mse(tracked(X), X).backward()
    with SWAPPED:
        opt.update(tracked.gradient(), tracked, opt.init(nn.Linear(4, 4, key=0)))


def test_in_functions_what_a_derivative_gave_is_not_the_model():
    opt = AdamW(1e-2)

    def of(swap):
        @ts.function
        def both(model: nn.MLP, state: ts.optimizers.OptimizerState, x: Tensor["B", "D"]):
            gradient = ts.grad(lambda model: ts.mse(model(x), x))(model)
            return opt.update(gradient, model, state) if swap else opt.update(model, gradient, state)

        return both

    model = nn.MLP(4, 8, key=0)
    with SWAPPED:
        of(True)(model, opt.init(model), X)
    assert int(of(False)(model, opt.init(model), X)[1].step) == 1


TEXT = """
import tessera as ts
from tessera import Tensor, nn

opt = ts.optimizers.AdamW(1e-2)


@ts.function
def both(model: nn.MLP, state: ts.optimizers.OptimizerState, x: Tensor["B", "D"]):
    gradient = ts.grad(lambda model: ts.mse(model(x), x))(model)
    return opt.update(model, gradient, state)
"""


def test_an_update_in_a_function_has_no_finding_while_typing():
    (analysis,) = FileAnalysis("update.py").update(TEXT)
    assert not analysis.diagnostics
