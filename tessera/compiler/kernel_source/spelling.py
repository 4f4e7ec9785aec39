"""What stands in the text where an operator of the graph comes from: `ts.softmax`, `@`.

Operators are taken apart before they become kernels; a person who is told of one must find it in the program.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable

from tessera.compiler.frontend.syntax.parse import Source
from tessera.compiler.ir.core import Op

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.MatMult: "@", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not", ast.And: "and", ast.Or: "or",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_WIDEST = 40
"""characters of an expression that is no call and has no symbol"""
_FEW = 5


def written(source: Source, op: Op) -> str:
    """One operator; where the text has it in another file, by its own name."""
    node = _node(source.segment(op.span)) if op.span.file == source.file else None
    match node:
        case ast.Call(func=func):
            return _called(func)
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp():
            return _SYMBOLS[type(node.op)]
        case ast.AugAssign():
            return f"{_SYMBOLS[type(node.op)]}="
        case ast.Compare():
            return _SYMBOLS.get(type(node.ops[0]), "in")
        case ast.expr():
            return textwrap.shorten(ast.unparse(node), _WIDEST, placeholder=" ...")
        case _:
            return op.name.partition(".")[2].replace("contract", "matmul")


def all_written(source: Source, ops: Iterable[Op]) -> str:
    """Several, each piece of text once: `ts.exp, +, ts.softmax`; long ones are cut."""
    places = {op.span: written(source, op) for op in ops if op.name != "graph.cast"}
    names = list(places.values()) or ["a copy"]
    return ", ".join(names if len(names) <= _FEW else [*names[:3], f"{len(names) - 4} more", names[-1]])


def _called(function: ast.expr) -> str:
    """`ts.softmax`, `x.T.max`; of what is called on more than names, `.max`."""
    root = function
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) or not isinstance(function, ast.Attribute):
        return textwrap.shorten(ast.unparse(function), _WIDEST, placeholder=" ...")
    return f".{function.attr}"


def _node(text: str) -> ast.AST | None:
    """The expression, or the assignment with an operator, that a piece of text is."""
    for whole in (f"({text})", text):
        try:
            found = ast.parse(whole).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        if len(found) == 1:
            return found[0].value if isinstance(found[0], ast.Expr) else found[0]
    return None
