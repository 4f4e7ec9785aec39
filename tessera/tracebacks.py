"""Tracebacks of Tessera's errors: the user's frames without Tessera's own.

The diagnostic already points at the wrong line; the frames between it and the check do not help a user.
`TESSERA_TRACEBACKS=1` shows them, for debugging Tessera itself.
"""

from __future__ import annotations

import functools
import opcode
import os
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

from tessera import knobs
from tessera.deferred import deferred
from tessera.errors import TesseraError

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""the folder of the package"""
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def leave(error: Exception) -> None:
    """Makes `error` ready to leave Tessera. Written as `except TesseraError as e: leave(e); raise`.

    A bare `raise` adds no entry for its own frame, so the traceback starts at the caller's.
    """
    if isinstance(error, TesseraError) and error.code.startswith("TS2"):
        deferred("runtime.which_layer").tell_layer(error)
    if not knobs.tracebacks():
        error.__traceback__ = error.__cause__ = None
        error.__suppress_context__ = True


def outward(f: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function: its errors have none of Tessera's frames in their traceback, and what Python says of
    arguments that do not fit becomes what Tessera says (`tessera.fitted.told`)."""

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            try:
                return f(*args, **kwargs)
            except Exception as error:
                if (said := _told(f, args, kwargs, error, sys._getframe(1))) is None:
                    raise
                raise said from None
        except Exception as error:
            if refuses(error):
                leave(error)
            raise

    return call


def decorator(name: str, decorate: Callable[[Any], R]) -> Callable[[Any], R]:
    """What a decorator with settings gives, as a public function of that name: it takes the function, and no more."""

    def decorated(function: Any, /) -> R:
        return decorate(function)

    decorated.__name__ = name
    return outward(decorated)


def _told(*call: object) -> Exception | None:
    try:
        return deferred("fitted").told(*call)
    except ModuleNotFoundError:  # in an editor's own server, which runs nothing
        return None


def entrance(cls: C) -> C:
    """Decorates a class: its public methods are `outward`."""
    for name, f in list(vars(cls).items()):
        if isinstance(f, FunctionType) and not is_outward(f) and (not name.startswith("_") or name == "__call__"):
            setattr(cls, name, outward(f))
    return cls


TRANSPARENT = {outward(len).__code__}
"""the code of functions that decorators of ours have made, which compute what the decorated ones do"""


def is_outward(f: object) -> bool:
    """Whether `outward`, or another such decorator, has made a function."""
    return getattr(f, "__code__", None) in TRANSPARENT


def refuses(error: Exception) -> bool:
    """Whether an error is what Tessera says: one of its own, or one of Python's that a `raise` of ours made, or that a
    call does not fit."""
    if isinstance(error, TesseraError) or type(error).__module__.startswith("tessera."):
        return True
    if getattr(error, "_of_tessera", False):  # one function of ours has called another
        return True
    trace = error.__traceback__
    if isinstance(error, TypeError) and trace is not None and trace.tb_next is None:  # nothing has begun to run
        return True
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not f"{trace.tb_frame.f_globals.get('__name__', '')}.".startswith("tessera."):
        return False
    found = trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE
    error._of_tessera = found  # type: ignore[attr-defined]
    return found


_RAISE = opcode.opmap["RAISE_VARARGS"]
