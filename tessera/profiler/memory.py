"""Memory over time, from allocation and release events."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tessera.profiler.quantity import format_bytes
from tessera.profiler.views.display import Plot
from tessera.runtime.events import MemoryEvent

if TYPE_CHECKING:
    import plotly.graph_objects as go

P = ParamSpec("P")
R = TypeVar("R")


class MemoryReport(Plot):
    """Peak and current use per device, in bytes, and the events in order of time."""

    def __init__(self, events: Sequence[MemoryEvent]) -> None:
        self.events = sorted(events, key=lambda event: event.time)
        self.peak: dict[str, int] = {}
        self.current: dict[str, int] = {}
        for event in self.events:
            self.peak[event.device] = max(self.peak.get(event.device, 0), event.total)
            self.current[event.device] = event.total

    def by_line(self) -> list[tuple[str, int, int]]:
        """(file, line, bytes allocated) for every source line that allocated, most first."""
        lines: dict[tuple[str, int], int] = {}
        for event in self.events:
            if event.delta > 0 and event.line:
                lines[event.file, event.line] = lines.get((event.file, event.line), 0) + event.delta
        return sorted(((*place, size) for place, size in lines.items()), key=lambda entry: -entry[2])

    def details(self) -> str:
        """The lines of a memory profile: peak, what is left, counts, and every line that allocated."""
        taken = sum(event.delta for event in self.events if event.delta > 0)
        given = -sum(event.delta for event in self.events if event.delta < 0)
        lines = [f"  Peak usage: {format_bytes(max(self.peak.values(), default=0))}"]
        lines += [f"  Current usage: {format_bytes(sum(self.current.values()))}"]
        lines += [f"  Allocations: {sum(event.delta > 0 for event in self.events)}"]
        lines += [f"  Deallocations: {sum(event.delta < 0 for event in self.events)}"]
        lines += [f"  Not released: {format_bytes(max(taken - given, 0))}"]
        if self.by_line():
            lines += ["", "  Line by line:"]
        lines += [f"    {file}:{line}: +{format_bytes(size)}" for file, line, size in sorted(self.by_line())]
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = ["Memory Usage:"]
        for device, peak in self.peak.items():
            label = f" ({device})" if len(self.peak) > 1 else ""
            lines.append(f"  Peak{label}: {format_bytes(peak)}")
            lines.append(f"  Allocated{label}: {format_bytes(self.current[device])}")
        if not self.events:
            lines.append("  nothing was allocated or released")
        lines += [f"  {file}:{line}: {format_bytes(size)} allocated" for file, line, size in self.by_line()[:5]]
        return "\n".join(lines)

    def figure(self) -> go.Figure:
        """Bytes held over time, one step line per device."""
        from tessera.profiler.views.memory import memory_figure

        return memory_figure(self.events)


def profile_memory(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: prints what each call of `function` allocated, where, and what it still holds at its end."""

    @functools.wraps(function)
    def profiled(*args: P.args, **kwargs: P.kwargs) -> R:
        from tessera.profiler.session import Profiler

        with Profiler(tiles=False) as prof:
            try:
                return function(*args, **kwargs)
            finally:
                report = MemoryReport(prof.recording.memory)
                print(f"Memory Profile for {function.__name__}:", report.details(), sep="\n")

    return profiled
