"""The launching code of the CUDA target over a driver made of host memory and the emulator."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import host_library, nvrtc
from tessera.compiler.targets.cuda.call import record_cost, records, steps
from tessera.compiler.targets.cuda.call.clock import NAME
from tessera.compiler.targets.cuda.call.device import DeviceExecutable, check_capability
from tessera.compiler.targets.cuda.call.launch import _ENCODE, MOST_ENCODED, PreparedMap, room
from tessera.compiler.targets.cuda.emulate import EmulatedExecutable, _HostMachine, tensor_map_bytes
from tessera.compiler.tile.program import Program
from tessera.errors import DebugCheckError, DeviceError, LaunchError, MissingDependency
from tessera.language import dtypes as dt
from tests.conftest import require
from tests.emulator import kernels as k
from tests.emulator.programs import loop_program, two_step_program
from tests.kernel_runner import program
from tests.unit.cuda.host_graphs import GraphCalls, HostGraphs

require("g++")


SKEW = 7_000_000_000_000
"""ns that the device's clock is ahead of the host's"""


class HostDriver(GraphCalls):
    """The part of cuda.bindings.driver that is used, on host memory. Kernels run in the emulator."""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=2,
    )  # fmt: skip
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(self, emulated: EmulatedExecutable, fail: str = "") -> None:
        self.machine, self.emulated, self.fail = _HostMachine(emulated), emulated, fail
        self.calls: list[str] = []
        self.graphs = HostGraphs()
        self.shared_raised: dict[str, int] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and object.__getattribute__(self, "fail") == name:
            return lambda *_: (SimpleNamespace(name="CUDA_ERROR_X", __int__=lambda: 1) and _Status(),)
        return object.__getattribute__(self, name)

    def cuCtxGetCurrent(self) -> Any:
        return 0, 7

    def cuCtxSetCurrent(self, context: int) -> Any:
        return (0,)

    def cuCtxGetDevice(self) -> Any:
        return 0, 0

    def cuDeviceGetAttribute(self, attribute: int, _: int) -> Any:
        return 0, (8, 6, 5)[attribute]

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, name: str, threads: int, shared: int) -> Any:
        facts = self.emulated.artifact.meta["kernels"][name]
        assert (threads, shared) == (facts["threads"], facts["shared"])
        return 0, 2

    def cuModuleLoadData(self, code: int) -> Any:
        if status := self.graphs.unsafe("cuModuleLoadData"):
            return status, None
        text = ctypes.string_at(code)
        if NAME not in text and not text.startswith(b"\x7fELF"):  # those that measure are not the program's
            self.calls.append("load")
        return 0, code

    def cuModuleUnload(self, _: Any) -> Any:
        return (0,)

    def cuModuleGetFunction(self, _: Any, name: bytes) -> Any:
        return 0, name.decode().removesuffix("_kernel")

    def cuFuncSetAttribute(self, f: str, _: int, size: int) -> Any:
        self.shared_raised[f] = size
        return (0,)

    def cuMemAllocAsync(self, size: int, _: int) -> Any:
        return 0, self.machine.allocate(size)

    def cuMemAlloc(self, size: int) -> Any:
        if status := self.graphs.unsafe("cuMemAlloc"):
            return status, None
        self.calls.append("memory")
        return 0, self.machine.allocate(size)

    def cuMemFree(self, address: int) -> Any:
        self.calls.append("memory is free")
        self.machine.free(address)
        return (0,)

    def cuMemcpyHtoD(self, to: int, data: bytes, size: int) -> Any:
        if status := self.graphs.unsafe("cuMemcpyHtoD"):
            return (status,)
        self.calls.append("constant")
        ctypes.memmove(to, data, size)
        return (0,)

    CUmemPool_attribute = SimpleNamespace(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4)
    cuuint64_t = int
    threshold = 0

    def cuDeviceGetDefaultMemPool(self, _: int) -> Any:
        return 0, "pool"

    def cuMemPoolGetAttribute(self, pool: str, attribute: int) -> Any:
        assert (pool, attribute) == ("pool", 4)
        return 0, self.threshold

    def cuMemPoolSetAttribute(self, pool: str, attribute: int, value: int) -> Any:
        self.threshold = value
        self.calls.append("threshold")
        return (0,)

    def cuMemFreeAsync(self, address: int, stream: int) -> Any:
        if stream not in self.graphs.open:  # a graph's memory is its own, until it is gone
            self.machine.free(address)
        return (0,)

    def cuMemcpyHtoDAsync(self, to: int, data: int, size: int, stream: int) -> Any:
        assert stream not in self.graphs.open, "the host's memory will have gone when the graph runs"
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        ctypes.memmove(to, data, size)
        self._tell("copy", "HTOD", stream, size, start)
        return (0,)

    def cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> Any:
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        ctypes.memmove(to, source, size)
        self._tell("copy", "DTOH", stream, size, start)
        return (0,)

    def cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> Any:
        self._enqueue(stream, lambda: ctypes.memmove(to, source, size) and None)
        return (0,)

    def _enqueue(self, stream: int, work: Any) -> None:
        graph = self.graphs.open.get(stream)
        if graph is None:
            work()
        else:
            graph.nodes.append(work)

    capturing = False

    def cuStreamIsCapturing(self, stream: int) -> Any:
        return 0, int(self.capturing or stream in self.graphs.open)

    def cuLaunchKernel(
        self,
        name: str,
        gx: int,
        gy: int,
        gz: int,
        bx: int,
        by: int,
        bz: int,
        shared: int,
        stream: int,
        params: int,
        extra: int,
    ) -> Any:
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        if name == NAME.decode():
            place = ctypes.c_uint64.from_address(ctypes.c_void_p.from_address(params).value or 0).value
            ctypes.c_uint64.from_address(place).value = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + SKEW
            return (0,)
        if name == record_cost.NAME:
            places = [ctypes.c_uint64.from_address(p).value for p in (ctypes.c_void_p * 2).from_address(params)]
            ctypes.c_uint64.from_address(places[1]).value = record_cost.TIMES * 50
            ctypes.c_uint64.from_address(places[1] + 8).value = record_cost.TIMES * 2
            return (0,)
        self.calls.append(f"{name} on {stream}")
        self.blocks = gx
        facts = self.emulated.artifact.meta["kernels"][name]
        table = (ctypes.c_void_p * len(facts["parameters"])).from_address(params)
        arguments = self._parameters(table, facts)
        assert (bx, shared) == (facts["threads"], facts["shared"])
        library, packed = self.emulated.library, [ctypes.create_string_buffer(a, len(a)) for a in arguments]

        def run() -> None:
            start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self.machine_launch(library, name, gx, packed, facts)
            self._tell("kernel", f"{name}_kernel", stream, gx, start)

        self._enqueue(stream, run)
        return (0,)

    def _parameters(self, table: Any, facts: dict[str, Any]) -> list[bytes]:
        """What the parameters hold. The driver reads tensor maps where they lie."""
        out: list[bytes] = []
        for place, (kind, _) in zip(table, facts["parameters"], strict=True):
            assert kind != "tensor_map" or place % 64 == 0, "a tensor map lies at a multiple of 64 bytes"
            out.append(ctypes.string_at(place, room(kind)))
        return out

    ran: ClassVar[list[Callable[[str, str, int, int, int, int], None]]] = []
    """told of what has run: kernel or copy, its name, stream, bytes, start and end"""

    def _tell(self, what: str, name: str, stream: int, amount: int, start: int) -> None:
        for listener in self.ran:
            listener(what, name, stream, amount, start, time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def machine_launch(self, library: Any, name: str, grid: int, packed: list[Any], facts: dict[str, Any]) -> None:
        """Pointers stand for the whole of the test's arrays."""
        windows = [(n, b, s, True) for n, b, s in self.windows]
        windows += [("own", place, len(block) - 256, True) for place, block in self.machine.memory.items()]
        self.machine.launch(
            steps.KernelCall(name, grid, facts["threads"], facts["shared"], [p.raw for p in packed], windows)
        )
        for (kind, _), argument in zip(facts["parameters"], packed, strict=True):
            if kind == "records":
                self._skew(int.from_bytes(argument.raw[:8], "little"))

    def _skew(self, place: int) -> None:
        """The emulator has the host's clock: the starts of the run that has just ended are put on the device's."""
        ended, room, programs, phases = records.HEAD.unpack(ctypes.string_at(place, records.HEAD.size))
        runs = ended // programs
        for i in range(programs if runs <= room else 0):
            at = place + records.HEAD.size + records.record_bytes(phases) * (programs * (runs - 1) + i)
            ctypes.c_uint64.from_address(at).value += SKEW

    windows: list[tuple[str, int, int]] = []  # noqa: RUF012 - set by each test


class _Status(int):
    name = "CUDA_ERROR_X"

    def __new__(cls) -> _Status:
        return super().__new__(cls, 1)


class HopperDriver(HostDriver):
    """With tensor maps: what the driver is asked to encode becomes the emulator's, so that a wrong request shows."""

    def __init__(self, emulated: EmulatedExecutable) -> None:
        super().__init__(emulated)
        real = pytest.importorskip("cuda.bindings.driver")  # its types, no driver library
        for name in ("DataType", "Interleave", "Swizzle", "L2promotion", "FloatOOBfill"):
            setattr(self, f"CUtensorMap{name}", getattr(real, f"CUtensorMap{name}"))
        self.real, self.encoded = real, 0
        self.entry = _ENCODE(self._encode)
        self.problem: BaseException | None = None
        """what was wrong with a request: exceptions do not pass through a C call"""

    def cuDeviceGetAttribute(self, attribute: int, _: int) -> Any:
        return 0, (9, 0)[attribute]

    def cuGetProcAddress(self, symbol: bytes, version: int, flags: int) -> Any:
        assert (symbol, version, flags) == (b"cuTensorMapEncodeTiled", 12000, 0)
        return 0, ctypes.cast(self.entry, ctypes.c_void_p).value, 0

    def _encode(self, out: int, *request: Any) -> int:
        """As the driver: what it does not take is CUDA_ERROR_INVALID_VALUE."""
        try:
            self._encode_at(out, *request)
        except Exception as e:
            self.problem = e
            return 1
        return 0

    def _encode_at(
        self, out: int, dtype: int, rank: int, address: int, sizes: int, strides: int, box: int, steps_: int,
        interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> None:  # fmt: skip
        assert out % 64 == 0, "a tensor map lies at a multiple of 64 bytes"
        self.encoded += 1
        wide = [(ctypes.c_uint64 * n).from_address(p)[:] for p, n in ((sizes, rank), (strides, rank - 1))]
        narrow = [(ctypes.c_uint32 * rank).from_address(p)[:] for p in (box, steps_)]
        assert address % 16 == 0 and all(s % 16 == 0 and 0 < s < 2**40 for s in wide[1])
        assert all(0 < n <= 256 for n in narrow[0])
        assert all(0 < n <= 2**32 for n in wide[0]) and narrow[1] == [1] * rank
        real = self.real
        kinds = [(real.CUtensorMapInterleave, interleave), (real.CUtensorMapSwizzle, swizzle),
                 (real.CUtensorMapFloatOOBfill, fill)]  # fmt: skip
        line = (
            f"{narrow[0][0] * (4 if dtype == int(real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_TFLOAT32) else 2)}B"
        )
        assert [kind(n).name.rpartition("_")[2] for kind, n in kinds] == ["NONE", line, "NONE"]
        assert real.CUtensorMapL2promotion(promotion).name.endswith("256B")
        named = {"FLOAT16": "f16", "BFLOAT16": "bf16", "TFLOAT32": "tf32"}
        name = named[real.CUtensorMapDataType(dtype).name.rpartition("_")[2]]
        data = tensor_map_bytes(steps.BoundTensorMap(address, name, tuple(wide[0]), tuple(wide[1]), tuple(narrow[0])))
        ctypes.memmove(out, data, len(data))


def loaded(program: Program, **options: Any) -> tuple[DeviceExecutable, HostDriver]:
    target = base.get("emulator:sm_80")
    artifact = generate(program, target, **options)
    emulated: Any = target.load(artifact)
    artifact.target = "sm_80"
    artifact.files["code.cubin"] = b"cubin"
    bindings = HostDriver(emulated)
    return DeviceExecutable(artifact, bindings), bindings


def aligned(x: Any) -> Any:
    raw = np.empty(x.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    out = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def use(bindings: HostDriver, *arrays: Any) -> list[int]:
    bindings.windows = [(f"array{i}", a.ctypes.data, a.nbytes) for i, a in enumerate(arrays)]
    return [a.ctypes.data for a in arrays]


def test_prepared_launches_take_new_pointers_scalars_and_sizes() -> None:
    executable, bindings = loaded(k.saxpy(dim=k.N).program)
    for n, alpha in ((1000, 2.0), (1000, -1.0), (256, 0.5)):
        x, y = aligned(k.normal(n)), aligned(k.normal(n))
        expected = np.float32(alpha) * x + y
        executable.run(use(bindings, x, y), [alpha], [n], stream=5)
        np.testing.assert_array_equal(y, expected)
    assert bindings.calls.count("load") == 1, "the module is loaded once"
    assert bindings.calls.count("saxpy on 5") == 3


def hopper(program: Program) -> tuple[DeviceExecutable, HopperDriver]:
    target = base.get("emulator:sm_90a")
    artifact = generate(program, target)
    emulated: Any = target.load(artifact)
    artifact.target = "sm_90a"
    artifact.files["code.cubin"] = b"cubin"
    bindings = HopperDriver(emulated)
    return DeviceExecutable(artifact, bindings), bindings


def test_tensor_maps_are_encoded_once_for_each_address() -> None:
    case = k.matmul(m=72, n=40, k=64, dtype=dt.bf16, block=(64, 32))
    executable, bindings = hopper(case.program)
    out = aligned(np.zeros((72, 40), dt.bf16.numpy))
    arrays = [[aligned(case.inputs[n]) for n in "AB"] for _ in range(2)]
    for round in range(3):
        a, b = arrays[round % 2]
        out[...] = 0
        executable.run(use(bindings, a, b, out), [], [], stream=3)
        np.testing.assert_allclose(out.astype(float), case.expected["C"], rtol=2e-2, atol=2e-2)  # type: ignore[index]
    assert bindings.encoded == 4, "two operands, two addresses each"


def test_kept_tensor_maps_are_bounded() -> None:
    case = k.matmul(m=8, n=8, k=8, dtype=dt.bf16, block=(8, 8))
    executable, bindings = hopper(case.program)
    kept = PreparedMap(executable.driver, steps.BoundTensorMap(0, "bf16", (8, 8), (16,), (64, 8)))
    for address in range(0, 16 * (MOST_ENCODED + 40), 16):
        assert kept.at(address) == kept.encoded[address]
        assert len(kept.encoded) <= MOST_ENCODED
    assert bindings.encoded == MOST_ENCODED + 40


def test_a_launch_that_is_not_prepared_encodes_its_tensor_maps() -> None:
    case = k.matmul(m=8, n=8, k=8, dtype=dt.f16, block=(8, 8))
    executable, bindings = hopper(case.program)
    arrays = [aligned(np.concatenate([np.zeros(1, x.dtype), x.reshape(-1)])) for x in case.inputs.values()]
    a, b = (x[1:] for x in arrays)  # start between 16-byte boundaries: copied first
    out = aligned(np.zeros((8, 8), np.float16))
    executable.run(use(bindings, a, b, out), [], [])
    np.testing.assert_allclose(out.astype(float), case.expected["C"], rtol=2e-2, atol=2e-2)  # type: ignore[index]


def test_scalars_beyond_their_dtype_and_of_dtypes_without_a_letter() -> None:
    executable, bindings = loaded(k.saxpy(n=100).program)
    x, y = aligned(k.normal(100)), aligned(k.normal(100))
    expected = np.full(100, np.inf, np.float32) * x
    with np.errstate(over="ignore"):
        executable.run(use(bindings, x, y), [1e300], [])
    np.testing.assert_array_equal(y, expected)


def test_graphs_capture_what_has_run_once() -> None:
    executable, bindings = loaded(k.saxpy(dim=k.N).program)
    x, y = aligned(k.normal(64)), aligned(k.normal(64))
    bindings.capturing = True
    with pytest.raises(DeviceError, match=r"TS611[\s\S]*Call it once"):
        executable.run(use(bindings, x, y), [1.0], [64], stream=9)
    assert not bindings.calls, "nothing was loaded or launched"
    bindings.capturing = False
    executable.run(use(bindings, x, y), [1.0], [64], stream=9)
    bindings.capturing = True
    for n in (64, 32):  # another size needs nothing that a capture forbids
        executable.run(use(bindings, x, y), [1.0], [n], stream=9)
    assert bindings.calls.count("saxpy on 9") == 3 and bindings.calls.count("load") == 1


def test_graphs_refuse_constants_that_are_not_there_yet_and_results_read_by_the_host() -> None:
    program, x, _ = two_step_program()
    executable, bindings = loaded(program)
    x, y = aligned(x), aligned(np.zeros_like(x))
    bindings.capturing = True
    with pytest.raises(DeviceError, match="TS611"):
        executable.run(use(bindings, x, y), [], [])
    assert "constant" not in bindings.calls
    program, _ = loop_program()
    executable, bindings = loaded(program)
    x, out = aligned(np.array([5.0], np.float32)), aligned(np.zeros(1, np.float32))
    executable.run(use(bindings, x, out), [], [])
    bindings.capturing = True
    with pytest.raises(DeviceError, match=r"TS611[\s\S]*on the host"):
        executable.run(use(bindings, x, out), [], [])


def test_threads_write_parameters_of_their_own() -> None:
    executable, bindings = loaded(k.saxpy(dim=k.N).program)
    x, y = aligned(k.normal(64)), aligned(k.normal(64))
    for _ in range(2):
        thread = threading.Thread(target=executable.run, args=(use(bindings, x, y), [1.0], [64]))
        thread.start()
        thread.join()
        executable.run(use(bindings, x, y), [1.0], [64])
    (threads,) = executable._ready.values()
    blocks = {id(go.__globals__["block0"]) for go in threads.values()}
    assert len(blocks) == len(threads) >= 2


def test_without_a_compiler_misaligned_arrays_are_copied_and_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Any:
        raise MissingDependency("NVRTC", "cuda", "Compiling for sm_80")

    monkeypatch.setattr(nvrtc, "compile_code", missing)
    executable, bindings = loaded(k.saxpy(n=500).program)
    x, y = aligned(k.normal(501))[1:], aligned(k.normal(501))[1:]
    expected = np.float32(3) * x + y
    executable.run(use(bindings, x, y), [3.0], [])
    np.testing.assert_array_equal(y, expected)


def test_no_launch_for_an_empty_array() -> None:
    executable, bindings = loaded(k.saxpy(dim=k.N).program)
    x = aligned(np.zeros(4, np.float32))
    executable.run(use(bindings, x, x), [1.0], [0])
    assert not [c for c in bindings.calls if "saxpy" in c]


def test_temporaries_constants_and_several_launches() -> None:
    program, x, expected = two_step_program()
    executable, bindings = loaded(program)
    x, y = aligned(x), aligned(np.zeros_like(x))
    for _ in range(2):
        y[...] = 0
        executable.run(use(bindings, x, y), [], [])
        np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert bindings.calls.count("constant") == 1, "constants are uploaded once"
    assert len(bindings.machine.memory) == 1, "what else a run allocates it frees"
    assert bindings.threshold == 2**64 - 1 and bindings.calls.count("threshold") == 1
    executable, bindings = loaded(program)
    bindings.threshold = 1 << 20
    executable.run(use(bindings, x, y), [], [])
    assert bindings.threshold == 1 << 20, "somebody else's choice stands"


def test_loops_and_branches_follow_what_kernels_write() -> None:
    program, expected = loop_program()
    executable, bindings = loaded(program)
    x, out = aligned(np.array([5.0], np.float32)), aligned(np.zeros(1, np.float32))
    executable.run(use(bindings, x, out), [], [])
    assert out[0] == expected


def test_debug_asserts_come_back_as_findings() -> None:
    from tests.emulator.programs import assert_program

    executable, bindings = loaded(assert_program(), debug=True)
    x = aligned(np.ones(40, np.float32))
    executable.run(use(bindings, x), [], [])
    x[33] = -1
    with pytest.raises(DebugCheckError, match="x must be positive"):
        executable.run(use(bindings, x), [], [])


def test_profiled_runs_give_a_record_per_program() -> None:
    seen: list[dict[str, Any]] = []
    executable, bindings = loaded(k.softmax(rows=6, block=2).program, profile=True)
    x, y = aligned(k.normal(6, 200)), aligned(np.zeros((6, 200), np.float32))
    executable.run(use(bindings, x, y), [], [], record=SimpleNamespace(record=seen.append))
    (columns,) = seen
    names = [
        "tile",
        "load",
        "reduce (line 7)",
        "compute (lines 9, 10, 11)",
        "reduce (line 12)",
        "compute (lines 14, 15)",
    ]
    assert executable.artifact.meta["phases"] == [*names, "store"]
    assert columns["tile"].tolist() == [tile for tile in range(3) for _ in range(6)]
    assert columns["phase"].tolist() == [1, 2, 3, 4, 5, 6] * 3 and set(columns["slot"].tolist()) == {-1}
    assert (columns["duration"] > 0).all() and (np.diff(columns["line"][:6]) > 0).all()


def doubled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    ts.tile.grid(persistent=True)
    y[tile_n : tile_n + 16] = x[tile_n : tile_n + 16] * 2


@pytest.mark.parametrize(("n", "blocks"), [(1000, 10), (100, 7)])
def test_persistent_kernels_have_as_many_blocks_as_run_at_a_time(n: int, blocks: int) -> None:
    """5 multiprocessors with 2 blocks each; prepared and not."""
    x, y = aligned(k.normal(n)), aligned(k.normal(n))
    executable, bindings = loaded(program(doubled, x, y))
    for record in (None, SimpleNamespace(record=print)):  # a recorded launch is not a prepared one
        y[...] = 99
        executable.run(use(bindings, x, y), [], [], record=record)
        np.testing.assert_array_equal(y, x * 2)
        assert bindings.blocks == blocks


def test_driver_errors_are_device_errors() -> None:
    executable, bindings = loaded(k.saxpy(n=100).program)
    bindings.fail = "cuLaunchKernel"
    x = aligned(k.normal(100))
    with pytest.raises(DeviceError, match="CUDA_ERROR_X"):
        executable.run(use(bindings, x, x), [1.0], [])


@pytest.mark.parametrize(
    ("target", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_100", (10, 3), True),
        ("sm_100", (9, 0), False),
        ("sm_90a", (10, 0), False),
        ("sm_120", (13, 0), True),
        ("sm_120", (12, 0), True),
        ("sm_120f", (12, 1), True),
        ("sm_120f", (13, 0), False),
    ],
)
def test_code_runs_on_its_own_architecture_only(target: str, capability: tuple[int, int], runs: bool) -> None:
    if runs:
        check_capability(target, capability)
    else:
        with pytest.raises(DeviceError, match=target):
            check_capability(target, capability)


def test_grids_beyond_the_limit_are_refused() -> None:
    executable, bindings = loaded(k.saxpy(block=1, dim=k.N).program)
    x = aligned(k.normal(16))
    with pytest.raises(LaunchError, match="at most 2147483647"):
        executable.run(use(bindings, x, x), [1.0], [2**32])


def test_scalars_are_packed_in_their_dtype() -> None:
    assert steps.pack_scalar(1.5, "bf16") == b"\xc0\x3f"
    assert steps.pack_scalar(-1, "int16") == b"\xff\xff"
    assert steps.pack_scalar(True, "bool") == b"\x01"
    assert steps.pack_scalar(1 + 2j, "complex64") == np.complex64(1 + 2j).tobytes()
    assert all(len(steps.pack_scalar(1, d.name)) == d.itemsize for d in dt.ALL)


def test_the_cost_of_a_record_is_measured_by_code_that_runs() -> None:
    """The measuring kernel in the emulator: it writes its records, and no run of it ends."""
    kernel = record_cost.NAME
    types = {kernel: ["ts::Records*", "ts::u64*"]}
    text = host_library.HostSource(record_cost.SOURCE, types, 80, "code", [])
    library: Any = ctypes.CDLL(str(host_library.build(text)))
    code: Any = SimpleNamespace(seed=0, text=text, library=library, path=host_library.build(text))
    machine = _HostMachine(code)
    place, took = machine.allocate(len(record_cost.head())), machine.allocate(16)
    machine.upload(place, record_cost.head())
    windows = [("records", place, len(record_cost.head()), True), ("took", took, 16, True)]
    arguments = [place.to_bytes(16, "little"), took.to_bytes(16, "little")]
    machine.launch(steps.KernelCall(kernel, 1, 128, record_cost.SHARED, arguments, windows))
    assert records.HEAD.unpack_from(machine.download(place, records.HEAD.size))[0] == record_cost.TIMES + 1
    record, reading = np.frombuffer(machine.download(took, 16), np.uint64)
    assert record > reading > 0


def test_the_cost_of_a_record_is_measured_once() -> None:
    executable, _ = loaded(k.softmax(rows=6, block=2).program, profile=True)
    record_cost._known.clear()
    assert executable.record_costs == executable.record_costs == (50.0, 2.0)
    plain, _ = loaded(k.softmax(rows=6, block=2).program)
    assert plain.record_costs is None
    record_cost._known.clear()
