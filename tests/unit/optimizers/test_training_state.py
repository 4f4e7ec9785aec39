"""Updates inside of functions: the bits of those outside, in the memory of the model."""

from __future__ import annotations

import dataclasses
import linecache
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.optimizers import Adam, AdamW, Cosine, Group, Lion, TrainingState

X = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)


def loss_of(model: Any, x: Any, scale: Any = 1.0) -> Any:
    return ts.mse(model(x), x) * scale


@ts.function
def in_place(state: TrainingState, x: Tensor["B", "D"]):
    loss, gradient = ts.value_and_grad(loss_of)(state.model, x, state.scale)
    state.step(gradient)
    return loss / state.scale


@ts.function
def gradient_of(model: nn.MLP, x: Tensor["B", "D"], scale: Tensor[ts.f32]):
    return ts.value_and_grad(loss_of)(model, x, scale)


@pytest.mark.parametrize(
    "opt",
    [
        Adam(1e-2, clip=1.0),
        Lion(1e-3),
        AdamW(
            Cosine(1e-2, steps=10, warmup=2), loss_scale="dynamic",
            groups=(
                Group(lambda name, p: len(p.shape) < 2, weight_decay=0.0),
                Group(lambda name, p: name == "up.weight", frozen=True),
            ),
        ),
    ],
    ids=["Adam", "Lion", "AdamW"],
)  # fmt: skip
def test_one_program_has_the_bits_of_two(opt: Any) -> None:
    model = nn.MLP(4, 8, key=0)
    state, memory = TrainingState(model, opt), opt.init(model)
    own = state.model.down.weight
    first = np.array(model.down.weight.numpy())
    for _ in range(3):
        in_place(state, X)
    np.testing.assert_array_equal(model.down.weight, first)
    for _ in range(3):
        _, gradient = gradient_of(model, X, memory.scale)
        model, memory = opt.update(model, gradient, memory)
    for name, p in model.named_parameters().items():
        np.testing.assert_array_equal(ts.nn.tree.arrays(state.model)[name], p)
    assert state.model.down.weight is own
    # The one program does not copy a gradient to sum its squares: of down.weight, a transposed product, they are added
    # in another order (decision 8). All else is equal to the bit.
    assert state.memory.tally.tolist() == memory.tally.tolist() == [len(memory.moments), len(memory.moments), 0]
    norm = memory.report.grad_norm
    assert state.report.grad_norm == pytest.approx(norm, rel=3e-7)
    assert dataclasses.replace(state.report, grad_norm=norm) == memory.report


def test_update_gives_values_too() -> None:
    opt = AdamW(1e-2)

    @ts.function
    def step(model: nn.MLP, memory, x: Tensor["B", "D"]):
        loss, gradient = ts.value_and_grad(loss_of)(model, x)
        model, memory = opt.update(model, gradient, memory)
        return loss, model, memory

    model = nn.MLP(4, 8, key=0)
    memory = opt.init(model)
    first, model, memory = step(model, memory, X)
    second, model, memory = step(model, memory, X)
    assert float(second) < float(first) and int(memory.step) == 2


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    state = TrainingState(nn.MLP(4, 8, key=0), AdamW(1e-2))
    before = {n: a.numpy().copy() for n, a in ts.nn.tree.arrays(state.model).items()}
    in_place(state, np.full_like(X, np.nan))
    assert not state.report.applied
    for name, array in ts.nn.tree.arrays(state.model).items():
        np.testing.assert_array_equal(array, before[name])


def test_another_model_s_gradient_is_refused() -> None:
    state, other = TrainingState(nn.MLP(4, 8, key=0), AdamW(1e-2)), nn.MLP(4, 9, key=0)

    @ts.function
    def wrong(state: TrainingState, other: nn.MLP, x: Tensor["B", "D"]):
        state.step(ts.grad(loss_of)(other, x))

    before = {n: a.numpy().tobytes() for n, a in ts.nn.tree.arrays(state.model).items()}
    for call, line in (
        (lambda: wrong(state, other, X), "state.step("),
        (lambda: state.step(other), "state.step(other)"),
    ):
        with pytest.raises(ts.TesseraError, match=r"up\.bias is \[8\] and its gradient \[9\]") as caught:
            call()
        (d,) = caught.value.diagnostics
        assert d.code == "TS362" and d.span.file == __file__ and line in linecache.getline(__file__, d.span.line)
    assert int(state.memory.step) == 0
    assert {n: a.numpy().tobytes() for n, a in ts.nn.tree.arrays(state.model).items()} == before


def test_one_function_steps_states_of_other_numerics():
    """Each as its own optimizer says: the function is compiled for each."""
    p = np.asarray(ts.asarray(np.linspace(-2, 2, 257, dtype=np.float32)).astype(ts.bf16))

    @ts.function
    def step(state: ts.optimizers.TrainingState, g):
        state.step(g)

    for numerics in (None, ts.stochastic_round, ts.saturate):
        opt = ts.optimizers.SGD(1e-3, numerics=numerics)
        state = ts.optimizers.TrainingState([p], opt)
        step(state, [p])
        wanted, _ = opt.update([p], [p], opt.init([p]))
        assert np.asarray(state.model[0]).tobytes() == np.asarray(wanted[0]).tobytes(), numerics
