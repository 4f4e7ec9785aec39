"""Where free names come from: live objects in the compiler, the file's text in an editor.

Both scopes answer the same question in the same values, so the evaluator does not know which one it has.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    ClassRef,
    Namespace,
    OperatorRef,
    Record,
    Unknown,
)
from tessera.compiler.frontend.names.vocabulary import PYTHON_BUILTINS, is_own_module, member, member_of

if TYPE_CHECKING:
    from tessera.compiler.frontend.names.definition import Definition


class Scope(Protocol):
    """Free names of a function. `live`: values are real objects, and functions among them may be called."""

    live: bool

    @property
    def signatures(self) -> dict[Any, Any] | None:
        """What has been read of its functions' annotations, by node, to be read once; None where names may be bound to
        other things the next time."""
        ...

    def lookup(self, name: str) -> Any:
        """The value of `name`, or MISSING. Never raises, and in text scope never executes anything."""
        ...

    def names(self) -> Iterable[str]:
        """Every name that `lookup` knows, for "did you mean" and completion."""
        ...

    def edited(self, definition: Definition, text: str) -> Definition | None:
        """`definition` as it would be if its module had this text; None where that cannot be said."""
        ...


def read(scope: Scope, dotted: str) -> Any:
    """The value of `name` or `name.attribute...` as it is now; MISSING where there is none."""
    head, *rest = dotted.split(".")
    value = scope.lookup(head)
    for name in rest:
        if value is MISSING or isinstance(value, Unknown):
            return value
        if isinstance(value, (ClassRef, Record)):
            value = value.members.get(name, MISSING)
        elif isinstance(value, Namespace):
            value = member_of(value, name)
        elif not scope.live:
            return UNKNOWN
        else:
            try:
                value = represent(getattr(value, name))
            except Exception:  # it is gone, or a property of the user's class fails
                return MISSING
    return value


class LiveScope:
    """Closure cells, module globals and builtins of a live function, read when they are asked for."""

    live = True
    signatures = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._cells: dict[str, Any] = {}
        code = getattr(function, "__code__", None)
        if code is not None:
            self._cells = dict(zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=True))
        self._globals: dict[str, Any] = getattr(function, "__globals__", {})

    def lookup(self, name: str) -> Any:
        if name in self._cells:
            try:
                return represent(self._cells[name].cell_contents)
            except ValueError:  # a cell that is still empty
                return MISSING
        if name in self._globals:
            return represent(self._globals[name])
        if name in PYTHON_BUILTINS:
            return Builtin(name)
        return getattr(builtins, name, MISSING)

    def names(self) -> Iterable[str]:
        return [*self._cells, *self._globals, *PYTHON_BUILTINS]

    def edited(self, definition: Definition, text: str) -> Definition | None:
        return None  # other functions are live objects: they would have to run again


def represent(value: Any) -> Any:
    """A live object as the evaluator's value: Tessera's own modules and operators become names, as in a text."""
    if isinstance(value, ModuleType):
        name = str(vars(value).get("__tessera_namespace__", value.__name__))
        return Namespace(name) if is_own_module(name) else value
    operator = inspect.getattr_static(value, "__tessera_operator__", None)
    if operator is not None:
        name = value.__tessera_operator__
        return OperatorRef(name if isinstance(name, str) else name.name)
    path = inspect.getattr_static(value, "__tessera_builtin__", None)
    if isinstance(path, str):
        return Builtin(path)
    module = getattr(value, "__module__", None)
    if isinstance(module, str) and module.startswith("tessera."):
        known = member("tessera", str(getattr(value, "__name__", "")))
        if isinstance(known, Builtin):
            return known
    if callable(value) and module == "builtins":
        name = getattr(value, "__name__", "")
        if name in PYTHON_BUILTINS and getattr(builtins, name, None) is value:
            return Builtin(name)
    return value
