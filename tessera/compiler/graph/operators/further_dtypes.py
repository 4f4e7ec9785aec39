"""Scalar functions of dtypes that targets do not know them for, spelled in functions that they do know.

Of complex numbers: from the real and imaginary parts, each formula chosen so that nothing cancels or overflows early
(W. Kahan, "Branch cuts for complex elementary functions", 1987). Of integers and bools: rounding leaves them as they
are, none is NaN or infinite, and bools are ordered as 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Value
from tessera.language import dtypes

G: TypeAlias = GraphBuilder


def further(g: G, name: str, xs: Sequence[Value]) -> Value | None:
    """`name` of the operands; None where targets know it for their dtype."""
    dtype = tensor(xs[-1]).dtype
    if dtype.is_complex:
        rule = COMPLEX.get(name)
        return None if rule is None else rule(g, xs[0])
    if dtype.kind == "bool" and name in BOOLS:
        return BOOLS[name](g, *xs)
    if name == "real":
        return xs[0]
    if name == "imag":
        return g.zeros_like(xs[0])
    if not dtype.is_float and name in WHOLE:
        return WHOLE[name](g, xs[0])
    return None


def parts(g: G, z: Value) -> tuple[Value, Value]:
    return g.real(z), g.imag(z)


def _sin(g: G, z: Value) -> Value:
    x, y = parts(g, z)
    return g.make_complex(_product(g, g.sin(x), g.cosh(y), x), _product(g, g.cos(x), g.sinh(y), y))


def _cos(g: G, z: Value) -> Value:
    x, y = parts(g, z)
    return g.make_complex(g.mul(g.cos(x), g.cosh(y)), g.neg(_product(g, g.sin(x), g.sinh(y), x, y)))


def _sinh(g: G, z: Value) -> Value:
    x, y = parts(g, z)
    re = _product(g, g.cos(y), g.sinh(x), x)
    return g.make_complex(g.where(_astray(g, x, y), x, re), _product(g, g.sin(y), g.cosh(x), y))


def _cosh(g: G, z: Value) -> Value:
    x, y = parts(g, z)
    re = g.mul(g.cos(y), g.cosh(x))
    return g.make_complex(g.where(_astray(g, x, y), g.abs(x), re), _product(g, g.sin(y), g.sinh(x), x, y))


def _product(g: G, a: Value, b: Value, *zeros: Value) -> Value:
    """a * b, and 0 where one of `zeros` is 0: on the axes of the plane one part stays 0 however large the other is."""
    product, lost = g.mul(a, b), g.eq(zeros[0], 0)
    for v in zeros[1:]:
        lost = g.logical_or(lost, g.eq(v, 0))
    return g.where(g.logical_and(lost, g.logical_not(g.isfinite(product))), 0.0, product)


def _astray(g: G, x: Value, y: Value) -> Value:
    """Where the size is infinite and the direction not known."""
    return g.logical_and(g.isinf(x), g.logical_not(g.isfinite(y)))


def _tanh(g: G, z: Value) -> Value:
    """(sinh x cosh x + i sin y cos y) / (sinh(x)**2 + cos(y)**2), where it is not +-1 to the last bit."""
    x, y = parts(g, z)
    small = g.clip(x, -20.0, 20.0)
    s, c, sin, cos = g.sinh(small), g.cosh(small), g.sin(y), g.cos(y)
    below, both = g.add(g.square(s), g.square(cos)), g.mul(sin, cos)
    far = g.gt(g.abs(x), 20.0)
    re = g.where(far, g.where(g.logical_or(g.isfinite(y), g.isinf(x)), g.sign(x), math.nan), g.div(g.mul(s, c), below))
    rest = g.where(g.isinf(x), 0.0, g.mul(g.mul(4.0, both), g.exp(g.mul(-2.0, g.abs(x)))))
    im = g.where(far, rest, g.div(both, below))
    return g.make_complex(g.where(g.eq(x, 0), x, re), g.where(g.eq(y, 0), y, im))


def _expm1(g: G, z: Value) -> Value:
    x, y = parts(g, z)
    half = g.sin(g.mul(y, 0.5))
    whole = g.where(g.eq(x, 0), 0.0, g.mul(g.expm1(x), g.cos(y)))
    re = g.sub(whole, g.mul(2.0, g.square(half)))
    astray = _astray(g, x, y)
    im = g.where(g.logical_and(astray, g.lt(x, 0)), 0.0, _product(g, g.sin(y), g.exp(x), y))
    return g.make_complex(g.where(astray, g.expm1(x), re), im)


def _log1p(g: G, z: Value) -> Value:
    x, y = parts(g, z)
    near = g.mul(0.5, g.log1p(g.add(g.mul(x, g.add(x, 2.0)), g.square(y))))
    far = g.log(g.hypot(g.add(x, 1.0), y))
    close = g.logical_and(g.lt(g.abs(x), 0.5), g.lt(g.abs(y), 0.5))
    return g.make_complex(g.where(close, near, far), g.atan2(y, g.add(x, 1.0)))


def _log_to(base: float) -> Callable[[G, Value], Value]:
    def rule(g: G, z: Value) -> Value:
        x, y = parts(g, g.log(z))
        scale = 1 / math.log(base)
        return g.make_complex(g.mul(x, scale), g.mul(y, scale))

    return rule


def _sign(g: G, z: Value) -> Value:
    x, y = parts(g, z)
    size = g.abs(z)
    zero = g.eq(size, 0)
    whole = g.where(zero, 1.0, size)
    return g.make_complex(g.where(zero, 0.0, g.div(x, whole)), g.where(zero, 0.0, g.div(y, whole)))


def asinh_complex(g: G, z: Value) -> Value:
    """From s = sqrt(1 + iz) and t = sqrt(1 - iz); far out it is log(2z), with the signs of z."""
    x, y = parts(g, z)
    (a, b), (c, d) = _roots(g, g.sub(1.0, y), x), _roots(g, g.add(1.0, y), g.neg(x))
    far = _is_far(g, z)
    re = g.where(far, g.copysign(_log_of_double(g, x, y), x), g.asinh(g.sub(g.mul(c, b), g.mul(d, a))))
    im = g.where(far, g.atan2(y, g.abs(x)), g.atan2(y, g.sub(g.mul(a, c), g.mul(b, d))))
    return g.make_complex(re, g.where(g.eq(y, 0), y, im))


def acosh_complex(g: G, z: Value) -> Value:
    """From sqrt(z - 1) and sqrt(z + 1); far out it is log(2z)."""
    x, y = parts(g, z)
    (a, b), (c, d) = _roots(g, g.sub(x, 1.0), y), _roots(g, g.add(x, 1.0), y)
    far = _is_far(g, z)
    re = g.where(far, _log_of_double(g, x, y), g.asinh(g.add(g.mul(a, c), g.mul(b, d))))
    im = g.where(far, g.atan2(y, x), g.mul(2.0, g.atan2(b, c)))
    return g.make_complex(re, g.where(g.eq(x, 0), g.copysign(math.pi / 2, y), im))


def acos_complex(g: G, z: Value) -> Value:
    """From sqrt(1 - z) and sqrt(1 + z)."""
    x, y = parts(g, z)
    (a, b), (c, d) = _roots(g, g.sub(1.0, x), g.neg(y)), _roots(g, g.add(1.0, x), y)
    far = _is_far(g, z)
    re = g.where(far, g.atan2(g.abs(y), x), g.mul(2.0, g.atan2(a, c)))
    im = g.where(far, g.copysign(_log_of_double(g, x, y), g.neg(y)), g.asinh(g.sub(g.mul(c, b), g.mul(d, a))))
    return g.make_complex(g.where(g.eq(x, 0), math.pi / 2, re), im)


def asin_complex(g: G, z: Value) -> Value:
    x, y = parts(g, asinh_complex(g, _turned(g, z)))  # -i asinh(iz)
    return g.make_complex(y, g.neg(x))


def atanh_complex(g: G, z: Value) -> Value:
    """log1p(4x / ((1 - x)**2 + y**2)) / 4 for the real part; far out it is atanh(1/z) and a quarter turn."""
    x, y = parts(g, z)
    far, infinite = _is_far(g, z), g.logical_or(g.isinf(x), g.isinf(y))
    u, v = g.where(far, 2.0, g.abs(x)), g.where(far, 0.0, y)
    below = g.add(g.square(g.sub(1.0, u)), g.square(v))
    re = g.copysign(g.mul(0.25, g.log1p(g.div(g.mul(4.0, u), below))), x)
    im = g.mul(0.5, g.atan2(g.mul(2.0, v), g.sub(g.mul(g.sub(1.0, u), g.add(1.0, u)), g.square(v))))
    p, q = parts(g, g.reciprocal(g.where(far, z, 1.0)))
    p, q = g.where(infinite, g.copysign(0.0, x), p), g.where(infinite, 0.0, q)
    turn = g.where(g.isnan(y), y, g.add(g.copysign(math.pi / 2, y), q))
    return g.make_complex(g.where(g.eq(x, 0), x, g.where(far, p, re)), g.where(far, turn, im))


def _atan(g: G, z: Value) -> Value:
    x, y = parts(g, atanh_complex(g, _turned(g, z)))  # -i atanh(iz)
    return g.make_complex(y, g.neg(x))


def _turned(g: G, z: Value) -> Value:
    """iz."""
    x, y = parts(g, z)
    return g.make_complex(g.neg(y), x)


def _roots(g: G, x: Value, y: Value) -> tuple[Value, Value]:
    """The parts of sqrt(x + iy)."""
    return parts(g, g.sqrt(g.make_complex(x, y)))


def _is_far(g: G, z: Value) -> Value:
    """Where 1 beside the squares of z is lost to the last bit, and from where those may overflow."""
    x, y = parts(g, z)
    limit = 2.0**15 if tensor(z).dtype == dtypes.complex64 else 2.0**30
    return g.logical_or(g.gt(g.abs(x), limit), g.gt(g.abs(y), limit))


def _log_of_double(g: G, x: Value, y: Value) -> Value:
    """log(2 |x + iy|) without the doubling that may overflow."""
    return g.add(g.log(g.hypot(g.mul(x, 0.5), g.mul(y, 0.5))), 2 * math.log(2))


def _both(name: str) -> Callable[[G, Value], Value]:
    def rule(g: G, z: Value) -> Value:
        x, y = parts(g, z)
        return g.make_complex(getattr(g, name)(x), getattr(g, name)(y))

    return rule


def _either(name: str, combine: str) -> Callable[[G, Value], Value]:
    def rule(g: G, z: Value) -> Value:
        x, y = parts(g, z)
        return getattr(g, combine)(getattr(g, name)(x), getattr(g, name)(y))

    return rule


def _tan(g: G, z: Value) -> Value:
    x, y = parts(g, _tanh(g, _turned(g, z)))  # -i tanh(iz)
    return g.make_complex(y, g.neg(x))


COMPLEX: dict[str, Callable[[G, Value], Value]] = {
    "sin": _sin, "cos": _cos, "tan": _tan, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "atan": _atan,
    "expm1": _expm1, "log1p": _log1p, "log2": _log_to(2), "log10": _log_to(10), "sign": _sign, "round": _both("round"),
    "isnan": _either("isnan", "logical_or"), "isinf": _either("isinf", "logical_or"),
    "isfinite": _either("isfinite", "logical_and"),
}  # fmt: skip


def _same(g: G, x: Value) -> Value:
    return x


def _always(value: bool) -> Callable[[G, Value], Value]:
    return lambda g, x: g.full(tensor(x).shape, value, dtypes.bool_)


WHOLE: dict[str, Callable[[G, Value], Value]] = {
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), _same),
    "isnan": _always(False), "isinf": _always(False), "isfinite": _always(True),
    "signbit": lambda g, x: g.lt(x, 0),
}  # fmt: skip


def _as_integers(name: str) -> Callable[..., Value]:
    def rule(g: G, *xs: Value) -> Any:
        return getattr(g, name)(*(g.cast(x, dtypes.uint8) for x in xs))

    return rule


def _renamed(name: str) -> Callable[..., Value]:
    def rule(g: G, x: Value, y: Value) -> Value:
        return getattr(g, name)(x, y)

    return rule


BOOLS: dict[str, Callable[..., Value]] = {
    "maximum": _renamed("logical_or"),
    "minimum": _renamed("logical_and"),
    **{name: _as_integers(name) for name in ("lt", "le", "gt", "ge")},
}
