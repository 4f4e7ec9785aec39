"""The calls that the cells of a session have made, so that a page can offer to profile one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

NEWEST = 50
"""cells that are searched"""
_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_EFFECTS = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, *_OWN_SCOPE, *_COMPREHENSIONS)
"""not in arguments: to compute them again might do more than to compute them"""
_VIEWS = frozenset({"astype", "copy", "ravel", "reshape", "swapaxes", "transpose"})
"""methods of arrays that change nothing"""
_MAGICS = ("run_line_magic", "run_cell_magic")
_OPTIONS = re.compile(r"^(\s*-\w+\s*\d*)+\s+")


class _Call(NamedTuple):
    """What is called, the expression, the names in it, and those of which functions are called in its arguments: they
    have to be NumPy, whose functions change nothing (those of its submodules, such as `np.random`, are not taken)."""

    name: str
    expression: str
    used: frozenset[str]
    modules: frozenset[str]


def last_calls(namespace: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """The newest call of each of these functions that can be made again: its arguments consist of names that still
    exist, constants, operators, and calls that change nothing."""
    found: dict[str, str] = {}
    for source in reversed(namespace.get("In", [])[-NEWEST:]):
        for name, expression, used, modules in reversed(_calls(source)):
            known = used <= namespace.keys() and all(namespace[m] is np for m in modules)
            if name in names and name not in found and known:
                found[name] = expression
    return found


@lru_cache(maxsize=4 * NEWEST)
def _calls(source: str) -> tuple[_Call, ...]:
    """The calls of a cell's own statements."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_found(tree))


def _found(node: ast.AST) -> Iterator[_Call]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*_OWN_SCOPE, *_COMPREHENSIONS)):  # these have names of their own
            yield from _found(child)
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute) and node.func.attr in _MAGICS:
        last = node.args[-1] if node.args else None
        if isinstance(last, ast.Constant) and isinstance(last.value, str):  # %time f(x)
            yield from _calls(_OPTIONS.sub("", last.value))
        return
    arguments = [*node.args, *(k.value for k in node.keywords)]
    parts = [part for a in arguments for part in ast.walk(a)]
    inner = [part.func for part in parts if isinstance(part, ast.Call)]
    modules = frozenset(
        f.value.id
        for f in inner
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.attr not in _VIEWS
    )
    harmless = all(isinstance(f, ast.Attribute) and (f.attr in _VIEWS or isinstance(f.value, ast.Name)) for f in inner)
    if harmless and not any(isinstance(part, _EFFECTS) for part in parts):
        used = frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
        yield _Call(ast.unparse(node.func), ast.unparse(node), used, modules)
