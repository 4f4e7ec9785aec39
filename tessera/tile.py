"""`ts.tile`: the functions of kernels.

They have a meaning inside `@ts.kernel` only, where the compiler knows them by name; called anywhere else they say so
(TS401). What they are stands in `compiler/frontend/kernel/builtins/`, loaded when the first of them is asked for.

Outside of kernels `ts.tile(x, reps)` is NumPy's `tile`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def helper(function: Callable[..., T]) -> Callable[..., T]:
    """Tells readers that kernels call this function. It has no effect: kernels may call plain functions as well.

    It is inlined where it is called. Its annotations are checked there: `Tile["m", f32]` binds m to the size of a tile.
    """
    return function


def _builtins() -> Any:
    return importlib.import_module("tessera.compiler.frontend.kernel.builtins")


def __getattr__(name: str) -> Any:
    builtin = _builtins().public().get(name) if not name.startswith("__") else None
    if builtin is None:
        raise AttributeError(f"ts.tile has no function {name!r}")
    found = globals()[name] = _builtins().as_function(builtin, name)
    return found


def __dir__() -> list[str]:
    return sorted([*_builtins().public(), "helper"])


class _TileModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """NumPy's `tile(x, reps)`: `x` repeated as a whole, `reps` times along each axis."""
        operators = importlib.import_module("tessera.runtime.eager.operators")
        return operators.OperatorFunction("tile", operators.REGISTRY["tile"])(*args, **kwargs)


sys.modules[__name__].__class__ = _TileModule
