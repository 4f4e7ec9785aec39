"""Several processes' profiles side by side: where each spent its time, and which of them the others wait for."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from tessera.profiler.kernel_stats import time_outside
from tessera.profiler.quantity import format_bytes, format_percent, format_time
from tessera.profiler.recording import Recording

SHOWN = 8
"""kernels in the text, those in which processes differ most first"""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process. Times in ns; kernels may run side by side, so that theirs is the time in which any ran."""

    name: str
    region: int
    kernels: int
    compiling: int
    outside: int
    launches: int
    peak: int | None
    """bytes, over all devices; None where memory was not recorded"""


@dataclass(frozen=True, slots=True)
class SharedKernel:
    """One kernel in all processes that ran it, by title."""

    title: str
    times: dict[str, int]
    """process -> ns of its launches"""
    launches: dict[str, int]

    @property
    def slowest(self) -> str:
        """The process with most time in it."""
        return max(self.times, key=self.times.__getitem__)

    @property
    def lost(self) -> float:
        """ns by which that process lies above the median: what the others wait, where they have to wait."""
        return max(self.times.values()) - statistics.median(self.times.values())


@dataclass(slots=True)
class Processes:
    """Filled process by process, so that one recording is held at a time."""

    rows: list[ProcessRow] = field(default_factory=list[ProcessRow])
    kernels: dict[str, SharedKernel] = field(default_factory=dict[str, SharedKernel])

    def add(self, name: str, recording: Recording) -> None:
        timed = [event for event in recording.launches if event.duration is not None]
        busy = recording.covered([(e.start, e.start + (e.duration or 0)) for e in timed])
        compiling = recording.covered([(e.start, e.start + e.duration) for e in recording.compiles])
        peaks: dict[str, int] = {}
        for event in recording.memory:
            peaks[event.device] = max(peaks.get(event.device, 0), event.total)
        peak = sum(peaks.values()) if recording.memory else None
        outside = time_outside(recording)
        self.rows.append(ProcessRow(name, recording.duration, busy, compiling, outside, len(timed), peak))
        for event in timed:
            row = self.kernels.setdefault(event.title, SharedKernel(event.title, {}, {}))
            row.times[name] = row.times.get(name, 0) + (event.duration or 0)
            row.launches[name] = row.launches.get(name, 0) + 1

    @property
    def uneven(self) -> list[SharedKernel]:
        """The kernels of several processes, those first in which the slowest lies furthest above the median."""
        shared = [row for row in self.kernels.values() if len(row.times) > 1]
        return sorted(shared, key=lambda row: -row.lost)

    def __str__(self) -> str:
        lines = ["Processes:"]
        for row in self.rows:
            part = format_percent(row.kernels / row.region) if row.region else "0%"
            peak = "" if row.peak is None else f", peak memory {format_bytes(row.peak)}"
            lines.append(
                f"  {row.name}: {format_time(row.region)}, {format_time(row.kernels)} in kernels ({part}), "
                f"{format_time(row.outside)} outside, {row.launches:,} launches{peak}"
            )
        lines += ["", "Kernels by what one process takes longer than the median:"] if self.uneven else []
        for row in self.uneven[:SHOWN]:
            times = sorted(row.times.values())
            lines.append(
                f"  {row.title}: {format_time(times[0])} to {format_time(times[-1])}, median "
                f"{format_time(statistics.median(times))}; longest in {row.slowest} (+{format_time(row.lost)})"
            )
        if len(self.uneven) > SHOWN:
            lines.append(f"  and {len(self.uneven) - SHOWN} more")
        return "\n".join(lines)
