"""CUDA kernels against their peers on this machine's GPU: memory-bound kernels, products, attention, launches.

PYTHONPATH=. python3 benchmarks/gpu.py [--json] [--only NAME] [--quick] [--host]

Every result is checked before it is timed, inputs are random, outputs poisoned. Times are medians over repetitions with
CUDA events; "cold" flushes the L2 cache before each repetition. Without a GPU nothing is measured and nothing printed
but the reason, except what `--host` asks for.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

FLUSH_BYTES = 256 << 20
"""More than the L2 cache of any GPU: writing it evicts everything else."""


@dataclass(frozen=True)
class Result:
    """`ours` and `peer` in microseconds; `rate` in GB/s or TFLOP/s, as `unit` says; `spread`: between quartiles."""

    name: str
    peer_name: str
    ours: float
    spread: float
    peer: float | None
    rate: float
    unit: str
    cache: str
    samples: int


class Clock:
    """Times work enqueued on the current PyTorch stream."""

    def __init__(self, torch: Any, repeats: int) -> None:
        self.torch, self.repeats = torch, repeats
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def __call__(self, work: Callable[[], Any], cold: bool) -> list[float]:
        for _ in range(3):
            work()
        times: list[float] = []
        for _ in range(self.repeats):
            if cold:
                self.flush.zero_()
            start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) * 1e3)
        return times


@dataclass
class Case:
    """`ours` and `peer` write to outputs of their own; `check` compares them with a reference."""

    name: str
    peer_name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any] | None
    check: Callable[[], None]
    amount: float
    unit: str


def executable(program: Any) -> Any:
    """The program compiled for the GPU of this machine and loaded."""
    from tests.device import gpu

    target = gpu.target()
    return target.load(target.compile(program))


def poison(torch: Any, *shape: int, dtype: Any) -> Any:
    return torch.full(shape, float("nan"), dtype=dtype, device="cuda")


def close(torch: Any, got: Any, want: Any, tolerance: float) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


def memory_bound(torch: Any, quick: bool) -> Iterator[Case]:
    from tests.emulator import kernels as k

    def stream() -> int:
        return int(torch.cuda.current_stream().cuda_stream)

    n = 1 << (22 if quick else 27)
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    yield Case("copy (ceiling)", "", lambda: out.copy_(x), None, lambda: None, 8.0 * n, "GB/s")
    program = executable(k.saxpy(n=n, block=1024).program)
    start, peer_y = y.clone(), y.clone()

    def check_saxpy() -> None:
        y.copy_(start)
        program.run([x.data_ptr(), y.data_ptr()], [2.5], [], stream=stream())
        close(torch, y, 2.5 * x + start, 1e-5)

    yield Case(
        "saxpy f32",
        "torch add_",
        lambda: program.run([x.data_ptr(), y.data_ptr()], [2.5], [], stream=stream()),
        lambda: peer_y.add_(x, alpha=2.5),
        check_saxpy,
        12.0 * n,
        "GB/s",
    )
    rows, cols = (512, 4096) if quick else (16384, 4096)
    a, o = torch.randn(rows, cols, device="cuda"), poison(torch, rows, cols, dtype=torch.float32)
    soft = executable(k.softmax(rows=rows, cols=cols, block=1, warps=None).program)

    def run_softmax() -> None:
        soft.run([a.data_ptr(), o.data_ptr()], [], [], stream=stream())

    def check_softmax() -> None:
        run_softmax()
        close(torch, o, torch.softmax(a.double(), -1), 1e-5)

    yield Case(
        "softmax f32",
        "torch softmax",
        run_softmax,
        lambda: torch.softmax(a, -1),
        check_softmax,
        8.0 * rows * cols,
        "GB/s",
    )
    g, b = torch.randn(cols, device="cuda"), torch.randn(cols, device="cuda")
    norm = executable(k.layernorm(rows=rows, cols=cols, warps=8).program)

    def run_norm() -> None:
        norm.run([a.data_ptr(), g.data_ptr(), b.data_ptr(), o.data_ptr()], [], [], stream=stream())

    def peer_norm() -> Any:
        return torch.nn.functional.layer_norm(a, (cols,), g, b)

    def check_norm() -> None:
        run_norm()
        close(torch, o, torch.nn.functional.layer_norm(a.double(), (cols,), g.double(), b.double()), 1e-4)

    yield Case("layer norm f32", "torch layer_norm", run_norm, peer_norm, check_norm, 8.0 * rows * cols, "GB/s")


def products(torch: Any, quick: bool) -> Iterator[Case]:
    from tessera.language import dtypes as dt
    from tests.emulator import kernels as k

    kinds = [(dt.bf16, torch.bfloat16, 2e-2), (dt.f16, torch.float16, 1e-2), (dt.f32, torch.float32, 1e-3)]
    for size in (1024,) if quick else (1024, 4096, 8192):
        for dtype, like, tolerance in kinds:
            if dtype == dt.f32 and size > 4096:
                continue
            a, b = (torch.randn(size, size, device="cuda", dtype=like) for _ in range(2))
            c, peer = poison(torch, size, size, dtype=like), torch.empty(size, size, device="cuda", dtype=like)
            program = executable(product_program(k, size, dtype))

            def run(program: Any = program, a: Any = a, b: Any = b, c: Any = c) -> None:
                stream = int(torch.cuda.current_stream().cuda_stream)
                program.run([a.data_ptr(), b.data_ptr(), c.data_ptr()], [], [], stream=stream)

            def check(run: Any = run, a: Any = a, b: Any = b, c: Any = c, tolerance: float = tolerance) -> None:
                run()
                close(torch, c[:256], a[:256].double() @ b.double(), tolerance * a.shape[0] ** 0.5)

            name = f"matmul {dtype} {size}"
            yield Case(
                name, "cuBLAS", run, lambda a=a, b=b, o=peer: torch.matmul(a, b, out=o), check, 2.0 * size**3, "TFLOP/s"
            )


def product_program(k: Any, size: int, dtype: Any) -> Any:
    from tessera.compiler.ir.types import TileType
    from tests.emulator.harness import Arg, build

    def body(t: Any, a: Any, b: Any, c: Any) -> None:
        row, col = (t.iop("imul", t.program_id(i), t.index(128)) for i in (0, 1))
        acc = t.value("tile.contract", [a, b, row, col], TileType((128, 128), dtype.accumulate))
        t.store(c, t.cast(acc, dtype), [row, col])

    shape = (size, size)
    args = [Arg("A", shape, dtype), Arg("B", shape, dtype), Arg("C", shape, dtype, out=True)]
    return build("matmul", args, (size // 128, size // 128), body, num_warps=8, num_stages=3)


def attention(torch: Any, quick: bool) -> Iterator[Case]:
    """The hand-built flash attention of the tests: one head, so that it stands for the code, not for a tuned kernel."""
    from tests.emulator import kernels as k

    for d in (64, 128):
        s = 1024 if quick else 8192
        q, key, v = (torch.randn(s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        o = poison(torch, s, d, dtype=torch.bfloat16)
        program = executable(k.attention(s=s, d=d, bm=64, bn=64, warps=4, causal=True).program)

        def run(program: Any = program, q: Any = q, key: Any = key, v: Any = v, o: Any = o) -> None:
            stream = int(torch.cuda.current_stream().cuda_stream)
            program.run([q.data_ptr(), key.data_ptr(), v.data_ptr(), o.data_ptr()], [], [], stream=stream)

        def peer(q: Any = q, key: Any = key, v: Any = v) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(
                q[None, None], key[None, None], v[None, None], is_causal=True
            )

        def check(run: Any = run, peer: Any = peer, o: Any = o) -> None:
            run()
            close(torch, o, peer()[0, 0], 4e-2)

        # The kernel visits every block of keys; the causal half counts, as peers count it.
        yield Case(
            f"attention bf16 causal {s}x{d}, one head", "torch SDPA", run, peer, check, 2.0 * s * s * d, "TFLOP/s"
        )


def launch_overhead(torch: Any) -> dict[str, float]:
    """Host time of one launch in microseconds: ours, and the bare driver call with packed parameters."""
    from tests.emulator import kernels as k

    program = executable(k.saxpy(n=1024, block=1024).program)
    x, y = (torch.randn(1024, device="cuda") for _ in range(2))
    pointers = [x.data_ptr(), y.data_ptr()]
    out: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> None:
        for _ in range(100):
            call()
        samples: list[float] = []
        for _ in range(30):
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(50):
                call()
            samples.append((time.perf_counter_ns() - start) / 50e3)
        out[name] = statistics.median(samples)

    timed("executable", lambda: program.run(pointers, [2.0], []))
    p = next(iter(next(iter(program._ready.values())).values())).__globals__["held0"]
    launch, table = program.driver.bindings.cuLaunchKernel, ctypes.addressof(p.parameters)
    timed("driver call", lambda: launch(p.function, p.grid, 1, 1, p.threads, 1, 1, p.shared, 0, table, 0))
    return out


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
    from tessera.compiler.targets.cuda.device import DeviceExecutable
    from tessera.compiler.targets.cuda.target import CudaTarget
    from tessera.runtime import devices

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


def on_the_host() -> Iterator[tuple[str, float]]:
    """(what, time) of what needs no GPU: Python's share of a launch in microseconds, compilations in milliseconds."""
    from tessera.compiler.targets import base
    from tessera.compiler.targets.cuda import nvrtc
    from tessera.compiler.targets.cuda.device import DeviceExecutable
    from tests.emulator import kernels as k

    def best(call: Callable[[], Any], rounds: int, per_round: int) -> float:
        times: list[float] = []
        for _ in range(rounds):
            start = time.perf_counter_ns()
            for _ in range(per_round):
                call()
            times.append((time.perf_counter_ns() - start) / per_round)
        return statistics.median(times)

    plain = """extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = a * x[i] + y[i];
    }"""
    for arch in ("sm_80", "sm_90a"):
        target = base.get(arch)
        start = time.perf_counter_ns()
        nvrtc.compile_cubin(plain, arch, "plain", [])
        yield f"compile, first use of NVRTC, a plain saxpy {arch} (ms)", (time.perf_counter_ns() - start) / 1e6
        yield (
            f"compile a plain saxpy {arch} (ms)",
            best(lambda a=arch: nvrtc.compile_cubin(plain, a, "p", []), 9, 1) / 1e6,
        )
        for name in ("saxpy", "softmax", "gemm_bf16", "attention"):
            program = k.TYPICAL[name]().program
            yield f"compile {name} {arch} (ms)", best(lambda t=target, p=program: t.compile(p), 9, 1) / 1e6
    artifact = base.get("sm_80").compile(k.saxpy(dim=k.N).program)
    executable: Any = DeviceExecutable(artifact, NoDriver)
    call = executable.run
    yield "Python's share of a launch (us)", best(lambda: call([4096, 8192], [2.0], [1024]), 30, 1000) / 1e3
    yield from calls_on_the_host(best)


def measure(case: Case, clock: Clock, cold: bool) -> Result:
    case.check()
    ours = clock(case.ours, cold)
    peer = clock(case.peer, cold) if case.peer else None
    low, middle, high = statistics.quantiles(ours, n=4)
    rate = case.amount / middle / (1e3 if case.unit == "GB/s" else 1e6)
    best = statistics.median(peer) if peer else None
    return Result(
        case.name, case.peer_name, middle, high - low, best, rate, case.unit, "cold" if cold else "warm", len(ours)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Tessera's CUDA kernels against their peers, on this machine's GPU")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", default="", help="run the cases whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="small sizes: checks that everything runs")
    parser.add_argument(
        "--host", action="store_true", help="only what needs no GPU: compilations, Python's share of launches"
    )
    options = parser.parse_args()
    if options.host:
        for what, took in on_the_host():
            print(json.dumps({"host": what, "time": took}) if options.json else f"{what:58s} {took:9.2f}")
        return 0
    from tests.device import gpu

    if reason := gpu.missing():
        print(f"Nothing measured: {reason}", file=sys.stderr)
        return 2
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    np.random.default_rng(0)
    clock = Clock(torch, 10 if options.quick else 50)
    print(
        json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__})
        if options.json
        else torch.cuda.get_device_name()
    )
    for suite in (memory_bound, products, attention):
        for case in suite(torch, options.quick):
            if options.only not in case.name:
                continue
            for cold in (False, True):
                show(measure(case, clock, cold), options.json)
    if options.only in "launch":
        overhead = launch_overhead(torch)
        print(json.dumps(overhead) if options.json else "  ".join(f"{k}: {v:.2f} us" for k, v in overhead.items()))
    return 0


def show(r: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(r)))
        return
    against = f"{r.peer_name} {r.peer:9.1f} us, {r.peer / r.ours:5.2f}x" if r.peer else ""
    print(f"{r.name:38s} {r.cache:4s} {r.ours:9.1f} us +- {r.spread:6.1f}  {r.rate:8.1f} {r.unit:8s} {against}")


if __name__ == "__main__":
    sys.exit(main())
