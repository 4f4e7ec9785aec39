"""Where a thread of the program is, every few milliseconds: the line of the user's program, and what it called.

A thread of its own looks at the stack of another one. It takes the interpreter's lock for some microseconds each time;
what that costs is measured as it goes, and samples are taken as seldom as is needed to stay below a fiftieth of the
time. While a call into C keeps the lock, no sample can be taken: the one behind it, which is still on the line of the
call, stands for all the time since the one before.
"""

from __future__ import annotations

import sys
import threading
from array import array
from dataclasses import dataclass, field
from time import perf_counter_ns, thread_time_ns
from types import FrameType
from typing import NamedTuple

from tessera.runtime.callsite import OWN, libraries
from tessera.runtime.locks import Locked

INTERVAL = 1_000_000
"""ns between two samples, at first"""
MOST_SAMPLES = 1 << 16
"""When there are as many, every second one goes, and from then on they are taken half as often."""
MOST_SHARE = 0.02
"""of the time, that sampling may take"""
SMALL_SHARE, SELDOM = 0.005, 20_000_000
"""of a long run, which has time for as many samples: the share, and ns between two samples at first"""

SWITCH = 0.0002
"""s that a sample waits for the interpreter's lock before it is asked for, 5 ms by default: Python code that runs for
less than that between two calls that give up the lock would never be seen"""

_PARTS = ("tessera_jupyter", "tessera_lsp")
"""Tessera's packages beside its own, which a checkout does not keep where packages are installed"""


class HostPlace(NamedTuple):
    """A line of the user's program, and the function of a library that it was in: "" where it was in none. Without a
    file: what the command tessera does by itself."""

    file: str
    line: int
    function: str
    doing: str


@dataclass(slots=True)
class Samples:
    """`times` (ns) in order, and with each the index of its place. `spent`: ns of processor time that sampling took."""

    times: array[int] = field(default_factory=lambda: array("q"))
    where: array[int] = field(default_factory=lambda: array("l"))
    places: list[HostPlace] = field(default_factory=list[HostPlace])
    interval: int = INTERVAL
    spent: int = 0


class _Switching(Locked):
    """Asks for the lock sooner while anybody samples."""

    def __init__(self) -> None:
        super().__init__()
        self._samplers, self._before = 0, 0.0

    def begin(self) -> None:
        with self.lock:
            if not self._samplers:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(SWITCH, self._before))
            self._samplers += 1

    def end(self) -> None:
        with self.lock:
            self._samplers -= 1
            if not self._samplers:
                sys.setswitchinterval(self._before)


_switching = _Switching()


class Sampler:
    """Samples one thread from `start` to `stop`, of a long run more seldom."""

    def __init__(self, thread: int, long: bool = False) -> None:
        self.samples = Samples(interval=SELDOM if long else INTERVAL)
        self._thread, self._share = thread, SMALL_SHARE if long else MOST_SHARE
        self._known: dict[HostPlace, int] = {}
        self._user: dict[str, bool] = {}
        self._ended = threading.Event()
        self._runner = threading.Thread(target=self._run, name="tessera-sampler", daemon=True)

    def start(self) -> None:
        _switching.begin()
        self._runner.start()

    def stop(self) -> Samples:
        """Ends sampling; gives what was found."""
        self._ended.set()
        _switching.end()
        if self._runner.is_alive():
            self._runner.join()
        return self.samples

    def _run(self) -> None:
        samples, least = self.samples, INTERVAL
        began = before = thread_time_ns()
        while not self._ended.wait(samples.interval / 1e9):
            frame = sys._current_frames().get(self._thread)
            if frame is None:  # the thread has ended
                break
            samples.times.append(perf_counter_ns())
            samples.where.append(self._number(self._place(frame)))
            del frame  # or what its locals hold would live until the next sample
            now = thread_time_ns()
            samples.spent, cost, before = now - began, now - before, now
            samples.interval = max(least, round((7 * samples.interval + cost / self._share) / 8))
            if len(samples.times) >= MOST_SAMPLES:
                samples.times, samples.where = samples.times[1::2], samples.where[1::2]
                least *= 2

    def _number(self, place: HostPlace) -> int:
        number = self._known.get(place)
        if number is None:
            number = self._known[place] = len(self.samples.places)
            self.samples.places.append(place)
        return number

    def _place(self, innermost: FrameType) -> HostPlace:
        frame: FrameType | None = innermost
        ours = False
        while frame is not None and not self._is_user(frame):
            ours = ours or frame.f_code.co_filename.startswith(OWN)
            frame = frame.f_back
        if frame is None and ours:
            return HostPlace("", 0, "", "tessera")
        shown = frame if frame is not None else innermost
        doing = "" if shown is innermost else "tessera" if ours else _name(innermost)
        return HostPlace(shown.f_code.co_filename, shown.f_lineno, shown.f_code.co_name, doing)

    def _is_user(self, frame: FrameType) -> bool:
        """Neither Tessera's own, nor of the standard library or an installed package."""
        file = frame.f_code.co_filename
        known = self._user.get(file)
        if known is None:
            known = not file.startswith((OWN, *libraries(), "<frozen", "<string>", "<__array_function__"))
            known = known and frame.f_globals.get("__name__", "").partition(".")[0] not in _PARTS
            self._user[file] = known
        return known


def _name(frame: FrameType) -> str:
    """`numpy.linalg.svd`"""
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
