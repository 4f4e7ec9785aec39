"""Every call of a region where only some are recorded: exact counts and totals, when each began, how long it took."""

from __future__ import annotations

import heapq
import threading
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tessera.compiler.predict import sizes_text
from tessera.language.lazy import np
from tessera.profiler.quantity import format_time
from tessera.runtime.events import CallTime

MOST_CALLS = 1 << 22
"""whose times are kept one by one: 84 MB, more than an hour of a call each millisecond"""
_SLOWEST = 8


@dataclass(slots=True)
class ProgramCalls:
    """The calls of one function or kernel for one set of sizes. `total` in ns; `recorded`: those with launches."""

    name: str
    sizes: Mapping[str, int]
    count: int = 0
    total: int = 0
    recorded: int = 0
    slowest: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """(ns, number of the call from 1, start) of the few slowest, as a heap"""

    @property
    def title(self) -> str:
        sizes = sizes_text(self.sizes)
        return f"{self.name} ({sizes})" if sizes else self.name


class CallTimes:
    """`every`: of so many calls of a program one is recorded. It grows when the recording is full."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.programs: list[ProgramCalls] = []
        self.which, self.start, self.duration = array("i"), array("q"), array("q")
        """of each call: index into `programs`, ns, ns"""
        self._known: dict[tuple[object, ...], int] = {}
        self._chosen: list[int] = []
        """of each program, how many calls have begun"""
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return sum(program.count for program in self.programs)

    @property
    def recorded(self) -> int:
        return sum(program.recorded for program in self.programs)

    @property
    def total(self) -> int:
        """ns that all calls took."""
        return sum(program.total for program in self.programs)

    @property
    def represented(self) -> float:
        """ns of it that the recorded calls stand for."""
        return sum(program.total * program.recorded / program.count for program in self.programs if program.count)

    def choose(self, name: str, sizes: Mapping[str, int]) -> bool:
        """Whether the call that begins is to be recorded: the first of a program, and every so many behind it."""
        with self._lock:
            index = self._number(name, sizes)
            self._chosen[index] += 1
            return (self._chosen[index] - 1) % self.every == 0

    def add(self, call: CallTime) -> None:
        with self._lock:
            index = self._number(call.name, call.sizes)
            program = self.programs[index]
            program.count += 1
            program.total += call.duration
            program.recorded += call.recorded
            if len(program.slowest) < _SLOWEST:
                heapq.heappush(program.slowest, (call.duration, program.count, call.start))
            elif call.duration > program.slowest[0][0]:
                heapq.heapreplace(program.slowest, (call.duration, program.count, call.start))
            if len(self.which) < MOST_CALLS:
                self.which.append(index)
                self.start.append(call.start)
                self.duration.append(call.duration)

    def forget(self, name: str, sizes: Mapping[str, int]) -> None:
        """A recorded call of this program is recorded no more."""
        with self._lock:
            self.programs[self._number(name, sizes)].recorded -= 1

    def _number(self, name: str, sizes: Mapping[str, int]) -> int:
        key = (name, *sizes.items())
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self.programs)
            self.programs.append(ProgramCalls(name, dict(sizes)))
            self._chosen.append(0)
        return index

    def table(self) -> np.ndarray:
        """The calls one by one, as columns of a file."""
        return np.stack([np.array(column, np.int64) for column in (self.which, self.start, self.duration)])

    def to_json(self) -> dict[str, Any]:
        """What the table does not hold."""
        return {"every": self.every, "programs": [asdict(program) for program in self.programs]}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], table: np.ndarray) -> CallTimes:
        """Raises ValueError where the two do not belong together."""
        calls = cls(int(entry["every"]))
        for one in entry["programs"]:
            program = calls.programs[calls._number(str(one["name"]), {str(k): int(v) for k, v in one["sizes"].items()})]
            program.count, program.total, program.recorded = (int(one[k]) for k in ("count", "total", "recorded"))
            program.slowest = [(int(ns), int(number), int(start)) for ns, number, start in one["slowest"]]
        which, start, duration = table.astype(np.int64).tolist()
        if not all(0 <= index < len(calls.programs) for index in which):
            raise ValueError("a call is of an unknown program")
        calls.which, calls.start, calls.duration = array("i", which), array("q", start), array("q", duration)
        return calls

    def lines(self, begin: int) -> list[str]:
        """What is said of them, for a region that began at `begin`."""
        known = f"the times are of all {self.count:,}"
        if len(self.which) < self.count:
            known += f", one by one of the first {len(self.which):,}"
        found = [
            f"Calls: {self.recorded:,} of {self.count:,} were recorded with their kernels, one in {self.every}; {known}"
        ]
        which, took = np.array(self.which), np.array(self.duration)
        ranked = sorted(enumerate(self.programs), key=lambda entry: -entry[1].total)
        for index, program in ranked[:_SLOWEST]:
            mine = took[which == index]
            text = f"  {program.title}: {program.count:,} calls, {format_time(program.total)}"
            if len(mine):
                middle, late = np.quantile(mine, [0.5, 0.99]).tolist()
                text += f", median {format_time(middle)}, 99 % below {format_time(late)}"
                longest, number, start = max(program.slowest)
                text += f"; the slowest is call {number:,}, {format_time(longest)}"
                times = longest / middle if middle else 0
                text += f" ({times:,.{0 if times >= 100 else 1}f} × the median)" if middle else ""
                text += f", {format_time(start - begin)} after the start"
            found.append(text)
        if len(ranked) > _SLOWEST:
            found.append(f"  and {len(ranked) - _SLOWEST} more programs: all are in `recording.calls_made.programs`")
        return found
