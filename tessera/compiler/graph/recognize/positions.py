"""Masks in the text of a function: what they compare, and whether they say that a query sees no later key."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, cast

from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.recognize.text import WrittenText
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape
from tessera.immutable import immutable

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "le": operator.le, "lt": operator.lt, "ge": operator.ge, "gt": operator.gt, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
TURNED = {"le": "ge", "lt": "gt", "ge": "le", "gt": "lt", "eq": "eq", "ne": "ne"}
"""the comparison with its operands the other way round"""
OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le", "eq": "ne", "ne": "eq"}


@immutable
class MaskTerm:
    """`value`, or its opposite."""

    value: Value
    holds: bool = True


@immutable
class AxisIndex:
    """`offset` more than the index along `axis`, which is counted from the end."""

    axis: int
    offset: int


def conditions(text: WrittenText, mask: MaskTerm) -> Iterator[MaskTerm]:
    """The conditions that hold together where `mask` holds."""
    mask = _plain(text, mask)
    op = text.peek(mask.value)
    both = ("graph.logical_and", "graph.bit_and") if mask.holds else ("graph.logical_or", "graph.bit_or")
    if op is not None and op.name in both:
        for v in op.operands:
            yield from conditions(text, MaskTerm(v, mask.holds))
    else:
        yield mask


def _plain(text: WrittenText, mask: MaskTerm) -> MaskTerm:
    """Without negations, and without detours through numbers such as `tril(ones((S, S))) == 0`."""
    while True:
        op = text.peek(mask.value)
        name = "" if op is None else op.name.removeprefix("graph.")
        if op is not None and name in ("logical_not", "bit_not"):
            mask = MaskTerm(op.operands[0], not mask.holds)
            continue
        if op is not None and name in COMPARE and (number := text.number(op.operands[1])) is not None:
            found = _chosen(text, op.operands[0])
            if found is None:
                return mask
            by, chosen = found
            truth = tuple(COMPARE[name](x, number) for x in chosen)
        elif op is not None and name in ("where", "cast") and (found := _chosen(text, mask.value)) is not None:
            by, truth = found[0], tuple(map(bool, found[1]))
        else:
            return mask
        if truth[0] == truth[1]:
            return mask
        mask = MaskTerm(by, mask.holds == truth[0])


def _chosen(text: WrittenText, v: Value) -> tuple[Value, tuple[float, float]] | None:
    """The condition that chooses one of two numbers for each element of `v`, and these."""
    op = text.peek(v)
    if op is None:
        return None
    if op.name == "graph.cast":
        inner = op.operands[0]
        return (inner, (1, 0)) if tensor(inner).dtype.kind == "bool" else _chosen(text, inner)
    if op.name != "graph.where":
        return None
    one, other = (text.number(x) for x in op.operands[1:])
    return None if one is None or other is None else (op.operands[0], (one, other))


def is_causal(text: WrittenText, mask: MaskTerm, query: int, key: int) -> bool:
    """Whether `mask` says: the index along `key` is at most that along `query`. Axes are counted from the end."""
    op = text.peek(mask.value)
    if op is None or op.name.removeprefix("graph.") not in COMPARE:
        return False
    name = op.name.removeprefix("graph.")
    left, right = (position(text, v) for v in op.operands)
    if left is None or right is None:
        return False
    name = name if mask.holds else OPPOSITE[name]
    if (left.axis, right.axis) == (query, key):
        left, right, name = right, left, TURNED[name]
    most = right.offset - left.offset - (name == "lt")
    return (left.axis, right.axis) == (key, query) and name in ("le", "lt") and most == 0


def position(text: WrittenText, v: Value) -> AxisIndex | None:
    """What `v` is an index along."""
    op = text.peek(v)
    if op is None:
        return None
    match op.name.removeprefix("graph."):
        case "iota":
            return AxisIndex(cast("int", op.attrs["axis"]) - tensor(v).rank, 0)
        case "cast" if tensor(v).dtype.is_integer:
            return position(text, op.operands[0]) if tensor(v).dtype.bits >= 32 else None
        case "broadcast_to":
            return position(text, op.operands[0])
        case "reshape":
            found = position(text, op.operands[0])
            axis = None if found is None else _moved(tensor(op.operands[0]).shape, tensor(v).shape, found.axis)
            return None if found is None or axis is None else AxisIndex(axis, found.offset)
        case "add" | "sub" as name:
            found, number = position(text, op.operands[0]), text.number(op.operands[1])
            if found is None or not isinstance(number, int):
                return None
            return AxisIndex(found.axis, found.offset + (number if name == "add" else -number))
        case _:
            return None


def _moved(before: Shape, after: Shape, axis: int) -> int | None:
    """Where an axis is, counted from the end, if a reshape only adds or takes away axes of one element."""
    size = before[axis]
    if [d for d in before if d != 1] != [d for d in after if d != 1] or size == 1:
        return None
    rank = sum(1 for d in before[axis:] if d != 1)  # of the longer axes, it is this one from the end
    places = [i - len(after) for i, d in enumerate(after) if d != 1]
    return places[-rank]
