"""Bounds of computed indices: an index out of range reads 0 and stores nothing.

Targets compare offsets with the ends of a view. An axis that a window has taken out is not among them any more, so its
index is kept inside by arithmetic, and where it had to be moved, all accesses of the window are moved behind the end of
another axis. `Intervals` proves most indices, which need no check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.ranges import Intervals
from tessera.language import dtypes

_PLACES = {"tile.load": (0, 1), "tile.copy_async": (1, 2), "tile.store": (0, 2)}
"""which operand is the view, and where its offsets start"""


def needs_keeping(kernel: Op) -> bool:
    """Whether some window may be outside its view."""
    ranges = Intervals(kernel)
    return any(_unknown(op, ranges) for op in kernel.walk() if op.name == "tile.subview")


def keep_inside(kernel: Op) -> None:
    """Changes the kernel so that no window leaves its array."""
    ranges = Intervals(kernel)
    outside: dict[Value, Value] = {}
    for op in list(kernel.walk()):
        if op.name == "tile.subview":
            b, source = _before(op), outside.get(op.operands[0])
            found = [_moved_in(b, op, axis) for axis in _unknown(op, ranges)] + ([source] if source is not None else [])
            if found:
                outside[op.result] = _any(b, found)
        elif op.name in _PLACES and (away := outside.get(op.operands[_PLACES[op.name][0]])) is not None:
            _move_out(op, away)


def _unknown(op: Op, ranges: Intervals) -> list[int]:
    """The axes taken out whose index is not proved to be inside. Windows that the compiler makes for itself have none,
    unless an attribute says so: they are at coordinates that it computes itself."""
    if not (op.attrs.get("computed") or op.attrs.get("clipped")):
        return []
    extents = cast(ViewType, op.operands[0].type).shape
    drop = cast("tuple[int, ...]", op.attrs.get("drop", ()))
    return [a for a in drop if not all(ranges.inside(op.operands[1 + a], 1, extents[a]))]


def _moved_in(b: TileBuilder, op: Op, axis: int) -> Value:
    """Puts the index between 0 and the last one. Gives how far outside it was; 0: not at all."""
    at, extent = op.operands[1 + axis], cast(ViewType, op.operands[0].type).shape[axis]
    zero, last = b.index(0), b.index(extent - 1)
    op.set_operand(1 + axis, b.iop("imax", b.iop("imin", at, last), zero))
    return b.iop("imax", b.iop("imax", b.iop("isub", zero, at), b.iop("isub", at, last)), zero)


def _any(b: TileBuilder, far: Iterable[Value]) -> Value:
    """1 where one of them is above 0, else 0."""
    first, *rest = far
    for other in rest:
        first = b.iop("imax", first, other)
    return b.iop("imin", first, b.index(1))


def _move_out(op: Op, away: Value) -> None:
    """Moves an access behind its view where `away` is 1."""
    at, first = _PLACES[op.name]
    view, b = cast(ViewType, op.operands[at].type), _before(op)
    if not view.rank:
        _mask(b, op, away)
        return
    offset, zero = op.operands[first], b.index(0)
    # offset + extent where the offset is not negative; -extent below 0 is as far inside, so it is added once more
    distance = b.iop("iadd", b.index(view.shape[0]), b.iop("imax", b.iop("isub", zero, offset), zero))
    op.set_operand(first, b.iop("iadd", offset, b.iop("imul", away, distance)))


def _mask(b: TileBuilder, op: Op, away: Value) -> None:
    """An access of one element has no offset to move."""
    far = b.value("tile.to_scalar", (away,), TileType((), dtypes.int64))
    inside = b.map("eq", far, b.constant(0, dtypes.int64))
    if op.attrs.get("masked"):
        op.set_operand(len(op.operands) - 1, b.map("logical_and", op.operands[-1], inside))
    else:
        op.set_operands([*op.operands, inside])
        op.attrs["masked"] = True


def _before(op: Op) -> TileBuilder:
    assert op.block is not None
    return TileBuilder(op.block, op.block.ops.index(op), op.span)
