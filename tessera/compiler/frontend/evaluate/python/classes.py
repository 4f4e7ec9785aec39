"""Instances of classes, live ones and those of a text: `isinstance`, `hasattr`, and their special methods."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterable
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator, method
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import MISSING, UNKNOWN, Builtin, ClassRef, Record


def is_instance(record: Record, kinds: Iterable[Any]) -> Any:
    """UNKNOWN where a class above may be one whose text is not known."""
    cls, wanted = record.cls, tuple(kinds)
    if isinstance(cls, type):
        return issubclass(cls, tuple(k for k in wanted if isinstance(k, type)))
    if not isinstance(cls, ClassRef):
        return UNKNOWN
    classes = [cls]
    for one in classes:
        classes += one.bases
    if any(_same(c, k) for c in classes for k in wanted) or (cls.named_tuple and tuple in wanted):
        return True
    known = all(isinstance(k, type) or (cls.makes_data and isinstance(k, (ClassRef, Builtin))) for k in wanted)
    return False if known else UNKNOWN


def _same(cls: ClassRef, wanted: Any) -> bool:
    return cls is wanted or (isinstance(wanted, ClassRef) and (cls.name, cls.scope) == (wanted.name, wanted.scope))


def has_attribute(record: Record, name: str) -> bool:
    cls = record.cls
    return name in record.members or (name in cls.members if isinstance(cls, ClassRef) else hasattr(cls, name))


_SPECIAL = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip
_REFLECTED = {"==": "eq", "!=": "ne", "<": "gt", "<=": "ge", ">": "lt", ">=": "le"}


@method
def special(ev: Evaluator, node: ast.AST, record: Record, name: str, *args: Any) -> Any:
    """What the method `__name__` of an instance's class gives; MISSING where the class has none of its own."""
    found = _of_class(record.cls, f"__{name}__")
    return MISSING if found is MISSING else ev.call(node, found, [record, *args], {})


def _of_class(cls: Any, name: str) -> Any:
    if isinstance(cls, ClassRef):
        found = cls.members.get(name)
        return found if isinstance(found, Closure) else MISSING
    found = inspect.getattr_static(cls, name, None) if isinstance(cls, type) else None
    written = isinstance(found, types.FunctionType) and found.__code__.co_filename != "<string>"  # no dataclass's own
    return found if written else MISSING


def binary(ev: Evaluator, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right`, of which one is an instance, by its special methods; MISSING where they do not tell."""
    name = _SPECIAL[symbol]
    found = special(ev, node, left, name, right) if isinstance(left, Record) else MISSING
    if (found is MISSING or found is NotImplemented) and isinstance(right, Record):
        found = special(ev, node, right, _REFLECTED.get(symbol, f"r{name}"), left)
    return MISSING if found is NotImplemented else found
