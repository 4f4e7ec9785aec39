"""Where statements at the top level of a text give names their values."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_SCOPES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""nodes whose names are their own"""


def last_assignments(statements: Iterable[ast.stmt]) -> dict[str, ast.stmt | None]:
    """For each name that the statements bind, the assignment that comes last. None where a definition, an import, a
    loop or a branch comes last: there the text does not say which value stays."""
    found: dict[str, ast.stmt | None] = {}
    for statement in statements:
        assigned = {name.id for name in assigned_names(statement)}
        found |= {name: statement if name in assigned else None for name in _bound(statement)}
    return found


def assigned_names(statement: ast.stmt) -> list[ast.Name]:
    """The names that an assignment gives values, in their order; [] for other statements."""
    match statement:
        case ast.Assign(targets=targets):
            pass
        case ast.AugAssign(target=target):
            targets = [target]
        case ast.AnnAssign(target=target, value=value) if value is not None:
            targets = [target]
        case _:
            return []
    return [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from ((a.asname or a.name).partition(".")[0] for a in statement.names)
    elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    else:
        yield from (n.id for n in _own(statement) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
        yield from (s.name for s in _own(statement) if isinstance(s, (ast.FunctionDef, ast.ClassDef)))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, _SCOPES):
            yield inner
        else:
            yield from _own(inner)
