"""Settings are looked at where they are given: layers, optimizers and others refuse what does not fit, at the call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from tessera.deferred import deferred
from tessera.errors import NOWHERE, Diagnostic, LaunchError, TesseraError
from tessera.fitting import is_bool, is_number, misfit, parameters_of
from tessera.tracebacks import TRANSPARENT, leave, refuses

F = TypeVar("F", bound="Callable[..., Any]")


def fitted(function: F) -> F:
    """Decorates a public function, or a class with a constructor: arguments that do not fit are refused (LaunchError
    TS105) at the caller's line; what the function itself refuses is said there too. NumPy's numbers become Python's.
    """
    if isinstance(function, type):
        cls = cast(Any, function)
        cls.__init__ = fitted(cls.__init__)
        return cls
    method = "self" in inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tuple(map(plain, args)), {n: plain(v) for n, v in kwargs.items()}
        try:
            owners = [c.__name__ for c in type(args[0]).__mro__] if method else [function.__name__]
            said = misfit(owners, parameters_of(function), args[1:] if method else args, kwargs)
            if said is not None:
                raise LaunchError(Diagnostic("TS105", said.message))
            return function(*args, **kwargs)
        except Exception as error:
            if type(error).__module__ == "tessera.language.policies":
                error = LaunchError(Diagnostic("TS105", f"{owners[0]}: numerics: {error}"))
                _place(error)
                leave(error)
                raise error from None
            if isinstance(error, TesseraError):
                _place(error)
            if refuses(error):
                leave(error)
            raise

    return cast(F, call)


TRANSPARENT.add(fitted(len).__code__)


def plain(value: Any) -> Any:
    """A number of NumPy's as Python's own; anything else as it is."""
    numpy = type(value).__module__ == "numpy"
    return (
        value.item() if numpy and (is_bool(value) or is_number(value)) and not hasattr(value, "__setitem__") else value
    )


def _place(error: TesseraError) -> None:
    """What is refused without a place is refused at the caller's line."""
    if error.diagnostics and all(d.span == NOWHERE for d in error.diagnostics):
        span = deferred("runtime.callsite").call_span()
        TesseraError.__init__(error, [replace(d, span=span) for d in error.diagnostics])
