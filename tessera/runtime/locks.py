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

    waits_to_fork = False
    """whether a fork waits for the thread that holds the lock"""

    def after_fork(self) -> None:
        """Called in the child, before anything else runs there."""
        self.lock = threading.RLock()


_waited_for: list[Locked] = []


def _before_fork() -> None:
    for owner in list(_owners):
        if owner.waits_to_fork:
            owner.lock.acquire()
            _waited_for.append(owner)


def _after_fork_in_parent() -> None:
    while _waited_for:
        _waited_for.pop().lock.release()


def _after_fork_in_child() -> None:
    _waited_for.clear()
    for owner in list(_owners):
        owner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
