"""Which part of each operand a program of a kernel reads, as intervals in the program's numbers.

From the ranges of the kernel's indices (`ranges.py`) with the program's numbers left as symbols. A load in a loop
counts for all of its steps, and several loads of one operand for what encloses them, so that a program reads nothing
outside of what is said here. Where an index is computed from data, the whole axis is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.dialect import matrix_axes
from tessera.compiler.tile.ranges import Interval, Intervals
from tessera.immutable import immutable, mutable
from tessera.language.dims import Dim, dim_max, dim_min, mod, symbol

Part = tuple[Dim, Dim]
"""the first index along an axis, and the one behind the last"""


def program(axis: int) -> str:
    """The symbol of a program's number along an axis of the grid; no name of a program begins like it."""
    return f"__program_{axis}"


@immutable
class ViewRead:
    """What a program reads of one of the kernel's views: for each axis a part, None where it is not known. Parts may
    reach beyond the view, of which nothing is read there."""

    argument: int
    parts: tuple[Part | None, ...]


def reads(kernel: Op) -> tuple[ViewRead, ...]:
    """Of each view that is read, in the order of the kernel's arguments."""
    known = OfOneProgram(kernel)
    found: list[ViewRead] = []
    for argument in kernel.region.block.args:
        if isinstance(argument.type, ViewType):
            parts = [p for user, view in _users(argument) if (p := known.parts(user, view)) is not None]
            if parts:
                found.append(ViewRead(argument.index, tuple(_enclosing(axis) for axis in zip(*parts, strict=True))))
    return tuple(found)


def _users(view: Value) -> list[tuple[Op, Value]]:
    """The ops that access a view or a window of it, with what they access."""
    out: list[tuple[Op, Value]] = []
    for user in view.users:
        out += _users(user.result) if user.name == "tile.subview" else [(user, view)]
    return out


def _enclosing(parts: Sequence[Part | None]) -> Part | None:
    first, *others = parts
    for part in others:
        if first is None or part is None:
            return None
        if part != first:
            first = dim_min(first[0], part[0]), dim_max(first[1], part[1])
    return first


@mutable
class OfOneProgram(Intervals):
    """Ranges of indices in one program: its numbers are what they are."""

    def _find(self, v: Value) -> Interval:
        op = v.op
        if op is not None and op.name == "tile.program_id":
            number = symbol(program(cast(int, op.attrs["axis"])))
            return Interval(number, number)
        if op is not None and op.name == "tile.imod":  # a remainder of one number is one number
            a, b = (self.of(x) for x in op.operands)
            if a.low is not None and a.low == a.high and b.low == b.high and self.positive(b.low):
                rest = mod(a.low, cast(Dim, b.low))
                return Interval(rest, rest)
        return Intervals._find(self, v)  # not super(): the class is made anew, with slots

    def parts(self, op: Op, view: Value) -> list[Part | None] | None:
        """What an op reads of the view's base; None where it only writes."""
        t = cast(ViewType, view.type)
        match op.name:
            case "tile.store" | "tile.scatter":
                return None
            case "tile.load":
                shape = cast(TileType, op.result.type).shape
                inner = [self.part(o, n) for o, n in zip(op.operands[1 : 1 + t.rank], shape, strict=True)]
            case "tile.copy_async":
                shape = cast(Any, op.operands[0].type).shape
                inner = [self.part(o, n) for o, n in zip(op.operands[2 : 2 + t.rank], shape, strict=True)]
            case "tile.contract":
                inner = self._of_matrix(op, [i for i in (0, 1) if op.operands[i] is view])
            case _:  # a gather: its indices are data
                inner: list[Part | None] = [None] * t.rank
        return self._in_base(view, inner)

    def part(self, offset: Value, size: Dim) -> Part | None:
        found = self.of(offset)
        return None if found.low is None or found.high is None else (found.low, found.high + size)

    def _of_matrix(self, op: Op, places: list[int]) -> list[Part | None]:
        """Whole rows of the left matrix, whole columns of the right one."""
        t = cast(ViewType, op.operands[places[0]].type)
        if len(places) > 1:
            return [None] * t.rank
        (place,) = places
        axes, size = matrix_axes(op, place)[place], cast(TileType, op.result.type).shape[place]
        whole: list[Part | None] = [(0, n) for n in t.shape]
        for a in axes:  # of several axes that count as one, it is not known
            whole[a] = self.part(op.operands[2 + place], size) if len(axes) == 1 else None
        return whole

    def _in_base(self, view: Value, parts: list[Part | None]) -> list[Part | None]:
        """Parts of a window as parts of what it is a window of."""
        while view.op is not None and view.op.name == "tile.subview":
            drop = cast("tuple[int, ...]", view.op.attrs.get("drop", ()))
            kept, outer = iter(parts), list[Part | None]()
            for a, offset in enumerate(view.op.operands[1:]):
                found, inner = self.of(offset), (0, 1) if a in drop else next(kept)
                known = found.low is not None and found.high is not None and inner is not None
                outer.append((found.low + inner[0], found.high + inner[1]) if known else None)  # type: ignore[operator,index]
            parts, view = outer, view.op.operands[0]
        return parts
