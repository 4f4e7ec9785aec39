"""Memory over time, from allocation and release events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tessera.profiler.quantity import format_bytes
from tessera.profiler.sampling.stacks import Samples
from tessera.profiler.style import PALETTE, Plot, empty_figure, escape, graph_objects, styled, time_unit
from tessera.profiler.views.memory import view
from tessera.runtime.arrays.holders import Holder
from tessera.runtime.events import MemoryEvent

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_HOLDERS, _MOST_NAMES, _MOST_LINES = 8, 3, 5


PROCESS = "process"
"""in the place of a device: all memory of the process, as the system counts it"""


def of_samples(samples: Samples) -> list[MemoryEvent]:
    """The memory of the process over a long run, whose allocations are not told one by one: what it grew or shrank by
    between two samples, at the line of the second."""
    found: list[MemoryEvent] = []
    before = 0
    for time, where, total in zip(samples.times, samples.where, samples.resident, strict=False):
        if total != before:
            place = samples.places[where]
            line = (place.line, place.file) if found else (0, "")
            found.append(MemoryEvent(time, PROCESS, total - before, total, "memory of the process", *line))
        before = total
    return found


class MemoryReport(Plot):
    """Peak and current use per device, in bytes, and the events in order of time."""

    def __init__(
        self, events: Sequence[MemoryEvent], held: Mapping[str, Sequence[Holder]] = MappingProxyType({})
    ) -> None:
        self.events = sorted(events, key=lambda event: event.time)
        self._held = held
        """variables, by when they were looked for"""
        self.peak: dict[str, int] = {}
        self.current: dict[str, int] = {}
        for event in self.events:
            self.peak[event.device] = max(self.peak.get(event.device, 0), event.total)
            self.current[event.device] = event.total

    def holders(self, when: Literal["peak", "end"] = "end") -> list[Holder]:
        """Who held memory at the peak, or at the end of the region, largest first: by the lines that made the arrays
        and the variables of the program through which they were reached.

        What one line made stands together, with `count` of them. Lines are known of all that was made in the region;
        variables of the few largest, at the peak as they were when at most a tenth less was held. Arrays that Tessera
        did not make have variables alone.
        """
        alive: dict[int, MemoryEvent] = {}
        until = max(self.events, key=lambda e: e.total).time if when == "peak" and self.events else None
        for event in self.events:
            if event.block and event.delta > 0:
                alive[event.block] = event
            elif event.block:
                alive.pop(event.block, None)
            if event.time == until:
                break
        made = {event.block for event in self.events if event.delta > 0 and event.block}
        known = {h.number: h for h in self._held.get(when, ()) if h.number}
        found = [h for h in self._held.get(when, ()) if h.number not in made]
        for number, event in alive.items():
            paths = known[number].paths if number in known else ()
            found.append(Holder(number, event.delta, paths, event.what, event.file, event.line))
        groups: dict[object, list[Holder]] = {}
        for h in found:
            groups.setdefault((h.file, h.line, h.what) if h.line else h, []).append(h)
        together = [
            replace(g[0], nbytes=sum(h.nbytes for h in g), paths=tuple(p for h in g for p in h.paths), count=len(g))
            for g in groups.values()
        ]
        return sorted(together, key=lambda h: -h.nbytes)

    def stack(self, holder: Holder) -> tuple[tuple[str, int, str], ...]:
        """File, line and function of the calls in which a holder's first array was made, the innermost first."""
        made = (e.stack for e in self.events if e.block == holder.number and e.delta > 0 and holder.number)
        return next(made, ())

    def view(self) -> str:
        return view(self.events, [(h, self.stack(h), held(h)) for h in self.holders("peak")[:_MOST_HOLDERS]])

    def _held_lines(self, most: int) -> list[str]:
        lines: list[str] = []
        for said, holders in (("peak", self.holders("peak")), ("end", self.holders("end"))):
            found = holders[:most]
            lines += ["", f"  Held at the {said}:"] if found else []
            lines += [f"    {held(h)}" for h in found]
        return lines

    def by_line(self) -> list[tuple[str, int, int]]:
        """(file, line, bytes allocated) for every source line that allocated, most first."""
        lines: dict[tuple[str, int], int] = {}
        for event in self.events:
            if event.delta > 0 and event.line:
                lines[event.file, event.line] = lines.get((event.file, event.line), 0) + event.delta
        return sorted(((*place, size) for place, size in lines.items()), key=lambda entry: -entry[2])

    def held(self) -> list[tuple[str, int, str, int]]:
        """What backward passes read, by forward line: (file, line, name, the most bytes at a time), most first."""
        found: dict[tuple[str, int, str], int] = {}
        for event in self.events:
            own: dict[tuple[str, int, str], int] = {}
            for *place, size in event.held:
                key: Any = tuple(place)
                own[key] = own.get(key, 0) + size
            found |= {key: max(size, found.get(key, 0)) for key, size in own.items()}
        return sorted(((*key, size) for key, size in found.items()), key=lambda entry: -entry[3])

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
        lines += self._held_lines(_MOST_HOLDERS)
        if self.held():
            lines += ["", "  Held for backward passes:"]
        lines += [f"    {file}:{line}: {name} {format_bytes(size)}" for file, line, name, size in self.held()]
        return "\n".join(lines)

    def __str__(self) -> str:
        if PROCESS in self.peak:
            return "\n".join(self._of_process())
        lines = ["Memory Usage:"]
        for device, peak in self.peak.items():
            label = f" ({device})" if len(self.peak) > 1 else ""
            lines.append(f"  Peak{label}: {format_bytes(peak)}")
            lines.append(f"  Allocated at the end{label}: {format_bytes(self.current[device])}")
        if not self.events:
            lines.append("  nothing was allocated or released")
        lines += [f"  {file}:{line}: {format_bytes(size)} allocated in all" for file, line, size in self.by_line()[:5]]
        held = self.held()[:5]
        lines += [
            f"  {file}:{line}: {name} {format_bytes(size)} held for the backward pass"
            for file, line, name, size in held
        ]
        return "\n".join(lines)

    def _of_process(self) -> list[str]:
        first, *_, last = self.events if len(self.events) > 1 else (*self.events, *self.events)
        sign = "-" if last.total < first.total else "+"
        grew = f"{sign}{format_bytes(abs(last.total - first.total))}"
        lines = ["Memory of the process (sampled):", f"  Peak: {format_bytes(self.peak[PROCESS])}"]
        lines.append(f"  At the end: {format_bytes(last.total)}, {grew} since the beginning")
        net: dict[tuple[str, int], int] = {}
        for event in self.events[1:]:
            if event.line:
                net[event.file, event.line] = net.get((event.file, event.line), 0) + event.delta
        grown = sorted(net.items(), key=lambda entry: -entry[1])[:_MOST_LINES]
        lines += [f"  {file}:{line}: grew by {format_bytes(size)}" for (file, line), size in grown if size > 0]
        return lines + self._held_lines(_MOST_LINES)

    def figure(self) -> go.Figure:
        """Bytes held over time, one step line per device."""

        return memory_figure(self.events)


def held(holder: Holder) -> str:
    """`model.py:12: 2 x result, 8.4 MB, by cache[0] (model.py), cache[1] (model.py)`"""
    where = f"{holder.file}:{holder.line}: " if holder.line else ""
    times = f"{holder.count} x " if holder.count > 1 else ""
    names = ", ".join(holder.paths[:_MOST_NAMES])
    more = f" and {len(holder.paths) - _MOST_NAMES} more" if len(holder.paths) > _MOST_NAMES else ""
    by = f", by {names}{more}" if names else ""
    return f"{where}{times}{holder.what or 'not made by Tessera'}, {format_bytes(holder.nbytes)}{by}"


def memory_figure(events: Sequence[MemoryEvent]) -> go.Figure:
    """One step line per device; the peak is marked, and each step says what was allocated or released where."""
    if not events:
        return empty_figure("Memory", "nothing was allocated or released")
    go = graph_objects()
    first, last = min(event.time for event in events), max(event.time for event in events)
    scale, unit = time_unit(last - first)
    figure = go.Figure()
    for index, device in enumerate(dict.fromkeys(event.device for event in events)):
        mine = sorted((event for event in events if event.device == device), key=lambda event: event.time)
        colour = PALETTE[index % len(PALETTE)]
        figure.add_trace(
            go.Scatter(
                x=[(event.time - first) / scale for event in mine],
                y=[event.total for event in mine],
                mode="lines+markers" if len(mine) <= 200 else "lines",
                marker={"size": 5},
                line={"shape": "hv", "color": colour, "width": 2},
                fill="tozeroy",
                name=escape(device),
                text=[_describe(event) for event in mine],
                hovertemplate="%{text}<extra></extra>",
            )
        )
        peak = max(mine, key=lambda event: event.total)
        figure.add_annotation(
            text=f"peak {format_bytes(peak.total)}", x=(peak.time - first) / scale, y=peak.total, showarrow=False,
            yanchor="bottom", xanchor="right" if peak.time - first > (last - first) / 2 else "left", font={"size": 11},
        )  # fmt: skip
    styled(figure, "Memory", 300)
    figure.update_xaxes(title=f"time ({unit})")
    figure.update_yaxes(title="held", tickformat="~s", ticksuffix="B", rangemode="tozero")
    figure.update_layout(showlegend=len(figure.data) > 1)
    return figure


def _describe(event: MemoryEvent) -> str:
    sign = "+" if event.delta >= 0 else "-"
    place = f"<br>{escape(event.file)}:{event.line}" if event.line else ""
    kept = "".join(
        f"<br>for the backward pass: {escape(name)} {format_bytes(size)}, line {line}"
        for _, line, name, size in event.held[:8]
    )
    text = f"{sign}{format_bytes(abs(event.delta))} {escape(event.what)}<br>{format_bytes(event.total)} held{place}"
    return text + kept
