"""`ts.is_training()`, `@ts.compile(mode=)`, and several decorators that say that it is a function."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.compiler.frontend.incremental import FileAnalysis

X = np.ones(3, np.float32)


def tripled(x):
    return x * 3.0 if ts.is_training() else x


@ts.function
def undecided(x):
    return tripled(x)


@ts.compile(mode="training")
def trained(x):
    return ts.sum(tripled(x))


@ts.compile(mode="inference")
def served(x):
    return trained(x)


def test_the_outermost_mode_decides():
    assert undecided(X)[0] == 1 and trained(X) == 9 and served(X) == 3
    assert ts.grad(trained)(X).tolist() == [3, 3, 3]
    assert ts.grad(lambda x: trained(x) * 2)(X).tolist() == [6, 6, 6]
    x = ts.Tensor(X, requires_grad=True)
    trained(x).backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_the_loss_of_train_is_compiled_for_training():
    run = ts.train(nn.Linear(3, 3, key=0), ts.optimizers.SGD(0.0), loss, [X[None]], live=False)
    assert run.history["loss"][0] == 1


def loss(model, x: Tensor["B", "D"]):
    return ts.sum(model(x)) * 0.0 + (1.0 if ts.is_training() else 0.0)


class Tripled(nn.Module):
    weight: Tensor["D"]

    def forward(self, x):
        return x * self.weight * (3.0 if ts.is_training() else 1.0)


def test_outside_of_functions_a_model_is_evaluated():
    assert tripled(X) is X
    model = Tripled(np.ones(3, np.float32))
    assert model(X).tolist() == X.tolist()
    with ts.no_grad():
        assert model.requires_grad_()(X).tolist() == X.tolist()


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: ts.grad(lambda x: ts.sum(undecided(x)))(X), "TS105.*is not decided: a gradient is taken here"),
        (lambda: ts.sum(undecided(ts.Tensor(X, requires_grad=True))).backward(), "TS105.*is not decided"),
        (lambda: tripled(ts.Tensor(X, requires_grad=True)), "TS105.*not decided: this call is recorded for backward"),
        (lambda: Tripled(ts.Tensor(X, requires_grad=True))(X), "TS105.*not decided: this call is recorded"),
        (lambda: ts.compile(mode="prefill"), "TS105.*mode is 'training' or 'inference', not 'prefill'"),
        (lambda: store(X.copy()), "TS104.*give the kernel a parameter"),
        (lambda: ts.function(store), "TS102.*kernel already"),
    ],
    ids=["gradient", "backward", "outside", "module", "mode", "kernel", "function of a kernel"],
)
def test_what_is_refused(call, said):
    with pytest.raises(ts.TesseraError, match=f"(?s){said}"):
        call()


@ts.kernel
def store(x: Tensor["N"]):
    i = ts.tile.linear_id()
    if i < N:
        x[i] = 1.0 if ts.is_training() else 0.0


def test_decorators_of_one_function():
    @ts.jit
    @ts.autodiff
    @ts.compile(mode="training")
    def f(x):
        return tripled(x)

    assert f(X)[0] == 3 and f.options["mode"] == "training"
    assert ts.function(f) is f and ts.function(numerics="@saturate")(f).options["mode"] == "training"


def test_what_is_compiled_for_a_mode_is_analysed_while_typing():
    file = FileAnalysis("model.py")
    file.update(
        "import tessera as ts\nfrom tessera import Tensor\n"
        '@ts.compile(mode="training")\ndef f(x: Tensor["N"]):\n    return x.first if ts.is_training() else x\n'
        '@ts.compile(mode="inference")\ndef g(x: Tensor["N"]):\n    return x.second if ts.is_training() else x\n'
        '@ts.compile(mode="serving")\ndef h(x: Tensor["N"]):\n    return x\n'
        "class Net(ts.nn.Module):\n    @ts.compile(mode='training')\n    def forward(self, x: Tensor['N']):\n"
        "        return x.third\n"
    )
    assert [(d.span.line, d.message.partition(";")[0]) for d in file.diagnostics] == [
        (5, "a tensor [N] f32 has no attribute 'first'"),
        (9, "compile: mode is 'training' or 'inference', not 'serving'"),
        (15, "a tensor [N] f32 has no attribute 'third'"),
    ]


def test_trains_in_files_are_compiled_for_training():
    file = FileAnalysis("model.py")
    file.update(
        "import tessera as ts\nfrom tessera import Tensor, nn\n"
        "class Net(nn.Module):\n    up: nn.Linear\n    idle: nn.Linear\n"
        "    def __init__(self):\n"
        "        self.up = nn.Linear(4, 4, key=0)\n        self.idle = nn.Linear(4, 4, key=1)\n"
        "def loss(model, x: Tensor['B', 4]):\n"
        "    return ts.mse(model.up(x) if ts.is_training() else model.idle(x), x)\n"
        "ts.train(Net(), ts.optimizers.SGD(0.1), loss, data)\n"
    )
    (found,) = file.diagnostics
    assert found.code == "TS354" and re.findall(r"\b(up|idle)\b", found.message) == ["idle"]
