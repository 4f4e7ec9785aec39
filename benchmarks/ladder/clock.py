"""Times of work on a GPU, of all contestants in turns: medians of device times, never of one run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FLUSH_BYTES = 256 << 20
"""More than the second-level cache of any GPU: writing it evicts everything else."""
SHORT = 50.0
"""Microseconds below which work is replayed as a graph: gaps between launches would be measured instead."""
REPLAYED = 1000.0
"""Microseconds that one replay should last."""
ROUNDS = 25

Work = Callable[[], Any]


@dataclass(frozen=True)
class Time:
    """Microseconds: the median of so many samples, and between their quartiles. `timed`: by which means."""

    us: float
    spread: float
    samples: int
    timed: str


class Contestant:
    """One way to do the work. `timed` says how it is measured, which its length decides."""

    def __init__(self, torch: Any, work: Work) -> None:
        self.torch, self.work, self.graph, self.calls = torch, work, None, 1
        self.samples: list[float] = []
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        took = min(self._events(work) for _ in range(3))
        self.timed = "events, cold"
        if took < SHORT:
            self._capture(max(1, math.ceil(REPLAYED / max(took, 1.0))))

    def _capture(self, calls: int) -> None:
        torch = self.torch
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # whatever is loaded or allocated at the first use on a stream
                self.work()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(calls):
                    self.work()
            graph.replay()
            torch.cuda.synchronize()
            self.graph, self.calls, self.timed = graph, calls, "graph, warm"
        except Exception as e:
            torch.cuda.synchronize()
            self.timed = f"events, cold; no graph: {first_line(e)}"

    def _events(self, work: Work) -> float:
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3

    def sample(self, flush: Any) -> None:
        if self.graph is not None:
            self.samples.append(self._events(self.graph.replay) / self.calls)
            return
        flush.zero_()
        self.samples.append(self._events(self.work))

    def time(self) -> Time:
        low, middle, high = statistics.quantiles(self.samples, n=4)
        return Time(middle, high - low, len(self.samples), self.timed)


def compare(torch: Any, works: Mapping[str, Work], rounds: int = ROUNDS) -> dict[str, Time | str]:
    """Every contestant's time, or why it has none. Each round begins with another one."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    found: dict[str, Time | str] = {}
    running: dict[str, Contestant] = {}
    for name, work in works.items():
        try:
            running[name] = Contestant(torch, work)
        except Exception as e:  # a peer that is not installed, or has no kernel for this GPU
            found[name] = first_line(e)
    names = list(running)
    for turn in range(rounds if names else 0):
        at = turn % len(names)
        for name in [*names[at:], *names[:at]]:
            running[name].sample(flush)
    return {name: running[name].time() if name in running else found[name] for name in works}


def first_line(e: BaseException) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return f"{type(e).__name__}: {lines[0] if lines else ''}"[:160]
