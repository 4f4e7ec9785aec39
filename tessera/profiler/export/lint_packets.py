"""A linter for TrackEvent traces: packets that are cut off, slices that do not nest or end, names and tracks that
nobody declared, flows without an end.

It reads any file of Perfetto's packets. Those of other kinds are passed over; times on a clock that a sequence counts
by itself are not compared, and `notes` say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tessera.profiler.export import track_event as te
from tessera.profiler.export.lint import first_findings
from tessera.profiler.export.wire import BYTES, WireError, fields

DEFAULTS, CLOCK, DEFAULT_EVENT = 59, 58, 11
"""of a packet: what holds for the events behind it, the clock it is on; of the defaults: those of events"""
FLOW_OLD, FLOW_OLD_END, LEGACY = 36, 42, 6
_OWN_CLOCKS = 64
"""clocks from here on belong to a sequence, which may count them from one packet to the next"""

_WANTED = (te.TIMESTAMP, te.SEQUENCE, te.EVENT, te.INTERNED, te.FLAGS, te.TRACK, DEFAULTS, CLOCK)


@dataclass(slots=True)
class PacketReport:
    """What the packets hold; `duration` in ns from the first event to the last."""

    packets: int = 0
    slices: int = 0
    instants: int = 0
    counters: int = 0
    tracks: int = 0
    duration: int = 0
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    flows: int = 0


@dataclass(slots=True)
class _Sequence:
    """What a writer said before: numbers of names, and what holds for events that say nothing else."""

    names: set[int] = field(default_factory=set)
    track: int = 0
    clock: int = 0


@dataclass(slots=True)
class _Open:
    start: int | None
    packet: int


def is_packets(data: bytes) -> bool:
    """Whether it begins as a file of packets does: a text may begin with the same byte, a line's end."""
    try:
        number, kind, begin, end = next(fields(data))
        inner = [(n, k) for n, k, _, _ in fields(data, begin, end)]
    except (WireError, StopIteration):
        return False
    return number == te.PACKET and kind == BYTES and bool(inner)


def lint_packets(data: bytes) -> PacketReport:
    """Counts and findings of a whole file."""
    reader = _Reader(data)
    reader.report.findings = first_findings(reader.findings())
    return reader.report


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.report = PacketReport()
        self.sequences: dict[int, _Sequence] = {}
        self.tracks: set[int] = set()
        self.used: dict[int, int] = {}
        self.open: dict[int, list[_Open]] = {}
        self.flows: dict[int, list[int]] = {}
        self.ended: set[int] = set()
        self.relative = 0
        self.first: int | None = None
        self.last = 0

    def findings(self) -> Iterator[str]:
        try:
            for number, kind, begin, end in fields(self.data):
                if number != te.PACKET or kind != BYTES:
                    yield f"packet {self.report.packets}: the file holds a field {number}, which is not a packet"
                    return
                yield from self._packet(begin, end)
                self.report.packets += 1
        except WireError as error:
            yield f"packet {self.report.packets}: the file is cut off or damaged there: {error}"
        yield from self._left()

    def _packet(self, begin: int, end: int) -> Iterator[str]:
        found = {n: (value, stop) for n, _, value, stop in fields(self.data, begin, end) if n in _WANTED}
        own = self.sequences.setdefault(found.get(te.SEQUENCE, (0, 0))[0], _Sequence())
        if found.get(te.FLAGS, (0, 0))[0] & te.CLEARED:
            own.names, own.track, own.clock = set(), 0, 0
        if DEFAULTS in found:
            self._defaults(own, *found[DEFAULTS])
        if te.INTERNED in found:
            for kind, _, value, stop in fields(self.data, *found[te.INTERNED]):
                if kind == te.INTERNED_NAME:
                    own.names |= {v for n, _, v, _ in fields(self.data, value, stop) if n == 1}
        if te.TRACK in found:
            self.tracks |= {v for n, _, v, _ in fields(self.data, *found[te.TRACK]) if n == te.TRACK_UUID}
        if te.EVENT in found:
            clock = found.get(CLOCK, (own.clock, 0))[0]
            self.relative += clock >= _OWN_CLOCKS
            time = found[te.TIMESTAMP][0] if te.TIMESTAMP in found else None
            if time is None:
                yield f"packet {self.report.packets}: an event has no time"
            absolute = time if clock < _OWN_CLOCKS else None
            if absolute is not None:
                self.first, self.last = (
                    absolute if self.first is None else min(absolute, self.first),
                    max(absolute, self.last),
                )
            yield from self._event(own, absolute, *found[te.EVENT])

    def _defaults(self, own: _Sequence, begin: int, end: int) -> None:
        for number, kind, value, stop in fields(self.data, begin, end):
            if number == CLOCK:
                own.clock = value
            elif number == DEFAULT_EVENT and kind == BYTES:
                own.track = next((v for n, _, v, _ in fields(self.data, value, stop) if n == te.EVENT_TRACK), own.track)

    def _event(self, own: _Sequence, time: int | None, begin: int, end: int) -> Iterator[str]:
        index = self.report.packets
        kind, track, name, valued, legacy = 0, own.track, None, False, False
        for number, _, value, _ in fields(self.data, begin, end):
            if number == te.EVENT_TYPE:
                kind = value
            elif number == te.EVENT_TRACK:
                track = value
            elif number == te.EVENT_NAME:
                name = value
            elif number in (te.EVENT_COUNT, te.EVENT_VALUE):
                valued = True
            elif number in (te.EVENT_FLOW, FLOW_OLD):
                self.flows.setdefault(value, []).append(index)
            elif number in (te.EVENT_FLOW_END, FLOW_OLD_END):
                if value not in self.flows:
                    yield f"packet {index}: flow {value} ends and never began"
                self.ended.add(value)
            elif number == LEGACY:
                legacy = True
        self.used.setdefault(track, index)
        if name is not None and name not in own.names:
            yield f"packet {index}: the name {name} was never given"
        stack = self.open.setdefault(track, [])
        if kind == te.SLICE_BEGIN:
            if stack and time is not None and (before := stack[-1].start) is not None and time < before:
                yield f"packet {index}: begins {before - time} ns before the slice that it stands in (track {track})"
            stack.append(_Open(time, index))
            self.report.slices += 1
        elif kind == te.SLICE_END:
            if not stack:
                yield f"packet {index}: ends a slice, and none is open on track {track}"
                return
            opened = stack.pop()
            if time is not None and opened.start is not None and time < opened.start:
                yield f"packet {opened.packet}: the slice has a negative duration, {time - opened.start} ns"
        elif kind == te.COUNTER:
            self.report.counters += 1
            if not valued:
                yield f"packet {index}: a counter without a value"
        elif kind == te.INSTANT:
            self.report.instants += 1
        elif not legacy:
            yield f"packet {index}: an event of no known kind ({kind})"

    def _left(self) -> Iterator[str]:
        """What the whole file lacks."""
        report = self.report
        for track, stack in self.open.items():
            if stack:
                yield f"packet {stack[0].packet}: {len(stack)} slices of track {track} never end"
        for flow, begun in self.flows.items():
            if flow not in self.ended and len(begun) == 1:
                yield f"packet {begun[0]}: flow {flow} has no end"
        for track, index in self.used.items():
            if track and track not in self.tracks:
                yield f"packet {index}: track {track} is used and never described"
        if not self.used:
            yield "there is no TrackEvent in it"
        report.tracks, report.flows = len(self.used), len(self.flows)
        report.duration = self.last - (self.first or 0)
        if self.relative:
            report.notes.append(f"{self.relative} events are on clocks of their own; their times were not compared")
