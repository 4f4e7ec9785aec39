"""Python's builtins with a tensor argument: `abs(x)`, `max(x, y)`, `sum(parts)`, `float(x)`, `len(x)`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tessera.compiler.frontend.evaluate.expressions import iterate
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.function.trees import TREES
from tessera.compiler.frontend.function.untold import UNTOLD
from tessera.compiler.frontend.names.values import UNKNOWN, Number, OperatorRef, is_sequence, type_name
from tessera.compiler.ir.core import Value
from tessera.language import dtypes
from tessera.language.dims import Expr
from tessera.language.dtypes import DType

Args = list[Any]
Kwargs = dict[str, Any]


def _operator(name: str) -> Callable[..., Any]:
    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        return ev.layer.call(node, OperatorRef(name), args, kwargs)

    return run


def _extremum(pair: str, whole: str) -> Callable[..., Any]:
    """max(a, b) is elementwise; max(x) of one tensor is its largest element."""

    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and isinstance(args[0], Value):
            return ev.layer.call(node, OperatorRef(whole), args, kwargs)
        items = args if len(args) > 1 else iterate(ev, node, args[0])
        if items is None or kwargs:
            return UNKNOWN if items is None else ev.error("TS105", f"{whole} of tensors takes no keywords", node)
        out = items[0]
        for item in items[1:]:
            out = ev.layer.call(node, OperatorRef(pair), [out, item], {})
        return out

    return run


def _sum(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    items = iterate(ev, node, args[0])
    if items is None:
        return UNKNOWN
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    out, rest = (items[0], items[1:]) if start == 0 and type(start) is int and items else (start, items)
    for item in rest:
        out = ev.operate(node, "+", out, item)
    return out


def _cast(dtype: DType) -> Callable[..., Any]:
    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        if not isinstance(args[0], Value):  # a container or an object that holds tensors
            found = ev.decide(node, args[0]) if dtype is dtypes.bool_ and isinstance(node, ast.expr) else None
            what = f"{type_name(args[0])} does not convert to one {dtype}"
            return ev.error("TS105", what, node) if found is None else found
        type: Any = args[0].type
        if type.rank:
            return ev.error(
                "TS213",
                f"only a scalar converts to one {dtype}, not {type.pretty()}; cast(x, {dtype}) converts all",
                node,
            )
        return ev.layer.call(node, OperatorRef("cast"), [args[0], dtype], {})

    return run


def _asarray(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.asarray(x, dtype)` of a tensor, a number, or nested lists of both."""
    if not 1 <= len(args) <= 2 or not kwargs.keys() <= {"dtype"} or (len(args) == 2 and kwargs):
        return ev.error("TS105", "in a function this takes data and a dtype", node)
    data, dtype = args[0], kwargs.get("dtype", args[-1] if len(args) == 2 else None)
    if (numbers := _numbers_of(data)) > MOST_NUMBERS:
        message = (
            f"{numbers} numbers in a list are compiled one by one; make the array outside of the function, which may "
            "read it"
        )
        return ev.error("TS104", message, node)
    return _stacked(ev, node, data, dtype)


MOST_NUMBERS = 256
"""as many as a list may hold that becomes a tensor in a function"""


def _numbers_of(data: Any) -> int:
    return sum(map(_numbers_of, data)) if is_sequence(data) else 1


def _stacked(ev: Evaluator, node: ast.AST, data: Any, dtype: DType | None) -> Any:
    if is_sequence(data) and data:
        items = [_stacked(ev, node, item, dtype) for item in data]
        broken = next((item for item in items if not isinstance(item, Value)), None)
        return ev.layer.call(node, OperatorRef("stack"), [items], {}) if broken is None else broken
    if isinstance(data, Value):
        return data if dtype is None else ev.layer.call(node, OperatorRef("cast"), [data, dtype], {})
    if is_sequence(data):
        return ev.layer.call(node, OperatorRef("zeros"), [(0,)], {} if dtype is None else {"dtype": dtype})
    if isinstance(data, (bool, int, float, complex, Number, Expr)):
        kind = type(data) if isinstance(data, (bool, int, float, complex)) else getattr(data, "type", int)
        usual = {bool: dtypes.bool_, int: dtypes.int64, complex: dtypes.complex64}.get(kind, dtypes.f32)
        return ev.layer.call(node, OperatorRef("full"), [(), data], {"dtype": dtype or usual})
    return ev.error("TS105", f"only tensors, numbers and lists of them become a tensor, not {type_name(data)}", node)


def _len(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    type: Any = args[0].type
    return type.shape[0] if type.rank else ev.error("TS105", "a scalar has no length", node)


def _power(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    return (
        ev.operate(node, "**", args[0], args[1]) if len(args) == 2 else ev.error("TS105", "pow takes 2 arguments", node)
    )


def _effect(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    message = "print of a tensor is an effect, which functions do not have yet; return the tensor and print it outside"
    return ev.error("TS102", message, node)


def _reject(name: str) -> Callable[..., Any]:
    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        given = [*args, *kwargs.values()]
        found = next((a for a in given if ev.layer.owns(a) or is_sequence(a)), given[0])
        return ev.error("TS105", f"{name} cannot be called with {type_name(found)}", node)

    return run


TENSOR_BUILTINS: dict[str, Callable[..., Any]] = {
    **{n: _reject(n) for n in ("complex", "divmod", "repr", "slice", "sorted", "str", "type")},
    "abs": _operator("abs"), "round": _operator("round"), "any": _operator("any"), "all": _operator("all"),
    "max": _extremum("maximum", "max"), "min": _extremum("minimum", "min"), "sum": _sum, "pow": _power, "len": _len,
    "float": _cast(dtypes.f32), "int": _cast(dtypes.int64), "bool": _cast(dtypes.bool_), "print": _effect,
    **{f"tessera.{n}": _asarray for n in ("asarray", "array", "tensor", "Tensor")}, **TREES, **UNTOLD,
}  # fmt: skip
