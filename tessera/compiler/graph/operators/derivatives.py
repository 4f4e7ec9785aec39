"""Derivatives of the scalar functions: each rule gives v times the derivative, for a cotangent v (`ADJOINTS`).

The Jacobian of an elementwise operator is diagonal, so that a tangent follows the same rule, but for functions of
complex numbers that are not holomorphic: theirs are in `TANGENTS`. Cotangents are not conjugated: the cotangent c of a
complex number pairs with its tangent t as the real part of c t.

Where a function has no derivative, the rule gives what is of use: 0 at the corner of `abs`, half to each side of a tie
of `maximum`, 0 for the exponent of a base that is not positive, whose powers have no values to both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Value

G: TypeAlias = GraphBuilder
Rule: TypeAlias = Callable[..., "Value | None"]
"""(g, v, out, *operands)"""
Unary: TypeAlias = Callable[[GraphBuilder, Value, Value, Value], "Value | None"]
Binary: TypeAlias = Callable[[GraphBuilder, Value, Value, Value, Value], Value]
Ternary: TypeAlias = Callable[[GraphBuilder, Value, Value, Value, Value, Value], Value]

STEPS = frozenset((
    "floor", "ceil", "round", "trunc", "floordiv", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite",
    "logical_and", "logical_or", "logical_xor", "logical_not", "bit_and", "bit_or", "bit_xor", "bit_not", "shift_left",
    "shift_right", "signbit",
))  # fmt: skip
"""Functions whose derivative is 0 wherever they have one, or whose values are no real numbers."""


def _is_complex(v: Value) -> bool:
    return tensor(v).dtype.is_complex


def _paired(g: G, v: Value, like: Value) -> Value:
    """A real cotangent as one of a complex operand."""
    return g.to(v, tensor(like).dtype)


def _abs(g: G, v: Value, out: Value, x: Value) -> Value:
    return g.mul(_paired(g, v, x), g.conj(g.sign(x))) if _is_complex(x) else g.mul(v, g.sign(x))


def _sign(g: G, v: Value, out: Value, x: Value) -> Value | None:
    """For x / |x| of a complex number: v without its part along x. Of real numbers it is a step: no zeros, which times
    infinity would be NaN."""
    if not _is_complex(x):
        return None
    size = g.abs(x)
    zero = g.eq(size, 0)
    along = g.mul(g.conj(out), g.to(g.real(g.mul(v, out)), tensor(x).dtype))
    whole = g.to(g.where(zero, 1, size), tensor(x).dtype)
    return g.where(zero, 0, g.div(g.sub(v, along), whole))


def _sign_tangent(g: G, v: Value, out: Value, x: Value) -> Value | None:
    found = _sign(g, g.conj(v), out, x)
    return None if found is None else g.conj(found)


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
    """For maximum and minimum: v where this operand was chosen, half of it at a tie."""

    def rule(g: G, v: Value, out: Value, x: Value, y: Value) -> Value:
        won = getattr(g, compare)(x, y) if first else getattr(g, compare)(y, x)
        return g.where(g.eq(x, y), g.mul(v, 0.5), g.where(won, v, 0))

    return rule


def _of_base(g: G, v: Value, out: Value, x: Value, y: Value) -> Value:
    """y x**(y - 1), which is 0 at x = y = 0, where x**-1 is infinite."""
    origin = g.logical_and(g.eq(x, 0), g.eq(y, 0))
    return g.mul(v, g.mul(y, g.pow(x, g.where(origin, 0, g.sub(y, 1)))))


def _of_exponent(g: G, v: Value, out: Value, x: Value, y: Value) -> Value:
    """x**y log(x), and 0 where x is not positive."""
    none = g.eq(x, 0) if _is_complex(x) else g.le(x, 0)
    return g.where(none, 0, g.mul(v, g.mul(out, g.log(g.where(none, 1, x)))))


def _turned(g: G, v: Value, by: Value, y: Value, x: Value) -> Value:
    """For atan2: v times `by` over the squared distance from the origin; 0 at the origin."""
    square = g.add(g.square(x), g.square(y))
    none = g.eq(square, 0)
    return g.where(none, 0, g.mul(v, g.div(by, g.where(none, 1, square))))


UNARY: dict[str, Unary] = {
    "neg": lambda g, v, out, x: g.neg(v),
    "abs": _abs,
    "sign": _sign,
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
    "real": lambda g, v, out, x: _paired(g, v, x),
    "imag": lambda g, v, out, x: g.make_complex(g.zeros_like(v), g.neg(v)) if _is_complex(x) else g.zeros_like(x),
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
    "pow": (_of_base, _of_exponent),
    "maximum": (_chosen("gt", True), _chosen("gt", False)),
    "minimum": (_chosen("lt", True), _chosen("lt", False)),
    "atan2": (
        lambda g, v, out, y, x: _turned(g, v, x, y, x),
        lambda g, v, out, y, x: g.neg(_turned(g, v, y, y, x)),
    ),
    "make_complex": (lambda g, v, out, x, y: g.real(v), lambda g, v, out, x, y: g.neg(g.imag(v))),
}
TERNARY: dict[str, tuple[Ternary | None, Ternary, Ternary]] = {
    "fma": (
        lambda g, v, out, x, y, z: g.mul(v, y),
        lambda g, v, out, x, y, z: g.mul(v, x),
        lambda g, v, out, x, y, z: v,
    ),
    "where": (None, lambda g, v, out, c, x, y: g.where(c, v, 0), lambda g, v, out, c, x, y: g.where(c, 0, v)),
}
ADJOINTS: Mapping[str, Sequence[Rule | None]] = {k: (v,) for k, v in UNARY.items()} | BINARY | TERNARY
"""One rule per operand of each scalar function; None for what decides without being a number."""
UNARY_TANGENTS: dict[str, Unary] = {
    "abs": lambda g, v, out, x: g.real(g.mul(g.conj(g.sign(x)), v)) if _is_complex(x) else g.mul(v, g.sign(x)),
    "sign": _sign_tangent,
    "real": lambda g, v, out, x: g.real(v),
    "imag": lambda g, v, out, x: g.imag(v),
}
BINARY_TANGENTS: dict[str, tuple[Binary, Binary]] = {
    "make_complex": (
        lambda g, v, out, x, y: g.make_complex(v, g.zeros_like(v)),
        lambda g, v, out, x, y: g.make_complex(g.zeros_like(v), v),
    ),
}
TANGENTS: Mapping[str, Sequence[Rule | None]] = {
    **ADJOINTS, **{k: (v,) for k, v in UNARY_TANGENTS.items()}, **BINARY_TANGENTS,
}  # fmt: skip


def rules(name: str, tangent: bool = False) -> Sequence[Rule | None]:
    """The rules of the scalar function `name`. Raises KeyError where it has none and is not one of `STEPS`."""
    return (None,) * 3 if name in STEPS else (TANGENTS if tangent else ADJOINTS)[name]
