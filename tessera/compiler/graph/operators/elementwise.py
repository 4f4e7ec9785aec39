"""Elementwise operators: one for each scalar function of `language.scalars`, and a few that are made of those.

Operands broadcast by NumPy's rule and are converted to their common dtype first. To add a scalar function, add it to
the table there (and its derivative to `derivatives`); to add an operator made of others, write a class like `Lerp`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from inspect import Parameter
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, OperatorParameter, tensor
from tessera.compiler.graph.operators.derivatives import STEPS, rules
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
    """`x` as an operand beside `operands`: bools beside numbers are the numbers 0 and 1."""
    numbers = (t.dtype for t in operands if t.dtype.kind != "bool")
    return x if x.dtype.kind != "bool" else x.with_dtype(next(numbers, x.dtype))


class Elementwise(Operator, abstract=True):
    """An operator that applies one scalar function to every element."""

    kind = "map"
    scalar: ClassVar[Scalar]

    @cached_property
    def parameters(self) -> tuple[OperatorParameter, ...]:
        return tuple(
            OperatorParameter(n, True, False, False, Parameter.empty, "TensorType") for n in self.scalar.parameters
        )

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
        parts = [None if d is None else d(g, ct, out, *xs) for d in rules(self.name)[: len(xs)]]
        return tuple(None if v is None else sum_to(g, v, tensor(x).shape) for v, x in zip(parts, xs, strict=True))

    def tangent(self, g: GraphBuilder, out: Value, tangents: Sequence[Value | None], *xs: Value) -> Value | None:
        slopes = rules(self.name, tangent=True)[: len(xs)]
        found = [d(g, v, out, *xs) for d, v in zip(slopes, tangents, strict=True) if d is not None and v is not None]
        parts = [v for v in found if v is not None]
        total = parts[0] if parts else None
        for v in parts[1:]:
            total = g.add(total, v)
        return total


_PARTS = ("real", "imag")
"""attributes of tensors, as in NumPy"""

_LOGGED = "ts.log({'loss': value}) logs numbers by name, outside of functions, which return them beside their result"
_SAYS = {"log": {"": _LOGGED}}

for _scalar in TABLE.values():
    _first = _scalar.doc.split()[0]
    _doc = (_first.capitalize() if len(_first) > 1 and _first.isalpha() else _first) + _scalar.doc[len(_first) :]
    _names = (_scalar.name, *ALIASES.get(_scalar.name, ()))
    type(_scalar.name, (Elementwise,), {
        "__doc__": f"{_doc}.", "__module__": __name__, "name": _scalar.name, "scalar": _scalar, "functions": _names,
        "methods": () if _scalar.name in ("where", *_PARTS) else _names,
        "properties": _names if _scalar.name in _PARTS else (), "differentiable": _scalar.name not in STEPS,
        "says": _SAYS.get(_scalar.name, {}),
    })  # fmt: skip


class Cast(Operator):
    """`x` with elements of `dtype`, rounded to nearest even; numbers that are too large become infinite.

    In formats of 8 bits and fewer they become the largest finite value. Floats become integers by truncation towards
    zero, limited to the integer's range; NaN becomes 0.
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

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, dtype: DType) -> tuple[Value | None]:
        """To and from integers and bools nothing flows; of a real number that becomes complex the real part does."""
        own = tensor(x).dtype
        if not (own.is_float or own.is_complex) or not (dtype.is_float or dtype.is_complex):
            return (None,)
        return (g.to(g.real(ct) if dtype.is_complex and not own.is_complex else ct, own),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, dtype: DType) -> Value | None:
        return g.cast(tangents[0], dtype) if tangents[0] is not None and (dtype.is_float or dtype.is_complex) else None


class Bitcast(Operator):
    """The bits of `x` as elements of `dtype`, which is as wide. 1.0 of f32 as uint32 is 0x3F800000."""

    kind = "map"
    stored = True
    differentiable = False
    functions = ("bitcast", "bitcast_convert_type")

    def infer(self, t: Infer, x: TensorType, dtype: DType) -> TensorType:
        target = t.dtype(dtype)
        kinds = {x.dtype.kind, target.kind}
        if x.dtype.bits != target.bits or target.bits < 8 or not kinds <= {"int", "uint", "float"}:
            t.fail("TS301", f"bitcast from {x.dtype} to {target}: both are integers or floats of one width", operand=0)
        t.canonical(dtype=target)
        return x.with_dtype(target)

    def reference(self, x: Any, dtype: DType) -> Any:
        return np.ascontiguousarray(x).view(dtype.numpy).reshape(x.shape)

    def partition(self, cut: Cut, x: TensorType, dtype: DType) -> None:
        """Each element by itself."""


class Clip(Operator):
    """`x` limited to the range from `min` to `max`, either of which may be None; NaN stays NaN."""

    batching = "map"

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

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, min: Value | None = None, max: Value | None = None
    ) -> tuple[Value | None, ...]:
        """At a bound x counts as inside, as in PyTorch. Where the bounds cross, `max` decides."""
        kept, low, high = ct, None, None
        if max is not None:
            over = g.gt(x if min is None else g.maximum(x, min), max)
            kept, high = g.where(over, 0, kept), g.where(over, ct, 0)
        if min is not None:
            under = g.lt(x, min)
            low = g.where(under, kept, 0)
            kept = g.where(under, 0, kept)
        parts = zip((kept, low, high), (x, min, max), strict=True)
        return tuple(None if v is None or to is None else sum_to(g, v, tensor(to).shape) for v, to in parts)


class Lerp(Operator):
    """`x + weight * (y - x)`: from x at weight 0 to y at weight 1."""

    batching = "map"

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

    batching = "map"

    apart = ("mask",)

    def infer(self, t: Infer, x: TensorType, mask: TensorType, value: TensorType) -> TensorType:
        t.require(mask, "bool", operand=1)
        return TensorType(t.broadcast(x.shape, mask.shape, value.shape), t.convert(2, value, x.dtype).dtype)

    def reference(self, x: Any, mask: Any, value: Any) -> Any:
        return np.where(mask, value, x)

    def decompose(self, g: GraphBuilder, x: Value, mask: Value, value: Value) -> Value:
        return g.where(mask, value, x)


class Hypot(Operator):
    """sqrt(x * x + y * y) without overflow of the squares: the larger magnitude times sqrt(1 + ratio**2)."""

    batching = "map"

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

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, y: Value) -> tuple[Value, ...]:
        """The direction from the origin; at the origin 0."""
        none = g.eq(out, 0)
        along = g.where(none, 0, g.div(ct, g.where(none, 1, out)))
        return tuple(sum_to(g, g.mul(along, v), tensor(v).shape) for v in (x, y))
