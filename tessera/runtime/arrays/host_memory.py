"""Memory for results on the host: aligned, recycled, counted, and refused before it is too much.

A fresh large array costs more than many kernels: the system maps and clears every page of it. Large results
therefore come from blocks that return here when the last array over them is gone. Small ones are NumPy's business.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tessera.errors import Diagnostic, LaunchError, Note, Span
from tessera.language.lazy import np
from tessera.runtime import events
from tessera.runtime.arrays import holders
from tessera.runtime.callsite import call_stack, callsite
from tessera.runtime.locks import Locked

if TYPE_CHECKING:
    import numpy

ALIGNMENT = 64
"""bytes; a cache line, and what JAX asks for before it shares memory"""
PAGE, APART = 1 << 12, 1 << 10
"""bytes of a page, and from the place in a page where a large block begins to that of the next one"""
RECYCLED = 1 << 18
"""bytes; from here on blocks are aligned and kept for reuse, below neither gains what its bookkeeping costs"""
IDLE_LIMIT = 512 << 20
"""bytes of unused blocks kept at most"""
SAID = 5
"""holders of memory that an error names"""
_HOST = "cpu:0"
_places = itertools.count(1)
"""numbers for the places in a page"""
_CHECKED = 64 << 20  # requests below this are not held against the free memory: asking for it would cost more


class _Pool(Locked):
    """Unused blocks by size, the latest returned first: its pages are the likeliest to be in a cache."""

    def __init__(self) -> None:
        super().__init__()  # the lock is reentrant: a collection inside may release another block
        self.free: dict[int, list[numpy.ndarray]] = {}
        self.idle = 0

    def take(self, size: int) -> numpy.ndarray | None:
        with self.lock:
            blocks = self.free.get(size)
            if not blocks:
                return None
            self.idle -= size
            return blocks.pop()

    def give(self, raw: numpy.ndarray) -> None:
        size = raw.nbytes
        with self.lock:
            if self.idle + size <= IDLE_LIMIT:
                self.free.setdefault(size, []).append(raw)
                self.idle += size

    def missing(self, wanted: Counter[int]) -> list[int]:
        """The sizes of blocks that are wanted and not here, as many of them as may be kept."""
        with self.lock:
            left = IDLE_LIMIT - self.idle
            missing = wanted - Counter({size: len(blocks) for size, blocks in self.free.items()})
        found: list[int] = []
        for size in missing.elements():
            if size <= left:
                left -= size
                found.append(size)
        return found

    def release(self) -> int:
        """Gives all unused blocks back to the system; returns their bytes."""
        with self.lock:
            released, self.idle = self.idle, 0
            self.free.clear()
        return released


class _Meter(Locked):
    """Bytes of the blocks that were allocated while there was a listener, by device."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, int] = {}

    def change(self, delta: int, what: str, number: int, kept: events.Held = (), device: str = _HOST) -> None:
        with self.lock:
            total = self.held[device] = self.held.get(device, 0) + delta
        if events.memory_wanted():
            since = time.perf_counter_ns()
            file, line = callsite()
            stack = call_stack() if delta > 0 else ()
            now = time.perf_counter_ns()
            events.publish(events.MemoryEvent(now, device, delta, total, what, line, file, kept, number, stack))
            events.publish_recording(since)


_pool, _meter = _Pool(), _Meter()


class _Block(holders.Owner):
    """Owns raw memory on behalf of arrays; NumPy keeps it alive as their base, whatever views are made of them."""

    __slots__ = ("__array_interface__", "raw", "tracked")

    def __init__(self, size: int, nbytes: int, what: str) -> None:
        self.raw: Any = None
        self.tracked = 0
        raw = _pool.take(size) if size >= RECYCLED else None
        self.raw = raw if raw is not None else aligned(size)
        self.__array_interface__ = {**self.raw.__array_interface__, "shape": (nbytes,)}
        self.number = holders.new_number()
        if nbytes >= holders.LARGE or events.memory_wanted():
            holders.blocks[self.number] = holders.HeldBlock(nbytes, what, *callsite())
        if events.memory_wanted():
            self.tracked = nbytes
            _meter.change(nbytes, what, self.number)

    def __del__(self) -> None:
        if _pool is None or self.raw is None:  # the interpreter is going down; there was no memory
            return
        holders.blocks.pop(self.number, None)
        if self.tracked:
            _meter.change(-self.tracked, "release", self.number)
        if self.raw.nbytes >= RECYCLED:
            _pool.give(self.raw)


def aligned(size: int) -> Any:
    """`size` uninitialised bytes at a multiple of ALIGNMENT; large blocks begin at different places of a page.

    A processor that loads an element compares the lower 12 bits of its address with those of stores that wait. Large
    arrays of other libraries begin 16 or 64 bytes behind a page: what is loaded from them next would look like what
    was just stored, if results began there as well.
    """
    if size < RECYCLED:
        raw = np.empty(size + ALIGNMENT, np.uint8)
        start = -raw.__array_interface__["data"][0] % ALIGNMENT
    else:
        raw = np.empty(size + PAGE, np.uint8)
        start = (next(_places) * APART - raw.__array_interface__["data"][0]) % PAGE
    return raw[start : start + size]


def block_size(nbytes: int) -> int:
    """Rounded up to one of eight sizes per power of two, so that slightly different shapes share blocks."""
    if nbytes < RECYCLED:
        return nbytes
    step = 1 << max(nbytes.bit_length() - 4, 12)
    return -(-nbytes // step) * step


def empty(shape: tuple[int, ...], dtype: Any, nbytes: int, what: str = "result") -> Any:
    """An uninitialised C-contiguous NumPy array of `dtype` (a NumPy dtype) and `nbytes` bytes.

    Raises LaunchError TS505 when the machine has not that much memory free.
    """
    if nbytes < RECYCLED and not events.memory_wanted():
        return np.empty(shape, dtype)
    if nbytes >= _CHECKED:
        require(nbytes, what)
    try:
        block = _Block(block_size(nbytes), nbytes, what)
        return np.asarray(block).view(dtype).reshape(shape)
    except MemoryError:
        _pool.release()
        raise too_large(nbytes, available(), what) from None


class Used:
    """Counts memory that something else provides while a block runs, for listeners."""

    def __init__(self, nbytes: int, what: str, kept: events.Held = (), device: str = _HOST) -> None:
        self.nbytes = nbytes if events.memory_wanted() else 0
        self.what, self.kept, self.number, self.device = what, kept, holders.new_number(), device

    def __enter__(self) -> None:
        if self.nbytes:
            _meter.change(self.nbytes, self.what, self.number, self.kept, self.device)

    def __exit__(self, *_: object) -> None:
        if self.nbytes:
            _meter.change(-self.nbytes, "release", self.number, device=self.device)


def release_unused() -> int:
    """Gives recycled memory back to the system; returns the number of bytes."""
    return _pool.release()


def missing(wanted: Counter[int]) -> list[int]:
    """The sizes of blocks that are wanted and that no unused block has, as many of them as may be kept."""
    return _pool.missing(wanted)


def keep(raw: numpy.ndarray) -> None:
    """Takes a block that nothing uses, for the next array of its size."""
    _pool.give(raw)


def require(nbytes: int, what: str, notes: Callable[[], tuple[Note, ...]] = tuple) -> None:
    """Raises LaunchError TS505, with these notes, when `nbytes` more would not fit into this machine's memory."""
    free = available()
    if free is None or nbytes <= free + _pool.idle:
        return
    _pool.release()
    raise too_large(nbytes, free, what, notes=notes())


def too_large(
    nbytes: int, free: int | None, what: str, device: str = "cpu", notes: tuple[Note, ...] = ()
) -> LaunchError:
    """The TS505 error for a request of `nbytes` bytes. On the host it says who holds most of what there is."""
    have = f"; {size_text(free)} are free on {device}" if free is not None else ""
    held = [_note(h) for h in holders.holders(SAID)] if device == "cpu" else []
    return LaunchError(Diagnostic("TS505", f"{what} would take {size_text(nbytes)}{have}.", notes=(*notes, *held)))


def _note(holder: holders.Holder) -> Note:
    names = ", ".join(holder.paths[:3]) or "nothing that was found"
    message = f"{size_text(holder.nbytes)} are held by {names}"
    if not holder.line:
        return Note(message)
    return Note(f"{message}, as {holder.what} of this line", Span(holder.file, holder.line, 1, holder.line, 1))


def size_text(nbytes: int) -> str:
    value, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def available() -> int | None:
    """Bytes of host memory that can still be had, containers' limits included; None where the system does not say."""
    found = [size for size in (_meminfo(), _cgroup(), _limit()) if size is not None]
    return min(found) if found else None


def _meminfo() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _limit() -> int | None:
    """What `ulimit -v` leaves of this process's addresses."""
    try:
        import resource  # optional: Unix has it

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return None
        with open("/proc/self/statm", encoding="ascii") as file:
            return max(0, most - int(file.read().split()[0]) * resource.getpagesize())
    except (ImportError, OSError, ValueError):
        return None


def _cgroup() -> int | None:
    folder = "/sys/fs/cgroup/memory."
    try:
        with open(f"{folder}max", encoding="ascii") as limit, open(f"{folder}current", encoding="ascii") as used:
            free = int(limit.read()) - int(used.read())
        with open(f"{folder}stat", encoding="ascii") as stat:  # cached file pages are given up on demand
            cached = next((int(line.split()[1]) for line in stat if line.startswith("inactive_file ")), 0)
        return max(0, free + cached)
    except (OSError, ValueError):  # no cgroup, or the limit is "max"
        return None
