"""A language model with a mixture of experts: every second layer has eight feed-forward parts, and each byte takes one.

    python examples/mixture.py             # 600 steps

Texts and the pairs of bytes are those of examples/language_model.py. What is printed beside the loss is how evenly the
experts are used: 1 is even, and 8 were one expert for all.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from language_model import batch, compared, halves

import tessera as ts
from tessera import Tensor, nn

BALANCE = 0.01
"""what the balance loss counts beside the other (W. Fedus, B. Zoph, N. Shazeer, 2021)"""


class Mixture(nn.Module):
    """Bytes [B, S] to logits [B, S, 256] of the byte after each, and the balance loss."""

    table: nn.Embedding
    body: nn.SwitchTransformer
    norm: nn.LayerNorm

    def __call__(self, text: Tensor["B", "S", ts.uint8]):
        h, balance = self.body(self.table(text.to(ts.int64)))
        return self.table.transposed(self.norm(h)), balance


def make(width: int = 96, heads: int = 4, layers: int = 4, experts: int = 8, key: int = 0) -> Mixture:
    first, second = nn.init.split(key, 2)
    body = nn.SwitchTransformer(width, heads, layers, experts, key=second, hidden=2 * width, positions="rotary")
    return Mixture(nn.Embedding(256, width, key=first), body, nn.LayerNorm(width))


def losses(model: Mixture, text: Tensor["B", "S1", ts.uint8]):
    """The loss of the text, and the balance loss."""
    logits, balance = model(text[:, :-1])
    return ts.cross_entropy(logits, text[:, 1:].to(ts.int64)), balance


@ts.function
def evaluate(model: Mixture, text: Tensor["B", "S1", ts.uint8]):
    return losses(model, text)[0]


@ts.function
def step(model: Mixture, text: Tensor["B", "S1", ts.uint8]):
    """((loss with balance, (loss, balance)), gradient)"""

    def whole(model):
        loss, balance = losses(model, text)
        return loss + BALANCE * balance, (loss, balance)

    return ts.value_and_grad(whole, has_aux=True)(model)


def train(
    steps: int = 600, width: int = 96, heads: int = 4, layers: int = 4, experts: int = 8, length: int = 96,
    count: int = 16, say=print, text: np.ndarray | None = None,
) -> tuple[float, float]:  # fmt: skip
    """The loss on held out text after training, and that of pairs of bytes."""
    text, held_out = halves(text)
    model = make(width, heads, layers, experts)
    opt = ts.optimizers.AdamW(ts.optimizers.Cosine(3e-3, steps, warmup=max(steps // 20, 1)), clip=1.0)
    state = opt.init(model)
    say(f"{len(text):,} bytes of text, {model.count:,} parameters")
    for i in range(steps):
        (_, (loss, balance)), gradient = step(model, batch(text, count, length, seed=i))
        model, state = opt.update(model, gradient, state)
        if (i + 1) % max(steps // 10, 1) == 0:
            say(f"step {i + 1}: loss {float(loss):.3f}, balance {float(balance):.2f}")
    return compared(evaluate, model, text, held_out, length, say)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    reached, pairs = train(parser.parse_args().steps)
    sys.exit(reached >= pairs)
