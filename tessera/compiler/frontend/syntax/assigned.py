"""What statements do to a function: names that they assign, and how they leave loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.compiler.frontend.syntax.trees import Broken


@by_node
def assigned_names(node: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """Names that a function's statements assign, which makes them local to it. (`:=` is left out: it would mean looking
    at every expression, to tell "not defined" from "used before it is assigned".)"""
    out: set[str] = set()
    if isinstance(node, ast.FunctionDef):
        _assigned(node.body, out)
    return frozenset(out)


def _assigned(statements: list[ast.stmt], out: set[str]) -> None:
    for s in statements:
        match s:
            case ast.Assign(targets=targets):
                for t in targets:
                    _targets(t, out)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
                _targets(target, out)
            case ast.With(items=items):
                for item in items:
                    _targets(item.optional_vars, out)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                out.add(name)
                continue
            case _:
                pass
        for block in ("body", "orelse", "finalbody"):
            inner: list[ast.stmt] = getattr(s, block, [])
            _assigned(inner, out)


def _targets(target: ast.expr | None, out: set[str]) -> None:
    match target:
        case ast.Name(id=name):
            out.add(name)
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            for e in elts:
                _targets(e, out)
        case ast.Starred(value=value):
            _targets(value, out)
        case _:
            pass


def jumps(node: ast.For | ast.While) -> set[type[ast.stmt]]:
    """Which of break and return leave this loop."""
    return {type(s) for s in _jumps(node.body, inside=False)}


def _jumps(body: list[ast.stmt], inside: bool) -> Iterator[ast.stmt]:
    for s in body:
        if isinstance(s, ast.Return) or (isinstance(s, ast.Break) and not inside):
            yield s
        elif not isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            # A break in the else of a loop leaves the loop around it.
            yield from _jumps(getattr(s, "body", []), inside or isinstance(s, (ast.For, ast.While)))
            yield from _jumps(getattr(s, "orelse", []), inside)


def stored_in_order(statements: list[ast.stmt]) -> list[str]:
    """The same as a list, in an order that is that of no set."""
    names = stored_names(statements)
    walked = (n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in names)
    return [*dict.fromkeys(walked)]


def stored_names(statements: list[ast.stmt]) -> frozenset[str]:
    """Names that statements assign, without looking into nested functions and comprehensions."""
    out: set[str] = set()
    stack: list[ast.AST] = list(statements)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                out.add(node.id)
            continue
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            out.add(node.name)
            continue
        if isinstance(node, ast.alias):
            out.add(node.asname or node.name.partition(".")[0])
        if isinstance(node, Broken):
            out |= node.binds
            stack.extend(node.was)
            continue
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        stack.extend(ast.iter_child_nodes(node))
    return frozenset(out)


def parted_names(node: ast.AST) -> frozenset[str]:
    """Names whose parts statements store to: C for `C[m, n] = x`."""
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    return frozenset(name for n in stored if (name := base_name(n)))


def base_name(target: ast.expr) -> str:
    """The name that a place belongs to: "C" of `C[m, n]`; "" where it is none."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""
