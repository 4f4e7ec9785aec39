"""The ceilings of a CPU.

Memory bandwidth is a copy by all threads of arrays beyond the last cache, counted as STREAM counts (bytes read plus
bytes written; McCalpin 1995). The compute ceiling is the best of a few NumPy matrix products: a rate that was reached,
a little below the FMA peak, so a very good kernel may stand above it.
"""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tessera.compiler.machines import HOST
from tessera.profiler.machine import Ceiling, DeviceCeilings

_ROUNDS = 5
_SECONDS = 0.01
"""for the matrix products of a round"""


def identity(index: int) -> tuple[Any, ...]:
    """The processor, how much of it may be used, and the library that the compute ceiling is measured with."""
    return (HOST, _name(), _threads(), np.__version__)


def measure(device: str, index: int) -> DeviceCeilings:
    """The ceilings of this processor, within a second on a quiet machine. All CPUs are one device: `index` is not used.

    Each is the best of several rounds, spread over that time: another program that runs for a moment does not lower it.
    """
    threads, caches = _threads(), _cache_bytes()
    large = min(max(2 * caches[3], 64 << 20), 256 << 20) // threads  # bounded: touching pages takes time too
    small = max(caches[2] // 4, 32 << 10)

    def product(dtype: type, extent: int) -> Callable[[], float]:
        left, right = np.random.default_rng(0).random((2, extent, extent)).astype(dtype)
        out = np.empty_like(left)
        np.matmul(left, right, out=out)
        return lambda: _product_rate(left, right, out)

    rounds: list[tuple[str, str, str, Callable[[], float]]] = [
        ("bandwidth", "memory", f"copy by {threads} threads", lambda: _copy_rate(large, threads)),
        ("bandwidth", "cache", f"copy within L2 by {threads} threads", lambda: _copy_rate(small, threads)),
        ("compute", "f32", "NumPy matrix product of extent 1024", product(np.float32, 1024)),
        ("compute", "f64", "NumPy matrix product of extent 768", product(np.float64, 768)),
    ]
    rates: list[list[float]] = [[] for _ in rounds]
    for _ in range(_ROUNDS):
        for found, (*_, rate) in zip(rates, rounds, strict=True):
            found.append(rate())
    ceilings = tuple(
        Ceiling(
            kind, name, max(found), "measured", f"{how}, best of {_ROUNDS}", 1 - statistics.median(found) / max(found)
        )
        for found, (kind, name, how, _) in zip(rates, rounds, strict=True)
    )
    return DeviceCeilings(device, _name(), threads, caches[2], ceilings, last_cache_bytes=caches[3])


def _copy_rate(size: int, threads: int) -> float:
    """Bytes read plus written per second when each thread copies `size` bytes of its own, best of the rounds."""
    barrier = threading.Barrier(threads)
    rounds = max(1, (1 << 20) // size)  # a copy within cache is too short to be timed alone
    spans: list[list[tuple[int, int]]] = [[] for _ in range(threads)]

    def work(own: int) -> None:
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        for _ in range(2):
            barrier.wait()
            start = time.perf_counter_ns()
            for _ in range(rounds):
                np.copyto(target, source)
            spans[own].append((start, time.perf_counter_ns()))

    workers = [threading.Thread(target=work, args=(own,)) for own in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    walls = (max(end for _, end in turn) - min(start for start, _ in turn) for turn in zip(*spans, strict=True))
    return 2.0 * size * rounds * threads / (max(min(walls), 1) * 1e-9)


def _product_rate(left: Any, right: Any, out: Any) -> float:
    best, until = float("inf"), time.perf_counter() + _SECONDS
    while True:
        start = time.perf_counter()
        np.matmul(left, right, out=out)
        end = time.perf_counter()
        best = min(best, end - start)
        if end > until:
            return 2 * len(out) ** 3 / max(best, 1e-9)


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cache_bytes() -> dict[int, int]:
    """Cache level -> bytes, as far as the system tells (Linux); typical sizes elsewhere."""
    sizes = {2: 1 << 20, 3: 32 << 20}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            size = (index / "size").read_text().strip()
            sizes[int((index / "level").read_text())] = int(size[:-1]) << (20 if size.endswith("M") else 10)
        except (OSError, ValueError):
            continue
    return sizes
