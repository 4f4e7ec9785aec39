"""Debug mode: an assert before every access at computed indices, which reports the first index out of range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.asserts import VALUE_BITS, dtype_of, element_text, shown_as, tested_tile
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.interpret.memory import outside_text, user_axis
from tessera.compiler.tile.ranges import Intervals
from tessera.language import dtypes
from tessera.language.dims import Dim, prod


def check_indices(kernel: Op) -> None:
    """Adds the asserts. Offsets that are proved to stay inside get none."""
    bounds = Intervals(kernel)
    for op in list(kernel.walk()):
        if op.name in ("tile.gather", "tile.scatter"):
            if not op.attrs.get("anywhere"):
                _elements(op)
        elif op.name in ("tile.load", "tile.store") and op.attrs.get("inside"):
            _window(op, bounds)
        elif op.name == "tile.subview" and not op.attrs.get("clipped"):
            _subview(op, bounds)
        elif op.name in ("tile.idiv", "tile.imod"):
            _divisor(op, bounds)
        elif op.name == "tile.for":
            _step(op, bounds)


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


def _window(op: Op, bounds: Intervals) -> None:
    """The part of the window that is not masked out has to be inside the view; without a mask, all of it."""
    b, view = _before(op), cast(ViewType, op.operands[0].type)
    tile = cast(TileType, op.result.type if op.results else op.operands[1].type)
    offsets, mask = _parts(op, 1 if op.results else 2)
    for axis, offset in enumerate(offsets):
        if not all(bounds.inside(offset, tile.shape[axis], view.shape[axis])):
            t = TileType(tile.shape, dtypes.int64)
            place = b.value("tile.iota", (), t, {"axis": axis})
            start = b.broadcast(_int64(b, offset), tile.shape, ())
            _check(b, op, axis, b.map("add", place, start), mask)


def _subview(op: Op, bounds: Intervals) -> None:
    """An axis that is taken out has one index."""
    b, view = _before(op), cast(ViewType, op.operands[0].type)
    for axis in cast("tuple[int, ...]", op.attrs.get("drop", ())):
        if not all(bounds.inside(op.operands[1 + axis], 1, view.shape[axis])):
            _check(b, op, axis, _int64(b, op.operands[1 + axis]), None)


def _divisor(op: Op, bounds: Intervals) -> None:
    """Without the check, a quotient and a remainder by 0 are 0."""
    b, by = _before(op), op.operands[1]
    if not bounds.positive(bounds.of(by).low):
        holds = b.map("ne", _int64(b, by), b.constant(0, dtypes.int64))
        b.op("tile.assert", (holds, _int64(b, by)), (), {"message": "An index is divided by 0."})


def _step(op: Op, bounds: Intervals) -> None:
    """Without the check, a step that is not positive is 1, so that the loop ends."""
    b, step = _before(op), op.operands[2]
    if not bounds.positive(bounds.of(step).low):
        holds = b.map("gt", _int64(b, step), b.constant(0, dtypes.int64))
        message = "The loop's step is {index}; it must be positive."
        b.op("tile.assert", (holds, _int64(b, step)), (), {"message": message})


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


# Debug mode: an assert in front of every store that no element it writes is NaN.


def check_nan(kernel: Op) -> None:
    """Adds the asserts. What a mask or the end of the view keeps from being written may be anything."""
    bounds = Intervals(kernel)
    for op in list(kernel.walk()):
        if op.name in ("tile.store", "tile.scatter"):
            t = cast(TileType, op.operands[1].type)
            if t.dtype.is_float and t.dtype.bits >= 8:  # smaller ones have none
                _check_stored(op, t, bounds)


def _check_stored(op: Op, t: TileType, bounds: Intervals) -> None:
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


# Debug mode: asserts of the author report which element does not hold, and its value.

PLACES = 2**31 - 1
"""Numbers that there are for programs and elements together; later programs share the last one."""


def show_elements(kernel: Op) -> None:
    """Gives every assert that reports nothing a tile of what to report."""
    for op in list(kernel.walk()):
        if op.name == "tile.assert" and len(op.operands) == 1:
            assert op.block is not None
            b = TileBuilder(op.block, op.block.ops.index(op), op.span)
            holds = op.operands[0]
            value = tested_tile(holds)
            message = f"{op.attrs.get('message') or 'An assertion over a tile does not hold.'}"
            text = f"{message}\n{element_text(kernel, holds, value)}"
            b.op("tile.assert", (holds, _report(b, kernel, holds, value)), (), {"message": text})
            op.erase()


def _report(b: TileBuilder, kernel: Op, holds: Value, value: Value | None) -> Value:
    """Per element: the program's number, its own, and the bits of the value."""
    assert isinstance(holds.type, TileType)
    shape = holds.type.shape
    t = TileType(shape, dtypes.int64)

    def spread(d: Dim) -> Value:
        return b.broadcast(b.value("tile.to_scalar", (b.index(d),), TileType((), dtypes.int64)), shape, ())

    number = b.index(0)
    grid: tuple[Dim, ...] = kernel.attrs["grid"]  # type: ignore[assignment]
    for axis, extent in enumerate(grid):
        number = b.iop("iadd", b.iop("imul", number, b.index(extent)), b.program_id(axis))
    count = prod(shape)
    most = b.iop("idiv", b.index(PLACES), b.iop("imax", b.index(count), b.index(1)))
    number = b.iop("imin", number, b.iop("isub", most, b.index(1)))
    place = b.broadcast(b.value("tile.to_scalar", (number,), TileType((), dtypes.int64)), shape, ())
    place = b.map("mul", place, spread(count))
    for axis in range(len(shape)):
        along = b.value("tile.iota", (), t, {"axis": axis})
        place = b.map("add", place, b.map("mul", along, spread(prod(shape[axis + 1 :]))))
    place = b.map("mul", place, b.full(shape, 1 << VALUE_BITS, dtypes.int64))
    if value is None:
        return place
    bits = b.cast(value, shown_as(dtype_of(value)))
    bits = b.value("tile.bitcast", (bits,), TileType(shape, dtypes.uint32))
    return b.map("add", place, b.cast(bits, dtypes.int64))
