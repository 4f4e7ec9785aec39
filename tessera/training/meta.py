"""`@ts.meta_learning`: marks what learns to learn."""

from __future__ import annotations

from typing import TypeVar

from tessera.errors import Diagnostic, LaunchError
from tessera.nn import Module
from tessera.tracebacks import outward

Class = TypeVar("Class", bound=type)


@outward
def meta_learning(cls: Class) -> Class:
    """Tells readers that a module's `step(params, grads, ...)` is an update rule with parameters of its own.

    It changes nothing: a loss that trains with it is differentiated through all its steps, and `ts.train` learns it
    like any model. Raises LaunchError TS105 for a class that is not a `ts.nn.Module`: its parameters are not known.
    """
    if not isinstance(cls, type) or not issubclass(cls, Module) or not callable(getattr(cls, "step", None)):
        name = getattr(cls, "__name__", repr(cls))
        message = f"meta_learning: {name} has no step: write class {name}(ts.nn.Module), whose fields are what"
        more = "is learned, and def step(self, params, grads), which gives the new params"
        raise LaunchError(Diagnostic("TS105", f"{message} {more}"))
    return cls
