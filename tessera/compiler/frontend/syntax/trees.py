"""Small questions about Python's trees: where a statement starts, its suites, and moving it; and what stands in a tree
where the text does not parse."""

from __future__ import annotations

import ast
from typing import Any, ClassVar, cast


class Broken(ast.stmt):
    """A statement that does not parse. It counts for nothing but what it may assign (`binds`), which is unknown from
    there on: findings rest on what can be read. Hints may also rest on what could be read last: a `recalled` definition
    evaluates the statement as it was. Not among its fields, and so out of reach of walks over the tree: `was`, the
    statements that stood here when they could be read last."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, was: list[ast.stmt], binds: frozenset[str], mentions: frozenset[str], leaves: bool) -> None:
        super().__init__()
        self.was, self.binds, self.mentions, self.leaves = was, binds, mentions, leaves


class Gap(ast.expr):
    """An expression in the head of a broken `if`, `for`, `while` or `with`."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, was: ast.expr | None = None) -> None:
        super().__init__()
        self.was = was


def first_line(node: ast.stmt) -> int:
    """The line a statement starts at, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def suites(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of statements of a compound statement."""
    found = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    found += [h.body for h in getattr(node, "handlers", [])]
    return [block for block in found if block]


def placed(node: ast.AST) -> list[Any]:
    """Every node of a tree that has a place, also those that are not fields of it and that a walk does not come to.

    Contexts and operators (`Load`, `Add`) are left alone: all trees of the process share them, also those of libraries
    that hang a node's parent on it.
    """
    out: list[Any] = []
    pending: list[Any] = [node]
    while pending:
        n = pending.pop()
        members = n.__dict__
        if "lineno" in members:
            out.append(n)
        elif not n._fields:
            continue
        for value in members.values():
            if isinstance(value, list):
                pending += [v for v in cast("list[Any]", value) if hasattr(v, "__dict__")]
            elif isinstance(value, ast.AST):
                pending.append(value)
    return out


def move(nodes: list[Any], by: int) -> None:
    """Moves nodes that have a place by some lines."""
    for n in nodes:
        n.lineno += by
        n.end_lineno += by


def clone(node: Any) -> Any:
    """A copy of a tree whose nodes can be changed by themselves. `copy.deepcopy` would also copy what libraries hang on
    contexts and operators, as IPython's tracebacks do: whole modules."""
    if isinstance(node, list):
        return [clone(n) for n in cast("list[Any]", node)]
    if not isinstance(node, ast.AST) or not (node._fields or hasattr(node, "lineno")):
        return node
    made = type(node).__new__(type(node))
    made.__dict__.update({name: clone(value) for name, value in node.__dict__.items()})
    return made


def shift(node: ast.AST, by: int) -> None:
    """Moves a tree by some lines."""
    if by:
        move(placed(node), by)
