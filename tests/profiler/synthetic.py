"""Recordings with known answers, and events at random."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tessera.profiler.machine import Ceiling, DeviceCeilings
from tessera.profiler.recording import Recording
from tessera.profiler.trial import lines
from tessera.runtime import events
from tessera.runtime.events import (
    UNASSIGNED,
    CompileEvent,
    Event,
    LaunchEvent,
    MemoryEvent,
    TileBatch,
    TileEvent,
)

MACHINE = DeviceCeilings(
    "cpu:0",
    "a machine",
    threads=2,
    cache_bytes=1 << 20,
    ceilings=(
        Ceiling("bandwidth", "memory", 10e9, "measured", "copy"),
        Ceiling("bandwidth", "cache", 100e9, "measured", "copy within cache"),
        Ceiling("compute", "f32", 100e9, "measured", "matrix product"),
    ),
)
"""10 GB/s and 100 GFLOP/s: one byte takes 0.1 ns, one operation 0.01 ns."""


def recorded(*found: Event, start: int = 0, end: int = 1_000_000) -> Recording:
    """A recording of these events on MACHINE."""
    recording = Recording(start, end)
    recording.machines["cpu:0"] = MACHINE
    for event in found:
        recording.add(event)
    return recording


def launch(number: int = 1, kernel: str = "saxpy", start: int = 0, duration: int = 100_000, **rest: Any) -> LaunchEvent:
    """A launch on MACHINE; attributes as `attributes=`."""
    fields = {"target": "cpu", "device": "cpu:0", "grid": (4,), **rest}
    return LaunchEvent(number, kernel, start=start, duration=duration, **fields)


def tiles(*rows: tuple[int, int, int, int], launch: int = 1, phase: str = "tile", slot: int = 0) -> TileBatch:
    """Tile records of one phase from (tile, resource, start, duration)."""
    return TileBatch.from_events([TileEvent(launch, t, r, slot, phase, start, d, 7) for t, r, start, d in rows])


def time_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are compared take a nanosecond for each operation and byte of their kernels, however busy the
    machine is."""
    measured = lines.seconds_by_line

    def by_line(recording: Recording) -> dict[tuple[str, int], float]:
        work = [replace(one, duration=(one.flops or 0) + (one.bytes or 0)) for one in recording.launches]
        return measured(recorded(*work))

    def timed(call: Callable[[], object]) -> Callable[[int], float]:
        def run(times: int) -> float:
            recording = Recording()
            token = events.subscribe(recording.add)
            try:
                call()
                events.drain()
            finally:
                events.unsubscribe(token)
            return sum(by_line(recording).values())

        return run

    monkeypatch.setattr(lines, "seconds_by_line", by_line)
    monkeypatch.setattr(lines, "timed", timed)


def batch(found: Iterable[TileEvent]) -> TileBatch:
    return TileBatch.from_events(list(found))


small = st.integers(0, 60)
tile_events = st.builds(
    TileEvent,
    launch=st.integers(1, 4),
    tile=st.integers(0, 5),
    resource=st.integers(0, 3),
    slot=st.sampled_from([UNASSIGNED, 0, 1]),
    phase=st.sampled_from(["tile", "load", "mma", "store"]),
    start=small,
    duration=small,
    line=st.integers(0, 9),
    rank=st.integers(0, 1),
    device=st.integers(0, 1),
)
launch_events = st.builds(
    launch,
    st.integers(1, 4),
    st.text(max_size=8),
    start=small,
    duration=st.none() | small,
    device=st.sampled_from(["cpu:0", "cuda:1"]),
    target=st.sampled_from(["cpu", "cuda"]),
    rank=st.integers(0, 1),
    attributes=st.dictionaries(
        st.text(max_size=4), st.none() | st.text(max_size=4) | st.floats() | st.integers(), max_size=2
    ),
)
compile_events = st.builds(
    CompileEvent,
    name=st.text(max_size=5),
    target=st.just("cpu"),
    start=small,
    duration=small,
    stages=st.lists(st.tuples(st.text(max_size=4), small), max_size=3).map(tuple),
)
memory_events = st.builds(
    MemoryEvent, time=small, device=st.sampled_from(["cpu:0", "cuda:1"]), delta=small, total=small, what=st.just("x")
)

ANY_EVENTS = {
    "found": st.lists(tile_events, max_size=25),
    "launched": st.lists(launch_events, max_size=4),
    "compiled": st.lists(compile_events, max_size=3),
    "held": st.lists(memory_events, max_size=4),
}
"""for tests of what is written of a recording, as arguments by name"""
