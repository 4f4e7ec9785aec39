"""Launches inside CUDA graphs: what the profile of captured and replayed calls holds."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.targets.cuda.call import graphs
from tessera.profiler import Profiler, profiler
from tessera.profiler.export.verify import verify_trace
from tessera.runtime.call import captured
from tests.conftest import require
from tests.unit.cuda.host_cuda import HostGpu, Stream, gpu  # noqa: F401 - a fixture
from tests.unit.cuda.host_graphs import HostGraph

require("g++")


def layers(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["D", "D", ts.f32]):
    return ts.softmax(x @ w) @ w


def scaled(x: ts.Tensor["n", ts.f32]):
    return x * 2


@pytest.fixture(autouse=True)
def nothing_held() -> Any:
    yield
    captured._graphs.calls.clear()
    captured._graphs.numbers.clear()
    captured._graphs.replays.clear()


class Step:
    """A call that is captured, with its arrays and what it gives."""

    def __init__(self, gpu: HostGpu, program: Any, *shapes: tuple[int, ...]) -> None:  # noqa: F811
        rng = np.random.default_rng(0)
        self.gpu, self.program = gpu, program
        self.arrays = [gpu.put(rng.standard_normal(s, np.float32)) for s in shapes]
        self.result: Any = None

    def warm(self) -> None:
        self.program(*self.arrays)

    def __call__(self) -> None:
        self.result = self.program(*self.arrays)


def capture(gpu: HostGpu, *calls: Callable[[], None]) -> HostGraph:  # noqa: F811
    stream = Stream(gpu, gpu.stream)
    stream.begin_capture()
    for call in calls:
        call()
    return stream.end_capture()


def replays(prof: Profiler) -> dict[tuple[int, int], list[str]]:
    """The kernels by graph and replay, in order of their starts."""
    found: dict[tuple[int, int], list[str]] = {}
    for launch in sorted(prof.launches(), key=lambda e: e.start):
        if "graph" in launch.attributes:
            key = launch.attributes["graph"], launch.attributes["replay"]
            found.setdefault(key, []).append(launch.kernel)
    return found


def test_each_replay_has_its_launches_and_tiles(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(layers), (40, 16), (16, 16))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        (plain,) = {tuple(e.kernel for e in prof.launches())}
        for _ in range(3):
            graph.launch()
    assert len(plain) >= 3 and not gpu.graphs.spoilt
    assert list(replays(prof).values()) == [list(plain)] * 3
    read = (prof.overhead.duration.value or 0) - 50.0 * sum(e.tiles for e in prof.launches())
    assert read > 0 and round(read, 3) % 8 == 0, "2 ns a reading, as often in each of three replays and the call"
    assert len({key[0] for key in replays(prof)}) == 1 and [key[1] for key in replays(prof)] == [1, 2, 3]
    for launch in prof.launches():
        tiles = prof.recording.tiles_of(launch.launch)
        pairs = list(zip(tiles.records["tile"].tolist(), tiles.records["phase"].tolist(), strict=True))
        assert len(set(pairs)) == len(pairs) > 0, "every program of every run has a record of its own"
        assert {tile for tile, _ in pairs} == set(range(launch.tiles))
        assert launch.duration is not None and launch.source == "measured"
        first, last = tiles.records["start"].min(), (tiles.records["start"] + tiles.records["duration"]).max()
        assert launch.start <= first and last <= launch.start + launch.duration


def test_times_are_on_the_hosts_clock_within_the_region(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(layers), (40, 16), (16, 16))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        graph.launch()
    allowed = 200_000
    """ns that a busy machine puts between two looks at the clocks"""
    for launch in prof.launches():
        assert prof.recording.start - allowed <= launch.start
        assert launch.start + (launch.duration or 0) <= prof.recording.end + allowed
    ordered = sorted(prof.launches(), key=lambda e: e.start)
    for one, other in pairwise(ordered):
        assert one.start + (one.duration or 0) <= other.start + allowed, "one after the other"


def test_what_has_no_room_is_counted(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(graphs, "MOST_RUNS", 2)
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        for _ in range(5):
            graph.launch()
    assert [key[1] for key in replays(prof)] == [1, 2]
    told = prof.recording.graphs[-1]
    assert (told.replays, told.recorded, told.launches) == (5, 2, 1)
    assert "5 replays of 1 launch, the first 2 recorded: there was no room for more" in str(prof.summary())
    with profiler() as later:
        graph.launch()
    assert [key[1] for key in replays(later)] == [6], "the room is free again, and replays are counted on"


def test_without_memory_for_records_replays_are_counted(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as prof:
        step.warm()
        for executable in gpu.executables:
            bindings: Any = executable.driver.bindings
            real = bindings.cuMemAlloc
            monkeypatch.setattr(bindings, "cuMemAlloc", lambda n, real=real: (2, None) if n > 32 else real(n))
        graph = capture(gpu, step)
        graph.launch()
    assert not replays(prof)
    assert (prof.recording.graphs[-1].replays, prof.recording.graphs[-1].recorded) == (1, 0)


def test_two_graphs_and_two_calls_in_one(gpu: HostGpu) -> None:  # noqa: F811
    one, two = Step(gpu, ts.function(scaled), (1000,)), Step(gpu, ts.function(layers), (40, 16), (16, 16))
    with profiler() as prof:
        one.warm()
        two.warm()
        first, second = capture(gpu, one, two), capture(gpu, one)
        for graph in (first, second, first, second, second):
            graph.launch()
    found = replays(prof)
    numbers = sorted({key[0] for key in found})
    counts = [sum(key[0] == number for key in found) for number in numbers]
    assert counts == [2, 3]
    kernels = {number: {tuple(found[key]) for key in found if key[0] == number} for number in numbers}
    assert len(kernels[numbers[0]]) == 1 and kernels[numbers[1]] == {next(iter(kernels[numbers[0]]))[:1]}
    runs = {e.attributes["run"] for e in prof.launches() if "graph" in e.attributes}
    assert len(runs) == 2 * 2 + 3, "each call of each replay is a run"
    assert {call.run for call in prof.recording.calls} >= runs


def test_a_graph_that_is_gone_before_the_profile_ends(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as prof:
        step.warm()
        gpu.calls.clear()  # what measured the cost of a record has freed its memory
        graph = capture(gpu, step)
        graph.launch()
        graph.destroy()
        assert "memory is free" not in gpu.calls, "its records have not been read yet"
    assert len(replays(prof)) == 1
    assert "memory is free" in gpu.calls and not captured._graphs.calls


def test_memory_stays_as_long_as_the_graph_may_run(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler():
        step.warm()
        graph = capture(gpu, step)
    step.result.host[...] = 0
    graph.launch()
    np.testing.assert_array_equal(step.result.get(), step.arrays[0].get() * 2)
    assert "memory is free" not in gpu.calls
    graph.destroy()
    with profiler():
        pass
    assert "memory is free" in gpu.calls


def test_replays_outside_of_a_profile_are_nobodys(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as first:
        step.warm()
        graph = capture(gpu, step)
        graph.launch()
    for _ in range(4):
        graph.launch()
    with profiler() as second:
        graph.launch()
    assert len(replays(first)) == 1 and len(replays(second)) == 1


def test_nested_profiles(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as outer:
        step.warm()
        graph = capture(gpu, step)
        graph.launch()
        with profiler() as inner:
            graph.launch()
            graph.launch()
        graph.launch()
    assert [key[1] for key in replays(inner)] == [2, 3]
    assert [key[1] for key in replays(outer)] == [1, 2, 3, 4]


def test_a_profile_that_ends_during_a_capture_leaves_it_alone(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as outer:
        step.warm()
        stream = Stream(gpu, gpu.stream)
        stream.begin_capture()
        with profiler() as inner:
            step()
        graph = stream.end_capture()
        graph.launch()
    assert not gpu.graphs.spoilt and not replays(inner) and len(replays(outer)) == 1


def test_captured_without_tile_records(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler(tiles=False) as prof:
        graph = capture(gpu, step)
        graph.launch()
    assert not gpu.graphs.spoilt and not replays(prof)
    (told,) = prof.recording.graphs
    assert told.replays is None and told.reason == captured.NO_TILES
    assert "its replays cannot be seen: it was captured without tile records" in str(prof.summary())


def test_code_with_records_that_is_not_loaded_does_not_spoil_a_capture(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler() as prof:
        graph = capture(gpu, step)
    step.result.host[...] = 0
    graph.launch()
    np.testing.assert_array_equal(step.result.get(), step.arrays[0].get() * 2)
    (told,) = prof.recording.graphs
    assert told.replays is None and "call it once inside the profiler block" in told.reason


def test_sampled_calls_are_not_captured_with_records(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler(every=2) as prof:
        graph = capture(gpu, step)
        graph.launch()
    assert not gpu.graphs.spoilt and not replays(prof)
    assert [e.reason for e in prof.recording.graphs] == [captured.SAMPLED]


def test_a_graph_of_before_is_not_seen(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    graph = capture(gpu, step)
    with profiler() as prof:
        graph.launch()
    assert not prof.launches() and not prof.recording.graphs


def test_replays_of_another_thread(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        thread = threading.Thread(target=graph.launch)
        thread.start()
        thread.join()
    assert len(replays(prof)) == 1


def profiled(gpu: HostGpu, count: int = 3) -> Profiler:  # noqa: F811
    step = Step(gpu, ts.function(layers), (40, 16), (16, 16))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        for _ in range(count):
            graph.launch()
    return prof


def test_the_critical_path_does_not_blame_the_host_for_pauses_in_a_graph(gpu: HostGpu) -> None:  # noqa: F811
    prof = profiled(gpu)
    path = prof.critical_path()
    assert sum(step.duration for step in path.steps) == prof.recording.duration
    for replay in prof.recording.replays:
        inside = [s for s in path.steps if replay.start <= s.start and s.start + s.duration <= replay.end]
        assert {step.kind for step in inside} <= {"kernel", "graph", "profiling"}
        assert sum(step.duration for step in inside if step.kind != "host") == replay.end - replay.start
    assert any(part.kind == "graph" for part in path.parts)


def test_overlapping_replays_share_the_path() -> None:
    from tests.profiler.synthetic import launch

    prof = Profiler()
    prof.recording.start, prof.recording.end = 0, 100
    for number, graph, start, end in ((1, 1, 0, 5), (2, 1, 85, 90), (3, 2, 20, 22), (4, 2, 28, 30)):
        event = launch(number, "k", start, end - start)
        prof.recording.add(replace(event, attributes={**event.attributes, "graph": graph, "replay": 1}))
    path = prof.critical_path()
    assert sum(step.duration for step in path.steps) == 100
    host = [(step.start, step.duration) for step in path.steps if step.kind == "host"]
    assert host == [(90, 10)], "the longer graph lasts from 0 to 90"


def test_time_in_a_replay_is_not_outside_of_kernels(gpu: HostGpu) -> None:  # noqa: F811
    prof = profiled(gpu)
    for gap in prof.host().gaps:
        for replay in prof.recording.replays:
            assert gap.start >= replay.end or gap.start + gap.duration <= replay.start
    assert all(hint.kind != "launch overhead" for hint in prof.hints(silent=True))


def test_traces_have_launches_inside_their_replay(gpu: HostGpu, tmp_path: Path) -> None:  # noqa: F811
    prof = profiled(gpu)
    trace = json.loads(prof.export_chrome_trace(tmp_path / "t.json").read_text())["traceEvents"]
    replayed = [e for e in trace if e.get("cat") == "graph"]
    assert [e["name"].partition(", ")[2] for e in replayed] == ["replay 1", "replay 2", "replay 3"]
    for outer in replayed:
        inside = [
            e for e in trace
            if e.get("cat") == "launch" and e["ph"] == "X" and e["args"].get("replay") == outer["args"]["replay"]
        ]  # fmt: skip
        assert len(inside) == outer["args"]["launches"] >= 3
        for one in inside:
            assert (one["pid"], one["tid"]) == (outer["pid"], outer["tid"])
            assert outer["ts"] <= one["ts"] and one["ts"] + one["dur"] <= outer["ts"] + outer["dur"] + 1e-3
    assert not verify_trace(tmp_path / "t.json").findings
    prof.export_perfetto(tmp_path / "t.pftrace")
    assert not verify_trace(tmp_path / "t.pftrace").findings
    prof.export_tensorboard(tmp_path / "board")
    kineto = json.loads((tmp_path / "board" / "rank0.pt.trace.json").read_text())["traceEvents"]
    kernels = [e for e in kineto if e.get("cat") == "kernel" and "graph replay" in e["args"]]
    assert sorted(e["args"]["graph replay"] for e in kernels) == sorted(3 * [1, 2, 3])


def test_a_saved_profile_keeps_its_graphs(gpu: HostGpu, tmp_path: Path) -> None:  # noqa: F811
    prof = profiled(gpu)
    loaded = Profiler.load(prof.save(tmp_path / "p.npz"))
    assert loaded.recording.graphs == prof.recording.graphs
    assert replays(loaded) == replays(prof)
    page = loaded.to_html(tmp_path / "p.html").read_text()
    assert ", replay 3" in page and "3 replays" in page


def test_what_was_not_seen_is_not_called_the_hosts(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(graphs, "MOST_RUNS", 1)
    prof = profiled(gpu, 5)
    assert "may be in it: 4 more replays of CUDA graphs had no room" in str(prof.host())
    assert not {hint.kind for hint in prof.hints(silent=True)} & {"outside kernels", "launch overhead"}


def doubled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    ts.tile.grid(persistent=True)
    y[tile_n : tile_n + 16] = x[tile_n : tile_n + 16] * 2


def test_programs_of_persistent_kernels_are_told_apart(gpu: HostGpu) -> None:  # noqa: F811
    step = Step(gpu, ts.kernel(doubled), (1000,), (1000,))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        graph.launch()
        graph.launch()
    assert [key[1] for key in replays(prof)] == [1, 2]
    for launch in prof.launches():
        tiles = prof.recording.tiles_of(launch.launch).records["tile"]
        assert set(tiles.tolist()) == set(range(63)), "63 tiles in fewer blocks"


def test_a_recorded_launch_lasts_as_long_as_its_tiles(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The time between events around the call contains the copies of records."""
    monkeypatch.setattr(sys.modules["cupy"].cuda, "get_elapsed_time", lambda start, end: 10_000.0)
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as prof:
        step.warm()
    (launch,) = prof.launches()
    assert launch.duration is not None and launch.duration < 5_000_000_000
    assert launch.attributes["resources"] == 108, "multiprocessors that it could have used"
    assert prof.timeline().balances[launch.launch].lanes >= 108
