"""Whether random numbers may be drawn that no key decides: not while a program is compiled, which would keep them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

WHY = (
    "without a key it draws other numbers at each call, and compiled code would keep the first ones; "
    "give a key: key=0 to a layer, key: ts.int64 as a parameter"
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
