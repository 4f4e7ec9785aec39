"""Small immutable records that are made by the ten thousand: places in a text, types, what is shown of an expression.

A frozen dataclass sets each field through `object.__setattr__`, which makes it three times as slow to build as an
ordinary one. `immutable` leaves the guard to the type checker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_C = TypeVar("_C")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[_C]) -> type[_C]:
    """A dataclass with slots, compared and hashed by its fields; assigning to them is an error of types."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
