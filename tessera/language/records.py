"""Instances of dataclasses as trees: what they hold by name, and copies of them that hold something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


class Attribute(str):
    """A step of a path that is an attribute; other steps are indices and keys."""

    __slots__ = ()


def is_record(value: object) -> bool:
    """Whether `value` is an instance of a dataclass."""
    return hasattr(value, "__dataclass_fields__") and not isinstance(value, type)


@lru_cache(maxsize=1024)
def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass, in order."""
    return tuple(f.name for f in dataclasses.fields(kind))


def members(record: Any) -> dict[str, Any]:
    """What an instance of a dataclass holds: its fields in order, then what else was set."""
    kind: type = record.__class__
    held = {n: getattr(record, n) for n in field_names(kind) if hasattr(record, n)}
    held.update(getattr(record, "__dict__", {}))
    return held


def holding(kind: type[Any], held: Mapping[str, Any]) -> Any:
    """An instance of a dataclass that holds this; no code of the class runs."""
    made: Any = object.__new__(kind)
    for name, value in held.items():
        object.__setattr__(made, name, value)
    return made
