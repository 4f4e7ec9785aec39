"""Computed tiles that products read turned, `p.T @ d`, are computed turned from the start.

Keys and values add up what queries give them: their products sum along the rows of scores. Scores with a row for each
key, `k @ q.T`, need no turning on the way to these products, and blocks of parameters are read turned as well as not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, TypeGuard

from tessera.compiler.frontend.backward.code import ELEMENTWISE, SCALAR_OF
from tessera.compiler.frontend.backward.derive import Derivation
from tessera.compiler.frontend.kernel.broadcasting import BroadcastError
from tessera.compiler.frontend.kernel.values import View
from tessera.compiler.frontend.syntax.trees import clone

_ALIKE = frozenset({"cast", "zeros_like"})
"""functions that keep the axes of their first operand"""
_PRODUCTS = frozenset({"mma", "dot"})


def turned(made: Derivation, body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a kernel with some of its computed matrices turned, if then fewer have to be turned for
    products; otherwise as they are."""
    tiles = StatementTiles(made, body)
    best, least = body, tiles.turnings(body)
    for matrices in (set[str](), tiles.aliases, tiles.matrices - tiles.aliases, tiles.matrices):
        if not least:
            break
        try:
            new = _Orientation(tiles, matrices).of(body)
        except _FixedError:
            continue
        if (turnings := tiles.turnings(new)) < least:
            best, least = new, turnings
    return best


class _FixedError(Exception):
    """An expression that is not known to have a turned form."""


class StatementTiles:
    """What the names of a kernel's statements stand for. `blocks`: they read a block of an array, turned or not;
    `matrices`: what may be turned; `aliases`: those of them that are others turned."""

    def __init__(self, made: Derivation, body: list[ast.stmt]) -> None:
        self.made, self.rec, self.tile = made, made.rec, f"{made.tile}."
        self.values: dict[str, list[ast.expr | None]] = {}
        for x in (n for s in body for n in ast.walk(s)):
            if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Name):
                self.values.setdefault(x.targets[0].id, []).append(x.value)
            elif isinstance(x, ast.AugAssign) and isinstance(x.target, ast.Name):
                self.values.setdefault(x.target.id, []).append(None)
        known = [
            (ast.dump(n), n)
            for n in self.rec.values
            if isinstance(n, (ast.Name, ast.Subscript, ast.Call, ast.Attribute))
        ]
        self.nodes: dict[str, Any] = dict(known)
        """expressions of the kernel's text, by their dumps"""
        self.ranks: dict[str, int | None] = {}
        single = {n: values[0] for n, values in self.values.items() if len(values) == 1}
        self.blocks = {n for n, value in single.items() if value is not None and self.is_block(value)}
        self.matrices = {n for n, value in single.items() if self.known(n) == 2
                         and (n not in self.blocks or _is_turned(value))}  # fmt: skip
        self.aliases = {n for n in self.matrices - self.blocks if _is_turned(single[n])}

    def is_block(self, node: ast.expr) -> bool:
        """Whether an expression is a block of an array as it stands there, or turned."""
        node = node.value if _is_turned(node) else node
        return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id not in self.values

    def function(self, node: ast.expr) -> str:
        """The name of the function of ts.tile that is called, or of the one that an operator stands for."""
        match node:
            case ast.BinOp(op=ast.MatMult()):
                return "mma"
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.Compare(ops=[op]):
                return "elementwise" if type(op) in SCALAR_OF else ""
            case ast.Call(func=callee):
                text = ast.unparse(callee)
                found = text.removeprefix(self.tile) if text.startswith(self.tile) else None
                if found is None and (said := self.nodes.get(ast.dump(node))) is not None:
                    found = self.rec.function(said)
                return "elementwise" if found in ELEMENTWISE or found == "where" else found or ""
            case _:
                return ""

    def known(self, n: str) -> int | None:
        """The rank of what a name stands for; None where it is not known."""
        if n not in self.ranks:
            self.ranks[n] = None
            self.ranks[n] = self.found(n)
        return self.ranks[n]

    def said(self, n: str) -> Any:
        """An expression of the kernel's text with the axes of what a name stands for; None where there is none."""
        said = self.made.pulls.like.get(n)
        if said is None and (item := self.made.reading.definition(n)) is not None:
            said = item.value
        if said is None and n not in self.values:
            said = self.nodes.get(f"Name(id={n!r}, ctx=Load())")
        return said if said is not None and said in self.rec.values else None

    def along_rows(self, vector: ast.expr, beside: ast.expr) -> bool | None:
        """Whether the axis of a vector is that of a matrix's rows, by what they are; None where that is not known."""
        names = [
            x
            for v in (beside, vector)
            if (x := self.said(v.id) if isinstance(v, ast.Name) else self.nodes.get(ast.dump(v))) is not None
            and self.rec.tile(x) is not None
        ]
        if len(names) != 2 or self.rec.rank(names[0]) != 2:
            return None
        try:
            places = self.rec.places(names)[1]
        except BroadcastError:
            return None
        return places == (0,) if len(places) == 1 else None

    def found(self, n: str) -> int | None:
        said = self.said(n)
        if said is not None:
            value = self.rec.value(said)
            return None if isinstance(value, View) and isinstance(said, ast.Name) else self.rec.rank(said)
        values = self.values.get(n, [])
        return self.rank(values[0]) if len(values) == 1 and values[0] is not None else None

    def rank(self, node: ast.expr) -> int | None:
        match node:
            case ast.Constant():
                return 0
            case ast.Name(id=n):
                return self.known(n)
            case ast.Attribute(value=value, attr="T"):
                return self.rank(value)
            case ast.Subscript() if (axes := _inserted(node)) is not None:
                return len(axes)
            case _:
                pass
        function = self.function(node)
        if function == "elementwise":
            ranks = [self.rank(x) for x in _operands(node)]
            return None if None in ranks else max(r for r in ranks if r is not None)
        if function in _ALIKE and isinstance(node, ast.Call) and node.args:
            return self.rank(node.args[0])
        if function in _PRODUCTS or function == "causal_mask":
            return 2
        said = self.nodes.get(ast.dump(node))
        return self.rec.rank(said) if said is not None and not isinstance(self.rec.value(said), View) else None

    def turnings(self, body: list[ast.stmt]) -> int:
        """How many tiles are turned on their way, blocks that a product reads aside."""
        every = [n for s in body for n in ast.walk(s)]
        free = {id(x) for n in every if isinstance(n, ast.expr) and self.function(n) in _PRODUCTS for x in _operands(n)
                if self.of_block(x)}  # fmt: skip
        free |= {id(n.value) for n in every if isinstance(n, ast.Assign) and self.of_block(n.value)}
        return sum(_is_turned(n) and id(n) not in free for n in every)

    def of_block(self, node: ast.expr) -> bool:
        return _is_turned(node) and (
            self.is_block(node) or (isinstance(node.value, ast.Name) and node.value.id in self.blocks)
        )


class _Orientation(ast.NodeTransformer):
    """Writes expressions of turned matrices: `visit` gives what has the value of before, `turn` what is turned."""

    def __init__(self, tiles: StatementTiles, matrices: set[str]) -> None:
        self.tiles, self.matrices = tiles, matrices
        self.same: dict[str, str] = {}
        """names that turned are others"""

    def of(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [new for x in clone(body) if (new := self.visit(x)) is not None]

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        target = node.targets[0]
        if not isinstance(target, ast.Name) or target.id not in self.matrices:
            return ast.Assign(node.targets, self.visit(node.value), lineno=1)
        value = self.turn(node.value)
        if isinstance(value, ast.Name):
            self.same[target.id] = value.id
            return None
        return ast.Assign(node.targets, value, lineno=1)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _transposed(self.turn(node)) if node.id in self.matrices and isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.turn(node.value) if _is_turned(node) else self.generic_visit(node)

    def turn(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Name(id=n) if n in self.matrices:
                return ast.Name(self.same.get(n, n), ast.Load())
            case ast.Attribute(value=value) if _is_turned(node):
                return self.visit(value)
            case ast.BinOp(left=a, op=ast.MatMult(), right=b):
                return ast.BinOp(self.turn(b), ast.MatMult(), self.turn(a))
            case _:
                pass
        function = self.tiles.function(node)
        if function == "elementwise":
            return self.elementwise(node)
        match node:
            case ast.Call(args=[a, b, *rest], keywords=[]) if function in _PRODUCTS:
                return ast.Call(node.func, [self.turn(b), self.turn(a), *map(self.turn, rest)], [])
            case ast.Call(args=[x, *rest]) if function in _ALIKE:
                return ast.Call(node.func, [self.turn(x), *rest], node.keywords)
            case ast.Call(args=[x, *rest]) if function == "causal_mask" and len(rest) < 4:
                own = [k for k in node.keywords if k.arg != "transposed"]
                if not any(isinstance(k.value, ast.Constant) and k.value.value for k in node.keywords if k not in own):
                    own.append(ast.keyword("transposed", ast.Constant(True)))
                return ast.Call(node.func, [self.turn(x), *rest], own)
            case _:
                pass
        if self.tiles.rank(node) != 2:
            raise _FixedError
        return _transposed(self.visit(node))

    def elementwise(self, node: Any) -> ast.expr:
        match node:
            case ast.BinOp(left=a, op=op, right=b):
                return ast.BinOp(self.operand(a, b), op, self.operand(b, a))
            case ast.UnaryOp(op=op, operand=a):
                return ast.UnaryOp(op, self.operand(a, a))
            case ast.Compare(left=a, ops=ops, comparators=[b]):
                return ast.Compare(self.operand(a, b), ops, [self.operand(b, a)])
            case ast.Call(func=callee, args=args, keywords=[]):
                matrix = next((x for x in args if self.tiles.rank(x) == 2), args[0])
                return ast.Call(callee, [self.operand(x, matrix) for x in args], [])
            case _:
                raise _FixedError

    def operand(self, node: ast.expr, beside: ast.expr) -> ast.expr:
        """Vectors that lay along rows lie along columns, and those along columns along rows."""
        rank = self.tiles.rank(node)
        if isinstance(node, ast.Subscript) and rank == 2 and (axes := _inserted(node)) is not None and None in axes:
            index: list[ast.expr] = [ast.Slice() if x is None else ast.Constant(None) for x in axes]
            return ast.Subscript(self.visit(node.value), ast.Tuple(index, ast.Load()), ast.Load())
        if rank == 1:
            rows = self.tiles.along_rows(node, beside)
            if rows is None:
                raise _FixedError
            index = [ast.Constant(None), ast.Slice()] if rows else [ast.Slice(), ast.Constant(None)]
            return ast.Subscript(self.visit(node), ast.Tuple(index, ast.Load()), ast.Load())
        if rank not in (0, 2):
            raise _FixedError
        return self.turn(node) if rank else self.visit(node)


def _is_turned(node: Any) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr == "T"


def _transposed(node: ast.expr) -> ast.expr:
    return ast.Attribute(node, "T", ast.Load())


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left=a, right=b) | ast.Compare(left=a, comparators=[b]):
            yield from (a, b)
        case ast.UnaryOp(operand=a):
            yield a
        case ast.Call(args=args):
            yield from args
        case _:
            pass


def _inserted(node: ast.Subscript) -> list[ast.Slice | None] | None:
    """The axes of `x[:, None]`: None where it inserts one. None where it is another subscript, or inserts none."""
    index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    found: list[ast.Slice | None] = []
    for i in index:
        if isinstance(i, ast.Constant) and i.value is None:
            found.append(None)
        elif isinstance(i, ast.Slice) and i.lower is i.upper is i.step is None:
            found.append(i)
        else:
            return None
    return found if None in found else None
