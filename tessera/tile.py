"""`ts.tile`: the functions of kernels.

They have a meaning inside `@ts.kernel` only, where the compiler knows them by name; called anywhere else they say so
(TS401). What they are stands in `compiler/frontend/kernel/builtins/`, loaded when the first of them is asked for.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, NoReturn


def _builtins() -> dict[str, Any]:
    return importlib.import_module("tessera.compiler.frontend.kernel.builtins").public()


def _function(name: str, builtin: Any) -> Any:
    """The function as plain Python sees it: with its name, signature and documentation."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        errors = importlib.import_module("tessera.errors")
        message = f"ts.tile.{name} has a meaning inside a @ts.kernel only; it was called from plain Python."
        raise errors.CompileError(errors.Diagnostic("TS401", message))

    facts = {"__name__": name, "__qualname__": name, "__doc__": builtin.text, "__module__": "tessera.tile"}
    vars(refuse)["__signature__"] = inspect.Signature(list(builtin.parameters.values()))
    vars(refuse)["__tessera_builtin__"] = f"tessera.tile.{name}"
    for key, value in facts.items():
        setattr(refuse, key, value)
    return refuse


def __getattr__(name: str) -> Any:
    builtin = _builtins().get(name) if not name.startswith("__") else None
    if builtin is None:
        raise AttributeError(f"ts.tile has no function {name!r}")
    found = globals()[name] = _function(name, builtin)
    return found


def __dir__() -> list[str]:
    return sorted(_builtins())
