"""Kernels whose loads run ahead, lowered as for a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.emulate import EmulatedExecutable
from tessera.compiler.tile.program import Program
from tests import kernel_runner
from tests.seeds import kernels as seeds


@ts.kernel
def tied(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    """A product of tiles that are loaded without a word about shared memory."""
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(ctx.BM, ctx.BK))
    b = ts.tile.load(B, shape=(ctx.BK, ctx.BN))
    acc = ts.tile.zeros((ctx.BM, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, ctx.BK):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    ts.tile.store(C, acc)


@ts.kernel
def side_by_side(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    """Beside the copies, a shared tile that each step fills from registers: its barriers have to stay."""
    ctx = ts.tile.context()
    sa = ts.tile.alloc_shared((32, 32), ts.bf16)
    sb = ts.tile.alloc_shared((32, 32), ts.bf16)
    turned = ts.tile.alloc_shared((32, 32), ts.f32)
    acc = ts.tile.zeros((32, 32), ts.f32)
    for k in ts.tile.range(0, ctx.K, 32):
        ts.tile.cp_async(sa, A[tile_m : tile_m + 32, k : k + 32])
        ts.tile.cp_async(sb, B[k : k + 32, tile_n : tile_n + 32])
        ts.tile.barrier()
        turned[:] = ts.tile.mma(sa, sb, accumulator=ts.f32)
        ts.tile.barrier()
        acc = acc + turned.T.reshape(32, 32)
    C[tile_m : tile_m + 32, tile_n : tile_n + 32] = acc
    return C


RNG = np.random.default_rng(11)
BF16 = ml_dtypes.bfloat16


def normal(*shape: int, dtype: Any = BF16) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def product_arguments(m: int, n: int, k: int) -> tuple[Any, ...]:
    return normal(m, k), normal(k, n), normal(m, n, dtype=np.float32)


def attention_arguments(s: int, d: int) -> tuple[Any, ...]:
    return normal(2, s, d), normal(2, s, d), normal(2, s, d), True


CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, int]]] = {
    "gemm": (seeds.gemm, product_arguments(64, 64, 160), {}),
    "gemm_ragged": (seeds.gemm, product_arguments(70, 50, 100), {}),
    "matmul_kernel": (seeds.matmul_kernel, product_arguments(64, 64, 160), {}),
    "flash_attention": (seeds.flash_attention, attention_arguments(100, 32), {"BLOCK_M": 32, "BLOCK_N": 32}),
    "side_by_side": (side_by_side, product_arguments(64, 32, 96), {}),
    "tied": (tied, product_arguments(40, 64, 96), {"BM": 32, "BN": 32, "BK": 16}),
}


def program(name: str, stages: int, target: str = "emulator:sm_80") -> Program:
    kernel, args, config = CASES[name]
    analysis = kernel_runner.check(kernel, *args, **config, num_stages=stages)
    return lower(analysis.unit(), base.get(target), lambda _, op: verify(op)).program


def load(name: str, stages: int, target: str = "emulator:sm_80") -> EmulatedExecutable:
    compiled = base.get(target)
    executable = compiled.load(generate(program(name, stages, target), compiled))
    assert isinstance(executable, EmulatedExecutable)
    return executable


def run(name: str, executable: EmulatedExecutable, p: Program, seed: int = 0) -> bytes:
    """The bits that the kernel writes."""
    executable.seed = seed
    arrays = iter([a.copy() for a in CASES[name][1] if isinstance(a, np.ndarray)])
    memory: dict[int, Any] = {}
    for b in p.buffers:
        shape: Any = b.shape
        memory[b.id] = next(arrays) if b.param is not None else np.zeros(shape, b.dtype.numpy)
    executable.run([m.ctypes.data for m in memory.values()], [], [])
    written = p.launches[0].kernel.attrs["writes"]
    return b"".join(memory[i].tobytes() for i in written)  # type: ignore[union-attr, misc]
