"""Hints, hovers and completions inside plain losses and modules: what the file's own calls tell of them."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp
from tessera_lsp.document import Document

from tests.lsp.conftest import eventually
from tests.lsp.test_kept import hinted, hovered

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = """import tessera as ts
from tessera import Tensor, nn


class Net(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.hidden = hidden
        self.up = nn.Linear(inputs, hidden)
        self.down = nn.Linear(hidden, classes)

    def forward(self, x):
        h = ts.tanh(self.up(x))
        return self.down(h)


def loss(model, images: Tensor["B", 784], labels: Tensor["B", ts.i64]):
    logits = model(images)
    right = ts.mean(ts.argmax(logits, axis=-1) == labels)
    return ts.cross_entropy(logits, labels)


model = Net(784, 128, 10)
run = ts.train(model, ts.optimizers.AdamW(1e-3), loss, batches)
"""
MADE = "*As called for `Net(784, 128, 10)` (line 23)*"


async def test_hints_show_what_the_constructed_model_tells(editor):
    doc = editor.open(TEXT)
    hints = await editor.hints(doc)
    assert hints["def forward(self, x"] == "[B, 784] f32"
    assert hints["h"] == ": [B, 128] f32"
    assert hints["logits"] == ": [B, 10] f32"
    assert hints["right"] == ": [] f32"
    editor.replace(doc, "Net(784, 128, 10)", "Net(784, 256, 10)")
    assert (await editor.hints(doc))["h"] == ": [B, 256] f32"
    editor.replace(doc, "class Net", "\n\nclass Net")
    editor.replace(doc, "h = ts.tanh(self.up(x))", "h = self.up(x)")
    assert (await editor.hints(doc))["h"] == ": [B, 256] f32"


async def test_dims_of_hints_lead_to_where_they_are_bound(editor):
    doc = editor.open(TEXT)
    found = next(h for h in await editor.inlay_hints(doc) if editor.label(h) == ": [B, 128] f32")
    part = next(p for p in found.label if p.value == "B")
    assert part.location is not None and editor.covered(doc, part.location.range) == '"B"'


async def test_hovers_say_for_which_model(editor):
    doc = editor.open(TEXT)
    text = await hovered(editor, doc, "        |h = ts")
    assert "h: [B, 128] f32" in text and MADE in text
    assert "[B, 10] f32" in await hovered(editor, doc, "    log|its = model")
    assert 'labels: Tensor["B", ts.i64]) -> [] f32' in await hovered(editor, doc, "def lo|ss(")


async def test_hovers_say_what_differs_between_models(editor):
    doc = editor.open(TEXT + "other = Net(784, 64, 10)\nts.train(other, ts.optimizers.AdamW(1e-3), loss, batches)\n")
    hints = await editor.hints(doc)
    assert hints["h"] == ": [B, hidden] f32" and hints["logits"] == ": [B, 10] f32"
    text = await hovered(editor, doc, "        |h = ts")
    assert "- `hidden`: 128 for `Net(784, 128, 10)` (line 23), 64 for `Net(784, 64, 10)` (line 25)" in text


async def test_what_is_kept_for_the_gradient_is_said_in_the_loss_and_in_forward(start):
    editor = await start(options={"dims": {"B": 32}})
    doc = editor.open(TEXT)
    assert "Kept for the backward pass, 16 KiB" in await hovered(editor, doc, "        |h = ts")
    assert "kept 16 KiB" in await hinted(editor, doc)
    editor.replace(doc, "class Net", "\n\nclass Net")
    assert "Kept for the backward pass, 16 KiB" in await hovered(editor, doc, "        |h = ts")


async def test_completions_know_the_variables_and_their_types(editor):
    doc = editor.open(TEXT.replace("    right =", "    l\n    right ="))
    found = await editor.client.text_document_completion_async(lsp.CompletionParams(doc, editor.at(doc, "    l|\n")))
    assert {i.label: i.detail for i in found.items}["logits"] == "[B, 10] f32"


async def completed(editor, doc, place: str) -> dict[str, str | None]:
    found = await editor.client.text_document_completion_async(lsp.CompletionParams(doc, editor.at(doc, place)))
    return {i.label: i.detail for i in found.items}


@pytest.mark.parametrize(
    ("old", "line", "detail"),
    [
        ("    right =", "    model.", {"up": "Linear", "hidden": "128", "forward": "forward(x)"}),
        ("    right =", "    model.up.", {"weight": "[784, 128] f32", "bias": "[128] f32"}),
        ("        return self.down", "        self.", {"down": "Linear", "hidden": "128"}),
        ("        return self.down", "        self.down.", {"weight": "[128, 10] f32"}),
        ("        self.up =", "        self.", {"up": "Linear", "forward": "forward(x)"}),
        ("run = ", "model.", {"up": "Linear"}),
        ("run = ", "model.up.", {"weight": "[784, 128] f32"}),
    ],
)
async def test_members_of_models_are_completed(editor, old: str, line: str, detail: dict[str, str]):
    doc = editor.open(TEXT)
    assert await editor.hints(doc)
    editor.replace(doc, old, f"{line}\n{old}")
    found = await completed(editor, doc, f"{line}|\n")
    assert detail.items() <= found.items(), found
    assert "softmax" not in found and not any(name.startswith("_") for name in found)


async def test_members_of_layers_in_loops_are_completed(editor):
    text = TEXT.replace(
        "        self.down = ", "        self.more = nn.Sequential(nn.Linear(hidden, hidden))\n        self.down = "
    )
    text = text.replace(
        "        return self.down(h)",
        "        for layer in self.more:\n            h = layer(h)\n        return self.down(h)",
    )
    doc = editor.open(text)
    assert await editor.hints(doc)
    editor.replace(doc, "            h = layer(h)\n", "            layer.\n            h = layer(h)\n")
    assert (await completed(editor, doc, "            layer.|\n"))["weight"] == "[128, 128] f32"
    editor.replace(doc, "            layer.\n", "            self.more[0].\n")
    assert (await completed(editor, doc, "            self.more[0].|\n"))["weight"] == "[128, 128] f32"


async def test_a_parameter_of_a_class_has_its_members(editor):
    doc = editor.open(TEXT + "\n\n@ts.function\ndef f(model: Net, x: Tensor['B', 784]):\n    return model(x)\n")
    editor.replace(doc, "    return model(x)", "    model.\n    return model(x)")
    assert (await completed(editor, doc, "    model.|\n    return model(x)"))["up"] == "Linear"


async def test_hovers_say_what_the_gradient_of_a_value_is(start):
    editor = await start(options={"dims": {"B": 32}})
    doc = editor.open(TEXT)
    assert "Gradient: [B, 128] f32, 16 KiB" in await hovered(editor, doc, "        |h = ts")
    assert "Gradient: [B, 128] f32, 16 KiB" in await hovered(editor, doc, "self.down(|h)")
    assert "Gradient: [B, 10] f32, 1.25 KiB" in await hovered(editor, doc, "    log|its = model")
    assert "Gradient" not in await hovered(editor, doc, "    |right = ")
    editor.replace(doc, "class Net", "\n\nclass Net")
    assert "Gradient: [B, 128] f32, 16 KiB" in await hovered(editor, doc, "        |h = ts")


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        (
            "ts.tanh(self.up(x))",
            "ts.stop_gradient(ts.tanh(self.up(x)))",
            "        |h = ts",
            "ts.stop_gradient cuts it in line 13",
        ),
        (
            "ts.tanh(self.up(x))",
            "ts.stop_gradient(ts.tanh(self.up(x)))",
            "ts.ta|nh(self",
            "ts.stop_gradient cuts it in line 13",
        ),
        (
            "        return self.down(h)",
            "        with ts.no_grad():\n            y = h * 2.0\n        return self.down(y)",
            "        |h = ts",
            "ts.no_grad() cuts it in line 15",
        ),
        (
            "    right =",
            "    best = ts.argmax(logits, axis=-1)\n    right =",
            "    |best = ",
            "argmax gives int64, which has no derivative in line 19",
        ),
        ("    right =", "    unused = logits * 2.0\n    right =", "    |unused = ", "the result does not depend on it"),
    ],
)
async def test_hovers_say_where_a_gradient_is_cut(editor, old: str, new: str, place: str, said: str):
    doc = editor.open(TEXT.replace(old, new))
    text = await hovered(editor, doc, place)
    assert f"No gradient: {said}" in text and "\nGradient:" not in text


STEP = """@ts.function
def step(w: Tensor['D', 'D'], x: Tensor['B', 'D']):
    def f(w):
        y = (x @ w).to(ts.bf16)
        return ts.sum(y.to(ts.f32) ** 2)

    return ts.grad(f)(w)
"""


async def test_functions_that_take_gradients_say_it_too(editor):
    doc = editor.open(TEXT.partition("model = ")[0] + STEP)
    assert "Gradient: [B, D] bf16, 2*B*D B" in await hovered(editor, doc, "        |y = (x")


async def test_shapes_are_told_before_gradients_are_taken():
    document = Document(lsp.TextDocumentItem("file:///work/told.py", "python", 1, TEXT))
    document.request_analysis()
    await document.shapes()
    assert document.told and not document.trainings
    early = types(document)
    assert early["h"] == "[B, 128] f32" and early["logits"] == "[B, 10] f32"
    await document.ready()
    assert document.trainings and types(document) == early


def types(document: Document) -> dict[str, str]:
    return {e.name: e.text for k in document.shown for e in k.expressions if e.kind == "assign"}


async def test_hints_are_asked_for_again_when_gradients_are_known(start):
    editor = await start(options={"dims": {"B": 32}})
    doc = editor.open(TEXT)
    await editor.hints(doc)
    await eventually(lambda: hinted(editor, doc), ["kept 16 KiB"])
    editor.client.refreshed.clear()
    editor.replace(doc, "Net(784, 128, 10)", "Net(784, 256, 10)")
    assert (await editor.hints(doc))["h"] == ": [B, 256] f32"
    await eventually(lambda: "workspace/inlayHint/refresh" in editor.client.refreshed)
    assert await hinted(editor, doc) == ["kept 32 KiB"]


VARIABLES = """from dataclasses import dataclass

import tessera as ts
from tessera import nn
from tessera.optimizers import SGD

@dataclass
class Config:
    width: int = 8

    def area(self, k: int) -> int:
        return self.width * k

class Net(nn.Module):
    def __init__(self, width):
        self.up = nn.Linear(width, width)

    def forward(self, x):
        return self.up(x)

def read(path) -> Config:
    return load(path)

def loss(model, x: ts.Tensor["B", 8]):
    return model(x).mean()

opt = ts.optimizers.AdamW(1e-3)
plain = SGD(0.1)
cache = ts.KVCache(B=2, H=4, S_max=16, D_h=8)
config = Config(4)
found = read("x")
several = config
several = opt
for odd in things:
    pass
odd = Config(3)
model = Net(config.width)
run = ts.train(model, opt, loss, batches)

def main(plain):
    inner = Config(5)
    later = 1

"""


@pytest.mark.parametrize(
    ("owner", "detail"),
    [
        ("opt.", {"lr": "0.001"}), ("plain.", {"momentum": "0.0"}), ("cache.", {"length": "Tensor[ts.int64]"}),
        ("config.", {"width": "4", "area": "area(k: int) -> int"}), ("found.", {"width": "int"}),
        ("run.", {"model": "Net", "step": "int", "history": None}), ("run.model.up.", {"weight": "[4, 4] f32"}),
        ("model.", {"up": "Linear"}), ("several.", {}), ("odd.", {}), ("    inner.", {"width": "5"}),
        ("    plain.", {}),
    ],
)  # fmt: skip
async def test_members_of_what_the_text_makes(editor, owner, detail):
    """Of what is given things of several kinds, or is a parameter, nothing is certain."""
    doc = editor.open(VARIABLES + owner + "\n")
    found = await completed(editor, doc, owner + "|\n")
    assert {n: found.get(n, "missing") for n in detail} == detail
    assert bool(found) == bool(detail)
