"""Expressions of the generated text, and the builder with which derivative rules write it.

The rules of `graph/operators/derivatives.py` ask a builder for operations; this one gives expressions of `ts.tile`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tessera.compiler.graph.operators.derivatives import ADJOINTS, STEPS
from tessera.compiler.ir.types import TensorType
from tessera.language.dtypes import DType

_SYMBOLS: dict[str, type[ast.operator]] = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "div": ast.Div, "floordiv": ast.FloorDiv, "mod": ast.Mod,
    "pow": ast.Pow, "logical_and": ast.BitAnd, "logical_or": ast.BitOr,
}  # fmt: skip
_COMPARED: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE,
}  # fmt: skip
SCALAR_OF: dict[type[ast.AST], str] = {ast.USub: "neg", ast.Invert: "bit_not", ast.BitXor: "bit_xor"}
SCALAR_OF.update((op, name) for name, op in (*_SYMBOLS.items(), *_COMPARED.items()))
"""what operators of Python are called among the scalar functions"""

ELSEWHERE = {"fabs": "abs", "power": "pow", "negative": "neg"}
"""further names of scalar functions"""
ELEMENTWISE = frozenset({*ADJOINTS, *STEPS, *ELSEWHERE})
"""the functions of ts.tile that work on one element of each operand"""


def unused(wanted: str, taken: set[str]) -> str:
    """A name that is not among those that are taken; from now on it is."""
    found, n = wanted, 1
    while found in taken:
        n += 1
        found = f"{wanted}_{n}"
    taken.add(found)
    return found


class Expression:
    """An expression, written when it is asked for: rules that do not read an operand leave nothing behind."""

    def __init__(self, node: ast.expr | Callable[[], ast.expr], dtype: DType) -> None:
        self._node, self.read = node, False
        self.type = TensorType((), dtype)

    @property
    def node(self) -> ast.expr:
        self.read = True
        if not isinstance(self._node, ast.expr):
            self._node = self._node()
        return self._node


def name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def number(value: float) -> ast.expr:
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def negated(node: ast.expr) -> ast.expr:
    """Of `a - b` and `-a` the shorter way."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return node.operand
    return ast.UnaryOp(ast.USub(), node)


def operation(symbol: str, a: ast.expr, b: ast.expr) -> ast.expr:
    """`a symbol b`, for the name of a scalar function that Python has a symbol for."""
    if symbol in _COMPARED:
        return ast.Compare(a, [_COMPARED[symbol]()], [b])
    if symbol == "mul" and isinstance(a, ast.UnaryOp) and isinstance(a.op, ast.USub):
        return negated(operation(symbol, a.operand, b))
    return ast.BinOp(a, _SYMBOLS[symbol](), b)


class TextBuilder:
    """What the rules take for the builder of a graph. `tile`: the file's name of ts.tile."""

    def __init__(self, tile: str, dtype: DType) -> None:
        self.tile, self.dtype = tile, dtype

    def __getattr__(self, function: str) -> Callable[..., Expression]:
        return lambda *operands: self.apply(function, *map(self._node, operands))

    def _node(self, operand: Any) -> ast.expr:
        return operand.node if isinstance(operand, Expression) else number(operand)

    def apply(self, function: str, *operands: ast.expr) -> Expression:
        if function == "neg":
            node = negated(*operands)
        elif len(operands) == 2 and (function in _SYMBOLS or function in _COMPARED):
            node = operation(function, *operands)
        else:
            node = self.call(function, *operands)
        return Expression(node, self.dtype)

    def to(self, v: Expression, dtype: DType) -> Expression:
        return v

    def conj(self, v: Expression) -> Expression:
        return v

    def call(self, function: str, *operands: ast.expr, **keywords: ast.expr) -> ast.expr:
        """`ts.tile.function(...)`"""
        callee = expression(f"{self.tile}.{function}")
        return ast.Call(callee, list(operands), [ast.keyword(k, v) for k, v in keywords.items()])
