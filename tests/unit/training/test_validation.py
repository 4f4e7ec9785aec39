"""`ts.train(..., validation=)`: the loss of other batches, as of a model that is used, which changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tests.unit.training.test_train import BATCHES, OPT, X, Y, equal, loss, train

HELD_OUT = [(X[i : i + 6], Y[i : i + 6]) for i in range(0, 45, 6)]


def at(history, name="validation loss"):
    """The steps that logged a column."""
    return [s for s, v in zip(history.steps, history[name], strict=True) if np.isfinite(v)]


def test_it_is_the_mean_over_the_batches_of_the_model_of_that_step():
    run = train(validation=HELD_OUT, validate=5)
    assert at(run.history) == [5, 10, 14]
    wanted = np.mean([float(ts.mse(run.model(x), y)) for x, y in HELD_OUT])
    assert run.history.last("validation loss") == pytest.approx(wanted, rel=1e-6)
    first = train(steps=5)
    assert np.allclose(run.history["validation loss"][4], [np.mean([float(loss(first.model, *b)) for b in HELD_OUT])])


def test_training_is_the_same_with_and_without_it(tmp_path):
    plain = train()
    assert equal(plain, train(validation=HELD_OUT, validate=3))
    train(steps=8, validation=HELD_OUT, validate=3, checkpoint=tmp_path)
    resumed = train(validation=HELD_OUT, validate=3, checkpoint=tmp_path)
    assert equal(plain, resumed) and at(resumed.history) == [3, 6, 8, 9, 12, 14]


@pytest.mark.parametrize(
    "options, steps",
    [
        ({"steps": None, "epochs": 2}, [6, 12]),  # once a pass
        ({"steps": 40}, [6, 12, 18, 24, 30, 36, 40]),
        ({"data": lambda i: BATCHES[i % 6], "steps": 30}, [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]),  # ten times
        ({"data": lambda: iter(BATCHES), "steps": None, "validate": 4}, [4, 6]),  # and at an end nobody knew
    ],
)
def test_how_often(options, steps):
    assert at(train(validation=HELD_OUT, **options).history) == steps


class Dropped(nn.Module):
    def __init__(self):
        self.layer, self.drop = nn.Linear(4, 4, key=0), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.layer(x))


def test_dropout_does_not_drop_and_what_is_logged_is_there_too():
    def counted(model, x, y):
        return ts.mse(model(x), y), {"training": ts.mean(ts.full((2,), 1.0 if ts.is_training() else 0.0))}

    run = ts.train(Dropped(), OPT, counted, BATCHES, steps=3, live=False, validation=HELD_OUT)
    assert run.history.last("training") == 1 and run.history.last("validation training") == 0
    wanted = np.mean([float(ts.mse(run.model.layer(x), y)) for x, y in HELD_OUT])
    assert run.history.last("validation loss") == pytest.approx(wanted, rel=1e-6)


def test_what_it_cannot_be():
    for validation, said in (
        (lambda i: BATCHES[0], "a function of the batch's number, which has no end"),
        (iter(BATCHES), "an iterator, which is one pass"),
    ):
        with pytest.raises(ts.LaunchError, match=f"(?s)TS105.*not {said}"):
            train(validation=validation)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS372.*not one array"):
        train(validation=X)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*validate is a whole number of at least 1"):
        train(validation=HELD_OUT, validate=0)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*a batch does not fit loss"):
        train(validation=[(X,)], validate=1)


def test_the_last_number_of_a_column_stays_in_sight(capsys):
    train(validation=HELD_OUT, validate=5, steps=7, live=True)
    assert "validation loss 0." in capsys.readouterr().out and "nan" not in capsys.readouterr().out
