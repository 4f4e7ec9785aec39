"""Fine-tuning with LoRA: a language model of documentation learns program text by 1 % of its parameters.

    python examples/lora.py                # 500 steps of training, 200 of fine-tuning

The model is that of examples/language_model.py. Beside the weight of each query and value stands a product of two
narrow matrices, and only these are trained (E. J. Hu et al., "LoRA", 2021). The model itself is only read: no gradient
of it is computed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from language_model import KNOWN, LanguageModel, batch, corpus, loss_of, make
from language_model import step as step_of_all

import tessera as ts
from tessera import Tensor, nn


class Narrow(nn.Module):
    """What is added to a weight [D, H]: down @ up, which is 0 at first."""

    down: Tensor["D", "R"]
    up: Tensor["R", "H"]

    def __init__(self, like: nn.Linear, rank: int, key: int) -> None:
        inputs, outputs = like.weight.shape
        self.down = nn.init.lecun_uniform((inputs, rank), key)
        self.up = ts.zeros((rank, outputs))


class Added(nn.Module):
    """A linear layer and what is added to its weight."""

    base: nn.Linear
    narrow: Narrow

    def __call__(self, x: Tensor["...", "D"]) -> Tensor["...", "H"]:
        return self.base(x) + (x @ self.narrow.down) @ self.narrow.up


def adapters(model: LanguageModel, rank: int, key: int) -> list[dict[str, Narrow]]:
    """Of the queries and values of each layer."""
    out = []
    for block, seed in zip(model.blocks.layers, nn.init.split(key, len(model.blocks.layers)), strict=True):
        first, second = nn.init.split(seed, 2)
        query, value = block.attention.query, block.attention.value
        out.append({"query": Narrow(query, rank, first), "value": Narrow(value, rank, second)})
    return out


def adapted(
    model: LanguageModel, narrow: list[dict[str, Narrow]], layer: Callable[[nn.Linear, Narrow], Any] = Added
) -> LanguageModel:
    """The model with adapters; `layer` puts a linear layer and its adapter together."""
    blocks = []
    for block, own in zip(model.blocks.layers, narrow, strict=True):
        old = block.attention
        new = old.replace(query=layer(old.query, own["query"]), value=layer(old.value, own["value"]))
        blocks.append(block.replace(attention=new))
    return model.replace(blocks=model.blocks.replace(layers=blocks))


def merged(base: nn.Linear, narrow: Narrow) -> nn.Linear:
    """One layer that does the same: `adapted(model, narrow, merged)` is a model without adapters."""
    return base.replace(weight=base.weight + narrow.down @ narrow.up)


@ts.function
def step(narrow: list[dict[str, Narrow]], model: LanguageModel, text: Tensor["B", "S1", ts.uint8]):
    return ts.value_and_grad(lambda narrow: loss_of(adapted(model, narrow), text))(narrow)


@ts.function
def evaluate(model: LanguageModel, text: Tensor["B", "S1", ts.uint8]):
    return loss_of(model, text)


def programs() -> np.ndarray:
    """The texts of modules of the standard library."""
    files = [Path(str(getattr(__import__(name), "__file__", ""))) for name in KNOWN]
    return np.frombuffer(b"".join(f.read_bytes() for f in files if f.suffix == ".py"), np.uint8)


def train(
    steps: int = 500, tuning: int = 200, width: int = 96, heads: int = 4, layers: int = 3, rank: int = 4,
    length: int = 96, count: int = 16, say=print, text: np.ndarray | None = None, other: np.ndarray | None = None,
) -> tuple[float, float]:  # fmt: skip
    """The loss on program text before and after fine-tuning."""
    text, other = corpus() if text is None else text, programs() if other is None else other
    cut = len(other) * 9 // 10
    tests = np.concatenate([batch(other[cut:], 32, length, seed) for seed in range(4)])
    model = make(width, heads, layers, key=0)
    opt = ts.optimizers.AdamW(ts.optimizers.Cosine(0.3 / width, steps, warmup=max(steps // 20, 1)), clip=1.0)
    state = opt.init(model)
    for i in range(steps):
        loss, gradient = step_of_all(model, batch(text, count, length, seed=i))
        model, state = opt.update(model, gradient, state)
    before = float(evaluate(model, tests))
    narrow = adapters(model, rank, key=1)
    few = sum(p.count for layer in narrow for p in layer.values())
    say(f"trained to {float(loss):.3f}; on program text {before:.3f} nats a byte")
    say(f"fine-tuning {few:,} parameters beside {model.count:,}")
    opt = ts.optimizers.AdamW(ts.optimizers.Cosine(1e-2, tuning, warmup=tuning // 20), weight_decay=0.0)
    state = opt.init(narrow)
    for i in range(tuning):
        loss, gradient = step(narrow, model, batch(other[:cut], count, length, seed=i))
        narrow, state = opt.update(narrow, gradient, state)
        if (i + 1) % max(tuning // 5, 1) == 0:
            say(f"step {i + 1}: loss {float(loss):.3f}")
    after = float(evaluate(adapted(model, narrow, merged), tests))
    say(f"on program text that it has not seen: {after:.3f} nats a byte, {before:.3f} before")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tuning", type=int, default=200)
    given = parser.parse_args()
    before, after = train(given.steps, given.tuning)
    sys.exit(after > before - 0.1)
