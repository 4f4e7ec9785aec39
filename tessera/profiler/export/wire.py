"""Protocol buffers' wire format, as much of it as a trace needs: written field by field, and read without a schema.

A field is a tag (its number and how its value is written) and a value: a varint, eight or four bytes, or a length and
so many bytes, which may be a message again. https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are no message: cut off, or of something else."""


_SHORT = tuple(bytes([value]) for value in range(0x80))


def varint(value: int) -> bytes:
    """`value` seven bits at a time, the lowest first; a negative one as its 64-bit complement."""
    if 0 <= value < 0x80:
        return _SHORT[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """An integer, a bool or an enum."""
    return tag(field, VARINT) + varint(value)


def message(field: int, payload: bytes) -> bytes:
    """Bytes, or a message inside of one."""
    return tag(field, BYTES) + varint(len(payload)) + payload


def string(field: int, value: str) -> bytes:
    """Text; half a surrogate pair, which UTF-8 cannot say, becomes a question mark, and NUL, where readers stop, its
    picture."""
    return message(field, value.replace("\0", "\u2400").encode("utf-8", "replace"))


def double(field: int, value: float) -> bytes:
    return tag(field, FIXED64) + struct.pack("<d", value)


def fixed64(field: int, value: int) -> bytes:
    return tag(field, FIXED64) + struct.pack("<Q", value)


def fields(data: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """(number, how it is written, value or where its bytes begin, where they end) of a message's fields.

    Of FIXED64 and FIXED32 the value is the bits. Raises WireError where `data[at:end]` is no message.
    """
    end = len(data) if end is None else end
    while at < end:
        tag, at = read_varint(data, at, end)
        field, kind = tag >> 3, tag & 7
        if not field:
            raise WireError(f"byte {at} begins a field without a number")
        if kind == VARINT:
            value, at = read_varint(data, at, end)
            yield field, kind, value, at
            continue
        if kind == BYTES:
            size, at = read_varint(data, at, end)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"byte {at} begins a field of an unknown kind")
        if at + size > end:
            raise WireError(f"a field at byte {at} is {size} bytes long, and only {end - at} are there")
        yield field, kind, at if kind == BYTES else int.from_bytes(data[at : at + size], "little"), at + size
        at += size


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and what lies behind it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise WireError(f"the number at byte {at} does not end")
