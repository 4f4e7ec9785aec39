"""Perfetto's own format: TrackEvent packets, exact to the nanosecond, less than half as large as a Chrome trace.

Every row of the layout is a thread track under its process, every counter a counter track. Names, categories and the
texts of arguments are written once and then meant by number (interned). Strings stand in it as they are: nothing has to
be escaped. https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from tessera.language.lazy import np
from tessera.profiler.export import columns
from tessera.profiler.export.chrome import COMPRESSION, plain
from tessera.profiler.export.columns import Cells, Texts, blocks, constant, joined, lengths, where
from tessera.profiler.export.layout import FIRST_PID, lay_out
from tessera.profiler.export.slices import Label, Slices, Trace, TraceCounter, edges
from tessera.profiler.export.wire import BYTES, FIXED64, VARINT, double, message, number, string, tag
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
_NAMES = 1000
"""that one packet gives numbers to"""


def export_perfetto(recording: Recording, path: Path) -> Path:
    """Writes the trace to `path`, compressed when the name ends in .gz. Open it at ui.perfetto.dev."""
    with gzip.open(path, "wb", COMPRESSION) if path.suffix == ".gz" else path.open("wb") as file:
        file.writelines(_packets(lay_out(recording)))
    return path


class _Names:
    """Strings that are meant by number, and the messages that give them theirs."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}
        self.entries: list[bytes] = []

    def number_of(self, kind: int, name: str) -> int:
        index = self._known.get((kind, name))
        if index is None:
            index = self._known[kind, name] = len(self._known) + 1
            self.entries.append(message(kind, number(1, index) + string(2, name)))
        return index

    def slice(self, label: Label) -> bytes:
        """What the events have in common that begin slices of this label."""
        out = number(EVENT_TYPE, SLICE_BEGIN)
        out += number(EVENT_CATEGORY, self.number_of(INTERNED_CATEGORY, label.category))
        out += number(EVENT_NAME, self.number_of(INTERNED_NAME, label.name or "(no name)"))
        return out + b"".join(self._annotation(key, plain(value)) for key, value in label.args.items())

    def key(self, name: str) -> bytes:
        """The field of an argument that names it."""
        return number(1, self.number_of(INTERNED_KEY, name or "(no name)"))

    def _annotation(self, key: str, value: str | float | None) -> bytes:
        """An argument of an event: a number where it is one, else an interned text."""
        about = self.key(key)
        if isinstance(value, bool):
            about += number(2, value)
        elif isinstance(value, int):
            about += number(4, value)
        elif isinstance(value, float):
            about += double(5, value)
        else:
            about += number(17, self.number_of(INTERNED_TEXT, str(value)))
        return message(EVENT_ANNOTATION, about)


def _packets(trace: Trace) -> Iterator[bytes]:
    names, base = _Names(), trace.first
    writer = _Slices(names, trace, base)
    for first in range(0, len(names.entries), _NAMES):
        flags = NEEDS_NAMES if first else CLEARED | NEEDS_NAMES
        yield _packet(message(INTERNED, b"".join(names.entries[first : first + _NAMES])), flags)
    uuid, tid = 0, FIRST_TID
    rows: list[tuple[int, Slices]] = []
    counters: list[tuple[int, TraceCounter]] = []
    for pid, process in enumerate(trace.processes, start=FIRST_PID):
        uuid += 1
        parent = uuid
        yield _packet(message(TRACK, number(TRACK_UUID, uuid) + _process(pid, process.name)))
        for thread in process.threads:
            uuid, tid = uuid + 1, tid + 1
            yield _packet(message(TRACK, number(TRACK_UUID, uuid) + _thread(parent, pid, tid, thread.name)))
            rows.append((uuid, thread.slices))
        for counter in process.counters:
            uuid += 1
            about = _counter(parent, f"{counter.name} {counter.series}", counter.series)
            yield _packet(message(TRACK, number(TRACK_UUID, uuid) + about))
            counters.append((uuid, counter))
    # Of two events at one time the first in the file counts as the earlier one, and a flow begins before it ends.
    for track, slices in sorted(rows, key=lambda row: not (row[1].flow > 0).any()):
        yield from writer.events(track, slices)
    for track, counter in counters:
        about = constant(number(EVENT_TRACK, track) + number(EVENT_TYPE, COUNTER) + tag(EVENT_VALUE, FIXED64))
        for some in blocks(np.zeros(len(counter.times))):
            values = counter.values[some].astype("<f8").view(np.int64)
            yield _events(counter.times[some] - base, [about, columns.fixed64(values)])


class _Slices:
    """Packets that begin and end the slices of a trace."""

    def __init__(self, names: _Names, trace: Trace, base: int) -> None:
        self._base = base
        self._labels = Texts([*(names.slice(label) for label in trace.labels), number(EVENT_TYPE, SLICE_END)])
        used = dict.fromkeys(name for p in trace.processes for t in p.threads for name in t.slices.numbers)
        self._keys = {name: names.key(name) + tag(4, VARINT) for name in used}

    def events(self, track: int, slices: Slices) -> Iterator[bytes]:
        which, opens = edges(slices)
        label = np.where(opens, slices.label[which], len(self._labels.texts) - 1)
        for rows in blocks(self._labels.lengths[label]):
            yield self._block(number(EVENT_TRACK, track), slices.take(which[rows]), opens[rows], label[rows])

    def _block(self, track: bytes, slices: Slices, opens: np.ndarray, label: np.ndarray) -> bytes:
        parts = [constant(track), self._labels.of(label)]
        for name, values in slices.numbers.items():
            value = columns.varint(values)
            about = _message(EVENT_ANNOTATION, [constant(self._keys[name]), value])
            parts += [where(opens, part) for part in about]
        for kind, flow in ((EVENT_FLOW, slices.flow), (EVENT_FLOW_END, -slices.flow)):
            linked = opens & (flow > 0)
            if linked.any():
                parts += [where(linked, constant(tag(kind, FIXED64))), where(linked, columns.fixed64(flow))]
        return _events(np.where(opens, slices.start, slices.end) - self._base, parts)


def _message(field: int, parts: list[Cells]) -> list[Cells]:
    return [constant(tag(field, BYTES)), columns.varint(lengths(parts)), *parts]


def _events(times: np.ndarray, parts: list[Cells]) -> bytes:
    """Packets of events, a row each."""
    body = [constant(tag(TIMESTAMP, VARINT)), columns.varint(times), *_message(EVENT, parts), constant(_LATER)]
    return joined(len(times), _message(PACKET, body))


def _packet(body: bytes, flags: int = NEEDS_NAMES) -> bytes:
    return message(PACKET, body + number(SEQUENCE, 1) + number(FLAGS, flags))


_LATER = number(SEQUENCE, 1) + number(FLAGS, NEEDS_NAMES)


def _process(pid: int, name: str) -> bytes:
    return message(TRACK_PROCESS, number(1, pid) + string(6, name))


def _thread(parent: int, pid: int, tid: int, name: str) -> bytes:
    return number(TRACK_PARENT, parent) + message(TRACK_THREAD, number(1, pid) + number(2, tid) + string(5, name))


def _counter(parent: int, name: str, unit: str) -> bytes:
    return number(TRACK_PARENT, parent) + string(TRACK_NAME, name) + message(TRACK_COUNTER, string(6, unit))
