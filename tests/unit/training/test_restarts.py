"""`@ts.fault_tolerant`: a call that fails from outside is made again, with the bits of one that does not fail."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.optimizers import SGD, AdamW, TrainingState

X = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)


@ts.function
def step(state: TrainingState, x: Tensor["B", "D"]):
    state.step(ts.grad(lambda model: ts.mse(model(x), x))(state.model))


def failing(at):
    """Raises at these of its calls."""
    calls = iter(range(1_000))

    def count():
        if next(calls) in at:
            raise ts.DeviceError("the device does not answer")

    return count


def weights(steps, at, **options):
    state, fail = TrainingState(nn.Linear(3, 3, key=0), AdamW(1e-2)), failing(at)

    @ts.fault_tolerant(max_restarts=2, **options)
    def training(state, done=0):
        for i in range(done, steps):
            step(state, X)
            fail()  # after the state has changed
            yield {"state": state, "done": i + 1}

    list(training(state))
    return state.model.weight.numpy().tobytes()


def test_a_loop_goes_on_from_the_state_that_it_yielded_last():
    whole = weights(6, ())
    with pytest.warns(RuntimeWarning, match="(?s)training starts again, with 1 restarts left, .*does not answer"):
        assert weights(6, (2,)) == whole
    with pytest.warns(RuntimeWarning):
        assert weights(6, (1, 2)) == weights(6, (4, 5), every=3) == whole
    with pytest.warns(RuntimeWarning), pytest.raises(ts.DeviceError, match="does not answer"):
        weights(6, (1, 2, 3))


def test_a_call_is_made_again_with_what_it_was_given():
    model, fail = nn.Linear(3, 3, key=0), failing((0, 1))
    optimizer, weight = SGD(model, 0.1), model.weight
    other = nn.Linear(3, 3, key=0)
    SGD(other, 0.1).step(ts.mse(other(X), X))

    @ts.fault_tolerant(max_restarts=2)
    def one(optimizer):
        """Finds the model outside."""
        optimizer.step(ts.mse(model(X), X))
        model.extra = 1
        fail()
        return "done"

    with pytest.warns(RuntimeWarning):
        assert one(optimizer) == "done" and one.__doc__ == "Finds the model outside."
    assert model.weight is weight and weight.numpy().tobytes() == other.weight.numpy().tobytes()
    assert int(optimizer.memory.step) == 1


def test_attributes_that_a_call_has_set_go_back():
    model, fail = nn.Linear(3, 3, key=0), failing((0,))
    seen = []

    @ts.fault_tolerant(1, on=OSError)
    def change(models):
        seen.append(models["a"].weight.tolist()[0][0])
        models["a"].weight = ts.zeros((3, 3))
        fail()

    with pytest.raises(ts.DeviceError):
        change({"a": model})  # not among the errors that it is for
    fail = failing((0,))
    model = nn.Linear(3, 3, key=0)
    with pytest.warns(RuntimeWarning):
        ts.fault_tolerant(1)(change.__wrapped__)({"a": model})
    assert seen[1] == seen[2] == seen[0] != 0 and not model.weight.numpy().any()


def test_with_checkpoints(tmp_path):
    fail = failing((3,))

    @ts.checkpoint(tmp_path, interval=2)
    @ts.fault_tolerant(max_restarts=1)
    def training(w, done=0):
        for i in range(done, 6):
            fail()
            w = w + 1
            yield {"w": w, "done": i + 1}

    with pytest.warns(RuntimeWarning):
        assert training(np.zeros(2))["w"].tolist() == [6, 6]
    assert ts.checkpoint.load(tmp_path)["done"] == 6


@pytest.mark.parametrize(
    "options, said",
    [
        ({"max_restarts": -1}, "max_restarts is a whole number of at least 0, not -1"),
        ({"max_restarts": 1, "every": 0}, "every is a whole number of at least 1, not 0"),
        ({"max_restarts": 1, "on": KeyboardInterrupt}, "on is a class of errors"),
    ],
)
def test_settings(options, said):
    with pytest.raises(ts.LaunchError, match=f"(?s)TS105.*{said}"):
        ts.fault_tolerant(**options)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*say after how many steps"):
        ts.checkpoint("run")
    with pytest.raises(AttributeError, match="leave out the try"):
        _ = ts.recover_and_continue
