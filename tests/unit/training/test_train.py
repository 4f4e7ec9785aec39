"""`ts.train`: the same as a loop written by hand, whatever ends it and wherever it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.training.data import DataWarning
from tessera.training.step import LossCall
from tests.conftest import require

RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 4)).astype(np.float32)
Y = X[:, ::-1].copy()
BATCHES = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 44, 8)]  # the last one has four rows
OPT = ts.optimizers.AdamW(ts.optimizers.Cosine(0.02, 20, warmup=3), clip=1.0)


def fresh():
    return nn.MLP(4, 8, key=0)


def loss(model, x, y):
    return ts.mse(model(x), y)


def noisy(model, x, y, key: ts.int64):
    return ts.mse(ts.dropout(model(x), key, 0.2), y)


def bits(part):
    return {leaf.path: ts.asarray(leaf.array).numpy().tobytes() for leaf in nn.tree.leaves(part)}


def equal(a, b):
    return bits(a.model) == bits(b.model) and bits(a.optimizer) == bits(b.optimizer) and a.step == b.step


def train(loss=loss, data=BATCHES, opt=OPT, **options):
    return ts.train(fresh(), opt, loss, data, **{"steps": 14, "live": False, **options})


def test_it_is_the_loop_written_by_hand():
    @ts.function
    def step(model, x, y):
        return ts.value_and_grad(lambda model: ts.mse(model(x), y))(model)

    model, state = fresh(), OPT.init(fresh())
    losses = []
    for i in range(14):
        value, gradient = step(model, *BATCHES[i % len(BATCHES)])
        model, state = OPT.update(model, gradient, state)
        losses.append(float(value))
    run = train()
    assert bits(run.model) == bits(model) and bits(run.optimizer) == bits(state)
    assert run.history["loss"].tolist() == losses and run.history.steps == list(range(1, 15))
    assert run.step == 14 and not run.stopped and run.history.names == ("loss", "grad_norm")


def by_number(i):
    return BATCHES[i % len(BATCHES)]


def passes():
    yield from BATCHES


class Loader:
    def __len__(self):
        return len(BATCHES)

    def __iter__(self):
        return iter({"x": x, "y": y} for x, y in BATCHES)


KINDS = {"function": by_number, "passes": passes, "loader": Loader(), "tuple": tuple(BATCHES)}


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS)
def test_data_of_any_kind_give_the_same(data):
    assert equal(train(data=data), train())


def test_an_iterator_that_ends_is_said():
    run = train(data=iter(BATCHES))
    assert run.stopped == "the data have ended" and run.step == len(BATCHES)
    assert equal(run, train(steps=len(BATCHES)))


def test_epochs_and_lengths():
    assert train(steps=None, epochs=2).step == 2 * len(BATCHES) and train(steps=None).step == len(BATCHES)
    assert train(steps=None, epochs=2, accumulate=4).step == 2 * len(BATCHES) // 4


def test_passes_over_data_without_a_length(tmp_path):
    def passes():
        yield from BATCHES

    n = len(BATCHES)
    run = train(data=passes, steps=None, epochs=2)
    assert (run.step, run.stopped) == (2 * n, "") and equal(run, train(steps=2 * n))
    assert train(data=iter(BATCHES), steps=None).step == n
    assert train(data=passes, steps=None, epochs=2, accumulate=3).step == 2 * n // 3
    whole = train(data=passes, steps=None, epochs=2, checkpoint=tmp_path)
    again = train(data=passes, steps=None, epochs=3, checkpoint=tmp_path)
    assert (whole.step, again.step) == (2 * n, 3 * n) and equal(again, train(steps=3 * n))
    assert train(data=passes, steps=None, epochs=2, checkpoint=tmp_path).step == 3 * n


def test_a_run_of_passes_that_was_interrupted_goes_on_to_its_end():
    stop = [len(BATCHES) + 1]

    def passes():
        for batch in BATCHES:
            stop[0] -= 1
            if stop[0] == 0:
                signal.raise_signal(signal.SIGINT)
            yield batch

    run = train(data=passes, steps=None, epochs=2)
    assert run.stopped == "interrupted" and run.step <= len(BATCHES) + 1
    assert run.resume().stopped == "" and equal(run, train(steps=2 * len(BATCHES)))


def test_torch_loaders_and_their_order_after_resuming(tmp_path):
    torch = require("torch")
    from torch.utils.data import DataLoader, TensorDataset

    def loader():
        generator = torch.Generator().manual_seed(3)
        return DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)), 8, shuffle=True, generator=generator)

    whole = train(data=loader())
    train(data=loader(), steps=8, checkpoint=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        assert equal(train(data=loader(), checkpoint=tmp_path), whole)


@pytest.mark.parametrize("number", [float, np.float32, np.float64, np.float16, int, np.int64], ids=str)
def test_numbers_of_batches_are_data(number):
    """A temperature that falls, of whatever library: an array, which needs no program of its own for each step."""

    def scaled(model, x, y, rate):
        return ts.mse(model(x), y) * rate, {"rate": rate}

    run = ts.train(fresh(), OPT, scaled, lambda i: (*BATCHES[0], number(i + 1)), steps=3, live=False)
    assert run.history["rate"].tolist() == [1, 2, 3]
    *_, rate = LossCall.of(scaled).arguments((*BATCHES[0], number(3)))[0]
    wanted = {float: np.float32, np.float64: np.float32, int: np.int64}.get(number, number)
    assert type(rate) is np.ndarray and (rate.shape, rate.dtype, rate.item()) == ((), wanted, 3)


def test_rows_of_python_numbers():
    """What an iteration over a Hugging Face data set gives: dicts of lists and numbers."""
    rows = [{"image": row.tolist(), "label": int(i % 3)} for i, row in enumerate(X)]

    def classified(model, image, label):
        return ts.cross_entropy(model(image)[None], label[None])

    run = train(classified, rows, steps=5)
    assert run.step == 5 and np.isfinite(run.history["loss"]).all()


def test_a_batch_as_a_whole():
    def whole(model, batch):
        return ts.mse(model(batch["x"]), batch["y"])

    assert equal(train(whole, [{"x": x, "y": y} for x, y in BATCHES]), train())


SCALED = ts.optimizers.AdamW(0.02, loss_scale="dynamic")


@pytest.mark.parametrize("options", [
    {}, {"loss": noisy, "opt": SCALED}, {"data": by_number}, {"data": passes}, {"loss": noisy, "accumulate": 2}
], ids=["plain", "scaled", "by number", "passes", "accumulated"])  # fmt: skip
def test_resuming_gives_the_same_bits(tmp_path, options):
    whole = train(**options)
    for until in (5, 9, 14):
        run = train(checkpoint=tmp_path, every=2, **options, steps=until)
    assert equal(run, whole) and run.history["loss"].tolist() == whole.history["loss"].tolist()
    assert equal(train(checkpoint=tmp_path, **options), whole)  # nothing is left to do


def test_accumulating_is_the_mean_of_the_parts():
    parts = [(x[i : i + 4], y[i : i + 4]) for x, y in BATCHES[:-1] for i in (0, 4)]
    whole, cut = train(data=BATCHES[:-1], steps=5), train(data=parts, steps=5, accumulate=2)
    np.testing.assert_allclose(cut.history["loss"], whole.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(cut.model.up.weight.numpy(), whole.model.up.weight.numpy(), atol=1e-5)


class Interrupted:
    """Batches, with a Ctrl-C before one of them, once."""

    def __init__(self, at, kind=KeyboardInterrupt):
        self.at, self.kind, self.count = at, kind, 0

    def __iter__(self):
        for batch in BATCHES:
            self.count += 1
            if self.count == self.at:
                raise self.kind
            yield batch


def test_an_interrupt_leaves_the_last_whole_step(capsys):
    run = train(data=Interrupted(9))
    assert run.stopped == "interrupted" and run.step == 8 and len(run.history) == 8
    assert equal(run, train(steps=8))
    assert "interrupted: model and optimizer are those of step 8" in capsys.readouterr().out
    assert equal(run.resume(14), train()) and not run.stopped


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_is_not_lost():
    """What is raised within a destructor goes nowhere."""

    class Dropping:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    def dropping(i):
        if i == 6:
            Dropping()
        return by_number(i)

    handler = signal.getsignal(signal.SIGINT)
    run = train(data=dropping)
    assert run.stopped == "interrupted" and run.step in (6, 7) and equal(run, train(steps=run.step))
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_interrupt_within_a_step(monkeypatch, where):
    update, count = ts.optimizers.Optimizer.update, iter(range(100))

    def interrupted(*args, **kwargs):
        result = update(*args, **kwargs) if where == "after" else None
        if next(count) == 5:
            raise KeyboardInterrupt
        return result or update(*args, **kwargs)

    monkeypatch.setattr(ts.optimizers.Optimizer, "update", interrupted)
    run = train(loss=noisy, data=iter(BATCHES * 3))
    assert run.step == 5 and run.stopped == "interrupted"
    monkeypatch.undo()
    assert equal(run.resume(14), train(loss=noisy))  # with the batch that the interrupted step had taken


def test_what_is_interrupted_is_saved(tmp_path):
    train(data=Interrupted(9), checkpoint=tmp_path)
    assert ts.checkpoint.load(tmp_path)["step"] == 8
    assert equal(train(checkpoint=tmp_path), train())


def test_a_fault_of_the_data_leaves_the_state(tmp_path):
    with pytest.raises(OSError):
        train(data=Interrupted(9, OSError), checkpoint=tmp_path)
    assert equal(train(checkpoint=tmp_path), train())


KILLED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
import tests.unit.training.test_train as t
class Told(t.Loader):
    def __iter__(self):
        for batch in t.Loader.__iter__(self):
            print("batch", flush=True)
            yield batch
t.train(t.noisy, Told(), checkpoint=sys.argv[1], every=3, steps=int(sys.argv[2]))
"""


def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), "100000"], stdout=subprocess.PIPE)
    for _ in range(10):
        assert process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    at = ts.checkpoint.load(tmp_path)["step"]
    assert at >= 3 and at % 3 == 0
    assert equal(train(noisy, Loader(), checkpoint=tmp_path, steps=at + 8), train(noisy, Loader(), steps=at + 8))


def test_data_in_another_order_are_said(tmp_path):
    train(data=BATCHES, steps=4, checkpoint=tmp_path)
    with pytest.warns(DataWarning, match=r"TS372: the run is resumed, but batch 4 of pass 1 is not what it was"):
        train(data=BATCHES[::-1], checkpoint=tmp_path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    train(steps=2, checkpoint=tmp_path)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS361.*up.weight is \[4, 8\] f32, and in model \[4, 9\] f32"):
        ts.train(nn.MLP(4, 9, key=0), OPT, loss, BATCHES, steps=4, checkpoint=tmp_path)


def test_the_loss_may_log_and_change_buffers():
    class Counting(nn.Module):
        inner: nn.MLP
        seen: ts.Tensor["", ts.f32] = nn.buffer()

    def counted(model, x, y):
        found = model.inner(x)
        return ts.mse(found, y), Counting(model.inner, model.seen + 1.0), {"error": ts.mean(ts.abs(found - y))}

    model = Counting(fresh(), np.zeros((), np.float32))
    run = ts.train(model, OPT, counted, BATCHES, steps=4, live=False)
    assert float(run.model.seen) == 4 and (run.history["error"] > 0).all()
    assert bits(run.model.inner) == bits(train(steps=4).model)
    run = ts.train(model, OPT, counted, BATCHES, steps=2, accumulate=3, live=False)
    assert float(run.model.seen) == 6


class Twice(nn.Module):
    """Drops half, twice, and half of the rest once more."""

    weight: Tensor["D"]
    drop: nn.Dropout

    def __call__(self, x):
        return self.drop(self.drop(x * self.weight)), self.drop(x)


def twice(model, x):
    y, z = model(x)
    kept, other = ts.where(y != 0, 1.0, 0.0), ts.where(z != 0, 1.0, 0.0)
    return ts.mse(y, x), {"kept": ts.mean(kept), "other": ts.mean(other), "both": ts.mean(kept * other)}


def test_dropout_without_a_key_gets_one_of_the_step_for_each_place(tmp_path, recwarn):
    data = [np.ones((8, 1000), np.float32), np.ones((4, 1000), np.float32)]

    def run(steps, **options):
        model = Twice(np.ones(1000, np.float32), nn.Dropout(0.5))
        return ts.train(model, OPT, twice, data, steps=steps, live=False, **options)

    whole = run(6)
    for name, share in (("kept", 0.25), ("other", 0.5), ("both", 0.125)):  # places draw by themselves, and so do steps
        assert np.abs(whole.history[name] - share).max() < 0.04 and len({*whole.history[name].tolist()}) > 3
    run(3, checkpoint=tmp_path)
    assert bits(run(6, checkpoint=tmp_path).model) == bits(whole.model)
    assert bits(run(6, seed=1).model) != bits(whole.model)
    assert not recwarn.list


def test_keys_of_steps_are_far_apart():
    def loss(model, x, key: ts.int64):
        return ts.mse(model(x), x), {"high": (key // 2**32).to(ts.f32), "low": (key % 2**20).to(ts.f32)}

    run = ts.train(nn.Linear(4, 4, key=0), OPT, loss, [np.ones((2, 4), np.float32)], steps=5, live=False)
    assert len({*run.history["high"].tolist()}) == 5, "key + 1 is the key of another step"


def test_another_key_needs_no_new_code():
    from tessera.training.step import step_of

    x = np.ones((2, 4), np.float32)
    for key in range(3):
        step_of(noisy, True)(nn.Linear(4, 1, key=0), (x, x[:, :1]), {}, np.float32(1), key)
    assert "argument key_" not in str(ts.why_recompiled(step_of(noisy, True)))


@ts.function(open_dims="B")
def open_loss(model, x: ts.Tensor["B", 4, ts.f32], y: ts.Tensor["B", 4, ts.f32], key: ts.int64, p=0.2):
    error = ts.mse(ts.dropout(model(x), key, p), y)
    return error, {"rows": ts.mean(ts.abs(x))}


def known_loss(model, x, y, key: ts.int64):
    return ts.mse(ts.dropout(model(x), key, 0.2), y), {"rows": ts.mean(ts.abs(x))}


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_loss_with_open_dims_has_one_step_for_all_sizes(tmp_path, accumulate):
    """Batches have 8 rows and 4: the program is one, its bits are those of known sizes, also behind a checkpoint."""
    from tessera.runtime.code.why_recompiled import compilations
    from tessera.training.step import open_step_of

    sizes = [*BATCHES, (X[:1], Y[:1]), {"y": Y[:5], "x": X[:5]}]
    wanted = train(known_loss, sizes, steps=9, accumulate=accumulate)
    run = train(open_loss, sizes, steps=9, accumulate=accumulate)
    assert equal(run, wanted)
    assert len({str(c.fields) for c in compilations(open_step_of(open_loss, ("x", "y", "key")))}) == 1
    train(open_loss, sizes, steps=4, accumulate=accumulate, checkpoint=tmp_path)
    assert equal(train(open_loss, sizes, steps=9, accumulate=accumulate, checkpoint=tmp_path), wanted)


def test_faults_of_a_loss_with_open_dims_stand_at_the_loss():
    @ts.function(open_dims="B")
    def roots(model, x: ts.Tensor["B", 4, ts.f32], y: ts.Tensor["B", 4, ts.f32]):
        return ts.mse(ts.sqrt(model(x) - 1e3), y)  # of what is negative

    with pytest.raises(ts.DebugCheckError, match="TS371") as raised:
        train(roots)
    (found,) = raised.value.diagnostics
    assert "# of what is negative" in Path(__file__).read_text().splitlines()[found.span.line - 1]

    @ts.function(open_dims="B")
    def nothing(model, x: ts.Tensor["B", 4, ts.f32], y: ts.Tensor["B", 4, ts.f32]):
        model(x)

    with pytest.raises(ts.CompileError) as raised:
        train(nothing)
    assert all(d.span.file == __file__ for d in raised.value.diagnostics), raised.value


def test_functions_without_parameters_give_the_batches_of_a_pass():
    parts = BATCHES[:3]

    def losses(data):
        return train(data=data, epochs=2, steps=None).history["loss"].tolist()

    wanted = losses(parts)
    assert len(wanted) == 6 and losses(lambda: iter(parts)) == losses(lambda: parts) == wanted


def test_an_optimizer_that_holds_parameters_is_refused_with_what_to_leave_out():
    model = nn.Linear(4, 4, key=0)
    with pytest.raises(ts.TesseraError, match=r"TS105(.|\n)*leave model.parameters\(\) out"):
        ts.train(
            model,
            ts.optimizers.AdamW(model.parameters(), lr=1e-2),
            lambda m, x: ts.mse(m(x), x),
            [np.ones((2, 4), np.float32)],
        )


def test_a_batch_of_lists_is_passed_item_by_item_to_a_loss_of_several():
    x, y = [[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]
    found = [
        ts.train(
            nn.Linear(2, 2, key=0), ts.optimizers.SGD(0.1), lambda model, x, y: ts.mse(model(x), y), [batch], steps=2
        ).history["loss"]
        for batch in ((x, y), [x, y], (np.array(x, np.float32), np.array(y, np.float32)))
    ]
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])
    whole = ts.train(
        nn.Linear(2, 2, key=0), ts.optimizers.SGD(0.1), lambda model, batch: ts.mean(model(batch)), [x], steps=2
    )
    assert len(whole.history["loss"]) == 2
