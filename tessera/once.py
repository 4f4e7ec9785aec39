"""Values that a process makes once, whichever thread asks first."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):
    """A function without parameters that runs once; its value is kept for good. A thread that asks meanwhile waits.

    `functools.cache` lets threads that ask at the same time each make a value, and keeps the last: where a value owns
    machine code or memory, that of the others goes while addresses in it are already in use.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self.__wrapped__, self.__doc__ = make, make.__doc__
        self._lock = threading.RLock()
        self._made: list[T] = []
        _all.add(self)

    def __call__(self) -> T:
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self.__wrapped__())
        return self._made[0]


_all: weakref.WeakSet[once[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    """A lock that another thread held in the parent would never be released in the child."""
    for each in list(_all):
        each._lock = threading.RLock()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
