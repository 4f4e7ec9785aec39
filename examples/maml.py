"""Learning to learn sines: after one gradient step on ten points, a network follows a sine that it has not seen.

    python examples/maml.py                # two minutes on a CPU

Each task is y = A sin(x + p) with A and p of its own. The loss is what is left after a step of gradient descent, so
that its gradient goes through the gradient (C. Finn, P. Abbeel, S. Levine, "Model-agnostic meta-learning", 2017).
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import tessera as ts
from tessera import Tensor, nn

RATE = 0.02
"""of the steps that a task takes for itself"""
Points = Tensor["T", "N", 1]
"""N points of each of T tasks"""


def make(width: int = 40, key: int = 0) -> list:
    """Weights and biases of three layers, for all tasks."""
    sizes, out = (1, width, width, 1), []
    for a, b, seed in zip(sizes[:-1], sizes[1:], nn.init.split(key, 3), strict=True):
        out += [nn.init.he_normal((a, b), seed), ts.zeros((1, b))]
    return out


def predicted(own: list, x: Points) -> Points:
    """Of each task with its own parameters: [T, inputs, outputs] and [T, 1, outputs] for each layer."""
    h = ts.relu(x @ own[0] + own[1])
    h = ts.relu(h @ own[2] + own[3])
    return h @ own[4] + own[5]


def loss_of(own: list, x: Points, y: Points):
    """The mean over the points of each task, summed over tasks: none of them reaches the parameters of another."""
    return ts.sum(ts.mean(ts.square(predicted(own, x) - y), axis=(1, 2)))


def adapted(model: list, x: Points, y: Points, steps: int):
    """Parameters for each task, after steps of gradient descent on its points."""
    own = [ts.broadcast_to(p, (x.shape[0], *p.shape)) for p in model]
    for _ in range(steps):
        gradient = ts.grad(loss_of)(own, x, y)
        own = [p - RATE * g for p, g in zip(own, gradient, strict=True)]
    return own


@ts.function
def step(model: list, x: Points, y: Points, more_x: Points, more_y: Points):
    def after(model):
        return loss_of(adapted(model, x, y, 1), more_x, more_y) / x.shape[0]

    return ts.value_and_grad(after)(model)


@ts.function
def error(model: list, x: Points, y: Points, more_x: Points, more_y: Points):
    """The loss before and after five steps."""
    before, after = adapted(model, x, y, 0), adapted(model, x, y, 5)
    return loss_of(before, more_x, more_y) / x.shape[0], loss_of(after, more_x, more_y) / x.shape[0]


def tasks(count: int, points: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Points to learn from and others to be judged by, of each task [count, points, 1]: x, y, x, y."""
    height, shift = rng.uniform(0.1, 5, (count, 1, 1)), rng.uniform(0, np.pi, (count, 1, 1))
    xs = rng.uniform(-5, 5, (2, count, points, 1))
    return [a.astype(np.float32) for x in xs for a in (x, height * np.sin(x + shift))]


def train(steps: int = 10000, width: int = 40, count: int = 25, say=print) -> tuple[float, float]:
    """The mean square error on new tasks, before and after five steps on ten points."""
    model, rng = make(width), np.random.default_rng(0)
    opt = ts.optimizers.Adam(ts.optimizers.Cosine(2e-3, steps, warmup=steps // 20), clip=10.0)
    state = opt.init(model)
    new = tasks(200, 10, np.random.default_rng(1))
    for i in range(steps):
        loss, gradient = step(model, *tasks(count, 10, rng))
        model, state = opt.update(model, gradient, state)
        if (i + 1) % max(steps // 10, 1) == 0:
            before, after = (float(e) for e in error(model, *new))
            say(f"step {i + 1}: loss {float(loss):.3f}; new sines: {before:.3f}, {after:.3f} after five steps")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10000)
    before, after = train(parser.parse_args().steps)
    sys.exit(after > before / 4)
