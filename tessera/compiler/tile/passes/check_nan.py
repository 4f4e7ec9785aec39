"""Debug mode: an assert in front of every store that no element it writes is NaN."""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.dialect import TileBuilder
from tessera.compiler.tile.ranges import Ranges
from tessera.language import dtypes


def check_nan(kernel: Op) -> None:
    """Adds the asserts. What a mask or the end of the view keeps from being written may be anything."""
    bounds = Ranges(kernel)
    for op in list(kernel.walk()):
        if op.name in ("tile.store", "tile.scatter"):
            t = cast(TileType, op.operands[1].type)
            if t.dtype.is_float and t.dtype.bits >= 8:  # smaller ones have none
                _check(op, t, bounds)


def _check(op: Op, t: TileType, bounds: Ranges) -> None:
    assert op.block is not None
    b = TileBuilder(op.block, op.block.ops.index(op), op.span)
    view, name = cast(ViewType, op.operands[0].type), op.operands[0]
    while name.op is not None and name.op.name == "tile.subview":
        name = name.op.operands[0]
    holds = b.map("logical_not", b.map("isnan", op.operands[1]))
    if op.attrs.get("masked"):
        holds = b.map("logical_or", holds, b.map("logical_not", op.operands[-1]))
    if op.name == "tile.store":
        for axis, offset in enumerate(op.operands[2 : 2 + view.rank]):
            if not all(bounds.inside(offset, t.shape[axis], view.shape[axis])):
                place = b.value("tile.iota", (), TileType(t.shape, dtypes.int64), {"axis": axis})
                place = b.map("add", place, _spread(b, offset, t))
                holds = b.map("logical_or", holds, b.map("lt", place, b.full(t.shape, 0, dtypes.int64)))
                holds = b.map("logical_or", holds, b.map("ge", place, _spread(b, b.index(view.shape[axis]), t)))
    b.op("tile.assert", (holds,), (), {"message": f"Stores NaN into {name.hint or 'the array'}."})


def _spread(b: TileBuilder, index: Value, t: TileType) -> Value:
    return b.broadcast(b.value("tile.to_scalar", (index,), TileType((), dtypes.int64)), t.shape, ())
