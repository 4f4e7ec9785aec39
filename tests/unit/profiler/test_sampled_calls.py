"""`ts.profiler(every=...)`: some calls are recorded, all are counted and timed, and memory stays bounded."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.errors import TesseraError
from tessera.profiler import Profiler, profiler, recording
from tessera.profiler.export.verify import verify_trace
from tessera.profiler.kernel_stats import outside_spans
from tessera.profiler.sampling import calls, stacks
from tessera.runtime import events


@ts.function
def step(x: Tensor["N", "N", ts.f32]) -> Tensor["N", "N", ts.f32]:
    return x @ x + 1


@ts.function
def other(x: Tensor["N", "N", ts.f32]) -> Tensor["N", "N", ts.f32]:
    return ts.exp(x)


@ts.function
def counted(x: Tensor["N", ts.f32]) -> Tensor["N", ts.f32]:
    while ts.max(x) > 0:
        x = x - 1
    return x


SMALL, LARGE = np.ones((16, 16), np.float32), np.ones((400, 400), np.float32)


def test_one_call_in_so_many_of_each_program_is_recorded_and_all_are_timed() -> None:
    step(SMALL), other(SMALL), step(LARGE)
    with profiler(every=10) as prof:
        for index in range(95):
            step(SMALL)
            other(SMALL)  # programs called in turn all have their share
            if index < 11:
                step(LARGE)
    made = prof.recording.calls_made
    assert made is not None
    found = {(p.name, p.sizes["N"]): (p.count, p.recorded) for p in made.programs}
    assert found == {("step", 16): (95, 10), ("other", 16): (95, 10), ("step", 400): (11, 2)}
    assert made.total == sum(made.duration) and len(made.which) == made.count == 201
    assert len({launch.attributes["run"] for launch in prof.launches()}) == 22
    assert {tile.launch for tile in prof.tiles()} == {launch.launch for launch in prof.launches()}
    # A call whose kernels were recorded took at least as long as they.
    spans = sorted(zip(made.start, made.duration, strict=True))
    for launch in prof.launches():
        assert any(s <= launch.start and launch.start + (launch.duration or 0) <= s + d for s, d in spans)
    said = str(prof.summary())
    assert "22 of 201 were recorded with their kernels, one in 10; the times are of all 201" in said
    assert {e.device for e in prof.recording.memory} <= {"process"}, "allocations are not told one by one"


def test_a_slow_call_among_thousands_is_found_though_it_was_not_recorded() -> None:
    few, many = np.full(8, 1, np.float32), np.full(8, 16_000_000, np.float32)
    counted(few)
    with profiler(every=1000, host=False) as prof:
        for index in range(3000):
            counted(many if index == 1711 else few)
    made = prof.recording.calls_made
    assert made is not None
    (program,) = made.programs
    longest, number, start = max(program.slowest)
    assert (program.count, program.recorded, number) == (3000, 3, 1712)
    assert longest > 20 * np.median(made.duration)
    assert start == made.start[1711] and longest == made.duration[1711]
    assert "the slowest is call 1,712, " in str(prof.summary())


def test_time_outside_of_calls_is_not_that_of_calls_without_records() -> None:
    step(LARGE)
    with profiler(every=50, host=False) as prof:
        for _ in range(40):
            step(LARGE)
        time.sleep(0.05)
    made = prof.recording.calls_made
    assert made is not None and made.recorded == 1
    outside = outside_spans(prof.recording)
    for start, duration in zip(made.start, made.duration, strict=True):
        assert not any(begin < start + duration and start < end for begin, end in outside)
    assert sum(end - begin for begin, end in outside) >= 50_000_000
    assert {hint.kind for hint in prof.hints()} <= {
        "imbalance",
        "tail",
        "wave quantisation",
        "underfilled",
        "compilation",
    }


def test_a_full_recording_keeps_every_other_call_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_LAUNCHES", 20)
    monkeypatch.setattr(calls, "MOST_CALLS", 500)
    step(SMALL)
    with profiler(every=2, host=False) as prof:
        for _ in range(2000):
            step(SMALL)
    found, made = prof.recording, prof.recording.calls_made
    assert made is not None
    assert len(found.launches) <= 21 + len({launch.kernel for launch in found.launches})
    runs = {launch.attributes["run"] for launch in found.launches}
    assert made.recorded == len(runs) == len(found.calls) and made.every >= 128
    assert {int(n) for n in found.tiles.records["launch"]} == {launch.launch for launch in found.launches}
    assert (made.count, len(made.which)) == (2000, 500)
    assert made.total > sum(made.duration), "totals are of all calls"
    assert f"one in {made.every}; the times are of all 2,000, one by one of the first 500" in str(prof.summary())


def test_another_profiler_hears_everything() -> None:
    step(SMALL)
    with profiler(every=1000, host=False) as some, profiler(host=False) as everything:
        for _ in range(20):
            step(SMALL)
    assert len({launch.attributes["run"] for launch in everything.launches()}) == 20
    made = some.recording.calls_made
    assert made is not None and made.count == made.recorded == 20
    assert everything.recording.calls_made is None and everything.recording.memory


def test_it_is_saved_and_drawn(tmp_path: Path) -> None:
    step(SMALL)
    with profiler(every=5) as prof:
        for _ in range(23):
            step(SMALL)
    loaded = Profiler.load(prof.save(tmp_path / "run.npz"))
    before, after = prof.recording.calls_made, loaded.recording.calls_made
    assert before is not None and after is not None
    assert after.lines(prof.recording.start) == before.lines(prof.recording.start)
    assert (after.start, after.duration, after.which) == (before.start, before.duration, before.which)
    check = verify_trace(loaded.export_perfetto(tmp_path / "run.pftrace"))
    assert not check.findings
    assert "5 of 23 were recorded" in loaded.to_html(tmp_path / "run.html").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells the memory of a process on Linux")
def test_the_line_at_which_the_memory_of_a_long_run_grows_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where samples were thinned out, which loses no peak; and from a saved profile."""
    monkeypatch.setattr(stacks, "SELDOM", 1_000_000)
    monkeypatch.setattr(stacks, "MOST_SAMPLES", 32)
    x, kept = np.ones((64, 64), np.float32), list[np.ndarray]()
    step(x)
    with profiler(every=10) as prof:
        for _ in range(24):
            step(x)
            kept.append(np.full(1 << 20, 1.0))  # the leak: 8 MB
            time.sleep(0.004)
    text = Path(__file__).read_text().splitlines()
    leak = next(n for n, line in enumerate(text, 1) if line.endswith("# the leak: 8 MB"))
    for own in (prof, Profiler.load(prof.save(tmp_path / "long.npz"))):
        report = own.memory()
        assert report.peak["process"] >= sum(a.nbytes for a in kept)
        net: dict[int, int] = {}
        for event in report.events[1:]:
            net[event.line] = net.get(event.line, 0) + event.delta
        most = max(net, key=lambda line: net[line])
        assert most in (leak, leak + 1) and net[most] > sum(a.nbytes for a in kept) / 3
        said = str(own.summary())
        assert "Memory of the process (sampled):" in said and ": grew by " in said and "by kept[" in said
    assert len(prof.recording.samples.resident) == len(prof.recording.samples.times) < 32
    assert verify_trace(prof.export_chrome_trace(tmp_path / "t.json")).findings == ()


def test_less_than_one_call_in_one_is_refused() -> None:
    with pytest.raises(TesseraError, match="at least 1") as refused:
        profiler(every=0)
    assert refused.value.code == "TS105"


def test_calls_that_are_not_recorded_run_the_code_without_tile_records() -> None:
    step(SMALL)
    heard: list[Any] = []
    token = events.subscribe(heard.append, choice=lambda _name, _sizes: False)
    try:
        step(SMALL)
    finally:
        events.unsubscribe(token)
    (call,) = heard
    assert isinstance(call, events.CallTime) and (call.name, dict(call.sizes), call.recorded) == (
        "step",
        {"N": 16},
        False,
    )
