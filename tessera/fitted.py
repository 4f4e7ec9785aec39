"""Settings are looked at where they are given: layers, optimizers and others refuse what does not fit, at the call."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

from tessera.deferred import deferred
from tessera.errors import NOWHERE, Diagnostic, LaunchError, TesseraError
from tessera.fitting import Callee, Misfit, is_bool, is_number, misfit, name_of, parameters_of
from tessera.tracebacks import TRANSPARENT, entrance, leave, refuses

F = TypeVar("F", bound="Callable[..., Any]")
_CALLED = ("__init__", "__new__", "__call__")
"""methods with a name of Python's that people call"""


def fitted(function: F) -> F:
    """Decorates a public function, or a class for its constructor (its methods are `outward`): arguments that do not
    fit are refused (LaunchError TS105) at the caller's line; what the function itself refuses is said there too.
    NumPy's numbers become Python's.
    """
    if isinstance(function, type):
        cls = cast(Any, function)
        cls.__init__ = fitted(cls.__init__)
        return entrance(cls)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tuple(map(plain, args)), {n: plain(v) for n, v in kwargs.items()}
        try:
            said = _misfit(function, args, kwargs, ahead=True)
            if said is not None:
                raise LaunchError(Diagnostic("TS105", said.message))
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if (other := told(function, args, kwargs, error, sys._getframe(1))) is None:
                    raise
                raise other from None
        except Exception as error:
            if isinstance(error, TesseraError):
                of = type(args[0]).__name__ if type(error).__name__ == "PolicyError" and _is_method(function) else ""
                _place(error, f"{of}: numerics: " if of else "")
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


def told(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception, caller: FrameType
) -> LaunchError | None:
    """What people are told of a call in place of an error of Python's, which its arguments are the reason of; None
    where it is another's, or a fault of Tessera's. Tessera's own errors get a place. `caller`: who calls."""
    if isinstance(error, TesseraError):
        _place(error)
        return None
    within, named = error.__traceback__, function.__name__
    if not isinstance(error, _OF_ARGUMENTS) or (named.startswith("__") and named not in _CALLED) or within is None:
        return None
    if not _ours(within.tb_next):
        return None
    said = _misfit(function, args, kwargs, ahead=False)
    if said is not None:
        return _refusal("TS105", said.message)
    name, cls = _name(function, args)
    if within.tb_next is not None and not isinstance(error, (AttributeError, KeyError)) and refuses(error):
        if _is_ours(caller):  # which may expect it
            return None
        message = str(error)
        return _refusal("TS105", message if message.startswith(name) else f"{name}: {message}")
    if isinstance(error, TypeError) and (given := _given(function, args, kwargs, str(error))):
        return _refusal("TS105", f"{name}: {given} does not take what it is called with: {error}")
    if named == "__call__" and any(c.__name__ == "Module" for c in getattr(cls, "__mro__", ())):
        return _refusal("TS501", f"{name} cannot compute with these arguments: {type(error).__name__}: {error}")
    return None


_OF_ARGUMENTS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


def _misfit(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], ahead: bool) -> Misfit | None:
    """Why a call does not fit: before it is made, or after it has failed."""
    name, cls = _name(function, args)
    owners = (function.__name__,) if cls is None else tuple(c.__name__ for c in cls.__mro__)
    operands = "" if ahead else "numbers" if cls is None else "tensors"
    made_with = [p.name for p in parameters_of(cls.__init__)] if function.__name__ == "__call__" and cls else []
    callee = Callee(name, parameters_of(function), owners, ahead, operands, tuple(made_with))
    return misfit(callee, args[cls is not None :], kwargs)


def _given(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], said: str) -> str:
    """The parameter whose argument is a function that Python says something of; empty where there is none."""
    for name, value in inspect.signature(function).bind(*args, **kwargs).arguments.items():
        if callable(value) and said.startswith(f"{getattr(value, '__qualname__', None)}() "):
            return name
    return ""


def _name(function: Callable[..., Any], args: Sequence[Any]) -> tuple[str, type | None]:
    """What messages call a function, and the class that it is a method of."""
    if not _is_method(function) or not args:
        return function.__name__, None
    cls = args[0] if isinstance(args[0], type) else type(args[0])
    return name_of(function.__name__, cls.__name__), cls


@functools.cache
def _is_method(function: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")


def _ours(trace: TracebackType | None) -> bool:
    """Whether nothing that a user has written is in a traceback."""
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if not _is_ours(frame) and deferred("runtime.callsite").is_program(frame.f_code.co_filename):
            return False
    return True


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("tessera.")


def _refusal(code: str, message: str) -> LaunchError:
    return LaunchError(Diagnostic(code, message, deferred("runtime.callsite").call_span()))


def _place(error: TesseraError, before: str = "") -> None:
    """What is refused without a place is refused at the caller's line. `before`: what its messages begin with."""
    found = error.diagnostics
    if found and (before or all(d.span == NOWHERE for d in found)):
        span = deferred("runtime.callsite").call_span()
        TesseraError.__init__(error, [replace(d, span=span, message=before + d.message) for d in found])
