"""What a kernel says: its statements, and operators as expressions of `ts.tile`."""

from __future__ import annotations

import ast
import builtins
import io
import math
import re
import tokenize
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

from tessera.compiler.frontend.result import Analysis
from tessera.compiler.graph.operator import attributes_of, tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.kernel_source.axes import Axes, kind_of
from tessera.compiler.kernel_source.coordinates import Causal, causal, numbered
from tessera.compiler.kernel_source.layout import KernelPlan, kernel_dim
from tessera.compiler.kernel_source.passes import MOVES
from tessera.immutable import mutable
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

WIDTH = 100
"""characters; what is longer becomes two statements"""

_NAMES = {
    "contract": "product", "exp": "e", "iota": "position", "rsqrt": "scale", "sqrt": "scale", "sub": "shifted",
    "where": "chosen",
}  # fmt: skip
"""of values that the text gives no name; others are called as their operator"""


@mutable
class Spelling:
    """How the file calls things: `tile` is its name of ts.tile."""

    tile: str
    decorator: str
    annotation: Callable[[TensorType], str | None]
    dtype: Callable[[DType], str]
    constant: Callable[[Op, object], str | None]
    """the name that an operator's number has in the text, if it has one"""
    zeros: Callable[[TensorType], str]
    """an array of zeros, in the dims of the function"""
    infinity: str
    taken: Collection[str]

    def infinite(self, sign: float) -> str:
        return self.infinity if sign > 0 else f"-{self.infinity}" if "(" not in self.infinity else 'float("-inf")'


@mutable
class Body:
    """What a kernel says. `names`: what is a tile already. `reads`: the tiles of texts that read memory.

    In a loop `lines` are its body's, and `outside` is what stands before it.
    """

    func: Op
    axes: Axes
    layout: KernelPlan
    spelling: Spelling
    said: set[Op]
    """conversions that stand in the text; others are those of operands that meet"""
    comments: Comments
    lines: list[str] = field(default_factory=list[str])
    names: dict[Value, str] = field(default_factory=dict[Value, str])
    reads: dict[str, str] = field(default_factory=dict[str, str])
    indent: str = "    "
    outside: list[str] | None = None
    steps: set[str] = field(default_factory=set[str])
    """which of `reads` the present step of a loop has read"""
    called: dict[Op, str] = field(default_factory=dict[Op, str])
    """names for values that the text gives none"""

    def __post_init__(self) -> None:
        self.comments.settle(op for op in self.ops if not self._passes(op))

    @property
    def ops(self) -> list[Op]:
        return self.func.region.block.ops

    def statements(self) -> None:
        """All but what begins a kernel: its lanes, and loops."""
        *ops, last = self.ops
        self.assign([op for op in ops if not any(a in self.layout.looped for a in self.axes.of_value(op.result))])
        behind = self.comment(last)
        self.add(f"return {', '.join(self._results(last))}", behind)

    def assign(self, ops: Sequence[Op]) -> None:
        """Those of them that get names."""
        masks = self.masks(ops)
        for op in ops:
            if op.result not in self.names and op not in masks and not self._passes(op) and self.kept(op):
                self.name(op)

    def masks(self, ops: Sequence[Op]) -> set[Op]:
        """What no text needs, because a mask of `ts.tile` knows it."""
        found = {m.condition.op for op in ops if (m := causal(self.axes, self.layout, op)) is not None}
        for op in reversed(self.ops):
            if op.results and op.result.users and all(u in found for u in op.result.users):
                found.add(op)
        return {op for op in found if op is not None}

    def _results(self, last: Op) -> list[str]:
        """What is returned; of several results the long ones get names."""
        texts = [self.text(last, i) for i in range(len(last.operands))]
        if len(texts) > 1 and len(", ".join(texts)) > WIDTH - 16:
            for i, v in enumerate(last.operands):
                source = self.source(v)
                if source is not None and source.result not in self.names and len(texts[i]) > WIDTH // 4:
                    self.name(source)
            texts = [self.text(last, i) for i in range(len(last.operands))]
        return texts

    def add(self, text: str, comment: str = "") -> None:
        self.lines.append(f"{self.indent}{text}{f'  {comment}' if comment else ''}")

    def comment(self, op: Op) -> str:
        """Writes the comments above the next statement, the value of an op; returns the comment behind it."""
        above, behind = self.comments.take(op, [*self.inlined(op)])
        for text in above:
            self.add(text)
        return behind

    def free(self, wanted: str) -> str:
        """`wanted`, or `wanted_2` and so on where that is taken."""
        base, n = wanted, 2
        used = {*self.names.values(), *self.reads.values(), *self.layout.counters.values(), *self.spelling.taken}
        used |= {self.layout.linear, *(a.hint for a in self.func.region.block.args)} | {
            str(d) for d in self.layout.names.values()
        }
        while wanted in used or hasattr(builtins, wanted):
            wanted, n = f"{base}_{n}", n + 1
        return wanted

    # statements
    def kept(self, op: Op) -> bool:
        """Whether the value gets a name: it has one, or is needed more than once."""
        users = self._users(op.result)
        alone = users == ["graph.return"] and len(self.ops[-1].operands) == 1
        return len(users) > 1 or (bool(op.result.hint) and not alone)

    def _users(self, v: Value) -> list[str]:
        """The ops in whose text a value stands, once for each time."""
        found: list[str] = []
        for user, _ in v.uses:
            found += self._users(user.result) if user.name != "graph.return" and self._passes(user) else [user.name]
        return found

    def name(self, op: Op) -> None:
        """Assigns a value to a name."""
        behind = self.comment(op)
        text = self._unparsed(op)
        wanted = op.result.hint or self.called.get(op) or self._summary(op)
        name = wanted if self._replaces(op, wanted) else self.free(wanted)
        self.add(f"{name} = {text}", behind)
        self.names[op.result] = name

    def _replaces(self, op: Op, name: str) -> bool:
        """Whether the name stands for a value that is needed for this one only."""
        old = [v for v, n in self.names.items() if n == name][-1:]
        here = {op, *self.inlined(op), *self.masks([op])}
        return name == op.result.hint and any(self._within(v, op, here) for v in old)

    def _within(self, v: Value, op: Op, here: set[Op]) -> bool:
        """Whether it is used there and nowhere else, at the same step of the same loop."""
        walked = [any(a in self.layout.looped for a in self.axes.of_value(x)) for x in (v, op.result)]
        users = {o for u in v.users for o in (u, *((w for w in u.result.users) if self._passes(u) else ()))}
        return v.op is not None and walked[0] == walked[1] and all(u in here or self._passes(u) for u in users)

    def _summary(self, op: Op) -> str:
        name = op.name.removeprefix("graph.")
        if kind_of(name) == "reduce":
            across = self._along(op)[:1] == ["axis=0"] and len(self.layout.tile(self.axes.of(op, 0))) == 2
            return f"{'col' if across else 'row'}_{name}"
        return "masked" if causal(self.axes, self.layout, op) is not None else _NAMES.get(name, name)

    def _unparsed(self, op: Op) -> str:
        """The text of an op. Where it is too long, a part of about half of it becomes a statement before it."""
        text = ast.unparse(self._value(op))
        if len(text) <= WIDTH - 16:
            return text
        sizes = {o: len(ast.unparse(self._value(o))) for o in self.inlined(op)}
        if sizes:
            self.name(min(sizes, key=lambda o: abs(2 * sizes[o] - len(text))))
            return self._unparsed(op)
        return text

    def inlined(self, op: Op) -> Iterator[Op]:
        """The ops whose texts stand in that of an op."""
        for v in op.operands:
            source = self.source(v)
            if source is not None and source.result not in self.names:
                yield source
                yield from self.inlined(source)

    def source(self, v: Value) -> Op | None:
        """The op whose text stands for a value; None for arguments and numbers."""
        op = v.op
        while op is not None and self._passes(op):
            op = op.operands[0].op if op.operands else None
        return op

    # expressions
    def text(self, op: Op, i: int) -> str:
        source = self.source(op.operands[i])
        if source is None:
            return ast.unparse(self._operand(op, i))
        return self.names.get(source.result) or self._unparsed(source)

    def _operand(self, op: Op, i: int) -> ast.expr:
        v = op.operands[i]
        if v.op is None:
            return ast.Name(self._read(op, i))
        if v in self.names:
            return ast.Name(self.names[v])
        return self._value(v.op, op)

    def _read(self, op: Op, i: int) -> str:
        """Blocks are loaded by a statement of their own; in a loop those that it walks may be operands."""
        if op.operands[i] in self.names:
            return self.names[op.operands[i]]
        text = self.layout.read(op, i)
        walked = self._walked(op, i)
        if text == op.operands[i].hint or self.layout.linear or (walked and not self._repeated(text)):
            return text
        if text not in self.reads:
            own = op.result.hint if op.name == "graph.slice" else ""
            name = self.free(own or f"{op.operands[i].hint}_tile")
            if self.outside is None or walked:
                self.add(f"{name} = {text}")
            else:
                self.outside.append(f"{self.indent[4:]}{name} = {text}")
            self.reads[text] = name
            if walked:
                self.steps.add(text)
        return self.reads[text]

    def forget(self, inner: Sequence[Op]) -> None:
        """The comments of each step of a loop that has ended."""
        for op in inner:
            self.names.pop(op.result, None)
        for text in self.steps:
            del self.reads[text]
        self.steps.clear()

    def _walked(self, op: Op, i: int) -> bool:
        """Whether what it reads is another at each step of a loop."""
        return any(a in self.layout.looped for a in self.axes.of(op, i))

    def _repeated(self, text: str) -> bool:
        return [self.layout.read(op, i) for op, i in self.axes.reads if self._walked(op, i)].count(text) > 1

    def _passes(self, op: Op) -> bool:
        """Whether it leaves no trace in the text, or a number only."""
        if op.name in MOVES or op.name in ("graph.constant", "graph.full", "graph.slice"):
            return True
        if op.name != "graph.cast":
            return False
        old, new = tensor(op.operands[0]).dtype, tensor(op.result).dtype
        if old.is_float and new.is_float and (new is old.compute or self._users_of_cast(op) == {"graph.return"}):
            return True  # arithmetic is done in that, and a store rounds by itself
        return op not in self.said or any(u.span == op.span for u in op.result.users)

    def _users_of_cast(self, op: Op) -> set[str]:
        return {u.name for u in op.result.users}

    def _value(self, op: Op, user: Op | None = None) -> ast.expr:
        name, tile = op.name.removeprefix("graph."), self.spelling.tile
        if name in ("constant", "full"):
            return self._number(op, user)
        if self._passes(op):
            return self._operand(op, 0)
        if name == "iota":
            return ast.parse(numbered(self.axes, self.layout, op, tile, self.spelling.dtype), mode="eval").body
        if (mask := causal(self.axes, self.layout, op)) is not None:
            return self._causal(op, mask)
        operands = [self._operand(op, i) for i in range(len(op.operands))]
        if name == "contract":
            return _call(f"{tile}.mma", [ast.Name(f) for f in self.factors(op)])
        if name == "cast":
            return _call(f"{tile}.cast", operands, self.spelling.dtype(tensor(op.result).dtype))
        if name in TABLE:
            return _applied(tile, name, operands)
        return _call(f"{tile}.{name}", operands, *self._along(op))

    def _along(self, op: Op) -> list[str]:
        """The axis of a reduction or prefix, and whether it is kept."""
        line, axes = self.axes.along(op), self.layout.tile(self.axes.of(op, 0))
        if line is None or "axis" not in op.attrs:
            return []
        at = len(axes) - 1 if self.layout.plain else axes.index(line)
        keepdim = attributes_of(op).get("keepdims") and not self._squeezes()
        last = self.layout.plain or at == len(axes) - 1
        return [f"axis={-1 if last else at}", *(["keepdim=True"] if keepdim else [])]

    def factors(self, op: Op) -> list[str]:
        """The operands of a product, the one with the rows of the result first."""
        rows = self.layout.tile(self.axes.of_value(op.result))[0]
        return [self.text(op, i) for i in ((0, 1) if rows in self.axes.of(op, 0) else (1, 0))]

    def _causal(self, op: Op, mask: Causal) -> ast.expr:
        starts = [ast.Name(self.layout.start(a) or "0") for a in mask.lines]
        rest = [] if mask.lowest else [self._operand(op, 2)]
        return _call(f"{self.spelling.tile}.causal_mask", [self._operand(op, 1), *starts, *rest])

    def _squeezes(self) -> bool:
        """Whether axes of size 1 are dropped somewhere. Then none are kept: vectors find their axis without."""
        moves = (op for op in self.ops if op.name == "graph.reshape" and op.operands[0].op is not None)
        return any(len(tensor(op.result).shape) < len(tensor(op.operands[0]).shape) for op in moves)

    def _number(self, op: Op, user: Op | None) -> ast.expr:
        value = op.attrs["value"]
        if not isinstance(value, (bool, int, float, complex)):
            return ast.parse(str(kernel_dim(self.layout, value)), mode="eval").body  # type: ignore[arg-type]
        written = self.spelling.constant(user or op, value)
        if written is not None:
            return ast.Name(written)
        if isinstance(value, float) and math.isinf(value):
            return ast.Name(self.spelling.infinite(value))
        if isinstance(value, float) and math.isnan(value):
            return ast.Name('float("nan")')
        return ast.parse(repr(value), mode="eval").body


def _call(function: str, operands: list[ast.expr], *more: str) -> ast.expr:
    return ast.Call(ast.Name(function), [*operands, *(ast.Name(m) for m in more)], [])


def _applied(tile: str, name: str, operands: list[ast.expr]) -> ast.expr:
    symbol = TABLE[name].symbol
    if not symbol:
        return _call(f"{tile}.{name}", operands)
    shown = ast.parse(f"{symbol}a" if len(operands) == 1 else f"a {symbol} b", mode="eval").body
    match shown, operands:
        case ast.BinOp(), [a, b]:
            return ast.BinOp(a, shown.op, b)
        case ast.Compare(), [a, b]:
            return ast.Compare(a, shown.ops, [b])
        case ast.UnaryOp(), [a]:
            return ast.UnaryOp(shown.op, a)
        case _:
            return _call(f"{tile}.{name}", operands)


# Comments of a selection, which go with what they are about into the kernel.

_PRAGMA = re.compile(r"#\s*(noqa|type:|pyright:|fmt:|ruff:|pylint:)")
"""what tools are told about the text as it was"""


@mutable
class Comments:
    """`above` and `behind`: what is still to be written, by the first line of the statement that it belongs to."""

    file: str = ""
    statements: Sequence[tuple[int, int]] = ()
    """their first and last lines, inner ones behind those they stand in"""
    above: dict[int, list[str]] = field(default_factory=dict[int, "list[str]"])
    behind: dict[int, str] = field(default_factory=dict[int, str])
    last: dict[int, Op] = field(default_factory=dict[int, Op])

    def statement(self, line: int) -> int | None:
        """The first line of the innermost statement at a line."""
        return next((a for a, b in reversed(self.statements) if a <= line <= b), None)

    def settle(self, ops: Iterable[Op]) -> None:
        """Says which ops there are, in order: a comment behind a statement stands where its last one is said."""
        self.last = {line: op for op in ops if (line := self._line(op)) is not None}

    def _line(self, op: Op) -> int | None:
        return self.statement(op.span.line) if op.span.file == self.file else None

    def take(self, op: Op, inlined: Sequence[Op]) -> tuple[list[str], str]:
        """What belongs above and behind the line that says an op, and others in its expression; each once."""
        above: list[str] = []
        for o in sorted((*inlined, op), key=lambda o: o.span.line):
            line = self._line(o)
            if line is None:
                continue
            above += self.above.pop(line, [])
            if o is not op and self.last.get(line) is o and line in self.behind:
                above.append(self.behind.pop(line))
        own = self._line(op)
        return above, self.behind.pop(own, "") if own is not None and self.last.get(own) is op else ""


def comments_of(alone: Analysis, func: Op) -> Comments:
    """The comments in the body of a function with this graph.

    If nothing of a statement is left in the graph, its comments move to the next statement that has something.
    """
    definition = alone.definition
    tree: Any = definition.tree
    body: list[ast.stmt] = tree.body
    first, last = tree.lineno, tree.end_lineno
    out = Comments(definition.file)
    nodes = sorted((n for s in body for n in ast.walk(s) if isinstance(n, ast.stmt)), key=lambda n: n.lineno)
    out.statements = [(n.lineno, n.end_lineno or n.lineno) for n in nodes]
    ends = dict(out.statements)
    said = {out.statement(op.span.line) for op in func.walk() if op.span.file == out.file and op is not func}
    left = [a for a in ends if a in said] or [body[0].lineno]
    for line, text in _comments(definition.text.lines[first - 1 : last], first):
        within = out.statement(line)
        about = next((a for a in left if a >= (within or line)), left[-1])
        if within == about and about not in out.behind and line == ends[about]:
            out.behind[about] = text
        else:
            out.above.setdefault(about, []).append(text)
    return out


def _comments(lines: Sequence[str], first: int) -> Iterable[tuple[int, str]]:
    """The line and text of each comment that is for people."""
    reader = io.StringIO("\n".join(lines)).readline
    try:
        for token in tokenize.generate_tokens(reader):
            if token.type == tokenize.COMMENT and not _PRAGMA.match(token.string):
                yield token.start[0] + first - 1, token.string
    except (tokenize.TokenError, SyntaxError):  # a dialect that Python does not read
        return
