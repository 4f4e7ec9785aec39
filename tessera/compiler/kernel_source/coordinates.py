"""Elements that are numbered: the coordinate of a program's block, and how far each element is from its start."""

from __future__ import annotations

import math
from collections.abc import Callable

from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.kernel_source.axes import Axes, Line, NoKernel
from tessera.compiler.kernel_source.layout import KernelPlan
from tessera.compiler.kernel_source.passes import MOVES
from tessera.immutable import immutable
from tessera.language.dtypes import DType, int64


def numbered(axes: Axes, made: KernelPlan, op: Op, tile: str, dtype: Callable[[DType], str]) -> str:
    """`(tile_s + ts.tile.arange(32))[:, None]`. Raises NoKernel where its place among other axes is not clear."""
    line, wanted = counted(axes, op), tensor(op.result).dtype
    if line is None:
        raise NoKernel("it numbers an axis of size 1")
    if made.linear:
        text = made.linear
    elif not made.tile((line,)):
        text = made.start(line)
    else:
        start, width = made.start(line), made.widths.get(line) or made.names[line]
        text = f"{start} + {tile}.arange({width})" if start else f"{tile}.arange({width})"
        among = _among(axes, made, op, line)
        if len(among) > 1:
            items = ", ".join(":" if a is line else "None" for a in among)
            text = f"({text})[{items}]"
    return text if wanted is int64 else f"{tile}.cast({text}, {dtype(wanted)})"


def counted(axes: Axes, op: Op) -> Line | None:
    """The line whose elements an op numbers."""
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    return axes.of_value(op.result)[axis]


def _among(axes: Axes, made: KernelPlan, op: Op, line: Line) -> list[Line]:
    """The axes of the tiles that it meets. Raises NoKernel where it meets several."""
    found: list[list[Line]] = []
    stack = [op]
    while stack:
        for user in stack.pop().result.users:
            place = made.tile(axes.of_value(user.result)) if user.results else [line]
            if user.results and place == [line]:
                stack.append(user)
            alone = place == [line] and (not user.results or any((user, i) in axes.reads for i in (0, 1, 2)))
            if line in place and place not in found and (alone or len(place) > 1):
                found.append(place)
    if len(found) > 1:
        raise NoKernel("it numbers elements of tiles that have different axes")
    return found[0] if found else [line]


@immutable
class Causal:
    """`where(row >= column, x, rest)`. `lowest`: whether the rest is -inf."""

    condition: Value
    lines: tuple[Line, Line]
    lowest: bool


def causal(axes: Axes, made: KernelPlan, op: Op) -> Causal | None:
    """The mask that an op is, if it is one that `ts.tile.causal_mask` makes."""
    if op.name != "graph.where" or made.linear:
        return None
    condition = op.operands[0].op
    while condition is not None and condition.name in MOVES:
        condition = condition.operands[0].op
    if condition is None or condition.name not in ("graph.ge", "graph.le") or len(condition.result.users) > 1:
        return None
    sides = [_counting(v) for v in condition.operands]
    row, column = sides if condition.name == "graph.ge" else reversed(sides)
    rest = op.operands[2].op
    while rest is not None and (rest.name in MOVES or rest.name == "graph.cast"):
        rest = rest.operands[0].op
    if row is None or column is None or rest is None or rest.name not in ("graph.constant", "graph.full"):
        return None
    first, second = counted(axes, row), counted(axes, column)
    if first is None or second is None or made.tile(axes.of(op, 1)) != [first, second]:
        return None
    return Causal(op.operands[0], (first, second), rest.attrs["value"] == -math.inf)


def _counting(v: Value) -> Op | None:
    op = v.op
    while op is not None and op.name in MOVES:
        op = op.operands[0].op
    return op if op is not None and op.name == "graph.iota" else None
