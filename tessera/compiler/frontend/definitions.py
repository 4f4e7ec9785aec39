"""The functions, kernels and methods that a text defines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeGuard

from tessera.compiler.frontend.module import TextScope, decorated_kind
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.signature import fields_of, signature_of
from tessera.compiler.frontend.names.values import UNKNOWN, ClassRef
from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.frontend.syntax.parse import source_of
from tessera.errors import Diagnostic, Edit, Fix
from tessera.language.annotations import holds_tensors


def definitions(scope: TextScope) -> Iterator[Definition]:
    """The functions and kernels of a module, also inside classes, branches and other functions."""
    yield from _definitions(scope, scope, scope.tree.body)


def _definitions(scope: TextScope, names: Scope, body: list[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            plain = _plain(node)
            kind = decorated_kind(scope, plain)
            if kind is not None:
                definition = scope.definition(plain, kind)
                if names is not scope:
                    definition = replace(definition, scope=names)
                yield definition if plain is node else replace(definition, problems=(_asynchronous(definition),))
            else:
                yield from _definitions(scope, InnerScope(names, plain), node.body)
        elif _has_methods(node) and names is scope and (owner := scope.lookup(node.name)) is not UNKNOWN:
            yield from _methods(scope, owner, node.body)
        elif isinstance(node, (ast.ClassDef, ast.If, ast.With, ast.For, ast.While)):
            yield from _definitions(scope, names, [*node.body, *getattr(node, "orelse", [])])
        elif isinstance(node, ast.Try):
            yield from _definitions(scope, names, [*node.body, *node.orelse, *node.finalbody])


def _has_methods(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef) and any(isinstance(s, ast.FunctionDef) for s in node.body)


def _methods(scope: TextScope, owner: Any, body: list[ast.stmt]) -> Iterator[Definition]:
    """The programs inside of a class, and the methods of a dataclass of tensors that take or give tensors, or change
    it."""
    holds = isinstance(owner, ClassRef) and any(holds_tensors(a) for _, a in fields_of(owner))
    for node in body:
        plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
        if not holds or not isinstance(node, ast.FunctionDef) or not node.args.args:
            yield from _definitions(scope, scope, [node])
        elif (plain and _of_tensors(scope, node)) or "effect" in scope.definition(node, "function").options:
            yield replace(scope.definition(node, "function"), owner=owner)
        else:
            yield from _definitions(scope, scope, [node])


def _of_tensors(scope: TextScope, node: ast.FunctionDef) -> bool:
    signature, _ = signature_of(node, source_of(scope.file, scope.text), scope)
    said = [p.annotation for p in signature.parameters] + ([signature.returns] if signature.returns else [])
    return any(map(holds_tensors, said))


def _plain(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    if isinstance(node, ast.FunctionDef):
        return node
    plain = ast.FunctionDef(node.name, node.args, node.body, node.decorator_list, node.returns, node.type_comment)
    return ast.copy_location(plain, node)


def _asynchronous(definition: Definition) -> Diagnostic:
    message = f"{definition.name} is async; a {definition.kind} is a plain function"
    place = definition.text.span(definition.tree)  # from `async` on, where `def` stands in the same line
    word = re.match(r"async\s+(?=def\b)", definition.text.lines[place.line - 1][place.col - 1 :])
    end = place.col + len(word[0]) if word else place.col
    leave = Fix("Leave async out", (Edit(replace(place, end_line=place.line, end_col=end), ""),))
    fixes = (leave,) if word else ()
    return Diagnostic("TS102", message, definition.span, fixes=fixes, function=definition.name)


class InnerScope:
    """The names of an ordinary function around a definition: they exist, but what they are is known when it runs."""

    live = False

    def __init__(self, outer: Scope, node: ast.FunctionDef) -> None:
        a = node.args
        given = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, *(v for v in (a.vararg, a.kwarg) if v))]
        self._outer, self._own = outer, {*given, *assigned_names(node)}
        self.signatures: dict[Any, Any] = {}

    def lookup(self, name: str) -> Any:
        return UNKNOWN if name in self._own else self._outer.lookup(name)

    def names(self) -> list[str]:
        return [*self._own, *self._outer.names()]

    def edited(self, definition: Definition, text: str) -> Definition | None:
        return None  # a fix elsewhere in a file of nested functions is not tried
