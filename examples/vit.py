"""A small vision transformer reads digits: patches of 2 x 2 pixels as a sequence, right on more than 97 of 100.

    python examples/vit.py                 # a few minutes on a CPU

The digits are those of examples/digits.py: scikit-learn's handwritten ones where it is installed, drawn ones else.
"""

from __future__ import annotations

import argparse
import functools
import sys

import numpy as np
from digits import digits

import tessera as ts
from tessera import Tensor, nn


class ViT(nn.Module):
    """Images [B, 1, 8, 8] to logits [B, 10] (A. Dosovitskiy et al., 2021, with the mean of all places as the image)."""

    patch: nn.Linear
    places: Tensor[16, "D"]
    blocks: nn.Stack
    norm: nn.LayerNorm
    out: nn.Linear

    def __call__(self, images: Tensor["B", 1, 8, 8], key=None) -> Tensor["B", 10]:
        parts = images.reshape(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4)  # [B, row, column, pixels of a patch]
        h = self.patch(parts.reshape(-1, 16, 4)) + self.places
        return self.out(ts.mean(self.norm(self.blocks(h, key)), axis=1))


def make(width: int = 48, heads: int = 4, layers: int = 3, dropout: float = 0.1, key: int = 0) -> ViT:
    a, b, c, d = nn.init.split(key, 4)
    block = functools.partial(nn.EncoderLayer, width, heads, hidden=2 * width, dropout=dropout)
    places = nn.init.normal((16, width), b, 0.02)
    blocks = nn.Stack(block, layers, key=c)
    return ViT(nn.Linear(4, width, key=a), places, blocks, nn.LayerNorm(width), nn.Linear(width, 10, key=d))


@ts.function
def step(model: ViT, images: Tensor["B", 1, 8, 8], labels: Tensor["B", ts.int64], key: ts.int64):
    return ts.value_and_grad(lambda model: ts.cross_entropy(model(images, key), labels, label_smoothing=0.1))(model)


@ts.function
def read(model: ViT, images: Tensor["B", 1, 8, 8]):
    return ts.argmax(model(images), axis=-1)


def moved(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image by at most one pixel in both directions: a transformer has to learn what a convolution is made for."""
    wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, (2, len(images)))
    rows, columns = down[:, None] + np.arange(8), right[:, None] + np.arange(8)
    return wide[np.arange(len(images))[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]


def train(images: np.ndarray, labels: np.ndarray, rounds: int = 60, count: int = 32, say=print, **sizes) -> float:
    """The share of a fifth of the digits, not trained on, that is read right."""
    rng = np.random.default_rng(1)
    order, cut = rng.permutation(len(labels)), len(labels) * 4 // 5
    known, unknown = order[:cut], order[cut:]
    model, each = make(**sizes), len(known) // count
    say(f"{model.count:,} parameters")
    opt = ts.optimizers.AdamW(
        ts.optimizers.Cosine(2e-3, rounds * each, warmup=min(2, rounds) * each), weight_decay=0.05, clip=1.0
    )
    state = opt.init(model)
    for i in range(rounds):
        mixed = rng.permutation(known)
        for j, batch in enumerate(mixed[: each * count].reshape(each, count)):
            loss, gradient = step(model, moved(images[batch], rng), labels[batch], i * each + j)
            model, state = opt.update(model, gradient, state)
        right = float(np.mean(np.asarray(read(model, images[unknown])) == labels[unknown]))
        say(f"round {i + 1}: loss {float(loss):.3f}, {right:.1%} of the others are read right")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    sys.exit(train(*digits(), rounds=parser.parse_args().rounds) < 0.97)
