"""Running a cubin through the driver API on raw device pointers, on the caller's stream.

The context is the current one (CuPy's and PyTorch's primary context) or device 0's primary context. Memory that a
program needs for itself is allocated in stream order, so that concurrent runs on several streams do not meet.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from tessera.compiler.targets.base import Artifact, TileRecorder
from tessera.compiler.targets.cuda import cxx, steps
from tessera.compiler.targets.cuda.target import architecture, constants
from tessera.errors import DeviceError, MissingDependency

TENSOR_MAP_BYTES = 128
MOST_ENCODED = 256
"""Addresses per tensor map whose encoding is kept."""
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

    def ensure_context(self) -> None:
        if not int(self("cuCtxGetCurrent")):
            self("cuCtxSetCurrent", self("cuDevicePrimaryCtxRetain", self("cuDeviceGet", 0)))

    def capability(self) -> tuple[int, int]:
        attribute = self.bindings.CUdevice_attribute
        device = self("cuCtxGetDevice")
        major = self("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        minor = self("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
        return int(major), int(minor)


def check_capability(target: str, capability: tuple[int, int]) -> None:
    """A cubin runs on its own major version from its minor version up; an `a` cubin only on its very own."""
    major, minor = divmod(architecture(target), 10)
    same = capability == (major, minor) if target.endswith("a") else capability[0] == major and capability[1] >= minor
    if not same:
        raise DeviceError(
            f"Code for {target} does not run on this device (compute capability {capability[0]}.{capability[1]})"
        )


_TENSOR_TYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16", "tf32": "TFLOAT32"}
"""CUtensorMapDataType by dtype; copies of TFLOAT32 round to tf32."""


def encode_tensor_map(driver: Driver, t: steps.TensorMap) -> bytes:
    """CUtensorMap: 128-byte swizzle, zeros outside, lines of 256 bytes in the second-level cache."""
    b = driver.bindings
    encoded = driver(
        "cuTensorMapEncodeTiled",
        getattr(b.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_TYPES[t.dtype]}"),
        len(t.sizes),
        t.address,
        [b.cuuint64_t(n) for n in t.sizes],
        [b.cuuint64_t(n) for n in t.strides],
        [b.cuuint32_t(n) for n in t.box],
        [b.cuuint32_t(1) for _ in t.box],
        b.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        b.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        b.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        b.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES)


@dataclass(slots=True)
class PreparedMap:
    """A tensor map of a prepared launch, encoded once per address that its buffer has been seen at."""

    offset: int
    buffer: int
    start: int
    at_zero: steps.TensorMap
    encoded: dict[int, bytes] = field(default_factory=dict[int, bytes])

    def write(self, driver: Driver, block: int, address: int) -> None:
        data = self.encoded.get(address)
        if data is None:
            if len(self.encoded) >= MOST_ENCODED:
                self.encoded.clear()
            data = self.encoded[address] = encode_tensor_map(driver, replace(self.at_zero, address=address))
        ctypes.memmove(block + self.offset, data, TENSOR_MAP_BYTES)


@dataclass(slots=True)
class Prepared:
    """A launch with everything settled but pointers and scalars, whose places in the parameters it knows."""

    function: Any
    grid: int
    threads: int
    shared: int
    block: Any
    """the bytes of all parameters, `room` to each"""
    parameters: Any
    """void*[]: the address of each parameter"""
    pointers: list[tuple[int, int, int]]
    """(offset in block, buffer, bytes to add)"""
    scalars: list[tuple[int, int, str]]
    """(offset in block, scalar, dtype)"""
    maps: list[PreparedMap] = field(default_factory=list[PreparedMap])


@dataclass(slots=True)
class PreparedRun:
    """All launches of a program at fixed sizes. `temporaries`: (buffer, offset in a workspace of so many bytes)."""

    launches: list[Prepared]
    temporaries: list[tuple[int, int]]
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

    def constant(self, number: int, data: bytes) -> int:
        """The address of a constant in the current context, uploaded at its first use and kept."""
        key = int(self.driver("cuCtxGetCurrent")), number
        with self._lock:
            if key not in self._constants:
                place = int(self.driver("cuMemAlloc", max(1, len(data))))
                held = _bytes_of(data)
                self.driver("cuMemcpyHtoD", place, ctypes.addressof(held), len(data))
                self._constants[key] = place
        return self._constants[key]

    def function(self, name: str) -> Any:
        """The kernel in the current context, loaded at its first use."""
        context = int(self.driver("cuCtxGetCurrent"))
        if (context, name) not in self._functions:
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
        self.driver.ensure_context()
        if self._plain and not any(p % steps.ALIGNMENT for p in pointers):
            self._run_prepared(pointers, scalars, dims, stream)
        else:
            self.plan.run(_DeviceMachine(self, stream), pointers, scalars, dims, record)

    def _run_prepared(self, pointers: Sequence[int], scalars: Sequence[Any], dims: Sequence[int], stream: int) -> None:
        key = (threading.get_ident(), int(self.driver("cuCtxGetCurrent")), *dims)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = self._prepare(dims)
        address = dict(zip(self.plan.bound, pointers, strict=True))
        for number, data in self.plan.constants.items():
            address[number] = self.constant(number, data)
        own = int(self.driver("cuMemAllocAsync", prepared.workspace, stream)) if prepared.workspace else 0
        address.update((number, own + offset) for number, offset in prepared.temporaries)
        for p in prepared.launches:
            self._launch(p, address, scalars, stream)
        if own:
            self.driver("cuMemFreeAsync", own, stream)

    def _launch(self, p: Prepared, address: dict[int, int], scalars: Sequence[Any], stream: int) -> None:
        start = ctypes.addressof(p.block)
        for offset, buffer, add in p.pointers:
            ctypes.c_uint64.from_address(start + offset).value = address[buffer] + add
        for tensor in p.maps:
            tensor.write(self.driver, start, address[tensor.buffer] + tensor.start)
        for offset, number, dtype in p.scalars:
            data = steps.pack_scalar(scalars[number], dtype)
            ctypes.memmove(start + offset, data, len(data))
        launch, parameters = self.driver.bindings.cuLaunchKernel, ctypes.addressof(p.parameters)
        (status,) = launch(p.function, p.grid, 1, 1, p.threads, 1, 1, p.shared, stream, parameters, 0)
        if int(status):
            raise DeviceError(f"cuLaunchKernel failed: {status.name}")

    def _prepare(self, dims: Sequence[int]) -> PreparedRun:
        meta = self.artifact.meta
        env = dict(zip(meta["free"], dims, strict=True))
        run = PreparedRun([], [], 0)
        for buffer in meta["buffers"]:
            if buffer["role"] == "temp":
                run.temporaries.append((buffer["id"], run.workspace))
                run.workspace += -(-self.plan.nbytes(buffer, env) // 256) * 256
        for _, name, args in meta["steps"]:
            facts = meta["kernels"][name]
            grid = steps.grid_size(self.plan, name, env)
            if grid:
                p = _parameters(self.plan, facts, args, env)
                p.function, p.grid, p.threads, p.shared = self.function(name), grid, facts["threads"], facts["shared"]
                run.launches.append(p)
        return run


def _bytes_of(data: bytes) -> ctypes.Array[ctypes.c_char]:
    """Memory with an address that holds `data`."""
    return ctypes.create_string_buffer(data, max(1, len(data)))


def room(kind: str) -> int:
    """Bytes that a parameter is given: sixteen hold the widest scalar."""
    return TENSOR_MAP_BYTES if kind == "tensor_map" else 16


def _parameters(plan: steps.Steps, facts: dict[str, Any], args: Sequence[Any], env: dict[str, int]) -> Prepared:
    """The parameter block of a launch."""
    kinds: Sequence[Sequence[str]] = facts["parameters"]
    places = [0, *accumulate(room(kind) for kind, _ in kinds)]
    block = ctypes.create_string_buffer(max(16, places[-1]))
    start = ctypes.addressof(block)
    table = (ctypes.c_void_p * max(1, len(kinds)))(*(start + place for place in places[: len(kinds)]))
    p = Prepared(None, 0, 0, 0, block, table, [], [])
    for place, (kind, detail) in zip(places, kinds, strict=False):
        if kind == "dim":
            ctypes.c_int64.from_address(start + place).value = env[detail]
        elif kind == "tensor_map":
            described = facts["tensor_maps"][int(detail)]
            buffer, first = plan.window(args[described["argument"]], env)
            p.maps.append(PreparedMap(place, buffer, first, plan.tensor_map(described, 0, env)))
        elif args[int(detail)][0] == "scalar":
            p.scalars.append((place, *args[int(detail)][1:]))
        else:
            p.pointers.append((place, *plan.window(args[int(detail)], env)))
    return p


class _DeviceMachine:
    """`steps.Machine` on a stream of the current context."""

    def __init__(self, executable: DeviceExecutable, stream: int) -> None:
        self.executable, self.driver, self.stream = executable, executable.driver, stream

    def allocate(self, size: int) -> int:
        return int(self.driver("cuMemAllocAsync", size, self.stream))

    def free(self, address: int) -> None:
        self.driver("cuMemFreeAsync", address, self.stream)

    def constant(self, number: int, data: bytes) -> int:
        return self.executable.constant(number, data)

    def upload(self, address: int, data: bytes) -> None:
        held = _bytes_of(data)
        self.driver("cuMemcpyHtoDAsync", address, ctypes.addressof(held), len(data), self.stream)
        self.driver("cuStreamSynchronize", self.stream)  # `held` goes

    def download(self, address: int, size: int) -> bytes:
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
        function = self.executable.function(call.kernel)
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
