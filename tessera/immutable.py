"""Small records: places in a text, types, operands, keys, displayed facts about an expression.

Tens of thousands of them are made, and hundreds of their classes whenever a process starts. A frozen dataclass sets
each field through `object.__setattr__`, so it takes three times as long to build as an ordinary one; and it generates
and compiles the text of six methods when its class is defined. `immutable` leaves the guard to the type checker, and
generates one method, when the first instance is made: a process makes no instance of most classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

_C = TypeVar("_C")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[_C]) -> type[_C]:
    """A dataclass with slots, compared and hashed by its fields; assigning to them is an error of types.

    Methods that the class defines itself are kept. As for frozen dataclasses, `field(compare=False)` leaves a field out
    of comparisons and hashes, and `field(repr=False)` out of the text.
    """
    return _record(cls, ("__init__", "__eq__", "__hash__", "__repr__"))


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[_C]) -> type[_C]:
    """A dataclass with slots, compared by its fields and without a hash; its class is defined as quickly."""
    return _record(cls, ("__init__", "__eq__", "__repr__"))


def _record(cls: type[_C], names: tuple[str, ...]) -> type[_C]:
    defined = cls.__dict__
    missing = [n for n in names if defined.get(n) is None]
    cls.__doc__ = cls.__doc__ or cls.__name__  # a dataclass without one gets its signature, which is slow to write
    made: type[_C] = dataclass(slots=True, init=False, eq=False, repr=False)(cls)
    methods = _methods(made, fields(made))  # type: ignore[arg-type]
    for name in missing:
        setattr(made, name, methods[name])
    if "__hash__" not in names and defined.get("__hash__") is None:
        made.__hash__ = None  # type: ignore[assignment]
    return made


def _methods(cls: type[Any], of: tuple[Field[Any], ...]) -> dict[str, Callable[..., Any]]:
    def __init__(self: Any, *values: Any, **named: Any) -> None:
        cls.__init__ = written = _written_init(cls, of)
        written(self, *values, **named)

    compared = _tuple_of([f.name for f in of if f.compare])
    hashed = _tuple_of([f.name for f in of if (f.compare if f.hash is None else f.hash)])

    def __eq__(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(hashed(self))

    return {"__init__": __init__, "__eq__": __eq__, "__hash__": __hash__, "__repr__": _repr}


def _written_init(cls: type[Any], of: tuple[Field[Any], ...]) -> Callable[..., None]:
    """The `__init__` that a dataclass would have, as a function of the fields in order."""
    known: dict[str, Any] = {"ABSENT": object()}
    parameters, lines = ["self"], list[str]()
    for f in of:
        parameter, value = f.name, f.name
        if f.default is not MISSING:
            known[f"DEFAULT_{f.name}"] = f.default
            parameter += f"=DEFAULT_{f.name}"
            value = value if f.init else f"DEFAULT_{f.name}"
        elif f.default_factory is not MISSING:
            known[f"MAKE_{f.name}"] = f.default_factory
            parameter += "=ABSENT"
            value = f"MAKE_{f.name}()" + (f" if {f.name} is ABSENT else {f.name}" if f.init else "")
        elif not f.init:
            continue
        if f.init:
            parameters.append(parameter)
        lines.append(f" self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or " pass"), known)
    return known["__init__"]


def _tuple_of(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, n) for n in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"
