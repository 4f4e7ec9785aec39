"""The table of `ts.tile`'s functions; `builtins` and `folds` fill it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

TILE_FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""name -> function(layer, ...)"""


def tile(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of `ts.tile` under its names."""

    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TILE_FUNCTIONS[name] = f
        return f

    return add


def signature(name: str) -> str:
    """`mma(a, b, accumulator=None)`, for messages and hover."""
    parameters = list(inspect.signature(TILE_FUNCTIONS[name]).parameters.values())[1:]
    return f"{name}({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"
