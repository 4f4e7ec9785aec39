"""What runs on GPUs as their own clocks time it, by CUPTI: `cupti-python` of the extra `cupti`, where it is installed
and the driver lets it.

CUPTI serves one tool at a time, so a subscription is asked for first: where Nsight or PyTorch's profiler has it, times
stay those of tile records and CUDA events. Profilers of this process share it. Records come on a thread of CUPTI's.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tessera.compiler.targets.cuda.call.clock import host_times, own_streams
from tessera.language.lazy import np
from tessera.runtime.locks import Locked

MOST = 1 << 20
"""records that are kept"""
_BUFFER_BYTES = 8 << 20
_TRIES = 8
NOT_INSTALLED = "CUPTI is not installed (pip install 'tessera[cupti]')"
_ALLOWED = "an administrator can allow it: https://developer.nvidia.com/ERR_NVGPUCTRPERM"
_WHY = {
    "ERROR_INSUFFICIENT_PRIVILEGES": f"the driver does not let this user: {_ALLOWED}",
    "ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": f"this virtual machine does not let it: {_ALLOWED}",
    "ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": "another profiler has CUPTI, such as Nsight's or PyTorch's",
    "ERROR_MAX_LIMIT_REACHED": "another profiler has CUPTI, such as Nsight's or PyTorch's",
}
_COPIES = {
    1: "host to device",
    2: "device to host",
    8: "within the device",
    9: "within the host",
    10: "between devices",
}
"""CUpti_ActivityMemcpyKind"""


class Activity(NamedTuple):
    """Something that ran on a GPU, from `start` to `end` in ns."""

    what: str
    """kernel, copy or fill"""
    name: str
    """a kernel's function, or where a copy goes"""
    device: int
    stream: int
    start: int
    end: int
    graph: int
    """CUPTI's number of the graph that launched it; 0: none did"""
    launch: int
    """the same for all that one call of CUDA's launched: what a replay of a graph runs"""
    grid: tuple[int, ...]
    bytes: int


class CuptiRecords(NamedTuple):
    """What CUPTI told. `reason`: why it did not; `lost`: records for which there was no room, or that had not ended."""

    reason: str
    activities: Sequence[Activity] = ()
    lost: int = 0


class _Tracing(Locked):
    """CUPTI while profilers of this process want it."""

    def __init__(self) -> None:
        super().__init__()
        self.users = 0
        self.cupti: Any = None
        self.subscriber: Any = None
        self.on: list[Any] = []
        """kinds that are enabled"""
        self.found: list[Activity] = []
        self.lost = 0
        self.clocks: list[tuple[int, int]] = []
        """CUPTI's time, what to add to it for the host's"""

    def begin(self, cupti: Any) -> None:
        """Raises what CUPTI raises; nothing is left on then."""
        self.cupti, self.found, self.lost, self.clocks = cupti, [], 0, []
        self.subscriber = cupti.subscribe(_nothing, None)
        try:
            cupti.activity_register_callbacks(_buffer, self._take)
            for name in ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET"):
                kind = cupti.ActivityKind[name]
                cupti.activity_enable(kind)
                self.on.append(kind)
            self.look()
        except Exception:
            self.end()
            raise

    def end(self) -> None:
        for kind in self.on:
            self.cupti.activity_disable(kind)
        self.on = []
        self.cupti.unsubscribe(self.subscriber)

    def look(self) -> None:
        """Compares the clocks."""
        tries: list[tuple[int, int, int]] = []
        for _ in range(_TRIES):
            before = time.perf_counter_ns()
            now = int(self.cupti.get_timestamp())
            after = time.perf_counter_ns()
            tries.append((after - before, now, (before + after) // 2 - now))
        _, now, offset = min(tries)
        if not self.clocks or now > self.clocks[-1][0]:
            self.clocks.append((now, offset))

    def flush(self) -> None:
        self.cupti.activity_flush_all(1)
        dropped = ctypes.c_size_t()
        self.cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
        self.lost += dropped.value
        self.look()

    def _take(self, records: Sequence[Any]) -> None:
        """On CUPTI's thread. The records are gone when it returns."""
        kernels = {int(self.cupti.ActivityKind.CONCURRENT_KERNEL), int(self.cupti.ActivityKind.KERNEL)}
        fills = int(self.cupti.ActivityKind.MEMSET)
        for record in records:
            if not record.end or len(self.found) >= MOST:  # without an end: it had not run
                self.lost += 1
                continue
            kind, grid, size = int(record.kind), (), 0
            if kind in kernels:
                what, name = "kernel", str(record.name)
                grid = (int(record.grid_x), int(record.grid_y), int(record.grid_z))
            else:
                what = "fill" if kind == fills else "copy"
                name = "" if kind == fills else _COPIES.get(int(record.copy_kind), "of arrays")
                size = int(record.bytes)
            self.found.append(
                Activity(
                    what, name, int(record.device_id), int(record.stream_id), int(record.start), int(record.end),
                    int(record.graph_id), int(record.correlation_id), grid, size,
                )
            )  # fmt: skip


def _buffer() -> tuple[int, int]:
    """The bytes of a buffer that CUPTI asks for, and the most records in it: as many as fit."""
    return _BUFFER_BYTES, 0


def _nothing(*_: Any) -> None:
    """No callback is enabled: the subscription keeps other tools away, and shows that none is there."""


_tracing = _Tracing()


class CuptiTrace:
    """CUPTI for one profiler, from when it is made until `stop`. `reason`: why it is not used; "" where it is."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        if reason:
            return
        with _tracing.lock:
            if not _tracing.users:
                try:
                    _tracing.begin(importlib.import_module("cupti").cupti)
                except Exception as error:  # its own types, and those of a missing driver or library
                    self.reason = _why(error)
                    return
            _tracing.users += 1
            self._from = time.perf_counter_ns()

    def stop(self) -> CuptiRecords:
        """What began since it was made, without what the profiler itself did."""
        if self.reason:
            return CuptiRecords(self.reason)
        with _tracing.lock:
            try:
                _tracing.flush()
                own = {_tracing.cupti.get_stream_id_ex(context, stream, 0) for context, stream in own_streams()}
                found = [activity for activity in _tracing.found if activity.stream not in own]
                found = [a for a in _on_host(found, _tracing.clocks) if a.start >= self._from]
                return CuptiRecords("", found, _tracing.lost)
            except Exception as error:  # as above
                return CuptiRecords(_why(error))
            finally:
                _tracing.users -= 1
                if not _tracing.users:
                    _tracing.end()


def start() -> CuptiTrace | None:
    """Begins to trace; None where no library uses a GPU."""
    if not any(name in sys.modules for name in ("cupy", "torch", "cuda.bindings.driver")):
        return None
    if importlib.util.find_spec("cupti") is None:
        return CuptiTrace(NOT_INSTALLED)
    return CuptiTrace()


def _on_host(found: Sequence[Activity], clocks: Sequence[tuple[int, int]]) -> list[Activity]:
    """The same on the host's clock, in order of their starts."""
    times = np.array([(a.start, a.end) for a in found], np.int64).reshape(-1, 2)
    moved = host_times(clocks, times.reshape(-1)).reshape(-1, 2).tolist()
    return sorted((a._replace(start=b, end=e) for a, (b, e) in zip(found, moved, strict=True)), key=lambda a: a.start)


def _why(error: Exception) -> str:
    """`CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: the driver ...`."""
    status = getattr(error, "status", None)
    if status is None:
        return f"CUPTI cannot be used: {error}"
    name = str(error).partition(" ")[0]
    return f"CUPTI_{name}: {_WHY.get(name, 'CUPTI cannot be used')}"
