"""Names of Tessera that a text uses and the package does not have: `@ts.autodiff`, `from tessera.serving import run`.

Inside functions and kernels the evaluator finds them; this looks at all the rest of a file, without running it. A
statement is looked at once, for an editor asks again after each keystroke.
"""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import tessera
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names import own_modules, vocabulary
from tessera.compiler.frontend.names.values import MISSING, FileModule, Namespace
from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.compiler.frontend.syntax.parse import Source
from tessera.errors import Diagnostic, Edit, Fix, Span
from tessera.language import distribution
from tessera.language.absent import instead
from tessera.nearest import nearest

_OWN = "tessera"
_ROOMS = ("cli", "compiler", "dist", "kernels", "language", "profiler", "runtime")
"""modules that are there even where an editor's bundled server comes without them"""
_CLOSED = frozenset({_OWN, *(f"{_OWN}.{n}" for n in vocabulary.NAMESPACES if n not in ("tile", "tensor"))})
"""modules whose members are the language's vocabulary"""


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """Of the package: what it gives at first use, and its modules."""
    return frozenset({*dir(tessera), *_ROOMS, *(m.name for m in pkgutil.iter_modules(tessera.__path__))})


def _has(path: str, name: str) -> bool:
    if name.startswith("__"):
        return True
    if path not in _CLOSED:
        known = own_modules.members(path)
        return known is None or name in known
    if vocabulary.member(path, name) is not MISSING:
        return True  # also what only functions have, `ts.range`: plain functions are inlined into them
    return path == _OWN and name in _names()


_CLEAN: WeakKeyDictionary[ast.AST, tuple[tuple[str, str], ...]] = WeakKeyDictionary()
"""statements in which all is there, while the names of the file stand for these modules"""


def unknown_names(scope: TextScope, source: Source, known: Container[int] = ()) -> list[Diagnostic]:
    """A finding for each (TS104), with what is near as a fix. `known`: the lines of the functions into which the
    evaluator has looked; only what decorates them is left."""
    imported = (n for n, node in scope.bound.items() if isinstance(node, (ast.Import, ast.ImportFrom)))
    own = {name: path for name in imported if (path := _module(scope, name))}
    given, found = tuple(own.items()), list[Diagnostic]()
    for statement in scope.tree.body:
        parts: Sequence[ast.AST] = (statement,)
        if isinstance(statement, ast.FunctionDef) and statement.lineno in known:
            parts = statement.decorator_list
        for part in parts:
            if _CLEAN.get(part) != given:
                unknown = [_finding(*item, source) for item in _in_statement(scope, own, part)]
                unknown += _wrong_meshes(scope, own, part, source)
                found += unknown
                if not unknown and not _mentions(part)[0]:  # what is imported may come to be another file
                    _CLEAN[part] = given
    return found


def _module(scope: TextScope, name: str) -> str:
    """The module of Tessera that an imported name stands for; empty where it is something else."""
    value, node = scope.lookup(name), scope.bound[name]
    if isinstance(value, Namespace):
        return value.path if not isinstance(value, FileModule) and _is_own(value.path) else ""
    if isinstance(node, ast.ImportFrom) and node.module and not node.level and _is_own(node.module):
        path = next((f"{node.module}.{a.name}" for a in node.names if (a.asname or a.name) == name), "")
        return path if path and not scope.is_file(path) and own_modules.members(path) is not None else ""
    return ""


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == _OWN


def _in_statement(scope: TextScope, own: Mapping[str, str], statement: ast.AST) -> Iterator[tuple[str, str, Any]]:
    """`own`: what names of the file stand for, where that is a module of Tessera."""
    imports, chains = _mentions(statement)
    for module, level, node in imports:
        if level or not _is_own(module):
            continue
        if isinstance(node, ast.alias):
            if node.name != "*" and not _has(module, node.name) and not scope.is_file(module):
                yield module, node.name, node
        else:
            path, _, name = module.rpartition(".")
            while path:
                if not _has(path, name) and not scope.is_file(module):  # asked last: it looks at the disk
                    yield path, name, node
                path, _, name = path.rpartition(".")
    for path, names, nodes in ((own[head], *chain) for head in own for chain in chains.get(head, ())):
        for name, node in zip(names, nodes, strict=True):
            if not _has(path, name):
                yield path, name, node
                break
            path = f"{path}.{name}"


@by_node
def _mentions(statement: ast.AST) -> tuple[list[tuple[str, int, Any]], dict[str, list[tuple[list[str], list[Any]]]]]:
    """Imports, and dotted names by their head, where no function gives it another meaning."""
    imports: list[tuple[str, int, Any]] = []
    chains: dict[str, list[tuple[list[str], list[Any]]]] = {}
    pending: list[tuple[Any, frozenset[str]]] = [(statement, frozenset())]
    while pending:
        node, hidden = pending.pop()
        if isinstance(node, ast.Import):
            imports += [(alias.name, 0, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports += [(node.module or "", node.level, node)]
            imports += [(node.module or "", node.level, alias) for alias in node.names]
        elif isinstance(node, ast.Attribute):
            head, names, nodes = _chain(node)
            if isinstance(head, ast.Name):
                if head.id not in hidden:
                    chains.setdefault(head.id, []).append((names, nodes))
                continue
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            a = node.args
            given = (*a.posonlyargs, *a.args, *a.kwonlyargs, *(v for v in (a.vararg, a.kwarg) if v))
            hidden = hidden | assigned_names(node) | {p.arg for p in given}
        if isinstance(node, ast.Try):  # `except ImportError` is how a program asks for what may not be there
            pending += [(n, hidden) for h in node.handlers for n in h.body]
            continue
        pending += [(n, hidden) for n in ast.iter_child_nodes(node)]
    return imports, chains


def _chain(node: ast.Attribute) -> tuple[ast.expr, list[str], list[ast.Attribute]]:
    """`a.b.c` as its head and, from left to right, what follows it."""
    nodes: list[ast.Attribute] = []
    at: ast.expr = node
    while isinstance(at, ast.Attribute):
        nodes.append(at)
        at = at.value
    nodes.reverse()
    return at, [n.attr for n in nodes], nodes


def _finding(path: str, name: str, node: Any, source: Source) -> Diagnostic:
    span = source.span(node)
    why = instead(name, path)
    if why:
        return Diagnostic("TS104", f"{path} has no {name!r}; {why}", span)
    known = _names() if path == _OWN else own_modules.members(path) or vocabulary.members(path)
    close = nearest(name, [k for k in known if not k.startswith("_")])
    hint, fixes = "", ()
    if close is not None:
        hint = f"; did you mean {close!r}?"
        place = _place(span, name, node, source)
        fixes = (Fix(f"Change {name!r} to {close!r}", (Edit(place, close),)),) if place is not None else ()
    return Diagnostic("TS104", f"{path} has no {name!r}{hint}", span, fixes=fixes)


def _wrong_meshes(scope: TextScope, own: Mapping[str, str], statement: ast.AST, source: Source) -> Iterator[Diagnostic]:
    """What `ts.mesh` and `ts.distributed` would say of their keywords, and of being a context (TS105)."""
    for call, enters in _mesh_calls(statement):
        head, names, _ = _chain(call.func) if isinstance(call.func, ast.Attribute) else (call.func, [], [])
        if not isinstance(head, ast.Name):
            continue
        node = scope.bound.get(head.id)
        if isinstance(node, ast.ImportFrom) and node.module and _is_own(node.module) and not names:
            names = [a.name for a in node.names if (a.asname or a.name) == head.id]
        elif head.id not in own:
            continue
        function = names[-1].lower() if names else ""
        if function in distribution.PARAMETERS:
            said = distribution.wrong_keyword(function, [k.arg for k in call.keywords if k.arg])
            if not said and enters and function == "mesh":
                said = distribution.NO_CONTEXT
            if said:
                yield Diagnostic("TS105", said, source.span(call))


def _mesh_calls(statement: ast.AST) -> list[tuple[ast.Call, bool]]:
    """Calls of what may be these, and whether `with` enters what they give."""
    entered = {item.context_expr for n in ast.walk(statement) if isinstance(n, ast.With) for item in n.items}
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and (n.keywords or n in entered)]
    return [(n, n in entered) for n in calls]


def _place(span: Span, name: str, node: Any, source: Source) -> Span | None:
    """Of the name alone."""
    if isinstance(node, ast.Attribute):
        return Span(span.file, span.end_line, span.end_col - len(name), span.end_line, span.end_col)
    if isinstance(node, ast.alias) and source.segment(span).startswith(name):
        return Span(span.file, span.line, span.col, span.line, span.col + len(name))
    return None
