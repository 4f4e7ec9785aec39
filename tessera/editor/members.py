"""What stands behind `model.` and `self.`: the members of objects that the text makes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tessera.compiler.frontend.called.inside import MadeObject
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import ClassRef, Property, Record, has_unknown, is_dict, is_sequence
from tessera.compiler.frontend.result import type_text
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.editor import signatures
from tessera.editor.functions import Known
from tessera.editor.results import held_by


@dataclass(frozen=True, slots=True)
class Member:
    """`detail`: the type or the value of a field, how a method is called."""

    name: str
    kind: Literal["field", "method", "property"]
    detail: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects that are known at a line. `made`: those of the file; `known`: the function there, with what its calls
    give it."""

    scope: TextScope
    made: Iterable[MadeObject]
    known: Known | None
    line: int

    def at(self, expression: str) -> Any:
        """The object or the list that an expression is, `model.blocks[0]`; None where that is not known."""
        try:
            return self._of(ast.parse(expression, mode="eval").body, set())
        except (SyntaxError, ValueError):
            return None

    def _of(self, node: ast.expr, seen: set[str]) -> Any:
        match node:
            case ast.Name(id=name) if name not in seen:
                return self._named(name, seen | {name})
            case ast.Attribute(value=owner, attr=name):
                held = self._of(owner, seen)
                return held.members.get(name) if isinstance(held, Record) else None
            case ast.Subscript(value=owner, slice=index):
                return self._item(self._of(owner, seen), index)
            case _:
                return None

    def _item(self, held: Any, index: ast.expr | None) -> Any:
        """Of layers those that are alike count as one: whichever is meant by a name."""
        if isinstance(held, Record):  # a stack of layers
            held = held.members.get("layers")
        if not is_sequence(held) or not held:
            return None
        at = index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else 0
        return held[at] if -len(held) <= at < len(held) else None

    def _named(self, name: str, seen: set[str]) -> Any:
        if self.known is not None and self.known.inside is not None and name in self.known.inside.given:
            return self.known.inside.given[name]
        function = self._function
        if function is not None:
            own = self._parameter(function, name)
            if own is not None:
                return own
        for node in ast.walk(function) if function is not None else ():
            match node:
                case ast.Assign(targets=[ast.Name(id=n)], value=value) if n == name:
                    found = self._of(value, seen)
                case ast.For(target=ast.Name(id=n), iter=value) if n == name:
                    found = self._item(self._of(value, seen), None)
                case _:
                    continue
            if found is not None:
                return found
        inside = [m for m in self.made if m.name == name and _covers(m.statement, self.line)]
        outside = [m for m in self.made if m.name == name and not isinstance(m.statement, ast.FunctionDef)]
        made = next((m.record for m in (*inside, *outside)), None)
        return made if made is not None else held_by(self.scope, function, name)

    @property
    def _function(self) -> ast.FunctionDef | None:
        """The function or method at the line."""
        if self.known is not None and isinstance(self.known.tree, ast.FunctionDef):
            return self.known.tree
        return max(self._around(ast.FunctionDef), key=lambda f: f.lineno, default=None)

    def _around(self, kind: type[Any]) -> Iterator[Any]:
        for node in self.scope.tree.body:
            for inner in (node, *(node.body if isinstance(node, ast.ClassDef) else ())):
                if isinstance(inner, kind) and _covers(inner, self.line):
                    yield inner

    def _parameter(self, function: ast.FunctionDef, name: str) -> Record | None:
        """An object of the class of a method, or of the class that a parameter is annotated with."""
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        parameter = next((p for p in parameters if p.arg == name), None)
        if parameter is None:
            return None
        owner = next(self._around(ast.ClassDef), None)
        if owner is not None and parameter is parameters[0]:
            return self._instance(owner.name)
        return self._instance(parameter.annotation.id) if isinstance(parameter.annotation, ast.Name) else None

    def _instance(self, name: str) -> Record | None:
        """An object of a class: one that the file makes, else what the class says of all."""
        cls = self.scope.lookup(name)
        if not isinstance(cls, ClassRef):
            return None
        pending: list[Any] = [m.record for m in self.made]
        while pending:
            held = pending.pop()
            if isinstance(held, Record):
                if isinstance(held.cls, ClassRef) and held.cls.name == name and held.cls.scope is not None:
                    return held
                pending += held.members.values()
            elif is_sequence(held) or is_dict(held):
                pending += held.values() if is_dict(held) else held
        return Record(name, dict.fromkeys(cls.fields), cls)


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def members(held: Record) -> Iterator[Member]:
    """Fields, then methods; those that are nobody's business elsewhere are left out."""
    cls = held.cls if isinstance(held.cls, ClassRef) else None
    for name, value in held.members.items():
        if not name.startswith("_"):
            said = cls.annotations.get(name) if cls is not None else None
            written = ast.unparse(said) if said is not None else ""
            yield Member(name, "field", written if value is None else described(value))
    for name, value in cls.members.items() if cls is not None else ():
        if name.startswith("_") or name in held.members:
            continue
        if isinstance(value, (Closure, Property)):
            yield _method(name, value, static=cls is not None and name in cls.static)
        elif not has_unknown(value):
            yield Member(name, "field", described(value))


def _method(name: str, value: Closure | Property, static: bool) -> Member:
    getter = value.getter if isinstance(value, Property) else value
    said = signatures.of_value(getter)
    if said is None:
        return Member(name, "method")
    if isinstance(value, Property):
        return Member(name, "property", said.returns, said.summary)
    own = said if static else signatures.bound(said)
    return Member(name, "method", own.text, own.summary)


def described(value: Any) -> str:
    """`[128, 65] f32`, `Linear`, `4 x Block`, `8`"""
    if isinstance(value, Value):
        value = value.type
    if isinstance(value, TensorType):
        return type_text(value)
    if isinstance(value, Record):
        layers = value.members.get("layers")
        return f"{value.type_name}: {described(layers)}" if is_sequence(layers) and layers else value.type_name
    if is_sequence(value) and value and all(isinstance(v, Record) for v in value):
        kinds: Mapping[str, None] = dict.fromkeys(v.type_name for v in value)
        return f"{len(value)} x {next(iter(kinds))}" if len(kinds) == 1 else ", ".join(v.type_name for v in value)
    found = getattr(value, "value", value)  # a number that an argument is
    return repr(found) if isinstance(found, (bool, int, float, str)) and len(repr(found)) <= 40 else ""
