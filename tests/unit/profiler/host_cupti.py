"""A stand-in for `cupti-python`: the part of its module `cupti.cupti` that is used, with its names, numbers and errors,
over the driver made of host memory. `test_cupti.py` compares it with the real one where that is installed."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from tests.unit.cuda.host_graphs import HostGraph, calls
from tests.unit.cuda.test_cuda_device import HostDriver

AHEAD = 3_000_000_000_000
"""ns that CUPTI's clock is ahead of the host's"""


class ActivityKind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    CONCURRENT_KERNEL = 10
    MEMCPY2 = 22


class ActivityMemcpyKind(IntEnum):
    HTOD = 1
    DTOH = 2
    DTOD = 8
    HTOH = 9
    PTOP = 10


class Result(IntEnum):
    ERROR_MAX_LIMIT_REACHED = 12
    ERROR_INSUFFICIENT_PRIVILEGES = 35
    ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39
    ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES = 40


class cuptiError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"{Result(status).name} ({int(status)})")
        self.status = status


class HostCupti:
    """`refuse`: what a call answers, by its name. Records are handed over when they are flushed, and spoilt then."""

    ActivityKind, ActivityMemcpyKind, Result, cuptiError = ActivityKind, ActivityMemcpyKind, Result, cuptiError

    def __init__(self) -> None:
        self.refuse: dict[str, Result] = {}
        self.enabled: set[int] = set()
        self.subscribers: list[int] = []
        self.records: list[SimpleNamespace] = []
        self.dropped = 0
        self.callbacks: tuple[Callable[[], Any], Callable[[list[Any]], None]] | None = None

    def _answer(self, name: str) -> None:
        if name in self.refuse:
            raise cuptiError(self.refuse[name])

    def subscribe(self, callback: Any, userdata: Any) -> int:
        self._answer("subscribe")
        if self.subscribers:
            raise cuptiError(Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        self.subscribers.append(17)
        HostDriver.ran.append(self.ran)
        return 17

    def unsubscribe(self, subscriber: int) -> None:
        self.subscribers.remove(subscriber)
        HostDriver.ran.remove(self.ran)

    def activity_register_callbacks(self, requested: Callable[[], Any], completed: Callable[[list[Any]], None]) -> None:
        self._answer("activity_register_callbacks")
        size, most = requested()
        assert size > 0 and most >= 0
        self.callbacks = requested, completed

    def activity_enable(self, kind: int) -> None:
        self._answer("activity_enable")
        self.enabled.add(int(kind))

    def activity_disable(self, kind: int) -> None:
        self.enabled.discard(int(kind))

    def activity_flush_all(self, flag: int) -> None:
        self._answer("activity_flush_all")
        assert self.callbacks is not None and flag == 1
        records, self.records = self.records, []
        self.callbacks[1](records)
        for record in records:
            record.__dict__.clear()

    def activity_get_num_dropped_records(self, context: int, stream: int, place: int) -> None:
        ctypes.c_size_t.from_address(place).value, self.dropped = self.dropped, 0

    def get_timestamp(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) + AHEAD

    def get_stream_id_ex(self, context: int, stream: int, per_thread_stream: int) -> int:
        return 7 + stream

    def ran(self, what: str, name: str, stream: int, amount: int, start: int, end: int) -> None:
        kind = ActivityKind.CONCURRENT_KERNEL if what == "kernel" else ActivityKind.MEMCPY
        if kind not in self.enabled:
            return
        graph, call = HostGraph.running
        record = SimpleNamespace(
            kind=int(kind), start=start + AHEAD, end=end + AHEAD, device_id=0, stream_id=7 + stream, graph_id=graph,
            correlation_id=call or next(calls),
        )  # fmt: skip
        if what == "kernel":
            record.name, record.grid_x, record.grid_y, record.grid_z = name, amount, 1, 1
        else:
            record.copy_kind, record.bytes = int(ActivityMemcpyKind[name]), amount
        self.records.append(record)
