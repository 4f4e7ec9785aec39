"""The devices of this machine, and the number of threads to use."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.compiler.machines import best_target
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.immutable import immutable
from tessera.runtime.arrays import host_memory
from tessera.tracebacks import outward

if TYPE_CHECKING:
    from tessera.compiler.targets.base import Target

_CPU_FEATURES = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16",
    "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8", "asimd", "asimdhp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
"""what kernels may make use of, under the names of /proc/cpuinfo"""


@immutable
class Device:
    """One place to run. `memory` in bytes, None where it is not known."""

    name: str
    """"cpu" or "cuda:0" """
    description: str
    target: str
    """the target that compiles for it"""
    units: int
    """threads of a CPU, multiprocessors of a GPU"""
    memory: int | None
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        unit = "threads" if self.name == "cpu" else "multiprocessors"
        size = f", {self.memory / 2**30:.1f} GiB" if self.memory else ""
        features = f"; {' '.join(self.features)}" if self.features else ""
        return f"{self.name}: {self.description} ({self.target}), {self.units} {unit}{size}{features}"


@outward
def devices() -> list[Device]:
    """The CPU, then every CUDA device that the driver shows. Never fails: devices that do not answer are left out."""
    return [_cpu(), *cuda_devices()]


@cache
def cpu_count() -> int:
    """Threads that this process may run on at once."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _cpu() -> Device:
    total = None
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        total = host_memory.available()
    name, features = _cpuinfo()
    return Device("cpu", name, "cpu", cpu_count(), total, features)


@cache
def _cpuinfo() -> tuple[str, tuple[str, ...]]:
    name, flags = platform.processor() or platform.machine() or "CPU", set[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = set(value.split())
                break
    except OSError:
        pass
    return name, tuple(f for f in _CPU_FEATURES if f in flags)


# CUdevice_attribute numbers of cuda.h
_CAPABILITY_MAJOR, _CAPABILITY_MINOR, _MULTIPROCESSORS = 75, 76, 16


@cache
def cuda_devices() -> tuple[Device, ...]:
    """CUDA devices as the driver library tells; empty without one."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
        if driver.cuInit(0) != 0:
            return ()
        count = ctypes.c_int()
        driver.cuDeviceGetCount(ctypes.byref(count))
        return tuple(_cuda(driver, i) for i in range(count.value))
    except (OSError, AttributeError):
        return ()


def _cuda(driver: ctypes.CDLL, index: int) -> Device:
    text, size, handle = ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(handle), index)
    driver.cuDeviceGetName(text, len(text), handle)
    driver.cuDeviceTotalMem_v2(ctypes.byref(size), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        return value.value

    capability = attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)
    units = attribute(_MULTIPROCESSORS)
    return Device(f"cuda:{index}", text.value.decode(errors="replace"), best_target(capability), units, size.value)


def target_for(device: str) -> str:
    """The name of the target that compiles for arrays on `device` ("cpu", "cuda:1")."""
    if device == "cpu":
        return "cpu"
    index = int(device.partition(":")[2] or 0)
    found = cuda_devices()
    if index >= len(found):
        raise LaunchError(
            Diagnostic("TS605", f"the array lives on {device}, but the driver shows {len(found)} CUDA devices.")
        )
    return found[index].target


def resolve(name: str, device: str = "cpu") -> str:
    """The name of a concrete target: "auto" depends on where the arguments are, "cuda" on the first device present."""
    if name == "auto":
        return target_for(device)
    if name == "cuda":
        found = cuda_devices()
        if device != "cpu":
            return target_for(device)
        return found[0].target if found else "sm_90a"  # compiling needs no device; running says what is missing
    return name


def home(target: Target) -> str:
    """Where a target's arrays live: "cpu" or "cuda". The emulator compiles as for a GPU and runs on host memory."""
    return "cpu" if target.name.startswith("emulator:") else target.device


@fitted
def set_num_threads(count: int) -> None:
    """How many threads CPU kernels use from now on. Results do not depend on it. Raises LaunchError for less than 1."""
    from tessera.compiler.targets.cpu.call import threads  # slow: LLVM, for programs that run on a GPU

    threads.set_num_threads(count)


def get_num_threads() -> int:
    """How many threads CPU kernels use."""
    from tessera.compiler.targets.cpu.call import threads  # slow: LLVM, for programs that run on a GPU

    return threads.get_num_threads()
