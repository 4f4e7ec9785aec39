"""Tile records of one run, from time-stamp counter to nanoseconds of `time.perf_counter_ns`, and what one costs."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from tessera.compiler.targets.cpu.kernel.tile_records import (
    HEADER_BYTES,
    LAUNCH_SHIFT,
    LINE_SHIFT,
    RECORD_BYTES,
    store_records,
    tick,
)
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.values import I64, PTR
from tessera.errors import Diagnostic, LaunchError
from tessera.language.lazy import np
from tessera.once import once

CAPACITY = 1 << 18
"""records per worker and run"""

BATCH = 1 << 13
"""records written to measure what one costs"""

_READ = """
declare i64 @llvm.readcyclecounter()
define i64 @ticks() {
  %t = call i64 @llvm.readcyclecounter()
  ret i64 %t
}
"""


@once
def _reader() -> tuple[jit.Loaded, Any]:
    code = jit.Loaded(jit.compile_object(_READ, isa.host(), "ticks"))
    return code, ctypes.PYFUNCTYPE(ctypes.c_int64)(code.address("ticks"))


def _pair() -> tuple[int, int]:
    """The counter and the clock at one moment: the closest of a few readings."""
    read = _reader()[1]
    best = None
    for _ in range(5):
        before, t, after = time.perf_counter_ns(), read(), time.perf_counter_ns()
        if best is None or after - before < best[0]:
            best = after - before, t, (before + after) // 2
    assert best is not None
    return best[1], best[2]


@once
def _origin() -> tuple[int, int]:
    return _pair()


def mapped(size: int, what: str) -> mmap.mmap:
    """Memory from the system, of this process alone: a fork has its own. Raises LaunchError TS505 where it does not
    give any."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # else Windows
    try:
        return mmap.mmap(-1, size, **private)
    except (OSError, OverflowError, MemoryError, ValueError):
        message = f"{what} would take {size / 2**20:.4g} MiB, more than the system gives."
        raise LaunchError(Diagnostic("TS505", message)) from None


class Room:
    """Memory for the records of one run at a time: kept for later runs, which then find its pages present."""

    idle: ClassVar[list[Room]] = []

    def __init__(self, size: int) -> None:
        self.size = size
        self.map = mapped(size, "the records of tiles")
        self._hold = ctypes.c_char.from_buffer(self.map)
        self.address = ctypes.addressof(self._hold)

    @classmethod
    def take(cls, size: int) -> Room:
        try:
            room = cls.idle.pop()  # atomic: two runs never get the same one
        except IndexError:
            return cls(size)
        return room if room.size >= size else cls(size)


class Records:
    """The records of `workers` workers while a run lasts; `with` gives their memory back. The counter is calibrated
    over the run and all since the first."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.stride = HEADER_BYTES + CAPACITY * RECORD_BYTES
        self._room = Room.take(self.stride * workers)
        self.address = self._room.address
        self.clear()
        _origin()
        self._start = _pair()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        if not Room.idle:
            Room.idle.append(self._room)

    def clear(self) -> None:
        for w in range(self.workers):
            self._count(w).value = self._count(w, 1).value = 0

    def _count(self, worker: int, word: int = 0) -> ctypes.c_int64:
        """The number of records of a worker, or with `word` 1 of those that did not fit."""
        return ctypes.c_int64.from_address(self.address + worker * self.stride + 8 * word)

    def slots(self) -> tuple[int, int, int]:
        """Frame slots: address, bytes per worker, records per worker."""
        return self.address, self.stride, CAPACITY

    def columns(self) -> Iterator[dict[str, Any]]:
        """One dictionary per worker that recorded: launch, tile, resource, phase, line, start, duration, and `dropped`,
        how many more there would be."""
        end, origin = _pair(), _origin()
        first = origin if end[1] - origin[1] > end[1] - self._start[1] else self._start
        rate = (end[1] - first[1]) / max(1, end[0] - first[0])
        for w in range(self.workers):
            count = self._count(w).value
            if not count:
                continue
            raw = (
                np.frombuffer(self._room.map, np.int64, 4 * count, w * self.stride + HEADER_BYTES)
                .reshape(count, 4)
                .copy()
            )
            start = np.rint((raw[:, 2] - end[0]) * rate).astype(np.int64) + end[1]
            stop = np.rint((raw[:, 3] - end[0]) * rate).astype(np.int64) + end[1]
            yield {
                "launch": raw[:, 0] >> LAUNCH_SHIFT,
                "tile": raw[:, 0] & ((1 << LAUNCH_SHIFT) - 1),
                "resource": np.full(count, w),
                "phase": raw[:, 1] & ((1 << LINE_SHIFT) - 1),
                "line": raw[:, 1] >> LINE_SHIFT,
                "start": start,
                "duration": stop - start,
                "dropped": self._count(w, 1).value,
            }


@once
def record_ns() -> float:
    """The cost of one tile record on this machine, in ns, measured once per process (a few milliseconds).

    The very code that profiled kernels run, for kernels of one phase (further phases of a tile cost less: they share a
    reading of the counter). The median of several batches, so that an interrupted one does not count. Only the first
    profiled run of a process pays more: the pages of its records are new.
    """
    module = LLVMModule(jit.attributes(isa.host()))
    fn = LLVMFunction(module, "batch", [("region", PTR), ("capacity", I64), ("count", I64)])
    with fn.loop(0, fn.param(2)) as loop:
        first = tick(fn)
        store_records(fn, (fn.param(0), fn.param(1)), loop.index, [0], [first, tick(fn)])
    code = jit.Loaded(jit.compile_object(module.render()[0], isa.host(), "batch"))
    batch = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("batch"))
    times: list[float] = []
    with Records(1) as records:
        for _ in range(9):
            records.clear()
            start = time.perf_counter_ns()
            batch(records.address, CAPACITY, BATCH)
            times.append((time.perf_counter_ns() - start) / BATCH)
    return sorted(times)[len(times) // 2]
