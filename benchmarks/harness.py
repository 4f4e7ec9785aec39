"""Fair timing on a machine that others use as well: interleaved samples, disturbed ones set aside, spread reported.

Competitors take turns, in an order that is reversed every round, so that a slow minute hits all of them. A sample
during which a thread of this process waited for a processor for more than 2 % of the time (Linux's schedstat says so)
does not count while enough undisturbed ones exist. Each starts when the threads of the one before have come to rest.
"""

from __future__ import annotations

import argparse
import glob
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: the median, the quartiles' distance, the least; `clean` of `samples` were undisturbed."""

    median: float
    spread: float
    least: float
    clean: int
    samples: int


@dataclass(frozen=True)
class Work:
    """One workload: how to run it here and elsewhere; `want` is the exact result, `amount` what one call does."""

    name: str
    ours: Run
    peers: dict[str, Run]
    result: Callable[[], Any]
    want: Any
    amount: float
    unit: str
    tolerance: float = 1e-4
    goal: float | None = None
    """the ratio to the best peer that is wanted"""
    limit: Run | None = None
    """reads and writes as many bytes of memory as a call has to, and does nothing else that takes time"""
    products: str = ""
    """of what dtype the operations are that `amount` counts, if they are products of matrices"""


@dataclass(frozen=True, slots=True)
class _Sample:
    seconds: float
    waited: float


def _waited() -> float:
    """Seconds that this process's threads have spent ready to run without a processor."""
    total = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            with open(path, encoding="ascii") as f:
                total += int(f.read().split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return total * 1e-9


def _sample(run: Run, repeat: int, clock: Callable[[], float]) -> _Sample:
    waited, start = _waited(), clock()
    for _ in range(repeat):
        run()
    seconds = (clock() - start) / repeat
    return _Sample(seconds, (_waited() - waited) / repeat)


def _settle() -> float:
    """Waits until all threads of this process rest, and says for how many seconds: after a product, NumPy's BLAS keeps
    a processor busy for 30 to 100 ms, in which nobody else has two."""
    start = time.perf_counter()
    for _ in range(30):
        used = time.process_time()
        time.sleep(0.01)
        if time.process_time() - used < 0.001:
            break
    return time.perf_counter() - start


def _timing(samples: list[_Sample]) -> Timing:
    clean = [s.seconds for s in samples if s.waited < 0.02 * s.seconds]
    kept = clean if len(clean) >= 3 else sorted(s.seconds for s in samples)[: max(3, len(samples) // 4)]
    quartiles = statistics.quantiles(kept, n=4) if len(kept) > 1 else [kept[0]] * 3
    return Timing(statistics.median(kept), quartiles[2] - quartiles[0], min(kept), len(clean), len(samples))


def compare(
    runs: Mapping[str, Run],
    *,
    budget: float = 3.0,
    samples: int = 9,
    least: float = 0.01,
    threads: int = 2,
) -> dict[str, Timing]:
    """Times all `runs` against each other. A sample lasts at least `least` seconds; `budget` limits the whole, seconds
    without the pauses before samples, which take up to three times as long.

    With one thread the clock counts the processor's time, so that other processes do not show.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    repeat: dict[str, int] = {}
    for name, run in runs.items():
        run()
        once = min(_sample(run, 1, clock).seconds for _ in range(2))
        repeat[name] = max(1, int(least / max(once, 1e-7)))
    found: dict[str, list[_Sample]] = {name: [] for name in runs}
    start, paused, turn = time.perf_counter(), 0.0, 0
    while turn < 60:
        names = list(runs) if turn % 2 == 0 else list(reversed(runs))
        for name in names:
            if threads > 1:
                paused += _settle()
            if repeat[name] == 1 or threads > 1:
                runs[name]()  # its own data back into the caches
            found[name].append(_sample(runs[name], repeat[name], clock))
        turn += 1
        enough = all(_timing(s).clean >= samples for s in found.values() if s)
        if turn >= 3 and (enough or time.perf_counter() - start - min(paused, 3 * budget) > budget):
            break
    return {name: _timing(s) for name, s in found.items()}


class Only:
    """What `--only` says: the rows whose names contain a text, in capitals or not."""

    def __init__(self, text: str = "") -> None:
        self.text, self.others, self.found = text, list[str](), False

    def takes(self, name: str) -> bool:
        taken = self.text.lower() in name.lower()
        self.found |= taken
        if not taken:
            self.others.append(name)
        return taken

    def demand(self) -> None:
        """Ends the program, with the names that there are, if it was asked for none of them."""
        if not self.found:
            raise SystemExit(f"--only {self.text}: no name contains this. There are: {'; '.join(self.others)}")


def only_of(parser: argparse.ArgumentParser) -> None:
    """Adds `--only` to the options."""
    parser.add_argument("--only", type=Only, default=Only(), metavar="TEXT", help="rows whose names contain this")


def parser_of(
    text: str | None, quick: str = "an eighth of the sizes, a quarter of the time"
) -> argparse.ArgumentParser:
    """The options that all suites of programs on the CPU take, for the command that `text` describes."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=cores())
    only_of(parser)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true")
    return parser


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
