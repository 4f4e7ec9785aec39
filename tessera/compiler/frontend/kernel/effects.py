"""What a statement of a kernel reads and writes, from its text alone: names, shared tiles, tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tessera.compiler.frontend.syntax.assigned import base_name
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.immutable import immutable

STORES = frozenset({"store", "cp_async", "copy_async", "store_shared"})
"""tile functions that write to their first argument"""


@immutable
class Effects:
    """`loads`: every name that is read, in reading order. `reads` adds what augmented assignments read."""

    loads: tuple[str, ...]
    reads: frozenset[str]
    assigned: frozenset[str]
    writes: frozenset[str]
    """names that are assigned, and shared tiles or tensors that are stored to"""
    targets: tuple[ast.expr, ...]
    """what is stored to: subscripts, and the first arguments of `store`"""
    slices: tuple[ast.Slice, ...]


@by_node
def effects(statement: ast.AST) -> Effects:
    """Of one statement with everything in it."""
    loads: list[str] = []
    assigned: set[str] = set()
    updated: set[str] = set()
    filled: set[str] = set()
    targets: list[ast.expr] = []
    slices: list[ast.Slice] = []
    for node in _in_order(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                loads.append(name)
            case ast.Name(id=name):
                assigned.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                updated.add(name)
            case ast.Assign(targets=found):
                targets += [t for t in found if isinstance(t, ast.Subscript)]
            case ast.AugAssign(target=ast.Subscript() as t) | ast.AnnAssign(target=ast.Subscript() as t):
                targets.append(t)
            case ast.Call(args=[first, *_]) if (callee := called(node)) in STORES:
                if callee == "store":
                    targets.append(first)
                if isinstance(first, ast.Name):
                    filled.add(first.id)
            case ast.Slice(lower=ast.Name(), upper=ast.expr()):
                slices.append(node)
            case _:
                pass
    stored = {name for t in targets if (name := base_name(t))}
    writes_ = frozenset(assigned | filled | stored)
    return Effects(
        tuple(loads), frozenset(loads) | updated, frozenset(assigned), writes_, tuple(targets), tuple(slices)
    )


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all nodes in it, as they are read."""
    stack = [node]
    while stack:
        found = stack.pop()
        yield found
        stack += reversed(list(ast.iter_child_nodes(found)))


def called(node: ast.Call) -> str:
    """The last part of what is called: "range" of `ts.tile.range(...)`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def reads(statement: ast.AST) -> frozenset[str]:
    return effects(statement).reads


def writes(statements: Sequence[ast.AST]) -> set[str]:
    return {n for s in statements for n in effects(s).writes}


def updates(statement: ast.stmt) -> frozenset[str]:
    """What a statement accumulates into: `x += y`, `C[...] += y`, `x = f(x, y)`."""
    if isinstance(statement, ast.AugAssign):
        return effects(statement).writes
    if isinstance(statement, ast.Assign):
        return effects(statement).writes & reads(statement)
    return frozenset()


def parts(statement: ast.stmt, tiles: frozenset[str]) -> frozenset[str]:
    """The tiles that a statement stores to in part: it reads and assigns them."""
    stored = (t for t in effects(statement).targets if isinstance(t, ast.Subscript) and not _all_of_it(t.slice))
    return frozenset(map(base_name, stored)) & tiles


def _all_of_it(index: ast.expr) -> bool:
    """Whether an index is `:` or `...` alone, once or several times."""
    items = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(ast.unparse(i) in (":", "...") for i in items)


def carried(body: Sequence[ast.stmt], tiles: frozenset[str]) -> set[str]:
    """Names that a run of statements reads before it assigns them, and assigns: the state of a loop over them."""
    assigned: set[str] = set()
    early: set[str] = set()
    for statement in body:
        stored = parts(statement, tiles)
        early |= (reads(statement) | stored) - assigned
        assigned |= effects(statement).assigned | stored
    return early & assigned


def flat(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements with those of nested loops and branches in place of them, in order."""
    out: list[ast.stmt] = []
    for statement in body:
        inner = [s for f in ("body", "orelse") for s in getattr(statement, f, [])]
        if not inner:
            out.append(statement)
            continue
        heads = [getattr(statement, f) for f in ("iter", "test") if hasattr(statement, f)]
        out += [ast.copy_location(ast.Expr(head), statement) for head in heads]
        if isinstance(statement, ast.For):
            out.append(ast.copy_location(ast.Assign([statement.target], ast.Constant(0)), statement))
        out += flat(inner)
    return out
