"""MLIR's generic text of any op, with stable value names, and the source span behind each printed line."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import field

from tessera.compiler.ir.core import Attr, Block, Op, Region, Value
from tessera.compiler.ir.types import type_text
from tessera.errors import Span
from tessera.immutable import mutable
from tessera.language.dims import Expr
from tessera.language.dtypes import DType

VERSION = 1
"""of the text; what is kept on disk as text is found under its number"""
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")


@mutable
class Printed:
    """`text`, and for each of its lines the span of the op that it shows (None for braces and block headers)."""

    text: str
    spans: list[Span | None]


def quote(text: str) -> str:
    """A string literal: printable ASCII and UTF-8 as they are, the rest as MLIR's two-digit escapes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out: list[str] = []
    for c in text:
        if c in '"\\':
            out.append("\\" + c)
        elif c.isprintable():
            out.append(c)
        else:
            out += [f"\\{b:02X}" for b in c.encode("utf-8", "surrogatepass")]
    return '"' + "".join(out) + '"'


def attribute(a: Attr) -> str:
    """One attribute value."""
    match a:
        case None:
            return "unit"
        case bool():
            return "true" if a else "false"
        case int():
            return f"{a} : i64" if -(2**63) <= a < 2**63 else f'#tessera.int<"{a}">'
        case float():
            return f"{_float(a)} : f64"
        case complex():
            return f'#tessera.complex<"{a.real!r} {a.imag!r}">'
        case str():
            return quote(a)
        case DType():
            return f'#tessera.dtype<"{a}">'
        case Expr():
            return f'#tessera.dim<"{a}">'
        case tuple():
            return "[" + ", ".join(map(attribute, a)) + "]"
        case _:
            return str(a)  # a type


def _float(x: float) -> str:
    if math.isfinite(x):
        text = repr(x)
        mantissa, e, exponent = text.partition("e")
        return (mantissa if "." in mantissa else mantissa + ".0") + e + exponent
    return f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"


def location(s: Span) -> str:
    """MLIR's fused location of the first and the last place of a span."""
    file = quote(s.file)
    return f"loc(fused[{file}:{s.line}:{s.col}, {file}:{s.end_line}:{s.end_col}])"


@mutable
class Printer:
    """Prints ops into `lines`. `locations` adds `loc(...)` to every op."""

    locations: bool = False
    lines: list[str] = field(default_factory=list[str])
    spans: list[Span | None] = field(default_factory=list["Span | None"])
    names: dict[Value, str] = field(default_factory=dict[Value, str])
    _taken: set[str] = field(default_factory=set[str])
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    """by hint: the last number that was tried, below which all are taken"""

    def name(self, v: Value) -> str:
        """`%hint`, made unique, or a number."""
        name = self.names.get(v)
        if name is None:
            base = v.hint if _BARE.match(v.hint) else ""
            found, i = base, self._counts.get(base, 0)
            while not found or found in self._taken:
                found = f"{base}_{i + 1}" if base else str(i)
                i += 1
            self._counts[base] = i
            self._taken.add(found)
            self.names[v] = name = "%" + found
        return name

    def line(self, text: str, indent: int, span: Span | None) -> None:
        self.lines.append("  " * indent + text)
        self.spans.append(span)

    def op(self, op: Op, indent: int = 0) -> None:
        results = ", ".join([self.name(r) for r in op.results])
        operands = ", ".join([self.name(v) for v in op.operands])
        head = (results + " = " if results else "") + f'"{op.name}"({operands})'
        if op.regions:
            self.line(head + " ({", indent, op.span)
            for i, region in enumerate(op.regions):
                if i:
                    self.line("}, {", indent, None)
                self.region(region, indent)
            head = "})"
        self.line(head + self.tail(op), indent, None if op.regions else op.span)

    def tail(self, op: Op) -> str:
        attrs = ", ".join([f"{k} = {attribute(v)}" for k, v in op.attrs.items()])
        operands = ", ".join([type_text(v.type) for v in op.operands])
        results = ", ".join([type_text(r.type) for r in op.results])
        arrow = results if len(op.results) == 1 else f"({results})"
        loc = f" {location(op.span)}" if self.locations else ""
        return (f" {{{attrs}}}" if attrs else "") + f" : ({operands}) -> {arrow}{loc}"

    def region(self, region: Region, indent: int) -> None:
        for i, block in enumerate(region.blocks):
            self.block(block, indent, f"^bb{i}")

    def block(self, block: Block, indent: int, label: str) -> None:
        if block.args or label != "^bb0":
            args = ", ".join(f"{self.name(a)}: {a.type}" for a in block.args)
            self.line(f"{label}({args}):" if args else f"{label}:", indent, None)
        for op in block.ops:
            self.op(op, indent + 1)


def print_op(op: Op, locations: bool = False) -> str:
    """The op and everything in it as text, ending with a newline."""
    return print_lines(op, locations).text


def print_lines(op: Op, locations: bool = False) -> Printed:
    """The same with the span behind each line, so that IR can be linked with source."""
    printer = Printer(locations)
    printer.op(op)
    return Printed("\n".join(printer.lines) + "\n", printer.spans)
