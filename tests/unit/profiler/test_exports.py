"""Profiles for other programs: TensorBoard and HTA (Kineto's form), speedscope, tables of events."""

from __future__ import annotations

import builtins
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.errors import MissingDependency, TesseraError
from tessera.profiler import Profiler
from tessera.profiler.export.verify import verify_trace
from tessera.runtime.events import CompileEvent, Event, MemoryEvent, ProfilingEvent, TileEvent
from tests.conftest import require
from tests.profiler.synthetic import batch, launch, recorded, tiles

HOSTILE = 'a"b\\</script>\n\x00é😀\ud800'


def profile(*found: Event) -> Profiler:
    prof = Profiler()
    prof.recording = recorded(*found)
    return prof


def sample() -> Profiler:
    called = {"run": 1, "function": "f", "call_file": "m.py", "call_line": 9, "resources": 2, "file": "m.py", "line": 3}
    return profile(
        CompileEvent("f", "cpu", 10, 60, (("parse", 10), ("emit", 50))),
        launch(1, "k1", 100, 50, attributes={**called, "title": HOSTILE}, flops=7),
        launch(2, "k2", 160, 40, attributes=called, bytes=64),
        launch(
            3, "g", 300, 100, attributes={"run": 3, "function": "g", "occupancy": 0.5}, target="cuda", device="cuda:0"
        ),
        launch(4, "static", 400, None),
        ProfilingEvent(210, 5),
        MemoryEvent(90, "cpu:0", 64, 64, "result", 9, "m.py"),
        tiles((0, 0, 100, 20), (1, 1, 110, 40)),
        batch([TileEvent(3, 0, 5, 0, "load", 300, 30, 4), TileEvent(3, 0, 5, 0, "mma", 330, 40, 5)]),
    )


def kineto(prof: Profiler, folder: Path, rank: int = 0) -> dict[str, Any]:
    path = prof.export_tensorboard(folder) / f"rank{rank}.pt.trace.json"
    assert verify_trace(path).findings == ()
    return json.loads(path.read_text(encoding="utf-8"))


def test_launches_are_kernels_on_streams_and_calls_operators(tmp_path: Path) -> None:
    """What TensorBoard's plugin and HTA read: both were tried with such files, and gave these sums."""
    document = kineto(sample(), tmp_path / "logs" / "run")
    assert document["schemaVersion"] == 1 and document["distributedInfo"]["rank"] == 0
    assert [p["name"] for p in document["deviceProperties"]] == ["cpu:0", "cuda:0"]
    spans = [e for e in document["traceEvents"] if e["ph"] == "X"]
    kernels = [e for e in spans if e["cat"] == "kernel"]
    assert [(e["dur"], e["args"]["device"], e["args"]["stream"]) for e in kernels] == [
        (0.05, 0, 1), (0.04, 0, 1), (0.1, 1, 1),
    ]  # fmt: skip
    assert all(e["pid"] == e["args"]["device"] for e in kernels)
    assert kernels[0]["args"]["grid"] == [4, 1, 1] and kernels[0]["args"]["blocks per SM"] == 2
    assert kernels[2]["args"]["est. achieved occupancy %"] == 50
    operators = {e["name"]: e for e in spans if e["cat"] == "cpu_op"}
    assert (operators["f"]["ts"], operators["f"]["dur"]) == (0.1, 0.1)
    assert operators["f"]["args"]["Call stack"] == "m.py(9): f"
    assert "compile f" in operators and "g" not in operators  # when the host called the GPU is not known
    linked = {e["args"]["correlation"]: e["args"]["External id"] for e in spans if e["cat"] == "runtime"}
    assert linked == {1: 1, 2: 1}
    (memory,) = [e for e in document["traceEvents"] if e["name"] == "[memory]"]
    assert (memory["ph"], memory["ts"], memory["pid"], memory["tid"]) == ("i", 0.09, 1000, 1)
    assert memory["args"]["Bytes"] == memory["args"]["Total Allocated"] == 64
    assert (memory["args"]["Device Type"], memory["args"]["Device Id"]) == (0, -1)
    found = [(e["name"], e["ts"], e["dur"], e["pid"]) for e in spans if e["cat"] == "tile"]
    assert found == [("tile 0", 0.1, 0.02, 0), ("tile 1", 0.11, 0.04, 0), ("tile 0", 0.3, 0.07, 1)]
    assert all("stream" not in e["args"] for e in spans if e["cat"] == "tile"), "only kernels count as on a stream"
    (step,) = [e for e in spans if e["cat"] == "user_annotation"]
    assert (step["name"], step["dur"]) == ("ProfilerStep#0", 1000)


def test_hta_loads_it(tmp_path: Path) -> None:
    """Meta's analysis of traces counts the kernels and their times. It asks for old versions of libraries, so that
    the environment of this project is without it: one where it is installed beside them runs this test."""
    analysis = pytest.importorskip("hta.trace_analysis")
    called = {"run": 1, "function": "f", "call_file": "m.py", "call_line": 9}
    prof = profile(
        launch(1, "k1", 100_000, 50_000, attributes=called),
        launch(2, "k2", 160_000, 40_000, attributes=called),
        launch(3, "g", 300_000, 100_000, target="cuda", device="cuda:0"),
        tiles((0, 0, 100_000, 20_000), (1, 1, 110_000, 40_000)),
    )
    kineto(prof, tmp_path)
    loaded = analysis.TraceAnalysis({0: str(tmp_path / "rank0.pt.trace.json")}, str(tmp_path))
    _, kernels = loaded.get_gpu_kernel_breakdown(visualize=False)
    assert dict(zip(kernels["name"], kernels["sum (us)"], strict=True)) == {"g": 100, "k1": 50, "k2": 40}
    (rank,) = loaded.get_temporal_breakdown(visualize=False).to_dict("records")
    assert (rank["compute_time(us)"], rank["idle_time(us)"]) == (190, 110)


def test_each_rank_has_a_file_and_says_so_as_hta_looks_for_it(tmp_path: Path) -> None:
    prof = profile(launch(1, rank=0), launch(2, rank=3))
    for rank in (0, 3):
        assert kineto(prof, tmp_path, rank)["distributedInfo"] == {"backend": "none", "rank": rank, "world_size": 2}
        lines = (tmp_path / f"rank{rank}.pt.trace.json").read_text().splitlines()
        first = next(match for line in lines if (match := re.search(r'"rank":\s+(\d+)', line)))
        assert int(first[1]) == rank


def test_kernels_at_one_time_stand_on_streams_of_their_own(tmp_path: Path) -> None:
    document = kineto(profile(launch(1, start=0, duration=100), launch(2, start=50, duration=100)), tmp_path)
    assert [e["args"]["stream"] for e in document["traceEvents"] if e.get("cat") == "kernel"] == [1, 2]


def test_an_empty_profile_is_exported_all_the_same(tmp_path: Path) -> None:
    prof = profile()
    assert len(kineto(prof, tmp_path)["traceEvents"]) == 3
    assert json.loads(prof.export_events(tmp_path / "e.json").read_text())["events"] == []
    assert len(json.loads(prof.export_speedscope(tmp_path / "s.json").read_text())["profiles"]) == 1


def test_speedscope_opens_and_closes_frames_in_order(tmp_path: Path) -> None:
    document = json.loads(sample().export_speedscope(tmp_path / "run.speedscope.json").read_text())
    assert document["$schema"].endswith("file-format-schema.json")
    frames = document["shared"]["frames"]
    took: Counter[str] = Counter()
    for shown in document["profiles"]:
        stack: list[tuple[int, int]] = []
        before = shown["startValue"]
        for event in shown["events"]:
            assert before <= event["at"] <= shown["endValue"]
            before = event["at"]
            if event["type"] == "O":
                stack.append((event["frame"], event["at"]))
            else:
                frame, begun = stack.pop()
                assert frame == event["frame"]
                took[frames[frame]["name"]] += event["at"] - begun
        assert not stack and shown["unit"] == "nanoseconds"
    assert (took["load"], took["mma"], took["compile f"]) == (30, 40, 60)
    assert {"name": "k2", "file": "m.py", "line": 3} in frames


def events_of(prof: Profiler, folder: Path) -> list[dict[str, Any]]:
    document = json.loads(prof.export_events(folder / "events.json").read_text(encoding="utf-8"))
    assert (document["format"], document["version"], document["duration"]) == ("tessera-events", 1, 1_000_000)
    return document["events"]


def test_a_row_is_an_event(tmp_path: Path) -> None:
    rows = events_of(sample(), tmp_path)
    assert Counter(row["kind"] for row in rows) == {
        "launch": 4, "compile": 1, "stage": 2, "profiling": 1, "memory": 1, "tile": 4,
    }  # fmt: skip
    first = next(row for row in rows if row["kind"] == "launch")
    assert first == {
        "kind": "launch", "name": HOSTILE.replace("\ud800", "?"), "device": "cpu:0", "target": "cpu", "launch": 1,
        "source": "measured", "kernel": "k1", "function": "f", "file": "m.py", "start": 100, "duration": 50, "rank": 0,
        "line": 3, "flops": 7,
    }  # fmt: skip
    assert "duration" not in next(row for row in rows if row["name"] == "static")
    held = next(row for row in rows if row["kind"] == "memory")
    assert (held["delta"], held["held"], held["line"]) == (64, 64, 9)
    mma = next(row for row in rows if row["name"] == "mma")
    assert (mma["kernel"], mma["device"], mma["resource"], mma["duration"]) == ("g", "cuda:0", 5, 40)


def test_parquet_holds_what_json_holds(tmp_path: Path) -> None:
    parquet = require("pyarrow.parquet")
    prof = sample()
    table = parquet.read_table(prof.export_events(tmp_path / "events.parquet"))
    known = [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
    assert known == events_of(prof, tmp_path)
    assert str(table.schema.field("start").type) == "int64"


def test_what_is_missing_and_what_is_no_form_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependency, match=r"pip install 'tessera\[parquet\]'"):
        sample().export_events(tmp_path / "events.parquet")
    with pytest.raises(TesseraError, match=r"\.json or \.parquet") as refused:
        sample().export_events(tmp_path / "events.csv")
    assert refused.value.code == "TS703"
    assert not list(tmp_path.iterdir())


@ts.kernel(BM=8, BN=16)
def product(a: ts.Tensor["M", "K"], b: ts.Tensor["K", "N"]) -> ts.Tensor["M", "N"]:
    c = ts.tile.context()
    return a[tile_m : tile_m + c.BM, :] @ b[:, tile_n : tile_n + c.BN]


@ts.function
def doubled(x: ts.Tensor["M", "N"]):
    return x * 2


def test_schedules_of_a_run_are_files_that_load(tmp_path: Path) -> None:
    """Also from a saved profile; what ran longest has the kernel's name, another one its sizes too."""
    x = np.ones((32, 32), np.float32)
    with ts.profiler() as prof:
        doubled(x)
        for _ in range(3):
            product(x, x)
        product.with_schedule(ts.Schedule(block=(16, 16), warps=4))(x[:16].copy(), x)
    for own in (prof, Profiler.load(prof.save(tmp_path / "run.tsprof"))):
        files = sorted(path.name for path in own.export_schedules(tmp_path / "out").iterdir())
        assert len(files) == 2 and "product.sched" in files and any(f.startswith("product-M=") for f in files)
        found = {ts.Schedule.load(tmp_path / "out" / name).block for name in files}
        assert found == {(8, 16), (16, 16)}
        assert {s.warps for s in own.schedules().values()} == {None, 4}
    again = product.with_schedule(prof.schedules()["product"])
    assert np.array_equal(again(x, x), product(x, x))
    with ts.profiler() as bare:
        doubled(x)
    with pytest.raises(TesseraError, match=r"make them parameters of @ts\.kernel"):
        bare.export_schedules(tmp_path / "none")
    assert not (tmp_path / "none").exists()
