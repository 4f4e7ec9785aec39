"""The compiler. `register_pass` adds your own pass to the list of passes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tessera.compiler.register import register_pass as register_pass

__all__ = ["register_pass"]


def __getattr__(name: str) -> Any:
    if name == "register_pass":  # slow: what registers a pass loads all others
        return importlib.import_module("tessera.compiler.register").register_pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
