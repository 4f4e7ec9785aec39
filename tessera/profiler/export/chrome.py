"""Chrome's trace event format, written so that Perfetto reads back exactly what was recorded.

Times are whole nanoseconds, counted from the first event and written as microseconds with three decimals: counted from
the epoch, a double would lose the last 256 ns. `tessera.profiler.export.lint` checks what this writes.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from tessera.language.lazy import np
from tessera.profiler.export.columns import Texts, blocks, constant, decimal, joined, thousandths
from tessera.profiler.export.layout import FIRST_PID, lay_out
from tessera.profiler.export.slices import Label, Slices, TraceProcess
from tessera.profiler.recording import Recording
from tessera.profiler.summary import overhead

COMPRESSION = 4
"""of gzip: from here on files hardly become smaller, and take several times as long"""


def export_chrome_trace(recording: Recording, path: Path) -> Path:
    """Writes the trace to `path`, compressed when the name ends in .gz. Open it at ui.perfetto.dev."""
    trace = lay_out(recording)
    writer, base = ChromeWriter(trace.labels), trace.first
    found = (writer.process(p, pid, base) for pid, p in enumerate(trace.processes, start=FIRST_PID))
    write_document(path, {"overhead": str(overhead(recording))}, (part for parts in found for part in parts))
    return path


def write_document(path: Path, about: Mapping[str, str], parts: Iterable[bytes]) -> None:
    """Writes events, each of which begins with a comma and a new line."""
    with gzip.open(path, "wb", COMPRESSION) if path.suffix == ".gz" else path.open("wb") as file:
        said = _members({"producer": "tessera", **about})
        file.write(f'{{"displayTimeUnit":"ns","otherData":{{{said}}},"traceEvents":[\n'.encode())
        file.writelines(part[2:] if index == 0 else part for index, part in enumerate(parts))
        file.write(b"\n]}\n")


class ChromeWriter:
    """Events of processes whose slices have these labels."""

    def __init__(self, labels: list[Label]) -> None:
        heads = (f',\n{{"ph":"X","name":{text(label.name or "(no name)")},"cat":"{label.category}"' for label in labels)
        members = [_members(label.args) for label in labels]
        self._heads = Texts([head.encode() for head in heads])
        self._args = Texts([said.encode() for said in members])
        self._more = Texts([f",{said}".encode() if said else b"" for said in members])
        """behind other arguments"""

    def process(self, process: TraceProcess, pid: int, base: int) -> Iterator[bytes]:
        """The events of one process, with times counted from `base` (ns)."""
        yield _meta(pid, 1, "process_name", "name", process.name)
        yield _meta(pid, 1, "process_sort_index", "sort_index", pid)
        for tid, thread in enumerate(process.threads, start=1):
            yield _meta(pid, tid, "thread_name", "name", thread.name)
            yield _meta(pid, tid, "thread_sort_index", "sort_index", tid)
            widths = self._heads.lengths[thread.slices.label] + self._more.lengths[thread.slices.label]
            for rows in blocks(widths):
                yield from self._slices(thread.slices.take(rows), f',"pid":{pid},"tid":{tid},"ts":', base)
        for counter in process.counters:
            head = constant(f',\n{{"ph":"C","name":{text(counter.name)},"pid":{pid},"tid":1,"ts":'.encode())
            args = constant(f',"args":{{{text(counter.series)}:'.encode())
            values = Texts([b"%r" % value for value in counter.values.tolist()])
            for rows in blocks(values.lengths):
                time, value = thousandths(counter.times[rows] - base), values.of(np.arange(rows.start, rows.stop))
                yield joined(rows.stop - rows.start, [head, *time, args, value, constant(b"}}")])

    def _slices(self, slices: Slices, place: str, base: int) -> Iterator[bytes]:
        parts = [self._heads.of(slices.label), constant(place.encode()), *thousandths(slices.start - base)]
        parts += [constant(b',"dur":'), *thousandths(slices.end - slices.start), constant(b',"args":{')]
        for index, (name, values) in enumerate(slices.numbers.items()):
            parts += [constant(f"{',' if index else ''}{text(name)}:".encode()), decimal(values)]
        parts += [(self._more if slices.numbers else self._args).of(slices.label), constant(b"}}")]
        written = joined(len(slices), parts)
        linked = np.flatnonzero(slices.flow)
        if not len(linked):
            yield written
            return
        ends = np.cumsum(sum(part.lengths for part in parts) + np.zeros(len(slices), np.int64))
        before = 0
        for row, end in zip(linked.tolist(), ends[linked].tolist(), strict=True):
            yield written[before:end]
            yield _flow(int(slices.flow[row]), f"{place}{us(int(slices.bound[row]) - base)}")
            before = end
        yield written[before:]


def _flow(flow: int, moment: str) -> bytes:
    phase, binding = ("s", "") if flow > 0 else ("f", ',"bp":"e"')  # to the span around it, not to the next one
    return f',\n{{"ph":"{phase}","name":"launch","cat":"launch","id":{abs(flow)}{binding}{moment}}}'.encode()


def _meta(pid: int, tid: int, name: str, key: str, value: str | int) -> bytes:
    return f",\n{metadata(pid, tid, name, key, value)}".encode()


def metadata(pid: int, tid: int, name: str, key: str, value: str | int) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"args":{{"{key}":{text(value)}}}}}'


def us(ns: int) -> str:
    """Whole nanoseconds as microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _members(values: Mapping[str, object]) -> str:
    """Strict JSON: what has no number in it (NaN, infinity, beyond 64 bits) becomes its text."""
    return ",".join(f"{text(name)}:{text(plain(value))}" for name, value in values.items())


@lru_cache(maxsize=4096, typed=True)  # a trace of a million tiles has a handful of names
def text(value: str | float | None) -> str:
    """Strict JSON for one value, with every string written so that Perfetto reads it back."""
    return json.dumps(legible(value) if isinstance(value, str) else value, ensure_ascii=False, allow_nan=False)


def legible(name: str) -> str:
    """`name` without the characters that viewers garble; what stands in for them is recognisable.

    Perfetto undoes JSON's escapes only in strings that hold a quote, and takes a backslash before the closing quote for
    an escape: so control characters become their pictures and backslashes set-minus signs. Half a surrogate pair, which
    UTF-8 cannot say, becomes a question mark.
    """
    return name.encode("utf-8", "replace").decode().translate(_STAND_INS)


_STAND_INS = {code: chr(0x2400 + code) for code in range(0x20)} | {ord("\\"): "\u2216"}


def plain(value: object) -> str | float | None:
    """A value that each format has: numbers that fit into 64 bits, booleans, texts."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else str(value)
