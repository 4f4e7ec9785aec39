"""What a trace holds, in columns: processes, their threads, the slices of each, and counters. Times in ns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.language.lazy import np


@dataclass(frozen=True, slots=True)
class Label:
    """What slices share: a name, a category, and arguments."""

    name: str
    category: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True, eq=False)
class Slices:
    """Spans of time, as columns of one length."""

    start: np.ndarray
    end: np.ndarray
    label: np.ndarray
    """index into `Trace.labels`"""
    flow: np.ndarray
    """number of the flow that begins in a slice, that number negated where it ends there, 0 for none"""
    bound: np.ndarray
    """when the flow begins or ends"""
    numbers: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    """arguments that differ from slice to slice, by name"""

    def __len__(self) -> int:
        return len(self.start)

    def take(self, which: np.ndarray | slice) -> Slices:
        """Some of them, in that order."""
        return Slices(*(c[which] for c in self._columns()), {name: c[which] for name, c in self.numbers.items()})

    def followed(self, others: Slices) -> Slices:
        """These and others, which have the same numbers."""
        pairs = zip(self._columns(), others._columns(), strict=True)
        numbers = {name: np.concatenate([self.numbers[name], values]) for name, values in others.numbers.items()}
        return Slices(*(np.concatenate(pair) for pair in pairs), numbers)

    def _columns(self) -> tuple[np.ndarray, ...]:
        return self.start, self.end, self.label, self.flow, self.bound


@dataclass(slots=True, eq=False)
class TraceThread:
    """Slices that nest, parents before children."""

    name: str
    slices: Slices


@dataclass(slots=True, eq=False)
class TraceCounter:
    """Steps: `values[i]` holds from `times[i]` on."""

    name: str
    series: str
    times: np.ndarray
    values: np.ndarray


@dataclass(slots=True, eq=False)
class TraceProcess:
    name: str
    threads: list[TraceThread] = field(default_factory=list[TraceThread])
    counters: list[TraceCounter] = field(default_factory=list[TraceCounter])


@dataclass(slots=True, eq=False)
class Trace:
    labels: list[Label]
    processes: list[TraceProcess]

    @property
    def first(self) -> int:
        """The earliest moment that anything in it has: a trace counts from it."""
        slices = [int(t.slices.start[0]) for p in self.processes for t in p.threads if len(t.slices)]
        steps = [int(c.times[0]) for p in self.processes for c in p.counters if len(c.times)]
        return min([*slices, *steps], default=0)


def edges(slices: Slices) -> tuple[np.ndarray, np.ndarray]:
    """Which slice begins or ends, and whether it begins, in order of time, each inside of those that are open: for
    formats that write beginnings and ends."""
    start, end, count = slices.start, slices.end, len(slices)
    index = np.arange(count)
    lasting = np.flatnonzero(end > start)
    moments = np.concatenate([[0], np.cumsum(end == start)])  # those without length among the first i
    closing = lasting[np.lexsort((-lasting, end[lasting]))]  # of those that end at one time the inner one first
    begins = index + moments[:-1] + end[closing].searchsorted(start, "right")
    ends = begins + 1
    begun = start.searchsorted(end[closing])
    ends[closing] = begun + moments[begun] + np.arange(len(closing))
    which, opens = np.empty(2 * count, np.int64), np.zeros(2 * count, bool)
    which[begins], which[ends], opens[begins] = index, index, True
    return which, opens
