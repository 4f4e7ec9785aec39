"""CUDA kernels against their peers on this machine's GPU: memory-bound kernels, products, attention, launches.

PYTHONPATH=. python3 benchmarks/gpu.py [--json] [--only NAME] [--minimal] [--host]

Every result is checked before it is timed, inputs are random, outputs poisoned. Times are medians over repetitions with
CUDA events; "cold" flushes the L2 cache before each repetition. Without a GPU nothing is measured and nothing printed
but the reason, except what `--host` asks for. A case that fails is told, and the others go on.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
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
    """`ours` and `peers` in microseconds; `rate` in GB/s or TFLOP/s, as `unit` says; `spread`: between quartiles."""

    name: str
    ours: float
    spread: float
    peers: dict[str, float | str]
    """the reason where there is no time"""
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
    """`ours` and `peers` write to outputs of their own; `check` compares ours with a reference."""

    name: str
    ours: Callable[[], Any]
    peers: dict[str, Callable[[], Any]]
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


def close(torch: Any, got: Any, want: Any, rtol: float, atol: float | None = None) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=rtol, atol=rtol if atol is None else atol)


def runner(torch: Any, program: Any, *tensors: Any, scalars: tuple[float, ...] = ()) -> Callable[[], None]:
    """Launches an executable on tensors, on PyTorch's current stream."""

    def run() -> None:
        stream = int(torch.cuda.current_stream().cuda_stream)
        program.run([t.data_ptr() for t in tensors], scalars, [], stream=stream)

    return run


def triton(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as torch.compile's Triton kernels."""
    return torch.compile(function, dynamic=False)


def memory_bound(torch: Any, quick: bool) -> Iterator[Case]:
    from tests.emulator import kernels as k

    n = 1 << (22 if quick else 27)
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    yield Case("copy (ceiling)", lambda: out.copy_(x), {}, lambda: None, 8.0 * n, "GB/s")
    start, peer_y = y.clone(), y.clone()
    run_saxpy = runner(torch, executable(k.saxpy(n=n, block=1024).program), x, y, scalars=(2.5,))

    def check_saxpy() -> None:
        y.copy_(start)
        run_saxpy()
        close(torch, y, 2.5 * x + start, 1e-5)

    yield Case("saxpy f32", run_saxpy, {"torch": lambda: peer_y.add_(x, alpha=2.5)}, check_saxpy, 12.0 * n, "GB/s")
    rows, cols = (512, 4096) if quick else (16384, 4096)
    a, o = torch.randn(rows, cols, device="cuda"), poison(torch, rows, cols, dtype=torch.float32)
    run_softmax = runner(torch, executable(k.softmax(rows=rows, cols=cols, block=1, warps=None).program), a, o)

    def check_softmax() -> None:
        run_softmax()
        close(torch, o, torch.softmax(a.double(), -1), 1e-5)

    fused = triton(torch, lambda x: torch.softmax(x, -1))
    peers = {"torch": lambda: torch.softmax(a, -1), "Triton": lambda: fused(a)}
    yield Case("softmax f32", run_softmax, peers, check_softmax, 8.0 * rows * cols, "GB/s")
    g, b = torch.randn(cols, device="cuda"), torch.randn(cols, device="cuda")
    norm_o = poison(torch, rows, cols, dtype=torch.float32)
    run_norm = runner(torch, executable(k.layernorm(rows=rows, cols=cols, warps=8).program), a, g, b, norm_o)

    def norm(x: Any, g: Any, b: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (cols,), g, b)

    def check_norm() -> None:
        run_norm()
        close(torch, norm_o, norm(a.double(), g.double(), b.double()), 1e-4)

    compiled = triton(torch, norm)
    peers = {"torch": lambda: norm(a, g, b), "Triton": lambda: compiled(a, g, b)}
    yield Case("layer norm f32", run_norm, peers, check_norm, 8.0 * rows * cols, "GB/s")


def products(torch: Any, quick: bool) -> Iterator[Case]:
    from tessera.language import dtypes as dt

    kinds: list[tuple[Any, Any, float]] = [
        (dt.bf16, torch.bfloat16, 1e-2), (dt.f16, torch.float16, 2e-3), (dt.tf32, torch.float32, 2e-3),
        (dt.f32, torch.float32, 2e-5),
    ]  # fmt: skip
    if torch.cuda.get_device_capability() >= (8, 9) and hasattr(torch, "float8_e4m3fn"):
        kinds.append((dt.fp8_e4m3, torch.float8_e4m3fn, 1e-2))
    for size in (1024,) if quick else (1024, 4096, 8192):
        for dtype, like, tolerance in kinds:
            if dtype != dt.f32 or size <= 4096:
                yield product_case(torch, size, dtype, like, tolerance)


def product_case(torch: Any, size: int, dtype: Any, like: Any, tolerance: float) -> Case:
    """A square product, its inputs rounded to their dtype before either side sees them."""
    from tessera.language import dtypes as dt

    eight = dtype == dt.fp8_e4m3
    out = dt.bf16 if eight else dtype
    a, b = (torch.randn(size, size, device="cuda").to(like) for _ in range(2))
    c = poison(torch, size, size, dtype=torch.bfloat16 if eight else like)
    run = runner(torch, executable(product_program(size, dtype, out)), a, b, c)

    def check() -> None:
        run()
        want = a[:256].double() @ b.double()
        close(torch, c[:256], want, tolerance, tolerance * size**0.5)

    if eight:  # cuBLAS wants the second operand with k innermost
        one, turned = torch.ones((), device="cuda"), b.t().contiguous().t()

        def scaled(fast: bool) -> Callable[[], Any]:
            options = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": fast}
            return lambda: torch._scaled_mm(a, turned, **options)

        peers = {"cuBLAS, f32 sums": scaled(False), "cuBLAS, fast sums": scaled(True)}
    else:
        other = torch.empty(size, size, device="cuda", dtype=like)

        def peer() -> None:
            torch.backends.cuda.matmul.allow_tf32 = dtype == dt.tf32
            torch.matmul(a, b, out=other)

        peers = {"cuBLAS": peer}
    return Case(f"matmul {dtype} {size}", run, peers, check, 2.0 * size**3, "TFLOP/s")


def product_program(size: int, dtype: Any, out: Any) -> Any:
    from tessera.compiler.ir.types import TileType
    from tests.emulator.harness import Arg, build

    def body(t: Any, a: Any, b: Any, c: Any) -> None:
        row, col = (t.iop("imul", t.program_id(i), t.index(128)) for i in (0, 1))
        acc = t.value("tile.contract", [a, b, row, col], TileType((128, 128), dtype.accumulate))
        t.store(c, t.cast(acc, out), [row, col])

    shape = (size, size)
    args = [Arg("A", shape, dtype), Arg("B", shape, dtype), Arg("C", shape, out, out=True)]
    return build("matmul", args, (size // 128, size // 128), body, num_warps=8, num_stages=3)


def fused(torch: Any, quick: bool) -> Iterator[Case]:
    """A whole-tensor function: product, bias and activation in one launch, through the runtime's own calls."""
    import tessera as ts

    @ts.function
    def layer(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["K", "N", ts.bf16], b: ts.Tensor["N", ts.bf16]):
        return ts.gelu(x @ w + b)

    size = 1024 if quick else 8192
    x, w, b = (
        torch.randn(*s, device="cuda", dtype=torch.bfloat16) / size**0.25 for s in ((size, size), (size, size), (size,))
    )

    def peer(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(torch.addmm(b, x, w))

    def check() -> None:
        close(torch, layer(x, w, b)[:256], peer(x[:256].double(), w.double(), b.double()), 3e-2)

    compiled = triton(torch, peer)
    peers = {"cuBLAS + kernel": lambda: peer(x, w, b), "Triton": lambda: compiled(x, w, b)}
    yield Case(f"matmul + bias + gelu bf16 {size}", lambda: layer(x, w, b), peers, check, 2.0 * size**3, "TFLOP/s")


SPACE = [{"BLOCK_M": m, "BLOCK_N": n, "num_warps": w, "num_stages": 2}
         for m, n, w in ((64, 64, 4), (128, 64, 4), (128, 64, 8), (128, 128, 8), (64, 128, 4))]  # fmt: skip


def attention(torch: Any, quick: bool) -> Iterator[Case]:
    """A kernel as users write it, tuned over a few blocks in this run, against PyTorch's own."""
    import tessera as ts
    from tests.emulator.warpgroup_kernels import attention as kernel

    tuned = ts.numerics(fast=True)(ts.autotune.space(configs=SPACE)(kernel))  # a block of keys is part of the rounding
    heads, s = (4, 1024) if quick else (32, 8192)
    for d in (64, 128):
        q, key, v = (torch.randn(heads, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        for causal in (True, False):

            def run(q: Any = q, key: Any = key, v: Any = v, causal: bool = causal) -> Any:
                return tuned(q, key, v, causal)

            def peer(q: Any = q, key: Any = key, v: Any = v, causal: bool = causal) -> Any:
                found = torch.nn.functional.scaled_dot_product_attention(q[None], key[None], v[None], is_causal=causal)
                return found[0]

            def check(run: Any = run, peer: Any = peer, q: Any = q, key: Any = key, v: Any = v) -> None:
                got = run()
                for h in (0, heads - 1):
                    close(torch, got[h], peer(*(x[h : h + 1].float() for x in (q, key, v)))[0], 2e-2)

            work = 4.0 * heads * s * s * d / (2 if causal else 1)  # what is masked is not counted, as peers count it
            name = f"attention bf16 {'causal ' if causal else ''}{heads}x{s}x{d}"
            yield Case(name, run, {"torch SDPA": peer}, check, work, "TFLOP/s")


def launch_overhead(torch: Any) -> dict[str, float]:
    """Host time of one launch in microseconds: ours, and the bare driver call with packed parameters."""
    import tessera as ts
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

    @ts.kernel
    def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], a: ts.f32):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = a * x[i] + y[i]

    @ts.function
    def two(x: ts.Tensor["n", "m", ts.f32], y: ts.Tensor["m", "n", ts.f32]):
        return ts.softmax(x @ y)

    m = torch.randn(64, 64, device="cuda")
    timed("call of a kernel", lambda: saxpy(x, y, 2.0))
    timed("call of a function, 2 launches", lambda: two(m, m))
    timed("torch add_", lambda: y.add_(x, alpha=2.0))
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


def on_the_host(quick: bool) -> Iterator[tuple[str, float]]:
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


def measure(case: Case, clock: Clock, cold: bool) -> Result:
    ours = clock(case.ours, cold)
    peers: dict[str, float | str] = {}
    for name, call in case.peers.items():
        try:
            peers[name] = statistics.median(clock(call, cold))
        except Exception as e:  # a peer that is not installed, or has no kernel for this GPU
            peers[name] = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:100]
    low, middle, high = statistics.quantiles(ours, n=4)
    rate = case.amount / middle / (1e3 if case.unit == "GB/s" else 1e6)
    return Result(case.name, middle, high - low, peers, rate, case.unit, "cold" if cold else "warm", len(ours))


def run_suite(suite: Callable[..., Iterator[Case]], torch: Any, clock: Clock, options: argparse.Namespace) -> int:
    """The number of cases that failed: they are told, and the others go on."""
    failed = 0
    cases = suite(torch, options.quick)
    while True:
        name = suite.__name__
        try:
            case = next(cases, None)
            if case is None:
                return failed
            name = case.name
            if options.only in name:
                case.check()
                for cold in (False, True):
                    show(measure(case, clock, cold), options.json)
        except Exception as e:
            failed += 1
            said = "; ".join(line.strip() for line in str(e).splitlines() if line.strip()) or type(e).__name__
            print(
                json.dumps({"failed": name, "why": said}) if options.json else f"{name:38s} FAILED: {said}", flush=True
            )
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description="Tessera's CUDA kernels against their peers, on this machine's GPU")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--only", default="", help="run the cases whose name holds this text")
    parser.add_argument("--quick", "--minimal", action="store_true", help="small sizes: checks that everything runs")
    parser.add_argument(
        "--host", action="store_true", help="only what needs no GPU: compilations, Python's share of launches"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # compiles and tunes afresh, and leaves nothing behind
        os.environ["TESSERA_CACHE_DIR"] = folder
        return run(options)


def run(options: argparse.Namespace) -> int:
    """The exit status: 1 where a case has failed, 2 where there is nothing to measure on."""
    if options.host:
        for what, took in on_the_host(options.quick):
            print(json.dumps({"host": what, "time": took}) if options.json else f"{what:58s} {took:9.2f}")
        return 0
    from tests.device import gpu

    if reason := gpu.missing():
        print(f"Nothing measured: {reason}", file=sys.stderr)
        return 2
    import torch

    torch.manual_seed(0)
    clock = Clock(torch, 10 if options.quick else 30)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(json.dumps(about) if options.json else ", ".join(about.values()), flush=True)
    suites = (memory_bound, products, fused, attention)
    failed = sum(run_suite(suite, torch, clock, options) for suite in suites)
    if options.only in "launch":
        overhead = launch_overhead(torch)
        print(json.dumps(overhead) if options.json else "  ".join(f"{k}: {v:.2f} us" for k, v in overhead.items()))
    return 1 if failed else 0


def show(r: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(r)), flush=True)
        return
    against = [
        f"{name} {t:9.1f} us, {t / r.ours:5.2f}x" if isinstance(t, float) else f"{name}: {t}"
        for name, t in r.peers.items()
    ]
    measured = f"{r.ours:9.1f} us +- {r.spread:6.1f}  {r.rate:8.1f} {r.unit:8s}"
    print(f"{r.name:38s} {r.cache:4s} {measured} {';  '.join(against)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
