"""The memory that a launch writes the records of its programs to: see include/tessera/timer.cuh."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tessera.language.lazy import np

HEAD = struct.Struct("<3Q8x")
"""programs that have ended in all runs, runs that have room, programs of a run"""
RECORD_BYTES = 32
_LAYOUT = (("tile", "u4"), ("resource", "u4"), ("slot", "i4"), ("phase", "u4"), ("start", "u8"), ("duration", "u8"))


def size(programs: int, room: int) -> int:
    """Bytes for the records of `room` runs."""
    return HEAD.size + RECORD_BYTES * programs * room


def empty(programs: int, room: int) -> bytes:
    """The memory as the first run finds it."""
    return HEAD.pack(0, room, programs).ljust(size(programs, room), b"\0")


def made(head: bytes) -> tuple[int, int]:
    """How many runs are complete, and how many of these have records."""
    ended, room, programs = HEAD.unpack_from(head)
    return ended // programs, min(ended // programs, room)


def runs(data: bytes) -> Iterator[dict[str, Any]]:
    """The records of each complete run that has some, as columns. Starts are on the device's clock."""
    programs = HEAD.unpack_from(data)[2]
    for run in range(made(data)[1]):
        found = np.frombuffer(data, np.dtype(list(_LAYOUT)), programs, HEAD.size + RECORD_BYTES * programs * run)
        yield {name: found[name].astype(np.int64) for name, _ in _LAYOUT}
