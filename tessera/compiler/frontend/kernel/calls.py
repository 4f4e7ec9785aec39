"""Calls in kernels: functions of `ts.tile`, Python's builtins over tiles, and operators that belong elsewhere."""

from __future__ import annotations

import ast
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.evaluate.attributes import name_span
from tessera.compiler.frontend.kernel.builtins import BUILTINS, public
from tessera.compiler.frontend.kernel.tiles import NUMBERS, KernelFault
from tessera.compiler.frontend.kernel.values import View
from tessera.compiler.frontend.names.values import is_sequence, type_name
from tessera.errors import Edit, Fix, Span
from tessera.language import dtypes
from tessera.language.absent import instead
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

PYTHON_NAMES = {"abs": "abs", "max": "maximum", "min": "minimum", "round": "round", "pow": "pow"}
OF_ITEMS = {"max": "maximum", "min": "minimum", "sum": "add", "any": "logical_or", "all": "logical_and"}
"""builtins that combine the items of a list, or the elements of a tile -> what they combine two by"""


def graph_form(k: KernelState, node: ast.AST, name: str) -> Any:
    fixes: tuple[Fix, ...] = ()
    hint = "; a kernel uses the functions of ts.tile"
    if name in BUILTINS:
        hint = f"; use ts.tile.{name} here"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = k.ev.span(node.func.value)
            at = Span(owner.file, owner.end_line, owner.end_col, owner.end_line, owner.end_col)
            fixes = (Fix(f"Use the tile function {name}", (Edit(at, ".tile"),)),)
    return k.ev.error("TS401", f"{name} works on whole tensors and cannot be used in a kernel{hint}", node, fixes=fixes)


def tile_call(k: KernelState, node: ast.AST, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    builtin = BUILTINS.get(name)
    if builtin is None:
        named = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        hint, fixes = k.ev.suggest(name, public(), name_span(k.ev, named) if named else k.ev.span(node))
        if other := instead(name, "tessera.tile"):
            hint, fixes = f"; {other}", ()
        return k.ev.error("TS104", f"ts.tile has no function {name!r}{hint}", node, fixes=fixes if named else ())
    try:
        bound = builtin.bind(args, kwargs)
    except TypeError as e:
        raise KernelFault("TS105", f"{builtin.signature}: {e}") from None
    k.calling = node
    return builtin.build(k, *bound.args, **bound.kwargs)


def function_of(name: str, count: int) -> str | None:
    """The function of ts.tile that a builtin of Python means for so many arguments; None where there is none."""
    if name in PYTHON_NAMES and count == (1 if name in ("abs", "round") else 2):
        return PYTHON_NAMES[name]
    return name if (name in OF_ITEMS and count == 1) or (name == "print" and count) else None


def _items(name: str, args: list[Any]) -> list[Any]:
    """What a builtin combines in `max(a, b, c)`, `sum([a, b])` and their like; nothing where it takes one tile."""
    if len(args) == 1 or (len(args) == 2 and name == "sum"):
        return [*args[1:], *args[0]] if is_sequence(args[0]) else []
    return args if name in PYTHON_NAMES and len(args) > 2 else []


def python_call(k: KernelState, node: ast.AST, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Python's builtins over tiles, lanes and sizes."""
    known = [k.known(a) for a in args]
    if name in ("int", "float", "bool", "complex") and len(args) == 1:
        if isinstance(known[0], NUMBERS):
            convert: dict[str, Any] = {"int": int, "float": float, "bool": bool, "complex": complex}
            return convert[name](known[0])
        if name == "int" and isinstance(args[0], Expr):
            return args[0]
        return k.tiles.cast(k.tile(args[0]), {"int": dtypes.int64, "bool": dtypes.bool_}.get(name, dtypes.f32))
    if name in OF_ITEMS and not kwargs and (items := _items(name, args)):
        add = partial(k.ev.operate, node, "+")  # of sizes, too
        return reduce(add if name == "sum" else partial(k.apply, OF_ITEMS[name]), items)
    if (function := function_of(name, len(args))) is not None:
        alike = function in PYTHON_NAMES.values()
        return k.apply(function, *args) if alike else tile_call(k, node, function, args, kwargs)
    if name == "len" and isinstance(args[0], View):
        return args[0].shape[0]
    what = f"{len(args)} arguments" if len(args) > 1 else type_name(args[0]) if args else "nothing"
    hint = f"; for one axis there is ts.tile.{name}(x, axis=...)" if name in OF_ITEMS else ""
    raise KernelFault("TS105", f"{name} does not take {what} in a kernel{hint}")
