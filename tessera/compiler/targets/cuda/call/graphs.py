"""Launches that a CUDA graph holds: where they write their records, run after run, for as long as the graph lives.

The driver tells when the last copy of a graph is gone by a function that it calls on a thread of its own. That is a
function of the system, which only raises a flag: Python must not run there, nor may anything call CUDA.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tessera.compiler.targets.cuda.call import records
from tessera.compiler.targets.cuda.call.clock import DeviceClock
from tessera.compiler.targets.cuda.call.context import Driver
from tessera.errors import DeviceError

ROOM_BYTES = 1 << 20
"""for the records of a launch; a run that takes more has room nevertheless"""
MOST_RUNS = 256
_ACTIVE = 1
"""CU_STREAM_CAPTURE_STATUS_ACTIVE"""


class GraphRecords:
    """The records of one call's launches, which `stream` is being captured with. `graph`: the capture's number in this
    process, the same for all calls in it."""

    def __init__(self, driver: Driver, clock: DeviceClock, stream: int, number: int, graph: Any) -> None:
        self.driver, self.clock, self.stream, self.graph = driver, clock, stream, number
        self.context = driver.current()
        self._open = True
        self._places: dict[int, tuple[int, int]] = {}
        """launch -> address, bytes"""
        self._phases: dict[int, Sequence[Sequence[int]]] = {}
        self._flag = _Flag()
        b = driver.bindings
        flags = b.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
        held = driver("cuUserObjectCreate", self._flag.address, b.CUhostFn(self._flag.function), 1, int(flags))
        move = b.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
        driver("cuGraphRetainUserObject", graph, held, 1, int(move))

    def place(self, launch: int, programs: int, phases: Sequence[Sequence[int]]) -> int:
        """The address of a launch's records, new. Without memory for them its runs are counted alone."""
        count = len(phases)
        room = max(1, min(MOST_RUNS, ROOM_BYTES // (records.record_bytes(count) * programs)))
        self._phases[launch] = phases
        with self.driver.relaxed():
            try:
                size = records.size(programs, room, count)
                place = int(self.driver("cuMemAlloc", size))
            except DeviceError:
                room, size = 0, records.HEAD.size
                place = int(self.driver("cuMemAlloc", size))
            self._places[launch] = place, size
            self._write(place, records.start(programs, room, count))
        return place

    def _write(self, place: int, data: bytes) -> None:
        """On a stream of its own: any other may be the one that is captured, or wait for it."""
        held = ctypes.create_string_buffer(data, len(data))
        self.driver("cuMemcpyHtoDAsync", place, ctypes.addressof(held), len(data), self.clock.stream)
        self.driver("cuStreamSynchronize", self.clock.stream)

    def _read(self, place: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        self.driver("cuMemcpyDtoHAsync", ctypes.addressof(out), place, size, self.clock.stream)
        self.driver("cuStreamSynchronize", self.clock.stream)
        return out.raw

    @property
    def launches(self) -> list[int]:
        """The numbers of its launches."""
        return list(self._places)

    def capturing(self) -> bool:
        """Whether the capture goes on. Once it has ended, the stream may be gone, and is not asked again."""
        self._open = self._open and capture_of(self.driver, self.stream) == self.graph
        return self._open

    def take(self) -> Iterator[tuple[int, int, list[dict[str, Any]]]]:
        """Of each launch its number, how often it has run since this was asked last, and the records of the runs that
        had room, on the host's clock. The room is free again then. To be asked inside `settled`."""
        for launch, (place, _) in self._places.items():
            head = self._read(place, records.HEAD.size)
            runs, kept = records.made(head)
            if not runs:
                continue
            _, _, programs, count = records.HEAD.unpack(head)
            data = self._read(place, records.size(programs, kept, count)) if kept else b""
            found = list(records.runs(data, self._phases[launch])) if kept else []
            for columns in found:
                columns["start"] = self.clock.host(columns["start"])
            self._write(place, bytes(8))
            yield launch, runs, found

    @contextmanager
    def settled(self) -> Generator[None]:
        """Inside it its context is this thread's, and all that was enqueued there has run."""
        before = self.driver.current()
        self.driver("cuCtxSetCurrent", self.context)
        try:
            with self.driver.relaxed():
                self.driver("cuCtxSynchronize")
                self.clock.compare(always=True)
                yield
        finally:
            self.driver("cuCtxSetCurrent", before)

    def forget(self) -> None:
        """What has been recorded, unread."""
        for place, _ in self._places.values():
            self._write(place, bytes(8))  # the first word counts

    def ended(self) -> bool:
        """Whether graph and copies are gone: nothing writes records any more."""
        return self._flag.raised()

    def free(self) -> None:
        for place, _ in self._places.values():
            self.driver("cuMemFree", place)
        self._places.clear()
        self._flag.free()


def capture_of(driver: Driver, stream: int) -> int:
    """The number of the capture that takes what is launched on `stream`; 0: it runs."""
    status, active, number, *_ = driver.bindings.cuStreamGetCaptureInfo(stream)
    return int(number) if not int(status) and int(active) == _ACTIVE else 0


def graph_of(driver: Driver, stream: int) -> Any:
    """The graph that this capture makes."""
    return driver.bindings.cuStreamGetCaptureInfo(stream)[3]


class _Flag:
    """Memory that `function(address)` marks, both of the system's. It is not Python's, since it may be marked when
    Python has gone."""

    def __init__(self) -> None:
        if os.name == "nt":
            self._system: Any = ctypes.windll.kernel32  # type: ignore[attr-defined] # on Windows alone
            self._system.CreateEventW.restype = ctypes.c_void_p
            self.address = int(self._system.CreateEventW(None, True, False, None))
            function = self._system.SetEvent
        else:
            self._system = ctypes.CDLL(None)
            self._system.malloc.restype = ctypes.c_void_p
            self.address = int(self._system.malloc(ctypes.c_size_t(_SEMAPHORE_BYTES)))
            self._system.sem_init(ctypes.c_void_p(self.address), 0, 0)
            function = self._system.sem_post
        self.function = int(ctypes.cast(function, ctypes.c_void_p).value or 0)

    def raised(self) -> bool:
        place = ctypes.c_void_p(self.address)
        if os.name == "nt":
            return self._system.WaitForSingleObject(place, 0) == 0
        value = ctypes.c_int()
        self._system.sem_getvalue(place, ctypes.byref(value))
        return value.value > 0

    def free(self) -> None:
        """Once it has been raised: the driver knows the address until then."""
        release = self._system.CloseHandle if os.name == "nt" else self._system.free
        release(ctypes.c_void_p(self.address))


_SEMAPHORE_BYTES = 64
"""more than any system's sem_t takes"""
