"""What a tile record costs on a GPU: a block that does nothing else writes many, one after the other."""

from __future__ import annotations

import ctypes
import os

from tessera.compiler.targets.cuda import nvrtc
from tessera.compiler.targets.cuda.call import records
from tessera.compiler.targets.cuda.call.clock import clock_of
from tessera.compiler.targets.cuda.call.context import Driver
from tessera.errors import TesseraError

NAME = "record_cost"
TIMES = 1000
_TRIES, _THREADS = 3, 128
SOURCE = f"""#include <tessera/timer.cuh>
namespace ts = tessera;

extern "C" __global__ void __launch_bounds__({_THREADS}) {NAME}_kernel(ts::Records* records, ts::u64* took) {{
  ts::u64 start = ts::hw::clock_ns();
  for (int i = 0; i < {TIMES}; ++i) {{
    ts::Timer<0> timer(records, 0);
    timer.stop<0>();
  }}
  if (ts::hw::thread() == 0) ts::hw::store_global(took, ts::hw::clock_ns() - start);
}}
"""
_known: dict[int, float | None] = {}
"""by context"""


def record_ns(driver: Driver, target: str) -> float | None:
    """ns of one record, measured once in a context; None where it cannot be measured. The block does not share its
    multiprocessor: others would hide part of the cost."""
    context = driver.current()
    if context not in _known:
        try:
            _known[context] = _measured(driver, target)
        except TesseraError:  # without NVRTC, or without memory
            _known[context] = None
    return _known[context]


def head() -> bytes:
    """Records in which no run ever ends."""
    return records.start(_TRIES * TIMES + 1, 1, 0) + bytes(records.record_bytes(0))


def _measured(driver: Driver, target: str) -> float:
    stream = clock_of(driver).stream
    code = ctypes.create_string_buffer(nvrtc.compile_code(SOURCE, target, NAME, []).cubin)
    with driver.relaxed():
        module = driver("cuModuleLoadData", ctypes.addressof(code))
        function = driver("cuModuleGetFunction", module, f"{NAME}_kernel".encode())
        size = len(head())
        place = int(driver("cuMemAlloc", size + 8))
        try:
            start, took = ctypes.create_string_buffer(head(), size), ctypes.c_uint64()
            driver("cuMemcpyHtoDAsync", place, ctypes.addressof(start), size, stream)
            arguments = (ctypes.c_uint64 * 2)(place, place + size)
            table = (ctypes.c_void_p * 2)(*(ctypes.addressof(arguments) + 8 * i for i in range(2)))
            best = float("inf")
            for _ in range(_TRIES):
                driver("cuLaunchKernel", function, 1, 1, 1, _THREADS, 1, 1, 0, stream, ctypes.addressof(table), 0)
                driver("cuMemcpyDtoHAsync", ctypes.addressof(took), place + size, 8, stream)
                driver("cuStreamSynchronize", stream)
                best = min(best, took.value / TIMES)
        finally:
            driver("cuMemFree", place)
            driver("cuModuleUnload", module)
    return best


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_known.clear)
