"""Calls of Tessera's constructors and functions whose arguments do not fit: `ts.nn.Linear("a", 3)`.

Inside of programs the evaluator finds them; this looks at the rest of a file. Only what is the same whenever a call is
made counts: constants, and names that the module binds once. A `try` or `raises` may ask for what is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tessera.compiler.frontend.called.certain import may_fail
from tessera.compiler.frontend.library import outside
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import read
from tessera.compiler.frontend.names.settings import fixes, is_fitted, misfit_of
from tessera.compiler.frontend.names.values import UNKNOWN, ClassRef, Missing, Record, Unknown
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.compiler.frontend.syntax.parse import Source
from tessera.errors import Diagnostic
from tessera.language.annotations import dotted_name

_LITERAL = (ast.Constant, ast.Tuple, ast.List, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator, ast.expr_context)


def misfits(scope: TextScope, source: Source) -> Iterator[Diagnostic]:
    """TS105 for each call."""
    for statement in scope.tree.body:
        calls, hidden = _calls(statement)
        for call in calls:
            callee = _callee(scope, call, hidden)
            if callee is not None:
                yield from _finding(scope, source, call, callee, hidden)


@by_node
def _calls(statement: ast.stmt) -> tuple[list[ast.Call], frozenset[str]]:
    """The calls in a statement that may be looked at, and the names that functions and comprehensions in it bind."""
    calls: list[ast.Call] = []
    hidden: set[str] = set()
    pending: list[tuple[ast.AST, bool]] = [(statement, False)]
    while pending:
        node, inner = pending.pop()
        inner = inner or isinstance(node, (ast.FunctionDef, ast.Lambda, ast.comprehension))
        if isinstance(node, ast.arg):
            hidden.add(node.arg)
        elif isinstance(node, ast.Name) and inner and not isinstance(node.ctx, ast.Load):
            hidden.add(node.id)
        elif isinstance(node, ast.Call) and dotted_name(node.func):
            plain = not any(isinstance(a, ast.Starred) for a in node.args) and all(k.arg for k in node.keywords)
            calls += [node] if plain else []
        if not may_fail(node):
            pending += [(n, inner) for n in ast.iter_child_nodes(node)]
    return calls, frozenset(hidden)


def _callee(scope: TextScope, call: ast.Call, hidden: frozenset[str]) -> Closure | ClassRef | None:
    """The constructor or function of Tessera's that is called."""
    dotted = dotted_name(call.func)
    head = dotted.partition(".")[0]
    bound = scope.binders.get(head, ())
    if head in hidden or len(bound) != 1 or not isinstance(bound[0], (ast.Import, ast.ImportFrom, ast.ClassDef)):
        return None
    found = read(scope, dotted)
    if isinstance(found, (Missing, Unknown)):
        found = outside(*_full_name(bound[0], dotted))
    if isinstance(found, ClassRef):
        made = found.members.get("__init__", found)
        return found if isinstance(made, (Closure, ClassRef)) and is_fitted(made) else None
    return found if isinstance(found, Closure) and is_fitted(found) else None


def _full_name(binder: ast.stmt, dotted: str) -> tuple[str, str]:
    """The module and the name that `ts.checkpoint.save` means, by the import of `ts`."""
    head, _, rest = dotted.partition(".")
    for alias in binder.names if isinstance(binder, (ast.Import, ast.ImportFrom)) else ():
        if (alias.asname or alias.name.partition(".")[0]) == head:
            package = f"{binder.module}." if isinstance(binder, ast.ImportFrom) else ""
            head = package + alias.name if package or alias.asname else head
            break
    module, _, name = f"{head}.{rest}".rstrip(".").rpartition(".")
    return module, name


def _finding(
    scope: TextScope, source: Source, call: ast.Call, callee: Closure | ClassRef, hidden: frozenset[str]
) -> Iterator[Diagnostic]:
    args = [_certain(scope, a, hidden) for a in call.args]
    kwargs = {k.arg: _certain(scope, k.value, hidden) for k in call.keywords if k.arg is not None}
    made = callee.members.get("__init__") if isinstance(callee, ClassRef) else None
    if isinstance(made, Closure) and isinstance(callee, ClassRef):
        callee, args = made, [Record(callee.name, {}, callee), *args]
    found = misfit_of(callee, args, kwargs)
    if found is not None:
        yield Diagnostic("TS105", found.message, source.span(call), fixes=fixes(found, call, source.span))


def _certain(scope: TextScope, node: ast.expr, hidden: frozenset[str]) -> Any:
    """The value of an argument that each call has; UNKNOWN of any other."""
    if (dotted := dotted_name(node)) and (head := dotted.partition(".")[0]):
        bound = scope.binders.get(head, ())
        simple = len(bound) == 1 and isinstance(bound[0], (ast.Import, ast.ImportFrom, ast.Assign))
        return read(scope, dotted) if simple and head not in hidden else UNKNOWN
    return scope.constant(node) if all(isinstance(n, _LITERAL) for n in ast.walk(node)) else UNKNOWN
