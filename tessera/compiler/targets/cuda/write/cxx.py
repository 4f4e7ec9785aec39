"""Spelling in CUDA C++: element types, constants, sizes, names."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import cast
from zlib import crc32

from tessera.language import dtypes, rounding
from tessera.language.dims import Atom, Dim
from tessera.language.dtypes import DType

_TYPES = {"f32": "float", "f64": "double", "bool": "bool", "int32": "int", "complex64": "ts::complex<float>",
          "complex128": "ts::complex<double>"}  # fmt: skip
_RESERVED = frozenset((
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const",
    "constexpr", "continue", "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern",
    "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "not",
    "operator", "or", "private", "protected", "public", "register", "return", "short", "signed", "sizeof", "static",
    "struct", "switch", "template", "this", "throw", "true", "try", "typedef", "typename", "union", "unsigned",
    "using", "virtual", "void", "volatile", "while", "xor", "ts", "tessera", "and_eq", "bitand", "bitor", "char16_t",
    "char32_t", "char8_t", "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval",
    "constinit", "decltype", "dynamic_cast", "noexcept", "not_eq", "nullptr", "or_eq", "reinterpret_cast", "requires",
    "static_assert", "static_cast", "thread_local", "typeid", "wchar_t", "xor_eq", "threadIdx", "blockIdx", "blockDim",
    "gridDim", "warpSize", "NULL", "linux", "unix",
))  # fmt: skip


def type_name(dtype: DType) -> str:
    """The C++ type whose bits are `dtype`'s bits in memory."""
    if dtype.is_integer and dtype.name not in _TYPES:
        return f"ts::{'u' if dtype.kind == 'uint' else 'i'}{dtype.bits}"
    return _TYPES.get(dtype.name, f"ts::{dtype.name}")


def literal(value: object, dtype: DType) -> str:
    """A constant of `dtype`; floats are written so that reading them back gives the same bits."""
    if dtype.is_complex:
        z = complex(value)  # type: ignore[arg-type]
        part = dtypes.f32 if dtype.bits == 64 else dtypes.f64
        return f"{type_name(dtype)}{{{literal(z.real, part)}, {literal(z.imag, part)}}}"
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_integer:
        return _integer(int(value), dtype)  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    if dtype == dtypes.f64:
        return _double(number)
    text = _single(number if dtype == dtypes.f32 else float(rounding.rounded_number(number, dtype)))
    return text if dtype == dtypes.f32 else f"{type_name(dtype)}({text})"


def _integer(value: int, dtype: DType) -> str:
    value %= 1 << dtype.bits
    if dtype.kind == "int" and value >= 1 << (dtype.bits - 1):
        value -= 1 << dtype.bits
    if dtype == dtypes.int32:
        return str(value) if value > -(2**31) else "(-2147483647 - 1)"
    if dtype.bits == 64:
        text = f"{value}ull" if dtype.kind == "uint" else f"{value}ll"
        return text if value > -(2**63) else "(-9223372036854775807ll - 1)"
    return f"{type_name(dtype)}({value})"


def _single(x: float) -> str:
    if math.isnan(x):
        return "ts::nan_f32()"
    try:
        x = struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        x = math.copysign(math.inf, x)
    if math.isinf(x):
        return "ts::infinity()" if x > 0 else "-ts::infinity()"
    text = next(
        t for t in (f"{x:.{p}g}" for p in range(6, 18)) if struct.unpack("f", struct.pack("f", float(t)))[0] == x
    )
    return (text if any(c in text for c in ".e") else text + ".0") + "f"


def _double(x: float) -> str:
    if math.isnan(x):
        return "ts::nan_f64()"
    if math.isinf(x):
        return "(double)ts::infinity()" if x > 0 else "-(double)ts::infinity()"
    return repr(x)


def size(d: Dim) -> str:
    """A size as an expression over the kernel's parameters; `//` and `%` round down."""
    if isinstance(d, int):
        return str(d)
    text = _sum(d)
    return f"({text})" if len(d.terms) > 1 or text.startswith("-") else text


def factor(d: Dim) -> str:
    """A size behind `/` or `%`."""
    text = size(d)
    return f"({text})" if " " in text and not text.startswith("(") else text


def _sum(d: Dim) -> str:
    """As `size`, without the parentheses that keep it together inside a larger expression."""
    if isinstance(d, int):
        return str(d)
    text = ""
    for monomial, coefficient in d.terms:
        factors = [_atom(a) for a in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        text += (f" {sign} " if text else "-" if sign == "-" else "") + " * ".join(factors)
    return text


def _atom(atom: Atom) -> str:
    if atom.op == "sym":
        (name,) = atom.args
        return dim_name(str(name))
    function = {"//": "idiv", "%": "imod", "min": "imin", "max": "imax"}[atom.op]
    a, b = cast("tuple[Dim, Dim]", atom.args)
    return f"ts::{function}({_sum(a)}, {_sum(b)})"


def dim_name(name: str) -> str:
    """The parameter that holds the size of dim `name`: of another dim, another parameter."""
    clean = identifier(f"dim_{name}")
    return clean if clean == f"dim_{name}" else f"{clean}_{crc32(name.encode()):08x}"


def kernel_symbol(name: str) -> str:
    """The C symbol of the kernel `name`: never one of the C library, such as `exp` or `random`."""
    return name if name.endswith("_kernel") else f"{name}_kernel"


def identifier(text: str) -> str:
    """`text` made fit to be a C++ name."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text).strip("_") or "v"
    while "__" in clean:
        clean = clean.replace("__", "_")
    if clean[0].isdigit():
        clean = "v" + clean
    return clean + "_" if clean in _RESERVED else clean


def braces(items: Iterable[str]) -> str:
    return "{" + ", ".join(items) + "}"
