"""Debug mode: an assert in front of every access at computed indices, which says the first index outside its axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.dialect import TileBuilder
from tessera.compiler.tile.memory import outside_text, user_axis
from tessera.compiler.tile.ranges import Ranges
from tessera.language import dtypes


def check_indices(kernel: Op) -> None:
    """Adds the asserts. Offsets that are proved to stay inside get none."""
    bounds = Ranges(kernel)
    for op in list(kernel.walk()):
        if op.name in ("tile.gather", "tile.scatter"):
            _elements(op)
        elif op.name in ("tile.load", "tile.store") and op.attrs.get("inside"):
            _window(op, bounds)
        elif op.name == "tile.subview":
            _subview(op, bounds)


def _before(op: Op) -> TileBuilder:
    assert op.block is not None
    return TileBuilder(op.block, op.block.ops.index(op), op.span)


def _parts(op: Op, first: int) -> tuple[Sequence[Value], Value | None]:
    """The indices or offsets of an access, which start at operand `first`, and its mask."""
    rest = op.operands[first:]
    return (rest[:-1], rest[-1]) if op.attrs.get("masked") else (rest, None)


def _elements(op: Op) -> None:
    b = _before(op)
    indices, mask = _parts(op, 1 if op.name == "tile.gather" else 2)
    sliced = cast("tuple[int, ...]", op.attrs.get("sliced", ()))
    for axis, index in enumerate(indices):
        if axis == op.attrs.get("middle", axis) and axis not in sliced:
            _check(b, op, axis, b.cast(index, dtypes.int64), mask)


def _window(op: Op, bounds: Ranges) -> None:
    """What the mask leaves of the window has to lie inside; without a mask, all of it."""
    b, view = _before(op), cast(ViewType, op.operands[0].type)
    tile = cast(TileType, op.result.type if op.results else op.operands[1].type)
    offsets, mask = _parts(op, 1 if op.results else 2)
    for axis, offset in enumerate(offsets):
        if not all(bounds.inside(offset, tile.shape[axis], view.shape[axis])):
            t = TileType(tile.shape, dtypes.int64)
            place = b.value("tile.iota", (), t, {"axis": axis})
            start = b.broadcast(_int64(b, offset), tile.shape, ())
            _check(b, op, axis, b.map("add", place, start), mask)


def _subview(op: Op, bounds: Ranges) -> None:
    """An axis that is taken out stands at one index."""
    b, view = _before(op), cast(ViewType, op.operands[0].type)
    for axis in cast("tuple[int, ...]", op.attrs.get("drop", ())):
        if not all(bounds.inside(op.operands[1 + axis], 1, view.shape[axis])):
            _check(b, op, axis, _int64(b, op.operands[1 + axis]), None)


def _check(b: TileBuilder, op: Op, axis: int, index: Value, mask: Value | None) -> None:
    view = cast(ViewType, op.operands[0].type)
    extent = view.shape[axis]
    shape = cast(TileType, index.type).shape
    size = b.broadcast(_int64(b, b.index(extent)), shape, ())
    zero = b.full(shape, 0, dtypes.int64)
    negative = b.map("lt", index, zero)
    holds = b.map("logical_and", b.map("logical_not", negative), b.map("lt", index, size))
    if mask is not None:
        holds = b.map("logical_or", holds, b.map("logical_not", mask))
    if "along" in op.attrs:  # negative indices have been counted from the end: shown as they were
        index = b.map("where", negative, b.map("sub", index, size), index)
    message = outside_text("{index}", user_axis(op, axis), _name(op.operands[0]), "{extent}")
    b.op("tile.assert", (holds, index), (), {"message": message, "extent": extent})


def _int64(b: TileBuilder, index: Value) -> Value:
    return b.value("tile.to_scalar", (index,), TileType((), dtypes.int64))


def _name(view: Value) -> str:
    while view.op is not None and view.op.name == "tile.subview":
        view = view.op.operands[0]
    return view.hint or "the array"
