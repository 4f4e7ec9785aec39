"""Counters of the region: those of the system always, those of the processor or the reason why not."""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.profiler import Profiler
from tessera.profiler.quantity import Quantity
from tessera.profiler.sampling import counters
from tessera.profiler.sampling.counters import HARDWARE, OpenCounters
from tessera.profiler.summary import Summary
from tests.profiler.synthetic import launch, recorded

unix = pytest.mark.skipif(sys.platform == "win32", reason="the system's counts are Unix's")


@unix
def test_waits_faults_and_processor_time_are_counted(tmp_path: Path) -> None:
    with ts.profiler(host=False) as prof:
        for _ in range(20):
            time.sleep(0.001)
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
        kept = np.full(1 << 22, 1.0)  # fresh pages
    for own in (prof, Profiler.load(prof.save(tmp_path / "run.tsprof"))):
        found = own.counters().figures
        assert (found["waits for something else"].value or 0) >= 20
        assert (found["processor time"].value or 0) >= 20e6
        assert (found["page faults"].value or 0) >= 1
        for name in HARDWARE:
            assert (found[name].value is None) == bool(found[name].reason), name
        assert "waits for something else" in str(own.summary())
    assert kept.nbytes


def test_what_is_not_there_or_not_allowed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(code: int) -> counters.Counters:
        def opened(number: int, thread: int) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(counters, "_opened", opened)
        return OpenCounters().stop()

    said = refused(errno.EACCES)
    assert said.figures["cycles"].value is None
    assert "kernel.perf_event_paranoid is " in said.figures["cycles"].reason
    assert "no such counter" in refused(errno.ENOENT).figures["instructions"].reason
    assert str(said).count("not available: cycles, instructions, last-level cache misses (not permitted") == 1
    assert str(counters.Counters()) == "Counters: none"


@unix
def test_counts_of_all_threads_are_summed_and_filled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as Linux writes it: the count, and for how long it was wanted and running. Nothing stays open."""
    given: list[int] = []

    def opened(number: int, thread: int) -> int:
        read, write = os.pipe()
        os.write(write, struct.pack("=QQQ", 1000 + number, 100, 50))
        os.close(write)
        given.append(read)
        return read

    done = threading.Event()
    beside = threading.Thread(target=done.wait)
    beside.start()
    monkeypatch.setattr(counters, "_threads", lambda: [1, 2])
    monkeypatch.setattr(counters, "_opened", opened)
    found = OpenCounters().stop()
    done.set()
    beside.join()
    assert {n: found.figures[n].value for n in HARDWARE} == {n: 4 * (1000 + k) for n, k in HARDWARE.items()}
    assert "4,004 instructions" in str(found)
    for descriptor in given:
        with pytest.raises(OSError):
            os.fstat(descriptor)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="perf_event_open is Linux's")
def test_linux_takes_the_request() -> None:
    """EINVAL would say that its form is wrong."""
    try:
        descriptor = counters._opened(HARDWARE["instructions"], 0)
    except OSError as e:
        assert e.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSYS)
        return
    sum(range(100_000))
    assert (counters._read([descriptor]).value or 0) > 100_000


def test_a_profile_leaves_no_descriptor_open() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0

    with ts.profiler(host=False):
        pass
    before = count()
    for _ in range(3):
        with ts.profiler(host=False):
            pass
    assert count() == before


def test_kernels_that_waited_for_a_processor_say_so() -> None:
    """Two launches that overlap take 300 us together; the process had a processor for 75 us of them."""

    def said(nanoseconds: float, device: str = "cpu:0") -> str:
        times = enumerate((0, 100_000), 1)
        recording = recorded(*(launch(n, start=at, duration=200_000, device=device) for n, at in times))
        recording.counters = counters.Counters({"processor time": Quantity(nanoseconds, "ns")})
        return str(Summary(recording))

    assert "For at least 75.0% of the kernels' time no thread of the process had a processor" in said(75_000)
    assert "had a processor" not in said(290_000) and "had a processor" not in said(500_000)
    assert "had a processor" not in said(75_000, "cuda:0"), "a GPU's kernels need none"
