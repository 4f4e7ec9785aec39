"""Running a cubin through the driver API on raw device pointers, on the caller's stream.

The context is the current one (CuPy's and PyTorch's primary context); a thread that has none gets the stream's, else
the primary context of the device that the arrays are on. Memory that a
program needs for itself is allocated in stream order, so that concurrent runs on several streams do not meet.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tessera.compiler.machines import best_target, runs_on_later
from tessera.compiler.targets.base import Artifact, TileRecorder, architecture
from tessera.compiler.targets.cuda import nvrtc
from tessera.compiler.targets.cuda.call import context as contexts
from tessera.compiler.targets.cuda.call import record_cost, steps, straight
from tessera.compiler.targets.cuda.call.clock import clock_of
from tessera.compiler.targets.cuda.call.context import Driver, Launched
from tessera.compiler.targets.cuda.call.graphs import GraphRecords, capture_of, graph_of
from tessera.compiler.targets.cuda.call.launch import PreparedKernel, aligned_room, encode_tensor_map, prepare
from tessera.compiler.targets.cuda.call.narrow import Variants, with_code
from tessera.compiler.targets.cuda.parts import SourcePart, file_of, files_of
from tessera.compiler.targets.cuda.write import cxx
from tessera.errors import DeviceError, MissingDependency, Span

FIRST_USE = (
    "the loading of code at its first use.\nCall it once with such arguments before the capture begins; to profile "
    "what is captured, inside the profiler block."
)
WAITING = "a program that reads a result on the host (a branch, a loop with a condition, a print, debug)."
NO_JIT = "This GPU is newer than any target here; its driver did not compile the code's PTX. A newer driver may."
DEFAULT_SHARED_LIMIT = 48 * 1024
"""Dynamic shared memory that a kernel may have without asking for more."""


def driver() -> Any:
    """The driver bindings, initialised. Raises MissingDependency or DeviceError."""
    try:
        bindings = importlib.import_module("cuda.bindings.driver")
    except ImportError as e:
        raise MissingDependency("cuda.bindings", "cuda", "Running on a GPU") from e
    if contexts.process.forked_from_user:
        raise DeviceError(contexts.FORKED)
    try:
        (status,) = bindings.cuInit(0)
    except Exception as e:  # the bindings raise their own types where there is no driver library
        raise DeviceError(
            "There is no NVIDIA driver on this machine: programs compile for CUDA, but cannot run."
        ) from e
    if int(status):
        more = f".\n{contexts.FORKED}" if status.name == "CUDA_ERROR_NOT_INITIALIZED" else ""
        raise DeviceError(f"The NVIDIA driver cannot be used: {status.name}{more}")
    contexts.process.used = True
    return bindings


def wait_for(stream: int, other: int, bindings: Any = None) -> None:
    """Work that is enqueued on `stream` from now on waits for the work that is on `other` now. The host does not
    wait."""
    call = Driver(bindings or driver())
    event = call("cuEventCreate", 2)  # CU_EVENT_DISABLE_TIMING
    try:
        call("cuEventRecord", event, other)
        call("cuStreamWaitEvent", stream, event, 0)
    finally:
        call("cuEventDestroy", event)  # the driver frees it when it has been reached


def event_after(stream: int, bindings: Any = None) -> Any:
    """An event behind the work that is on `stream` now, for `reached`; None while the stream is being captured into a
    graph."""
    call = Driver(bindings or driver())
    if int(call("cuStreamIsCapturing", stream)):
        return None
    event = call("cuEventCreate", 2)  # CU_EVENT_DISABLE_TIMING
    call("cuEventRecord", event, stream)
    return event


def reached(event: Any, bindings: Any = None) -> bool:
    """Whether the work before an event is done; the event is gone then. A device that has failed does no more work.

    The question would spoil a graph that this or another thread is capturing, were it not asked in relaxed mode.
    """
    b = bindings or driver()
    with Driver(b).relaxed():
        status = b.cuEventQuery(event)[0]
    if status == b.CUresult.CUDA_ERROR_NOT_READY:
        return False
    b.cuEventDestroy(event)
    return True


def check_capability(target: str, capability: tuple[int, int]) -> str:
    """Which of an artefact's files runs on a device of this capability. A cubin runs on its own major version from its
    minor version up, PTX on any later GPU; where a target ends in `a`, its cubin runs on that capability alone, and
    where it ends in `f`, there is no PTX.

    Raises DeviceError where neither does.
    """
    own = divmod(architecture(target), 10)
    if capability == own:
        return "code.cubin"
    if capability > own and runs_on_later(target, capability[0] == own[0]):
        return "code.cubin" if capability[0] == own[0] else "code.ptx"
    major, minor = capability
    raise DeviceError(
        f"Code for {target} does not run on this device (compute capability {major}.{minor}).\n"
        f"Compile for {best_target(capability)}."
    )


class DeviceExecutable:
    """Loaded code. Thread-safe: each run has parameters of its own."""

    def __init__(self, artifact: Artifact, bindings: Any = None) -> None:
        self.driver = Driver(bindings or driver())
        self.driver.ensure_context()
        self.device = int(self.driver("cuCtxGetDevice"))
        check_capability(artifact.target, self.driver.capability())
        self.artifact = artifact
        self.plan = steps.Steps(artifact.meta, steps.constants(artifact))
        self._functions: dict[tuple[int, str], Any] = {}
        self._ready: dict[tuple[int, ...], dict[int, Callable[..., None]]] = {}
        """(context, *sizes) -> thread -> its launches: a thread writes parameters of its own"""
        self._constants: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        self._plain = self._is_plain()
        kernels = artifact.meta["kernels"]
        self.places = {name: Span(*facts["span"]) for name, facts in kernels.items()}
        self.launched = Launched(list(self.places.items()))
        self._variants = Variants(self.plan, artifact.files["code.cu"].decode(), self._narrower)
        self.debug = any(kind == "faults" for facts in kernels.values() for kind, _ in facts["parameters"])
        _live.add(self)

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
        key = self.driver.ensure_context(stream, (), self.device), number
        with self._lock:
            if key not in self._constants:
                self.driver.refuse_capture(stream, FIRST_USE)
                place = int(self.driver("cuMemAlloc", max(1, len(data))))
                held = _bytes_of(data)
                self.driver("cuMemcpyHtoD", place, ctypes.addressof(held), len(data))
                self._constants[key] = place
        return self._constants[key]

    def forget(self) -> None:
        """In a forked child: handles and addresses mean nothing here, nor do the launches that hold them."""
        self._lock = threading.Lock()
        self._functions.clear()
        self._constants.clear()
        for threads in self._ready.values():
            threads.clear()

    def function(self, name: str, stream: int) -> Any:
        """The kernel in the current context, loaded at its first use."""
        context = self.driver.ensure_context(stream, (), self.device)
        if (context, name) not in self._functions:
            self.driver.refuse_capture(stream, FIRST_USE)
            file = check_capability(self.artifact.target, self.driver.capability())
            with self._lock:
                if (context, name) in self._functions:  # another thread has loaded it meanwhile
                    return self._functions[context, name]
                part = next(i for i, p in enumerate(self.artifact.meta["parts"]) if name in p["kernels"])
                module = self._module(file_of(file, part))
                for kernel in self.artifact.meta["parts"][part]["kernels"]:
                    facts = self.artifact.meta["kernels"][kernel]
                    f = self.driver("cuModuleGetFunction", module, cxx.kernel_symbol(kernel).encode())
                    if facts["shared"] > DEFAULT_SHARED_LIMIT:
                        attribute = (
                            self.driver.bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                        )
                        self.driver("cuFuncSetAttribute", f, attribute, facts["shared"])
                    self._functions[context, kernel] = f
        return self._functions[context, name]

    def resident(self, name: str, stream: int) -> int:
        """How many blocks of a kernel the device runs at a time, on all its multiprocessors."""
        function, facts = self.function(name, stream), self.artifact.meta["kernels"][name]
        attribute = self.driver.bindings.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        count = self.driver("cuDeviceGetAttribute", attribute, self.driver("cuCtxGetDevice"))
        each = self.driver("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, facts["threads"], facts["shared"])
        return max(1, int(count) * int(each))

    def _narrower(self, source: str, alignment: int) -> DeviceExecutable:
        """The same program for arrays at multiples of `alignment` bytes. Raises MissingDependency without NVRTC."""
        meta = self.artifact.meta
        texts = [SourcePart(**part).text(source) for part in meta["parts"]]
        codes = nvrtc.compile_parts(texts, self.artifact.target, self.artifact.name, meta["lines"])
        return DeviceExecutable(with_code(self.artifact, alignment, files_of(codes)), self.driver.bindings)

    def _module(self, file: str) -> Any:
        """The code of one of the artefact's files, loaded into the current context."""
        code = _bytes_of(self.artifact.files[file] + b"\0")  # PTX is text that ends so
        try:
            return self.driver("cuModuleLoadData", ctypes.addressof(code))
        except DeviceError as e:
            if not file.endswith(".ptx"):
                raise
            raise DeviceError(f"{e.diagnostics[0].message}\n{NO_JIT}") from e

    @property
    def record_costs(self) -> tuple[float, float] | None:
        """What a tile record costs on this device, and a reading of the clock between phases; None where it cannot be
        measured, or this code writes none."""
        return record_cost.costs(self.driver, self.artifact.target) if self.artifact.meta["phases"] else None

    def workspace_bytes(self, dims: Sequence[int]) -> int:
        """The memory of a call beside its arguments and results: temporaries, in one block. Copies of arrays that lie
        at odd addresses are not counted."""
        return self.plan.workspace(dict(zip(self.artifact.meta["free"], dims, strict=True)))[1]

    def run(
        self,
        pointers: Sequence[int],
        scalars: Sequence[bool | int | float | complex],
        dims: Sequence[int],
        *,
        stream: int = 0,
        record: TileRecorder | GraphRecords | None = None,
    ) -> None:
        """Enqueues the program's launches on `stream`; waits only where a branch or a record needs a result. What is
        captured into a graph with GraphRecords leaves its records there whenever the graph runs."""
        context = self.driver.ensure_context(stream, pointers, self.device)
        together = 0
        for p in pointers:
            together |= p
        if together % self.plan.alignment and (narrower := self._variants.suited(pointers)) is not None:
            narrower.run(pointers, scalars, dims, stream=stream, record=record)
            return
        moves = together % steps.ALIGNMENT and self.plan.moves(pointers)
        if not self._plain or moves or record is not None:
            graph = record if isinstance(record, GraphRecords) else None
            reader = None if isinstance(record, GraphRecords) else record
            if reader is not None:
                clock_of(self.driver).compare()
            self.plan.run(_DeviceMachine(self, stream, graph, reader is not None), pointers, scalars, dims, reader)
            return
        threads = self._ready.setdefault((context, *dims), {})
        go = threads.get(threading.get_ident())
        if go is None:
            go = threads[threading.get_ident()] = self._straight(dims, stream)
        go(*pointers, *scalars, stream)

    def capture(self, stream: int, pointers: Sequence[int] = ()) -> int:
        """The number of the capture of a graph that takes what is launched on `stream`; 0: it runs."""
        self.driver.ensure_context(stream, pointers, self.device)
        return capture_of(self.driver, stream)

    def ready(self, stream: int, pointers: Sequence[int]) -> bool:
        """Whether a run needs nothing that a graph cannot hold: its code and constants are there."""
        context = self.driver.ensure_context(stream, pointers, self.device)
        if any(p % self.plan.alignment for p in pointers) and (narrower := self._variants.suited(pointers)) is not None:
            return narrower.ready(stream, pointers)
        loaded = all((context, name) in self._functions for name in self.artifact.meta["kernels"])
        return loaded and all((context, number) in self._constants for number in self.plan.constants)

    def graph_records(self, stream: int) -> GraphRecords:
        """Where launches that `stream` is being captured with leave their records: for `run`, once."""
        clock = clock_of(self.driver)
        return GraphRecords(self.driver, clock, stream, self.capture(stream), graph_of(self.driver, stream))

    def entry(self, dims: Sequence[int]) -> Callable[..., bool] | None:
        """`quick(*pointers, *scalars, stream)` at these sizes in the current context: the same run with nothing but its
        launches, True with nothing done where `run` is needed. None where only `run` knows the program."""
        if not self._plain:
            return None
        context = self.driver.ensure_context(0, (), self.device)
        find = self._ready.setdefault((context, *dims), {}).get
        return straight.entry(self.driver.bindings.cuCtxGetCurrent, context, find, *self._names())

    def _names(self) -> tuple[list[str], list[str]]:
        """The parameters of generated functions: addresses and scalars."""
        return [f"a{i}" for i in range(len(self.plan.bound))], [f"s{i}" for i in range(self.artifact.meta["scalars"])]

    def _straight(self, dims: Sequence[int], stream: int) -> Callable[..., None]:
        """The launches at these sizes for the calling thread. Addresses are the arguments', then constants', then those
        of temporaries, which are in one workspace."""
        meta = self.artifact.meta
        env = dict(zip(meta["free"], dims, strict=True))
        pointers, scalars = self._names()
        places = dict(zip(self.plan.bound, pointers, strict=True))
        places |= {n: str(self.constant(n, data, stream)) for n, data in self.plan.constants.items()}
        own, workspace = self.plan.workspace(env)
        places |= {number: f"own + {begin}" for number, begin in own.items()}
        slots = {number: slot for slot, number in enumerate(places)}
        launches: list[PreparedKernel] = []
        for _, name, args in meta["steps"]:
            facts = meta["kernels"][name]
            grid = steps.grid_size(self.plan, name, env)
            if grid:
                p = prepare(self.driver, self.plan, facts, args, env, slots)
                p.grid = min(grid, self.resident(name, stream)) if facts["persistent"] else grid
                p.threads, p.shared = facts["threads"], facts["shared"]
                p.function = self.function(name, stream)
                launches.append(p)
        if workspace:
            self._keep_workspaces()
        return straight.straight(
            self.driver,
            self.launched,
            launches,
            list(places.values()),
            [*pointers, *scalars],
            workspace if launches else 0,
        )

    def _keep_workspaces(self) -> None:
        """Lets the device's memory pool keep freed memory; by default every synchronisation gives it back to the
        system, and the next run would have to ask for it again."""
        b = self.driver.bindings
        attribute = b.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        pool = self.driver("cuDeviceGetDefaultMemPool", self.driver("cuCtxGetDevice"))
        if not int(self.driver("cuMemPoolGetAttribute", pool, attribute)):  # none was chosen
            self.driver("cuMemPoolSetAttribute", pool, attribute, b.cuuint64_t(2**64 - 1))


def _bytes_of(data: bytes) -> ctypes.Array[ctypes.c_char]:
    """Memory with an address that holds `data`."""
    return ctypes.create_string_buffer(data, max(1, len(data)))


class _DeviceMachine:
    """`steps.Machine` on a stream of the current context, which a graph may be captured from. `aside`: copies from and
    to the host go over the profiler's own stream, where nobody takes them for the program's."""

    def __init__(self, executable: DeviceExecutable, stream: int, graph: GraphRecords | None, aside: bool) -> None:
        self.executable, self.driver, self.stream, self.graph = executable, executable.driver, stream, graph
        self.copies = clock_of(self.driver).stream if aside else stream

    def allocate(self, size: int) -> int:
        return int(self.driver("cuMemAllocAsync", size, self.stream))

    def free(self, address: int) -> None:
        self.driver("cuMemFreeAsync", address, self.stream)

    def constant(self, number: int, data: bytes) -> int:
        return self.executable.constant(number, data, self.stream)

    def upload(self, address: int, data: bytes) -> None:
        self.driver.refuse_capture(self.stream, WAITING)
        held = _bytes_of(data)
        self._settle()
        self.driver("cuMemcpyHtoDAsync", address, ctypes.addressof(held), len(data), self.copies)
        self.driver("cuStreamSynchronize", self.copies)  # `held` is freed on return

    def download(self, address: int, size: int) -> bytes:
        self.driver.refuse_capture(self.stream, WAITING)
        out = ctypes.create_string_buffer(size)
        self._settle()
        self.driver("cuMemcpyDtoHAsync", ctypes.addressof(out), address, size, self.copies)
        self.driver("cuStreamSynchronize", self.copies)
        return out.raw

    def _settle(self) -> None:
        """Before a copy over another stream: the memory is there, and what writes it has run."""
        if self.copies != self.stream:
            self.driver("cuStreamSynchronize", self.stream)

    def copy(self, to: int, source: int, size: int) -> None:
        self.driver("cuMemcpyDtoDAsync", to, source, size, self.stream)

    def tensor_map(self, tensor: steps.BoundTensorMap) -> bytes:
        return encode_tensor_map(self.driver, tensor)

    def resident(self, kernel: str) -> int:
        return self.executable.resident(kernel, self.stream)

    def records(self, launch: int, programs: int, phases: Sequence[Sequence[int]]) -> int | None:
        return self.graph.place(launch, programs, phases) if self.graph is not None else None

    def host_times(self, times: Any) -> Any:
        return clock_of(self.driver).host(times)

    def launch(self, call: steps.KernelCall) -> None:
        packed = [aligned_room(max(16, len(a))) for a in call.arguments]
        for place, argument in zip(packed, call.arguments, strict=True):
            ctypes.memmove(place, argument, len(argument))
        table = (ctypes.c_void_p * max(1, len(packed)))(*(ctypes.addressof(p) for p in packed))
        function = self.executable.function(call.kernel, self.stream)
        contexts.recent.append(self.executable.launched)
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
        if self.executable.debug:  # what fails now is this kernel's: its line is known
            (status,) = self.driver.bindings.cuStreamSynchronize(self.stream)
            if int(status):
                self.driver.fail(status, call.kernel, (call.kernel, self.executable.places[call.kernel]))


_live: weakref.WeakSet[DeviceExecutable] = weakref.WeakSet()


def _after_fork() -> None:
    for executable in list(_live):
        executable.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
