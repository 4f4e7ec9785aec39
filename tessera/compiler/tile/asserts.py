"""The message of a failed assert over a tile: the first element that fails, its program, and its value.

A target reports one integer, the least of all elements that fail (see `tile.assert`). For asserts of the author it
holds three things: the program's number and the element's number, which give the order, and the bits of its value.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

COMPARISONS = frozenset({"tile.lt", "tile.le", "tile.gt", "tile.ge", "tile.eq", "tile.ne"})
_GUARDS = {"tile.where": 1, "tile.logical_or": 0}
VALUE_BITS = 32
_ELEMENT = re.compile(r"\{element (\w*); (.*); (.*)\}")


def tested_tile(holds: Value) -> Value | None:
    """The tile whose values a condition is about: the side of a comparison that is not a number."""
    op = holds.op
    while op is not None and op.name in _GUARDS:  # where the author's mask or the tensor's end leaves anything to ask
        op = op.operands[_GUARDS[op.name]].op
    if op is None or op.name not in COMPARISONS or op.result.type != holds.type:
        return None
    known = [v for v in op.operands if not _is_number(v) and not dtype_of(v).is_complex]
    return known[0] if known else None


def _is_number(v: Value) -> bool:
    op = v.op
    while op is not None and op.name in ("tile.broadcast", "tile.cast"):
        op = op.operands[0].op
    return op is not None and op.name == "tile.constant"


def dtype_of(v: Value) -> DType:
    assert isinstance(v.type, TileType)
    return v.type.dtype


def shown_as(dtype: DType) -> DType:
    """How a value is reported in 32 bits."""
    return dtypes.f32 if dtype.is_float else dtypes.uint32 if dtype.kind == "uint" else dtypes.int32


def element_text(kernel: Op, holds: Value, value: Value | None) -> str:
    """The element's placeholder in a message, which `filled` fills in."""
    assert isinstance(holds.type, TileType)
    grid: tuple[Dim, ...] = kernel.attrs["grid"]  # type: ignore[assignment]
    kind = shown_as(dtype_of(value)).name if value is not None else ""
    return f"{{element {kind}; {', '.join(map(str, holds.type.shape))}; {', '.join(map(str, grid))}}}"


def filled(message: str, index: int, extent: Dim, sizes: Mapping[str, int]) -> str:
    """The message with what a target reported of the element put in."""
    message = message.replace("{index}", str(index)).replace("{extent}", str(dims.evaluate(extent, sizes)))
    if not (m := _ELEMENT.search(message)):
        return message
    shape, grid = ([dims.evaluate(dims.parse(d), sizes) for d in part.split(", ") if d] for part in m.groups()[1:])
    place, bits = divmod(index, 1 << VALUE_BITS)
    program, element = divmod(place, math.prod(shape))
    value = _value(bits, m[1]) if m[1] else None
    return message.replace(m[0], element_fault(_where(element, shape), _where(program, grid), value))


def shown(value: Any, dtype: DType) -> str:
    """A value as targets report it."""
    return f"{float(value):.7g}" if dtype.is_float else str(int(value))


def _value(bits: int, dtype: str) -> str:
    letter = {"f32": "f", "int32": "i", "uint32": "I"}[dtype]
    (value,) = struct.unpack(letter, struct.pack("I", bits))
    return f"{value:.7g}" if dtype == "f32" else str(value)


def _where(number: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The coordinates of an element, by its number in C order."""
    out: list[int] = []
    for extent in reversed(shape):
        number, at = divmod(number, extent)
        out.append(at)
    return tuple(reversed(out))


def element_fault(element: tuple[int, ...], program: tuple[int, ...], value: str | None) -> str:
    """`Element (3, 5) of program (0, 1) is -2.5.`"""
    what = f"Element {element}" if element else "The value"
    where = f"{' of' if element else ' in'} program {program}" if program else ""
    return f"{what}{where} is {value}." if value is not None else f"{what}{where} does not hold."
