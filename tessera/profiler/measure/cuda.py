"""The ceilings of a CUDA GPU, by CuPy: copies within its memory and cuBLAS matrix products, timed with events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from tessera.compiler.machines import ANY_GPU
from tessera.profiler.machine import Ceiling, DeviceCeilings


def identity(index: int) -> tuple[Any, ...]:
    """The GPU's model, the driver, and the library that the ceilings are measured with."""
    name = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
    return (ANY_GPU, name, cupy.cuda.runtime.driverGetVersion(), cupy.__version__)


def measure(device: str, index: int, again: bool) -> DeviceCeilings:
    """The ceilings of GPU `index`; the first time and again alike. Takes 1.5 GiB of its memory for a moment."""
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    with cupy.cuda.Device(index):
        ceilings = [Ceiling("bandwidth", "memory", _copy_rate(256 << 20), "measured", "copy within its memory")]
        for dtype, extent in (("f64", 2048), ("f32", 4096), ("f16", 8192)):
            rate = _product_rate(f"float{dtype[1:]}", extent)
            ceilings.append(Ceiling("compute", dtype, rate, "measured", f"cuBLAS matrix product of extent {extent}"))
        cupy.get_default_memory_pool().free_all_blocks()
    half = ceilings[-1].value  # the tensor cores take both at one rate, and CuPy has no bf16
    ceilings.append(Ceiling("compute", "bf16", half, "modelled", "taken to equal the f16 matrix product"))
    processors, cache = properties["multiProcessorCount"], properties["l2CacheSize"]
    return DeviceCeilings(
        device, properties["name"].decode(), processors, cache // processors, tuple(ceilings), last_cache_bytes=cache
    )


def _copy_rate(size: int) -> float:
    source, target = cupy.ones(size, cupy.uint8), cupy.empty(size, cupy.uint8)
    return 2.0 * size / _best_seconds(lambda: cupy.copyto(target, source))


def _product_rate(dtype: str, extent: int) -> float:
    # Random values: zeros would run faster, because they draw less power.
    left = cupy.random.random((extent, extent), dtype=cupy.float32).astype(dtype)
    out = cupy.empty_like(left)
    return 2.0 * extent**3 / _best_seconds(lambda: cupy.matmul(left, left, out=out))


def _best_seconds(call: Callable[[], object]) -> float:
    call()
    best = float("inf")
    for _ in range(5):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, cupy.cuda.get_elapsed_time(start, end) * 1e-3)
    return best
