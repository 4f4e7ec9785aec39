"""Perfetto's own format: TrackEvent packets, exact to the nanosecond, less than half as large as a Chrome trace.

Every row of the layout is a thread track under its process, every counter a counter track. Names, categories and the
texts of arguments are written once and then meant by number (interned). Strings stand in it as they are: nothing has to
be escaped. https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tessera.profiler.export.layout import FIRST_PID, TraceProcess, TraceSlice, edges, first_time, lay_out
from tessera.profiler.export.wire import VARINT, double, fixed64, message, number, string, tag, varint
from tessera.profiler.recording import Recording

# Numbers of fields, by message: https://perfetto.dev/docs/reference/trace-packet-proto
PACKET = 1
TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, TRACK = 8, 10, 11, 12, 13, 60
CLEARED, NEEDS_NAMES = 1, 2
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
EVENT_CATEGORY, EVENT_ANNOTATION, EVENT_TYPE, EVENT_NAME, EVENT_TRACK = 3, 4, 9, 10, 11
EVENT_COUNT, EVENT_VALUE, EVENT_FLOW, EVENT_FLOW_END = 30, 44, 47, 48
TRACK_UUID, TRACK_NAME, TRACK_PROCESS, TRACK_THREAD, TRACK_PARENT, TRACK_COUNTER = 1, 2, 3, 4, 5, 8
INTERNED_CATEGORY, INTERNED_NAME, INTERNED_KEY, INTERNED_TEXT = 1, 2, 3, 29

FIRST_TID = 100_000
"""Threads have numbers of their own over all processes: Perfetto takes one that comes again for a thread that ended."""
_SEQUENCE = number(SEQUENCE, 1)


def export_perfetto(recording: Recording, path: Path) -> Path:
    """Writes the trace to `path`, compressed when the name ends in .gz. Open it at ui.perfetto.dev."""
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        for packet in _packets(lay_out(recording)):
            file.write(packet)
    return path


class _Names:
    """Strings that have a number already, and the messages that give those that are new theirs."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}
        self._slices: dict[tuple[str, str], bytes] = {}
        self._keys: dict[str, bytes] = {}
        self._fresh = b""

    def number_of(self, kind: int, name: str) -> int:
        index = self._known.get((kind, name))
        if index is None:
            index = self._known[kind, name] = len(self._known) + 1
            self._fresh += message(kind, number(1, index) + string(2, name))
        return index

    def slice(self, name: str, category: str) -> bytes:
        """The fields of an event that begins a slice of this name."""
        known = self._slices.get((name, category))
        if known is None:
            known = number(EVENT_TYPE, SLICE_BEGIN)
            known += number(EVENT_CATEGORY, self.number_of(INTERNED_CATEGORY, category))
            known += number(EVENT_NAME, self.number_of(INTERNED_NAME, name or "(no name)"))
            self._slices[name, category] = known
        return known

    def annotation(self, key: str, value: Any) -> bytes:
        """An argument of an event: a number where it is one, else an interned text."""
        about = self._keys.get(key)
        if about is None:
            about = self._keys[key] = number(1, self.number_of(INTERNED_KEY, key or "(no name)"))
        if isinstance(value, bool):
            about += number(2, value)
        elif isinstance(value, int):
            about += _INTEGER + varint(value)
        elif isinstance(value, float):
            about += double(5, value)
        else:
            about += _TEXT + varint(self.number_of(INTERNED_TEXT, str(value)))
        return message(EVENT_ANNOTATION, about)

    def fresh(self) -> bytes:
        """What the packet has to say that uses them first."""
        if not self._fresh:
            return b""
        entries, self._fresh = self._fresh, b""
        return message(INTERNED, entries)


_INTEGER, _TEXT = tag(4, VARINT), tag(17, VARINT)
_TIME = tag(TIMESTAMP, VARINT)
_END = number(EVENT_TYPE, SLICE_END)


def _packets(processes: list[TraceProcess]) -> Iterator[bytes]:
    names, base = _Names(), first_time(processes)
    uuid, tid = 0, FIRST_TID
    rows: list[tuple[bytes, list[TraceSlice]]] = []
    counters: list[tuple[bytes, Sequence[tuple[int, float]]]] = []
    for pid, process in enumerate(processes, start=FIRST_PID):
        uuid += 1
        parent, flags = uuid, NEEDS_NAMES if uuid > 1 else CLEARED | NEEDS_NAMES
        yield _packet(message(TRACK, number(TRACK_UUID, uuid) + _process(pid, process.name)), number(FLAGS, flags))
        for name, row in process.threads():
            uuid, tid = uuid + 1, tid + 1
            yield _packet(message(TRACK, number(TRACK_UUID, uuid) + _thread(parent, pid, tid, name)))
            rows.append((number(EVENT_TRACK, uuid), row))
        for name, series, points in process.counters:
            uuid += 1
            yield _packet(message(TRACK, number(TRACK_UUID, uuid) + _counter(parent, f"{name} {series}", series)))
            counters.append((number(EVENT_TRACK, uuid) + number(EVENT_TYPE, COUNTER), points))
    # Of two events at one time the first in the file counts as the earlier one, and a flow begins before it ends.
    for track, row in sorted(
        rows, key=lambda entry: not any(flow[0] == "s" for item in entry[1] for flow in item.flows)
    ):
        end = message(EVENT, track + _END)
        for time, item, opens in edges(row):
            when = _TIME + varint(time - base)
            yield _packet(when + (message(EVENT, track + _begin(item, names)) + names.fresh() if opens else end))
    for track, points in counters:
        for time, value in points:
            yield _packet(_TIME + varint(time - base) + message(EVENT, track + double(EVENT_VALUE, value)))


_LATER = number(FLAGS, NEEDS_NAMES)


def _packet(body: bytes, flags: bytes = _LATER) -> bytes:
    return message(PACKET, body + _SEQUENCE + flags)


def _process(pid: int, name: str) -> bytes:
    return message(TRACK_PROCESS, number(1, pid) + string(6, name))


def _thread(parent: int, pid: int, tid: int, name: str) -> bytes:
    return number(TRACK_PARENT, parent) + message(TRACK_THREAD, number(1, pid) + number(2, tid) + string(5, name))


def _counter(parent: int, name: str, unit: str) -> bytes:
    return number(TRACK_PARENT, parent) + string(TRACK_NAME, name) + message(TRACK_COUNTER, string(6, unit))


def _begin(item: TraceSlice, names: _Names) -> bytes:
    parts = [names.slice(item.name, item.category)]
    parts += [fixed64(EVENT_FLOW if phase == "s" else EVENT_FLOW_END, flow) for phase, flow, _ in item.flows]
    parts += [names.annotation(key, value) for key, value in json.loads(item.args).items()]
    return b"".join(parts)
