"""What a tile record costs on a GPU, and a reading of the clock between phases, each done many times by one block."""

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
SHARED = 32
"""bytes"""
SOURCE = f"""#include <tessera/timer.cuh>
namespace ts = tessera;

extern "C" __global__ void __launch_bounds__({_THREADS}) {NAME}_kernel(ts::Records* records, ts::u64* took) {{
  ts::u64 start = ts::hw::clock_ns();
  for (int i = 0; i < {TIMES}; ++i) {{
    ts::Timer<0> timer(records, 0);
    timer.stop();
  }}
  if (ts::hw::thread() == 0) ts::hw::store_global(took, ts::hw::clock_ns() - start);
  start = ts::hw::clock_ns();
  ts::Timer<2> timer(records, 0, 0);
  TS_ROLLED for (int i = 0; i < {TIMES}; ++i) {{
    timer.read<0>();
    timer.read<1>();
  }}
  timer.stop<0>();
  if (ts::hw::thread() == 0) ts::hw::store_global(took + 1, (ts::hw::clock_ns() - start) / 2);
}}
"""
_known: dict[int, tuple[float, float] | None] = {}
"""by context"""


def costs(driver: Driver, target: str) -> tuple[float, float] | None:
    """ns of one record and of one reading, measured once in a context; None where that cannot be. The block does not
    share its multiprocessor: others would hide part of the cost."""
    context = driver.current()
    if context not in _known:
        try:
            _known[context] = _measured(driver, target)
        except TesseraError:  # without NVRTC, or without memory
            _known[context] = None
    return _known[context]


def head() -> bytes:
    """Records in which no run ever ends."""
    return records.start(_TRIES * (TIMES + 1) + 1, 1, 0) + bytes(records.record_bytes(2))


def _measured(driver: Driver, target: str) -> tuple[float, float]:
    stream = clock_of(driver).stream
    code = ctypes.create_string_buffer(nvrtc.compile_code(SOURCE, target, NAME, []).cubin)
    with driver.relaxed():
        module = driver("cuModuleLoadData", ctypes.addressof(code))
        function = driver("cuModuleGetFunction", module, f"{NAME}_kernel".encode())
        size = len(head())
        place = int(driver("cuMemAlloc", size + 16))
        try:
            start, took = ctypes.create_string_buffer(head(), size), (ctypes.c_uint64 * 2)()
            driver("cuMemcpyHtoDAsync", place, ctypes.addressof(start), size, stream)
            arguments = (ctypes.c_uint64 * 2)(place, place + size)
            table = (ctypes.c_void_p * 2)(*(ctypes.addressof(arguments) + 8 * i for i in range(2)))
            best = float("inf"), float("inf")
            for _ in range(_TRIES):
                driver("cuLaunchKernel", function, 1, 1, 1, _THREADS, 1, 1, SHARED, stream, ctypes.addressof(table), 0)
                driver("cuMemcpyDtoHAsync", ctypes.addressof(took), place + size, 16, stream)
                driver("cuStreamSynchronize", stream)
                best = min(best[0], took[0] / TIMES), min(best[1], took[1] / TIMES)
        finally:
            driver("cuMemFree", place)
            driver("cuModuleUnload", module)
    return best


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_known.clear)
