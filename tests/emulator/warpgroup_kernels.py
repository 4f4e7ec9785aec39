"""Kernels whose products run on sm_90a's warpgroups, run on the emulator, and what they should give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.generate import generate as write
from tessera.compiler.targets.cuda.target import settings_for
from tessera.compiler.tile.program import Program
from tessera.kernels import attention_safe
from tests import kernel_runner
from tests.emulator.harness import poisoned, sizes

SM90 = "emulator:sm_90a"


@ts.kernel
def attention(
    Q: ts.Tensor["B", "S", "D"], K: ts.Tensor["B", "S", "D"], V: ts.Tensor["B", "S", "D"], is_causal: bool
) -> ts.Tensor["B", "S", "D"]:
    """One pass over the keys, as a user writes it."""
    ctx = ts.tile.context()
    BM, BN = ctx.BLOCK_M, ctx.BLOCK_N
    smem_q = ts.tile.alloc_shared((BM, ctx.D), Q.dtype)
    smem_k = ts.tile.alloc_shared((BN, ctx.D), Q.dtype)
    smem_v = ts.tile.alloc_shared((BN, ctx.D), Q.dtype)
    acc = ts.tile.zeros((BM, ctx.D), ts.f32)
    top = ts.tile.full((BM,), -math.inf, ts.f32)
    total = ts.tile.zeros((BM,), ts.f32)
    for i in ts.tile.range(0, ctx.S, BM):
        ts.tile.cp_async(smem_q, Q[i : i + BM])
        for j in ts.tile.range(0, ctx.S, BN):
            ts.tile.cp_async(smem_k, K[j : j + BN])
            ts.tile.cp_async(smem_v, V[j : j + BN])
            ts.tile.barrier()
            scores = ts.tile.mma(smem_q, smem_k.T) * (1.0 / math.sqrt(ctx.D))
            if is_causal:
                scores = ts.tile.causal_mask(scores, i, j)
            new = ts.tile.maximum(top, ts.tile.row_max(scores))
            alpha = ts.tile.exp(top - new)
            p = ts.tile.exp(scores - new)
            total = alpha * total + ts.tile.row_sum(p)
            acc = alpha * acc + ts.tile.mma(p, smem_v)
            top = new
    return ts.tile.cast(acc / total[:, None], Q.dtype)


@ts.kernel
def product(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"]) -> ts.Tensor["M", "N", ts.f32]:
    """Loads that run ahead by request."""
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(ctx.BM, ctx.BK), prefetch=ctx.AHEAD)
    b = ts.tile.load(B, shape=(ctx.BK, ctx.BN), prefetch=ctx.AHEAD)
    acc = ts.tile.zeros((ctx.BM, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, ctx.K, ctx.BK):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc


def normal(*shape: int, dtype: Any = ml_dtypes.bfloat16, seed: int = 0) -> Any:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype(dtype)


def lowered(kernel: Any, *args: Any, target: str = SM90, **config: Any) -> Program:
    return lower(kernel_runner.check(kernel, *args, **config).unit(), base.get(target)).program


def source(kernel: Any, *args: Any, **config: Any) -> str:
    """The CUDA C++ of a kernel."""
    return write(lowered(kernel, *args, **config), settings_for(90, profile=False, debug=False)).source


def run(kernel: Any, *args: Any, target: str = SM90, seeds: Sequence[int] = (0, 5), **config: Any) -> Any:
    """What a kernel returns, which must be the same for any order of threads and copies."""
    return compiled(kernel, *args, target=target, seeds=seeds, **config)()


def compiled(
    kernel: Any, *args: Any, target: str = SM90, seeds: Sequence[int] = (0, 5), **config: Any
) -> Callable[[], Any]:
    """What runs the kernel: several can be compiled together before."""
    p = lowered(kernel, *args, target=target, **config)
    executable: Any = base.get(target).load(generate(p, base.get(target)))

    def results() -> Any:
        results: list[Any] = []
        for seed in seeds:
            executable.seed = seed
            given = iter([a for a in args if isinstance(a, np.ndarray)])
            memory = {
                b.id: next(given) if b.param is not None else poisoned(sizes(b.shape, {}), b.dtype) for b in p.buffers
            }
            executable.run([m.ctypes.data for m in memory.values()], [], [])
            results.append(memory[p.outputs[0]])
        assert len({r.tobytes() for r in results}) == 1, "the order of the threads shows"
        return results[0]

    return results


def softmax_product(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attention in f64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


def safe(s: int, d: int, *, causal: bool, dtype: Any = ml_dtypes.bfloat16, **config: int) -> tuple[Any, Any]:
    """What attention_safe gives, and what it should."""
    q, k, v = (normal(1, s, d, dtype=dtype, seed=i) for i in range(3))
    seen = (np.ones((1, s, s), bool), True) if causal else ()
    return run(attention_safe, q, k, v, *seen, **config), softmax_product(q, k, v, causal)


PRODUCED = {"BLOCK_M": 128, "BLOCK_N": 32, "num_stages": 2, "num_warps": 8}
"""Two warpgroups, whose stages a producer fills."""


def produced() -> tuple[Any, Any]:
    """Attention by two warpgroups, and what it should give."""
    q, k, v = (normal(1, 300, 16, seed=i) for i in range(3))
    return run(attention, q, k, v, False, **PRODUCED), softmax_product(q, k, v, False)
