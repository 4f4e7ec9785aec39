"""`ts.monitor_numerics`: the first NaN of a block is an error at the line that made it; what is fine is no alarm."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.optimizers import SGD, AdamW, TrainingState

X = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
NEGATIVE = -np.ones(3, np.float32)


@ts.function
def logs(x):
    lower = x - 1.0
    found = ts.log(lower)  # of logs
    return ts.sum(found), found


@ts.function
def norm_at_zero(state: TrainingState, x: Tensor["B", "D"]):
    def loss(model):
        return ts.mean(ts.norm(model(x) * 0.0 - 3e38 * 10.0 * model(x), axis=-1))

    value, gradient = ts.value_and_grad(loss)(state.model)
    state.step(gradient)
    return value


class Mean(ts.StatefulObject):
    total: Tensor["D"]

    @ts.effect("update")
    def add(self, x: Tensor["D"]):
        self.total = self.total + ts.log(x)


def raised(call):
    with pytest.raises(ts.DebugCheckError) as caught:
        call()
    (found,) = caught.value.diagnostics
    assert found.code == "TS371"
    return found


def test_the_line_within_a_function():
    @ts.monitor_numerics
    def training_loop(batches):
        for batch in batches:
            loss, _ = logs(batch)
            if ts.has_nan(loss):
                raise AssertionError("nobody comes here")

    fine, mixed = np.full(3, 5.0, np.float32), np.array([2.0, 1.5, 0.5], np.float32)
    found = raised(lambda: training_loop([fine, mixed]))
    assert found.span.file == __file__ and found.span.line == line("found = ts.log")
    assert found.label == "NaN here" and "log takes -0.5 and gives NaN: 1 of 3 elements, the first" in found.message
    assert found.notes[0].span.line == line("loss, _ = logs(batch)") and found.function == "logs"
    assert np.isnan(logs(mixed)[0])  # outside of the block


def line(text):
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, read in enumerate(file, 1) if text in read)


def test_operators_effects_and_infinite_numbers():
    def inside(call):
        with ts.monitor_numerics():
            call()

    found = raised(lambda: inside(lambda: ts.sqrt(NEGATIVE)))
    assert "sqrt gives NaN: 3 of 3 elements, the first at [0]; it takes numbers of up to 1" in found.message
    assert "sum gives infinity: 1 of 1" in raised(lambda: inside(lambda: ts.sum(np.full(9, 3e38, np.float32)))).message
    assert "add gives NaN: 3 of 3 elements, the first at [0], stored into self.total" in raised(
        lambda: inside(lambda: Mean(ts.zeros((3,))).add(NEGATIVE))
    ).message  # fmt: skip
    assert "x holds NaN itself" in raised(lambda: inside(lambda: logs(NEGATIVE * np.nan))).message


def test_backward_and_states_that_skip_the_step():
    model = nn.Linear(3, 3, key=0)
    optimizer = AdamW(model.parameters())

    @ts.monitor_numerics
    def loop():
        optimizer.step(ts.mse(model(X), X))
        optimizer.step(ts.sum(ts.sqrt(model(X) * 0.0)))

    found = raised(loop)
    assert "backward() gives NaN" in found.message and found.span.line == line("ts.sqrt(model(X) * 0.0)")
    state = TrainingState(nn.Linear(3, 3, key=0), SGD(0.1))
    found = raised(lambda: ts.monitor_numerics(norm_at_zero)(state, X))
    assert found.span.line == line("ts.norm(model(x) * 0.0")  # computed again: the model is as it was


def test_generators_and_what_is_no_alarm():
    @ts.monitor_numerics
    def steps():
        yield logs(np.full(3, 5.0, np.float32))
        yield (
            ts.softmax(ts.where(X.max(1)[:, None] == X, X, -float("inf"))),
            ts.max(ts.abs(X)),
            ts.full((2,), float("nan")),
        )
        yield logs(NEGATIVE)

    found = steps()
    next(found), logs(NEGATIVE), next(found), logs(NEGATIVE)  # between the steps nobody looks
    raised(lambda: next(found))


def test_optimizers_other_threads_and_train_itself():
    model = nn.Linear(3, 3, key=0)
    gradient = ts.grad(lambda model: ts.mse(model(X), X))(model).replace(bias=NEGATIVE * np.nan)
    rule = SGD(0.1)
    with ts.monitor_numerics():
        _, state = rule.update(model, gradient, rule.init(model))
        other = threading.Thread(target=lambda: logs(NEGATIVE))
        other.start()
        other.join()
        with pytest.raises(ts.DebugCheckError, match="the loss of step 1 is nan"):
            ts.train(model, rule, lambda model, x: ts.sum(ts.log(model(x) * 0.0 - 1.0)), [X], live=False)
    assert not state.report.applied


def test_a_watched_function_inside_of_another():
    watched = ts.monitor_numerics(logs)
    assert np.isnan(ts.function(lambda x: watched(x)[0])(NEGATIVE))
    raised(lambda: watched(NEGATIVE))
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*not 3"):
        ts.monitor_numerics(3)
