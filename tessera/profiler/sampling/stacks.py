"""Where a thread of the program is, every few milliseconds: the line of the user's program, and what it called.

A thread of its own looks at the stack of another one. It takes the interpreter's lock for some microseconds each time;
what that costs is measured as it goes, and samples are taken as seldom as is needed to stay below a fiftieth of the
time. While a call into C keeps the lock, no sample can be taken: the one behind it, which is still on the line of the
call, stands for all the time since the one before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from array import array
from dataclasses import dataclass, field
from pathlib import Path
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

WINDOW = 10_000_000
"""ns over which the processor time of threads is compared: the system updates it every few milliseconds"""

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
    """`times` (ns) in order, and with each the index of its place. `spent`: ns of processor time that sampling took.
    `resident`: bytes of memory of the process, of each sample of a long run, on Linux; empty where not known."""

    times: array[int] = field(default_factory=lambda: array("q"))
    where: array[int] = field(default_factory=lambda: array("l"))
    places: list[HostPlace] = field(default_factory=list[HostPlace])
    interval: int = INTERVAL
    spent: int = 0
    resident: array[int] = field(default_factory=lambda: array("q"))


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


class _Threads:
    """Which other thread of the program worked while the sampled one waited, by their processor times. Where the system
    does not tell these (it is Linux that does), none is found."""

    def __init__(self, sampled: int) -> None:
        self._sampled, self._marked = sampled, 0
        self._used: dict[int, int] = {}
        self.worker: threading.Thread | None = None

    def look(self, now: int) -> None:
        """Chooses `worker` anew where a window is over: one that ran for more than half of it, while the sampled thread
        ran for less."""
        if now - self._marked < WINDOW:
            return
        others = [t for t in threading.enumerate() if t.ident != threading.get_ident()]
        self.worker = None
        if len(others) < 2:
            self._used.clear()
            return
        used = {t.ident or 0: _processor_time(t.native_id) for t in others}
        half = (now - self._marked) // 2
        took = {ident: used[ident] - self._used[ident] for ident in used.keys() & self._used.keys()}
        self._used, self._marked = used, now
        if took.pop(self._sampled, half) < half:
            most = max(took, key=lambda ident: took[ident], default=0)
            if took.get(most, 0) > half:
                self.worker = next(t for t in others if t.ident == most)


def _processor_time(thread: int | None) -> int:
    """ns that a thread has run for, by its number in the system; 0 where that is not told."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb", buffering=0) as file:
            return int(file.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return 0


class _Resident:
    """The memory of this process that is in use, from the system: `now` gives bytes, None where it does not tell."""

    def __init__(self, wanted: bool) -> None:
        self._file: int | None = None
        if wanted and sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE") if self._file is not None else 0

    def now(self) -> int | None:
        if self._file is None:
            return None
        return int(os.pread(self._file, 128, 0).split()[1]) * self._page

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Sampler:
    """Samples one thread from `start` to `stop`, of a long run more seldom."""

    def __init__(self, thread: int, long: bool = False) -> None:
        self.samples = Samples(interval=SELDOM if long else INTERVAL)
        self._thread, self._share = thread, SMALL_SHARE if long else MOST_SHARE
        self._known: dict[HostPlace, int] = {}
        self._user: dict[str, bool] = {}
        self._threads = _Threads(thread)
        self._resident = _Resident(long)
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
        try:
            self._sample()
        finally:
            self._resident.close()

    def _sample(self) -> None:
        samples, least = self.samples, INTERVAL
        began = before = thread_time_ns()
        while not self._ended.wait(samples.interval / 1e9):
            self._threads.look(perf_counter_ns())
            frames = sys._current_frames()
            frame = frames.get(self._thread)
            if frame is None:  # the thread has ended
                break
            samples.times.append(perf_counter_ns())
            samples.where.append(self._number(self._while_another_works(self._place(frame), frames)))
            if (resident := self._resident.now()) is not None:
                samples.resident.append(resident)
            del frame, frames  # or what its locals hold would live until the next sample
            now = thread_time_ns()
            samples.spent, cost, before = now - began, now - before, now
            samples.interval = max(least, round((7 * samples.interval + cost / self._share) / 8))
            if len(samples.times) >= MOST_SAMPLES:
                samples.times, samples.where = samples.times[1::2], samples.where[1::2]
                pairs = zip(samples.resident[::2], samples.resident[1::2], strict=True)
                samples.resident = array("q", map(max, pairs))  # no peak is lost
                least *= 2

    def _while_another_works(self, place: HostPlace, frames: dict[int, FrameType]) -> HostPlace:
        """The place with the line of the thread that worked meanwhile, where one did."""
        worker = self._threads.worker
        frame = frames.get(worker.ident or 0) if worker is not None else None
        if worker is None or frame is None or place.doing == "tessera":
            return place
        other = self._place(frame)
        if not other.file or other.doing == "tessera" or not self._known_file(other.file):
            return place
        at = f"thread {worker.name} ran {Path(other.file).name}:{other.line} {other.function}"
        return place._replace(doing=f"{place.doing}, while {at}" if place.doing else f"wait, while {at}")

    def _known_file(self, file: str) -> bool:
        """Whether a file is the user's: of a thread without any such line nothing is said."""
        return self._user.get(file, False)

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
        line = shown.f_lineno or shown.f_code.co_firstlineno  # an instruction that jumps has none
        return HostPlace(shown.f_code.co_filename, line, shown.f_code.co_name, doing)

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
