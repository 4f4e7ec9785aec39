"""A launch that may be repeated, and what it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tessera.compiler.targets.base import Target
from tessera.immutable import immutable
from tessera.runtime.call.arguments import Bound
from tessera.runtime.call.prepared import PreparedLaunch
from tessera.runtime.code.build import Built


@immutable
class Made:
    """What a launch was made from: the program (of a tuned one, the variant that was chosen), the arguments' types, its
    code and target, and how the arrays are read that it takes from outside."""

    fn: Any
    types: Bound
    built: Built
    target: Target
    outside: Mapping[str, Callable[[], Any]]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Ready:
    """A launch that may be repeated: `guard` says whether it still stands, `run` takes the call's arguments."""

    run: Callable[..., Any]
    guard: Callable[[], bool]
    prepared: PreparedLaunch | None = None
    made: Made | None = None
    used: bool = False
    """whether it has been called since `_Kept` last looked at it"""
