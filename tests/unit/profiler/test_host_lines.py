"""The time between launches is blamed on the lines of the program that spent it."""

from __future__ import annotations

import itertools
import sys
import sysconfig
import threading
import time
from array import array
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.errors import TesseraError
from tessera.profiler import Profiler
from tessera.profiler.export.layout import lay_out
from tessera.profiler.hints import hints
from tessera.profiler.host import HostReport, place_text, sampled_slices
from tessera.profiler.kernel_stats import outside_spans, time_outside
from tessera.profiler.recording import Recording
from tessera.profiler.sampling import stacks
from tessera.profiler.sampling.stacks import MOST_SHARE, HostPlace, Sampler, Samples
from tessera.profiler.storage import ProfileError
from tessera.runtime.events import CompileEvent, ProfilingEvent
from tests.profiler.synthetic import launch, recorded

A, B = HostPlace("no/a.py", 1, "main", ""), HostPlace("no/b.py", 2, "step", "numpy.linalg._linalg.svd")


def sampled(recording: Recording, *found: tuple[int, HostPlace], interval: int = 10) -> HostReport:
    places = list(dict.fromkeys(place for _, place in found))
    times = array("q", [time for time, _ in found])
    recording.samples = Samples(times, array("l", [places.index(p) for _, p in found]), places, interval, 7)
    return HostReport(recording)


@ts.function
def product(x: Tensor["N", "N", ts.f32]) -> Tensor["N", "N", ts.f32]:
    return x @ x


def samples(prof: Profiler) -> int:
    """How many there are so far."""
    assert prof._sampler is not None
    return len(prof._sampler.samples.times)


def test_sleeping_between_calls_is_blamed_on_its_line() -> None:
    x = np.ones((64, 64), np.float32)
    product(x)
    with Profiler() as prof:
        for enough in (20, 40, 60):
            product(x)
            while samples(prof) < enough:
                time.sleep(0.1)  # here
            product(x)
    first = prof.host().lines[0]
    line = Path(__file__).read_text("utf-8").splitlines()[first.place.line - 1]
    assert (first.place.file, line.endswith("# here"), first.source) == (__file__, True, "measured")
    assert first.samples > 40, prof.host()  # what took long was to wait for them
    assert prof.host().gaps[0].place == first.place
    assert "time.sleep(0.1)" in str(prof.summary())
    (hint,) = [hint for hint in prof.hints() if hint.kind == "outside kernels"]
    assert f"test_host_lines.py:{first.place.line} time.sleep(0.1)" in hint.change
    names = [label.name for label in lay_out(prof.recording).labels]
    assert any("time.sleep(0.1)" in name for name in names)


def test_work_in_a_library_is_blamed_on_the_line_that_calls_it() -> None:
    x = np.random.default_rng(0).normal(size=(150, 150))
    product(np.ones((8, 8), np.float32))
    with Profiler() as prof:
        while samples(prof) < 60:
            product(np.ones((8, 8), np.float32))
            np.linalg.svd(x)  # svd
    first = prof.host().lines[0]
    assert Path(__file__).read_text("utf-8").splitlines()[first.place.line - 1].endswith("# svd")
    assert first.place.file == __file__ and first.place.doing.startswith("numpy.linalg")


def test_sampling_stays_below_its_share_and_says_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample takes 0.1 ms of processor time here: 5 ms later the next one may come."""
    monkeypatch.setattr(stacks, "thread_time_ns", itertools.count(0, 100_000).__next__)
    with Profiler() as prof:
        while samples(prof) < 50:
            time.sleep(0.01)
    assert prof.recording.samples.interval == pytest.approx(100_000 / MOST_SHARE, rel=0.01)
    assert prof.recording.samples.spent == 100_000 * len(prof.recording.samples.times)
    report = prof.host()
    assert report.overhead is not None and report.overhead > 0
    assert "of the time" in str(report)


def samplers() -> int:
    return sum(thread.name == "tessera-sampler" for thread in threading.enumerate())


def test_without_it_there_is_no_thread_and_no_sample() -> None:
    with Profiler(host=False) as prof:
        assert not samplers()
        time.sleep(0.02)
    assert len(prof.recording.samples.times) == 0 and prof.host().overhead is None
    assert "lines were not sampled" in str(prof.host()) and "Outside kernels" not in str(prof.summary())


def test_python_that_never_gives_up_the_interpreter_s_lock_is_seen() -> None:
    x = np.ones((8, 8), np.float32)
    product(x)
    with Profiler(tiles=False) as prof:
        while samples(prof) < 60:
            product(x)
            sum(i * i for i in range(20_000))  # squares
    first = prof.host().lines[0]
    assert Path(__file__).read_text("utf-8").splitlines()[first.place.line - 1].endswith("# squares"), prof.host()


def test_how_soon_threads_switch_is_as_before() -> None:
    before = sys.getswitchinterval()
    with Profiler(), pytest.raises(TesseraError), Profiler() as inner:
        inner.__enter__()
    assert sys.getswitchinterval() == before


def test_the_thread_ends_with_the_block_also_where_that_raises() -> None:
    with pytest.raises(ZeroDivisionError), Profiler(), Profiler():
        assert samplers() == 2
        raise ZeroDivisionError
    assert not samplers()


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    recording = recorded(launch(1, start=0, duration=100), launch(2, start=400, duration=100), end=600)
    report = sampled(recording, (50, A), (150, A), (350, B), (450, A), (550, B))
    assert [(line.place, line.duration, line.samples) for line in report.lines] == [(B, 350, 2), (A, 50, 1)]
    assert (report.total, report.unknown) == (400, 0)
    assert [(gap.start, gap.duration, gap.place) for gap in report.gaps] == [(100, 300, B), (500, 100, B)]
    assert [*sampled_slices(recording)] == [(100, 150, A), (150, 400, B), (500, 600, B)]


def test_gaps_too_short_to_be_sampled_are_shared_out_and_said_to_be_modelled() -> None:
    recording = recorded(*(launch(n, start=20 * n, duration=10) for n in range(40)), end=800)
    hits = [(20 * n + 15, A if n % 4 else B) for n in range(0, 40, 2)]
    report = sampled(recording, *hits, interval=40)
    assert [(line.place, line.duration, line.source) for line in report.lines] == [
        (B, 200, "measured"), (A, 200, "measured"),
    ]  # fmt: skip
    assert report.lines[0].modelled == 100 and report.total == 400
    one = sampled(recording, (15, A), interval=40)
    assert (one.lines[0].duration, one.lines[0].source, one.unknown) == (400, "modelled", 0)
    none = sampled(recording, (5, A), interval=40)
    assert none.lines == [] and none.unknown == 400


def test_stretches_outside_are_what_nothing_covers() -> None:
    recording = recorded(
        launch(1, start=100, duration=100), launch(2, start=150, duration=20), launch(3, start=990, duration=100),
        CompileEvent("f", "cpu", 300, 50), ProfilingEvent(340, 20), launch(4, start=-50, duration=60), end=1000,
    )  # fmt: skip
    assert outside_spans(recording) == [(10, 100), (200, 300), (360, 990)]
    assert time_outside(recording) == 820
    assert outside_spans(recorded(end=5)) == [(0, 5)] and outside_spans(recorded(end=0)) == []


def test_a_saved_profile_keeps_them(tmp_path: Path) -> None:
    recording = recorded(launch(1, start=0, duration=100), end=600)
    sampled(recording, (150, A), (350, B))
    prof = Profiler()
    prof.recording = recording
    loaded = Profiler.load(prof.save(tmp_path / "run.npz")).recording
    assert loaded.samples == recording.samples
    recording.samples.where[0] = 9
    with pytest.raises(ProfileError):
        Profiler.load(prof.save(tmp_path / "bad.npz"))


def test_what_the_command_does_is_not_blamed_on_its_script() -> None:
    """It loads and compiles a file before any line of that runs: the frames are the command's and Tessera's."""
    frame: Any = None
    for file in (Path(sysconfig.get_path("scripts"), "tessera"), Path(ts.__file__).parent / "cli" / "profile.py"):
        code = SimpleNamespace(co_filename=str(file), co_name="main", co_qualname="main")
        frame = SimpleNamespace(f_code=code, f_back=frame, f_lineno=8, f_globals={})
    place = Sampler(0)._place(frame)
    assert place == HostPlace("", 0, "", "tessera")
    assert place_text(place) == "tessera itself"


def test_an_instruction_that_has_no_line_counts_as_its_functions_first() -> None:
    """As the jump back of a loop, where a sample can fall."""

    def running() -> FrameType:
        return sys._getframe()

    running.__code__ = running.__code__.replace(co_linetable=b"")
    frame = running()
    assert frame.f_lineno is None
    assert Sampler(0)._place(frame).line == running.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("place", "advice"),
    [
        (B, "make b.py:2 step in numpy.linalg._linalg.svd faster"),
        (HostPlace("no/such.py", 7, "main", "tessera"), "make fewer calls at such.py:7 main, or give each more work"),
        (HostPlace("", 0, "", "tessera"), "make what runs before the first kernel, of saxpy faster"),
    ],
)
def test_advice_for_time_outside_names_what_the_author_can_change(place: HostPlace, advice: str) -> None:
    recording = recorded(launch(1, start=10**9, duration=1000), end=10**9 + 1000)
    sampled(recording, (5 * 10**8, place))
    (hint,) = [hint for hint in hints(recording) if hint.kind == "outside kernels"]
    assert hint.change == f"{advice}; faster kernels cannot make up for it"


@pytest.mark.skipif(sys.platform != "linux", reason="the processor time of other threads is Linux's to tell")
def test_the_thread_that_worked_meanwhile_is_named() -> None:
    """The program waits for a thread that loads data: the line of that thread is named, beside the one that waits."""
    product(np.ones((8, 8), np.float32))
    ended = threading.Event()

    def load() -> None:
        while not ended.is_set():
            sum(i * i for i in range(20_000))

    loader = threading.Thread(target=load, name="loader")
    with Profiler() as prof:
        product(np.ones((8, 8), np.float32))
        loader.start()
        for enough in range(20, 2000, 20):
            while samples(prof) < enough:
                loader.join(0.05)  # waits
            if any("thread loader" in place.doing for place in list(prof._sampler.samples.places)):  # type: ignore[union-attr]
                break
        ended.set()
        loader.join()
    (found, *_) = [line for line in prof.host().lines if "thread loader" in line.place.doing]
    lines = Path(__file__).read_text("utf-8").splitlines()
    assert lines[found.place.line - 1].endswith("# waits")
    assert "while thread loader ran test_host_lines.py:" in str(found), str(found)
