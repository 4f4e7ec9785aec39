"""Types and values of LLVM IR as text: what the emitter passes around."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TypeAlias


class Ty:
    """An LLVM first-class type: a scalar or a vector of `lanes` scalars. `kind` is "f", "i", "p" or "bf" (bfloat)."""

    __slots__ = ("bits", "elem", "kind", "lanes", "suffix", "text")

    def __init__(self, kind: str, bits: int, lanes: int) -> None:
        self.kind, self.bits, self.lanes = kind, bits, lanes
        floats = {16: "half", 32: "float", 64: "double"}
        self.elem = {"p": "ptr", "bf": "bfloat", "i": f"i{bits}", "f": floats.get(bits, "")}[kind]
        self.text = self.elem if lanes == 1 else f"<{lanes} x {self.elem}>"
        scalar = "p0" if kind == "p" else f"{kind}{bits}"
        self.suffix = scalar if lanes == 1 else f"v{lanes}{scalar}"
        """the type's name inside intrinsic names"""

    def __repr__(self) -> str:
        return self.text

    def wide(self, lanes: int) -> Ty:
        return ty(self.kind, self.bits, lanes)

    @property
    def scalar(self) -> Ty:
        return ty(self.kind, self.bits, 1)

    def as_int(self) -> Ty:
        return ty("i", self.bits, self.lanes)

    def as_byte(self) -> Ty:
        return ty("i", 8, self.lanes)


@lru_cache(maxsize=512)
def _ty(kind: str, bits: int, lanes: int) -> Ty:
    return Ty(kind, bits, lanes)


def ty(kind: str, bits: int, lanes: int = 1) -> Ty:
    """The one object for a type, so that types are compared by identity."""
    return _ty(kind, bits, lanes)


F32, F64, I1, I8, I16, I32, I64 = (
    ty("f", 32), ty("f", 64), ty("i", 1), ty("i", 8), ty("i", 16), ty("i", 32), ty("i", 64),
)  # fmt: skip
PTR = ty("p", 64)


class Val:
    """An SSA value or a constant: its text, its type, and the scope (loop depth) it is defined in."""

    __slots__ = ("const", "ref", "scope", "ty")

    def __init__(self, ref: str, ty: Ty, scope: int = 0, const: float | int | None = None) -> None:
        self.ref, self.ty, self.scope, self.const = ref, ty, scope, const

    def __repr__(self) -> str:
        return f"{self.ty.text} {self.ref}"


Index: TypeAlias = "int | Val"
"""An i64 number: known, or a scalar value."""


def float_text(x: float, bits: int) -> str:
    """A float constant as LLVM reads it exactly: the bits of the (rounded) value as a double, in hex.

    Not cached: 0.0 and -0.0 are the same key and different constants.
    """
    if bits == 32:
        try:
            x = struct.unpack("f", struct.pack("f", x))[0]
        except OverflowError:
            x = float("inf") if x > 0 else float("-inf")
    if bits == 16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', x))[0]:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


def const(value: float | int | bool, t: Ty) -> Val:
    """A constant of type `t`, in every lane."""
    if t.kind == "f":
        text = float_text(float(value), t.bits)
    elif t.bits == 1:
        text = "true" if value else "false"
    else:
        v = int(value) & ((1 << t.bits) - 1)
        text = str(v - (1 << t.bits) if v >> (t.bits - 1) else v)
    return Val(text if t.lanes == 1 else f"splat ({t.elem} {text})", t, 0, value)


def text(i: Index) -> str:
    return str(i) if isinstance(i, int) else i.ref
