"""Small records: places in a text, types, operands, keys, displayed facts about an expression.

Tens of thousands of them are made, and hundreds of their classes whenever a process starts. A frozen dataclass sets
each field through `object.__setattr__`, so it takes three times as long to build as an ordinary one; and when its
class is defined, it looks at each field and generates and compiles the text of six methods. `immutable` leaves the
guard to the type checker, and a class is no more than its slots until the first instance is made: a process makes no
instance of most classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property, partial
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

_C = TypeVar("_C")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[_C], /) -> type[_C]: ...
@overload
def immutable(*, eq: bool) -> Callable[[type[_C]], type[_C]]: ...
def immutable(cls: type[Any] | None = None, /, *, eq: bool = True) -> Any:
    """A dataclass with slots, compared and hashed by its fields; assigning to them is an error of types.

    Methods that the class defines itself are kept, and a `__repr__` that a base has written. As for frozen dataclasses,
    `field(compare=False)` leaves a field out of comparisons and hashes, and `field(repr=False)` out of the text. With
    `eq=False` each instance equals itself alone.
    """
    names = ("__init__", "__eq__", "__hash__", "__repr__") if eq else ("__init__", "__repr__")
    return partial(_record, names=names) if cls is None else _record(cls, names)


@overload
@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[_C], /) -> type[_C]: ...
@overload
def mutable(*, eq: bool) -> Callable[[type[_C]], type[_C]]: ...
def mutable(cls: type[Any] | None = None, /, *, eq: bool = True) -> Any:
    """A dataclass with slots, compared by its fields and without a hash; its class is defined as quickly. With
    `eq=False` each instance equals itself alone, and has a hash."""
    names = ("__init__", "__eq__", "__repr__") if eq else ("__init__", "__repr__")
    return partial(_record, names=names) if cls is None else _record(cls, names)


def _record(cls: type[_C], names: tuple[str, ...]) -> type[_C]:
    held = dict(cls.__dict__)
    own = {n: t for n, t in get_annotations(cls).items() if not str(t).removeprefix("typing.").startswith("ClassVar")}
    values = {n: held.pop(n) for n in own if n in held}
    for slot in ("__dict__", "__weakref__"):
        held.pop(slot, None)
    told = _Fields(own, values)
    for name in names:
        if held.get(name) is None and not (name == "__repr__" and _repr_is_written(cls)):
            held[name] = _METHODS[name](told)
    if "__eq__" in names and "__hash__" not in names:
        held.setdefault("__hash__", None)
    inherited = {n for base in cls.__mro__[1:] for n in base.__dict__.get("__slots__", ())}
    held["__slots__"] = tuple(n for n in own if n not in inherited)
    held["__dataclass_fields__"] = told
    before = getattr(cls, "__match_args__", ())
    given = (n for n in own if n not in before and getattr(values.get(n), "init", True))
    held.setdefault("__match_args__", (*before, *given))
    made: Any = type(cls)(cls.__name__, cls.__bases__, held)
    made.__qualname__ = cls.__qualname__
    told.cls = made
    return made


def _repr_is_written(cls: type[Any]) -> bool:
    found = next(base.__dict__["__repr__"] for base in cls.__mro__[1:] if "__repr__" in base.__dict__)
    return found not in (_repr, object.__repr__)


class _Fields:
    """The `__dataclass_fields__` of a record's class, found when they are asked for: `dataclasses` knows it then."""

    cls: Any

    def __init__(self, own: dict[str, Any], values: dict[str, Any]) -> None:
        self.own, self.values = own, values

    def __get__(self, _: object, owner: type[Any]) -> dict[str, Field[Any]]:
        for base in self.cls.__mro__[1:]:
            getattr(base, "__dataclass_fields__", None)
        about = {"__doc__": "as they were given"}  # without a text, `dataclass` writes the class's signature
        plain = type(self.cls.__name__, (), {**about, "__annotations__": self.own, **self.of_own})
        dataclass(init=False, eq=False, repr=False)(plain)
        self.cls.__dataclass_fields__ = self.all
        self.cls.__dataclass_params__ = plain.__dataclass_params__  # type: ignore[attr-defined]
        return self.all

    @cached_property
    def of_own(self) -> dict[str, Field[Any]]:
        values = {n: self.values.get(n, MISSING) for n in self.own}
        return {n: v if isinstance(v, Field) else field(default=v) for n, v in values.items()}

    @cached_property
    def all(self) -> dict[str, Field[Any]]:
        """By name, the fields of the classes that it derives from first."""
        found: dict[str, Field[Any]] = {}
        for base in self.cls.__mro__[:0:-1]:
            of = base.__dict__.get("__dataclass_fields__", {})
            found |= of.all if isinstance(of, _Fields) else of
        return found | self.of_own


def _init(told: _Fields) -> Callable[..., None]:
    def __init__(self: Any, *values: Any, **named: Any) -> None:
        told.cls.__init__ = written = _written_init(told)
        written(self, *values, **named)

    return __init__


def _eq(told: _Fields) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        compared = _tuple_of([n for n, f in told.all.items() if f.compare])

        def written(self: Any, other: object) -> bool:
            return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

        told.cls.__eq__ = written
        return written(self, other)

    return __eq__


def _hash(told: _Fields) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        hashed = _tuple_of([n for n, f in told.all.items() if (f.compare if f.hash is None else f.hash)])

        def written(self: Any) -> int:
            return hash(hashed(self))

        told.cls.__hash__ = written
        return written(self)

    return __hash__


def _written_init(told: _Fields) -> Callable[..., None]:
    """The `__init__` that a dataclass would have, as a function of the fields in order."""
    known: dict[str, Any] = {"ABSENT": object()}
    parameters, lines = ["self"], list[str]()
    for name, f in told.all.items():
        parameter, value = name, name
        if f.default is not MISSING:
            known[f"DEFAULT_{name}"] = f.default
            parameter += f"=DEFAULT_{name}"
            value = value if f.init else f"DEFAULT_{name}"
        elif f.default_factory is not MISSING:
            known[f"MAKE_{name}"] = f.default_factory
            parameter += "=ABSENT"
            value = f"MAKE_{name}()" + (f" if {name} is ABSENT else {name}" if f.init else "")
        elif not f.init:
            continue
        if f.init:
            parameters.append(parameter)
        lines.append(f" self.{name} = {value}")
    if hasattr(told.cls, "__post_init__"):
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


_METHODS: dict[str, Callable[[_Fields], Callable[..., Any]]] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": lambda _: _repr,
}
"""what writes each method, at its first call"""
