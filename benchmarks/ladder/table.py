"""Times of what users write against its peers on this GPU. `python -m benchmarks.ladder.table NAME`

Each case is a process of its own: it checks the result on random inputs, times all contestants in turns, and names the
kernels that the peers ran. Needs PyTorch; other peers take part where they are installed.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tessera as ts
from benchmarks.ladder.clock import Time, Work, compare, first_line
from benchmarks.ladder.products import (
    product_bf16,
    product_bf16_turned,
    product_f16,
    product_f32,
    product_tf32,
    product_tf32_turned,
)
from benchmarks.ladder.runner import reporting, result

CASES: dict[str, Callable[[Any], Bench]] = {}
GB, TFLOP = "GB/s", "TFLOP/s"


@dataclass
class Bench:
    """`amount`: the bytes or the operations of one run, as `unit` says. `check` raises AssertionError."""

    ours: Work
    peers: dict[str, Work]
    check: Callable[[], None]
    amount: float
    unit: str
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """peers that are not here, and why"""


def case(name: str, *arguments: Any) -> Callable[[Any], Any]:
    def add(f: Any) -> Any:
        CASES[name] = lambda torch: f(torch, *arguments)
        return f

    return add


def close(torch: Any, got: Any, want: Any, rtol: float, atol: float | None = None) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=rtol, atol=rtol if atol is None else atol)


def triton(torch: Any, function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The function as Triton kernels that torch.compile writes, where Triton is here."""
    return {"Triton": torch.compile(function, dynamic=False)} if importlib.util.find_spec("triton") else {}


def without_triton() -> dict[str, str]:
    return {} if importlib.util.find_spec("triton") else {"Triton": "not installed"}


def product(torch: Any, function: Any, m: int, n: int, k: int) -> Bench:
    """`a @ b` as a user writes it: the kernel that it compiles to is the one that is timed."""
    name, turned = function.name, "turned" in function.name
    kind = torch.bfloat16 if "bf16" in name else torch.float16 if "_f16" in name else torch.float32
    tolerance = 1e-2 if "bf16" in name else 2e-3 if kind != torch.float32 or "tf32" in name else 2e-5
    torch.backends.cuda.matmul.allow_tf32 = "tf32" in name
    x, w = torch.randn(m, k, device="cuda").to(kind), torch.randn(k, n, device="cuda").to(kind)
    w = w.t().contiguous() if turned else w
    b, out = w.t() if turned else w, torch.empty(m, n, device="cuda", dtype=kind)

    def check() -> None:
        close(torch, function(x, w)[:256], x[:256].double() @ b.double(), tolerance, tolerance * k**0.5)

    peers = {"cuBLAS": lambda: torch.matmul(x, b, out=out)}
    return Bench(lambda: function(x, w), peers, check, 2.0 * m * n * k, TFLOP)


for _f, _sizes in (
    (product_bf16, (512, 1024, 4096, 8192)), (product_bf16_turned, (4096,)), (product_f16, (4096, 8192)),
    (product_tf32, (4096,)), (product_tf32_turned, (4096,)), (product_f32, (4096,)),
):  # fmt: skip
    for _n in _sizes:
        CASES[f"{_f.name} {_n}"] = lambda torch, f=_f, n=_n: product(torch, f, n, n, n)
CASES["product_bf16 4095x4097x4096"] = lambda torch: product(torch, product_bf16, 4095, 4097, 4096)


@ts.function
def layer(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["K", "N", ts.bf16], b: ts.Tensor["N", ts.bf16]):
    return ts.gelu(x @ w + b)


@case("product + bias + gelu bf16 8192")
def fused(torch: Any) -> Bench:
    """Product, bias and activation in one launch."""
    n = 8192
    x, w, b = (torch.randn(*s, device="cuda", dtype=torch.bfloat16) / n**0.25 for s in ((n, n), (n, n), (n,)))

    def peer(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(torch.addmm(b, x, w))

    def check() -> None:
        close(torch, layer(x, w, b)[:256], peer(x[:256].double(), w.double(), b.double()), 3e-2)

    peers: dict[str, Work] = {"cuBLAS, then gelu": lambda: peer(x, w, b)}
    peers |= {name: lambda f=f: f(x, w, b) for name, f in triton(torch, peer).items()}
    return Bench(lambda: layer(x, w, b), peers, check, 2.0 * n**3, TFLOP, without_triton())


SPACE = [{"BLOCK_M": m, "BLOCK_N": n, "num_warps": w, "num_stages": 2}
         for m, n, w in ((64, 64, 4), (128, 64, 8), (128, 128, 8))]  # fmt: skip


def attention(torch: Any, heads: int, s: int, d: int, causal: bool) -> Bench:
    """A kernel as users write it, tuned over a few blocks in this run."""
    from tests.emulator.warpgroup_kernels import attention as kernel

    tuned = ts.numerics(fast=True)(ts.autotune.space(configs=SPACE)(kernel))  # a block of keys is part of the rounding
    q, k, v = (torch.randn(heads, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def plain(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]

    def by(backend: str) -> Work:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def run() -> Any:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return plain(q, k, v)

        return run

    def check() -> None:
        got = tuned(q, k, v, causal)
        for h in (0, heads - 1):
            close(torch, got[h], plain(*(x[h : h + 1].float() for x in (q, k, v)))[0], 2e-2)

    peers = {"FlashAttention of PyTorch": by("FLASH_ATTENTION"), "cuDNN": by("CUDNN_ATTENTION")}
    missing: dict[str, str] = {}
    if importlib.util.find_spec("flash_attn"):
        peers["flash-attn"] = _flash(q, k, v, causal)
    else:
        missing["flash-attn"] = "not installed"
    work = 4.0 * heads * s * s * d / (2 if causal else 1)  # what is masked is not counted, as peers count it
    return Bench(lambda: tuned(q, k, v, causal), peers, check, work, TFLOP, missing)


def _flash(q: Any, k: Any, v: Any, causal: bool) -> Work:
    from flash_attn import flash_attn_func

    a, b, c = (x[None].transpose(1, 2).contiguous() for x in (q, k, v))
    return lambda: flash_attn_func(a, b, c, causal=causal)


for _d in (64, 128):
    for _causal in (True, False):
        CASES[f"attention bf16 {'causal ' if _causal else ''}32x4096x{_d}"] = lambda torch, d=_d, c=_causal: attention(
            torch, 32, 4096, d, c
        )


@ts.function
def softmax_f32(x: ts.Tensor["n", "m", ts.f32]):
    return ts.softmax(x, axis=-1)


@ts.function
def layer_norm_f32(x: ts.Tensor["n", "m", ts.f32], g: ts.Tensor["m", ts.f32], b: ts.Tensor["m", ts.f32]):
    return ts.layer_norm(x, g, b)


@ts.function
def sum_of_rows_f32(x: ts.Tensor["n", "m", ts.f32]):
    return ts.sum(x, axis=1)


@ts.function
def sum_of_columns_f32(x: ts.Tensor["n", "m", ts.f32]):
    return ts.sum(x, axis=0)


@ts.function
def sum_of_all_f32(x: ts.Tensor["n", "m", ts.f32]):
    return ts.sum(x)


@ts.function
def saxpy_f32(x: ts.Tensor["n", "m", ts.f32], y: ts.Tensor["n", "m", ts.f32]):
    return x * 2.5 + y


@ts.function
def rows_taken_f32(x: ts.Tensor["n", "m", ts.f32], i: ts.Tensor["k", ts.int64]):
    return ts.take(x, i, axis=0)


ROWS, COLS = 16384, 4096


def moved(torch: Any, ours: Any, peer: Callable[..., Any], inputs: tuple[Any, ...], size: float, tol: float) -> Bench:
    """Work that memory bounds. `size`: the bytes that must be read and written."""

    def check() -> None:
        close(torch, ours(*inputs), peer(*(x.double() if x.is_floating_point() else x for x in inputs)), tol)

    peers: dict[str, Work] = {"PyTorch": lambda: peer(*inputs)}
    peers |= {name: lambda f=f: f(*inputs) for name, f in triton(torch, peer).items()}
    return Bench(lambda: ours(*inputs), peers, check, size, GB, without_triton())


@case("copy (ceiling of bandwidth)")
def copy(torch: Any) -> Bench:
    x = torch.randn(ROWS, COLS, device="cuda")
    y = torch.empty_like(x)
    return Bench(lambda: y.copy_(x), {}, lambda: None, 8.0 * ROWS * COLS, GB)


def memory_bound(name: str, rows: int = ROWS, cols: int = COLS) -> Callable[[Any], Bench]:
    def make(torch: Any) -> Bench:
        x = torch.randn(rows, cols, device="cuda")
        both = 8.0 * rows * cols
        match name:
            case "softmax":
                return moved(torch, softmax_f32, lambda x: torch.softmax(x, -1), (x,), both, 1e-5)
            case "layer norm":
                g, b = torch.randn(cols, device="cuda"), torch.randn(cols, device="cuda")

                def norm(x: Any, g: Any, b: Any) -> Any:
                    return torch.nn.functional.layer_norm(x, (cols,), g, b)

                return moved(torch, layer_norm_f32, norm, (x, g, b), both, 1e-4)
            case "sum of rows":
                return moved(torch, sum_of_rows_f32, lambda x: x.sum(1), (x,), both / 2, 1e-3)
            case "sum of columns":
                return moved(torch, sum_of_columns_f32, lambda x: x.sum(0), (x,), both / 2, 1e-3)
            case "sum of all":
                return moved(torch, sum_of_all_f32, lambda x: x.sum(), (x,), both / 2, 1e-1)
            case "saxpy":
                y = torch.randn(rows, cols, device="cuda")
                return moved(torch, saxpy_f32, lambda x, y: torch.add(y, x, alpha=2.5), (x, y), 1.5 * both, 1e-5)
            case _:
                i = torch.randint(0, rows, (rows,), device="cuda")
                return moved(torch, rows_taken_f32, lambda x, i: x[i], (x, i), both, 0.0)

    return make


for _name in ("saxpy", "softmax", "layer norm", "sum of rows", "sum of columns", "sum of all", "gather of rows"):
    CASES[f"{_name} f32 {ROWS}x{COLS}"] = memory_bound(_name)
CASES["softmax f32 256x1024"] = memory_bound("softmax", 256, 1024)
CASES["sum of rows f32 256x1024"] = memory_bound("sum of rows", 256, 1024)


@ts.kernel
def small(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], a: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a * x[i] + y[i]


LAUNCHES = "launches, host time"


def launches(torch: Any) -> None:
    """Host time of a call that is not waited for, in microseconds."""
    x, y = (torch.randn(1024, device="cuda") for _ in range(2))
    works = {"ours": lambda: small(x, y, 2.0), "PyTorch add_": lambda: y.add_(x, alpha=2.0)}
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        for _ in range(100):
            work()
    for _ in range(30):
        for name, work in works.items():
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(50):
                work()
            times[name].append((time.perf_counter_ns() - start) / 50e3)
    torch.cuda.synchronize()
    low, middle, high = statistics.quantiles(times["ours"], n=4)
    peers = {"PyTorch add_": statistics.median(times["PyTorch add_"])}
    result("ok", us=middle, spread=high - low, peers=peers, rate=1e6 / middle, unit="calls/s", timed="host clock")


def kernels_of(torch: Any, work: Work) -> list[str]:
    """The names of the kernels that a call runs, as PyTorch's profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as p:
        work()
        torch.cuda.synchronize()
    return sorted({e.key for e in p.key_averages() if getattr(e, "device_time_total", 1) and "Memset" not in e.key})[:6]


def measure(torch: Any, bench: Bench) -> dict[str, Any]:
    bench.check()
    times = compare(torch, {"ours": bench.ours, **bench.peers})
    ours = times["ours"]
    if isinstance(ours, str):
        raise RuntimeError(f"our own work could not be timed: {ours}")
    peers: dict[str, Any] = {n: t.us if isinstance(t, Time) else t for n, t in times.items() if n != "ours"}
    spreads = {n: t.spread for n, t in times.items() if isinstance(t, Time)}
    timed = {n: t.timed for n, t in times.items() if isinstance(t, Time)}
    rate = bench.amount / ours.us / (1e3 if bench.unit == GB else 1e6)
    return {
        "us": ours.us, "spread": ours.spread, "samples": ours.samples, "timed": ours.timed, "rate": rate,
        "unit": bench.unit, "peers": {**peers, **bench.missing}, "spreads": spreads, "how": timed,
    }  # fmt: skip


def run(name: str) -> None:
    import torch

    from benchmarks.ladder.about import clocks

    if not torch.cuda.is_available():
        result("skipped", why="PyTorch sees no GPU")
        return
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    if name == LAUNCHES:
        launches(torch)
        return
    bench = CASES[name](torch)
    before = clocks()
    figures = {**measure(torch, bench), "clocks": [before, clocks()], "torch": torch.__version__}
    result("ok", **figures)
    named: dict[str, Any] = {}
    for peer, work in {"ours": bench.ours, **bench.peers}.items():
        try:
            named[peer] = kernels_of(torch, work)
        except Exception as e:
            named[peer] = first_line(e)
    result("ok", **figures, kernels=named)


def main(name: str) -> None:
    """Prints how the case went; compiles and tunes afresh where no cache is named."""
    with reporting():
        if importlib.util.find_spec("torch") is None:
            result("skipped", why="PyTorch is not installed")
            return
        with tempfile.TemporaryDirectory() as folder:
            os.environ.setdefault("TESSERA_CACHE_DIR", folder)
            run(name)


def names() -> list[str]:
    return [*CASES, LAUNCHES]


if __name__ == "__main__":
    main(sys.argv[1])
