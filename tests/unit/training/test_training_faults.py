"""What goes wrong while training: said at the line that caused it, with the state of the last whole step."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.runtime.code import build
from tessera.training.data import DataWarning
from tests.conftest import require
from tests.unit.training.test_train import BATCHES, OPT, X, Y, bits, equal, fresh, loss, train


def line_of(text: str) -> int:
    """The line of this file that holds a text, outside of this call."""
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line and "line_of" not in line)


def root(model, x, y):
    hidden = model(x)
    return ts.mean(ts.sqrt(hidden - 100.0) - y)


def overflow(model, x, y):
    large = ts.exp(model(x) * 1e6)
    return ts.mean(large - large) + ts.mse(x, y)


def norm_at_zero(model, x, y):
    apart = model(x) * 0.0
    return ts.mean(ts.sqrt(ts.sum(ts.square(apart), axis=-1)))


def in_a_loop(model, x, y):
    hidden = model(x)
    for _ in ts.range(3):
        hidden = ts.log(hidden - 1.0)
    return ts.mean(hidden)


def masked(model, x, y):
    hidden = model(x)
    fine = ts.where(hidden > 0, ts.sqrt(hidden), 0.0)
    return ts.mean(fine) + ts.mean(ts.log(fine - 5.0))


def masked_rows(model, x, y):
    scores = ts.where(x > 1e9, model(x), -float("inf"))
    return ts.mean(scores - ts.max(scores, axis=-1, keepdim=True))


def cut_off(model, x, y):
    size = ts.iota(8, dtype=ts.f32)[:, None] - 5.0
    return ts.mean((model(x) * (size + 5.0) * size / ts.stop_gradient(size * (size + 5.0)))[1:])


def cut_off_in_a_loop(model, x, y):
    def following(total, row):
        both = ts.stack([ts.log(total * 0.0 - 1.0), total * 3e38 * row])
        return both[1], ts.mean(row)

    return ts.mean(ts.scan(following, ts.ones_like(x[0]), model(x))[0])


@pytest.mark.parametrize("faulty, line, said", [
    (cut_off, "size / ts.stop", r"div takes -?0, 0 .*: 8 of 32 elements, the first that is used at \[5, 0\]"),
    (cut_off_in_a_loop, "total * 3e38", r"mul takes .* and gives infinity: [1-4] of 4"),
    (root, "ts.sqrt(hidden - 100.0)", r"the loss of step 1 is nan; sqrt takes -\d+\.\d+ and gives NaN: 32 of 32"),
    (overflow, "ts.exp(model(x)", r"exp takes [\d.]+ and gives infinity: \d+ of 32"),
    (norm_at_zero, "ts.sqrt(ts.sum(", r"the gradient of .*; the backward pass of this line: div takes [\d.]+, 0"),
    (in_a_loop, "ts.log(hidden - 1.0)", r"log takes -[\d.]+ and gives NaN"),
    (masked, "ts.log(fine - 5.0)", r"log takes -[\d.]+ and gives NaN"),
    (masked_rows, "ts.max(scores", r"sub takes -inf, -inf and gives NaN"),
])  # fmt: skip
def test_the_first_bad_value_is_found_at_its_line(faulty, line, said):
    with pytest.raises(ts.DebugCheckError) as raised:
        train(faulty)
    (found,) = raised.value.diagnostics
    assert found.code == "TS371" and found.span.file == __file__ and found.span.line == line_of(line)
    assert re.search(said, found.message), found.message
    assert raised.value.run.step == 0 and bits(raised.value.run.model) == bits(fresh())


def test_the_state_is_that_of_the_step_before(tmp_path):
    bad = (np.where(X[:8] > 0, np.nan, X[:8]), Y[:8])
    with pytest.raises(
        ts.DebugCheckError, match=r"(?s)TS371.*the loss of step 5 is nan; item 0 holds NaN itself, \d+ of 32"
    ) as raised:
        train(data=[*BATCHES[:4], bad, *BATCHES], checkpoint=tmp_path)
    assert equal(raised.value.run, train(steps=4)) and "those of step 4" in str(raised.value)
    assert ts.checkpoint.load(tmp_path)["step"] == 4


def test_a_parameter_that_is_not_finite_is_named():
    model = fresh()
    weight = model.up.weight.numpy().copy()
    weight[1, 2] = np.inf
    model = model.replace(up=model.up.replace(weight=weight))
    with pytest.raises(
        ts.DebugCheckError, match=r"model\.up\.weight holds infinity itself, 1 of 32 elements, the first at \[1, 2\]"
    ):
        ts.train(model, OPT, loss, BATCHES, steps=2, live=False)


def test_overflows_under_a_dynamic_scale_are_no_fault():
    opt = ts.optimizers.AdamW(0.02, loss_scale="dynamic")

    def half(model, x, y):
        return ts.mse(model(x.to(ts.f16)) * 40.0, y.to(ts.f16))

    run = ts.train(fresh().to(ts.f16), opt, half, BATCHES, steps=14, live=False)
    assert float(run.optimizer.scale) < 65536 and not np.isfinite(run.history["grad_norm"]).all()
    assert int(run.optimizer.step) < 14 == run.step


def refused(code, match, *args, **options):
    with pytest.raises(ts.LaunchError, match=f"(?s){code}.*{match}"):
        ts.train(*args, **{"live": False, "steps": 2, **options})


def test_what_train_does_not_take():
    model = fresh()
    refused("TS105", "optimizer is one of ts.optimizers, such as", model, "adam", loss, BATCHES)
    refused("TS105", "the optimizer comes before the loss", model, loss, OPT, BATCHES)
    refused("TS105", "not the class AdamW itself", model, ts.optimizers.AdamW, loss, BATCHES)
    refused("TS105", r"lambda model, x, y: ts\.mse\(model\(x\), y\); not ts\.mse itself", model, OPT, ts.mse, BATCHES)
    refused("TS105", "loss is a function of the model and a batch", model, OPT, 0.5, BATCHES)
    x = BATCHES[0][0]
    refused("TS105", r"does not fit loss: missing.*'y'; a batch of several arrays is a tuple", model, OPT, loss, [x, x])
    refused("TS105", "does not fit loss: too many", model, OPT, loss, [(x, x, x)])
    refused("TS105", "model is PyTorch's; ts.nn has", require("torch").nn.Linear(4, 4), OPT, loss, BATCHES)
    refused("TS105", "takes nothing", model, OPT, lambda: 0, BATCHES)
    refused("TS105", "steps is a whole number of at least 1 or None, not 0", model, OPT, loss, BATCHES, steps=0)
    refused("TS105", "every is a whole number", model, OPT, loss, BATCHES, every=2.5)
    refused("TS105", "seed is a whole number from 0", model, OPT, loss, BATCHES, seed=2**31)
    refused("TS105", "say how long, not both", model, OPT, loss, BATCHES, epochs=2)
    refused("TS105", "one pass and cannot start over", model, OPT, loss, iter(BATCHES), steps=None, epochs=2)
    refused("TS105", "without end: say steps=", model, OPT, loss, lambda i: BATCHES[0], steps=None)
    refused("TS372", "contain no batch", model, OPT, loss, [])
    refused("TS372", "contain no batch", model, OPT, loss, [], steps=None)
    refused("TS372", "one after another, and not one array", model, OPT, loss, X)
    refused("TS372", "and not a dict", model, OPT, loss, {"x": X, "y": Y})
    refused("TS372", "not int", model, OPT, loss, 3)

    def passes(size, *, length):
        yield X, Y

    refused("TS372", "each pass calls it without arguments, and it needs size, length", model, OPT, loss, passes)
    refused("TS372", "with the number of a batch, and it needs i, size;", model, OPT, loss, lambda i, size: (X, Y))
    refused("TS372", "item 1 of a batch is text, 'cat': loss takes arrays and numbers", model, OPT, loss, [(X, "cat")])
    text = np.array(["cat", "dog"])
    refused("TS372", "item 1 of a batch has elements of <U3: loss takes arrays", model, OPT, loss, [(X, text)])
    rows = {"x": X, "y": text.astype(object)}
    refused("TS372", "y of a batch has elements of object: loss takes arrays", model, OPT, loss, [rows])
    refused("TS372", "x of a batch is of type NoneType", model, OPT, loss, [{"x": None, "y": Y}])
    refused(
        "TS372", "batch has 'z', which loss does not take: it takes x, y", model, OPT, loss, [{"x": X, "y": Y, "z": Y}]
    )
    refused("TS372", "item 0 of a batch has rows of different lengths", model, OPT, loss, [([[1.0], [1.0, 2.0]], Y)])


def test_a_folder_of_something_else_is_refused(tmp_path):
    ts.checkpoint.save(tmp_path, model=fresh(), optimizer=OPT.init(fresh()), step=3)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS363.*is not a checkpoint of ts\.train: it has no data, history"):
        train(checkpoint=tmp_path)


def test_what_fails_at_once_leaves_no_checkpoint(tmp_path):
    with pytest.raises(ts.TesseraError, match="TS352"):
        train(lambda model, x, y: model(x), checkpoint=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_a_loss_must_give():
    with pytest.raises(ts.TesseraError, match=r"(?s)TS352") as raised:
        train(lambda model, x, y: model(x) - y)
    assert "_faults.py" in str(raised.value)
    with pytest.raises(ts.TesseraError, match=r"(?s)TS209|TS202|TS203"):
        train(lambda model, x, y: ts.mse(model(x), y[:, :3]))
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*returns a loss, and with it dicts"):
        train(lambda model, x, y: (ts.mse(model(x), y), model.up))
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*'all' is an array of shape \[8, 4\]"):
        train(lambda model, x, y: (ts.mse(model(x), y), {"all": model(x)}))


def test_a_parameter_that_the_loss_does_not_reach_is_said():
    class Two(nn.Module):
        used: nn.Linear
        idle: nn.Linear

    model = Two(nn.Linear(4, 4, key=0), nn.Linear(4, 4, key=1))
    with pytest.warns(Warning, match="TS354"):
        run = ts.train(model, OPT, lambda m, x, y: ts.mse(m.used(x), y), BATCHES, steps=1, live=False)
    assert run.step == 1
    with pytest.warns(Warning, match=r"TS354(?s:.)*does not depend on model\.w: freeze"):
        ts.train({"w": np.ones(4, np.float32)}, OPT, lambda m, x, y: ts.mse(x, y), BATCHES, steps=1, live=False)


class Idle(nn.Module):
    used: nn.Linear
    idle: nn.Linear


@ts.function
def step_of_ones_own(model: Idle, x: ts.Tensor["B", "D"]):
    return ts.value_and_grad(lambda m: ts.mse(m.used(x), x))(model)


def test_a_loop_of_ones_own_is_told_of_it_when_its_step_is_compiled_and_when_it_comes_from_the_disk(own_cache):
    model = Idle(nn.Linear(4, 4, key=0), nn.Linear(4, 4, key=1))
    for origin in ("miss", "disk"):
        build.forget()
        step = ts.function(step_of_ones_own.__wrapped__)
        with pytest.warns(ts.TrainingWarning) as warned:
            step(model, X)
            step(model, X)
        (said,) = warned
        assert step.launcher.last.origin == origin
        assert "TS354" in str(said.message) and "does not depend on m.idle: its gradient is 0" in str(said.message)
        assert (said.filename, said.lineno) == (__file__, line_of("ts.mse(m.used(x), x))(model)"))


class Dropping(nn.Module):
    drop: nn.Dropout
    block: nn.TransformerBlock

    def __call__(self, x, key=None):
        return self.block(self.drop(x, key), key=key)


def dropping(p: float) -> Dropping:
    return Dropping(nn.Dropout(p), nn.TransformerBlock(4, 1, dropout=p, key=0))


def lines_of_dropout(recwarn) -> list[int]:
    said = [w for w in recwarn.list if "TS374" in str(w.message)]
    assert all(w.category is ts.TrainingWarning and w.filename == __file__ for w in said)
    return sorted(w.lineno for w in said)


def test_dropout_without_a_key_is_said_where_a_gradient_is_taken(recwarn):
    """At the user's own calls, of layers inside the library's blocks too."""
    row = line_of("return self.block(self.drop(x, key), key=key)")
    x = X[None]

    def loss(model, x):
        return ts.mse(model(x), x)

    def keyed(model, x, key: ts.int64):
        return ts.mse(model(x, key), x)

    ts.train(dropping(0.5), OPT, keyed, [x], steps=1, live=False)
    ts.train(dropping(0.0), OPT, loss, [x], steps=1, live=False)
    ts.compile(mode="inference")(lambda model, x: ts.grad(loss)(model, x))(dropping(0.5), x)
    dropping(0.5)(x)
    assert not lines_of_dropout(recwarn)
    ts.train(dropping(0.5), OPT, loss, [x], steps=2, live=False)  # its step has keys
    assert not lines_of_dropout(recwarn)
    ts.compile(mode="training")(lambda model, x: ts.grad(loss)(model, x))(dropping(0.5), x)
    assert lines_of_dropout(recwarn) == [row, row]
    recwarn.clear()
    dropping(0.5)(ts.Tensor(x, requires_grad=True))
    assert set(lines_of_dropout(recwarn)) == {row}


@pytest.mark.parametrize("form", ["loop", "scan", "vmap"])
def test_rounds_need_keys_of_their_own(form, recwarn):
    drop = nn.Dropout(0.5)

    def loss(model, x):
        y = model(x)
        if form == "loop":
            for _ in ts.range(2):
                y = drop(y)
        elif form == "scan":
            _, y = ts.scan(lambda carry, row: (carry, drop(row)), y[0], y)
        else:
            y = ts.vmap(lambda row: drop(row))(y)
        return ts.mse(y, x)

    ts.train(nn.Linear(4, 4, key=0), OPT, loss, [X], steps=1, live=False)
    assert lines_of_dropout(recwarn) == [
        line_of({"loop": "y = drop(y)", "scan": "drop(row)), y[0]", "vmap": "vmap(lambda row: drop"}[form])
    ]
    assert "all rounds would drop the same elements" in str(recwarn.list[0].message)


def test_batch_normalisation_that_is_not_told_that_it_is_trained(recwarn):
    def loss(training):
        return lambda norm, x: ts.mse(norm(x, training=False) if training is False else norm(x), x)

    def in_a_loop(norm, x):
        for _ in ts.range(2):
            x = norm(x)
        return ts.mean(x)

    teacher = nn.BatchNorm1d(4)  # of no model that is trained
    for run in (
        lambda: ts.function(lambda norm, x: ts.grad(loss(None))(norm, x))(nn.BatchNorm1d(4), X),
        lambda: ts.train(nn.BatchNorm1d(4), OPT, in_a_loop, [X], steps=1, live=False),
        lambda: ts.train(nn.Linear(4, 4, key=0), OPT, lambda m, x: ts.mse(teacher(m(x)), x), [X], steps=1, live=False),
        lambda: nn.BatchNorm1d(4)(ts.Tensor(X, requires_grad=True)),
    ):
        run()
        (said,) = [w for w in recwarn.list if "TS374" in str(w.message)]
        assert said.filename == __file__ and "norm(x, training=True)" in str(said.message)
        recwarn.clear()
    assert not teacher.mean.any()
    for told in (None, False):  # the step of ts.train moves the averages of its model
        run = ts.train(nn.BatchNorm1d(4), OPT, loss(told), [X], steps=1, live=False)
        assert np.asarray(run.model.mean).any() == (told is None)
    ts.compile(mode="inference")(lambda norm, x: ts.grad(loss(None))(norm, x))(nn.BatchNorm1d(4), X)
    nn.BatchNorm1d(4)(X)
    assert not recwarn.list


def test_buffers_are_not_trained_and_no_warning_is_about_them(recwarn):
    step = ts.function(lambda norm, x: ts.grad(lambda n: ts.sum(n(x, training=True)[0]))(norm))
    assert not step(nn.BatchNorm1d(4), X).mean.any() and not recwarn.list


def test_a_loss_that_returns_nothing():
    with pytest.raises(ts.CompileError, match=r"(?s)TS106 in nothing.*the loss is None: it returns nothing"):
        ts.train(nn.Linear(2, 2, key=0), ts.optimizers.SGD(0.1), nothing, [np.ones((1, 2), np.float32)], live=False)


@pytest.mark.parametrize("result", [lambda loss: {"loss": loss}, lambda loss: [loss, {"seen": 1}]])
def test_a_loss_that_is_no_number(result):
    def loss(model, x):
        return result(ts.sum(model(x)))

    with pytest.raises(ts.CompileError, match=r"(?s)TS106 in loss.*the loss is a number; "):
        ts.train(nn.Linear(2, 2, key=0), ts.optimizers.SGD(0.1), loss, [np.ones((1, 2), np.float32)], live=False)


def nothing(model, x):
    model(x)


def test_samples_are_no_batches() -> None:
    data = require("torch").utils.data
    pairs = data.TensorDataset(*(require("torch").from_numpy(a) for a in (X, Y)))
    said = r"TS372: data: a TensorDataset gives samples, .*DataLoader\(data"
    with pytest.warns(DataWarning, match=said) as found:
        train(data=pairs, steps=1)
    assert Path(found[0].filename).name == "test_train.py"  # where `train` is called
    with warnings.catch_warnings(action="error"):
        train(data=data.DataLoader(pairs, batch_size=8), steps=1)
