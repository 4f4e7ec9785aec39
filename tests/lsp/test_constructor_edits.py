"""Edits of constructors: what is known of the edited file is what an analysis from scratch says, in which no object is
taken from what an equal constructor call has made before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tessera_lsp.features.inlay_hints import shown

from tessera.compiler.frontend.evaluate import calls
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.names.values import Record, is_dict, is_sequence
from tessera.compiler.ir.printer import print_op
from tessera.editor.functions import Known
from tessera.editor.members import described

TEXT = """from functools import partial

import tessera as ts
from tessera import Tensor, nn

SIZES = [8, 16]


class Scaled(nn.Linear):
    def __init__(self, inputs, outputs, factor=2.0, key=None):
        super().__init__(inputs, outputs, key=key, bias={bias})
        self.factor = factor

    def forward(self, x):
        return (x @ self.weight) * self.factor


class Tied(nn.Module):
    def __init__(self, table):
        self.table = table * 1.0

    def forward(self, x):
        return x @ self.table.T


class Sized(nn.Module):
    def __init__(self):
        self.sizes = SIZES

    def forward(self, x):
        return x * self.sizes[0]


class Block(nn.Module):
    def __init__(self, width, heads, act=ts.gelu, key=None):
        super().__init__()
        first, second = ts.split_key({key}, 2)
        self.norm = {norm}
        self.up = {up}
        self.down = nn.Linear({hidden}, width, key=second)
        self.act, self.heads, self.sizes = {act}, heads, {sizes}

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x)))) * self.sizes[0]


class Net(nn.Module):
    def __init__(self, words, width, layers):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = {blocks}
        self.mix = {mix}
        self.head = nn.Linear({features}, words, bias={bias})
        self.head.scale = {scale}
        {extra}

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.mix(x)) * self.head.scale


def loss(model: Net, ids: Tensor["B", 4, ts.i64], targets: Tensor["B", 4, ts.i64]):
    logits = model(ids)
    return ts.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


model = Net({words}, width={width}, layers={layers})
logits = model(ts.zeros((2, 4), ts.i64))
run = ts.train(model, ts.optimizers.{optimizer}(1e-3), loss, batches)
"""
CHOICES = {
    "bias": ["True", "False", "1"],
    "key": ["0", "7", "key", "0 if key is None else key"],
    "norm": ["nn.LayerNorm(width)", "nn.RMSNorm(width)", "nn.LayerNorm(2 * width)", "nn.Norm(width)", "None"],
    "up": [
        "nn.Linear(width, 4 * width, key=first)", "nn.FusedLinearGeLU(width, 4 * width)", "nn.Linear(width, 24)",
        "nn.MLP(width, 8, 4 * width)", "nn.Linear(width)", "Scaled(width, 4 * width, 3.0)", "self.norm",
    ],
    "hidden": ["4 * width", "24", "len(SIZES) * 2 * width", "0", "width *"],
    "act": ["act", "ts.silu", "lambda x: x * heads", "nn.Dropout(0.5)"],
    "sizes": ["[heads, 2]", "SIZES", "(heads,)"],
    "blocks": [
        "nn.Stack(partial(Block, width, 2), layers)", "[Block(width, 2) for _ in range(layers)]",
        "[Block(width, i + 1, key=i) for i in range(layers)]", "nn.Stack(partial(Block, width, heads=4), layers)",
        "[Block(width, 2), nn.LayerNorm(width), Block(width, 2, ts.relu)]", "2 * [Block(width, 2)]", "layers",
    ],
    "mix": [
        "nn.Sequential(nn.Linear(width, 12), ts.relu, nn.Linear(12, width))", "Scaled(width, width)",
        "nn.Sequential(nn.Linear(width, 12), nn.Linear(13, width))", "self.blocks[0]", "nn.Linear(width, width)",
        "nn.Sequential(Tied(self.tokens.weight), Tied(self.tokens.weight.T))",
    ],
    "features": ["width", "2 * width", "layers"],
    "scale": ["1.0", "2", "self.tokens.weight[0, 0]"],
    "extra": [
        "pass", "self.blocks[0].heads = 5", "self.head.weight = self.tokens.weight.T", "SIZES.append(3)",
        "self.one, self.two = Sized(), Sized()", "self.one, self.two = Sized(), Sized(); self.two.sizes.append(3)",
    ],
    "words": ["65", "66"], "width": ["8", "16", "8.0"], "layers": ["2", "3", "-1"],
    "optimizer": ["AdamW", "SGD", "Adam"],
}  # fmt: skip


def outline(value: Any, depth: int = 0) -> Any:
    """The structure of an object, with the type or the value of each part."""
    if isinstance(value, Record):
        return value.type_name, {n: outline(v, depth + 1) for n, v in value.members.items() if depth < 6}
    if is_dict(value):
        return {k: outline(v, depth + 1) for k, v in value.items()}
    return [outline(v, depth + 1) for v in value] if is_sequence(value) else described(value)


def known(files: FileAnalysis) -> dict[str, Any]:
    programs = [t.step.analysis for t in files.trainings if t.step is not None]
    return {
        "findings": [(d.code, d.message, d.span, d.notes) for d in files.diagnostics],
        "hints": [[(e.span, e.name, e.text) for e in shown(Known(i.analysis, files, i))] for i in files.inside],
        "objects": [(m.name, outline(m.record)) for m in files.objects],
        "problems": [t.problem for t in files.trainings],
        "steps": [print_op(a.op) if a.op is not None else None for a in programs],
    }


def walk(seed: int | None) -> Iterator[tuple[str, str]]:
    """Single edits: each choice once and back again, or any."""
    if seed is None:
        for name, (first, *others) in CHOICES.items():
            yield from ((name, choice) for choice in (*others, first))
        return
    draw = random.Random(seed)
    for _ in range(25):
        name = draw.choice([*CHOICES])
        yield name, draw.choice(CHOICES[name] if draw.random() < 0.6 else CHOICES[name][:1])


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_an_edit_of_a_constructor_is_seen_as_a_fresh_analysis_sees_it(seed, monkeypatch):
    state = {name: choices[0] for name, choices in CHOICES.items()}
    edited = FileAnalysis("/work/model.py")
    edited.update(TEXT.format(**state))
    assert not edited.diagnostics and edited.trainings[0].step.analysis.op is not None
    for name, choice in walk(seed):
        state[name] = choice
        text = TEXT.format(**state)
        edited.update(text)
        if edited.syntax_errors:
            continue
        found = known(edited)
        with monkeypatch.context() as anew:
            anew.setattr(calls, "constructed", lambda ev, cls, args, kwargs, make: make())
            fresh = FileAnalysis("/work/model.py")
            fresh.update(text)
            assert found == known(fresh), f"{name} = {choice}"


def test_equal_layers_are_made_once(monkeypatch):
    made: list[str] = []
    evaluated = calls._instance

    def instance(ev, node, cls, args, kwargs):
        made.append(cls.name)
        return evaluated(ev, node, cls, args, kwargs)

    monkeypatch.setattr(calls, "_instance", instance)
    files = FileAnalysis("/work/model.py")
    text = TEXT.format(**{name: choices[0] for name, choices in CHOICES.items()}).replace("layers=2", "layers=12")
    files.update(text)
    assert made.count("Block") == 1, "of 12"
    assert len(outline(files.objects[0].record)[1]["blocks"][1]["layers"]) == 12
    made.clear()
    files.update(text.replace("scale = 1.0", "scale = 2.0"))
    assert made.count("Block") == 1 and "Linear" not in made, "the library's classes are the same in each text"
