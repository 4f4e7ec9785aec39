"""Figures of equal runs: the parts of a run add up to it, recording is beside it, and the first hint is the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.profiler import Profiler
from tessera.profiler.bottlenecks import find_bottlenecks
from tessera.profiler.hints import hints
from tessera.profiler.kernel_stats import time_outside
from tessera.profiler.recording import Recording
from tessera.runtime.events import CompileEvent, ProfilingEvent
from tests.profiler.synthetic import launch, recorded, tiles

RUNS = 10


@ts.function
def residual(x: Tensor["M", "N"], y: Tensor["M", "N"]):
    return ts.relu(x + y * 0.5)


def two_chains(seed: int) -> Recording:
    """Two pairs of kernels with as much to gain from fusing each pair, and a third that waits for one long tile. Times
    differ by some percent from run to run, and one launch was interrupted."""
    by_chance = random.Random(seed)

    def time(ns: int) -> int:
        return round(ns * by_chance.uniform(0.93, 1.07))

    events: list[Any] = []
    now = number = 0
    interrupted = by_chance.randrange(5)
    for again in range(5):
        for line, buffer in ((10, 1), (20, 2)):
            for kernel, moved in (("scale", "writes"), ("shift", "reads")):
                number += 1
                took = time(80_000)
                about: dict[str, Any] = {moved: [(buffer, 400_000)], "file": "m.py", "line": line, "run": number}
                about["title"] = f"m:{line} {kernel}"
                events.append(launch(number, f"{kernel}{line}", now, took, flops=1000, bytes=800_000, attributes=about))
                now += took
        number += 1
        long = time(200_000) * (10 if again == interrupted else 1)
        about = {"file": "m.py", "line": 30, "run": number, "resources": 2}
        rows = [(t, 0, now + t * 1_000, 1_000) for t in range(9)] + [(9, 1, now, long)]
        events += [launch(number, "ragged", now, long, grid=(10,), attributes=about), tiles(*rows, launch=number)]
        now += long
        events.append(ProfilingEvent(now, took := time(900_000)))
        now += took
    return recorded(*events, end=now)


def test_equal_runs_have_the_same_hints_in_the_same_order() -> None:
    found = [[(hint.kind, hint.line) for hint in hints(two_chains(seed))] for seed in range(RUNS)]
    assert found[0] == [("tail", 30), ("memory-bound neighbours", 10), ("memory-bound neighbours", 20)]
    assert all(each == found[0] for each in found), found


@pytest.mark.parametrize("size", [128, 512])
def test_equal_real_runs_have_the_same_first_hint(size: int) -> None:
    x, y = np.ones((size, size), np.float32), np.ones((size, size), np.float32)

    def call() -> None:
        residual(x, y.T)

    with Profiler():
        call()
    for _ in range(RUNS):
        prof = Profiler()
        prof.repeat(call)
        first = prof.hints()[0]
        assert first.kind == "copied arguments"
        assert 0.01 < first.whole_run[1] <= 1.0 and first.local[1] <= 1.0
        parts_add_up(prof.recording)


def parts_add_up(recording: Recording) -> None:
    """Where kernels do not run side by side, all parts with recording are the region, and without it the run."""
    parts = {entry.what: entry.duration for entry in find_bottlenecks(recording)}
    assert sum(parts.values()) == recording.duration
    assert recording.run_time == recording.duration - parts.get("profiling", 0)
    in_run = [entry.share for entry in find_bottlenecks(recording) if entry.what != "profiling"]
    assert sum(in_run) == pytest.approx(1.0)


def test_recording_is_beside_the_run() -> None:
    recording = recorded(
        launch(1, duration=100_000), ProfilingEvent(100_000, 300_000), launch(2, "other", 350_000, 100_000),
        CompileEvent("f", "cpu", 500_000, 50_000),
        CompileEvent("g", "cpu", 600_000, 40_000, attributes={"instrumented": True}),
    )  # fmt: skip
    # of the recording, 50 us ran beside a kernel of another thread
    assert recording.run_time == 1_000_000 - 250_000 - 40_000
    assert time_outside(recording) == recording.run_time - 200_000 - 50_000
    parts_add_up(recording)
    (profiling,) = (entry for entry in find_bottlenecks(recording) if entry.what == "profiling")
    assert "290 µs (beside the run)" in str(profiling)


def test_most_of_what_profiling_a_short_call_takes_is_not_of_the_run() -> None:
    """A call of a few microseconds takes some hundred when it is recorded; what is left over is Python's."""
    x = np.ones((64, 64), np.float32)
    residual(x, x)
    with Profiler():
        residual(x, x)
    beside = []
    for _ in range(9):
        prof = Profiler(host=False)
        prof.repeat(lambda: residual(x, x), 20)
        beside.append(1 - prof.recording.run_time / prof.recording.duration)
    assert sorted(beside)[4] > 0.7, beside


def test_an_empty_profile_says_so_in_each_view() -> None:
    with Profiler() as prof:
        pass
    assert "no kernel was launched" in str(prof.summary()) and "no kernel was launched" in str(prof.roofline())
    assert prof.hints() == [] and "Python" in str(prof.critical_path())
