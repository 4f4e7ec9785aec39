"""Functions as a file calls them: models whose sizes the texts of constructors tell."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.called.arguments import AsCalled, called
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.names.values import Record, is_dict, is_sequence
from tessera.compiler.frontend.workspace import Modules
from tessera.compiler.ir.types import TensorType
from tessera.compiler.predict import predict

HEAD = """
import functools
from functools import partial
import tessera as ts
from tessera import Tensor, nn
"""
STEP = """
@ts.function
def step(model: {model}, x: Tensor["B", "D"]):
    return ts.value_and_grad(lambda model: ts.mse(model(x), x))(model)
"""


def found(text: str, name: str = "step") -> AsCalled:
    file = FileAnalysis("/work/steps.py")
    file.update(HEAD + textwrap.dedent(text))
    assert not [d for d in file.diagnostics if d.severity == "error"], file.diagnostics
    return called(next(a for a in file.analyses if a.name == name))


def shapes(value: Any) -> Any:
    if isinstance(value, Record):
        return {n: s for n, v in value.members.items() if (s := shapes(v))}
    if is_sequence(value):
        return [shapes(v) for v in value]
    return getattr(value, "shape", None)


GPT = """
class GPT(nn.Module):
    up: nn.Linear
    down: nn.Linear

    def __init__(self, width, *, hidden=None, key=0):
        super().__init__()
        hidden = hidden or 4 * width
        a, b = nn.init.split(key, 2)
        self.up = nn.Linear(width, hidden, key=a)
        self.down = nn.Linear(hidden, width, key=b, bias=False)

    def __call__(self, x):
        return self.down(ts.relu(self.up(x)))
"""


@pytest.mark.parametrize(
    ("made", "line"),
    [
        ("model = GPT(width=64)\nstep(model, x)", "GPT(width=64)"),
        ("step(GPT(64), x)", "GPT(64)"),
        ("W = 64\nmodel = GPT(W)\nfor x in data:\n    loss, g = step(model, x)\n    model = f(model, g)", "GPT(W)"),
        ("def make(n=64):\n    return GPT(n)\ndef train():\n    model, n = make(), 3\n    step(model, x)", "make()"),
        ("def train(width=64):\n    model = GPT(width)\n    for x in data:\n        step(model, x)", "GPT(width)"),
        ("make = partial(GPT, hidden=256)\nmodel = make(64)\nstep(model, x)", "make(64)"),
        ("make = functools.partial(GPT)\nstep(make(width=64), x)", "make(width=64)"),
        ("run(GPT(64))", "GPT(64)"),
    ],
)  # fmt: skip
def test_the_text_makes_a_model(made: str, line: str) -> None:
    one = found(GPT + STEP.format(model="GPT") + made)
    assert shapes(one.made["model"].type) == {
        "up": {"weight": (64, 256), "bias": (256,)},
        "down": {"weight": (256, 64)},
    }
    assert one.made["model"].text == line and one.sizes == {"D": 64}
    assert one.analysis.op is not None


UNDECLARED = """
class Block(nn.Module):
    def __init__(self, width, key, act=ts.relu):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, key=key), nn.Linear(4 * width, width, key=key)
        self.scale = ts.zeros((width,))
        self.mode = "gated"
        self.act = act

    def __call__(self, x: Tensor["B", "D"]):
        h = self.act(self.up(x))
        if self.mode == "gated":
            h = h * h
        return self.down(h) * self.scale

class GPT(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.blocks = [Block(width, i) for i in range(layers)]

    def __call__(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
"""


def test_layers_that_only_the_constructor_sets() -> None:
    """As in PyTorch: no field is declared."""
    text = UNDECLARED + STEP.format(model="GPT")
    block = {"up": {"weight": (64, 256), "bias": (256,)}, "down": {"weight": (256, 64), "bias": (64,)}, "scale": (64,)}
    one = found(f"{text}\nrun(GPT(64))")
    assert shapes(one.made["model"].type) == {"blocks": [block, block]}
    assert one.sizes == {"D": 64} and one.analysis.op is not None
    file = FileAnalysis("/work/steps.py")
    file.update(HEAD + text)
    method = next(a for a in file.analyses if a.name == "__call__")
    said = {e.name: str(e.type) for e in method.expressions if e.kind == "assign"}
    assert "[B, H]" in said["h"]
    assert not [d for a in file.analyses for d in a.diagnostics]  # also where the number of blocks is not known


def test_a_variable_of_the_parameters_name_holds_the_model() -> None:
    text = GPT + STEP.format(model="GPT")
    text += "def make(n):\n    return GPT(n)\ndef train():\n    model = make(64)\n    evaluated(step, model)\n"
    assert found(text).made["model"].text == "make(64)"


def test_a_class_with_fields_of_another_files_class(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(HEAD + GPT.replace("class GPT(nn.Module)", "class Base(nn.Module)"))
    text = f"""{HEAD}
from layers import Base

class GPT(Base):
    norm: nn.LayerNorm

    def __init__(self, width):
        super().__init__(width)
        self.norm = nn.LayerNorm(width)
{STEP.format(model="GPT")}
step(GPT(64), x)
"""
    file = FileAnalysis(str(tmp_path / "steps.py"), modules=Modules())
    file.update(text)
    one = called(file.analyses[-1])
    assert list(shapes(one.made["model"].type)) == ["up", "down", "norm"] and one.analysis.op is not None


LAYERS = [
    "nn.MLP(8, 16, key=0)", "nn.SwiGLU(8, 24, key=0)",
    "nn.Sequential(nn.Linear(8, 8, key=0), ts.relu, nn.LayerNorm(8))",
    "nn.Stack(lambda key: nn.Linear(8, 8, key=key), 3, key=0)", "nn.Stack(partial(nn.MLP, 8, 16), 2, key=0)",
    "nn.TransformerBlock(8, 2, key=0, positions='rotary', feed_forward='swiglu')", "nn.EncoderLayer(8, 2, key=0)",
    "nn.Conv2d(3, 4, 3, key=0, padding=1)", "nn.ConvTranspose1d(3, 4, 3, key=0)", "nn.BatchNorm2d(4)",
    "nn.GRU(3, 4, key=1)",
    "nn.LSTM(3, 4, key=0)", "nn.MixtureOfExperts(8, 16, 4, key=0)", "nn.Embedding(5, 8, key=0, dtype=ts.bf16)",
    "nn.MLP(8, 16)", "nn.Stack(partial(nn.MLP, 8, 16), 2)", "nn.LSTM(3, 4, 2)",
    "nn.MultiHeadAttention(8, 4, key=0, groups=2)", "nn.DecoderLayer(8, 2, key=0)", "nn.GroupNorm(2, 8)",
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_as_the_constructor_makes_it(layer: str) -> None:
    """Names, shapes and dtypes are those of the real object."""
    from functools import partial

    from tessera import nn

    real = eval(layer, {"nn": nn, "ts": ts, "partial": partial})
    wanted = {n: (tuple(ts.asarray(a).shape), ts.asarray(a).dtype) for n, a in real.state_dict().items()}
    text = f"@ts.function\ndef f(model):\n    return model\nf({layer})\n"
    assert dict(arrays(found(text, "f").made["model"].type)) == wanted


def arrays(value: Any, path: str = "") -> Any:
    if isinstance(value, Record):
        value = value.members
    items = list(value.items()) if is_dict(value) else list(enumerate(value)) if is_sequence(value) else []
    for name, held in items:
        yield from arrays(held, f"{path}.{name}".removeprefix("."))
    if isinstance(value, TensorType):
        yield path, (value.shape, value.dtype)


def test_what_the_text_does_not_tell_is_said() -> None:
    text = GPT + STEP.format(model="GPT").replace('x: Tensor["B", "D"]', "x")
    one = found(text + "step(GPT(64), read())")
    assert [d.message for d in one.analysis.undecided] == ["the type of x must be known"]
    assert found(GPT + STEP.format(model="GPT") + "step(read(), x)").made == {}


def test_it_is_analysed_once() -> None:
    """While the function, what it reads and its arguments stay, an edit elsewhere costs nothing."""
    text = HEAD + GPT + STEP.format(model="GPT") + "step(GPT(64), x)\nnumber = 1\n"
    file = FileAnalysis("/work/steps.py")

    def now(before: AsCalled | None, text: str) -> AsCalled:
        file.update(text)
        return called(next(a for a in file.analyses if a.name == "step"), before)

    first = now(None, text)
    assert now(first, text.replace("number = 1", "number = 2")) is first
    wider = now(first, text.replace("GPT(64)", "GPT(32)"))
    assert wider.sizes == {"D": 32}
    assert now(wider, text.replace("GPT(64)", "GPT(32)").replace("ts.relu", "ts.gelu")) is not wider


@pytest.mark.parametrize("layers", [1, 3])
def test_the_peak_is_as_predicted(layers: int) -> None:
    """From the text alone, against what a call of the real model takes."""
    from tessera import Tensor, nn

    text = f"""
    @ts.function
    def step(model: nn.Stack, x: Tensor["B", "D"]):
        return ts.value_and_grad(lambda model: ts.mse(model(x), x))(model)

    step(nn.Stack(lambda key: nn.MLP(64, 256, key=key), {layers}, key=0), x)
    """
    file = FileAnalysis("/work/peak.py")
    file.update(HEAD + textwrap.dedent(text))
    predicted = predict(file.analyses[-1], {"B": 32768}, "cpu")
    assert predicted.bytes is not None and "modelled on cpu at model=nn.Stack(" in predicted.text

    @ts.function
    def step(model: nn.Stack, x: Tensor["B", "D"]):
        return ts.value_and_grad(lambda model: ts.mse(model(x), x))(model)

    model = nn.Stack(lambda key: nn.MLP(64, 256, key=key), layers, key=0)
    x = np.random.default_rng(0).standard_normal((32768, 64)).astype(np.float32)
    step(model, x)
    with ts.Profiler(tiles=False) as profile:
        step(model, x)
    taken = sum(e.delta for e in profile.recording.memory if "temporaries" in e.what and e.delta > 0)
    measured = taken + x.nbytes + 2 * 4 * model.count + 4
    assert abs(measured - predicted.bytes) <= 0.05 * predicted.bytes
    said = str(step.explain())
    assert re.search(r"modelled  [\d.]+ to [\d.]+ ms, [\d.]+ MB with arguments and results", said)
    assert predicted.text.split()[-2] in said  # the same figure by the same pass
