"""Operators on kernel values: index arithmetic stays symbolic, lanes stay lanes, everything else becomes tile ops."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate.operators import COMPARISONS, PYTHON, compare_sizes
from tessera.compiler.frontend.kernel.access import Condition
from tessera.compiler.frontend.kernel.coordinates import COMPARED
from tessera.compiler.frontend.kernel.tiles import NUMBERS, KernelFault, operand_type, tile_type
from tessera.compiler.frontend.kernel.values import Axis, Lanes, marks
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import INDEX
from tessera.language import dims, dtypes
from tessera.language.dims import Dim, DimError, Expr
from tessera.language.scalars import BY_SYMBOL

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_SIZES = {"//": dims.floordiv, "%": dims.mod}


def binary(k: KernelState, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    left, right = _indexed(k, left), _indexed(k, right)
    if _sizes(left) and _sizes(right):
        return _of_sizes(k, symbol, left, right)
    if (isinstance(left, Expr) and isinstance(right, float)) or (isinstance(right, Expr) and isinstance(left, float)):
        return _of_numbers(k, symbol, left, right)
    if (lanes := _of_lanes(k, symbol, left, right)) is not None:
        return lanes
    if symbol == "@":
        a, a_axes = k.matrix(left)
        b, b_axes = k.matrix(right)
        return k.tiles.mma(a, b, a_axes, b_axes, None)
    if symbol == "**" and isinstance(right, int) and right == 2:
        return k.apply("square", left)
    a, b = k.operand(left), k.operand(right)
    if symbol == "**" and isinstance(right, int) and right < 0 and (dtype := operand_type(a).dtype).is_integer:
        raise KernelFault("TS301", f"{dtype} to the power of {right} is not {dtype}; write x ** {float(right)}")
    out = k.tiles.map(BY_SYMBOL[symbol, 2], a, b)
    if symbol in ("<", ">", "<=", ">="):
        _remember(k, out, symbol, left, right)
    elif symbol == "&":
        k.remember_both(out, a, b)
    return out


def _indexed(k: KernelState, v: Any) -> Any:
    return k.coordinates.of_index(v) if isinstance(v, Value) and v.type == INDEX else v


def _sizes(v: Any) -> bool:
    return isinstance(v, (int, Expr)) and not isinstance(v, bool)


def _of_sizes(k: KernelState, symbol: str, a: Dim, b: Dim) -> Any:
    try:
        if symbol in ("+", "-", "*"):
            return k.ev.facts.folded(PYTHON[symbol](a, b))
        if symbol in _SIZES:
            return k.ev.facts.normal(_SIZES[symbol](a, b))
    except DimError as e:
        raise KernelFault("TS107", f"ZeroDivisionError: {e}") from None
    if symbol in COMPARISONS:
        return compare(k, symbol, a, b)
    if symbol == "**" and isinstance(b, int) and 0 <= b <= 8:
        return dims.prod([a] * b)
    return _of_numbers(k, symbol, a, b)


def compare(k: KernelState, symbol: str, a: Dim, b: Dim) -> Any:
    """True or False where it holds for all or no sizes and programs; else a bool that each program computes."""
    x, y = k.tiles.known(a), k.tiles.known(b)
    if isinstance(x, int) and isinstance(y, int):
        return PYTHON[symbol](x, y)
    if not marks(x) | marks(y):
        answer = compare_sizes(k.ev, symbol, x, y)
        if answer is not None:
            return answer
    elif isinstance(difference := x - y, int):
        return PYTHON[symbol](difference, 0)
    return k.tiles.map(BY_SYMBOL[symbol, 2], k.tiles.scalar(x, dtypes.int64), k.tiles.scalar(y, dtypes.int64))


def _of_numbers(k: KernelState, symbol: str, a: Any, b: Any) -> Any:
    """Arithmetic that leaves the integers, such as `1 / S`: now where sizes are known, else in each program."""
    x, y = k.known(a), k.known(b)
    if isinstance(x, NUMBERS) and isinstance(y, NUMBERS):
        if budget.operation_explodes(symbol, x, y):
            raise KernelFault("TS111", f"{symbol} makes a value that is too large to compute at compile time")
        try:
            return PYTHON[symbol](x, y)
        except Exception as e:
            raise KernelFault("TS107", f"{type(e).__name__}: {e}") from None
    if (symbol, 2) not in BY_SYMBOL:
        raise KernelFault("TS105", f"{symbol} does not take sizes")
    dtype = dtypes.f32 if symbol == "/" or isinstance(x, float) or isinstance(y, float) else dtypes.int64
    return k.tiles.map(BY_SYMBOL[symbol, 2], k.tiles.scalar(x, dtype), k.tiles.scalar(y, dtype))


def _of_lanes(k: KernelState, symbol: str, left: Any, right: Any) -> Lanes | None:
    """`i + 1`, `pid * BLOCK + arange(BLOCK)`: displaced lanes are lanes."""
    if symbol not in ("+", "-"):
        return None
    if isinstance(left, Lanes) and isinstance(right, (int, Expr)) and _sizes(right):
        return _displaced(k, left, left.base + right if symbol == "+" else left.base - right)
    if isinstance(right, Lanes) and isinstance(left, (int, Expr)) and _sizes(left) and symbol == "+":
        return _displaced(k, right, right.base + left)
    return None


def _displaced(k: KernelState, x: Lanes, base: Dim) -> Lanes:
    """Lanes of `arange` belong to what moves their start: rows and columns of a block are two axes."""
    if x.launch is not None or not marks(base):
        return replace(x, base=base)
    return replace(x, base=base, axis=Axis(k.coordinates.walking(base, None), x.axis.size))


def _remember(k: KernelState, out: Value, symbol: str, left: Any, right: Any) -> None:
    """`i < n` and `i >= 1` bound lanes: the first is what the end of a tensor of n elements says anyway."""
    if isinstance(right, Lanes):
        left, right, symbol = right, left, _MIRROR[symbol]
    if not (isinstance(left, Lanes) and _sizes(right) and symbol in ("<", "<=", ">", ">=")):
        return
    limit = right + 1 if symbol in ("<=", ">") else right
    pair = frozenset({(left.base, limit)})
    if symbol in (">", ">="):
        k.conditions[out] = Condition(least=pair)
        return
    if isinstance(left.base, Expr):
        k.coordinates.observe(left.base, limit, COMPARED)
    k.conditions[out] = Condition(below=pair)


def unary(k: KernelState, symbol: str, operand: Any) -> Any:
    operand = _indexed(k, operand)
    if isinstance(operand, Expr):
        if symbol == "~":
            raise KernelFault("TS105", "~ does not take a size")
        return -operand if symbol == "-" else operand
    if symbol == "+":
        return operand
    if symbol == "~":
        x = k.tile(operand)
        return k.tiles.map("logical_not" if tile_type(x).dtype.kind == "bool" else "bit_not", x)
    return k.apply("neg", operand)


def logical(k: KernelState, symbol: str, values: list[Any]) -> Any:
    """`and`, `or`, `not` element by element."""
    tiles = [k.tiles.truth(k.tile(v)) for v in values]
    if symbol == "not":
        return k.tiles.map("logical_not", tiles[0])
    out = tiles[0]
    for t in tiles[1:]:
        joint = k.tiles.map(f"logical_{symbol}", out, t)
        if symbol == "and":
            k.remember_both(joint, out, t)
        out = joint
    return out
