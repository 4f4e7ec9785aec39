"""The CPU target against its peers on this machine: NumPy, PyTorch, JAX and Numba, outputs preallocated if possible.

python -m benchmarks cpu [-- --threads N --only NAME --quick --json]

Every result is checked against NumPy in f64 before anything is timed; inputs are random. `ratio` is the best peer's
median over ours: above 1 we are faster. `of`: the ratio that is wanted. `memory allows`: the ratio that would be had
if a call took no longer than reading its arguments once and writing its result, measured in turns with the others.
`the processor allows`: the ratio of products at the highest rate that `tessera doctor` has measured in registers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Timing, Work, compare, parser_of
from tessera.runtime.processor import measured_figures


def workloads(size: int) -> Iterator[Callable[[], Work]]:
    """Makers of the workloads, so that only what is asked for is built. `size` divides the large ones."""
    yield lambda: saxpy((1 << 24) // size)
    yield lambda: gelu_chain((1 << 24) // size)
    yield lambda: softmax(4096 // size, 4096)
    yield lambda: layer_norm(4096 // size, 4096)
    yield lambda: rms_norm(4096 // size, 4096)
    yield lambda: matmul(1024 // size)
    yield lambda: matmul(2048 // size)
    yield lambda: order_of_products(1024 // size)
    yield lambda: order_of_products(2048 // size)
    yield lambda: order_of_products(512 // size, vector=True)
    yield lambda: order_of_products(4096 // size, vector=True)
    yield lambda: mlp(1024 // size)
    yield lambda: attention(8, 1024 // size, 64)
    yield lambda: written_attention(8, 1024 // size, 64)
    yield lambda: total((1 << 26) // size)
    yield lambda: column_sum(4096 // size, 4096)
    yield lambda: transpose(4096 // size, 4096)
    yield lambda: gather(50_000, 768, 20_000 // size)
    yield lambda: small_call()
    from benchmarks import backward, halves, loops  # slow: they import the peers, which read how many threads they have

    for rows in (halves, loops, backward):
        yield from rows.workloads(size)


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def saxpy(n: int) -> Work:
    @ts.kernel
    def run(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
        i = ts.tile.linear_id()
        if i < n:
            y[i] = alpha * x[i] + y[i]
        return y

    x, y = normal(n), normal(n)
    tx, ty, ny = torch.from_numpy(x), torch.from_numpy(y.copy()), y.copy()
    want = 0.5 * x.astype("f8") + y
    peers = {"torch": lambda: torch.add(ty, tx, alpha=0.5, out=ty), "numba": lambda: numba_saxpy(0.5, x, ny)}
    return Work(
        f"saxpy {n}",
        lambda: run(x, y, 0.5),
        peers,
        lambda: run(x, y, 0.5),
        want,
        12 * n,
        "GB/s",
        goal=0.97,
        limit=traffic(x, y),
    )


def gelu_chain(n: int) -> Work:
    @ts.function
    def run(x):
        return ts.gelu_tanh(x * 1.5 + 0.3) + 0.7

    x = normal(n)
    tx, out = torch.from_numpy(x), torch.empty(n)

    def eager() -> None:
        torch.mul(tx, 1.5, out=out).add_(0.3)
        torch.ops.aten.gelu.out(out, approximate="tanh", out=out).add_(0.7)

    jitted, jx = jax.jit(lambda x: jax.nn.gelu(x * 1.5 + 0.3, approximate=True) + 0.7), jax.numpy.asarray(x)
    v = x.astype("f8") * 1.5 + 0.3
    want = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))) + 0.7
    peers = {"torch": eager, "jax": lambda: jitted(jx).block_until_ready()}
    return Work(
        f"gelu(x*a+b)+c {n}", lambda: run(x), peers, lambda: run(x), want, 8 * n, "GB/s", goal=4.5, limit=traffic(x)
    )


def softmax(rows: int, columns: int) -> Work:
    @ts.function
    def run(x):
        return ts.softmax(x, axis=-1)

    x = normal(rows, columns)
    tx, out = torch.from_numpy(x), torch.empty(rows, columns)
    jitted, jx = jax.jit(lambda x: jax.nn.softmax(x, axis=-1)), jax.numpy.asarray(x)
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    peers = {"torch": lambda: torch.softmax(tx, -1, out=out), "jax": lambda: jitted(jx).block_until_ready()}
    want = e / e.sum(1, keepdims=True)
    return Work(
        f"softmax {rows}x{columns}",
        lambda: run(x),
        peers,
        lambda: run(x),
        want,
        8 * x.size,
        "GB/s",
        goal=1.6,
        limit=traffic(x),
    )


def layer_norm(rows: int, columns: int) -> Work:
    @ts.function
    def run(x, g, b):
        return ts.layer_norm(x, weight=g, bias=b)

    x, g, b = normal(rows, columns), normal(columns), normal(columns)
    tx, tg, tb = map(torch.from_numpy, (x, g, b))

    def by_jax(x: Any, g: Any, b: Any) -> Any:
        mean = x.mean(1, keepdims=True)
        d = x - mean
        return d * jax.lax.rsqrt((d * d).mean(1, keepdims=True) + 1e-5) * g + b

    jitted, args = jax.jit(by_jax), [jax.numpy.asarray(a) for a in (x, g, b)]
    w = x.astype("f8")
    want = (w - w.mean(1, keepdims=True)) / np.sqrt(w.var(1, keepdims=True) + 1e-5) * g + b
    peers = {
        "torch": lambda: torch.nn.functional.layer_norm(tx, (columns,), tg, tb),
        "jax": lambda: jitted(*args).block_until_ready(),
        "numba": lambda: numba_loops().numba_layer_norm(x, g, b, out),
    }
    name, amount, out = f"layer norm {rows}x{columns}", 8 * x.size, np.empty_like(x)
    return Work(
        name, lambda: run(x, g, b), peers, lambda: run(x, g, b), want, amount, "GB/s", goal=1.4, limit=traffic(x)
    )


def rms_norm(rows: int, columns: int) -> Work:
    @ts.function
    def run(x, r, g):
        h = x + r
        return h * ts.rsqrt((h * h).mean(axis=-1, keepdims=True) + 1e-5) * g

    x, r, g = normal(rows, columns), normal(rows, columns), normal(columns)
    tx, tr, tg = map(torch.from_numpy, (x, r, g))

    def eager() -> Any:
        return torch.nn.functional.rms_norm(tx + tr, (columns,), tg, 1e-5)

    def by_jax(x: Any, r: Any, g: Any) -> Any:
        h = x + r
        return h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-5) * g

    jitted, args = jax.jit(by_jax), [jax.numpy.asarray(a) for a in (x, r, g)]
    h = x.astype("f8") + r
    want = h / np.sqrt((h * h).mean(1, keepdims=True) + 1e-5) * g
    out = np.empty_like(x)
    peers = {
        "torch": eager,
        "jax": lambda: jitted(*args).block_until_ready(),
        "numba": lambda: numba_loops().numba_rms_norm(x, r, g, out),
    }
    name, amount = f"rms norm + residual {rows}x{columns}", 12 * x.size
    return Work(
        name, lambda: run(x, r, g), peers, lambda: run(x, r, g), want, amount, "GB/s", goal=1.8, limit=traffic(x, r)
    )


def matmul(n: int) -> Work:
    @ts.function
    def run(a, b):
        return a @ b

    a, b = normal(n, n), normal(n, n)
    ta, tb, out = torch.from_numpy(a), torch.from_numpy(b), torch.empty(n, n)
    place = np.empty((n, n), np.float32)
    peers = {"torch": lambda: torch.mm(ta, tb, out=out), "numpy": lambda: np.matmul(a, b, out=place)}
    want = a.astype("f8") @ b
    ours = lambda: run(a, b)  # noqa: E731
    return Work(f"matmul f32 {n}", ours, peers, ours, want, 2 * n**3, "GF/s", 1e-3, 0.95, products="f32")


def order_of_products(n: int, vector: bool = False) -> Work:
    """The price of the order of products: against the same code with the order that is fastest, which libraries take.

    For matrices that is to add what each packed slab gives to the result; for a vector, 64 sums side by side.
    """

    @ts.function
    def run(a, b):
        return a @ b

    @ts.function
    def fast(a, b):
        return ts.sum(a * b, axis=1) if vector else a @ b

    a, b = normal(n, n), normal(*(n,) if vector else (n, n))
    if vector:
        fast(a, b)
    else:
        with _slabs_in_order():
            fast(a, b)
    want = a.astype("f8") @ b
    name = f"order of products, {'vector' if vector else 'matrix'} {n}"
    amount = 2 * n**2 if vector else 2 * n**3
    return Work(name, lambda: run(a, b), {"fast": lambda: fast(a, b)}, lambda: run(a, b), want, amount, "GF/s", 1e-3)


@contextmanager
def _slabs_in_order() -> Iterator[None]:
    """Code compiled here sums long chains, one after the other. It goes into a cache of its own."""
    from tessera import knobs
    from tessera.compiler.targets.cpu.kernel import chains, packed_matmul, small_matmul
    from tessera.compiler.targets.cpu.kernel.vectors import dots, lines, turned
    from tessera.language import order

    long = {"CHAIN": packed_matmul.KC, "SPAN": 1 << 40}
    places = [
        (m, name)
        for m in (order, chains, dots, lines, turned, small_matmul, packed_matmul)
        for name in long
        if hasattr(m, name)
    ]
    kept = [getattr(m, name) for m, name in places]
    with TemporaryDirectory() as folder, knobs.cache_dir.override(Path(folder)):
        try:
            for m, name in places:
                setattr(m, name, long[name])
            yield
        finally:
            for (m, name), value in zip(places, kept, strict=True):
                setattr(m, name, value)


def mlp(n: int) -> Work:
    @ts.function
    def run(x, w, b):
        return ts.gelu_tanh(x @ w + b)

    x, w, b = normal(n, n), normal(n, 4 * n) * np.float32(0.03), normal(4 * n)
    tx, tw, tb, out = torch.from_numpy(x), torch.from_numpy(w), torch.from_numpy(b), torch.empty(n, 4 * n)

    def eager() -> None:
        torch.addmm(tb, tx, tw, out=out)
        torch.ops.aten.gelu.out(out, approximate="tanh", out=out)

    v = x.astype("f8") @ w + b
    want = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
    amount = 2 * n * n * 4 * n
    return Work(
        f"matmul + bias + gelu {n}",
        lambda: run(x, w, b),
        {"torch": eager},
        lambda: run(x, w, b),
        want,
        amount,
        "GF/s",
        1e-3,
        1.05,
    )


def attention(heads: int, length: int, depth: int) -> Work:
    @ts.function
    def run(q, k, v):
        return ts.attention(q, k, v)

    q, k, v = (normal(heads, length, depth) for _ in range(3))
    tq, tk, tv = map(torch.from_numpy, (q, k, v))
    s = np.einsum("hqd,hkd->hqk", q.astype("f8"), k) / depth**0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    want = np.einsum("hqk,hkd->hqd", e / e.sum(-1, keepdims=True), v)
    peers = {"torch": lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv)}
    name = f"attention {heads}x{length}x{depth}"
    return Work(name, lambda: run(q, k, v), peers, lambda: run(q, k, v), want, 4 * heads * length**2 * depth, "GF/s")


def written_attention(heads: int, length: int, depth: int) -> Work:
    """The causal one, as products and a softmax; `operator` is `ts.attention`."""

    @ts.function
    def run(q, k, v):
        i, j = ts.arange(q.shape[-2])[:, None], ts.arange(k.shape[-2])
        scores = ts.where(j <= i, q @ k.mT / depth**0.5, -np.inf)
        return ts.softmax(scores, axis=-1) @ v

    @ts.function
    def operator(q, k, v):
        return ts.attention(q, k, v, causal=True)

    q, k, v = (normal(heads, length, depth) for _ in range(3))
    tq, tk, tv = map(torch.from_numpy, (q, k, v))
    s = np.einsum("hqd,hkd->hqk", q.astype("f8"), k) / depth**0.5
    s[:, ~np.tri(length, dtype=bool)] = -np.inf
    e = np.exp(s - s.max(-1, keepdims=True))
    want = np.einsum("hqk,hkd->hqd", e / e.sum(-1, keepdims=True), v)
    peers = {
        "torch": lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv, is_causal=True),
        "operator": lambda: operator(q, k, v),
    }
    name = f"written attention {heads}x{length}x{depth}"
    return Work(name, lambda: run(q, k, v), peers, lambda: run(q, k, v), want, 2 * heads * length**2 * depth, "GF/s")


def total(n: int) -> Work:
    @ts.function
    def run(x):
        return x.sum()

    x = normal(n)
    tx = torch.from_numpy(x)
    peers = {
        "torch": lambda: torch.sum(tx),
        "numpy": lambda: np.sum(x),
        "numba": lambda: numba_loops().numba_total(x),
    }
    return Work(
        f"sum {n}",
        lambda: run(x),
        peers,
        lambda: run(x),
        x.astype("f8").sum(),
        4 * n,
        "GB/s",
        1e-1,
        1.0,
        traffic(x, result=False),
    )


def column_sum(rows: int, columns: int) -> Work:
    @ts.function
    def run(x):
        return x.sum(axis=0)

    x = normal(rows, columns)
    tx, out = torch.from_numpy(x), torch.empty(columns)
    peers = {"torch": lambda: torch.sum(tx, 0, out=out), "numpy": lambda: np.sum(x, axis=0)}
    want = x.astype("f8").sum(0)
    return Work(f"column sum {rows}x{columns}", lambda: run(x), peers, lambda: run(x), want, 4 * x.size, "GB/s", 1e-3)


def transpose(rows: int, columns: int) -> Work:
    @ts.function
    def run(x):
        return x.T * 2.0

    x = normal(rows, columns)
    tx, out = torch.from_numpy(x), torch.empty(columns, rows)
    peers = {"torch": lambda: torch.mul(tx.T, 2.0, out=out), "numpy": lambda: np.ascontiguousarray(x.T) * np.float32(2)}
    return Work(f"transpose {rows}x{columns}", lambda: run(x), peers, lambda: run(x), x.T * 2, 8 * x.size, "GB/s")


def gather(rows: int, columns: int, taken: int) -> Work:
    @ts.function
    def run(x, i):
        return x.take(i, axis=0)

    x, i = normal(rows, columns), np.random.default_rng(0).integers(0, rows, taken)
    tx, ti, out = torch.from_numpy(x), torch.from_numpy(i), torch.empty(taken, columns)
    place = np.empty((taken, columns), np.float32)
    peers = {"torch": lambda: torch.index_select(tx, 0, ti, out=out), "numpy": lambda: np.take(x, i, axis=0, out=place)}
    return Work(
        f"gather {taken} rows of {columns}",
        lambda: run(x, i),
        peers,
        lambda: run(x, i),
        x[i],
        8 * taken * columns,
        "GB/s",
        goal=1.6,
        limit=traffic(x[:taken]),
    )


def small_call() -> Work:
    @ts.function
    def run(x, y):
        return x * 2.0 + y

    x, y = normal(1024), normal(1024)
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    jitted, jx, jy = jax.jit(lambda x, y: x * 2 + y), jax.numpy.asarray(x), jax.numpy.asarray(y)
    peers = {
        "numpy": lambda: x * 2 + y,
        "torch": lambda: tx * 2 + ty,
        "jax": lambda: jitted(jx, jy).block_until_ready(),
    }
    return Work("call on 1024 elements", lambda: run(x, y), peers, lambda: run(x, y), x * 2.0 + y, 1e-6, "Mcall/s")


def numba_loops() -> Any:
    """The loops that Numba compiles; it reads how many threads it has when it is imported."""
    from benchmarks import loops

    return loops


def numba_saxpy(a: float, x: Any, y: Any) -> None:
    _numba_saxpy()(np.float32(a), x, y)


_compiled: list[Any] = []


def _numba_saxpy() -> Any:
    if not _compiled:
        import numba

        @numba.njit(fastmath=True, parallel=numba.get_num_threads() > 1)
        def body(a, x, y):
            for i in numba.prange(x.shape[0]):
                y[i] = a * x[i] + y[i]

        _compiled.append(body)
    return _compiled[0]


def measure(work: Work, quick: bool, threads: int, budget: float = 4.0) -> dict[str, Any]:
    """Checks, times, and gives the row that is printed."""
    got = np.asarray(work.result(), np.float64)
    worst = float(np.max(np.abs(got - work.want))) if np.size(work.want) else 0.0
    if not worst <= work.tolerance:
        raise SystemExit(f"{work.name}: the result is off by {worst:.3g}")
    runs = {"tessera": work.ours, **work.peers, **({"memory": work.limit} if work.limit else {})}
    found: dict[str, Timing] = compare(runs, budget=budget / 4 if quick else budget, threads=threads)
    best = min(work.peers, key=lambda n: found[n].median)
    ours = found["tessera"]
    figures, products = measured_figures(), f"product {work.products}"
    rate = figures.rate(products, threads) if products in figures.rates else None
    return {
        "name": work.name, "ms": 1e3 * ours.median, "spread_ms": 1e3 * ours.spread,
        "rate": work.amount / ours.median / 1e9, "unit": work.unit,
        "best_peer": best, "peer_ms": 1e3 * found[best].median, "ratio": found[best].median / ours.median,
        "goal": work.goal, "clean": f"{ours.clean}/{ours.samples}", "error": worst,
        "peers_ms": {n: 1e3 * found[n].median for n in work.peers},
        "memory_ms": 1e3 * found["memory"].median if work.limit else None,
        "products_ms": 1e3 * work.amount / rate if rate else None,
    }  # fmt: skip


def main() -> None:
    options = parser_of(__doc__).parse_args()
    load(options.threads)
    rows: list[dict[str, Any]] = []
    for make in workloads(8 if options.quick else 1):
        work = make()
        if options.only.takes(work.name):
            rows.append(measure(work, options.quick, options.threads))
            if not options.json:
                show(rows[-1])
    options.only.demand()
    if options.json:
        json.dump({"threads": options.threads, "rows": rows}, sys.stdout, indent=1)


def show(row: dict[str, Any]) -> None:
    goal = f" of {row['goal']:g}{'' if round(row['ratio'], 2) >= row['goal'] else ', missed'}" if row["goal"] else ""
    bound = f"; memory allows {row['peer_ms'] / row['memory_ms']:.2f}" if row.get("memory_ms") else ""
    bound += f"; the processor allows {row['peer_ms'] / row['products_ms']:.2f}" if row.get("products_ms") else ""
    ours = f"{row['ms']:9.3f} ms ±{row['spread_ms']:.3f} {row['rate']:8.1f} {row['unit']}"
    theirs = f"{row['best_peer']:6s} {row['peer_ms']:9.3f} ms   ratio {row['ratio']:.2f}"
    print(f"{row['name']:30s} {ours:38s} {theirs}{goal}{bound}", flush=True)


def load(threads: int) -> None:
    """Imports the peers with as many threads as we take; their settings are read when they are imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (
        f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} intra_op_parallelism_threads={threads}"
    )
    global np, torch, jax, ts, traffic
    import jax
    import numpy as np
    import torch

    import tessera as ts
    from benchmarks.traffic import traffic

    torch.set_grad_enabled(False)
    torch.set_num_threads(threads)
    ts.set_num_threads(threads)


if __name__ == "__main__":
    main()
