"""`ts.train` as a file calls it: what editors know of its step before anything has run."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tessera.compiler.frontend.called.arguments import called
from tessera.compiler.frontend.function.trees import TREES
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.names.vocabulary import HELPERS
from tessera.compiler.predict import predict, predict_training

HEAD = """
import tessera as ts
from tessera import Tensor, nn


class Net(nn.Module):
    up: nn.Linear
    idle: nn.Linear
    down: nn.Linear

    def __init__(self, width, key=0):
        self.up = nn.Linear(width, 32, key=key)
        self.idle = nn.Linear(32, 32, key=key)
        self.down = nn.Linear(32, width, key=key)

    def __call__(self, x):
        return self.down(ts.relu(self.up(x)))


def loss(model, x: Tensor["B", "D"]):
    return ts.mse(model(x), x)


"""
TRAIN = "run = ts.train(Net(64), ts.optimizers.AdamW(1e-3), loss, data, steps=100)"


def read(text: str) -> FileAnalysis:
    file = FileAnalysis("/work/trains.py")
    file.update(HEAD + textwrap.dedent(text))
    assert not [d for d in file.diagnostics if d.severity == "error"], file.diagnostics
    return file


def idle(file: FileAnalysis) -> list[tuple[int, str]]:
    return [(d.span.line, d.message.partition(":")[0]) for d in file.diagnostics if d.code == "TS354"]


LINE = HEAD.count("\n", 0, HEAD.index("def loss")) + 1


@pytest.mark.parametrize(
    "call",
    [
        TRAIN,
        "ts.train(model=Net(64), loss=loss, data=data, optimizer=ts.optimizers.SGD(0.1))",
        "from tessera import train\nmodel = Net(64)\ntrain(model, ts.optimizers.Adam(1e-3), loss, data)",
        "import tessera\ndef main(width=64):\n    model, opt = Net(width), tessera.optimizers.Lion(1e-4)\n"
        "    return tessera.train(model, opt, loss, data)",
        "opt = ts.optimizers.AdamW(ts.optimizers.Cosine(1e-2, steps=100, warmup=10), clip=1.0,\n"
        "    groups=(ts.optimizers.Group(lambda name, p: len(p.shape) < 2, weight_decay=0.0),))\n"
        "ts.train(Net(64), opt, loss, data)",
    ],
)  # fmt: skip
def test_layers_without_use_are_found_before_the_first_step(call: str) -> None:
    assert idle(read(call)) == [(LINE, "loss does not depend on model.idle")]


def test_dropout_without_a_key_is_found_at_its_call_in_a_loop() -> None:
    text = """
    class Dropping(nn.Module):
        drop: nn.Dropout
        up: nn.Linear

        def __init__(self):
            self.drop, self.up = nn.Dropout(0.1), nn.Linear(32, 32, key=0)

        def __call__(self, x, key=None):
            for _ in ts.range(2):
                x = self.drop(self.up(x), key)
            return x


    def loss(model, x: Tensor["B", "D"]%s):
        return ts.mse(model(x%s), x)


    ts.train(Dropping(), ts.optimizers.SGD(0.1), loss, data)
    """
    for more, said in ((("", ""), [LINE + 14]), ((", key: ts.int64", ", key"), [])):
        assert [d.span.line for d in read(text % more).diagnostics if d.code == "TS374"] == said


def test_batch_normalisation_that_no_step_trains_is_found_at_its_call() -> None:
    text = """
    class Normed(nn.Module):
        def __init__(self):
            self.up, self.norm = nn.Linear(32, 32, key=0), nn.BatchNorm1d(32)

        def forward(self, x):
            %s
                x = self.norm(self.up(x))
            return x


    def loss(model, x: Tensor["B", "D"]):
        return ts.mse(model(x), x)


    ts.train(Normed(), ts.optimizers.SGD(0.1), loss, data)
    """
    for head, said in (("for _ in range(2):", []), ("for _ in ts.range(2):", [LINE + 11])):
        assert [d.span.line for d in read(text % head).diagnostics if d.code == "TS374"] == said


@pytest.mark.parametrize("decorator", ["", "@ts.function\n"], ids=["plain", "function"])
@pytest.mark.parametrize(
    "body, code, line, col, said",
    [
        ("return (model(x) - x) ** 2", "TS352", 0, 5, "reduce it with"),
        (
            "y = model(x[:, 1:])\n    return ts.mse(y, x)",
            "TS208",
            1,
            9,
            "model: Linear(64, 64) expects 64 features, got 63",
        ),
        ("return ts.mse(model(x)[:, 1:], x)", "TS202", 1, 12, "63"),
    ],
    ids=["no number", "sizes of the model", "shapes"],
)
def test_errors_of_a_step_stand_at_their_lines_once(
    decorator: str, body: str, code: str, line: int, col: int, said: str
) -> None:
    """As when it runs, though no decorator has the loss analysed."""
    text = "import tessera as ts\nfrom tessera import Tensor, nn\n\n\n"
    text += f'{decorator}def loss(model, x: Tensor["B", 64]):\n    {body}\n\n\n'
    text += "ts.train(nn.Linear(64, 64, key=0), ts.optimizers.SGD(0.1), loss, data)\n"
    file = FileAnalysis("/work/trains.py")
    file.update(text)
    (found,) = [d for d in file.diagnostics if d.severity == "error"]
    first = text.count("\n", 0, text.index("def loss")) + 1
    assert (found.code, found.span.line, found.span.col) == (code, first + line, col), found
    assert said in found.message and not any("<" in said for said in (found.message, *(n.message for n in found.notes)))


def test_an_error_of_a_loss_of_another_file_stands_where_it_is_passed(tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text(
        "import tessera as ts\nfrom tessera import Tensor\n\n\n"
        'def loss(model, x: Tensor["B", 8]):\n    y = model(x)\n    return ts.mse(y, x[:, :4])\n'
    )
    text = "import tessera as ts\nfrom losses import loss\nfrom tessera import nn\n\n"
    text += "ts.train(nn.Linear(8, 8, key=0), ts.optimizers.SGD(0.1), loss, [])\n"
    file = FileAnalysis(str(tmp_path / "trains.py"))
    file.update(text)
    (found,) = [d for d in file.diagnostics if d.severity == "error"]
    assert text.splitlines()[found.span.line - 1][found.span.col - 1 :].startswith("loss, [])")
    assert found.notes[0].message == "found here" and found.notes[0].span.line == 7


def test_texts_know_the_helpers_that_the_evaluator_defines() -> None:
    """A helper that only live programs knew would leave what editors see of an optimizer undecided."""
    known = {f"{module}.{name}" for module, names in HELPERS.items() for name in names}
    assert {path for path in TREES if path.count(".") > 1} <= known


def test_a_frozen_layer_is_not_trained() -> None:
    frozen = "groups=(ts.optimizers.Group(lambda name, p: name.startswith('idle'), frozen=True),)"
    assert not idle(read(TRAIN.replace("AdamW(1e-3", f"AdamW(1e-3, {frozen}")))


@pytest.mark.parametrize(
    "text",
    [
        TRAIN.replace("ts.train", "other.train"),
        TRAIN.replace("loss,", "unknown,"),
        TRAIN.replace("Net(64)", "given"),
        "def loss(model, x):\n    return ts.mse(model(x), x)\n" + TRAIN,
        "def loss(model, x: Tensor['B', 'D']):\n    return ts.mse(model(x), x) + 0 * ts.sum(model.idle(model.up(x)))\n"
        + TRAIN,
    ],
)
def test_where_nothing_is_said(text: str) -> None:
    assert not idle(read(text))


def test_what_a_loss_may_give_and_take() -> None:
    """Names of the loss may be those of the step around it; a key, further results, numbers by name."""
    text = """
    def loss(result, scale: Tensor["B", "D"], *, model: Tensor["B", "D"], value=2, key: ts.int64):
        h = ts.dropout(result(scale), key, 0.1)
        return value * ts.mse(h, model), {"more": ts.sum(h)}
    """
    file = read(text + TRAIN)
    assert idle(file) == [(LINE + 5, "loss does not depend on model.idle")]
    assert predict_training(file.trainings[0], {"B": 64}, "cpu").bytes is not None


def test_an_analysis_is_kept_while_it_holds() -> None:
    file = read(TRAIN)
    step = file.trainings[0].step
    assert step is not None
    file.update("# moved\n" + file.text + "\nz = 1\n")
    assert file.trainings[0].step is not None and file.trainings[0].step.analysis.op is step.analysis.op
    assert idle(file) == [(LINE + 1, "loss does not depend on model.idle")]
    made = file.trainings[0].made["model"]
    file.update(file.text.replace("ts.mse(model(x), x)", "ts.mse(model(2 * x), x)"))  # the model is not made again
    now = file.trainings[0]
    assert now.made["model"].type is made.type and now.step is not None and now.step.analysis is not step.analysis
    file.update(file.text.replace("self.up(x)", "self.idle(self.up(x))"))
    assert not idle(file) and file.trainings[0].made["model"].type is not made.type
    file.update(file.text.replace("Net(64)", "Net(96)"))
    assert "Net(96)" in predict_training(file.trainings[0], {}, "cpu").text


def test_a_step_is_predicted_with_its_update() -> None:
    """Without the update a step takes less time; Adam keeps twice as many arrays as SGD with momentum."""
    file = read(
        "@ts.function\ndef gradient(model, x: Tensor['B', 'D']):\n"
        "    return ts.value_and_grad(lambda model: loss(model, x))(model)\n"
        "gradient(Net(64), x)\n" + TRAIN
    )
    alone, step = predict(file.analyses[-1], {"B": 64}, "cpu"), predict_training(file.trainings[0], {"B": 64}, "cpu")
    assert alone.us is not None and step.us is not None and step.us > alone.us and step.launches > alone.launches
    assert step.text.startswith("modelled on cpu at model=Net(64) (line ")
    parameters = 4 * (64 * 32 + 32 + 32 * 32 + 32 + 32 * 64 + 64)
    least = read(TRAIN.replace("AdamW(1e-3)", "SGD(0.1, momentum=0.9)"))
    other = predict_training(least.trainings[0], {"B": 64}, "cpu")
    # while the update runs: parameters, gradients, and the state twice
    assert step.bytes is not None and other.bytes is not None
    assert abs(step.bytes - other.bytes - 2 * parameters) < 1000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TRAIN.replace("Net(64)", "given"), "the text does not tell what the model holds"),
        (TRAIN.replace("ts.optimizers.AdamW(1e-3)", "given"), "the text does not tell the optimizer"),
        (
            TRAIN.replace("Net(64)", "Net(64, key=ts.split(0, 2))"),
            "fails: split cuts a tensor apart, and this is one",
        ),
        (TRAIN.replace("steps", "accumulate=4, steps"), "several batches"),
        ("def loss(model, x):\n    return ts.mse(model(x), x)\n" + TRAIN, "loss has no annotation of x"),
        (
            "def loss(model, x: Tensor['B', 3]):\n    return ts.mse(model(x), x)\n" + TRAIN,
            "model.up: Linear(64, 32) expects 64 features, got 3",
        ),
    ],
)
def test_why_nothing_is_predicted(text: str, why: str) -> None:
    file = FileAnalysis("/work/trains.py")
    file.update(HEAD + text)
    (training,) = file.trainings
    found = predict_training(training, {}, "cpu")
    assert found.us is None and found.bytes is None and why in found.why, found


def test_a_loss_in_the_place_of_the_optimizer() -> None:
    """It is an error at the call, with a fix, and the step is known all the same."""
    file = FileAnalysis("/work/trains.py")
    file.update(HEAD + TRAIN.replace("ts.optimizers.AdamW(1e-3), loss", "loss, ts.optimizers.AdamW(1e-3)"))
    (found,) = [d for d in file.diagnostics if d.severity == "error"]
    assert found.code == "TS105" and "the optimizer comes before the loss" in found.message
    (fix,) = found.fixes
    assert sorted(e.text for e in fix.edits) == ["loss", "ts.optimizers.AdamW(1e-3)"]
    assert predict_training(file.trainings[0], {"B": 64}, "cpu").us is not None


STATE = """
@ts.function
def step(state: ts.optimizers.TrainingState, x: Tensor["B", "D"]):
    value, gradient = ts.value_and_grad(lambda model: loss(model, x))(state.model)
    state.step(gradient)
    return value

state = ts.optimizers.TrainingState(Net(64), ts.optimizers.{rule})
step(state, x)
"""


@pytest.mark.parametrize(
    ("rule", "moments"),
    [
        ("AdamW(1e-3)", 2), ("SGD(0.1)", 0), ("SGD(0.1, momentum=0.9, nesterov=True)", 1), ("Lion(1e-4)", 1),
        ("AdamW(ts.optimizers.Cosine(1e-2, steps=100), clip=1.0, numerics=ts.loss_scale('dynamic'))", 2),
        ("Adam(1e-3, (0.8, 0.9), master=True, seed=3)", 2),
    ],
)  # fmt: skip
def test_a_step_that_takes_a_training_state(rule: str, moments: int) -> None:
    """Its arrays are changed in place: parameters and moments are there once, and gradients beside them."""
    file = read(STATE.replace("{rule}", rule))
    analysis = next(a for a in file.analyses if a.name == "step")
    found = called(analysis)
    assert found.analysis.op is not None and found.sizes == {"D": 64}
    predicted = predict(analysis, {"B": 64}, "cpu", found)
    assert predicted.us is not None and predicted.bytes is not None
    parameters = 4 * (64 * 32 + 32 + 32 * 32 + 32 + 32 * 64 + 64)
    assert 0 <= predicted.arguments - (1 + moments) * parameters - 4 * 64 * 64 < 100
    assert predicted.bytes >= predicted.arguments


def test_buffers_that_a_text_registers_are_no_parameters() -> None:
    text = """
    class Positions(nn.Module):
        def __init__(self):
            self.register_buffer("table", ts.ones((8, 32)))
            self.up = nn.Linear(32, 32, key=0)

        def forward(self, x):
            return self.up(x)


    def of_positions(model, x: Tensor[8, 32]):
        return ts.mse(model(x), x)


    ts.train(Positions(), ts.optimizers.AdamW(0.1), of_positions, data)
    """
    (training,) = read(text).trainings
    assert training.problem == "" and not idle(read(text))
    state = training.state()
    assert state is not None and [*state.members["moments"]] == ["up.weight", "up.bias"]
