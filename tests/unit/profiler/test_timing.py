"""`ts.benchmark(f, x)`: a time that is one, and how sure it is."""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import tessera as ts
from tessera.errors import LaunchError
from tessera.profiler.trial import timing
from tessera.profiler.trial.timing import BenchmarkTime


def test_it_is_the_time_of_a_call_in_milliseconds() -> None:
    calls = []

    def slow(seconds: float, *, more: float) -> None:
        calls.append(1)
        time.sleep(seconds + more)

    found = ts.benchmark(slow, 0.002, more=0.001, seconds=0.02)
    assert 3.0 <= found < 30.0  # a busy machine makes calls longer
    assert len(found.samples) >= 12 and len(calls) == len(found.samples) + 3  # one compiles, two say how long a call is
    assert found.interval.low <= found <= found.interval.high
    assert found == pytest.approx(1e3 * statistics.median(found.samples))


def test_short_calls_are_repeated_within_a_sample() -> None:
    calls = []
    found = ts.benchmark(lambda: calls.append(1), seconds=0.01)
    assert len(calls) > 100 * len(found.samples) and found < 0.1


def test_it_takes_functions_kernels_and_models() -> None:
    x = np.ones((4, 8), np.float32)

    @ts.function
    def double(x):
        return x * 2

    for program in (double, ts.nn.MLP(8, 16, key=0), np.sort):
        assert ts.benchmark(program, x, seconds=0.01) > 0


def test_it_says_its_time_and_how_sure_it_is() -> None:
    found = BenchmarkTime([1e-6 * (100 + i) for i in range(21)])
    assert str(found) == "110 µs a call (95 % interval 105 µs to 115 µs, 21 samples)"
    assert found == pytest.approx(0.11) and found < 1.0


def test_it_waits_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of another device: its own clock tells the time, on that device."""
    entered: list[str] = []

    class Elsewhere:
        def view(self, array: object) -> SimpleNamespace:
            return SimpleNamespace(device="cuda:1")

        @contextmanager
        def current(self, device: str):
            entered.append(device)
            yield

        def stopwatch(self):
            return lambda: 5_000_000

    monkeypatch.setattr(timing, "adapter_of", lambda array: Elsewhere())
    found = ts.benchmark(np.negative, np.ones(3), seconds=0.001)
    assert found == pytest.approx(5.0) and entered == ["cuda:1"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"function": 3.0}, r"float cannot be called; pass the function and its arguments, ts\.benchmark\(f, x\)"),
        ({"function": np.sort, "seconds": 0}, "seconds is a number above 0, not 0"),
        ({"function": np.sort, "seconds": "1"}, "seconds is a number above 0, not '1'"),
    ],
)
def test_what_cannot_be_timed_is_refused(given: dict, said: str) -> None:
    with pytest.raises(LaunchError, match=said) as caught:
        ts.benchmark(**given)
    assert caught.value.code == "TS105"


def test_exceptions_of_the_function_pass() -> None:
    with pytest.raises(ZeroDivisionError):
        ts.benchmark(lambda: 1 // 0)
