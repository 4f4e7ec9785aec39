"""`with profiler()`: what is recorded, what survives, and what the summary says."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.errors import TesseraError
from tessera.profiler import Profiler, profile_memory, profiler, recording
from tessera.profiler.storage import ProfileError
from tessera.runtime import events
from tessera.runtime.events import CompileEvent, LaunchEvent, MemoryEvent, TileEvent
from tests.profiler.synthetic import MACHINE, launch, recorded, tiles


def profile_of(*found: events.Event, **region: int) -> Profiler:
    prof = Profiler()
    prof.recording = recorded(*found, **region)
    return prof


def test_a_block_records_what_is_published_during_it() -> None:
    events.publish(launch(1))
    with profiler() as prof:
        assert events.active() and events.tiles_wanted()
        events.publish(launch(2))
        events.publish(tiles((0, 0, 5, 5), launch=2))
    events.publish(launch(3))
    assert [event.launch for event in prof.launches()] == [2]
    assert prof.tiles() == [TileEvent(2, 0, 0, 0, "tile", 5, 5, 7)]
    assert prof.recording.duration > 0
    assert not events.active()


def test_blocks_nest() -> None:
    with profiler(tiles=False) as outer:
        events.publish(launch(1))
        assert not events.tiles_wanted()
        with profiler() as inner:
            events.publish(launch(2))
        assert not events.tiles_wanted()
        events.publish(launch(3))
    assert [event.launch for event in outer.launches()] == [1, 2, 3]
    assert [event.launch for event in inner.launches()] == [2]


def test_an_exception_passes_and_what_was_recorded_stays() -> None:
    with pytest.raises(KeyboardInterrupt), profiler() as prof:
        events.publish(launch(1))
        raise KeyboardInterrupt
    assert len(prof.launches()) == 1
    assert not events.active()


def test_launches_of_all_threads_are_recorded() -> None:
    with profiler() as prof:
        threads = [
            threading.Thread(target=lambda: [events.publish(launch(events.new_launch())) for _ in range(100)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({event.launch for event in prof.launches()}) == 400


def test_entering_twice_is_refused_and_entering_again_starts_afresh() -> None:
    prof = profiler()
    with prof:
        events.publish(launch(1))
        with pytest.raises(TesseraError) as refused:
            prof.__enter__()
        assert refused.value.code == "TS702"
    with prof:
        events.publish(launch(2))
    assert [event.launch for event in prof.launches()] == [2]


def test_asynchronous_launches_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_drains", ())
    pending = [launch(7)]
    events.add_drain(lambda: [events.publish(pending.pop()) for _ in range(len(pending))] and None)
    with profiler() as prof:
        pending.append(launch(1))
        assert prof.launches() == []
    assert [event.launch for event in prof.launches()] == [1], "what ran before is not of this profile"


def test_a_device_that_fails_while_it_is_waited_for_ends_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_drains", ())

    def fail() -> None:
        raise OSError("device lost")

    with pytest.raises(OSError, match="device lost"), profiler():
        events.add_drain(fail)
    assert not events.active()


def test_the_summary_has_the_documented_shape() -> None:
    prof = profile_of(
        launch(1, "attention", 0, 700_000, flops=60_000_000, bytes=1_000_000),
        launch(2, "layernorm", 700_000, 300_000, flops=1_000_000, bytes=2_700_000),
        MemoryEvent(1, "cpu:0", 4_000_000, 4_000_000, "x", 3, "m.py"),
        MemoryEvent(2, "cpu:0", -1_000_000, 3_000_000, "x"),
    )
    assert str(prof.summary()).splitlines() == [
        "Kernel Execution Summary:",
        "  attention: 700 µs (70.0%)",
        "    - Arithmetic intensity: 60.0 ops/byte",
        "    - Memory bandwidth: 1.43 GB/s (14.3% of measured peak)",
        "    - Compute rate: 85.7 GFLOP/s (85.7% of measured peak)",
        "    - Bound by f32 arithmetic (85.7% of what the roofline allows)",
        "  layernorm: 300 µs (30.0%)",
        "    - Arithmetic intensity: 0.37 ops/byte",
        "    - Memory bandwidth: 9.00 GB/s (90.0% of measured peak)",
        "    - Compute rate: 3.33 GFLOP/s (3.3% of measured peak)",
        "    - Bound by memory bandwidth (90.0% of what the roofline allows)",
        "",
        "Memory Usage:",
        "  Peak: 4.00 MB",
        "  Allocated at the end: 3.00 MB",
        "  m.py:3: 4.00 MB allocated in all",
        "",
        "Profiling overhead: 0.0% of the tiles' time (0 records)",
    ]


def test_an_empty_profile_answers_everything(tmp_path: Path) -> None:
    with profiler() as prof:
        pass
    assert "no kernel was launched" in str(prof.summary())
    assert "nothing was allocated" in str(prof.memory())
    assert "no tile records" in str(prof.timeline())
    assert prof.hints() == [] and prof.tiles() == []
    assert prof.roofline().points == []
    prof.export_chrome_trace(tmp_path / "trace.json")
    assert Profiler.load(prof.save(tmp_path / "empty.npz")).launches() == []


def test_the_summary_s_html_is_escaped() -> None:
    shown = profile_of(launch(1, "<script>alert(1)</script>")).summary()._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_overhead_is_record_cost_times_records() -> None:
    prof = profile_of(launch(attributes={"record_ns": 50.0}), tiles((0, 0, 0, 5_000), (1, 1, 0, 5_000)))
    assert (prof.overhead.records, prof.overhead.duration.value, prof.overhead.share) == (2, 100.0, 0.01)
    unknown = profile_of(launch(), tiles((0, 0, 0, 5_000))).overhead
    assert unknown.share is None
    assert "not known for cpu" in unknown.duration.reason


def test_the_cpu_target_says_what_its_records_cost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "cpu")

    @ts.kernel
    def double(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        for s in ts.tile.range(0, n, 4096):
            y[s : s + 4096] = x[s : s + 4096] * 2

    x, y = np.ones(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    with profiler() as prof:
        double(x, y)
    (ran,) = prof.launches()
    assert ran.attributes["record_ns"] > 0
    assert prof.overhead.duration.value == 16 * ran.attributes["record_ns"]
    assert "of the tiles' time (16 records)" in str(prof.summary())
    trace = json.loads(prof.export_chrome_trace(tmp_path / "trace.json").read_text())
    assert trace["otherData"]["overhead"] == str(prof.overhead)
    assert any(e.get("args", {}).get("record_ns") == ran.attributes["record_ns"] for e in trace["traceEvents"])
    with profiler(tiles=False) as plain:
        double(x, y)
    assert "record_ns" not in plain.launches()[0].attributes


def test_a_saved_profile_gives_the_same_answers(tmp_path: Path) -> None:
    prof = profile_of(
        launch(1, "é<b>", flops=10, bytes=None, unavailable={"bytes": "why"}, attributes={"reads": [(1, np.int64(8))]}),
        tiles((0, 0, 0, 100), (1, 1, 0, 50)),
        CompileEvent("f", "cpu", 1, 2, (("parse", 1), ("emit", 1))),
        MemoryEvent(1, "cpu:0", 5, 5, "x"),
    )
    loaded = Profiler.load(prof.save(tmp_path / "profile.npz"))
    assert loaded.tiles() == prof.tiles()
    assert loaded.recording.compiles == prof.recording.compiles
    assert loaded.recording.memory == prof.recording.memory
    assert loaded.recording.machines == {"cpu:0": MACHINE}
    assert str(loaded.summary()) == str(prof.summary())
    assert loaded.launches()[0].grid == (4,)


def test_files_that_are_no_profile_are_refused_with_a_code(tmp_path: Path) -> None:
    good = profile_of(launch(), tiles((0, 0, 0, 1))).save(tmp_path / "good.npz").read_bytes()
    cases = {
        "text": b"hello",
        "empty": b"",
        "cut": good[: len(good) // 2],
        "flipped": good[:200] + bytes([good[200] ^ 0xFF]) + good[201:],
    }
    for name, content in cases.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(ProfileError) as refused:
            Profiler.load(path)
        assert refused.value.code == "TS701"
    np.savez(tmp_path / "other.npz", tiles=np.zeros(3))
    np.savez(tmp_path / "pickled.npz", document=np.array([{}], object), tiles=np.zeros(3))
    for name in ("other", "pickled"):
        with pytest.raises(ProfileError):
            Profiler.load(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError):
        Profiler.load(tmp_path / "absent.npz")


def test_a_file_that_is_damaged_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    """NumPy, its archive and its headers each have errors of their own."""
    path = profile_of(launch(), tiles((0, 0, 0, 1))).save(tmp_path / "good.npz")
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x21]) + good[place + 1 :])
        with contextlib.suppress(ProfileError):
            Profiler.load(path)


def test_a_profile_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.profiler.storage.VERSION", 99)
    path = profile_of().save(tmp_path / "new.npz")
    monkeypatch.undo()
    with pytest.raises(ProfileError, match="version 99"):
        Profiler.load(path)


def timed(kernel: str, *durations: int) -> list[LaunchEvent]:
    return [launch(i, kernel, start=i * 1000, duration=d) for i, d in enumerate(durations)]


def test_compare_says_what_the_samples_allow() -> None:
    before = profile_of(
        *timed("fast", 100, 104, 102), *timed("same", 100, 140, 120), *timed("once", 100), *timed("old", 5)
    )
    after = profile_of(
        *timed("fast", 50, 52, 51), *timed("same", 110, 130, 119), *timed("once", 10), *timed("new", 5, 6, 7)
    )
    found = {change.kernel: change for change in before.compare(after).changes}
    assert found["fast"].speedup == 2.0
    assert {name: change.verdict for name, change in found.items()} == {
        "fast": "faster",
        "same": "no clear change",
        "once": "too few launches to tell",
        "old": "gone",
        "new": "new",
    }
    back = {change.kernel: change.verdict for change in after.compare(before).changes}
    assert back["fast"] == "slower"
    assert "fast: 102 ns -> 51 ns (2.00x), faster" in str(before.compare(after))


def test_allocations_are_summed_by_line() -> None:
    report = profile_of(
        MemoryEvent(2, "cpu:0", 5, 15, "b", 4, "m.py"),
        MemoryEvent(1, "cpu:0", 10, 10, "a", 3, "m.py"),
        MemoryEvent(3, "cpu:0", 7, 22, "c", 4, "m.py"),
        MemoryEvent(4, "cpu:0", -22, 0, "all", 9, "m.py"),
    ).memory()
    assert report.by_line() == [("m.py", 4, 12), ("m.py", 3, 10)]
    assert (report.peak, report.current) == ({"cpu:0": 22}, {"cpu:0": 0})


def test_profile_memory_prints_what_a_call_allocated(capsys: pytest.CaptureFixture[str]) -> None:
    @profile_memory
    def build(size: int) -> str:
        """doc"""
        events.publish(MemoryEvent(1, "cpu:0", size, size, "x", 3, "m.py"))
        events.publish(MemoryEvent(2, "cpu:0", 2 * size, 3 * size, "y", 4, "m.py"))
        events.publish(MemoryEvent(3, "cpu:0", -size, 2 * size, "x"))
        if size == 7:
            raise ZeroDivisionError
        return "built"

    assert (build(1000), build.__name__, build.__doc__) == ("built", "build", "doc")
    assert capsys.readouterr().out.splitlines() == [
        "Memory Profile for build:",
        "  Peak usage: 3.00 kB",
        "  Current usage: 2.00 kB",
        "  Allocations: 2",
        "  Deallocations: 1",
        "  Not released: 2.00 kB",
        "",
        "  Line by line:",
        "    m.py:3: +1.00 kB",
        "    m.py:4: +2.00 kB",
    ]
    with pytest.raises(ZeroDivisionError):
        build(7)
    assert "Peak usage: 21 B" in capsys.readouterr().out


@pytest.mark.parametrize(
    "program",
    [
        "import tessera as ts\nwith ts.profiler() as prof: pass",
        "import tessera.profiler, tessera as ts\nwith ts.profiler(tiles=False) as prof: pass",
        "import tessera as ts\nts.profiler\nimport tessera.profiler.storage as s\nwith ts.profiler() as prof: s.load",
    ],
)
def test_the_package_may_be_called_whoever_imported_it_first(program: str) -> None:
    code = f"{program}\nassert prof.launches() == [] and 'plotly' not in __import__('sys').modules"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_recording_of_many_calls_keeps_the_tiles_of_some_and_says_so(monkeypatch, tmp_path):
    """Whole calls, scattered: also of a program whose calls take turns, some of each. Nothing else is lost."""
    monkeypatch.setattr(recording, "MOST_TILES", 200)
    prof = Profiler()
    for call in range(128):
        run = {"run": 2 * call + 1, "resources": 2}
        pair = [launch(2 * call + n, f"kernel {call % 2}", 1000 * call, 500, grid=(5,), attributes=run) for n in (1, 2)]
        batches = [tiles(*[(t, t % 2, 1000 * call + 90 * t, 80) for t in range(5)], launch=e.launch) for e in pair]
        for event in (*pair, *batches):
            prof.recording.add(event)
    kept = [len(prof.recording.tiles_of(e.launch)) for e in prof.recording.launches]
    assert len(kept) == 256 and set(kept) == {0, 5} and 50 <= sum(kept) <= 200
    assert prof.recording.left_out == 1280 - sum(kept)
    runs = [e.attributes["run"] for e, n in zip(prof.launches(), kept, strict=True) if n]
    assert all(runs.count(run) == 2 for run in runs), "all of a call or nothing"
    assert {(run // 2) % 2 for run in runs} == {0, 1}, "of both calls that take turns"
    assert sum(kernel.duration for kernel in prof.summary().kernels) == 256 * 500
    said = f"of one call in {prof.recording.one_in}, {prof.recording.left_out:,} of the others are left out"
    again = Profiler.load(prof.save(tmp_path / "many.npz"))
    for shown in (prof, again):
        assert said in str(shown.summary())
        assert f"{prof.recording.left_out:,} records of the others left out" in shown.timeline().view()


def test_a_launch_without_all_of_its_tiles_has_no_balance():
    attributes = {"run": 1, "resources": 2, "dropped": 3}
    part = launch(1, "long", grid=(5,), attributes=attributes)
    whole = launch(2, "short", grid=(2,), attributes=attributes)
    prof = Profiler()
    all_of_two = tiles((0, 0, 100, 10), (1, 1, 100, 10), launch=2)
    prof.recording = recorded(part, whole, tiles((0, 0, 0, 10), (1, 1, 0, 90)), all_of_two)
    assert set(prof.timeline().balances) == {2}
    assert "3 more records had no room" in str(prof.timeline())
    assert not [hint for hint in prof.hints(silent=True) if hint.title == "long" and "idle" in hint.measured]
