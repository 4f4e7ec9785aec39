"""A machine with a GPU, made of host memory: a driver that runs kernels in the emulator, and a CuPy that allocates
there. Calls take the way they take on a GPU, from the decorated function to `cuLaunchKernel`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.call import device
from tessera.compiler.targets.cuda.call.device import DeviceExecutable
from tessera.compiler.targets.cuda.call.narrow import with_code
from tessera.compiler.targets.cuda.target import CudaTarget
from tessera.runtime.arrays import devices, libraries
from tessera.runtime.arrays.lifetimes import lifetimes
from tessera.runtime.code import build
from tests.unit.cuda.host_graphs import GraphCalls, HostGraph, HostGraphs
from tests.unit.cuda.test_cuda_device import HostDriver, aligned

DEVICES = tuple(devices.Device(f"cuda:{i}", "a GPU on the host", "sm_80", 108, 1 << 34) for i in (0, 1))


class GpuArray:
    """`cupy.ndarray` as far as adapters look at it."""

    def __init__(self, data: Any, device: int = 0) -> None:
        self.host = data
        self.data = SimpleNamespace(ptr=data.ctypes.data)
        self.device = SimpleNamespace(id=device)

    shape, dtype, strides = (property(lambda self, n=n: getattr(self.host, n)) for n in ("shape", "dtype", "strides"))

    def get(self) -> Any:
        return self.host.copy()


class HostGpu:
    """`calls`: what reached the driver; `stream`: CuPy's current one; `arrays`: all memory that was handed out."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.arrays: list[Any] = []
        self.executables: list[DeviceExecutable] = []
        self.stream = 5
        self.context = 7
        self.full = False
        self.done: set[int] = set()
        """events that have been reached"""
        self.events: list[int] = []
        self.graphs = HostGraphs()

    def put(self, array: Any, device: int = 0) -> GpuArray:
        made = aligned(np.ascontiguousarray(array))
        self.arrays.append(made)
        for x in self.executables:
            self._see(x.driver.bindings)
        return GpuArray(made, device)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> GpuArray:
        if self.full:
            raise MemoryError
        return self.put(np.full(shape, 0xAB, np.uint8).astype(dtype))

    def _see(self, bindings: Any) -> None:
        bindings.windows = [(f"array{i}", a.ctypes.data, a.nbytes) for i, a in enumerate(self.arrays)]

    def load(self, artifact: Any) -> DeviceExecutable:
        emulator: Any = base.get("emulator:sm_80")
        return self._loaded(artifact, emulator.load(artifact))

    def _loaded(self, artifact: Any, emulated: Any) -> DeviceExecutable:
        bindings = _Driver(emulated, self)
        executable: Any = DeviceExecutable(artifact, bindings)
        executable._variants.make = lambda source, alignment: self._loaded(
            with_code(artifact, alignment, {}), emulated._narrower(source, alignment)
        )
        self.executables.append(executable)
        self._see(bindings)
        return executable


class _Driver(HostDriver):
    CUresult = SimpleNamespace(CUDA_ERROR_NOT_READY=600)

    def __init__(self, emulated: Any, gpu: HostGpu) -> None:
        super().__init__(emulated)
        self.gpu, self.calls, self.graphs = gpu, gpu.calls, gpu.graphs

    def cuCtxGetCurrent(self) -> Any:
        return 0, self.gpu.context

    def cuDeviceGetAttribute(self, attribute: int, _: int) -> Any:
        return 0, (8, 0, 5)[attribute]


def _compile(self: Any, program: Any, *, profile: bool = False, debug: bool = False) -> Any:
    """The emulator's code under the GPU's name."""
    emulator: Any = base.get("emulator:sm_80")
    artifact = generate(program, emulator, profile=profile, debug=debug)
    artifact.target = self.name
    artifact.files["code.cubin"] = b"cubin"
    return artifact


class Stream:
    """`cupy.cuda.Stream` as far as capturing goes."""

    def __init__(self, gpu: HostGpu, ptr: int) -> None:
        self.gpu, self.ptr = gpu, ptr

    def begin_capture(self) -> None:
        self.gpu.graphs.begin(self.ptr)

    def end_capture(self) -> HostGraph:
        """As CuPy: what is launched is the instance, and the graph is kept beside it."""
        captured = self.gpu.graphs.end(self.ptr)
        graph = captured.instantiate()
        captured.destroy()
        return graph


def _cupy(gpu: HostGpu) -> ModuleType:
    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            self.before, gpu.context = gpu.context, 7 + self.index

        def __exit__(self, *_: Any) -> None:
            gpu.context = self.before

    cupy: Any = ModuleType("cupy")
    cupy.ndarray = GpuArray
    cupy.empty = gpu.empty
    cupy.ascontiguousarray = lambda array: gpu.put(array.host)
    memory = SimpleNamespace(OutOfMemoryError=MemoryError)

    class Event:
        def record(self) -> None:
            self.stream = gpu.stream

        def synchronize(self) -> None:
            if gpu.graphs.waits("cudaEventSynchronize", self.stream):
                raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    cupy.cuda = SimpleNamespace(
        Device=Device,
        memory=memory,
        get_current_stream=lambda: Stream(gpu, gpu.stream),
        Event=Event,
        get_elapsed_time=lambda start, end: 0.001,
    )
    return cupy


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, own_cache: Any) -> Iterator[HostGpu]:
    """Arrays of `gpu.put(...)` are CuPy's on device 0, of architecture sm_80."""
    made = HostGpu()
    build.forget()
    monkeypatch.setitem(sys.modules, "cupy", _cupy(made))
    monkeypatch.setattr(devices, "cuda_devices", lambda: DEVICES)
    monkeypatch.setattr(CudaTarget, "compile", _compile)
    monkeypatch.setattr(CudaTarget, "load", lambda _, artifact: made.load(artifact))
    monkeypatch.setattr(libraries, "_BY_TYPE", {})
    monkeypatch.setattr(device, "driver", lambda: _Events(made))
    yield made
    lifetimes.waiting.clear()
    build.forget()


class _Events(GraphCalls):
    """What `event_after`, `reached` and `wait_for` ask of the driver."""

    CUresult = _Driver.CUresult

    def __init__(self, gpu: HostGpu) -> None:
        self.gpu, self.graphs = gpu, gpu.graphs

    def cuStreamIsCapturing(self, stream: int) -> Any:
        return 0, int(stream in self.graphs.open)

    def cuEventCreate(self, _: int) -> Any:
        self.gpu.events.append(len(self.gpu.events))
        return 0, self.gpu.events[-1]

    def cuEventRecord(self, event: int, stream: int) -> Any:
        self.gpu.calls.append(f"event {event} on {stream}")
        return (0,)

    def cuStreamWaitEvent(self, stream: int, event: int, _: int) -> Any:
        self.gpu.calls.append(f"{stream} waits for event {event}")
        return (0,)

    def cuEventQuery(self, event: int) -> Any:
        if status := self.graphs.unsafe("cuEventQuery"):
            return (status,)
        return (0 if event in self.gpu.done else 600,)

    def cuEventDestroy(self, event: int) -> Any:
        self.gpu.calls.append(f"event {event} gone")
        return (0,)
