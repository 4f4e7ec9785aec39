"""What signal handlers raise: it leaves a compilation at once, as it is, and nothing is kept half made."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.compiler import pipeline
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.lower import schedule_to_tile
from tessera.compiler.targets.cpu.llvm import jit
from tessera.runtime.code import cache
from tessera.signals import abandonable, raised_by_handler

ROOT = Path(__file__).parents[3]


class Alarm(OSError):
    """As TimeoutError is: what the cache otherwise takes for a fault of the disk."""


def ring(*_: object) -> None:
    raise Alarm("time is up")


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Raises Alarm in the main thread, from a handler."""
    before = signal.signal(signal.SIGUSR1, ring)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def program(n: int) -> Callable[..., object]:
    """One of its own for each `n`: none finds another's code in the process."""

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        y = x * n
        return y + 1

    return f


@pytest.mark.parametrize(
    ("n", "owner", "name"),
    [
        (11, Evaluator, "run"),
        (12, schedule_to_tile, "schedule_to_tile"),
        (13, pipeline, "_finished"),
        (14, cache.DiskCache, "_open_index"),
    ],
)
def test_a_handler_is_heard_in_every_part(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None], n: int, owner: object, name: str
) -> None:
    rung = []

    def interrupted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            if not rung:
                rung.append(name)
                alarm()
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(owner, name, interrupted(getattr(owner, name)))
    f = program(n)
    x = np.ones(3, np.float32)
    with pytest.raises(Alarm):
        f(x)
    assert rung and np.array_equal(f(x), x * n + 1)


def test_code_that_is_compiled_outside_of_python_is_left(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None]
) -> None:
    """The compiler's thread goes on by itself, and the next call compiles anew."""
    begun, may_end, real = threading.Event(), threading.Event(), jit._object

    def slow(*args: object) -> bytes:
        if not begun.is_set():
            begun.set()
            assert may_end.wait(200)
        return real(*args)

    monkeypatch.setattr(jit, "_object", slow)
    threading.Thread(
        target=lambda: begun.wait(200) and signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    ).start()
    f, x = program(15), np.ones(3, np.float32)
    with pytest.raises(Alarm):
        f(x)
    assert not may_end.is_set()
    may_end.set()
    assert np.array_equal(f(x), x * 15 + 1)


LEFT = """
import os, signal, sys, threading, time
from tessera.signals import abandonable

def waiting():
    "Whether the main thread waits for the work."
    frame, inner = sys._current_frames()[threading.main_thread().ident], ""
    while frame is not None and frame.f_code is not abandonable.__code__:
        frame, inner = frame.f_back, frame.f_code.co_name
    return frame is not None and inner == "wait"

def work():
    while not waiting():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
    print("finished", flush=True)

print("begun")  # not flushed: the end does
try:
    abandonable(work)
except KeyboardInterrupt:
    print("left", flush=True)
"""
"""A program that is interrupted in a compilation."""


def test_a_process_ends_behind_a_compilation_that_was_left(tmp_path: Path) -> None:
    """LLVM's memory is taken down at the end, which is no time to be at work in it."""
    done = subprocess.run([sys.executable, "-c", LEFT], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.stderr, done.returncode) == ("begun\nleft\nfinished\n", "", 0)


def test_an_interrupt_that_nobody_catches_ends_the_process_at_once() -> None:
    """The compilation would go on for minutes, and the terminal would stand still."""
    text = LEFT.replace("time.sleep(0.5)", "time.sleep(1000)").replace("except KeyboardInterrupt:", "except OSError:")
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.returncode) == ("begun\n", -signal.SIGINT)
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_a_command_that_is_interrupted_ends_at_once() -> None:
    ending = "from tessera.signals import end_if_left; end_if_left(130)"
    text = LEFT.replace("time.sleep(0.5)", "time.sleep(1000)") + f"{ending}; print('not here')"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.stderr, done.returncode) == ("begun\nleft\n", "", 130)


def test_results_and_exceptions_come_through() -> None:
    assert abandonable(lambda: 3) == 3
    with pytest.raises(KeyError, match="gone"):
        abandonable(lambda: {}["gone"])


def test_only_what_a_handler_raised_is_its() -> None:
    try:
        raise Alarm
    except Alarm as error:
        assert not raised_by_handler(error)
