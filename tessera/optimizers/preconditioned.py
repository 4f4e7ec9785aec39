"""Rules that use the rows and columns of a matrix: factored second moments and preconditioners.

Roots of matrices are iterations of products, in loops at run time; bases are factors, `ts.linalg.qr`.
"""

from __future__ import annotations

from dataclasses import dataclass

import tessera as ts
from tessera.fitted import fitted
from tessera.optimizers.base import Optimizer
from tessera.optimizers.rules import AdamW


@fitted
@dataclass(frozen=True)
class Adafactor(Optimizer):
    """p - a * u / max(1, rms(u) / d), with u = g / sqrt(V) and the rate a = max(eps, rms(p)) * min(lr, 1 / sqrt(t))
    (N. Shazeer, M. Stern, "Adafactor", 2018), and p first multiplied by 1 - lr * weight_decay.

    V is the moving average of g^2 with decay 1 - t^decay. For matrices, and the last two axes of larger arrays, it is
    stored as averages r over rows and c over columns, V = r c / mean(r): rows + columns numbers, not rows * columns.
    """

    d: float = 1.0
    decay: float = -0.8
    eps: float = 1e-3
    weight_decay: float = 0.0

    exact = ("rows", "columns")

    def kept(self, name, parameter):
        return ("rows", "columns") if len(parameter.shape) > 1 else ("second",)

    def shape(self, moment, shape):
        if moment == "second":
            return shape
        return (*shape[:-1], 1) if moment == "rows" else (*shape[:-2], 1, shape[-1])

    def changed(self, p, g, held, lr, t, decay):
        forgets = (t**self.decay).to(p.dtype)
        least = 2.0**-52 if p.dtype == ts.f64 else 2.0**-23
        square = ts.square(g)
        if "second" in held:
            second = held["second"] + forgets * (square - held["second"])
            kept, v = {"second": second}, second
        else:
            rows = held["rows"] + forgets * (ts.mean(square, axis=-1, keepdims=True) - held["rows"])
            columns = held["columns"] + forgets * (ts.mean(square, axis=-2, keepdims=True) - held["columns"])
            kept = {"rows": rows, "columns": columns}
            v = rows * columns / ts.maximum(ts.mean(rows, axis=-2, keepdims=True), least)
        u = g * ts.rsqrt(ts.maximum(v, least * least))
        size = ts.maximum(rms(p), self.eps) * ts.minimum(lr, t**-0.5).to(p.dtype)
        p = p * (1 - lr * decay).to(p.dtype) if decay else p
        return p - size / ts.maximum(rms(u) / self.d, 1.0) * u, kept


@fitted
@dataclass(frozen=True)
class Shampoo(Optimizer):
    """p - lr * L^(-1/4) m R^(-1/4) for matrices, with L the sum of g g^T, R that of g^T g (V. Gupta, T. Koren,
    Y. Singer, "Shampoo", 2018), m = momentum * m + g, and p first multiplied by 1 - lr * weight_decay.

    Other parameters, and matrices with an axis longer than `largest`, use m / sqrt(sum of g^2) (Adagrad). eps times the
    trace is added to the diagonal before a root. Roots are computed every `every` steps, by the coupled Newton
    iteration (N. Higham, "Functions of Matrices", 2008, section 7.3).
    """

    momentum: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    every: int = 10
    largest: int = 1024

    exact = ("left", "right", "left_root", "right_root")

    def kept(self, name, parameter):
        matrix = is_small_matrix(parameter.shape, self.largest)
        return ("momentum", "left", "right", "left_root", "right_root") if matrix else ("momentum", "second")

    def shape(self, moment, shape):
        return side(moment, shape)

    def changed(self, p, g, held, lr, t, decay):
        lr, p = lr.to(p.dtype), p * (1 - lr * decay).to(p.dtype) if decay else p
        m = self.momentum * held["momentum"] + g
        if "second" in held:
            second = held["second"] + ts.square(g)
            return p - lr * m * ts.rsqrt(second + self.eps * self.eps), {"momentum": m, "second": second}
        left, right = held["left"] + g @ g.T, held["right"] + g.T @ g
        a, b = held["left_root"], held["right_root"]
        if ts.eq((t - 1) % self.every, 0):
            a, b = inverse_fourth_root(left, self.eps), inverse_fourth_root(right, self.eps)
        kept = {"momentum": m, "left": left, "right": right, "left_root": a, "right_root": b}
        return p - lr * (a @ m @ b), kept


@fitted
@dataclass(frozen=True)
class SOAP(AdamW):
    """Adam in the basis of Shampoo's preconditioners for matrices (N. Vyas et al., "SOAP", 2024); AdamW for other
    parameters, and for matrices with an axis longer than `largest`.

    L and R are averages of g g^T and g^T g, with basis matrices Q and S: p - lr * Q n S^T, where n is Adam's step for
    the gradient Q^T g S, whose first moment is rotated with the basis. Each `every` steps Q becomes the orthogonal
    factor of L Q, a step of orthogonal iteration towards L's eigenvectors, by Householder's reflections; S likewise.
    They start as unit matrices.
    """

    betas: tuple[float, float] = (0.95, 0.95)
    every: int = 10
    largest: int = 1024

    exact = ("left", "right", "left_basis", "right_basis")

    def kept(self, name, parameter):
        matrix = is_small_matrix(parameter.shape, self.largest)
        return (*self.moments, "left", "right", "left_basis", "right_basis") if matrix else self.moments

    def shape(self, moment, shape):
        return side(moment, shape)

    def first(self, moment, parameter):
        zeros = super().first(moment, parameter)
        return ts.eye(zeros.shape[0], dtype=zeros.dtype) if moment.endswith("basis") else zeros

    def changed(self, p, g, held, lr, t, decay):
        p = p * (1 - lr * decay).to(p.dtype) if decay else p
        if "left" not in held:
            return self.moved(p, g, held, lr, t)
        (a, b), q, s = self.betas, held["left_basis"], held["right_basis"]
        first = a * held["first"] + (1 - a) * g
        second = b * held["second"] + (1 - b) * ts.square(q.T @ g @ s)
        root = ts.sqrt(second) / ts.sqrt(1 - b**t).to(p.dtype) + self.eps
        step = (q.T @ first @ s) / root
        left, right = b * held["left"] + (1 - b) * (g @ g.T), b * held["right"] + (1 - b) * (g.T @ g)
        new = p - (lr / (1 - a**t)).to(p.dtype) * (q @ step @ s.T)
        if ts.eq((t - 1) % self.every, 0):
            q, s = ts.linalg.qr(left @ q)[0], ts.linalg.qr(right @ s)[0]
        kept = {"first": first, "second": second, "left": left, "right": right, "left_basis": q, "right_basis": s}
        return new, kept


def rms(x):
    return ts.sqrt(ts.mean(ts.square(x)))


def is_small_matrix(shape, largest):
    return len(shape) == 2 and max(shape) <= largest


def side(moment, shape):
    """The shape of a preconditioner: square in the matrix's rows on its left, in its columns on its right."""
    if moment.startswith("left"):
        return (shape[0], shape[0])
    return (shape[1], shape[1]) if moment.startswith("right") else shape


def inverse_fourth_root(a, eps):
    """A^(-1/4) of a matrix with eigenvalues from 0 up: X and M = X^4 A, which converges to the unit matrix.

    X becomes X T and M becomes T^4 M, with T = (5 I - M) / 4. Eigenvalues of M below 1 grow by (5/4)^4 = 2.4 a round,
    so 24 rounds suffice for eps = 1e-6.
    """
    unit = ts.eye(a.shape[0], dtype=a.dtype)
    trace = ts.maximum(ts.sum(a * unit), 1e-30)  # which no eigenvalue exceeds
    x, m = unit, a / trace + eps * unit
    for _ in ts.range(24):
        turn = 1.25 * unit - 0.25 * m
        square = turn @ turn
        x, m = x @ turn, square @ square @ m
    return x / ts.sqrt(ts.sqrt(trace))
