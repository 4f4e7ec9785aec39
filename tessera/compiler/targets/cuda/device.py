"""Running a cubin through the driver API on raw device pointers, on the caller's stream.

The context is the current one (CuPy's and PyTorch's primary context) or device 0's primary context. Memory that a
program needs for itself is allocated in stream order, so that concurrent runs on several streams do not meet.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tessera.compiler.targets.base import Artifact, TileRecorder
from tessera.compiler.targets.cuda import cxx, steps
from tessera.compiler.targets.cuda.launch import Prepared, encode_tensor_map, prepare
from tessera.compiler.targets.cuda.target import architecture, constants
from tessera.errors import DeviceError, Diagnostic, MissingDependency

FIRST_USE = "the loading of code at its first use.\nCall it once with such arguments before the capture begins."
WAITING = "a program that reads a result on the host (a branch, a loop with a condition, debug or profiling)."
DEFAULT_SHARED_LIMIT = 48 * 1024
"""Dynamic shared memory that a kernel may have without asking for more."""


def driver() -> Any:
    """The driver bindings, initialised. Raises MissingDependency or DeviceError."""
    try:
        bindings = importlib.import_module("cuda.bindings.driver")
    except ImportError as e:
        raise MissingDependency("cuda.bindings", "cuda", "Running on a GPU") from e
    try:
        (status,) = bindings.cuInit(0)
    except Exception as e:  # the bindings raise their own types where there is no driver library
        raise DeviceError(
            "There is no NVIDIA driver on this machine; compiling for CUDA works, running does not."
        ) from e
    if int(status):
        raise DeviceError(f"The NVIDIA driver cannot be used: {status.name}")
    return bindings


class Driver:
    """The driver's functions with errors raised as DeviceError."""

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings

    def __call__(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self.bindings, name)(*arguments)
        if int(status):
            raise DeviceError(f"{name} failed: {getattr(status, 'name', status)}")
        return values[0] if values else None

    def ensure_context(self) -> int:
        """The current context; the primary one of device 0 where there was none."""
        context = int(self.bindings.cuCtxGetCurrent()[1])
        if not context:
            self("cuCtxSetCurrent", self("cuDevicePrimaryCtxRetain", self("cuDeviceGet", 0)))
            context = int(self("cuCtxGetCurrent"))
        return context

    def refuse_capture(self, stream: int, what: str) -> None:
        """Raises DeviceError TS611 where `stream` is being captured into a graph, which does not take `what`."""
        status, capturing = self.bindings.cuStreamIsCapturing(stream)
        if int(status) or int(capturing):
            raise DeviceError(Diagnostic("TS611", f"A CUDA graph cannot hold {what}"))

    def capability(self) -> tuple[int, int]:
        attribute = self.bindings.CUdevice_attribute
        device = self("cuCtxGetDevice")
        major = self("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        minor = self("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
        return int(major), int(minor)


def wait_for(stream: int, other: int, bindings: Any = None) -> None:
    """What is enqueued on `stream` from now on waits for what is on `other` now. The host waits for nothing."""
    call = Driver(bindings or driver())
    event = call("cuEventCreate", 2)  # CU_EVENT_DISABLE_TIMING
    try:
        call("cuEventRecord", event, other)
        call("cuStreamWaitEvent", stream, event, 0)
    finally:
        call("cuEventDestroy", event)  # goes when it has been reached


def check_capability(target: str, capability: tuple[int, int]) -> None:
    """A cubin runs on its own major version from its minor version up; an `a` cubin only on its very own."""
    major, minor = divmod(architecture(target), 10)
    same = capability == (major, minor) if target.endswith("a") else capability[0] == major and capability[1] >= minor
    if not same:
        raise DeviceError(
            f"Code for {target} does not run on this device (compute capability {capability[0]}.{capability[1]})"
        )


@dataclass(slots=True)
class PreparedRun:
    """All launches of a program at fixed sizes. Its addresses are the arguments', then `constants`, then those of
    temporaries, which lie at `temporaries` in a workspace of so many bytes."""

    launches: list[Prepared]
    constants: list[int]
    temporaries: list[int]
    workspace: int


class DeviceExecutable:
    """Loaded code. Thread-safe: each run has parameters of its own."""

    def __init__(self, artifact: Artifact, bindings: Any = None) -> None:
        self.driver = Driver(bindings or driver())
        self.driver.ensure_context()
        check_capability(artifact.target, self.driver.capability())
        self.artifact = artifact
        self.plan = steps.Steps(artifact.meta, constants(artifact))
        self._functions: dict[tuple[int, str], Any] = {}
        self._prepared: dict[tuple[int, ...], PreparedRun] = {}
        self._constants: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        self._plain = self._is_plain()

    def _is_plain(self) -> bool:
        """Whether a run is a fixed list of launches, whose preparation is worth keeping."""
        meta = self.artifact.meta
        extra = {kind for k in meta["kernels"].values() for kind, _ in k["parameters"]} - {
            "view",
            "scalar",
            "dim",
            "tensor_map",
        }
        return not extra and all(step[0] == "launch" for step in meta["steps"])

    def constant(self, number: int, data: bytes, stream: int) -> int:
        """The address of a constant in the current context, uploaded at its first use and kept."""
        key = self.driver.ensure_context(), number
        with self._lock:
            if key not in self._constants:
                self.driver.refuse_capture(stream, FIRST_USE)
                place = int(self.driver("cuMemAlloc", max(1, len(data))))
                held = _bytes_of(data)
                self.driver("cuMemcpyHtoD", place, ctypes.addressof(held), len(data))
                self._constants[key] = place
        return self._constants[key]

    def function(self, name: str, stream: int) -> Any:
        """The kernel in the current context, loaded at its first use."""
        context = self.driver.ensure_context()
        if (context, name) not in self._functions:
            self.driver.refuse_capture(stream, FIRST_USE)
            with self._lock:
                code = _bytes_of(self.artifact.files["code.cubin"])
                module = self.driver("cuModuleLoadData", ctypes.addressof(code))
                for kernel, facts in self.artifact.meta["kernels"].items():
                    f = self.driver("cuModuleGetFunction", module, cxx.kernel_symbol(kernel).encode())
                    if facts["shared"] > DEFAULT_SHARED_LIMIT:
                        attribute = (
                            self.driver.bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                        )
                        self.driver("cuFuncSetAttribute", f, attribute, facts["shared"])
                    self._functions[context, kernel] = f
        return self._functions[context, name]

    def run(
        self,
        pointers: Sequence[int],
        scalars: Sequence[bool | int | float | complex],
        dims: Sequence[int],
        *,
        stream: int = 0,
        record: TileRecorder | None = None,
    ) -> None:
        """Enqueues the program's launches on `stream`; waits only where a branch or a record needs a result."""
        context = self.driver.ensure_context()
        together = 0
        for p in pointers:
            together |= p
        if not self._plain or together % steps.ALIGNMENT or record is not None:
            self.plan.run(_DeviceMachine(self, stream), pointers, scalars, dims, record)
            return
        key = (threading.get_ident(), context, *dims)  # a thread writes parameters of its own
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = self._prepare(dims, stream)
        addresses = [*pointers, *prepared.constants] if prepared.constants else pointers
        own = 0
        if prepared.workspace:
            own = int(self.driver("cuMemAllocAsync", prepared.workspace, stream))
            addresses = [*addresses, *(own + offset for offset in prepared.temporaries)]
        for launch in prepared.launches:
            launch.launch(self.driver, addresses, scalars, stream)
        if own:
            self.driver("cuMemFreeAsync", own, stream)

    def _prepare(self, dims: Sequence[int], stream: int) -> PreparedRun:
        meta = self.artifact.meta
        env = dict(zip(meta["free"], dims, strict=True))
        run = PreparedRun([], [self.constant(n, data, stream) for n, data in self.plan.constants.items()], [], 0)
        buffers = [*self.plan.bound, *self.plan.constants]
        for buffer in meta["buffers"]:
            if buffer["role"] == "temp":
                buffers.append(buffer["id"])
                run.temporaries.append(run.workspace)
                run.workspace += -(-self.plan.nbytes(buffer, env) // 256) * 256
        slots = {number: slot for slot, number in enumerate(buffers)}
        for _, name, args in meta["steps"]:
            facts = meta["kernels"][name]
            grid = steps.grid_size(self.plan, name, env)
            if grid:
                p = prepare(self.plan, facts, args, env, slots)
                p.grid, p.threads, p.shared = grid, facts["threads"], facts["shared"]
                p.function = self.function(name, stream)
                run.launches.append(p)
        return run


def _bytes_of(data: bytes) -> ctypes.Array[ctypes.c_char]:
    """Memory with an address that holds `data`."""
    return ctypes.create_string_buffer(data, max(1, len(data)))


class _DeviceMachine:
    """`steps.Machine` on a stream of the current context."""

    def __init__(self, executable: DeviceExecutable, stream: int) -> None:
        self.executable, self.driver, self.stream = executable, executable.driver, stream

    def allocate(self, size: int) -> int:
        return int(self.driver("cuMemAllocAsync", size, self.stream))

    def free(self, address: int) -> None:
        self.driver("cuMemFreeAsync", address, self.stream)

    def constant(self, number: int, data: bytes) -> int:
        return self.executable.constant(number, data, self.stream)

    def upload(self, address: int, data: bytes) -> None:
        self.driver.refuse_capture(self.stream, WAITING)
        held = _bytes_of(data)
        self.driver("cuMemcpyHtoDAsync", address, ctypes.addressof(held), len(data), self.stream)
        self.driver("cuStreamSynchronize", self.stream)  # `held` goes

    def download(self, address: int, size: int) -> bytes:
        self.driver.refuse_capture(self.stream, WAITING)
        out = ctypes.create_string_buffer(size)
        self.driver("cuMemcpyDtoHAsync", ctypes.addressof(out), address, size, self.stream)
        self.driver("cuStreamSynchronize", self.stream)
        return out.raw

    def copy(self, to: int, source: int, size: int) -> None:
        self.driver("cuMemcpyDtoDAsync", to, source, size, self.stream)

    def tensor_map(self, tensor: steps.TensorMap) -> bytes:
        return encode_tensor_map(self.driver, tensor)

    def launch(self, call: steps.Call) -> None:
        packed = [ctypes.create_string_buffer(a, max(16, len(a))) for a in call.arguments]
        table = (ctypes.c_void_p * max(1, len(packed)))(*(ctypes.addressof(p) for p in packed))
        function = self.executable.function(call.kernel, self.stream)
        self.driver(
            "cuLaunchKernel",
            function,
            call.grid,
            1,
            1,
            call.threads,
            1,
            1,
            call.shared,
            self.stream,
            ctypes.addressof(table),
            0,
        )
