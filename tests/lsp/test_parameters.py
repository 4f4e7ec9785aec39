"""A hover over a model or a layer: how many parameters it has, and how many each of its members."""

from __future__ import annotations

import re

import pytest

from tests.lsp.test_kept import hovered

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = """import tessera as ts
from tessera import Tensor, nn


class GPT(nn.Module):
    def __init__(self, width=32, layers=3):
        self.emb = nn.Embedding(100, width)
        self.blocks = nn.Stack(lambda key: nn.TransformerBlock(width, 4, key=key), layers, key=0)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return self.emb.transposed(self.blocks(self.emb(x)))


model = GPT()


def loss(model, x: Tensor["B", "T", ts.int64]):
    return ts.mean(model(x))


if __name__ == "__main__":
    run = ts.train(model, ts.optimizers.SGD(0.1), loss, batches)
"""


def numbers(text: str) -> list[int]:
    return [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:parameters|\|)", text)]


async def test_a_hover_counts_the_parameters_that_a_model_has(editor):
    doc = editor.open(TEXT)
    text = await hovered(editor, doc, "mo|del = GPT")
    space = {"__name__": "read"}
    exec(TEXT, space)
    model = space["model"]
    sizes = {name: sum(p.size for p in getattr(model, name).parameters()) for name in ("emb", "blocks", "norm")}
    assert numbers(text) == [sum(sizes.values()), *sizes.values()]
    assert sum(sizes.values()) == sum(p.size for p in model.parameters())  # averages of the norm are no parameters
    assert "| `blocks` | Stack: 3 x TransformerBlock |" in text and f"{4 * sum(sizes.values()) / 1024:.4g} KiB" in text
    assert numbers(await hovered(editor, doc, "ru|n = ts"))[0] == sum(sizes.values())


async def test_layers_are_counted_where_they_are_made(editor):
    doc = editor.open(TEXT)
    text = await hovered(editor, doc, "self.no|rm =")
    assert numbers(text)[0] == 64 and "| `bias` | [32] f32 | 32 |" in text and "| `weight` | [32] f32 | 32 |" in text
    editor.replace(doc, "width=32", "width=64")
    assert numbers(await hovered(editor, doc, "self.no|rm ="))[0] == 128


async def test_what_has_no_parameters_has_no_table(editor):
    doc = editor.open(TEXT.replace("class GPT", "rate = ts.optimizers.SGD(0.1)\n\n\nclass GPT"))
    assert "parameters" not in await hovered(editor, doc, "ra|te = ts")
