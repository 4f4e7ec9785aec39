"""Instances of dataclasses as trees: what they hold by name, and copies of them that hold something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from tessera.tracebacks import outward

T = TypeVar("T")
_new, _set = object.__new__, object.__setattr__  # found more quickly, for results of small functions


STATE = "__tessera_state__"
"""an attribute of classes whose instances effects change; True"""


BUFFER = "tessera.buffer"
"""in the metadata of a dataclass's field: its arrays are state that is not trained"""


REGISTERED = "_registered_buffers"
"""the attribute of an object that names its buffers which its class does not declare"""


class ArrayType(NamedTuple):
    """What an array is, without its elements."""

    shape: tuple[Any, ...]
    dtype: Any


class Attribute(str):
    """A step of a path that is an attribute; other steps are indices and keys."""

    __slots__ = ()


def is_record(value: object) -> bool:
    """Whether `value` is an instance of a dataclass."""
    return hasattr(type(value), "__dataclass_fields__")


@lru_cache(maxsize=1024)
def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass, in order."""
    return tuple(f.name for f in dataclasses.fields(kind))


def members(record: Any) -> dict[str, Any]:
    """What an instance of a dataclass holds: its fields in order, then what else was set."""
    kind: type = record.__class__
    names, inner = field_names(kind), getattr(record, "__dict__", None)
    if inner is not None and tuple(inner)[: len(names)] == names:
        return dict(inner)
    held = {n: getattr(record, n) for n in names if hasattr(record, n)}
    held.update(inner or {})
    return held


@lru_cache(maxsize=1024)
def tensor_fields(kind: type) -> frozenset[str]:
    """The fields of a dataclass whose annotations speak of tensors. A NumPy scalar is an array without axes there, as
    NumPy's arithmetic makes scalars of such arrays; in other fields it is a number, as those of Python are."""
    said = {n: a for base in reversed(kind.__mro__) for n, a in vars(base).get("__annotations__", {}).items()}
    return frozenset(n for n, a in said.items() if "Tensor" in (a if isinstance(a, str) else repr(a)))


def holding(kind: type[Any], held: Mapping[str, Any]) -> Any:
    """An instance of a dataclass that holds this; no code of the class runs."""
    made: Any = _new(kind)
    for name, value in held.items():
        _set(made, name, value)
    return made


@outward
def replace(record: T, /, **changes: Any) -> T:
    """A copy of an instance of a dataclass with other values of these fields, or of other attributes that it has:
    `ts.replace(state, step=7)`.

    Lists, dicts and dataclasses inside are copied too, arrays are not. No code of the class runs, so a class
    with an `__init__` of its own is copied like any other. Raises LaunchError TS105 if it is not a dataclass,
    and for other names than those of fields.
    """
    if not is_record(record):
        raise TypeError(f"replace takes an instance of a dataclass, not {type(record).__name__}")
    held, kind = members(record), type(record)
    known = list(dict.fromkeys((*field_names(kind), *held)))
    for name in changes:
        if name not in known:
            raise TypeError(f"{kind.__name__} has no field {name!r}; it has {', '.join(known)}")
    return holding(kind, {n: _copied(v) for n, v in held.items()} | changes)


def _copied(value: Any) -> Any:
    if is_record(value):
        return holding(value.__class__, {n: _copied(v) for n, v in members(value).items()})
    if type(value) is dict:
        return {k: _copied(v) for k, v in cast("dict[Any, Any]", value).items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def difference(parts: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with trees that `tree_map` gets, of which these are the arrays; empty if nothing is."""
    for i, part in enumerate(parts):
        for path in sorted(parts[0].keys() ^ part.keys()):
            return f"tree_map: only one of the trees 0 and {i} has an array at {path!r}"
    return ""
