"""Which memory one unit of a kernel's programs touches: those with one number along the first axis of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.reads import OfOneProgram, program
from tessera.immutable import immutable
from tessera.language.dims import Dim, Expr, symbol

_ALONE = frozenset({"tile.mma", "tile.contract"})
"""products read each operand many times, in an order of their own"""


@immutable
class UnitSpan:
    """Unit number u accesses elements from `first + step * u` to the one before `behind + step * u` of the memory that
    the argument begins at, perhaps not all of them. Whether it stores to them."""

    argument: int
    first: int
    behind: int
    step: int
    stored: bool


def units_of(kernel: Op) -> tuple[int, int] | None:
    """The number of units, and of the programs in each; None where they are not known."""
    grid = cast("Sequence[Dim]", kernel.attrs["grid"])
    units, programs = 1, 1
    for axis, n in enumerate(grid):
        if not isinstance(n, int):
            return None
        units, programs = (n, 1) if axis == 0 else (units, programs * n)
    return units, programs


def spans(kernel: Op) -> tuple[UnitSpan, ...] | None:
    """All accesses of a kernel to its views. None where one of them is not known, or where programs do not run in the
    order of their numbers."""
    if kernel.attrs.get("grouped") is not None or units_of(kernel) is None:
        return None
    if any(op.name in _ALONE for op in kernel.walk()):
        return None
    found: dict[UnitSpan, None] = {}
    of_one = OfOneProgram(kernel)
    for argument in kernel.region.block.args:
        if not isinstance(argument.type, ViewType):
            continue
        for user in argument.users:
            span = _span(user, argument, of_one, cast("Sequence[int]", kernel.attrs["grid"]))
            if span is None:
                return None
            found[span] = None
    return tuple(found)


def _span(op: Op, view: Value, of_one: OfOneProgram, grid: Sequence[int]) -> UnitSpan | None:
    t = cast(ViewType, view.type)
    match op.name:
        case "tile.load":
            offsets, shape = op.operands[1 : 1 + t.rank], cast(TileType, op.result.type).shape
        case "tile.store" if op.operands[0] is view:
            offsets, shape = op.operands[2 : 2 + t.rank], cast(TileType, op.operands[1].type).shape
        case _:
            return None
    first, behind, step = 0, 1, 0
    strides = t.strides if t.strides is not None else _packed(t.shape)
    for offset, size, extent, stride in zip(offsets, shape, t.shape, strides, strict=True):
        part = of_one.part(offset, size)
        low, high = (None, None) if part is None else (_linear(d, grid) for d in part)
        if low is None or high is None or low[0] != high[0] or not isinstance(extent, int):
            return None
        if not isinstance(stride, int) or low[0] < 0 or low[0] * stride < 0:
            return None
        if low[0] == 0:  # nothing is accessed outside of the view
            low, high = (0, max(low[1], 0), 0), (0, 0, min(high[2], extent))
        ends = low[1] * stride, (high[2] - 1) * stride
        first += min(ends)
        behind += max(ends)
        step += low[0] * stride
    return UnitSpan(view.index, first, behind, step, op.name == "tile.store")


def _packed(shape: Sequence[Dim]) -> list[Dim]:
    found: list[Dim] = [1]
    for n in reversed(shape[1:]):
        found.insert(0, found[0] * n)
    return found[: len(shape)]


def _linear(d: Dim, grid: Sequence[int]) -> tuple[int, int, int] | None:
    """A dim over the numbers of programs as (step, least, greatest): it is `step` times the unit's number and something
    from `least` to `greatest`."""
    if isinstance(d, int):
        return 0, d, d
    step, least, greatest = 0, 0, 0
    numbers = {_term(program(axis)): axis for axis in range(len(grid))}
    for monomial, factor in d.terms:
        axis = numbers.get(monomial)
        if monomial == ():
            least, greatest = least + factor, greatest + factor
        elif axis is None:
            return None
        elif axis == 0:
            step += factor
        else:
            ends = 0, factor * (grid[axis] - 1)
            least, greatest = least + min(ends), greatest + max(ends)
    return step, least, greatest


def _term(name: str) -> object:
    found = symbol(name)
    assert isinstance(found, Expr)
    return found.terms[0][0]
