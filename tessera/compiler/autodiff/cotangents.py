"""Cotangents: the derivative of the result by each element of a value, and the elements for which it is always 0.

A cotangent has the type of its value. `mask` says where it may differ from 0: `where(c, a, b)` lets nothing through to
`a` where `c` is false. There a rule may divide 0 by 0 or multiply it by infinity, and the gradient is 0 all the same.
A mask comes from the program, never from a cotangent that happens to be 0: derivatives of derivatives would lose terms.
Outside of its mask the value is 0 already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Operator, attributes_of, operator_of, split_operands, tensor
from tessera.compiler.graph.operators.elementwise import sum_to
from tessera.compiler.graph.operators.reductions import expanded
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType

HARMLESS = frozenset({
    "add", "sub", "neg", "cast", "saturate_cast", "straight_through", "recalled", "where", "relu", "maximum", "minimum",
    "sum", "mean",
})  # fmt: skip
"""operators whose rules give 0 for a cotangent of 0, whatever their operands are"""

LINEAR = frozenset({"view", "join", "gather", "scatter", "put", "sort"})
"""kinds of operators whose adjoints move and add the elements of cotangents, and read no others"""

ELEMENTWISE = frozenset({"dropout", "recalled", "stochastic_cast", "straight_through"})
"""elementwise operators with operands that are not, such as keys"""


@immutable
class Cotangent:
    """`mask` is a bool tensor of the value's shape; None: anywhere."""

    value: Value
    mask: Value | None = None


class Cotangents:
    """The cotangents found so far, by value. Contributions are added in the order in which they come."""

    def __init__(self, g: GraphBuilder) -> None:
        self.g = g
        self.of: dict[Value, Cotangent] = {}

    def add(self, value: Value, more: Cotangent) -> None:
        g, have = self.g, self.of.get(value)
        more = Cotangent(g.to(more.value, _kept_in(value)), more.mask)
        if have is not None:
            both = have.mask is not None and more.mask is not None
            more = Cotangent(added(g, have.value, more.value), g.logical_or(have.mask, more.mask) if both else None)
        self.of[value] = more

    def pop(self, values: Iterable[Value]) -> list[Cotangent | None]:
        return [self.of.pop(v, None) for v in values]


def added(g: GraphBuilder, have: Value, more: Value) -> Value:
    """The sum. Of a tensor that is 0 but for one slice, such as the cotangent of x from `x[i]`, only that slice is
    added in its place, so that a loop over the elements of a tensor costs no more than its elements."""
    op = more.op
    if op is None or op.name != "graph.put" or not _is_zero(op.operands[0]) or tensor(op.operands[1]).rank:
        return g.add(have, more)
    _, at, part = op.operands
    axis = cast("int", op.attrs["axis"])
    return g.put(have, at, g.add(g.take(have, at, axis=axis), part), axis=axis)


def _is_zero(v: Value) -> bool:
    op = v.op
    if op is not None and op.name == "graph.broadcast_to":
        return _is_zero(op.operands[0])
    if op is None or op.name not in ("graph.zeros", "graph.zeros_like", "graph.full", "graph.constant"):
        return False
    return op.attrs.get("value", 0) == 0


def _kept_in(value: Value) -> DType:
    """The dtype of a cotangent: its value's, but that of the value before, where the policy `compute` rounded it for a
    product."""
    t, op = tensor(value), value.op
    rounded = t.policy is not None and t.policy.compute == t.dtype and op is not None and op.name == "graph.cast"
    return tensor(op.operands[0]).dtype if rounded and op is not None else t.dtype


def by_adjoint(g: GraphBuilder, op: Op, ct: Cotangent) -> list[Cotangent | None]:
    """The cotangent of each operand by the operator's own rule, with the masks that hold for them."""
    operator = operator_of(op)
    name, operands, attrs = operator.name, split_operands(op), attributes_of(op)
    chosen = _chosen(g, op)
    if not _is_map(operator) or (ct.mask is None and chosen is None):
        found = along(op, operator.adjoint(g, op.result, ct.value, *operands, **attrs))  # type: ignore[misc]
        masks = _moved(g, op, ct.mask) if chosen is None else chosen
        return [None if v is None else _masked(g, v, m, name) for v, m in zip(found, masks, strict=True)]
    # Operands are stretched first: what a mask excludes must be left out before it is summed.
    shape = tensor(op.result).shape
    wide = [x if x is None or tensor(x).shape == shape else g.broadcast_to(x, shape) for x in operands]
    found = along(op, operator.adjoint(g, op.result, ct.value, *wide, **attrs))  # type: ignore[misc]
    masks = [ct.mask] * len(found)
    if chosen is not None:
        masks = [m if ct.mask is None else g.logical_and(m, ct.mask) for m in chosen]
    parts = [None if v is None else _masked(g, v, m, name) for v, m in zip(found, masks, strict=True)]
    return [None if c is None else _shrunk(g, c, tensor(x).shape) for c, x in zip(parts, op.operands, strict=True)]


def _is_map(operator: Operator) -> bool:
    return operator.kind == "map" or operator.batching == "map"


def along(op: Op, found: Sequence[Any]) -> list[Value | None]:
    """The values that a rule gives for each parameter, as one for each operand."""
    out: list[Value | None] = []
    for operand, v in zip(split_operands(op), found, strict=True):
        if isinstance(operand, list):
            out += v if isinstance(v, (list, tuple)) else [None] * len(cast("list[Any]", operand))
        elif operand is not None:
            out.append(v)
    return out


def _masked(g: GraphBuilder, v: Value, mask: Value | None, name: str) -> Cotangent:
    return Cotangent(v if mask is None or name in HARMLESS else g.where(mask, v, 0), mask)


def _chosen(g: GraphBuilder, op: Op) -> list[Value] | None:
    """Where an op that takes each element from one of its operands takes it from each of them; None for other ops."""
    xs, shape = op.operands, tensor(op.result).shape if len(op.results) == 1 else ()
    match op.name:
        case "graph.where":
            found = [xs[0], xs[0], g.logical_not(xs[0])]
        case "graph.relu":
            found = [g.gt(xs[0], 0)]
        case "graph.maximum":
            found = [g.ge(xs[0], xs[1]), g.ge(xs[1], xs[0])]
        case "graph.minimum":
            found = [g.le(xs[0], xs[1]), g.le(xs[1], xs[0])]
        case "graph.clip":
            _, low, high = split_operands(op)
            limited = xs[0] if low is None else g.maximum(xs[0], low)
            over = None if high is None else g.gt(limited, high)
            under = None if low is None else g.lt(xs[0], low)
            if under is not None and over is not None:
                under = g.logical_and(under, g.logical_not(over))
            outside = [m for m in (under, over) if m is not None]
            found = [g.logical_not(g.logical_or(*outside) if len(outside) == 2 else outside[0]), *outside]
        case _:
            return None
    return [m if tensor(m).shape == shape else g.broadcast_to(m, shape) for m in found]


def _shrunk(g: GraphBuilder, ct: Cotangent, shape: Shape) -> Cotangent:
    """The cotangent of an operand that was stretched."""
    if tensor(ct.value).shape == shape:
        return ct
    mask = ct.mask if ct.mask is None else g.gt(sum_to(g, g.to(ct.mask, dtypes.f32), shape), 0)
    return Cotangent(sum_to(g, ct.value, shape), mask)


def _moved(g: GraphBuilder, op: Op, mask: Value | None) -> Sequence[Value | None]:
    """The mask of each operand of an op that is not elementwise; None where that is not known."""
    operator, xs = operator_of(op), op.operands
    name, axis = operator.name, op.attrs.get("axis")
    if name in ("max", "min"):
        other = g.lt if name == "max" else g.gt
        hit = g.logical_not(other(xs[0], _expanded(g, op.result, xs[0], axis)))  # true of NaN
        return [hit if mask is None else g.logical_and(hit, _expanded(g, mask, xs[0], axis))]
    if mask is None:
        return [None] * len(xs)
    if operator.kind in LINEAR or name == "cumsum":  # its adjoint, applied to the mask as 0 and 1
        ones = g.to(mask, tensor(op.result).dtype)
        found = along(op, operator.adjoint(g, op.result, ones, *split_operands(op), **attributes_of(op)))  # type: ignore[misc]
        return [None if v is None else g.ne(v, 0) for v in found]
    if name in ELEMENTWISE:
        return [mask if tensor(x).shape == tensor(mask).shape else None for x in xs]
    if name == "sum" or operator.batching == "axis":
        if isinstance(axis, tuple):
            return [g.broadcast_to(_expanded(g, mask, xs[0], axis), tensor(xs[0]).shape)]
        shape = tensor(mask).shape
        line = g.broadcast_to(g.any(mask, axis=axis, keepdims=True), shape)
        return [line if tensor(x).shape == shape else None for x in xs]  # a recurrence has two operands
    return [None] * len(xs)


def _expanded(g: GraphBuilder, v: Value, x: Value, axis: Any) -> Value:
    return expanded(g, v, x, cast("tuple[int, ...]", axis))
