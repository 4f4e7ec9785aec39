"""What must hold of every launch on the CPU: it encloses its tiles, and kernels and gaps add up to the region."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.targets.cpu.call import clock
from tessera.profiler.bottlenecks import find_bottlenecks
from tessera.profiler.session import Profiler
from tessera.runtime.call.observe import _extents  # pyright: ignore[reportPrivateUsage]


@ts.function
def rows(x: Tensor["N", "D", ts.f32], w: Tensor["D", "E", ts.f32]) -> Tensor["N", "E", ts.f32]:
    return ts.softmax(ts.softmax(x) @ w)


@pytest.fixture(params=[1, 2, 4])
def recorded(request: pytest.FixtureRequest) -> Profiler:
    x, w = np.ones((96, 300), np.float32), np.ones((300, 200), np.float32)
    before = ts.get_num_threads()
    ts.set_num_threads(request.param)
    try:
        with Profiler() as first:
            rows(x, w)
        assert len(first.launches()) > 1
        with Profiler() as prof:
            for _ in range(6):
                rows(x, w)
    finally:
        ts.set_num_threads(before)
    return prof


def test_a_launch_encloses_its_tiles(recorded: Profiler) -> None:
    assert recorded.launches()
    for launch in recorded.launches():
        tiles = list(recorded.recording.tiles_of(launch.launch))
        assert len({t.tile for t in tiles}) == launch.tiles
        assert launch.duration is not None
        assert launch.start == min(t.start for t in tiles)
        assert launch.start + launch.duration == max(t.end for t in tiles)


def test_kernels_and_gaps_add_up_to_the_region(recorded: Profiler) -> None:
    spans = sorted((e.start, e.start + (e.duration or 0)) for e in recorded.launches())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    region = recorded.recording
    assert region.start <= spans[0][0]
    assert spans[-1][1] <= region.end
    assert sum(b.duration for b in find_bottlenecks(region)) == region.duration


def test_launches_of_one_call_belong_together(recorded: Profiler) -> None:
    runs = [launch.attributes["run"] for launch in recorded.launches()]
    assert len(set(runs)) == 6
    assert runs == sorted(runs)


def test_a_launch_says_nothing_of_a_cache_that_it_did_not_ask(recorded: Profiler) -> None:
    assert not recorded.recording.compiles
    assert all("cache" not in launch.attributes for launch in recorded.launches())


def test_every_launch_has_a_flow_in_the_trace(recorded: Profiler, tmp_path: Path) -> None:
    events = json.loads(recorded.export_chrome_trace(tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(e["ph"] == "s" for e in events) == sum(e["ph"] == "f" for e in events) == len(recorded.launches())


def test_workers_widen_a_launch_in_any_order() -> None:
    def batch(start: int, duration: int) -> dict[str, np.ndarray]:
        return {"launch": np.array([0, 1]), "start": np.array([start, 9000]), "duration": np.array([duration, 10])}

    for batches in ([batch(0, 4000), batch(3200, 700)], [batch(3200, 700), batch(0, 4000)]):
        assert _extents(batches, 2, 0, 10_000, False) == [(0, 4000, ""), (9000, 10, "")]


def test_a_device_s_own_time_is_kept_and_encloses_the_tiles() -> None:
    batch = {"launch": 0, "start": np.array([500]), "duration": np.array([100])}
    assert _extents([batch], 1, 100, 200, True) == [(400, 200, "")]
    assert _extents([batch], 1, 900, 200, True) == [(500, 200, "")]
    assert _extents([batch], 1, 500, 50, True) == [(500, 100, "")]


def test_records_without_room_are_counted_and_shorten_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = np.ones((64, 300), np.float32), np.ones((300, 200), np.float32)
    with Profiler() as whole:
        rows(x, w)
    monkeypatch.setattr(clock, "CAPACITY", 2)  # for each worker
    with Profiler() as prof:
        rows(x, w)
    kept, all_of_them = len(prof.recording.tiles), len(whole.recording.tiles)
    assert kept < all_of_them
    assert f"{all_of_them - kept:,} more did not fit" in str(prof.overhead)
    timed = [launch for launch in prof.launches() if launch.duration is not None]
    assert {launch.source for launch in timed} == {"modelled"}
    for one, following in itertools.pairwise(timed):
        assert one.start + (one.duration or 0) == following.start
