"""Reads what `printer` writes, so that IR can be stored, edited in tests and compared."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from tessera.compiler.ir.core import Attr, Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, Shape, SharedType, TensorType, TileType, Type, ViewType
from tessera.errors import Span
from tessera.language import dims, dtypes, policies

T = TypeVar("T")
_TOKEN = re.compile(
    r"""\s+|(?m:^[ \t]*//.*)|(?P<string>"(?:\\.|[^"\\])*")|(?P<value>%[\w$.-]+)|(?P<block>\^[\w$.-]+)|(?P<arrow>->)
    |(?P<number>-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?P<kind>[!\#][\w.]+)|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>.)""",
    re.X,
)
_PLACE = r'"[^"\\\n]*":\d+:\d+'
_WHOLE = re.compile(
    rf"""\s*(?:(?P<whole>![\w.]+<[^<>"\n]*>|loc\((?:{_PLACE}|fused\[{_PLACE},[ ]{_PLACE}\])\))|{_TOKEN.pattern})""",
    re.X,
)
"""the same tokens, but types and locations each as one: texts have few different ones, many times"""
_ESCAPE = re.compile(r'\\(?:(?P<self>["\\])|(?P<byte>[0-9A-F]{2}))|(?P<plain>[^\\]+)|(?P<wrong>.)', re.S)
_BAD_TEXT = (ValueError, KeyError, TypeError, ArithmeticError)  # what the readers of quoted texts raise


class ParseError(ValueError):
    """The text is not what the printer writes. `line` and `col` count from 1."""

    def __init__(self, message: str, text: str, at: int) -> None:
        self.line = text.count("\n", 0, at) + 1
        self.col = at - (text.rfind("\n", 0, at) + 1) + 1
        super().__init__(f"{self.line}:{self.col}: {message}")


class Parser:
    """A recursive-descent parser over the tokens of `text`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = [
            (kind, m[kind], m.start(kind)) for m in _WHOLE.finditer(text) if (kind := m.lastgroup)
        ]
        self.tokens.append(("end", "", len(text)))
        self.known: dict[str, Type | Span] = {}
        self.i = 0
        self.values: dict[str, Value] = {}

    # tokens
    def fail(self, message: str, back: int = 0) -> ParseError:
        """An error at the next token, or `back` tokens before it."""
        return ParseError(message, self.text, self.tokens[max(self.i - back, 0)][2])

    def peek(self) -> str:
        return self.tokens[self.i][1]

    def kind(self) -> str:
        return self.tokens[self.i][0]

    def next(self, kind: str) -> str:
        found, text, _ = self.tokens[self.i]
        if found != kind:
            raise self.fail(f"expected a {kind}, found {text or 'the end'!r}")
        self.i += 1
        return text

    def eat(self, text: str) -> bool:
        if self.peek() == text and self.kind() != "string":
            self.i += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.eat(text):
            raise self.fail(f"expected {text!r}, found {self.peek() or 'the end'!r}")

    def listed(self, close: str, item: Callable[[], T]) -> list[T]:
        """Comma-separated items up to `close`, which is eaten."""
        out: list[T] = []
        if self.eat(close):
            return out
        while True:
            out.append(item())
            if self.eat(close):
                return out
            self.expect(",")

    def string(self) -> str:
        out = bytearray()
        for m in _ESCAPE.finditer(self.next("string")[1:-1]):
            if m["wrong"]:
                raise self.fail("the string has an unknown escape", 1)
            out += bytes.fromhex(m["byte"]) if m["byte"] else (m["self"] or m["plain"]).encode("utf-8", "surrogatepass")
        try:
            return out.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self.fail("the string is not UTF-8", 1) from None

    def read(self, reader: Callable[[str], T]) -> T:
        """What `reader` makes of a quoted text."""
        text = self.string()
        try:
            return reader(text)
        except _BAD_TEXT as e:
            raise self.fail(f"{text!r} cannot be read: {e}", 1) from None

    def whole(self, read: Callable[[], Type | Span]) -> Any:
        """What `read` makes of the next token's parts: each text is read once."""
        kind, text, at = self.tokens[self.i]
        if kind != "whole":
            return read()
        if text not in self.known:
            rest, i = self.tokens, self.i
            parts = _TOKEN.finditer(self.text, at, at + len(text))
            self.tokens = [(m.lastgroup, m[0], m.start()) for m in parts if m.lastgroup]
            self.tokens.append(("end", "", at + len(text)))
            self.i = 0
            self.known[text] = read()
            self.tokens, self.i = rest, i
        self.i += 1
        return self.known[text]

    # types
    def type(self) -> Type:
        return INDEX if self.eat("index") else self.whole(self.shaped)

    def shaped(self) -> Type:
        name = self.next("kind")
        if name not in _TYPES:
            raise self.fail(f"{name} is not a type", 1)
        self.expect("<")
        shape = self.shape()
        self.expect(",")
        dtype = dtypes.BY_NAME.get(word := self.next("word"))
        if dtype is None:
            raise self.fail(f"{word} is not a dtype", 1)
        out = self.type_tail(name, shape, dtype)
        self.expect(">")
        return out

    def type_tail(self, name: str, shape: Shape, dtype: dtypes.DType) -> Type:
        match name:
            case "!tessera.tensor":
                return TensorType(shape, dtype, self.read(policies.parse) if self.eat(",") else None)
            case "!tessera.tile":
                return TileType(shape, dtype)
            case "!tessera.view":
                if self.eat(","):
                    self.expect("strides")
                    return ViewType(shape, dtype, self.shape())
                return ViewType(shape, dtype)
            case _:
                self.expect(",")
                return SharedType(shape, dtype, self.string())

    def shape(self) -> Shape:
        """`[B, 2*S, max(S, 4)]`: split at the commas outside parentheses."""
        self.expect("[")
        first, depth, out = self.i, 0, list[dims.Dim]()
        while depth or self.peek() != "]" or self.i > first:
            token = self.peek()
            if self.kind() == "end":
                raise self.fail("a shape is not closed")
            if token in (",", "]") and not depth:
                out.append(self.dim(first))
                first = self.i + 1
                if token == "]":
                    break
            depth += (token == "(") - (token == ")")
            self.i += 1
        self.expect("]")
        return tuple(out)

    def dim(self, first: int) -> dims.Dim:
        """The dim that stands from token `first` to here."""
        start = self.tokens[first][2]
        text = self.text[start : self.tokens[self.i][2]].strip()
        try:
            return dims.parse(text)
        except dims.DimError as e:
            raise ParseError(str(e), self.text, start) from None

    # attributes
    def attribute(self) -> Attr:
        kind, token, _ = self.tokens[self.i]
        if kind == "string":
            return self.string()
        if kind == "number":
            return self.number()
        if self.eat("["):
            return tuple(self.listed("]", self.attribute))
        if token in _WORDS:
            self.i += 1
            return _WORDS[token]
        if token in _QUOTED:
            self.i += 1
            self.expect("<")
            value = self.read(_QUOTED[token])
            self.expect(">")
            return value
        return self.type()

    def number(self) -> int | float:
        text = self.next("number")
        self.expect(":")
        kind = self.next("word")
        try:
            if kind == "f64":
                return struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)
            return int(text)
        except (ValueError, struct.error):
            raise self.fail(f"{text} is not a {kind}", 3) from None

    def entry(self) -> tuple[str, Attr]:
        key = self.next("word")
        self.expect("=")
        return key, self.attribute()

    # ops
    def value(self) -> Value:
        name = self.next("value")
        if name not in self.values:
            raise self.fail(f"{name} is not defined", 1)
        return self.values[name]

    def op(self, span: Span) -> Op:
        """One op; `span` is its place where no location is printed."""
        names: list[str] = []
        while self.kind() == "value":
            names.append(self.next("value"))
            if not self.eat(","):
                self.expect("=")
                break
        name = self.string()
        self.expect("(")
        operands = self.listed(")", self.value)
        regions = self.listed(")", lambda: self.region(span)) if self.eat("(") else []
        attrs = dict(self.listed("}", self.entry)) if self.eat("{") else {}
        self.expect(":")
        first = self.i
        self.expect("(")
        if self.listed(")", self.type) != [v.type for v in operands]:
            raise self.fail("the operand types differ from the operands'", self.i - first)
        self.next("arrow")
        first = self.i
        types = self.listed(")", self.type) if self.eat("(") else [self.type()]
        if len(types) != len(names):
            raise self.fail(f"{name} gives {len(types)} results, {len(names)} are named", self.i - first)
        op = Op(name, operands, types, self.location() or span, attrs, regions, [_hint(n) for n in names])
        self.values.update(zip(names, op.results, strict=True))
        return op

    def location(self) -> Span | None:
        """`loc("f.py":3:5)` or, with the end of the span, `loc(fused["f.py":3:5, "f.py":3:9])`."""
        return self.whole(self.places) if self.peek().startswith("loc") else None

    def places(self) -> Span:
        self.expect("loc")
        self.expect("(")
        fused = self.eat("fused")
        places = self.listed("]", self.place) if fused and self.eat("[") else [self.place()]
        self.expect(")")
        (file, line, col), (_, end_line, end_col) = places[0], places[-1]
        return Span(file, line, col, end_line, end_col)

    def place(self) -> tuple[str, int, int]:
        file, numbers = self.string(), list[int]()
        for _ in range(2):
            self.expect(":")
            number = self.next("number")
            if not number.isdigit():
                raise self.fail(f"{number} is not a line or column", 1)
            numbers.append(int(number))
        return file, numbers[0], numbers[1]

    def region(self, span: Span) -> Region:
        self.expect("{")
        blocks: list[Block] = []
        while not self.eat("}"):
            block = Block()
            blocks.append(block)
            if self.kind() == "block":
                self.next("block")
                if self.eat("("):
                    self.listed(")", lambda b=block: self.argument(b))
                self.expect(":")
            while self.peek() != "}" and self.kind() != "block":
                block.append(self.op(span))
        return Region(blocks)

    def argument(self, block: Block) -> None:
        name = self.next("value")
        self.expect(":")
        self.values[name] = block.add_arg(self.type(), _hint(name))


def _hint(name: str) -> str:
    return "" if name[1:].isdigit() else name[1:]


def _complex(text: str) -> complex:
    real, imaginary = map(float, text.split())
    return complex(real, imaginary)


_TYPES = frozenset({"!tessera.tensor", "!tessera.tile", "!tessera.view", "!tessera.shared"})
_WORDS: dict[str, Attr] = {"true": True, "false": False, "unit": None}
_QUOTED: dict[str, Callable[[str], Attr]] = {
    "#tessera.dtype": dtypes.BY_NAME.__getitem__,
    "#tessera.dim": dims.parse,
    "#tessera.int": int,
    "#tessera.complex": _complex,
}


def parse_op(text: str, file: str = "<ir>") -> Op:
    """The op that `text` holds. Raises ParseError with line and column."""
    parser = Parser(text)
    op = parser.op(Span(file, 1, 1, 1, 1))
    if parser.kind() != "end":
        raise parser.fail("something follows the op")
    return op
