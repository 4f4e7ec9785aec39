"""Derivatives of the scalar functions: each entry gives v times the derivative, for a cotangent or tangent v alike.

A Jacobian of an elementwise operator is diagonal, so one rule serves reverse and forward mode. Functions that are not
listed (comparisons, rounding, integers) have derivative zero or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tessera.compiler.graph.operator import GraphBuilder
from tessera.compiler.ir.core import Value

G: TypeAlias = GraphBuilder
Unary: TypeAlias = Callable[[GraphBuilder, Value, Value, Value], Value]
"""(g, v, out, x)"""
Binary: TypeAlias = Callable[[GraphBuilder, Value, Value, Value, Value], Value]
"""(g, v, out, x, y)"""
Ternary: TypeAlias = Callable[[GraphBuilder, Value, Value, Value, Value, Value], Value]
"""(g, v, out, x, y, z)"""


def _silu(g: G, v: Value, out: Value, x: Value) -> Value:
    s = g.sigmoid(x)  # s + x s (1 - s)
    return g.mul(v, g.add(s, g.mul(out, g.sub(1, s))))


def _gelu(g: G, v: Value, out: Value, x: Value) -> Value:
    cdf = g.mul(g.add(g.erf(g.mul(x, math.sqrt(0.5))), 1), 0.5)
    pdf = g.mul(g.exp(g.mul(g.square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return g.mul(v, g.add(cdf, g.mul(x, pdf)))


def _gelu_tanh(g: G, v: Value, out: Value, x: Value) -> Value:
    c, square = math.sqrt(2 / math.pi), g.square(x)
    u = g.tanh(g.mul(g.mul(x, c), g.add(g.mul(square, 0.044715), 1)))
    inner = g.mul(g.add(g.mul(square, 3 * 0.044715), 1), c)
    slope = g.add(g.mul(g.add(u, 1), 0.5), g.mul(g.mul(x, 0.5), g.mul(g.sub(1, g.square(u)), inner)))
    return g.mul(v, slope)


def _chosen(compare: str, first: bool) -> Binary:
    """Of maximum and minimum: v where this operand was chosen, half of it at a tie."""

    def rule(g: G, v: Value, out: Value, x: Value, y: Value) -> Value:
        won = getattr(g, compare)(x, y) if first else getattr(g, compare)(y, x)
        return g.where(g.eq(x, y), g.mul(v, 0.5), g.where(won, v, 0))

    return rule


UNARY: dict[str, Unary] = {
    "neg": lambda g, v, out, x: g.neg(v),
    "abs": lambda g, v, out, x: g.mul(v, g.sign(x)),
    "exp": lambda g, v, out, x: g.mul(v, out),
    "exp2": lambda g, v, out, x: g.mul(v, g.mul(out, math.log(2))),
    "expm1": lambda g, v, out, x: g.mul(v, g.add(out, 1)),
    "log": lambda g, v, out, x: g.div(v, x),
    "log2": lambda g, v, out, x: g.div(v, g.mul(x, math.log(2))),
    "log10": lambda g, v, out, x: g.div(v, g.mul(x, math.log(10))),
    "log1p": lambda g, v, out, x: g.div(v, g.add(x, 1)),
    "sqrt": lambda g, v, out, x: g.div(g.mul(v, 0.5), out),
    "rsqrt": lambda g, v, out, x: g.mul(g.mul(v, -0.5), g.div(out, x)),
    "reciprocal": lambda g, v, out, x: g.neg(g.mul(v, g.square(out))),
    "square": lambda g, v, out, x: g.mul(v, g.mul(x, 2)),
    "real": lambda g, v, out, x: v,  # of a real number
    "imag": lambda g, v, out, x: g.zeros_like(v),
    "sin": lambda g, v, out, x: g.mul(v, g.cos(x)),
    "cos": lambda g, v, out, x: g.neg(g.mul(v, g.sin(x))),
    "tan": lambda g, v, out, x: g.mul(v, g.add(g.square(out), 1)),
    "atan": lambda g, v, out, x: g.div(v, g.add(g.square(x), 1)),
    "sinh": lambda g, v, out, x: g.mul(v, g.cosh(x)),
    "cosh": lambda g, v, out, x: g.mul(v, g.sinh(x)),
    "tanh": lambda g, v, out, x: g.mul(v, g.sub(1, g.square(out))),
    "erf": lambda g, v, out, x: g.mul(v, g.mul(g.exp(g.neg(g.square(x))), 2 / math.sqrt(math.pi))),
    "relu": lambda g, v, out, x: g.where(g.gt(x, 0), v, 0),
    "sigmoid": lambda g, v, out, x: g.mul(v, g.mul(out, g.sub(1, out))),
    "softplus": lambda g, v, out, x: g.mul(v, g.sigmoid(x)),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
BINARY: dict[str, tuple[Binary, Binary]] = {
    "add": (lambda g, v, out, x, y: v, lambda g, v, out, x, y: v),
    "sub": (lambda g, v, out, x, y: v, lambda g, v, out, x, y: g.neg(v)),
    "mul": (lambda g, v, out, x, y: g.mul(v, y), lambda g, v, out, x, y: g.mul(v, x)),
    "div": (lambda g, v, out, x, y: g.div(v, y), lambda g, v, out, x, y: g.neg(g.div(g.mul(v, out), y))),
    "mod": (lambda g, v, out, x, y: v, lambda g, v, out, x, y: g.neg(g.mul(v, g.floor(g.div(x, y))))),
    "pow": (
        lambda g, v, out, x, y: g.mul(v, g.where(g.eq(y, 0), 0, g.mul(y, g.pow(x, g.sub(y, 1))))),
        lambda g, v, out, x, y: g.mul(v, g.where(g.eq(x, 0), 0, g.mul(out, g.log(x)))),
    ),
    "maximum": (_chosen("gt", True), _chosen("gt", False)),
    "minimum": (_chosen("lt", True), _chosen("lt", False)),
    "atan2": (
        lambda g, v, out, y, x: g.div(g.mul(v, x), g.add(g.square(x), g.square(y))),
        lambda g, v, out, y, x: g.neg(g.div(g.mul(v, y), g.add(g.square(x), g.square(y)))),
    ),
}
TERNARY: dict[str, tuple[Ternary | None, Ternary, Ternary]] = {
    "fma": (
        lambda g, v, out, x, y, z: g.mul(v, y),
        lambda g, v, out, x, y, z: g.mul(v, x),
        lambda g, v, out, x, y, z: v,
    ),
    "where": (None, lambda g, v, out, c, x, y: g.where(c, v, 0), lambda g, v, out, c, x, y: g.where(c, 0, v)),
}


def derivatives(name: str, arity: int) -> Sequence[Callable[..., Any] | None]:
    """One rule per operand of the scalar function `name`; None where there is no derivative."""
    if name in UNARY:
        return (UNARY[name],)
    return BINARY.get(name) or TERNARY.get(name) or (None,) * arity
