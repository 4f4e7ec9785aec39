"""Locks that work in a forked child: one that another thread held in the parent would never be released there."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_owners: weakref.WeakSet[Any] = weakref.WeakSet()


class Locked:
    """An object with a `lock`, reentrant, and a fresh one in a forked child."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _owners.add(self)

    def after_fork(self) -> None:
        """Called in the child, before anything else runs there."""
        self.lock = threading.RLock()


def _after_fork() -> None:
    for owner in list(_owners):
        owner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
