"""Reads what `printer` writes, so that IR can be stored, edited in tests and compared."""

from __future__ import annotations

import ast
import re
import struct
from typing import Any

from tessera.compiler.ir.core import Attr, Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, Shape, SharedType, TensorType, TileType, Type, ViewType
from tessera.errors import Span
from tessera.language import dims, dtypes, policies

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|(?P<string>"(?:\\.|[^"\\])*")|(?P<value>%[\w$.-]+)|(?P<block>\^[\w$.-]+)|(?P<arrow>->)
    |(?P<number>-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?P<kind>[!\#][\w.]+)|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>.)""",
    re.X,
)


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
            (m.lastgroup, m.group(), m.start()) for m in _TOKEN.finditer(text) if m.lastgroup
        ]
        self.tokens.append(("end", "", len(text)))
        self.i = 0
        self.values: dict[str, Value] = {}

    # tokens
    def fail(self, message: str) -> ParseError:
        return ParseError(message, self.text, self.tokens[self.i][2])

    def peek(self) -> str:
        return self.tokens[self.i][1]

    def next(self, kind: str | None = None) -> str:
        found, text, _ = self.tokens[self.i]
        if kind is not None and found != kind:
            raise self.fail(f"expected a {kind}, found {text or 'the end'!r}")
        self.i += 1
        return text

    def eat(self, text: str) -> bool:
        if self.peek() == text and self.tokens[self.i][0] != "string":
            self.i += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.eat(text):
            raise self.fail(f"expected {text!r}, found {self.peek() or 'the end'!r}")

    def listed(self, close: str, item: Any) -> list[Any]:
        """Comma-separated items up to `close`, which is eaten."""
        out: list[Any] = []
        if self.eat(close):
            return out
        while True:
            out.append(item())
            if self.eat(close):
                return out
            self.expect(",")

    def string(self) -> str:
        raw = self.next("string")[1:-1]
        out = bytearray()
        for m in re.finditer(r'\\(["\\])|\\([0-9A-F]{2})|([^\\]+)', raw):
            out += (m[1] or m[3]).encode("utf-8", "surrogatepass") if m[2] is None else bytes([int(m[2], 16)])
        return out.decode("utf-8", "surrogatepass")

    # types
    def type(self) -> Type:
        if self.eat("index"):
            return INDEX
        name = self.next("kind")
        self.expect("<")
        shape = self.shape()
        self.expect(",")
        dtype = dtypes.BY_NAME.get(word := self.next("word"))
        if dtype is None:
            raise self.fail(f"{word} is no dtype")
        out = self.type_tail(name, shape, dtype)
        self.expect(">")
        return out

    def type_tail(self, name: str, shape: Shape, dtype: dtypes.DType) -> Type:
        match name:
            case "!tessera.tensor":
                return TensorType(shape, dtype, policies.parse(self.string()) if self.eat(",") else None)
            case "!tessera.tile":
                return TileType(shape, dtype)
            case "!tessera.view":
                if self.eat(","):
                    self.expect("strides")
                    return ViewType(shape, dtype, self.shape())
                return ViewType(shape, dtype)
            case "!tessera.shared":
                self.expect(",")
                return SharedType(shape, dtype, self.string())
            case _:
                raise self.fail(f"{name} is no type")

    def shape(self) -> Shape:
        """`[B, 2*S, max(S, 4)]`: split at the commas outside parentheses."""
        self.expect("[")
        start, depth, parts = self.tokens[self.i][2], 0, []
        while depth or self.peek() != "]":
            at, token = self.tokens[self.i][2], self.next()
            depth += (token == "(") - (token == ")")
            if not token:
                raise self.fail("a shape is not closed")
            if token == "," and not depth:
                parts.append(self.text[start:at])
                start = at + 1
        last = self.text[start : self.tokens[self.i][2]]
        self.expect("]")
        if last.strip() or parts:
            parts.append(last)
        return tuple(dims.parse(p.strip()) for p in parts)

    # attributes
    def attribute(self) -> Attr:
        kind, token, _ = self.tokens[self.i]
        if kind == "string":
            return self.string()
        if token == "[":
            self.next()
            return tuple(self.listed("]", self.attribute))
        if token in ("true", "false", "unit"):
            self.next()
            return {"true": True, "false": False, "unit": None}[token]
        if kind == "number":
            return self.number()
        if token.startswith("#tessera."):
            self.next()
            self.expect("<")
            text = self.string()
            self.expect(">")
            return _CUSTOM[token](text)
        return self.type()

    def number(self) -> int | float:
        text = self.next("number")
        self.expect(":")
        if self.next("word") == "i64":
            return int(text)
        return struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)

    def entry(self) -> tuple[str, Attr]:
        key = self.next("word")
        self.expect("=")
        return key, self.attribute()

    # ops
    def value(self) -> Value:
        name = self.next("value")
        if name not in self.values:
            raise self.fail(f"{name} is not defined")
        return self.values[name]

    def op(self, span: Span) -> Op:
        names: list[str] = []
        while self.tokens[self.i][0] == "value":
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
        self.expect("(")
        given = self.listed(")", self.type)
        if given != [v.type for v in operands]:
            raise self.fail("the operand types differ from the operands'")
        self.next("arrow")
        types = self.listed(")", self.type) if self.eat("(") else [self.type()]
        if len(types) != len(names):
            raise self.fail(f"{name} gives {len(types)} results, {len(names)} are named")
        op = Op(name, operands, types, self.location() or span, attrs, regions, [_hint(n) for n in names])
        self.values.update(zip(names, op.results, strict=True))
        return op

    def location(self) -> Span | None:
        if not self.eat("loc"):
            return None
        self.expect("(")
        file, numbers = self.string(), []
        while not self.eat(")"):
            if self.tokens[self.i][0] == "number":
                numbers.append(int(self.peek()))
            self.next()
        return Span(file, *numbers)

    def region(self, span: Span) -> Region:
        self.expect("{")
        blocks: list[Block] = []
        while not self.eat("}"):
            block = Block()
            blocks.append(block)
            if self.tokens[self.i][0] == "block":
                self.next()
                if self.eat("("):
                    self.listed(")", lambda b=block: self.argument(b))
                self.expect(":")
            while self.peek() != "}" and self.tokens[self.i][0] != "block":
                block.append(self.op(span))
        return Region(blocks)

    def argument(self, block: Block) -> None:
        name = self.next("value")
        self.expect(":")
        self.values[name] = block.add_arg(self.type(), _hint(name))


def _hint(name: str) -> str:
    return "" if name[1:].isdigit() else name[1:]


def _dtype(text: str) -> dtypes.DType:
    return dtypes.BY_NAME[text]


_CUSTOM: dict[str, Any] = {
    "#tessera.dtype": _dtype,
    "#tessera.dim": dims.parse,
    "#tessera.int": int,
    "#tessera.complex": lambda text: complex(ast.literal_eval(text)),
}


def parse_op(text: str, file: str = "<ir>") -> Op:
    """The op that `text` holds. Raises ParseError with line and column."""
    parser = Parser(text)
    op = parser.op(Span(file, 1, 1, 1, 1))
    if parser.tokens[parser.i][0] != "end":
        raise parser.fail("something follows the op")
    return op
