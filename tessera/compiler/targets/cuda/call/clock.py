"""A GPU's clock on the host's: what has to be added to `%globaltimer` to get `time.perf_counter_ns`.

A kernel that only reads the clock runs between two looks at the host's: the clocks differ by what the shortest of some
tries allows, to half its length. The two clocks drift apart, so it is done again from time to time, and times in
between are interpolated.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from tessera.compiler.targets.cuda.call.context import Driver
from tessera.language.lazy import np

NAME = b"tessera_clock"
PTX = b"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry tessera_clock(.param .u64 to)
{
  .reg .u64 %rd<3>;
  ld.param.u64 %rd1, [to];
  mov.u64 %rd2, %globaltimer;
  st.u64 [%rd1], %rd2;
  ret;
}
\0"""
"""The driver compiles it for any GPU."""
TRIES = 8
AGAIN_NS = 250_000_000
"""after which the clocks are compared again"""
_MOST = 4096
"""comparisons that are kept: the latest"""


class DeviceClock:
    """The clock of one context's device. `stream` is the profiler's own: nothing of it touches one of the program's."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        with driver.relaxed():
            code = ctypes.create_string_buffer(PTX)
            self.function = driver("cuModuleGetFunction", driver("cuModuleLoadData", ctypes.addressof(code)), NAME)
            self.place = int(driver("cuMemAlloc", 8))
            self.stream = int(driver("cuStreamCreate", driver.bindings.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.known: list[tuple[int, int]] = []
        """time of the device, what to add to it"""
        self.compared = 0
        self._lock = threading.Lock()

    def compare(self, always: bool = False) -> None:
        """Looks at both clocks, where that was long ago."""
        with self._lock:
            if self.known and not always and time.perf_counter_ns() - self.compared < AGAIN_NS:
                return
            with self.driver.relaxed():
                _, device, offset = min(self._try() for _ in range(TRIES))
            if not self.known or device > self.known[-1][0]:
                self.known = [*self.known[1 - _MOST :], (device, offset)]
            self.compared = time.perf_counter_ns()

    def _try(self) -> tuple[int, int, int]:
        """How long it took, the device's time, and what to add to it."""
        call, held = self.driver, ctypes.c_uint64(self.place)
        table = (ctypes.c_void_p * 1)(ctypes.addressof(held))
        before = time.perf_counter_ns()
        call("cuLaunchKernel", self.function, 1, 1, 1, 1, 1, 1, 0, self.stream, ctypes.addressof(table), 0)
        call("cuStreamSynchronize", self.stream)
        after = time.perf_counter_ns()
        out = ctypes.c_uint64()
        call("cuMemcpyDtoHAsync", ctypes.addressof(out), self.place, 8, self.stream)
        call("cuStreamSynchronize", self.stream)
        return after - before, out.value, (before + after) // 2 - out.value

    def host(self, times: Any) -> Any:
        """Times of the device as times of the host."""
        return host_times(self.known, times)


def host_times(known: Sequence[tuple[int, int]], times: Any) -> Any:
    """Times of another clock as times of the host. `known`: in order, times of that clock and what to add to them."""
    clock, offset = (np.array(column, np.int64) for column in zip(*known, strict=True))
    base = int(offset[-1])  # differences are small: a double holds them exactly
    near = np.interp((times - clock[-1]).astype(float), (clock - clock[-1]).astype(float),
                     (offset - base).astype(float))  # fmt: skip
    return times + base + near.round().astype(np.int64)


_clocks: dict[int, DeviceClock] = {}
"""by context"""


def clock_of(driver: Driver) -> DeviceClock:
    """That of the current context, made when first asked for."""
    context = driver.current()
    if context not in _clocks:
        _clocks[context] = DeviceClock(driver)
    return _clocks[context]


def own_streams() -> list[tuple[int, int]]:
    """The profiler's own streams, with their contexts."""
    return [(context, clock.stream) for context, clock in _clocks.items()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clocks.clear)
