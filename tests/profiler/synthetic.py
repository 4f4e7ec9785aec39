"""Recordings with known answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tessera.profiler.machine import Ceiling, DeviceCeilings
from tessera.profiler.recording import Recording
from tessera.runtime.events import Event, LaunchEvent, TileBatch, TileEvent

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


def recorded(*events: Event, start: int = 0, end: int = 1_000_000) -> Recording:
    """A recording of `events` on MACHINE."""
    recording = Recording(start, end)
    recording.machines["cpu:0"] = MACHINE
    for event in events:
        recording.add(event)
    return recording


def launch(number: int = 1, kernel: str = "saxpy", start: int = 0, duration: int = 100_000, **rest: Any) -> LaunchEvent:
    """A launch on MACHINE; attributes as `attributes=`."""
    fields = {"target": "cpu", "device": "cpu:0", "grid": (4,), **rest}
    return LaunchEvent(number, kernel, start=start, duration=duration, **fields)


def tiles(*rows: tuple[int, int, int, int], launch: int = 1, phase: str = "tile", slot: int = 0) -> TileBatch:
    """Tile records of one phase from (tile, resource, start, duration)."""
    return TileBatch.from_events([TileEvent(launch, t, r, slot, phase, start, d, 7) for t, r, start, d in rows])


def batch(events: Iterable[TileEvent]) -> TileBatch:
    return TileBatch.from_events(list(events))
