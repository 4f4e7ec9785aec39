"""Rows of `python -m benchmarks cpu` whose best peer is a loop that Numba compiles: updates, norms, sums, stencils."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import torch

import tessera as ts
from benchmarks.harness import Work
from benchmarks.traffic import traffic

compiled = numba.njit(fastmath=True, parallel=numba.get_num_threads() > 1)
STEPS = 10


def workloads(size: int) -> Iterator[Callable[[], Work]]:
    yield lambda: adamw((1 << 24) // size)
    yield lambda: stencil(4096 // size, 4096)


@compiled
def numba_layer_norm(x, g, b, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(x.shape[0]):
        mean, squares = np.float32(0), np.float32(0)
        for j in range(x.shape[1]):
            mean += x[i, j]
        mean /= np.float32(x.shape[1])
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) ** 2
        scale = np.float32(1) / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale * g[j] + b[j]


@compiled
def numba_rms_norm(x, r, g, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(x.shape[0]):
        squares = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + r[i, j]
            squares += out[i, j] ** 2
        scale = np.float32(1) / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] *= scale * g[j]


@compiled
def numba_total(x):  # type: ignore[no-untyped-def]
    found = np.float32(0)
    for i in numba.prange(x.shape[0]):
        found += x[i]
    return found


@compiled
def numba_adamw(p, g, m, v):  # type: ignore[no-untyped-def]
    for i in numba.prange(p.shape[0]):
        m[i] = np.float32(0.9) * m[i] + np.float32(0.1) * g[i]
        v[i] = np.float32(0.999) * v[i] + np.float32(0.001) * g[i] * g[i]
        step = m[i] / (np.sqrt(v[i]) + np.float32(1e-8)) + np.float32(0.01) * p[i]
        p[i] -= np.float32(1e-3) * step


def adamw(n: int) -> Work:
    """Parameters and both moments are changed in place. What is compared is the result of one step."""

    @ts.kernel
    def run(p: ts.Tensor["n", ts.f32], g: ts.Tensor["n", ts.f32], m: ts.Tensor["n", ts.f32], v: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            first = 0.9 * m[i] + 0.1 * g[i]
            second = 0.999 * v[i] + 0.001 * g[i] * g[i]
            m[i] = first
            v[i] = second
            p[i] = p[i] - 1e-3 * (first / (ts.tile.sqrt(second) + 1e-8) + 0.01 * p[i])

    rng = np.random.default_rng(0)
    start = [rng.standard_normal(n).astype(np.float32) for _ in range(4)]
    start[3] = np.abs(start[3])
    p, g, m, v = (x.astype("f8") for x in start)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    want = p - 1e-3 * (m / (np.sqrt(v) + 1e-8) + 0.01 * p)
    ours, theirs = ([x.copy() for x in start] for _ in range(2))

    def result() -> Any:
        once = [x.copy() for x in start]
        run(*once)
        return once[0]

    fused, count = [torch.from_numpy(x.copy()) for x in start], torch.ones(())
    options: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    options |= {"amsgrad": False, "maximize": False}
    lists = [[x] for x in fused]

    def by_torch() -> None:
        torch._fused_adamw_(*lists, [], [count], **options)

    peers = {"numba": lambda: numba_adamw(*theirs), "torch": by_torch}
    return Work(f"AdamW {n}", lambda: run(*ours), peers, result, want, 28 * n, "GB/s", goal=0.97)


@compiled
def _swept(a, b):  # type: ignore[no-untyped-def]
    for i in numba.prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            around = a[i, j - 1] + a[i, j + 1] + a[i - 1, j] + a[i + 1, j]
            b[i, j] = np.float32(0.6) * a[i, j] + np.float32(0.1) * around


def stencil(rows: int, columns: int) -> Work:
    """Steps of five points; the outermost elements stay as they are."""

    def steps(xp: Any, x: Any) -> Any:
        for _ in range(STEPS):
            around = x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1]
            middle = xp.concat([x[1:-1, :1], 0.6 * x[1:-1, 1:-1] + 0.1 * around, x[1:-1, -1:]], 1)
            x = xp.concat([x[:1], middle, x[-1:]], 0)
        return x

    @ts.function
    def run(x):
        return steps(ts, x)

    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    pair = [x.copy(), x.copy()]

    def swept() -> None:
        for i in range(STEPS):
            _swept(pair[i % 2], pair[1 - i % 2])

    want = steps(torch, torch.from_numpy(x).double()).numpy()
    amount = 8 * STEPS * x.size
    name = f"stencil of 5 points {rows}x{columns}, {STEPS} steps"
    return Work(
        name, lambda: run(x), {"numba": swept}, lambda: run(x), want, amount, "GB/s", goal=2.5, limit=traffic(x)
    )
