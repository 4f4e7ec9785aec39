"""A language model without attention: an LSTM reads text byte by byte, and beats pairs of bytes after a few minutes.

    python examples/lstm.py                # 800 steps

Texts and the pairs of bytes are those of examples/language_model.py.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from language_model import batch, compared, halves

import tessera as ts
from tessera import Tensor, nn


class Reader(nn.Module):
    """Bytes [B, S] to logits [B, S, 256] of the byte after each."""

    table: nn.Embedding
    memory: nn.LSTM
    out: nn.Linear

    def __call__(self, text: Tensor["B", "S", ts.uint8]) -> Tensor["B", "S", 256]:
        return self.out(self.memory(self.table(text.to(ts.int64))))


def make(width: int = 128, hidden: int = 256, key: int = 0) -> Reader:
    a, b, c = nn.init.split(key, 3)
    memory = nn.LSTM(width, hidden, key=b)
    return Reader(nn.Embedding(256, width, key=a, std=0.3), memory, nn.Linear(hidden, 256, key=c))


def loss_of(model: Reader, text: Tensor["B", "S1", ts.uint8]):
    return ts.cross_entropy(model(text[:, :-1]), text[:, 1:].to(ts.int64))


@ts.function
def evaluate(model: Reader, text: Tensor["B", "S1", ts.uint8]):
    return loss_of(model, text)


@ts.function
def step(model: Reader, text: Tensor["B", "S1", ts.uint8]):
    return ts.value_and_grad(loss_of)(model, text)


def train(
    steps: int = 800, width: int = 128, hidden: int = 256, length: int = 64, count: int = 32, say=print,
    text: np.ndarray | None = None,
) -> tuple[float, float]:  # fmt: skip
    """The loss on held out text after training, and that of pairs of bytes."""
    text, held_out = halves(text)
    model = make(width, hidden)
    opt = ts.optimizers.AdamW(ts.optimizers.Cosine(4e-3, steps, warmup=max(steps // 20, 1)), clip=1.0)
    state = opt.init(model)
    say(f"{len(text):,} bytes of text, {model.count:,} parameters")
    for i in range(steps):
        loss, gradient = step(model, batch(text, count, length, seed=i))
        model, state = opt.update(model, gradient, state)
        if (i + 1) % max(steps // 10, 1) == 0:
            say(f"step {i + 1}: loss {float(loss):.3f}, gradient {state.report.grad_norm:.2f}")
    return compared(evaluate, model, text, held_out, length, say)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=800)
    reached, pairs = train(parser.parse_args().steps)
    sys.exit(reached >= pairs)
