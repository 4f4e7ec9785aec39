"""Two ways of doing the same, timed by turns, so that a machine that is busy slows both alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from tessera.language.lazy import np
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.trial.intervals import MedianInterval, median_interval

Timed = Callable[[int], float]
"""calls so many times in a row, and says how many seconds one call took"""

SAMPLE = 400e-6
"""seconds that one sample takes at least: shorter calls are repeated"""
LEAST, MOST = 12, 60
"""pairs"""
SAME = 0.03
"""a saving below this part of the time is none: where code and arrays happen to lie in memory can make that much"""


@dataclass(frozen=True, slots=True)
class PairedTimes:
    """Seconds per call, pair by pair; `saved` is the part of the time that the second way saves."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def saved(self) -> MedianInterval:
        return median_interval([1 - b / a for a, b in zip(self.before, self.after, strict=True)])

    @property
    def usual(self) -> tuple[float, float]:
        """Seconds of the pair in the middle, by what it saves. The medians of both sides need not be of one pair, and
        on a busy machine may differ by something else than what most pairs save."""
        saved = self.saved.middle
        pairs = zip(self.before, self.after, strict=True)
        return min(pairs, key=lambda pair: abs(1 - pair[1] / pair[0] - saved))

    @property
    def verdict(self) -> str:
        """ "faster", "slower" or "no gain" where the whole interval says so, else "unclear"."""
        if self.saved.low > SAME:
            return "faster"
        if self.saved.high < -SAME:
            return "slower"
        return "no gain" if self.saved.high <= SAME else "unclear"

    def __str__(self) -> str:
        times = " -> ".join(format_time(seconds * 1e9) for seconds in self.usual)
        saved = self.saved
        return (
            f"{times}, saves {format_percent(saved.middle)} "
            f"(95 % interval {format_percent(saved.low)} to {format_percent(saved.high)}, {len(self.before)} pairs)"
        )


def paired(
    before: Timed, after: Timed, budget: float, cold: Callable[[], object] | None = None, least: int = LEAST
) -> PairedTimes:
    """Takes turns for about `budget` seconds, at least `least` pairs. `cold` runs before every single call."""
    sides = (before, after)
    turns = [1 if cold is not None else repeats(side) for side in sides]
    samples: tuple[list[float], list[float]] = ([], [])
    until = perf_counter() + budget
    while len(samples[0]) < least or (len(samples[0]) < MOST and perf_counter() < until):
        for i in (0, 1) if len(samples[0]) % 2 == 0 else (1, 0):
            if cold is not None:
                cold()
            samples[i].append(sides[i](turns[i]))
    return PairedTimes(tuple(samples[0]), tuple(samples[1]))


def repeats(side: Timed) -> int:
    """How often a call is repeated to fill a sample.

    The first call of all may compile, and what else the machine does makes a call seem longer: the shortest counts.
    """
    times = _filling(min(side(1), side(1)))
    return times if times == 1 else max(times, _filling(side(times)))


def _filling(seconds: float) -> int:
    return max(1, min(1000, round(SAMPLE / max(seconds, 1e-9))))


def timed(call: Callable[[], object]) -> Timed:
    def run(times: int) -> float:
        start = perf_counter()
        for _ in range(times):
            call()
        return (perf_counter() - start) / times

    return run


def evict(size: int) -> Callable[[], object]:
    """What fills the caches of this machine, of `size` bytes, with something else."""
    other = np.zeros(2 * size // 8 + 1)

    def run() -> None:
        np.add(other, 1.0, out=other)

    return run
