"""A diffusion model of two-dimensional data: noise becomes two moons.

    python examples/diffusion.py           # two minutes on a CPU

A network learns which noise was added to a point (J. Ho, A. Jain, P. Abbeel, "Denoising diffusion probabilistic
models", 2020). From pure noise, a hundred steps then take away a little of it each.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import tessera as ts
from tessera import Tensor, nn

STEPS = 100


class Denoiser(nn.Module):
    """Points [N, 2] and how far they are on the way to noise, integers [N] below STEPS, to the noise in them [N, 2]."""

    time: nn.Embedding
    inner: nn.Linear
    hidden: list[nn.MLP]
    out: nn.Linear

    def __call__(self, x: Tensor["N", 2], t: Tensor["N", ts.int64]) -> Tensor["N", 2]:
        h = self.inner(x) + self.time(t)
        for layer in self.hidden:
            h = h + layer(h)
        return self.out(h)


def make(width: int = 64, layers: int = 3, key: int = 0) -> Denoiser:
    a, b, c, d = nn.init.split(key, 4)
    hidden = [nn.MLP(width, 2 * width, key=k, act=ts.silu) for k in nn.init.split(c, layers)]
    first, time = nn.Linear(2, width, key=a), nn.Embedding(STEPS, width, key=b, std=1.0)
    return Denoiser(time, first, hidden, nn.Linear(width, 2, key=d))


def schedule() -> tuple[np.ndarray, np.ndarray]:
    """How much noise each step adds, and what is left of a point after it (A. Nichol, P. Dhariwal, 2021)."""
    way = np.cos((np.linspace(0, 1, STEPS + 1) + 0.008) / 1.008 * np.pi / 2) ** 2
    added = np.minimum(1 - way[1:] / way[:-1], 0.999)
    return added.astype(np.float32), np.cumprod(1 - added).astype(np.float32)


ADDED, LEFT = schedule()


@ts.function
def step(model: Denoiser, x: Tensor["N", 2], left: Tensor[STEPS], key: ts.int64):
    which = ts.random_bits(key, (2,))
    t, noise = ts.randint(which[0], x.shape[:1], 0, STEPS), ts.normal(which[1], x.shape)
    kept = left[t][:, None]
    noisy = ts.sqrt(kept) * x + ts.sqrt(1 - kept) * noise
    return ts.value_and_grad(lambda model: ts.mse(model(noisy, t), noise))(model)


@ts.function
def sampled(model: Denoiser, noise: Tensor["N", 2], added: Tensor[STEPS], left: Tensor[STEPS], key: ts.int64):
    x, keys = noise, ts.random_bits(key, (STEPS,))
    for i in ts.range(STEPS):
        t = STEPS - 1 - i
        found = model(x, ts.broadcast_to(t, x.shape[:1]))
        mean = (x - added[t] / ts.sqrt(1 - left[t]) * found) / ts.sqrt(1 - added[t])
        x = mean + ts.where(t > 0, ts.sqrt(added[t]), 0.0) * ts.normal(keys[t], x.shape)
    return x


def moons(count: int, rng: np.random.Generator) -> np.ndarray:
    """Points of two half circles that reach into each other, with a little noise: [count, 2]."""
    angle, second = rng.uniform(0, np.pi, count), rng.random(count) < 0.5
    x = np.where(second, 1 - np.cos(angle), np.cos(angle)) - 0.5
    y = np.where(second, 0.5 - np.sin(angle), np.sin(angle)) - 0.25
    return (np.stack([x, y], 1) + rng.normal(0, 0.05, (count, 2))).astype(np.float32)


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """The energy distance of two sets of points: 0 where they are drawn alike (G. J. Szekely, M. L. Rizzo, 2013)."""
    mean = lambda a, b: np.linalg.norm(a[:, None] - b, axis=-1).mean()  # noqa: E731
    return float(2 * mean(a, b) - mean(a, a) - mean(b, b))


def train(steps: int = 4000, width: int = 64, layers: int = 3, count: int = 256, say=print) -> float:
    """The energy distance of what is sampled to moons, after training."""
    model, rng = make(width, layers), np.random.default_rng(0)
    opt = ts.optimizers.AdamW(ts.optimizers.Cosine(2e-3, steps, warmup=steps // 20), clip=1.0)
    state, average = opt.init(model), ts.optimizers.EMA(0.99 if steps < 1000 else 0.999)
    smooth, noise = model, rng.standard_normal((1000, 2)).astype(np.float32)
    for i in range(steps):
        loss, gradient = step(model, moons(count, rng), LEFT, i)
        model, state = opt.update(model, gradient, state)
        smooth = average.update(smooth, model)
        if (i + 1) % max(steps // 5, 1) == 0:
            distance = apart(np.asarray(sampled(smooth, noise, ADDED, LEFT, 1)), moons(1000, rng))
            say(f"step {i + 1}: loss {float(loss):.3f}, energy distance {distance:.4f}")
    return distance


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    sys.exit(train(parser.parse_args().steps) > 0.01)
