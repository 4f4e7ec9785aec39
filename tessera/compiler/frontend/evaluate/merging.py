"""Two paths become one: what a name, or the returned value, is after a branch that is decided when the program runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Number,
    Record,
    Unknown,
    is_dict,
    is_list,
    is_sequence,
    is_static,
    is_tuple,
    remade,
    type_name,
)
from tessera.compiler.ir.core import Block, Value
from tessera.compiler.ir.types import Type
from tessera.errors import Note
from tessera.language.dims import Expr

NUMBERS = (bool, int, float, complex, Expr, Number)


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for result number `index` until the op exists."""

    index: int


@dataclass(slots=True)
class Merger:
    """Collects what both regions yield. `merge` gives a template whose slots `fill` replaces by the op's results."""

    ev: Evaluator
    at: ast.AST
    paths: tuple[Block, Block]
    yields: tuple[list[Value], list[Value]] = field(default_factory=lambda: ([], []))

    def merge(self, a: Any, b: Any, what: str) -> Any:
        if a is b:
            return a
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return UNKNOWN
        if is_sequence(a) and type(a) is type(b) and len(a) == len(b):
            return remade(a, (self.merge(x, y, f"{what}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))))
        if is_dict(a) and is_dict(b) and a.keys() == b.keys():
            return {k: self.merge(a[k], b[k], f"{what}[{k!r}]") for k in a}
        if isinstance(a, Record) and isinstance(b, Record) and a.cls is b.cls and a.members.keys() == b.members.keys():
            members = {k: self.merge(v, b.members[k], f"{what}.{k}") for k, v in a.members.items()}
            return Record(a.type_name, members, a.cls, a.outside)
        owns = self.ev.layer.owns
        if (owns(a) or isinstance(a, NUMBERS)) and (owns(b) or isinstance(b, NUMBERS)):
            return a if type(a) is type(b) and a == b else self._values(a, b, what)
        if is_static(a) and is_static(b) and type(a) is type(b) and _equal(a, b):
            return a
        return self._differ(a, b, what)

    def _values(self, a: Any, b: Any, what: str) -> Any:
        like: Type | None = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else None
        if like is None and isinstance(a, float) is not isinstance(b, float):
            a, b = (float(v) if isinstance(v, (bool, int)) else v for v in (a, b))
        left, right = self._lift(a, like, 0), self._lift(b, like, 1)
        if left is None or right is None or left.type != right.type:
            return self._differ(left or a, right or b, what)
        self.yields[0].append(left)
        self.yields[1].append(right)
        return Slot(len(self.yields[0]) - 1)

    def _lift(self, value: Any, like: Type | None, path: int) -> Value | None:
        with self.ev.builder.inside(self.paths[path]):
            return self.ev.layer.lift(value, like, self.ev.span(self.at))

    def _differ(self, a: Any, b: Any, what: str) -> Unknown:
        """Neither the same nor of one type: nothing can stand for both."""
        notes = [
            Note(f"{what} is {type_name(v)} here", v.op.span if isinstance(v, Value) and v.op else None) for v in (a, b)
        ]
        shapes = isinstance(a, Value) and isinstance(b, Value)
        message = f"{what} is {_shown(a)} on one path and {_shown(b)} on the other"
        reason = "" if shapes else "; which path is taken is only known when the program runs"
        return self.ev.error("TS212", message + reason, self.at, notes=[n for n in notes if n.span])

    def fill(self, template: Any, results: list[Value]) -> Any:
        if isinstance(template, Slot):
            return results[template.index]
        if is_list(template):
            template[:] = [self.fill(v, results) for v in template]
            return template
        if is_tuple(template):
            return tuple(self.fill(v, results) for v in template)
        if is_dict(template):
            for k, v in template.items():
                template[k] = self.fill(v, results)
            return template
        if isinstance(template, Record):
            template.members = self.fill(template.members, results)
        return template


def _shown(value: Any) -> str:
    if isinstance(value, Value):
        return value.type.pretty()
    if is_dict(value):
        return f"a dict of {', '.join(map(str, value))}" if value else "an empty dict"
    return type_name(value) if not isinstance(value, (str, bool, int, float, type(None))) else repr(value)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # arrays and other objects without a plain truth
        return False
