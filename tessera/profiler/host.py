"""What the program's thread did while no kernel ran, by line: gaps between launches, and who spent them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tessera.errors import source_line
from tessera.language.lazy import np
from tessera.profiler.kernel_stats import outside_spans
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.profiler.sampling.stacks import HostPlace
from tessera.runtime.events import Source

SHOWN = 5
"""lines in the text, the longest first"""
_SHARE = 0.01
"""of the run; lines below it are not shown"""


@dataclass(frozen=True, slots=True)
class HostLine:
    """A line of the program, and the time outside of kernels that it took, ns.

    `modelled` is the part of it that lies in gaps too short to be sampled one by one: their sum, shared out as the
    samples fall that hit such gaps.
    """

    place: HostPlace
    duration: int
    modelled: int
    samples: int

    @property
    def source(self) -> Source:
        return "modelled" if 2 * self.modelled > self.duration else "measured"

    def __str__(self) -> str:
        return place_text(self.place)


@dataclass(frozen=True, slots=True)
class HostGap:
    """A stretch of time in which no kernel ran, and the line that took most of it: None where no sample hit it."""

    start: int
    duration: int
    place: HostPlace | None


class HostReport:
    """`lines`, longest first; `gaps`, longest first; `unknown` ns of gaps that no sample tells anything of."""

    def __init__(self, recording: Recording) -> None:
        self.region, self.run = recording.duration, recording.run_time
        """ns that were recorded, and those of them without what went into recording"""
        self.samples = recording.samples
        self.untimed = sum(launch.duration is None and launch.source == "static" for launch in recording.launches)
        """launches whose time is not known, and so lies in the gaps: several of one call, without tile records"""
        self.unseen = recording.unseen_replays
        spans = outside_spans(recording)
        self.total = sum(end - start for start, end in spans)
        taken: dict[int, int] = {}
        hits: dict[int, int] = {}
        short: dict[int, int] = {}
        missed, self.gaps = 0, list[HostGap]()
        for start, end, pieces in _by_span(recording, spans):
            own: dict[int, int] = {}
            for begin, stop, where in pieces:
                own[where] = own.get(where, 0) + stop - begin
                hits[where] = hits.get(where, 0) + 1
                if end - start < 2 * self.samples.interval:
                    short[where] = short.get(where, 0) + 1
            for where, duration in own.items():
                taken[where] = taken.get(where, 0) + duration
            missed += 0 if own else end - start
            most = max(own, key=lambda where: own[where], default=None)
            self.gaps.append(HostGap(start, end - start, None if most is None else self.samples.places[most]))
        self.gaps.sort(key=lambda gap: -gap.duration)
        shares = sum(short.values())
        self.unknown = 0 if shares else missed
        found: list[HostLine] = []
        for where, duration in taken.items():
            modelled = missed * short.get(where, 0) // shares if shares else 0
            found.append(HostLine(self.samples.places[where], duration + modelled, modelled, hits[where]))
        self.lines = sorted(found, key=lambda line: -line.duration)

    def spent_elsewhere(self) -> list[int]:
        """When the gaps end that were seen to pass in other code than Tessera's, ns, in order: no launch took them."""
        seen = (gap for gap in self.gaps if gap.duration >= 2 * self.samples.interval and gap.place is not None)
        return sorted(gap.start + gap.duration for gap in seen if gap.place and gap.place.doing != "tessera")

    @property
    def overhead(self) -> float | None:
        """Processor time that sampling took, over the region's; None where nothing was sampled."""
        return self.samples.spent / self.region if self.region and len(self.samples.times) else None

    def __str__(self) -> str:
        share = format_percent(self.total / self.run) if self.run else "0%"
        lines = [f"Outside kernels: {format_time(self.total)} ({share} of the run)"]
        shown = [line for line in self.lines if line.duration >= _SHARE * self.run][:SHOWN]
        for line in shown:
            modelled = ", modelled" if line.source == "modelled" else ""
            of = format_percent(line.duration / self.total)
            lines.append(f"  {line}: {format_time(line.duration)} ({of}{modelled})")
        if self.untimed:
            lines.append(f"  the time of {self.untimed:,} launches is in it: tile records tell them apart")
        if self.unseen:
            lines.append(f"  kernels of CUDA graphs may be in it: {self.unseen}")
        if self.overhead is None:
            lines.append("  lines were not sampled")
        else:
            every = format_time(self.samples.interval)
            took = f"{len(self.samples.times):,} samples, one every {every}, took {format_percent(self.overhead)}"
            lines.append(f"  {took} of the time")
        return "\n".join(lines)


def place_text(place: HostPlace) -> str:
    """`train.py:12 time.sleep(0.05)`, with what it was in where that is a library's."""
    if not place.file:
        return f"{place.doing} itself"
    text = (source_line(place.file, place.line) or "").strip()
    text = text if len(text) <= 60 else text[:57] + "..."
    doing = f" in {place.doing}" if place.doing else ""
    return f"{Path(place.file).name}:{place.line} {text or place.function}{doing}"


def sampled_slices(recording: Recording) -> Iterator[tuple[int, int, HostPlace]]:
    """(start, end, place) of what the thread did outside of kernels; neighbours of one place are one."""
    for _, _, pieces in _by_span(recording, outside_spans(recording)):
        last: tuple[int, int, int] | None = None
        for start, end, where in pieces:
            if last is not None and last[2] == where:
                last = (last[0], end, where)
                continue
            if last is not None:
                yield last[0], last[1], recording.samples.places[last[2]]
            last = (start, end, where)
        if last is not None:
            yield last[0], last[1], recording.samples.places[last[2]]


def _by_span(
    recording: Recording, spans: list[tuple[int, int]]
) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """Each span, and its pieces as (start, end, number of the place): a sample stands for the time since the one
    before, the last one of a span also for what is left of it."""
    times = np.array(recording.samples.times, np.int64)
    firsts = times.searchsorted([start for start, _ in spans]) if spans else []
    lasts = times.searchsorted([end for _, end in spans], "right") if spans else []
    for (start, end), first, last in zip(spans, firsts, lasts, strict=True):
        pieces: list[tuple[int, int, int]] = []
        begin = start
        for index in range(int(first), int(last)):
            stop = end if index == last - 1 else int(times[index])
            pieces.append((begin, stop, recording.samples.where[index]))
            begin = stop
        yield start, end, pieces
