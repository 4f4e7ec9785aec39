"""IR as people read it: `scores = matmul(q, k) : [B, H, S, S] bf16   # model.py:8`.

Left out is what a reader knows or need not know: dialects, the types of operands, attributes that have their default
(`spec.Reading`); constants stand where they are used. Names are those of the source, as far as it has them. This form
is not read back; `printer` writes the one that is.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from pathlib import PurePath

from tessera.compiler.ir.core import Attr, Block, Op, Value
from tessera.compiler.ir.printer import Printed, print_lines, quote
from tessera.compiler.ir.spec import CALL, SPECS, Reading
from tessera.compiler.ir.types import INDEX, SharedType, TensorType, TileType, ViewType
from tessera.errors import Span
from tessera.immutable import mutable
from tessera.language import dtypes
from tessera.language.dtypes import DType

_NAME = re.compile(r"[A-Za-z_][\w.\[\]]*$")
_PLAIN: dict[type, tuple[DType, ...]] = {
    bool: (dtypes.bool_,),
    int: (dtypes.int64,),
    float: (dtypes.f32,),
    complex: (dtypes.complex64,),
}
"""dtypes of constants that are shown as numbers alone"""


def readable(op: Op, generic: bool = False) -> Printed:
    """The op and everything in it, with the span behind each line; `generic`: as MLIR's generic text."""
    if generic:
        return print_lines(op)
    writer = _Writer()
    writer.op(op, 0)
    return Printed("\n".join(writer.lines) + "\n", writer.spans)


def attribute(value: Attr) -> str:
    """An attribute's value, as Python writes it."""
    match value:
        case str():
            return quote(value)
        case tuple():
            return "[" + ", ".join(map(attribute, value)) + "]"
        case TensorType() | TileType() | ViewType() | SharedType():
            return value.pretty()
        case bool() | int() | float() | complex() | None:
            return repr(value)
        case _:
            return str(value)


def _reading(op: Op) -> Reading:
    return SPECS[op.name].reading if op.name in SPECS else CALL


def _literal(v: Value) -> str | None:
    """What stands for a constant."""
    if v.op is None or not (name := _reading(v.op).literal):
        return None
    value = v.op.attrs[name]
    text = attribute(value)
    dtype: DType | None = getattr(v.type, "dtype", None)
    return text if v.type == INDEX or dtype in _PLAIN.get(type(value), ()) else f"{dtype}({text})"


@mutable
class _Names:
    """The names of values. Those of a region are free again behind it, where nobody can mean its values; numbers are
    given once."""

    of: dict[Value, str] = field(default_factory=dict[Value, str])
    taken: set[str] = field(default_factory=set[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """by base: the last number that was tried, below which all are taken"""
    given: list[tuple[str, str, int | None]] = field(default_factory=list[tuple[str, str, int | None]])
    """in order: base, name, and the count before"""

    def __call__(self, v: Value) -> str:
        return self.of[v] if v in self.of else (_literal(v) or self.give(v, v.hint))

    def give(self, v: Value, hint: str) -> str:
        """`hint`, made unique; `t0`, `t1` ... where the source has no name."""
        base = hint if _NAME.match(hint) else ""
        found, i = base, self.counts.get(base, 0)
        while not found or found in self.taken:
            found = f"{base}_{i + 1}" if base else f"t{i}"
            i += 1
        if base:
            self.given.append((base, found, self.counts.get(base)))
        self.counts[base] = i
        self.taken.add(found)
        self.of[v] = found
        return found

    @contextmanager
    def scope(self) -> Generator[None]:
        mark = len(self.given)
        yield
        while len(self.given) > mark:
            base, name, count = self.given.pop()
            self.taken.discard(name)
            if count is None:
                del self.counts[base]
            else:
                self.counts[base] = count


@cache
def _name(file: str) -> str:
    return PurePath(file).name


@mutable
class _Writer:
    lines: list[str] = field(default_factory=list[str])
    spans: list[Span | None] = field(default_factory=list["Span | None"])
    names: _Names = field(default_factory=_Names)

    def line(self, text: str, indent: int, span: Span | None = None) -> None:
        where = f"   # {_name(span.file)}:{span.line}" if span is not None and span.line > 0 else ""
        self.lines.append("  " * indent + text + where)
        self.spans.append(span)

    def op(self, op: Op, indent: int) -> None:
        reading = _reading(op)
        if reading.literal:
            return
        for note in reading.notes(op) if reading.notes is not None else ():
            self.lines.append("  " * indent + "# " + note)
            self.spans.append(op.span)
        if not op.regions:
            self.line(self.text(op, reading), indent, op.span)
            return
        at = len(self.lines)
        with self.names.scope():
            self.arguments(op, reading)
            head = self.head(op, reading)
            for i, region in enumerate(op.regions):
                if i:
                    self.line(" ".join(filter(None, ("}", reading.between, "{"))), indent)
                for number, block in enumerate(region.blocks):
                    label = f"block {number}" if len(region.blocks) > 1 else ""
                    self.block(block, indent + 1, label, reading.binds or reading.same)
        self.line("}", indent)
        head = self.results(op) + head + self.types(op) + " {"  # results have their names behind the region's
        tail = self.lines[at:], self.spans[at:]
        del self.lines[at:], self.spans[at:]
        self.line(head, indent, op.span)
        self.lines += tail[0]
        self.spans += tail[1]

    def arguments(self, op: Op, reading: Reading) -> None:
        """Names the arguments of an op's blocks, which a head may show."""
        *others, main = [region.blocks[0].args if region.blocks else [] for region in op.regions]
        if reading.same:
            self.names.of.update({a: self.names(v) for a, v in zip(main, op.operands, strict=True)})
            return
        own = op.attrs.get("arg_names", ())
        names = list(map(str, own)) if isinstance(own, tuple) else []
        carried = dict(zip(main[::-1], op.operands[::-1][: len(op.results)], strict=False))
        for i, a in enumerate(main):
            hint = names[i] if i < len(names) else a.hint
            self.names.give(a, hint or (carried[a].hint if a in carried else ""))
        for args in others if reading.binds else ():  # what is carried has one name, wherever it is
            self.names.of.update({a: self.names(same) for a, same in zip(args, main, strict=False)})

    def block(self, block: Block, indent: int, label: str, bound: bool) -> None:
        if label:
            self.line(label + ":", indent - 1)
        if block.args and not bound:
            self.line("with " + ", ".join(f"{self.names(a)}: {a.type.pretty()}" for a in block.args), indent)
        for op in block.ops:
            self.op(op, indent)

    def text(self, op: Op, reading: Reading) -> str:
        head = self.head(op, reading)
        return self.results(op) + head + self.types(op)

    def results(self, op: Op) -> str:
        return ", ".join(map(self.names, op.results)) + (" = " if op.results else "")

    @staticmethod
    def types(op: Op) -> str:
        return (" : " if op.results else "") + ", ".join(r.type.pretty() for r in op.results)

    def head(self, op: Op, reading: Reading) -> str:
        attrs = [
            f"{k}={attribute(v)}"
            for k, v in op.attrs.items()
            if k not in reading.covers and not (k in reading.defaults and reading.defaults[k] == v)
        ]
        if reading.head is not None:
            return reading.head(op, self.names) + (f" with {', '.join(attrs)}" if attrs else "")
        name = op.name.partition(".")[2]
        operands = reading.operands(op) if reading.operands is not None else op.operands
        given = list(map(self.operand, operands))
        while given and given[-1] == "None":
            given.pop()
        if op.name in SPECS and SPECS[op.name].terminator:
            return " ".join(filter(None, (name, ", ".join(given))))
        return f"{name}({', '.join(given + attrs)})"

    def operand(self, v: Value | list[Value] | None) -> str:
        return "None" if v is None else self.names(v) if isinstance(v, Value) else f"[{', '.join(map(self.names, v))}]"
