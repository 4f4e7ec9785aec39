"""Small immutable records: places in a text, types, operands, keys, what is shown of an expression.

They are made by the ten thousand, and their classes by the hundred whenever a process starts. A frozen dataclass sets
each field through `object.__setattr__`, which makes it three times as slow to build as an ordinary one, and writes and
compiles the text of six methods when its class is defined. `immutable` leaves the guard to the type checker, and writes
one method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
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
    defined = cls.__dict__
    missing = [n for n in ("__eq__", "__hash__", "__repr__") if defined.get(n) is None]
    cls.__doc__ = cls.__doc__ or cls.__name__  # a dataclass without one gets its signature, which is slow to write
    made: type[_C] = dataclass(slots=True, eq=False, repr=False)(cls)
    methods = _methods(fields(made))  # type: ignore[arg-type]
    for name in missing:
        setattr(made, name, methods[name])
    return made


def _methods(of: tuple[Field[Any], ...]) -> dict[str, Callable[..., Any]]:
    compared = _tuple_of([f.name for f in of if f.compare])
    hashed = _tuple_of([f.name for f in of if (f.compare if f.hash is None else f.hash)])

    def __eq__(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__, "__repr__": _repr}


def _tuple_of(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, n) for n in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"
