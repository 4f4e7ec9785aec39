"""A network learns the solution of the heat equation from the equation alone, and is compared with the formula.

    python examples/heat.py                # a minute on a CPU

u_t = a u_xx for x and t in [0, 1], u(x, 0) = sin(pi x), u(0, t) = u(1, t) = 0. The solution is
exp(-a pi^2 t) sin(pi x). The loss is the mean of (u_t - a u_xx)^2 at random places: second derivatives by x, and a
gradient by the parameters through them (M. Raissi, P. Perdikaris, G. E. Karniadakis, 2019).
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

import tessera as ts
from tessera import Tensor, nn

CONDUCTIVITY = 0.1


class Solution(nn.Module):
    """u at places x [N] and times t [N]: [N]. What multiplies the network makes boundary and start exact."""

    layers: nn.Sequential

    def __call__(self, x: Tensor["N"], t: Tensor["N"]) -> Tensor["N"]:
        free = self.layers(ts.stack([2 * x - 1, 2 * t - 1], axis=-1))[:, 0]
        return ts.sin(math.pi * x) + t * x * (1 - x) * free


def make(width: int = 32, key: int = 0) -> Solution:
    a, b, c = nn.init.split(key, 3)
    first, second = nn.Linear(2, width, key=a), nn.Linear(width, width, key=b)
    return Solution(nn.Sequential(first, ts.tanh, second, ts.tanh, nn.Linear(width, 1, key=c)))


def residual(u: Solution, x: Tensor["N"], t: Tensor["N"]) -> Tensor["N"]:
    """u_t - a u_xx. Each place has its own derivative, so that one direction of ones asks for all at once."""
    one = ts.ones_like(x)
    u_t = ts.jvp(lambda t: u(x, t), (t,), (one,))[1]
    u_x = lambda x: ts.jvp(lambda x: u(x, t), (x,), (one,))[1]  # noqa: E731
    u_xx = ts.jvp(u_x, (x,), (one,))[1]
    return u_t - CONDUCTIVITY * u_xx


@ts.function
def step(u: Solution, x: Tensor["N"], t: Tensor["N"]):
    return ts.value_and_grad(lambda u: ts.mean(ts.square(residual(u, x, t))))(u)


def exact(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.exp(-CONDUCTIVITY * math.pi**2 * t) * np.sin(math.pi * x)


def train(steps: int = 3000, width: int = 32, count: int = 256, say=print) -> float:
    """The largest difference to the formula on a grid, after training."""
    u, rng = make(width), np.random.default_rng(0)
    opt = ts.optimizers.Adam(ts.optimizers.Cosine(5e-3, steps, warmup=steps // 20))
    state = opt.init(u)
    x, t = (g.ravel() for g in np.meshgrid(*[np.linspace(0, 1, 33, dtype=np.float32)] * 2))
    for i in range(steps):
        loss, gradient = step(u, *rng.random((2, count), dtype=np.float32))
        u, state = opt.update(u, gradient, state)
        if (i + 1) % max(steps // 10, 1) == 0:
            apart = float(np.abs(np.asarray(u(x, t)) - exact(x, t)).max())
            say(f"step {i + 1}: loss {float(loss):.2e}, at most {apart:.2e} from the solution")
    return apart


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    sys.exit(train(parser.parse_args().steps) > 1e-3)
