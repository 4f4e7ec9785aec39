"""Draws that no key decides: not while a program is compiled, which would keep them; dropout without a key."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tessera.errors import Diagnostic, TrainingWarning
from tessera.tracebacks import OWN

WHY = (
    "without a key it draws other numbers at each call, and compiled code would keep the first ones; "
    "give a key: key=0 to a layer, key: ts.int64 as a parameter"
)
UNDROPPED = (
    "dropout without a key drops nothing, and a gradient is taken here; give it a key, drop(x, key): "
    "the loss gets one as a parameter, key: ts.int64"
)
_compiling: ContextVar[bool] = ContextVar("compiling", default=False)


@contextmanager
def refused() -> Generator[None]:
    """Around Python code that a program runs when it is compiled."""
    token = _compiling.set(True)
    try:
        yield
    finally:
        _compiling.reset(token)


def is_refused() -> bool:
    return _compiling.get()


def undropped(x: Any, p: float) -> Any:
    """x itself, of a dropout without a key. Warns TS374 at the user's line if the call is recorded for `backward()`; in
    functions, the evaluator does so where a gradient is taken."""
    if p and getattr(x, "requires_grad", False):
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN):
            frame = frame.f_back
        text = Diagnostic("TS374", UNDROPPED).render()
        warnings.warn_explicit(text, TrainingWarning, frame.f_code.co_filename, frame.f_lineno, registry=_warned)
    return x


undropped.__tessera_builtin__ = f"{__name__}.undropped"  # type: ignore[attr-defined]
_warned: dict[Any, Any] = {}
