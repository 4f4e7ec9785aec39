"""Inverse functions and functions of signs and neighbours: elementwise operators that are made of simpler ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.elementwise import sum_to
from tessera.compiler.graph.operators.further_dtypes import (
    acos_complex,
    acosh_complex,
    asin_complex,
    asinh_complex,
    atanh_complex,
)
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes
from tessera.language.lazy import np

_LARGE = 2.0**28
"""beyond it x * x + 1 is x * x to the last bit, in f64 as well"""


class Inverse(Operator, abstract=True):
    """A function of one number that gives floats, or complex numbers of complex ones; integers count as f32."""

    batching = "map"

    numpy: ClassVar[str]
    of_complex: ClassVar[Callable[[GraphBuilder, Value], Value]]

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        t.require(x, "number")
        return t.floating(0, x)

    def reference(self, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return getattr(np, self.numpy)(x)

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        if tensor(x).dtype.is_complex:
            return type(self).of_complex(g, x)
        return g.to(self.real(g, g.compute(x)), tensor(x).dtype)

    def real(self, g: GraphBuilder, x: Value) -> Value:
        raise NotImplementedError

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value) -> Value:
        return g.mul(tangents[0], self.slope(g, x))

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value) -> tuple[Value]:
        return (g.mul(ct, self.slope(g, x)),)

    def slope(self, g: GraphBuilder, x: Value) -> Value:
        raise NotImplementedError


def _over_root(g: GraphBuilder, x: Value) -> Value:
    """1 / sqrt(x)."""
    return g.reciprocal(g.sqrt(x)) if tensor(x).dtype.is_complex else g.rsqrt(x)


def _signed(g: GraphBuilder, size: Value, x: Value) -> Value:
    """`size` with the sign of `x`, whose zeros stay what they are."""
    return g.where(g.eq(x, 0), x, g.where(g.lt(x, 0), g.neg(size), size))


class Asin(Inverse):
    """The angle, in radians, whose sine is x; NaN outside of [-1, 1]."""

    functions = methods = ("asin", "arcsin")
    numpy, of_complex = "arcsin", asin_complex

    def real(self, g: GraphBuilder, x: Value) -> Value:
        return g.atan2(x, g.sqrt(g.mul(g.sub(1.0, x), g.add(1.0, x))))

    def slope(self, g: GraphBuilder, x: Value) -> Value:
        return _over_root(g, g.sub(1.0, g.square(x)))


class Acos(Inverse):
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""

    functions = methods = ("acos", "arccos")
    numpy, of_complex = "arccos", acos_complex

    def real(self, g: GraphBuilder, x: Value) -> Value:
        return g.atan2(g.sqrt(g.mul(g.sub(1.0, x), g.add(1.0, x))), x)

    def slope(self, g: GraphBuilder, x: Value) -> Value:
        return g.neg(_over_root(g, g.sub(1.0, g.square(x))))


class Asinh(Inverse):
    """The number whose hyperbolic sine is x."""

    functions = methods = ("asinh", "arcsinh")
    numpy, of_complex = "arcsinh", asinh_complex

    def real(self, g: GraphBuilder, x: Value) -> Value:
        a = g.abs(x)
        far = g.gt(a, _LARGE)
        b = g.where(far, 1.0, a)
        near = g.log1p(g.add(b, g.div(g.square(b), g.add(1.0, g.sqrt(g.add(1.0, g.square(b)))))))
        return _signed(g, g.where(far, g.add(g.log(a), math.log(2)), near), x)

    def slope(self, g: GraphBuilder, x: Value) -> Value:
        return _over_root(g, g.add(1.0, g.square(x)))


class Acosh(Inverse):
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""

    functions = methods = ("acosh", "arccosh")
    numpy, of_complex = "arccosh", acosh_complex

    def real(self, g: GraphBuilder, x: Value) -> Value:
        far = g.gt(x, _LARGE)
        over = g.sub(g.where(far, 1.0, x), 1.0)
        near = g.log1p(g.add(over, g.sqrt(g.mul(over, g.add(over, 2.0)))))
        return g.where(g.lt(x, 1.0), math.nan, g.where(far, g.add(g.log(x), math.log(2)), near))

    def slope(self, g: GraphBuilder, x: Value) -> Value:
        return g.mul(_over_root(g, g.sub(x, 1.0)), _over_root(g, g.add(x, 1.0)))


class Atanh(Inverse):
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""

    functions = methods = ("atanh", "arctanh")
    numpy, of_complex = "arctanh", atanh_complex

    def real(self, g: GraphBuilder, x: Value) -> Value:
        a = g.abs(x)
        return _signed(g, g.mul(0.5, g.log1p(g.div(g.mul(2.0, a), g.sub(1.0, a)))), x)

    def slope(self, g: GraphBuilder, x: Value) -> Value:
        return g.reciprocal(g.sub(1.0, g.square(x)))


class Conj(Operator):
    """The complex conjugate; a real number is its own."""

    batching = "map"

    functions = methods = ("conj", "conjugate")

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        t.require(x, "number")
        return x

    def reference(self, x: Any) -> Any:
        return np.conj(x)

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        return g.make_complex(g.real(x), g.neg(g.imag(x))) if tensor(x).dtype.is_complex else x

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value) -> tuple[Value]:
        return (g.conj(ct),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value) -> Value:
        return g.conj(tangents[0])


class Positive(Operator):
    """x itself."""

    batching = "map"

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        t.require(x, "number")
        return x

    def reference(self, x: Any) -> Any:
        return x

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        return x


class Paired(Operator, abstract=True):
    """A function of two real numbers that gives floats."""

    batching = "map"

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        for i, v in enumerate((x, y)):
            t.require(v, "real", operand=i)
        dtype = t.promote(x, y)
        for i, v in enumerate((x, y)):
            t.floating(i, v.with_dtype(dtype))
        return TensorType(t.broadcast(x.shape, y.shape, whole=True), dtype if dtype.is_float else dtypes.f32)


class Copysign(Paired):
    """|x| with the sign bit of y (zeros and NaN have one too)."""

    def reference(self, x: Any, y: Any) -> Any:
        return np.copysign(x, y)

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        size = g.abs(x)
        return g.where(g.signbit(y), g.neg(size), size)


class Logaddexp(Paired):
    """log(exp(x) + exp(y)) without overflow."""

    def reference(self, x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.logaddexp(x, y)

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        dtype = tensor(x).dtype
        x, y = g.compute(x), g.compute(y)
        same = g.eq(x, y)  # two infinities have no difference
        far = g.where(same, 0.0, g.neg(g.abs(g.sub(x, y))))
        return g.to(g.add(g.maximum(x, y), g.log1p(g.exp(far))), dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, y: Value) -> tuple[Value, ...]:
        """exp(x - out); 0 where both are -inf."""
        total = g.where(g.eq(out, -math.inf), 0, out)
        return tuple(sum_to(g, g.mul(ct, g.exp(g.sub(v, total))), tensor(v).shape) for v in (x, y))


class Xlogy(Paired):
    """x * log(y); 0 where x is 0 and y is not NaN."""

    methods = ()

    def reference(self, x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.where((x == 0) & ~np.isnan(y), np.zeros((), x.dtype), x * np.log(y))

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        none = g.logical_and(g.eq(x, 0), g.logical_not(g.isnan(y)))
        product = g.mul(g.compute(x), g.log(g.where(none, 1.0, g.compute(y))))
        return g.where(none, 0.0, g.to(product, tensor(x).dtype))

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, y: Value) -> tuple[Value, ...]:
        """log(y) and x / y, and 0 where x is 0 and these are infinite."""
        none = g.eq(x, 0)
        origin = g.logical_and(none, g.le(y, 0))
        of_x = g.where(origin, 0, g.mul(ct, g.log(g.where(origin, 1, y))))
        of_y = g.where(none, 0, g.mul(ct, g.div(x, g.where(none, 1, y))))
        return (sum_to(g, of_x, tensor(x).shape), sum_to(g, of_y, tensor(y).shape))


class Nextafter(Paired):
    """The number next to x on the way to y; f32 and f64 only."""

    differentiable = False

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        out = super().infer(t, x, y)
        if out.dtype not in (dtypes.f32, dtypes.f64):
            t.fail("TS301", f"nextafter takes f32 or f64 elements, not {out.dtype}")
        return out

    def reference(self, x: Any, y: Any) -> Any:
        return np.nextafter(x, y)

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        """Rump and others, "Computing predecessor and successor in rounding to nearest" (BIT 49, 2009)."""
        dtype = tensor(x).dtype
        u = 2.0 ** -(dtype.mantissa + 1)
        tiny = 2.0 ** (2 - 2 ** (dtype.exponent - 1) - dtype.mantissa)
        least = 2.0 ** (2 - 2 ** (dtype.exponent - 1))  # the smallest normal number
        a = g.abs(x)
        step = g.mul(a, u * (1 + 2 * u))
        # where the step would itself be rounded, far below 1, the same is done with x / u
        grown = g.div(a, u)
        small = g.le(a, least / u)
        out = g.where(small, g.mul(g.add(grown, g.mul(grown, u * (1 + 2 * u))), u), g.add(a, step))
        back = g.where(small, g.mul(g.sub(grown, g.mul(grown, u * (1 + 2 * u))), u), g.sub(a, step))
        subnormal = g.lt(a, least)
        out = g.where(subnormal, g.add(a, tiny), out)
        back = g.where(g.le(a, least), g.sub(a, tiny), back)
        largest = g.full((), dtype.maximum, dtype)
        back = g.where(g.isinf(x), largest, back)
        grows = g.eq(g.gt(x, 0), g.gt(y, x))
        size = g.where(grows, out, back)
        moved = g.where(g.lt(x, 0), g.neg(size), size)
        moved = g.where(g.eq(x, 0), g.where(g.lt(y, 0), g.full((), -tiny, dtype), tiny), moved)
        wrong = g.logical_or(g.isnan(x), g.isnan(y))
        return g.where(wrong, math.nan, g.where(g.eq(x, y), y, moved))
