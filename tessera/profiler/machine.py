"""What this machine can do at most: the ceilings of the roofline, measured once and kept in the cache folder.

A CPU's memory bandwidth is a copy by all threads of arrays beyond the last cache, counted as STREAM counts (bytes read
plus bytes written; McCalpin 1995). Its compute ceiling is the best of a few NumPy matrix products: a rate that was
reached, a little below the FMA peak, so a very good kernel may stand above it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tessera.profiler.quantity import Quantity
from tessera.runtime.events import Source

_SCHEMA = 1
_MEASURE_SECONDS = 0.05  # per ceiling; all of them together stay below 0.3 s


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One limit. `kind` is "bandwidth" (B/s; `name` is the memory level) or "compute" (FLOP/s; `name` is the dtype)."""

    kind: str
    name: str
    value: float
    source: Source
    how: str

    @property
    def unit(self) -> str:
        return "B/s" if self.kind == "bandwidth" else "FLOP/s"


@dataclass(frozen=True, slots=True)
class Machine:
    """The ceilings of one device. `cache_bytes` is what one thread's private cache, or a GPU's L2, holds."""

    device: str
    name: str
    threads: int
    cache_bytes: int
    ceilings: tuple[Ceiling, ...] = ()
    reason: str = ""
    """why there are no ceilings, when there are none"""

    def ceiling(self, kind: str, name: str) -> Quantity:
        """One ceiling as a quantity; None with a reason where it was not measured."""
        for ceiling in self.ceilings:
            if (ceiling.kind, ceiling.name) == (kind, name):
                return Quantity(ceiling.value, ceiling.unit, ceiling.source)
        unit = "B/s" if kind == "bandwidth" else "FLOP/s"
        return Quantity(None, unit, reason=self.reason or f"no {name} {kind} ceiling was measured on {self.name}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Machine:
        """Raises KeyError, TypeError or ValueError when `data` is not what `to_json` gives."""
        machine = cls(**{**data, "ceilings": tuple(Ceiling(**ceiling) for ceiling in data["ceilings"])})
        if not all(ceiling.value > 0 for ceiling in machine.ceilings):
            raise ValueError("a ceiling must be positive")
        return machine


@cache
def machine_for(device: str) -> Machine:
    """The ceilings of `device` ("cpu:0", "cuda:1"), from the cache folder or measured now.

    A device that cannot be measured gives a Machine without ceilings and with a reason; nothing is raised.
    """
    kind, _, index = device.partition(":")
    if kind == "cpu":
        identity, measure = _cpu_identity(), _measure_cpu
    elif kind == "cuda":
        try:
            identity, measure = _cuda_identity(int(index or 0))
        except Exception as error:  # no CuPy, no driver, no such device: all mean "cannot be measured here"
            return Machine(device, kind, 0, 0, reason=f"{device} cannot be measured here: {type(error).__name__}")
    else:
        return Machine(device, kind, 0, 0, reason=f"no ceilings are known for {kind}")
    path = _cache_folder() / f"ceilings-{hashlib.sha256(repr(identity).encode()).hexdigest()[:16]}.json"
    machine = load_machine(path)
    if machine is None:
        machine = measure(device)
        save_machine(path, machine)
    return replace(machine, device=device)  # equal devices share one file


def save_machine(path: Path, machine: Machine) -> None:
    """Writes atomically. A folder that cannot be written costs a measurement next time, nothing else."""
    payload = machine.to_json()
    text = json.dumps({"schema": _SCHEMA, "checksum": _checksum(payload), "machine": payload}, indent=1)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)


def load_machine(path: Path) -> Machine | None:
    """Reads what `save_machine` wrote; None when the file is absent, damaged or of another schema."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != _SCHEMA or document["checksum"] != _checksum(document["machine"]):
            return None
        return Machine.from_json(document["machine"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _checksum(payload: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


def _cache_folder() -> Path:
    folder = os.environ.get("TESSERA_CACHE_DIR")
    if folder:
        return Path(folder)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tessera"))


# CPU


def _cpu_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cpu_identity() -> tuple[Any, ...]:
    import numpy as np

    return ("cpu", _SCHEMA, _cpu_name(), _cpu_threads(), np.__version__)


def _cpu_cache_bytes() -> dict[int, int]:
    """Cache level -> bytes, as far as the system tells (Linux); typical sizes elsewhere."""
    sizes = {2: 1 << 20, 3: 32 << 20}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            size = (index / "size").read_text().strip()
            sizes[int((index / "level").read_text())] = int(size[:-1]) << (20 if size.endswith("M") else 10)
        except (OSError, ValueError):
            continue
    return sizes


def _measure_cpu(device: str) -> Machine:
    import numpy as np

    threads, caches = _cpu_threads(), _cpu_cache_bytes()
    large = min(max(2 * caches[3], 64 << 20), 256 << 20) // threads  # bounded: touching pages takes time too
    small = max(caches[2] // 4, 32 << 10)
    ceilings = [
        Ceiling("bandwidth", "memory", _copy_rate(large, threads), "measured", f"copy by {threads} threads"),
        Ceiling("bandwidth", "cache", _copy_rate(small, threads), "measured", f"copy within L2 by {threads} threads"),
    ]
    for name, dtype, extent in (("f32", np.float32, 1024), ("f64", np.float64, 768)):
        generator = np.random.default_rng(0)
        left, right = generator.random((2, extent, extent)).astype(dtype)
        out = np.empty_like(left)
        seconds = _best_seconds(lambda left=left, right=right, out=out: np.matmul(left, right, out=out))
        ceilings.append(
            Ceiling("compute", name, 2 * extent**3 / seconds, "measured", f"NumPy matrix product of extent {extent}")
        )
    return Machine(device, _cpu_name(), threads, caches[2], tuple(ceilings))


def _copy_rate(size: int, threads: int) -> float:
    """Bytes read plus written per second when each thread copies `size` bytes of its own, best of the rounds."""
    import numpy as np

    barrier = threading.Barrier(threads)
    rounds = max(1, (1 << 20) // size)  # a copy within cache is too short to be timed alone
    spans: list[list[tuple[int, int]]] = [[] for _ in range(threads)]

    def work(own: int) -> None:
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        for _ in range(5):
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


def _best_seconds(call: Callable[[], object]) -> float:
    call()
    best, until = float("inf"), time.perf_counter() + _MEASURE_SECONDS
    while True:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        best = min(best, end - start)
        if end > until:
            return max(best, 1e-9)


# CUDA


def _cuda_identity(index: int) -> tuple[tuple[Any, ...], Callable[[str], Machine]]:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(index)
    name = properties["name"].decode()
    identity = ("cuda", _SCHEMA, name, cupy.cuda.runtime.driverGetVersion(), cupy.__version__)
    return identity, lambda device: _measure_cuda(device, index, name, properties)


def _measure_cuda(device: str, index: int, name: str, properties: dict[str, Any]) -> Machine:
    import cupy

    def seconds(call: Callable[[], object]) -> float:
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

    with cupy.cuda.Device(index):
        source = cupy.ones(256 << 20, cupy.uint8)
        target = cupy.empty_like(source)
        rate = 2.0 * source.nbytes / seconds(lambda: cupy.copyto(target, source))
        ceilings = [Ceiling("bandwidth", "memory", rate, "measured", "copy within the device's memory")]
        del source, target
        for dtype, extent in (("f64", 2048), ("f32", 4096), ("f16", 8192)):
            left = cupy.random.random((extent, extent), dtype=cupy.float32).astype(f"float{dtype[1:]}")
            out = cupy.empty_like(left)
            rate = 2.0 * extent**3 / seconds(lambda left=left, out=out: cupy.matmul(left, left, out=out))
            ceilings.append(Ceiling("compute", dtype, rate, "measured", f"cuBLAS matrix product of extent {extent}"))
        half = ceilings[-1].value
        ceilings.append(Ceiling("compute", "bf16", half, "modelled", "taken to equal the f16 matrix product"))
    return Machine(device, name, properties["multiProcessorCount"], properties["l2CacheSize"], tuple(ceilings))
