"""The update rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tessera as ts
from tessera.fitted import fitted
from tessera.optimizers.base import Optimizer


@fitted
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


@fitted
@dataclass(frozen=True)
class Adam(Optimizer):
    """p - lr * m' / (sqrt(v') + eps): m and v are averages of g and g^2, divided by 1 - beta^t (D. Kingma, J. Ba,
    2015).

    `weight_decay` is added to the gradient, as in PyTorch's Adam; `AdamW` decouples it. The default
    learning rate is 1e-3.
    """

    lr: float | Callable[[Any], Any] = 1e-3
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
        root = ts.sqrt(second) * (1 / ts.sqrt(1 - b**t)).to(p.dtype) + self.eps
        return p - rate * first / root, {"first": first, "second": second}


@fitted
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with p first multiplied by 1 - lr * weight_decay (I. Loshchilov, F. Hutter, 2019)."""

    weight_decay: float = 0.01

    def changed(self, p, g, held, lr, t, decay):
        return self.moved(p * (1 - lr * decay).to(p.dtype) if decay else p, g, held, lr, t)


@fitted
@dataclass(frozen=True)
class LAMB(AdamW):
    """p - lr * |p| / |u| * u, with u the step of Adam plus weight_decay * p; the ratio is 1 where a norm is 0 (Y. You
    et al., "Large batch optimization for deep learning", 2020)."""

    eps: float = 1e-6

    def changed(self, p, g, held, lr, t, decay):
        step, kept = self.moved(ts.zeros_like(p), g, held, ts.full((), 1.0, ts.f64), t)
        u = decay * p - step
        size, far = (ts.sqrt(ts.sum(ts.square(a))) for a in (p, u))
        ratio = ts.where((size > 0) & (far > 0), size / far, 1.0)
        return p - lr.to(p.dtype) * ratio * u, kept


@fitted
@dataclass(frozen=True)
class RMSprop(Optimizer):
    """p - lr * b, with b = momentum * b + g / (sqrt(v) + eps) and v the average of g^2 (G. Hinton, 2012), of g^2 less
    the average of g squared if `centered` (A. Graves, 2013). `weight_decay` is added to the gradient. As in PyTorch."""

    lr: float | Callable[[Any], Any] = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    @property
    def moments(self):
        return ("second", *(("velocity",) if self.momentum else ()), *(("first",) if self.centered else ()))

    def changed(self, p, g, held, lr, t, decay):
        g = g + decay * p if decay else g
        second = self.alpha * held["second"] + (1 - self.alpha) * ts.square(g)
        kept, spread = {"second": second}, second
        if self.centered:
            first = self.alpha * held["first"] + (1 - self.alpha) * g
            kept, spread = {**kept, "first": first}, ts.maximum(second - ts.square(first), 0.0)
        step = g / (ts.sqrt(spread) + self.eps)
        if self.momentum:
            step = self.momentum * held["velocity"] + step
            kept = {**kept, "velocity": step}
        return p - lr.to(p.dtype) * step, kept


@fitted
@dataclass(frozen=True)
class Adagrad(Optimizer):
    """p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps), with s the sum of g^2 (J. Duchi, E. Hazan, Y. Singer,
    2011). `weight_decay` is added to the gradient. As in PyTorch."""

    lr: float | Callable[[Any], Any] = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-10

    moments = ("second",)

    def changed(self, p, g, held, lr, t, decay):
        g = g + decay * p if decay else g
        second = held["second"] + ts.square(g)
        rate = (lr / (1 + (t - 1) * self.lr_decay)).to(p.dtype)
        return p - rate * g / (ts.sqrt(second) + self.eps), {"second": second}


@fitted
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


def is_matrix(name: str, parameter: Any) -> bool:
    return len(parameter.shape) == 2


@fitted
@dataclass(frozen=True)
class Muon(AdamW):
    """The update of a matrix is the nearest matrix with orthonormal rows or columns; other parameters use AdamW, with
    rate lr * adam_rate.

    m = momentum * m + (1 - momentum) * g; p - lr * weight_decay * p - lr * sqrt(max(1, rows / columns)) * o(u), where u
    is (1 - momentum) * g + momentum * m and o are five steps of the iteration X = a X + (b A + c A A) X, A = X X^T,
    that begins at u / |u| and brings singular values near 1 (K. Jordan et al., "Muon", 2024). `matches(name, array)`
    selects the parameters: by default matrices. Embeddings and output layers do better with AdamW.
    """

    momentum: float = 0.95
    adam_rate: float = 0.1
    matches: Callable[[str, Any], bool] = is_matrix

    def kept(self, name, parameter):
        return ("momentum",) if is_matrix(name, parameter) and self.matches(name, parameter) else self.moments

    def changed(self, p, g, held, lr, t, decay):
        if "momentum" not in held:
            rate = lr * self.adam_rate
            return self.moved(p * (1 - rate * decay).to(p.dtype) if decay else p, g, held, rate, t)
        m = self.momentum * held["momentum"] + (1 - self.momentum) * g
        rows, columns = p.shape
        far = max(1, rows / columns) ** 0.5
        moved = (lr * far).to(p.dtype) * orthonormal((1 - self.momentum) * g + self.momentum * m)
        return (p * (1 - lr * decay).to(p.dtype) if decay else p) - moved, {"momentum": m}


def orthonormal(u):
    """Approximates the matrix with orthonormal rows, or columns, nearest to u: singular values from 0.7 to 1.2."""
    tall = u.shape[0] > u.shape[1]
    x = u.T if tall else u
    x = x / (ts.sqrt(ts.sum(ts.square(x))) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
    return x.T if tall else x
