"""The rules: how a parameter follows its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import tessera as ts
from tessera.optimizers.base import Optimizer


@dataclass(frozen=True)
class SGD(Optimizer):
    """p - lr * v, with v = momentum * v + g (B. Polyak, 1964), or g itself without momentum; g holds weight_decay * p.

    `nesterov`: p - lr * (g + momentum * v), as I. Sutskever et al. (2013) write Nesterov's method.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def moments(self):
        return ("velocity",) if self.momentum else ()

    def changed(self, p, g, held, lr, t, decay):
        lr = lr.to(p.dtype)
        if decay:
            g = g + decay * p
        if not self.momentum:
            return p - lr * g, {}
        velocity = self.momentum * held["velocity"] + g
        ahead = g + self.momentum * velocity if self.nesterov else velocity
        return p - lr * ahead, {"velocity": velocity}


@dataclass(frozen=True)
class Adam(Optimizer):
    """p - lr * m' / (sqrt(v') + eps): m and v are averages of g and g^2, divided by 1 - beta^t (D. Kingma, J. Ba,
    2015).

    `weight_decay` is added to the gradient, as in PyTorch's Adam; `AdamW` takes it apart.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    moments = ("first", "second")

    def changed(self, p, g, held, lr, t, decay):
        return self.moved(p, g + decay * p if decay else g, held, lr, t)

    def moved(self, p, g, held, lr, t):
        a, b = self.betas
        first = a * held["first"] + (1 - a) * g
        second = b * held["second"] + (1 - b) * ts.square(g)
        rate = (lr / (1 - a**t)).to(p.dtype)
        root = ts.sqrt(second) / ts.sqrt(1 - b**t).to(p.dtype) + self.eps
        return p - rate * first / root, {"first": first, "second": second}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with p first multiplied by 1 - lr * weight_decay (I. Loshchilov, F. Hutter, 2019)."""

    weight_decay: float = 0.01

    def changed(self, p, g, held, lr, t, decay):
        return self.moved(p * (1 - lr * decay).to(p.dtype) if decay else p, g, held, lr, t)


@dataclass(frozen=True)
class Lion(Optimizer):
    """p - lr * (sign(a m + (1 - a) g) + weight_decay * p), then m = b m + (1 - b) g (X. Chen et al., "Symbolic
    discovery of optimization algorithms", 2023)."""

    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    moments = ("first",)

    def changed(self, p, g, held, lr, t, decay):
        a, b = self.betas
        way = ts.sign(a * held["first"] + (1 - a) * g)
        return p - lr.to(p.dtype) * (way + decay * p), {"first": b * held["first"] + (1 - b) * g}
