"""Chrome's trace event format, written so that Perfetto reads back exactly what was recorded.

Times are whole nanoseconds, counted from the first event and written as microseconds with three decimals: counted from
the epoch, a double would lose the last 256 ns. `tessera.profiler.export.lint` checks what this writes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from tessera.collector import collector_paused
from tessera.profiler.export.layout import FIRST_PID, TraceProcess, TraceSlice, first_time, lay_out, text
from tessera.profiler.recording import Recording
from tessera.profiler.summary import overhead


def export_chrome_trace(recording: Recording, path: Path) -> Path:
    """Writes the trace to `path`, compressed when the name ends in .gz. Open it at ui.perfetto.dev."""
    zipped = path.suffix == ".gz"
    with (
        gzip.open(path, "wt", encoding="utf-8") if zipped else path.open("w", encoding="utf-8") as file,
        collector_paused(),
    ):
        about = f'{{"producer":"tessera","overhead":{text(str(overhead(recording)))}}}'
        file.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n')
        separator = ""
        for line in _events(lay_out(recording)):
            file.write(separator + line)
            separator = ",\n"
        file.write("\n]}\n")
    return path


def _events(processes: list[TraceProcess]) -> Iterator[str]:
    base = first_time(processes)
    for pid, process in enumerate(processes, start=FIRST_PID):
        yield from events_of(process, pid, base)


def events_of(process: TraceProcess, pid: int, base: int) -> Iterator[str]:
    """The lines of one process, with times counted from `base` (ns)."""
    yield metadata(pid, 1, "process_name", "name", process.name)
    yield metadata(pid, 1, "process_sort_index", "sort_index", pid)
    for tid, (name, row) in enumerate(process.threads(), start=1):
        yield metadata(pid, tid, "thread_name", "name", name)
        yield metadata(pid, tid, "thread_sort_index", "sort_index", tid)
        for item in row:
            yield from _slice(item, pid, tid, base)
    for name, series, points in process.counters:
        for time, value in points:
            args = f"{{{text(series)}:{value}}}"
            yield f'{{"ph":"C","name":{text(name)},"pid":{pid},"tid":1,"ts":{us(time - base)},"args":{args}}}'


def metadata(pid: int, tid: int, name: str, key: str, value: str | int) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"args":{{"{key}":{text(value)}}}}}'


def _slice(item: TraceSlice, pid: int, tid: int, base: int) -> Iterator[str]:
    place = f'"pid":{pid},"tid":{tid},"ts":'
    start, took = item.start - base, item.end - item.start
    times = f'{place}{start // 1000}.{start % 1000:03d},"dur":{took // 1000}.{took % 1000:03d}'
    yield f'{{"ph":"X","name":{text(item.name or "(no name)")},"cat":"{item.category}",{times},"args":{item.args}}}'
    for phase, flow, time in item.flows:
        binding = ',"bp":"e"' if phase == "f" else ""  # to the span around it, not to the next one
        moment = f"{place}{us(time - base)}"
        yield f'{{"ph":"{phase}","name":"launch","cat":"launch","id":{flow}{binding},{moment}}}'


def us(ns: int) -> str:
    """Whole nanoseconds as microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"
