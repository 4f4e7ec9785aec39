"""The chain of activities without which the region would have been shorter, from its end back to its beginning.

Each step was waited for by the next: before an activity began, the one that ended last had to end, or, where none ran,
a line of the program. This is the rule of the last one to arrive (Yang and Miller 1988), which needs no list of
dependencies. The steps neither overlap nor leave a gap, so that they sum to the region. A kernel that ran beside the
chain, on another stream, device or thread, can become slower by its slack and cost nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tessera.profiler.host import place_text, sampled_slices
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording, Replay
from tessera.profiler.views.markup import table, table_alone, text

Kind = Literal["kernel", "graph", "compile", "profiling", "host"]
SHOWN = 8
"""parts in the text, the longest first"""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One link of the chain. Times in ns."""

    kind: Kind
    what: str
    """a kernel's title, what was compiled, a line of the program, or a graph between two of its kernels"""
    start: int
    duration: int


@dataclass(frozen=True, slots=True)
class PathPart:
    """All steps of one name. `beside`: ns of the same activity that were not on the path."""

    kind: Kind
    what: str
    steps: int
    duration: int
    share: float | None
    """of the run, 0..1; None for recording, which is beside the run"""
    beside: int


class CriticalPath:
    """`steps` in order of time; `parts`: the same by name, longest first."""

    def __init__(self, recording: Recording) -> None:
        self.region, run = recording.duration, recording.run_time or 1
        found = _activities(recording)
        chain = _within_graphs(recording.replays, list(_chain(found, recording.start, recording.end)))
        self.steps = _with_lines(recording, chain)
        total: dict[tuple[Kind, str], int] = {}
        for step in found:
            key = step.kind, step.what
            total[key] = total.get(key, 0) + step.duration
        on: dict[tuple[Kind, str], list[PathStep]] = {}
        for step in self.steps:
            on.setdefault((step.kind, step.what), []).append(step)
        self.parts: list[PathPart] = []
        for key in {**on, **total}:
            took = sum(step.duration for step in on.get(key, ()))
            beside = max(0, total.get(key, 0) - took)
            share = None if key[0] == "profiling" else took / run
            self.parts.append(PathPart(*key, len(on.get(key, ())), took, share, beside))
        self.parts.sort(key=lambda part: (-part.duration, -part.beside))

    def __str__(self) -> str:
        lines = [f"Critical path: {format_time(self.region)} in {len(self.steps):,} steps"]
        for part in self.parts[:SHOWN]:
            beside = f"; {format_time(part.beside)} more ran beside it" if part.beside else ""
            took = f"{format_time(part.duration)} ({_share(part, 'beside the run')}"
            lines.append(f"  {_named(part)}: {took}, {part.steps:,} step{'s' * (part.steps != 1)}){beside}")
        if len(self.parts) > SHOWN:
            lines.append(f"  and {len(self.parts) - SHOWN} more: all are in `critical_path().parts`")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads = ("time", "of the run", "steps", "ran beside it")
        rows = [
            (
                text(_named(part)),
                format_time(part.duration),
                _share(part, "-"),
                f"{part.steps:,}",
                format_time(part.beside) if part.beside else "-",
            )
            for part in self.parts
        ]
        return table_alone("ts-path", table(("on the critical path", *heads), rows, heads))


def _share(part: PathPart, beside: str) -> str:
    return beside if part.share is None else format_percent(part.share)


def _named(part: PathPart) -> str:
    return f"compiling {part.what}" if part.kind == "compile" else part.what


def _activities(recording: Recording) -> list[PathStep]:
    found = [
        PathStep("kernel", event.title, event.start, event.duration)
        for event in recording.launches
        if event.duration is not None
    ]
    found += [PathStep("compile", event.name, event.start, event.duration) for event in recording.compiles]
    found += [PathStep("profiling", "profiling", event.start, event.duration) for event in recording.profiling]
    return found


def _chain(found: Sequence[PathStep], begin: int, end: int) -> Iterator[PathStep]:
    """Backwards in time; the host where nothing ran. An activity counts from its start, within the region."""
    ordered = sorted(
        (step for step in found if step.duration), key=lambda step: (step.start + step.duration, step.start)
    )
    ends = [step.start + step.duration for step in ordered]
    now = end
    while now > begin:
        at = bisect_right(ends, now) - 1
        if at < 0 or ends[at] <= begin:
            yield PathStep("host", "", begin, now - begin)
            return
        if ends[at] < now:
            yield PathStep("host", "", ends[at], now - ends[at])
        start = max(begin, ordered[at].start)
        yield PathStep(ordered[at].kind, ordered[at].what, start, ends[at] - start)
        now = start


def _within_graphs(replays: Sequence[Replay], backwards: list[PathStep]) -> list[PathStep]:
    """The same, with the part of the host's steps that a graph ran in as the graph's: what lies between two kernels of
    a replay is no work of the host's."""
    spans: list[tuple[int, int, str]] = []
    for replay in replays:  # of two at a time the one that began first
        begin = max(replay.start, spans[-1][1] if spans else replay.start)
        if begin < replay.end:
            spans.append((begin, replay.end, f"graph {replay.graph}: pauses and what is not Tessera's"))
    starts = [begin for begin, _, _ in spans]
    out: list[PathStep] = []
    for step in backwards:
        if step.kind != "host":
            out.append(step)
            continue
        end = step.start + step.duration
        at = bisect_right(starts, end) - 1
        while at >= 0 and spans[at][1] > step.start:
            begin, until = max(step.start, spans[at][0]), min(end, spans[at][1])
            if until < end:
                out.append(PathStep("host", "", until, end - until))
            if begin < until:
                out.append(PathStep("graph", spans[at][2], begin, until - begin))
            end = min(end, begin)
            at -= 1
        if end > step.start:
            out.append(PathStep("host", "", step.start, end - step.start))
    return out


def _with_lines(recording: Recording, backwards: list[PathStep]) -> list[PathStep]:
    """In order of time, the host's steps divided among the lines that were sampled in them."""
    sampled = list(sampled_slices(recording))
    starts = [start for start, _, _ in sampled]
    out: list[PathStep] = []
    for step in reversed(backwards):
        if step.kind != "host":
            out.append(step)
            continue
        now, end = step.start, step.start + step.duration
        at = max(0, bisect_right(starts, now) - 1)
        while now < end:
            while at < len(sampled) and sampled[at][1] <= now:
                at += 1
            begin, stop, place = sampled[at] if at < len(sampled) else (end, end, None)
            if place is None or begin >= end:
                out.append(PathStep("host", _NOT_SAMPLED, now, end - now))
                break
            if begin > now:
                out.append(PathStep("host", _NOT_SAMPLED, now, begin - now))
            begin, stop = max(begin, now), min(stop, end)
            out.append(PathStep("host", place_text(place), begin, stop - begin))
            now = stop
    return out


_NOT_SAMPLED = "Python and starting calls"
