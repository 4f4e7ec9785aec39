"""A `graph.func` written as a `@ts.kernel` that people could have written.

An operator is spelled as `ts.tile` spells it: by its symbol where Python has one, else by its name. What has no such
name is taken apart until it has.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from tessera.compiler.graph.operator import attributes_of, tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE
from tessera_lsp.actions.kernel_axes import Axes, Line, NoKernel, axes_of, kind_of
from tessera_lsp.actions.kernel_layout import Layout, argument_place, kernel_dim, layout

WIDTH = 100
"""characters; what is longer becomes two statements"""
_MOVES = ("graph.reshape", "graph.transpose", "graph.broadcast_to")
"""what only says which axes meet: in a tile each axis knows that itself"""


@dataclass(slots=True)
class Spelling:
    """How the file calls things: `tile` is its name of ts.tile."""

    tile: str
    decorator: str
    annotation: Callable[[TensorType], str | None]
    dtype: Callable[[DType], str]
    constant: Callable[[Op, object], str | None]
    """the name that an operator's number has in the text, if it has one"""
    taken: Collection[str]


@dataclass(slots=True)
class Written:
    text: str
    arguments: tuple[str, ...]


def kernel_text(func: Op, name: str, spelling: Spelling) -> Written:
    """Changes `func`, which it takes apart. Raises NoKernel."""
    said = take_apart(func)
    axes = axes_of(func, apart=any(op.name == "graph.contract" for op in func.walk()))
    args = [a for a in func.region.block.args if a.uses]
    made = layout(func, axes, {*spelling.taken, *(a.hint for a in args)})
    body = Body(func, axes, made, spelling, said)
    body.write()
    types = [(a.hint, typed(made, spelling, a, argument_place(axes, a))) for a in args]
    results = [typed(made, spelling, v, axes.of_value(v)) for v in func.region.block.ops[-1].operands]
    returned = results[0] if len(results) == 1 else f"tuple[{', '.join(results)}]"
    parameters = ", ".join(f"{n}: {t}" for n, t in types)
    head = f"def {name}({parameters}) -> {returned}:"
    if len(head) > WIDTH:
        head = f"def {name}(\n    {parameters}\n) -> {returned}:"
    return Written("\n".join([f"@{spelling.decorator}", head, *body.lines]), tuple(a.hint for a in args))


def take_apart(func: Op) -> set[Op]:
    """Leaves operators that `ts.tile` has, and gives the conversions that stand in the text."""
    from tessera.compiler.frontend.kernel.builtins import TILE_FUNCTIONS
    from tessera.compiler.graph.canonicalize import canonicalize
    from tessera.compiler.graph.decompose import decompose
    from tessera.compiler.graph.eliminate_dead import eliminate_dead

    said = {op for op in func.walk() if op.name == "graph.cast"}
    decompose(func, {name for name in TILE_FUNCTIONS if kind_of(name) in ("map", "reduce", "scan")})
    canonicalize(func)
    eliminate_dead(func)
    return said


def typed(made: Layout, spelling: Spelling, v: Value, place: tuple[Line | None, ...]) -> str:
    t = tensor(v)
    if not t.shape:
        return spelling.dtype(t.dtype)
    text = spelling.annotation(t.with_shape(made.shape(place)))
    if text is None:
        raise NoKernel(f"{t.pretty()} has no annotation in this file")
    return text


@dataclass(slots=True)
class Body:
    """What a kernel says. `names`: what is a tile already. `reads`: the tiles of texts that read memory."""

    func: Op
    axes: Axes
    layout: Layout
    spelling: Spelling
    said: set[Op]
    """conversions that stand in the text; others are those of operands that meet"""
    lines: list[str] = field(default_factory=list[str])
    names: dict[Value, str] = field(default_factory=dict[Value, str])
    reads: dict[str, str] = field(default_factory=dict[str, str])
    indent: str = "    "

    @property
    def ops(self) -> list[Op]:
        return self.func.region.block.ops

    def write(self) -> None:
        if self.layout.linear:
            self._add(f"{self.layout.linear} = {self.spelling.tile}.linear_id()")
        for dim in dict.fromkeys(self.layout.names[a] for a in self.axes.sums()):
            self._loop(dim)
        self.statements()

    def statements(self) -> None:
        """All but what begins a kernel: its lanes, and loops over products."""
        *ops, last = self.ops
        for op in ops:
            if op.result not in self.names and not self._passes(op) and not self._inner(op) and self._kept(op):
                self._assign(op)
        self._add(f"return {', '.join(self._results(last))}")

    def _results(self, last: Op) -> list[str]:
        """What is returned; of several results the long ones get names."""
        texts = [self._text(last, i) for i in range(len(last.operands))]
        if len(texts) > 1 and len(", ".join(texts)) > WIDTH - 16:
            for i, v in enumerate(last.operands):
                source = self._source(v)
                if source is not None and source.result not in self.names and len(texts[i]) > WIDTH // 4:
                    self._assign(source)
            texts = [self._text(last, i) for i in range(len(last.operands))]
        return texts

    def _add(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def _free(self, wanted: str) -> str:
        base, n = wanted, 2
        used = {*self.names.values(), *self.reads.values(), *self.layout.counters.values(), *self.spelling.taken}
        used |= {self.layout.linear, *(a.hint for a in self.func.region.block.args)} | {
            str(d) for d in self.layout.names.values()
        }
        while wanted in used or hasattr(builtins, wanted):
            wanted, n = f"{base}_{n}", n + 1
        return wanted

    # products
    def _loop(self, dim: Dim) -> None:
        """All products that sum over a dim, in one loop over it."""
        products = [op for a, op in self.axes.summed.items() if self.layout.names[a.found] == dim]
        rows, columns = self.layout.blocks
        tile, widths = self.spelling.tile, self.layout.widths
        for op in products:
            dtype = tensor(op.result).dtype.accumulate
            more = "" if dtype is dtypes.f32 else f", {self.spelling.dtype(dtype)}"
            name = self.names[op.result] = self._free(op.result.hint or "acc")
            self._add(f"{name} = {tile}.zeros(({widths[rows]}, {widths[columns]}){more})")
        summed = next(a for a in self.axes.sums() if self.layout.names[a] == dim)
        self._add(f"for {self.layout.counters[summed]} in {tile}.range_k(0, {dim}, {widths[summed]}):")
        self.indent += "    "
        for op in products:
            order = (0, 1) if rows in self.axes.of(op, 0) else (1, 0)
            factors = [self._text(op, i) for i in order]
            if len(", ".join(factors)) > WIDTH - 24:
                for n, at in enumerate(("left", "right")):
                    name = self._free(at)
                    self._add(f"{name} = {factors[n]}")
                    factors[n] = name
            self._add(f"{self.names[op.result]} += {tile}.mma({', '.join(factors)})")
        self.indent = self.indent[4:]

    def _inner(self, op: Op) -> bool:
        """Whether it belongs to a product's loop."""
        return any(a in self.axes.sums() for a in self.axes.of_value(op.result))

    # statements
    def _kept(self, op: Op) -> bool:
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

    def _assign(self, op: Op) -> None:
        text = self._unparsed(op)
        name = self._free(op.result.hint or self._said(op))
        self._add(f"{name} = {text}")
        self.names[op.result] = name

    def _said(self, op: Op) -> str:
        name = op.name.removeprefix("graph.")
        return f"row_{name}" if kind_of(name) == "reduce" else name

    def _unparsed(self, op: Op) -> str:
        """The text of an op. Where it is too long, a part of about half of it becomes a statement before it."""
        text = ast.unparse(self._value(op))
        if len(text) <= WIDTH - 16:
            return text
        sizes = {o: len(ast.unparse(self._value(o))) for o in self._inlined(op)}
        if sizes:
            self._assign(min(sizes, key=lambda o: abs(2 * sizes[o] - len(text))))
            return self._unparsed(op)
        return text

    def _inlined(self, op: Op) -> Iterator[Op]:
        """The ops whose texts stand in that of an op."""
        for v in op.operands:
            source = self._source(v)
            if source is not None and source.result not in self.names:
                yield source
                yield from self._inlined(source)

    def _source(self, v: Value) -> Op | None:
        """The op whose text stands for a value; None for arguments and numbers."""
        op = v.op
        while op is not None and self._passes(op):
            op = op.operands[0].op if op.operands else None
        return op

    # expressions
    def _text(self, op: Op, i: int) -> str:
        source = self._source(op.operands[i])
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
        """Blocks are loaded by a statement of their own; in a product's loop they are its operands."""
        if op.operands[i] in self.names:
            return self.names[op.operands[i]]
        text = self.layout.read(op, i)
        if text == op.operands[i].hint or self.layout.linear or (self._summed(op, i) and not self._repeated(text)):
            return text
        if text not in self.reads:
            name = self._free(f"{op.operands[i].hint}_tile")
            self._add(f"{name} = {text}")
            self.reads[text] = name
        return self.reads[text]

    def _summed(self, op: Op, i: int) -> bool:
        """Whether what it reads is an operand of a product, or becomes one."""
        return any(a in self.axes.sums() for a in self.axes.of(op, i))

    def _repeated(self, text: str) -> bool:
        return [self.layout.read(op, i) for op, i in self.axes.reads if self._summed(op, i)].count(text) > 1

    def _passes(self, op: Op) -> bool:
        """Whether it leaves no trace in the text, or a number only."""
        if op.name in _MOVES or op.name in ("graph.constant", "graph.full"):
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
        operands = [self._operand(op, i) for i in range(len(op.operands))]
        if name == "cast":
            return _call(f"{tile}.cast", operands, self.spelling.dtype(tensor(op.result).dtype))
        if name in TABLE:
            return _applied(tile, name, operands)
        extra = ["axis=-1"] if "axis" in op.attrs else []
        extra += ["keepdim=True"] if attributes_of(op).get("keepdims") and not self._squeezes() else []
        return _call(f"{tile}.{name}", operands, *extra)

    def _squeezes(self) -> bool:
        """Whether axes of size 1 are dropped somewhere. Then none are kept: vectors find their axis without."""
        moves = (op for op in self.ops if op.name == "graph.reshape" and op.operands[0].op is not None)
        return any(len(tensor(op.result).shape) < len(tensor(op.operands[0]).shape) for op in moves)

    def _number(self, op: Op, user: Op | None) -> ast.expr:
        value = op.attrs["value"]
        if not isinstance(value, (bool, int, float, complex)):
            return ast.Name(f"({kernel_dim(self.layout, value)})".strip("()"))  # type: ignore[arg-type]
        written = self.spelling.constant(user or op, value)
        if written is not None:
            return ast.Name(written)
        if isinstance(value, float) and not math.isfinite(value):
            return ast.Name(f'float("{value}")')
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
