"""Elementwise operators: one for each scalar function of `language.scalars`, and a few that are made of those.

Operands broadcast by NumPy's rule and are converted to their common dtype first. To add a scalar function, add it to
the table there (and its derivative to `derivatives`); to add an operator made of others, write a class like `Lerp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from inspect import Parameter as Signature
from typing import Any, ClassVar, TypeAlias

from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import GraphBuilder, Infer, Operator, Parameter, tensor
from tessera.compiler.graph.operators.further_dtypes import further
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.rounding import round_to
from tessera.language.scalars import TABLE, TRUTHS, Scalar

ALIASES: dict[str, tuple[str, ...]] = {
    "sub": ("subtract",), "mul": ("multiply",), "div": ("divide", "true_divide"), "floordiv": ("floor_divide",),
    "mod": ("remainder",), "pow": ("power",), "neg": ("negative",), "abs": ("absolute",), "atan": ("arctan",),
    "atan2": ("arctan2",), "eq": ("equal",), "ne": ("not_equal",), "lt": ("less",), "le": ("less_equal",),
    "gt": ("greater",), "ge": ("greater_equal",), "bit_and": ("bitwise_and",), "bit_or": ("bitwise_or",),
    "bit_xor": ("bitwise_xor",), "bit_not": ("bitwise_not", "bitwise_invert"),
    "shift_left": ("left_shift", "bitwise_left_shift"), "shift_right": ("right_shift", "bitwise_right_shift"),
}  # fmt: skip
"""NumPy's names where ours are shorter."""


def sum_to(g: GraphBuilder, x: Value, shape: Shape) -> Value:
    """The adjoint of broadcasting: `x` summed over the axes along which an operand of `shape` was stretched."""
    have = tensor(x).shape
    lead = len(have) - len(shape)
    stretched = (i + lead for i, d in enumerate(shape) if d == 1 and have[i + lead] != 1)
    axes = (*range(lead), *stretched)
    return g.reshape(g.sum(x, axis=axes), shape) if axes else x


def beside_numbers(x: TensorType, operands: Sequence[TensorType]) -> TensorType:
    """What `x` is among `operands`: bools beside numbers are the numbers 0 and 1."""
    numbers = (t.dtype for t in operands if t.dtype.kind != "bool")
    return x if x.dtype.kind != "bool" else x.with_dtype(next(numbers, x.dtype))


class Elementwise(Operator, abstract=True):
    """An operator that applies one scalar function to every element."""

    kind = "map"
    scalar: ClassVar[Scalar]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(n, True, False, False, Signature.empty, "TensorType") for n in self.scalar.parameters)

    def infer(self, t: Infer, *xs: TensorType) -> TensorType:
        chosen = xs[1:] if self.name == "where" else xs
        first = len(xs) - len(chosen)
        for i, x in enumerate(chosen, first):
            t.require(beside_numbers(x, chosen), self.scalar.in_graphs or self.scalar.accepts, operand=i)
        if self.name in TRUTHS and not dtypes.have_common(x.dtype for x in xs):
            chosen = tuple(t.convert(i, x, dtypes.bool_) for i, x in enumerate(xs))
        dtype = t.promote(*chosen, first=first)
        if first:
            t.convert(0, xs[0], dtypes.bool_)
        if self.scalar.gives == "float" and not (dtype.is_float or dtype.is_complex):
            dtype = dtypes.f32
            for i, x in enumerate(chosen, first):
                t.convert(i, x, dtype)
        return TensorType(t.broadcast(*(x.shape for x in xs), whole=True), self.result(dtype))

    def result(self, dtype: DType) -> DType:
        """The result's dtype when operands have the dtype `dtype`."""
        if self.scalar.gives == "bool":
            return dtypes.bool_
        if self.scalar.gives == "complex":
            return dtype.paired
        return dtype.part if self.scalar.gives == "real" else dtype

    def reference(self, *arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            return self.scalar.reference(*arrays)

    def decompose(self, g: GraphBuilder, *xs: Value) -> Value | None:
        """For dtypes that the scalar function does not know: its meaning in functions that do."""
        return further(g, self.name, xs)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * self.scalar.flops

    def partition(self, cut: Cut, *xs: TensorType) -> None:
        cut.aligned(xs)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, *xs: Value) -> tuple[Value | None, ...]:
        rules = derivatives(self.name, len(xs))
        parts = [None if d is None else d(g, ct, out, *xs) for d in rules]
        return tuple(None if v is None else sum_to(g, v, tensor(x).shape) for v, x in zip(parts, xs, strict=True))

    def tangent(self, g: GraphBuilder, out: Value, tangents: Sequence[Value | None], *xs: Value) -> Value | None:
        rules = derivatives(self.name, len(xs))
        parts = [d(g, v, out, *xs) for d, v in zip(rules, tangents, strict=True) if d is not None and v is not None]
        total = parts[0] if parts else None
        for v in parts[1:]:
            total = g.add(total, v)
        return total


for _scalar in TABLE.values():
    _doc = _scalar.doc[0].upper() + _scalar.doc[1:] if _scalar.doc[1:2].isalpha() else _scalar.doc
    _names = (_scalar.name, *ALIASES.get(_scalar.name, ()))
    type(_scalar.name, (Elementwise,), {
        "__doc__": f"{_doc}.", "__module__": __name__, "name": _scalar.name, "scalar": _scalar, "functions": _names,
        "methods": () if _scalar.name == "where" else _names,
    })  # fmt: skip


class Cast(Operator):
    """`x` with elements of `dtype`, rounded to nearest even; what is too large becomes infinite.

    In formats of 8 bits and fewer it becomes the largest finite value. Floats become integers by cutting off towards
    zero, held within the integer's range; NaN becomes 0.
    """

    kind = "map"
    functions = ("cast", "astype")
    methods = ("cast", "astype", "to")

    def infer(self, t: Infer, x: TensorType, dtype: DType) -> TensorType:
        target = t.dtype(dtype)
        if x.dtype.is_complex and not target.is_complex and target.kind != "bool":
            t.fail("TS301", f"cast from {x.dtype} to {target} would drop the imaginary part; use abs(x)", operand=0)
        t.canonical(dtype=target)
        return x.with_dtype(target)

    def reference(self, x: Any, dtype: DType) -> Any:
        return round_to(x, dtype)

    def partition(self, cut: Cut, x: TensorType, dtype: DType) -> None:
        """Each element by itself."""

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, dtype: DType) -> tuple[Value]:
        return (g.to(ct, tensor(x).dtype),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Sequence[Value], x: Value, dtype: DType) -> Value:
        return g.cast(tangents[0], dtype)


class Clip(Operator):
    """`x` kept between `min` and `max`, either of which may be absent; NaN stays NaN."""

    functions = methods = ("clip", "clamp")

    def infer(
        self, t: Infer, x: TensorType, min: TensorType | None = None, max: TensorType | None = None
    ) -> TensorType:
        given = [v for v in (x, min, max) if v is not None]
        for v in given:
            t.require(v, "real")
        return TensorType(t.broadcast(*(v.shape for v in given)), t.promote(*given))

    def reference(self, x: Any, min: Any = None, max: Any = None) -> Any:
        x = x if min is None else np.maximum(x, min)
        return x if max is None else np.minimum(x, max)

    def decompose(self, g: GraphBuilder, x: Value, min: Value | None = None, max: Value | None = None) -> Value:
        x = x if min is None else g.maximum(x, min)
        return x if max is None else g.minimum(x, max)


class Lerp(Operator):
    """`x + weight * (y - x)`: from x at weight 0 to y at weight 1."""

    def infer(self, t: Infer, x: TensorType, y: TensorType, weight: TensorType) -> TensorType:
        for i, v in enumerate((x, y, weight)):
            t.require(v, "float", operand=i)
        return TensorType(t.broadcast(x.shape, y.shape, weight.shape), t.promote(x, y, weight))

    def reference(self, x: Any, y: Any, weight: Any) -> Any:
        return x + weight * (y - x)

    def decompose(self, g: GraphBuilder, x: Value, y: Value, weight: Value) -> Value:
        dtype = tensor(x).dtype
        x, y, weight = g.compute(x), g.compute(y), g.compute(weight)
        return g.to(g.add(x, g.mul(weight, g.sub(y, x))), dtype)


class MaskedFill(Operator):
    """`value` where `mask` holds, else `x`."""

    apart = ("mask",)

    def infer(self, t: Infer, x: TensorType, mask: TensorType, value: TensorType) -> TensorType:
        t.require(mask, "bool", operand=1)
        return TensorType(t.broadcast(x.shape, mask.shape, value.shape), t.convert(2, value, x.dtype).dtype)

    def reference(self, x: Any, mask: Any, value: Any) -> Any:
        return np.where(mask, value, x)

    def decompose(self, g: GraphBuilder, x: Value, mask: Value, value: Value) -> Value:
        return g.where(mask, value, x)


class Hypot(Operator):
    """sqrt(x * x + y * y) without squares that overflow: the larger magnitude times sqrt(1 + ratio**2)."""

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        for i, v in enumerate((x, y)):
            t.require(v, "real", operand=i)
        dtype = t.promote(x, y)
        for i, v in enumerate((x, y)):
            t.floating(i, v.with_dtype(dtype))
        return TensorType(t.broadcast(x.shape, y.shape, whole=True), dtype if dtype.is_float else dtypes.f32)

    def reference(self, x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.hypot(x, y)

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        dtype = tensor(x).dtype
        a, b = g.abs(g.compute(x)), g.abs(g.compute(y))
        large, small = g.maximum(a, b), g.minimum(a, b)
        ratio = g.where(g.eq(large, small), 1.0, g.div(small, large))  # 0 / 0 and inf / inf count as 1
        size = g.mul(large, g.sqrt(g.add(1.0, g.square(ratio))))
        infinite = g.logical_or(g.isinf(a), g.isinf(b))  # also beside a NaN
        return g.to(g.where(infinite, math.inf, size), dtype)


# Derivatives of the scalar functions: each entry gives v times the derivative, for a cotangent or tangent v
# alike.
#
# A Jacobian of an elementwise operator is diagonal, so one rule serves reverse and forward mode. Functions that
# are not listed (comparisons, rounding, integers) have derivative zero or none.

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
