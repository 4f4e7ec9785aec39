"""Which calls of a file are made, and of what for certain: what may be said of them before it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tessera.compiler.frontend.called.arguments import Names
from tessera.compiler.frontend.names.values import Record
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.language.annotations import dotted_name

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)
"""what has names of its own"""
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def may_fail(node: ast.AST) -> bool:
    """Whether a file asks for errors in it: `try`, `with pytest.raises(...)`, or another function of that name."""
    if isinstance(node, ast.With):
        return any(may_fail(i.context_expr) for i in node.items)
    if isinstance(node, ast.Call):
        return "raises" in dotted_name(node.func).lower()
    return isinstance(node, ast.Try)


@by_node
def calls_for_certain(statement: ast.stmt) -> frozenset[ast.Call]:
    """The calls in a statement of which no error is asked for."""
    found: set[ast.Call] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if not may_fail(node):
            found |= {node} if isinstance(node, ast.Call) else set()
            pending += ast.iter_child_nodes(node)
    return frozenset(found)


def has_one_value(node: ast.expr, names: Names) -> bool:
    """Whether an expression has the value that `names` give it wherever it stands: each name in it is assigned once, or
    is an object that its further assignments update, `model, state = opt.update(model, ...)`."""
    seen: set[str] = set()
    pending: list[ast.AST] = [node]
    while pending:
        for n in ast.walk(pending.pop()):
            if isinstance(n, ast.Name) and n.id not in seen:
                seen.add(n.id)
                value = _assigned(n.id, names)
                if value is None:
                    return False
                pending.append(value)
    return True


def _assigned(name: str, names: Names) -> ast.AST | None:
    """What a name is assigned, or what defines or imports it; None where that may be one of several."""
    frame: object = names
    while isinstance(frame, Names) and name not in _binders(frame.node):
        frame = frame.outer
    if not isinstance(frame, Names):
        return ast.Pass()  # a builtin, or a name of an import that is not read
    first, *others = _binders(frame.node)[name]
    if isinstance(first, _DEFINING):
        return ast.Pass() if not others else None
    if not isinstance(first, (ast.Assign, ast.AnnAssign)) or first.value is None:
        return None
    update = all(isinstance(by, ast.Assign) and _reads(by.value, name) for by in others)
    return first.value if not others or (update and isinstance(names.lookup(name), Record)) else None


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


@by_node
def _binders(node: ast.Module | ast.FunctionDef) -> dict[str, list[ast.AST]]:
    """The statements and arguments that bind each name of a module or function, in order."""
    found: dict[str, list[ast.AST]] = {}
    for by, name in _bindings(node, node):
        found.setdefault(name, []).append(by)
    return found


def _bindings(node: ast.AST, within: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        by = child if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.arg)) else within
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield by, name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((by, a.asname or a.name.partition(".")[0]) for a in aliases)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                yield by, name
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield by, name
            case _:
                pass
        if not isinstance(child, _INNER):
            yield from _bindings(child, by)
