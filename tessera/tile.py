"""`ts.tile`: the functions of kernels.

They have a meaning inside `@ts.kernel` only, where the compiler knows them by name; called anywhere else they say so
(TS401). What they are stands in `compiler/frontend/kernel/builtins/`, loaded when the first of them is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any


def _builtins() -> Any:
    return importlib.import_module("tessera.compiler.frontend.kernel.builtins")


def __getattr__(name: str) -> Any:
    builtin = _builtins().public().get(name) if not name.startswith("__") else None
    if builtin is None:
        raise AttributeError(f"ts.tile has no function {name!r}")
    found = globals()[name] = _builtins().as_function(builtin, name)
    return found


def __dir__() -> list[str]:
    return sorted(_builtins().public())
