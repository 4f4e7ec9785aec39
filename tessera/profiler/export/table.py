"""All events as one table, a row an event: for pandas, DuckDB, a spreadsheet.

`start` is in ns since the region began, `duration` in ns; `delta` and `held` are bytes. What does not apply to a kind
of event, or is not known, is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tessera.errors import MissingDependency, TesseraError
from tessera.language.lazy import np
from tessera.profiler.recording import Recording
from tessera.runtime.events import CompileEvent, LaunchEvent, MemoryEvent, ProfilingEvent

TEXTS = ("kind", "name", "device", "target", "source", "kernel", "function", "file")
NUMBERS = ("start", "duration", "launch", "rank", "line", "tile", "resource", "slot", "flops", "bytes", "delta", "held")


def export_events(recording: Recording, path: Path) -> Path:
    """Writes the table to `path`, as its name ends: .json, or .parquet.

    Raises MissingDependency for Parquet without pyarrow, TesseraError TS703 for another ending.
    """
    if path.suffix == ".parquet":
        _parquet(recording, path)
    elif path.suffix == ".json":
        _json(recording, path)
    else:
        raise TesseraError(f"events are written as .json or .parquet, not as {path.name!r}", code="TS703")
    return path


def _json(recording: Recording, path: Path) -> None:
    """An object a line, without what is null."""
    about = {"format": "tessera-events", "version": 1, "duration": recording.duration}
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(about)[:-1] + ', "events": [\n')
        columns = {name: column.tolist() for name, column in _columns(recording).items()}
        separator = ""
        for row in zip(*columns.values(), strict=True):
            known = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
            file.write(separator + json.dumps(known))
            separator = ",\n"
        file.write("\n]}\n")


def _parquet(recording: Recording, path: Path) -> None:
    try:
        import pyarrow as arrow  # optional: the extra parquet
        import pyarrow.parquet as parquet  # optional: the extra parquet
    except ImportError:
        raise MissingDependency("pyarrow", "parquet", "Writing Parquet") from None
    kinds: Mapping[str, Any] = {**dict.fromkeys(TEXTS, arrow.string()), **dict.fromkeys(NUMBERS, arrow.int64())}
    columns = {name: arrow.array(column, kinds[name]) for name, column in _columns(recording).items()}
    parquet.write_table(arrow.table(columns), str(path), compression="zstd")


def _columns(recording: Recording) -> dict[str, np.ndarray]:
    """Arrays of objects of one length: the events in order of kind, then as they were published."""
    rows = [_row(event, recording.start) for event in recording.launches]
    for event in recording.compiles:
        rows.append(_row(event, recording.start))
        begin = event.start
        for stage, took in event.stages:
            rows.append({"kind": "stage", "name": stage, "start": begin - recording.start, "duration": took})
            begin += took
    rows += [_row(event, recording.start) for event in (*recording.profiling, *recording.memory)]
    tiles = recording.tiles
    count = len(rows) + len(tiles)
    columns = {name: np.full(count, None, object) for name in (*TEXTS, *NUMBERS)}
    for index, row in enumerate(rows):
        for name, value in row.items():
            columns[name][index] = _plain(value)
    records = tiles.records
    for name in ("duration", "launch", "rank", "line", "tile", "resource", "slot"):
        columns[name][len(rows) :] = records[name].tolist()
    columns["start"][len(rows) :] = (records["start"] - recording.start).tolist()
    columns["kind"][len(rows) :] = "tile"
    columns["name"][len(rows) :] = [tiles.phases[phase] for phase in records["phase"].tolist()]
    known = {event.launch: event for event in recording.launches}
    owners = [known.get(number) for number in records["launch"].tolist()]
    columns["kernel"][len(rows) :] = [_plain(event.kernel) if event else None for event in owners]
    columns["device"][len(rows) :] = [_plain(event.device) if event else None for event in owners]
    return columns


def _row(event: LaunchEvent | CompileEvent | ProfilingEvent | MemoryEvent, zero: int) -> dict[str, Any]:
    if isinstance(event, MemoryEvent):
        return {
            "kind": "memory", "name": event.what, "start": event.time - zero, "device": event.device,
            "delta": event.delta, "held": event.total, "line": event.line or None, "file": event.file or None,
        }  # fmt: skip
    row: dict[str, Any] = {"start": event.start - zero, "duration": event.duration}
    if isinstance(event, ProfilingEvent):
        return row | {"kind": "profiling", "name": "profiling"}
    if isinstance(event, CompileEvent):
        return row | {"kind": "compile", "name": event.name, "target": event.target}
    known = event.attributes
    return row | {
        "kind": "launch", "name": event.title, "device": event.device, "target": event.target, "source": event.source,
        "kernel": event.kernel, "function": known.get("function"), "file": known.get("file"), "line": known.get("line"),
        "launch": event.launch, "rank": event.rank, "flops": event.flops, "bytes": event.bytes,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Text without halves of surrogate pairs, which UTF-8 cannot say; numbers of NumPy as Python's."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value.item() if hasattr(value, "item") else value
