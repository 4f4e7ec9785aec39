"""Views without copies: a graph value as a strided window onto the value that owns the memory."""

from __future__ import annotations

from typing import Any

from tessera.compiler.graph.builder import number_of
from tessera.compiler.graph.operator import BY_OP, Kind, attributes_of, operator_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.immutable import immutable
from tessera.language.dims import Dim


@immutable
class ViewLayout:
    """`base` seen with `shape`, `strides` and `offset` (elements). An axis that repeats its element has stride 0."""

    base: Value
    shape: Shape
    strides: Shape
    offset: Dim

    @property
    def dense(self) -> bool:
        """Whether its elements are contiguous in C order."""
        return all(s == c or d == 1 for s, c, d in zip(self.strides, contiguous(self.shape), self.shape, strict=True))

    @property
    def whole(self) -> bool:
        """Whether it is the complete base in C order, perhaps under another shape."""
        return self.offset == 0 and self.dense and _size(self.shape) == _size(_shape(self.base))


def _shape(v: Value) -> Shape:
    assert isinstance(v.type, TensorType)
    return v.type.shape


def _size(shape: Shape) -> Dim:
    n: Dim = 1
    for d in shape:
        n = n * d
    return n


def contiguous(shape: Shape) -> Shape:
    """C-order strides in elements. An axis of size 1 gets the stride it would need if it were longer."""
    out: list[Dim] = []
    step: Dim = 1
    for d in reversed(shape):
        out.append(step)
        step = step * d
    return tuple(reversed(out))


def kind_of(op: Op | None) -> Kind | None:
    """The structural kind of a graph op; None for no op and for those that are not an operator (graph.return ...)."""
    if op is None:
        return None
    operator = BY_OP.get(op.name)
    return operator.kind if operator else "generate" if op.name == "graph.constant" else None


def is_view(op: Op | None) -> bool:
    return op is not None and (operator := BY_OP.get(op.name)) is not None and operator.kind == "view"


def layout_of(v: Value) -> ViewLayout | None:
    """The window that `v` is, through all views that lead to it; None where one of them needs its operand copied."""
    op = v.op
    if op is None or not is_view(op):
        shape = _shape(v)
        return ViewLayout(v, shape, contiguous(shape), 0)
    inner = layout_of(op.operands[0])
    if inner is None:
        return None
    operator: Any = operator_of(op)
    found = operator.strided(inner.shape, inner.strides, inner.offset, **attributes_of(op))
    if found is None:
        return None
    shape, strides, offset = found
    return ViewLayout(inner.base, tuple(shape), tuple(strides), offset)


def views_to(v: Value) -> list[Op]:
    """The view ops between the memory and `v`, innermost first."""
    out: list[Op] = []
    while (op := v.op) is not None and is_view(op):
        out.append(op)
        v = op.operands[0]
    return out[::-1]


def number_everywhere(v: Value) -> bool | int | float | complex | None:
    """The number that each element of `v` is, in its dtype, where that is known when compiling."""
    views = views_to(v)
    source = (views[0].operands[0] if views else v).op
    if source is None or source.name not in ("graph.full", "graph.constant"):
        return None
    number: Any = source.attrs["value"]
    assert isinstance(source.result.type, TensorType)
    return number_of(number, source.result.type.dtype) if isinstance(number, (bool, int, float, complex)) else None
