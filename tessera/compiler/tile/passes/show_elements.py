"""Debug mode: asserts of the author report which element does not hold, and its value."""

from __future__ import annotations

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.asserts import VALUE_BITS, asked, dtype_of, element_text, shown_as
from tessera.compiler.tile.dialect import TileBuilder
from tessera.language import dtypes
from tessera.language.dims import Dim, prod

PLACES = 2**31 - 1
"""Numbers that there are for programs and elements together; later programs share the last one."""


def show_elements(kernel: Op) -> None:
    """Gives every assert that reports nothing a tile of what to report."""
    for op in list(kernel.walk()):
        if op.name == "tile.assert" and len(op.operands) == 1:
            assert op.block is not None
            b = TileBuilder(op.block, op.block.ops.index(op), op.span)
            holds = op.operands[0]
            value = asked(holds)
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
