"""Operators: ordinary values are computed now, sizes by the dimension algebra, the rest by the layer."""

from __future__ import annotations

import ast
import inspect
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate.machine import Evaluator, method
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import same
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    ClassRef,
    Number,
    Record,
    Unknown,
    has_unknown,
    is_named,
    is_sequence,
    is_static,
    type_name,
)
from tessera.language import dims
from tessera.language.dims import DimError, Expr, Facts

SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip

_: Any = operator  # whose stubs leave operand types open
PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": _.add, "-": _.sub, "*": _.mul, "/": _.truediv, "//": _.floordiv,
    "%": _.mod, "**": _.pow, "@": _.matmul, "&": _.and_, "|": _.or_,
    "^": _.xor, "<<": _.lshift, ">>": _.rshift, "==": _.eq, "!=": _.ne,
    "<": _.lt, "<=": _.le, ">": _.gt, ">=": _.ge,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {"-": _.neg, "+": _.pos, "~": _.invert}
LONGEST = 1_000
"""characters of an expression that is kept for people"""
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_SIZE: dict[str, Callable[[Any, Any], Any]] = {
    "+": _.add, "-": _.sub, "*": _.mul, "//": dims.floordiv, "%": dims.mod,
}  # fmt: skip
_SPECIAL = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip
_REFLECTED = {"==": "eq", "!=": "ne", "<": "gt", "<=": "ge", ">": "lt", ">=": "le"}
_PROGRAMS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow"}


@method
def operate(ev: Evaluator, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return UNKNOWN
    if isinstance(left, Record) or isinstance(right, Record):
        found = _of_instances(ev, node, symbol, left, right)
        if found is not MISSING:
            return found
    if ev.layer.owns(left) or ev.layer.owns(right):
        return ev.layer.binary(node, symbol, left, right)
    if isinstance(left, (Expr, Number)) or isinstance(right, (Expr, Number)):
        return _sized(ev, node, symbol, left, right)
    if symbol in ("==", "!=") and (is_named(left) or is_named(right)):
        return same(left, right) is (symbol == "==")
    if is_sequence(left) and is_sequence(right) and symbol in ("==", "!="):
        return _same_items(ev, node, symbol, left, right)
    if (symbol in "+*" and is_sequence(left)) or (symbol == "*" and is_sequence(right)):
        return _python(ev, node, symbol, left, right)
    if not (is_static(left) and is_static(right)):
        if has_unknown(left) or has_unknown(right):
            return UNKNOWN
        return ev.error("TS105", f"{symbol} does not take {type_name(left)} and {type_name(right)}", node)
    return _python(ev, node, symbol, left, right)


def unary(ev: Evaluator, node: ast.AST, symbol: str, operand: Any) -> Any:
    """`-x`, `+x`, `~x`; `not x` is a matter of truth, not of arithmetic."""
    if isinstance(operand, Unknown):
        return UNKNOWN
    if ev.layer.owns(operand):
        return ev.layer.unary(node, symbol, operand)
    if isinstance(operand, Record):
        found = ev.special(node, operand, {"-": "neg", "+": "pos", "~": "invert"}[symbol])
        wrong = f"{symbol} does not take {type_name(operand)}"
        return ev.error("TS105", wrong, node) if found is MISSING else found
    if isinstance(operand, Expr):
        return -operand if symbol == "-" else operand
    if isinstance(operand, Number):
        return Number(operand.type, _written(f"{symbol}{operand.text}"), ("neg", operand) if symbol == "-" else ())
    try:
        return UNARY[symbol](operand)
    except Exception as e:
        return ev.error("TS107", f"{type(e).__name__}: {e}", node)


@method
def special(ev: Evaluator, node: ast.AST, record: Record, name: str, *args: Any) -> Any:
    """What the method `__name__` of an instance's class gives; MISSING where the class has none of its own."""
    found = _method_of(record.cls, f"__{name}__")
    return MISSING if found is MISSING else ev.call(node, found, [record, *args], {})


def _method_of(cls: Any, name: str) -> Any:
    if isinstance(cls, ClassRef):
        found = cls.members.get(name)
        return found if isinstance(found, Closure) else MISSING
    found = inspect.getattr_static(cls, name, None) if isinstance(cls, type) else None
    written = isinstance(found, types.FunctionType) and found.__code__.co_filename != "<string>"  # no dataclass's own
    return found if written else MISSING


def _of_instances(ev: Evaluator, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right`, of which one is an instance, by its special methods; MISSING where they do not tell."""
    name = _SPECIAL[symbol]
    found = special(ev, node, left, name, right) if isinstance(left, Record) else MISSING
    if (found is MISSING or found is NotImplemented) and isinstance(right, Record):
        found = special(ev, node, right, _REFLECTED.get(symbol, f"r{name}"), left)
    return MISSING if found is NotImplemented else found


def _python(ev: Evaluator, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    if budget.operation_explodes(symbol, left, right):
        return ev.too_large(node, symbol)
    try:
        return ev.weighed(node, PYTHON[symbol](left, right))
    except Exception as e:
        called = next((n for n in _given_none(node, left, right)), None)
        how = f"; {ast.unparse(called.func)} returns nothing, its def has no return" if called is not None else ""
        return ev.error("TS107", f"{type(e).__name__}: {e}{how}", node)


def _given_none(node: ast.AST, left: Any, right: Any) -> Iterator[ast.Call]:
    """The calls beside the operator that gave None."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    yield from (n for n, v in zip(sides, (left, right), strict=False) if v is None and isinstance(n, ast.Call))


def _sized(ev: Evaluator, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    """Arithmetic and comparison where at least one side is a symbolic size, or a number that depends on one."""
    text = _written(f"{_operand(left)} {symbol} {_operand(right)}")
    if symbol in ("==", "!=") and not (_numeric(left) and _numeric(right)):
        return symbol == "!="
    if not (_numeric(left) and _numeric(right)):
        return ev.error("TS105", f"{symbol} does not take {type_name(left)} and {type_name(right)}", node)
    sizes = isinstance(left, (int, Expr)) and isinstance(right, (int, Expr))
    if symbol in COMPARISONS:
        answer = compare_sizes(ev, symbol, left, right) if sizes else None
        return Number(bool, text) if answer is None else answer
    if sizes and symbol in _SIZE:
        try:
            found = _SIZE[symbol](left, right)
            ev.steps += found.weight // 16 if isinstance(found, Expr) else 0  # long sizes take long
            return ev.facts.normal(found) if symbol in ("//", "%") else whole(found, ev.facts)
        except DimError as e:
            return ev.bad_size(e, node)
    if sizes and symbol == "**" and isinstance(right, int) and 0 <= right <= 8:
        return dims.prod([left] * right)
    if sizes and symbol == "/" and right == 0:
        return ev.error("TS107", "ZeroDivisionError: division by zero", node)
    integer = symbol != "/" and all(
        isinstance(v, (int, Expr)) or (isinstance(v, Number) and v.type is int) for v in (left, right)
    )
    made = (_PROGRAMS[symbol], left, right) if symbol in _PROGRAMS and not integer else ()
    return Number(int if integer else float, text, made)


def whole(d: Any, facts: Facts) -> Any:
    """`H * (D // H)` is D where H divides D."""
    for a, b in facts.divisible:
        part = b * dims.floordiv(a, b)
        if isinstance(d, Expr) and isinstance(part, Expr) and dims.mod(d, part) == 0:
            d = dims.floordiv(d, part) * a
    return d


def compare_sizes(ev: Evaluator, symbol: str, left: Any, right: Any) -> bool | None:
    """Whether a comparison holds for all sizes (True), for none (False), or for some (None). Symbols are at least 1."""
    difference = ev.facts.normal(left) - ev.facts.normal(right)
    low, high = dims.bounds(difference, ev.facts)
    if symbol in ("==", "!="):
        if difference == 0:
            return symbol == "=="
        return symbol == "!=" if (low is not None and low > 0) or (high is not None and high < 0) else None
    if symbol in (">", ">="):
        low, high, symbol = (None if high is None else -high), (None if low is None else -low), "<" + symbol[1:]
    limit = -1 if symbol == "<" else 0
    if high is not None and high <= limit:
        return True
    return False if low is not None and low > limit else None


def _same_items(ev: Evaluator, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    """`x.shape == (B, S)`: item by item, with the dimension algebra for sizes."""
    if type(left) is not type(right) or len(left) != len(right):
        return symbol == "!="
    answers = [operate(ev, node, "==", a, b) for a, b in zip(left, right, strict=True)]
    if any(a is False for a in answers):
        return symbol == "!="
    if all(a is True for a in answers):
        return symbol == "=="
    return UNKNOWN if any(isinstance(a, Unknown) for a in answers) else Number(bool, f"{left} {symbol} {right}")


def _numeric(v: Any) -> bool:
    return isinstance(v, (bool, int, float, complex, Expr, Number))


def _written(text: str) -> str:
    """A number for display, shortened, because one that is built from itself again and again would double at each
    step."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _operand(v: Any) -> str:
    if isinstance(v, Number):
        return f"({v.text})" if " " in v.text else v.text
    return f"({v})" if isinstance(v, Expr) and len(v.terms) > 1 else str(v)
