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
from tessera.compiler.graph.operator import attributes_of, operator_of, split_operands, tensor
from tessera.compiler.graph.operators.elementwise import sum_to
from tessera.compiler.graph.operators.reductions import expanded
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType

HARMLESS = frozenset({"add", "sub", "neg", "cast", "where", "relu", "maximum", "minimum", "sum", "mean"})
"""operators whose rules give 0 for a cotangent of 0, whatever their operands are"""

REDUCTIONS = frozenset({"sum", "mean", "max", "min", "logsumexp"})


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
    name, operands = operator.name, split_operands(op)
    chosen = _chosen(g, op)
    if operator.kind != "map" or (ct.mask is None and chosen is None):
        found = along(op, operator.adjoint(g, op.result, ct.value, *operands, **attributes_of(op)))  # type: ignore[misc]
        masks = [None] * len(found) if ct.mask is None else _moved(g, op, ct.mask)
        return [None if v is None else _masked(g, v, m, name) for v, m in zip(found, masks, strict=True)]
    # Operands are stretched first: what a mask excludes must be left out before it is summed.
    shape = tensor(op.result).shape
    wide = [x if tensor(x).shape == shape else g.broadcast_to(x, shape) for x in op.operands]
    found = along(op, operator.adjoint(g, op.result, ct.value, *wide, **attributes_of(op)))  # type: ignore[misc]
    masks = [ct.mask] * len(found)
    if chosen is not None:
        masks = [m if ct.mask is None else g.logical_and(m, ct.mask) for m in chosen]
    parts = [None if v is None else _masked(g, v, m, name) for v, m in zip(found, masks, strict=True)]
    return [None if c is None else _shrunk(g, c, tensor(x).shape) for c, x in zip(parts, op.operands, strict=True)]


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
        case _:
            return None
    return [m if tensor(m).shape == shape else g.broadcast_to(m, shape) for m in found]


def _shrunk(g: GraphBuilder, ct: Cotangent, shape: Shape) -> Cotangent:
    """The cotangent of an operand that was stretched."""
    if tensor(ct.value).shape == shape:
        return ct
    mask = ct.mask if ct.mask is None else g.gt(sum_to(g, g.to(ct.mask, dtypes.f32), shape), 0)
    return Cotangent(sum_to(g, ct.value, shape), mask)


def _moved(g: GraphBuilder, op: Op, mask: Value) -> list[Value | None]:
    """The mask of each operand of an op that moves or sums elements; None where that is not known."""
    operator = operator_of(op)
    axis = op.attrs.get("axis")
    if operator.kind in ("view", "join"):  # its adjoint, applied to the mask as 0 and 1
        ones = g.to(mask, tensor(op.result).dtype)
        found = along(op, operator.adjoint(g, op.result, ones, *split_operands(op), **attributes_of(op)))  # type: ignore[misc]
        return [None if v is None else g.ne(v, 0) for v in found]
    if (
        isinstance(axis, tuple)
        and len(op.operands) == 1
        and operator.name in ("sum", "mean", "max", "min", "logsumexp")
    ):
        x = op.operands[0]
        return [g.broadcast_to(expanded(g, mask, x, cast("tuple[int, ...]", axis)), tensor(x).shape)]
    return [None] * len(op.operands)
