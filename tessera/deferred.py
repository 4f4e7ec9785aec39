"""The one way to a room that stands above the one that asks."""

from __future__ import annotations

import importlib
from typing import Any


def deferred(module: str) -> Any:
    """A module of the package by its name below `tessera`, loaded at its first use.

    For what a lower room offers and a higher one does: `@ts.function` is language, running it is the runtime's work.
    """
    return importlib.import_module(f"tessera.{module}")
