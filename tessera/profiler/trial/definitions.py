"""What the text of calls leaves to other texts: in a notebook, the functions stand in cells of their own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import tessera
from tessera.language.decorators import Decorated


def definitions_above(tree: ast.Module, statements: Iterable[ast.AST], space: Mapping[str, Any]) -> str:
    """Lines that give names the meaning that they have in `space`: those that `statements` read and `tree` does not
    bind, and those that these need. Arrays and whatever else has no text are left out."""
    bound = _bound(tree)
    wanted = [name for name in _read(statements) if name not in bound]
    lines: dict[str, str] = {}
    for name in wanted:
        if name in lines or name not in space:
            continue
        lines[name], tree_of_it = _said(name, space[name])
        if tree_of_it is not None:
            wanted += [n for n in _read([tree_of_it]) if n not in bound]
    return "".join(line for line in reversed(lines.values()) if line)


def _said(name: str, value: Any) -> tuple[str, ast.AST | None]:
    """The lines, and the tree whose names they need."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}\n", None
    if isinstance(value, (bool, int, float, str)):
        return f"{name} = {value!r}\n", None
    if isinstance(value, Decorated):
        python = value.__wrapped__
        module = sys.modules.get(python.__module__)
        if module is not None and python.__module__ != "__main__" and vars(module).get(name) is value:
            return f"from {python.__module__} import {name}\n", None
        found = value.definition()
        if found.name == name:
            lines = found.source.splitlines()[found.line - 1 : found.tree.end_lineno]
            return "\n".join(lines) + "\n\n", found.tree
    if getattr(tessera, name, None) is value:
        return f"from tessera import {name}\n", None
    return "", None


def _bound(tree: ast.Module) -> set[str]:
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return found


def _read(nodes: Iterable[ast.AST]) -> list[str]:
    names = [n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return list(dict.fromkeys(names))
