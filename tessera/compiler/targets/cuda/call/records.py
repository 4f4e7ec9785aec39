"""The memory that a launch writes the records of its programs to: see include/tessera/timer.cuh."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from tessera.language.lazy import np

HEAD = struct.Struct("<4Q")
"""programs that have ended in all runs, runs that have room, programs of a run, phases of the kernel"""
_LAYOUT = (("start", "u8"), ("duration", "u8"), ("tile", "u4"), ("resource", "u4"), ("readings", "u4"))
STEPS = 4
"""of the clock that a tile lasts at least, where the time of its phases is told"""
COARSEST_NS = 1024
"""the steps that the clock of a known GPU moves in at most"""
SHOW_STEPS = 16
"""tiles whose times have no larger common divisor than the steps, but for one case in some ten thousand"""
LONGEST_NS = 1_000_000_000
"""of a tile whose cycles are counted: the counter has 32 bits"""


def record_bytes(phases: int) -> int:
    """Of a record, a multiple of 8."""
    return 28 + 4 * (phases | 1)


def start(programs: int, room: int, phases: int) -> bytes:
    """What the first run finds before the records."""
    return HEAD.pack(0, room, programs, phases)


def size(programs: int, room: int, phases: int) -> int:
    """Bytes for the records of `room` runs."""
    return HEAD.size + record_bytes(phases) * programs * room


def empty(programs: int, room: int, phases: int) -> bytes:
    """The memory as the first run finds it."""
    return start(programs, room, phases).ljust(size(programs, room, phases), b"\0")


def made(head: bytes) -> tuple[int, int]:
    """How many runs are complete, and how many of these have records."""
    ended, room, programs, _ = HEAD.unpack_from(head)
    return ended // programs, min(ended // programs, room)


def runs(data: bytes, phases: Sequence[Sequence[int]]) -> Iterator[dict[str, Any]]:
    """The records of each complete run that has some, as columns: one for each phase of a tile. `phases`: the number
    and line of each. Starts are on the device's clock. Beside the columns `written`: how many records there are in
    memory, and how often the clock was read for their phases."""
    _, _, programs, count = HEAD.unpack_from(data)
    kind = np.dtype([*_LAYOUT, ("cycles", "u4", (count | 1,))])
    for run in range(made(data)[1]):
        found = np.frombuffer(data, kind, programs, HEAD.size + kind.itemsize * programs * run)
        tiles = {name: found[name].astype(np.int64) for name in ("tile", "resource", "start", "duration")}
        cycles = found["cycles"].astype(np.int64)[:, :count]
        cycles[~_can_tell(tiles["duration"])] = 0
        yield {**_divided(tiles, cycles, phases), "written": (programs, int(found["readings"].sum()))}


def _can_tell(duration: Any) -> Any:
    """Of which tiles the phases are told: those that last some steps of the clock, and no round of the counter."""
    step = int(np.gcd.reduce(duration)) or COARSEST_NS
    if len(duration) < SHOW_STEPS:
        step = min(step, COARSEST_NS)
    return (duration >= STEPS * step) & (duration < LONGEST_NS)


def _divided(tiles: dict[str, Any], cycles: Any, phases: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Each tile's time in the ratio of the cycles: its phases, one behind the other, or all of it."""
    total = cycles.sum(1)
    parts = np.concatenate([cycles, (total == 0)[:, None]], 1)
    ends = np.rint(parts.cumsum(1) * (tiles["duration"] / np.maximum(total, 1))[:, None]).astype(np.int64)
    begins = np.concatenate([np.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
    tile, part = np.nonzero(parts)
    numbers, lines = np.array([*phases, (0, 0)], np.int64).T
    return {
        "tile": tiles["tile"][tile],
        "resource": tiles["resource"][tile],
        "slot": np.full(len(tile), -1),
        "phase": numbers[part],
        "line": lines[part],
        "start": tiles["start"][tile] + begins[tile, part],
        "duration": (ends - begins)[tile, part],
    }
