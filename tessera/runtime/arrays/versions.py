"""Counts the stores to watched memory, because the arguments of a recorded call must not change.

Views of an array share its memory and count as one. What another library stores by itself is not seen.
"""

from __future__ import annotations

import weakref
from typing import Any


class Version:
    """The count of one array's memory, while it is referenced."""

    __slots__ = ("__weakref__", "count", "memory")

    def __init__(self, memory: Any) -> None:
        self.memory, self.count = weakref.ref(memory), 0


watched: dict[int, weakref.ref[Version]] = {}
"""by the identity of the array that owns the memory; empty if nothing is watched, which launches check"""


def _owner(array: Any) -> Any:
    kind = type(array)
    while type(base := getattr(array, "base", None)) is kind:
        array = base
    return array


def _version_of(memory: Any) -> Version | None:
    version = held() if (held := watched.get(id(memory))) is not None else None
    return version if version is not None and version.memory() is memory else None


def watch(array: Any) -> Version:
    """The version of an array of NumPy's or CuPy's, counted from now on."""
    memory = _owner(array)
    version = _version_of(memory)
    if version is None:
        version, identity = Version(memory), id(memory)

        def forget(ref: weakref.ref[Version]) -> None:
            if watched.get(identity) is ref:  # not that of a later array at this place
                del watched[identity]

        watched[identity] = weakref.ref(version, forget)
    return version


def changed(array: Any) -> None:
    """Says that an array has been stored to."""
    if watched and (version := _version_of(_owner(array))) is not None:
        version.count += 1
