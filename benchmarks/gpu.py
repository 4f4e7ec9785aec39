"""What a GPU's launches and compilations cost on the host: nothing here needs a GPU.

python -m benchmarks gpu [-- --json] [-- --quick]. Times on a GPU are the ladder's: make gpu STAGE=table (docs/cuda.md).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class NoDriver:
    """Driver bindings that do nothing: what is left of a launch is Python's share."""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=8, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=0
    )
    cuCtxGetCurrent = staticmethod(lambda: (0, 1))
    cuCtxGetDevice = staticmethod(lambda: (0, 0))
    cuDeviceGetAttribute = staticmethod(lambda attribute, device: (0, attribute))
    cuModuleLoadData = staticmethod(lambda code: (0, code))
    cuModuleGetFunction = staticmethod(lambda module, name: (0, name))
    cuStreamIsCapturing = staticmethod(lambda stream: (0, 0))
    CUmemPool_attribute = SimpleNamespace(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4)
    cuDeviceGetDefaultMemPool = staticmethod(lambda device: (0, 0))
    cuMemPoolGetAttribute = staticmethod(lambda pool, attribute: (0, 1))
    cuMemAllocAsync = staticmethod(lambda size, stream: (0, 1 << 20))
    cuMemFreeAsync = staticmethod(lambda address, stream: (0,))
    cuLaunchKernel = staticmethod(lambda *arguments: (0,))


class NoArray:
    """`cupy.ndarray` without memory."""

    device = SimpleNamespace(id=0)
    data = SimpleNamespace(ptr=1 << 12)

    def __init__(self, shape: tuple[int, ...], dtype: Any = np.float32) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.strides = np.empty(shape, dtype).strides


def no_cupy() -> ModuleType:
    """CuPy as far as calls on its arrays use it."""
    cupy: Any = ModuleType("cupy")
    stream, made = SimpleNamespace(ptr=0), NoArray((64, 64))
    device = type("Device", (), {"__init__": lambda *_: None, "__enter__": lambda _: None, "__exit__": lambda *_: None})
    cupy.ndarray, cupy.empty = NoArray, lambda shape, dtype: made
    cupy.cuda = SimpleNamespace(Device=device, get_current_stream=lambda: stream,
                                memory=SimpleNamespace(OutOfMemoryError=MemoryError))  # fmt: skip
    return cupy


def calls_on_the_host(best: Callable[..., float]) -> Iterator[tuple[str, float]]:
    """Whole calls from the decorated name to the driver, over CuPy and a driver that do nothing."""
    import tessera as ts
    from tessera.compiler.targets.cuda.call.device import DeviceExecutable
    from tessera.compiler.targets.cuda.target import CudaTarget
    from tessera.runtime.arrays import devices

    sys.modules["cupy"] = no_cupy()
    gpu = devices.Device("cuda:0", "nothing", "sm_80", 1, 1 << 30)
    devices.cuda_devices = lambda: (gpu,)  # type: ignore[assignment]
    CudaTarget.load = lambda _, artifact: DeviceExecutable(artifact, NoDriver)  # type: ignore[method-assign]

    @ts.kernel
    def added(x: ts.Tensor["n", "m", ts.f32], y: ts.Tensor["n", "m", ts.f32]):
        y[tile_n : tile_n + 16, tile_m : tile_m + 16] += x[tile_n : tile_n + 16, tile_m : tile_m + 16]

    @ts.function
    def one(x: ts.Tensor["n", "m", ts.f32], y: ts.Tensor["m", "n", ts.f32]):
        return x + 1

    @ts.function
    def two(x: ts.Tensor["n", "m", ts.f32], y: ts.Tensor["m", "n", ts.f32]):
        return ts.softmax(x @ y)

    @ts.function
    def four(x: ts.Tensor["n", "m", ts.f32], y: ts.Tensor["m", "n", ts.f32]):
        return ts.softmax(ts.softmax(x @ y) @ x)

    x, y = NoArray((64, 64)), NoArray((64, 64))
    for program in (added, one, two, four):
        program(x, y)
        count = len(program.launcher.last.plan.launches)
        name = f"Python's share of a call, {program.kind}, {count} launch{'es' * (count > 1)} (us)"
        yield name, best(lambda f=program: f(x, y), 30, 1000) / 1e3


def on_the_host(quick: bool) -> Iterator[tuple[str, float]]:
    """(what, time) of what needs no GPU: Python's share of a launch in microseconds, compilations in milliseconds."""
    from tessera.compiler.targets import base
    from tessera.compiler.targets.cuda import nvrtc
    from tessera.compiler.targets.cuda.call.device import DeviceExecutable
    from tests.emulator import kernels as k

    def best(call: Callable[[], Any], rounds: int, per_round: int) -> float:
        times: list[float] = []
        for _ in range(rounds):
            start = time.perf_counter_ns()
            for _ in range(per_round):
                call()
            times.append((time.perf_counter_ns() - start) / per_round)
        return statistics.median(times)

    rounds = 1 if quick else 9
    plain = """extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = a * x[i] + y[i];
    }"""
    for arch in ("sm_90a",) if quick else ("sm_80", "sm_90a"):
        target = base.get(arch)
        start = time.perf_counter_ns()
        nvrtc.compile_cubin(plain, arch, "plain", [])
        yield f"compile, first use of NVRTC, a plain saxpy {arch} (ms)", (time.perf_counter_ns() - start) / 1e6
        yield (
            f"compile a plain saxpy {arch} (ms)",
            best(lambda a=arch: nvrtc.compile_cubin(plain, a, "p", []), rounds, 1) / 1e6,
        )
        for name in ("saxpy", "softmax", "gemm_bf16", "attention"):
            program = k.TYPICAL[name]().program
            yield f"compile {name} {arch} (ms)", best(lambda t=target, p=program: t.compile(p), rounds, 1) / 1e6
    artifact = base.get("sm_80").compile(k.saxpy(dim=k.N).program)
    executable: Any = DeviceExecutable(artifact, NoDriver)
    call = executable.run
    yield "Python's share of a launch (us)", best(lambda: call([4096, 8192], [2.0], [1024]), 30, 1000) / 1e3
    yield from calls_on_the_host(best)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compilations, and Python's share of launches")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--quick", "--minimal", action="store_true", help="checks that everything runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # compiles afresh, and leaves nothing behind
        os.environ["TESSERA_CACHE_DIR"] = folder
        for what, took in on_the_host(options.quick):
            print(json.dumps({"host": what, "time": took}) if options.json else f"{what:58s} {took:9.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
