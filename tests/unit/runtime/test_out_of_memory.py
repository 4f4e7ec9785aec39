"""What cannot be had: memory and threads. A coded error or a slower way, nothing printed, and all goes on behind it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.targets.cpu.call import threads
from tessera.errors import LaunchError, source_line
from tessera.runtime.arrays import host_memory

ROOT = Path(__file__).parents[3]
LIMITED = Path(__file__).with_name("limited_memory.py")


def test_arrays_and_temporaries_that_do_not_fit(own_cache: Path) -> None:
    done = subprocess.run([sys.executable, str(LIMITED)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("TS505\n" * 4, "", 0)


@ts.function
def outer_loss(x):
    y = ts.sin(x)
    return ts.mean(ts.cumsum(ts.outer(y, y), axis=0))


def test_the_line_that_makes_the_largest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gradient, the forward line."""
    x = np.ones(20_000, np.float32)
    monkeypatch.setattr(host_memory, "available", lambda: 1 << 20)
    for f in (outer_loss, ts.grad(outer_loss)):
        with pytest.raises(LaunchError, match="TS505") as caught:
            f(x)
        (note, *_) = caught.value.diagnostics[0].notes
        assert "the largest of them, 1.49 GiB, is made here" in note.message
        assert note.span is not None and "ts.outer" in str(source_line(note.span.file, note.span.line))


def test_a_block_that_was_not_given_says_nothing_when_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)

    def none(size: int) -> object:
        raise MemoryError

    monkeypatch.setattr(host_memory, "aligned", none)
    host_memory._pool.release()  # what is left of other tests
    with pytest.raises(LaunchError) as caught:
        host_memory.empty((1 << 27,), np.dtype(np.uint8), 1 << 27)
    assert caught.value.code == "TS505"
    assert said == []


def test_a_pool_with_fewer_threads_than_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    before = ts.get_num_threads()
    threads.pool()  # its code is compiled by a thread, too
    monkeypatch.setattr(threading.Thread, "start", two)
    try:
        threads.set_num_threads(9)
        assert threads.pool().size == 2
        x = np.ones(3_000_000, np.float32)
        assert (ts.exp(x) == ts.exp(x[:1])[0]).all()
    finally:
        monkeypatch.undo()
        threads.set_num_threads(before)
