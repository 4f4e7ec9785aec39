"""`ts.benchmark(f, x)`: how long a call takes, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from time import perf_counter
from types import FunctionType, ModuleType
from typing import Any

from tessera.compiler.machines import HOST
from tessera.errors import Diagnostic, LaunchError
from tessera.fitting import is_number
from tessera.profiler.quantity import format_time
from tessera.profiler.trial.intervals import MedianInterval, median_interval
from tessera.profiler.trial.paired import LEAST, repeats
from tessera.runtime.arrays.adapter import Adapter, host_stopwatch
from tessera.runtime.arrays.libraries import adapter_of
from tessera.tracebacks import outward

MOST = 1000
"""samples"""
SECONDS = 0.5
_EXAMPLE = "pass the function and its arguments, ts.benchmark(f, x)"


class BenchmarkTime(float):
    """Milliseconds of one call: the median of `samples`, seconds each, in the order in which they were taken."""

    samples: tuple[float, ...]

    def __new__(cls, samples: Iterable[float]) -> BenchmarkTime:
        taken = tuple(samples)
        time = super().__new__(cls, median_interval(taken).middle * 1e3)
        time.samples = taken
        return time

    @property
    def interval(self) -> MedianInterval:
        """Where the median lies with 95 %, in milliseconds."""
        return median_interval([s * 1e3 for s in self.samples])

    def __repr__(self) -> str:
        low, middle, high = (format_time(ms * 1e6) for ms in (self.interval.low, self, self.interval.high))
        return f"{middle} a call (95 % interval {low} to {high}, {len(self.samples)} samples)"

    __str__ = __repr__


@outward
def benchmark(function: Callable[..., Any], *args: Any, seconds: float = SECONDS, **kwargs: Any) -> BenchmarkTime:
    """Times `function(*args, **kwargs)`, a function, a kernel or anything else, for about so many seconds.

    The first call, which compiles, does not count. Short calls are repeated within a sample; on a GPU a sample ends
    when the device is done. The result is a float, milliseconds, so that `ts.benchmark(f, x) < 1.0` is a test. What a
    call changes in place, it changes each time. Raises LaunchError TS105 for what cannot be called; exceptions of
    `function` pass.
    """
    if not callable(function):
        kind = type(function).__name__
        raise LaunchError(Diagnostic("TS105", f"benchmark times calls, and {kind} cannot be called; {_EXAMPLE}"))
    if not is_number(seconds) or not seconds > 0:
        raise LaunchError(Diagnostic("TS105", f"benchmark: seconds is a number above 0, not {seconds!r}"))
    adapter, device = _where((args, kwargs, function(*args, **kwargs)))

    def run(times: int) -> float:
        stop = host_stopwatch() if adapter is None else adapter.stopwatch()
        for _ in range(times):
            function(*args, **kwargs)
        return stop() / times * 1e-9

    with nullcontext() if adapter is None else adapter.current(device):
        times, samples, until = repeats(run), list[float](), perf_counter() + seconds
        while len(samples) < LEAST or (len(samples) < MOST and perf_counter() < until):
            samples.append(run(times))
    return BenchmarkTime(samples)


def _where(held: Any) -> tuple[Adapter | None, str]:
    """The device of an array that is not in this processor's memory, and its library."""
    pending, seen = [held], set[int]()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if (adapter := adapter_of(value)) is not None:
            if (device := adapter.view(value).device) != HOST:
                return adapter, device
        elif isinstance(value, (tuple, list)):
            pending += value
        elif isinstance(value, Mapping):
            pending += value.values()
        elif not isinstance(value, (type, ModuleType, FunctionType)):
            pending += getattr(value, "__dict__", {}).values()
    return None, HOST
