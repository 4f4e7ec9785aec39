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
from tessera.profiler.balance import numbered
from tessera.profiler.export.columns import Texts, blocks, constant, decimal, joined
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
    with path.open("wb") as file:
        file.write(json.dumps(about)[:-1].encode() + b', "events": [')
        separator = b"\n"
        for row in _rows(recording):
            file.write(separator + _object(row).encode())
            separator = b",\n"
        numbers, names, which = _tiles(recording)
        heads = Texts([f",\n{_object(row)[:-1]}".encode() for row in names])
        for rows in blocks(heads.lengths[which]):
            parts = [heads.of(which[rows])]
            for name, values in numbers.items():
                parts += [constant(f', "{name}": '.encode()), decimal(values[rows])]
            written = joined(rows.stop - rows.start, [*parts, constant(b"}")])
            file.write(written.removeprefix(b",\n") if separator == b"\n" and not rows.start else written)
        file.write(b"\n]}\n")


def _object(row: Mapping[str, Any]) -> str:
    return json.dumps({name: row[name] for name in (*TEXTS, *NUMBERS) if row.get(name) is not None})


def _parquet(recording: Recording, path: Path) -> None:
    try:
        import pyarrow as arrow  # optional: the extra parquet
        import pyarrow.parquet as parquet  # optional: the extra parquet
    except ImportError:
        raise MissingDependency("pyarrow", "parquet", "Writing Parquet") from None
    kinds: Mapping[str, Any] = {**dict.fromkeys(TEXTS, arrow.string()), **dict.fromkeys(NUMBERS, arrow.int64())}
    schema = arrow.schema(list(kinds.items()))
    events = arrow.Table.from_pylist(_rows(recording), schema)
    numbers, names, which = _tiles(recording)
    columns = arrow.Table.from_pylist(names, schema).take(arrow.array(which))
    for name, values in numbers.items():
        columns = columns.set_column(schema.get_field_index(name), name, arrow.array(values))
    parquet.write_table(arrow.concat_tables([events, columns]), str(path), compression="zstd")


def _rows(recording: Recording) -> list[dict[str, Any]]:
    """The events that are no tiles, in order of kind, then as they were published."""
    rows = [_row(event, recording.start) for event in recording.launches]
    for event in recording.compiles:
        rows.append(_row(event, recording.start))
        begin = event.start
        for stage, took in event.stages:
            rows.append({"kind": "stage", "name": stage, "start": begin - recording.start, "duration": took})
            begin += took
    rows += [_row(event, recording.start) for event in (*recording.profiling, *recording.memory)]
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _tiles(recording: Recording) -> tuple[dict[str, np.ndarray], list[dict[str, Any]], np.ndarray]:
    """Tiles in order of start: their numbers as columns, the texts that occur, and which of these each has."""
    tiles = recording.tiles
    records = tiles.records
    known = {event.launch: event for event in recording.launches}
    first, which = numbered([records["launch"], records["phase"]])
    names: list[dict[str, Any]] = []
    for launch, phase in records[["launch", "phase"]][first].tolist():
        event = known.get(launch)
        about = {"kernel": _plain(event.kernel), "device": _plain(event.device)} if event else {}
        names.append({"kind": "tile", "name": _plain(tiles.phases[phase]), **about})
    numbers = {name: records[name].astype(np.int64) for name in NUMBERS if name in (records.dtype.names or ())}
    numbers["start"] -= recording.start
    return numbers, names, which


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
