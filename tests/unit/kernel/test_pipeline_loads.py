"""Software pipelining: which loops are, what becomes of them, and that the interpreter finds no hazard in them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.tile.program import Program
from tessera.errors import DebugCheckError
from tests import kernel_runner

RNG = np.random.default_rng(2)


def normal(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def lowered(kernel: Any, *args: Any, target: str = "sm_80", **config: Any) -> Program:
    return lower(
        kernel_runner.check(kernel, *args, **config).unit(), base.get(target), lambda _, op: verify(op)
    ).program


def pipelines(p: Program) -> list[Op]:
    return [op for op in p.launches[0].kernel.walk() if op.name == "tile.pipeline"]


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16]) -> ts.Tensor["M", "N", ts.f32]:
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(ctx.BM, ctx.BK), prefetch=3)
    b = ts.tile.load(B, shape=(ctx.BK, ctx.BN))
    acc = ts.tile.zeros((ctx.BM, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, ctx.BK):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc


BLOCKS = {"BM": 16, "BN": 16, "BK": 16}
GOLDEN = """\
  %A_ahead = "tile.alloc_shared"() {stages = 3 : i64} : () -> !tessera.shared<[16, 16], bf16, "xor">
  %B_ahead = "tile.alloc_shared"() {stages = 3 : i64} : () -> !tessera.shared<[16, 16], bf16, "xor">
  %acc_1 = "tile.pipeline"(%5, %6, %7, %acc) ({
  ^bb0(%k: index):
    "tile.copy_async"(%A_ahead, %A, %1, %k) : (!tessera.shared<[16, 16], bf16, "xor">, !tessera.view<[32, 64], bf16>, index, index) -> ()
    "tile.copy_async"(%B_ahead, %B, %k, %3) : (!tessera.shared<[16, 16], bf16, "xor">, !tessera.view<[64, 32], bf16>, index, index) -> ()
    "tile.yield"() : () -> ()
  }, {
  ^bb0(%k_1: index, %acc_2: !tessera.tile<[16, 16], f32>):
    %8 = "tile.mma"(%A_ahead, %B_ahead, %acc_2) : (!tessera.shared<[16, 16], bf16, "xor">, !tessera.shared<[16, 16], bf16, "xor">, !tessera.tile<[16, 16], f32>) -> !tessera.tile<[16, 16], f32>
    "tile.yield"(%8) : (!tessera.tile<[16, 16], f32>) -> ()
  }) {stages = 3 : i64} : (index, index, index, !tessera.tile<[16, 16], f32>) -> !tessera.tile<[16, 16], f32>
"""  # noqa: E501


def test_loads_of_products_become_copies_that_run_ahead() -> None:
    p = lowered(product, normal(32, 64), normal(64, 32), **BLOCKS)
    assert GOLDEN in print_op(p.launches[0].kernel), print_op(p.launches[0].kernel)


def test_only_for_gpus_and_only_with_stages() -> None:
    arrays = normal(32, 64), normal(64, 32)
    assert not pipelines(lowered(product, *arrays, target="cpu", **BLOCKS))
    assert not pipelines(lowered(product, *arrays, target="reference", **BLOCKS))
    assert len(pipelines(lowered(product, *arrays, target="sm_75", **BLOCKS))) == 1


def interpreted(p: Program, *arrays: Any) -> Any:
    """What the interpreter makes of a kernel lowered for a GPU; it reports every hazard of shared tiles."""
    target = base.get("reference")
    executable = target.load(generate(p, target, debug=True))
    given = iter(arrays)
    memory = {b.id: next(given) if b.param is not None else np.empty(b.shape, b.dtype.numpy) for b in p.buffers}  # type: ignore[arg-type]
    executable.run([m.ctypes.data for m in memory.values()], [], [])
    return memory[p.outputs[0]]


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("k", [0, 8, 16, 64, 70])
def test_the_interpreter_finds_the_same_bits_and_no_hazard(k: int, stages: int) -> None:
    arrays = normal(32, k), normal(k, 32)
    config = {**BLOCKS, "num_stages": stages}
    plain = kernel_runner.run(product, *arrays, **config)
    got = interpreted(lowered(product, *arrays, **config), *arrays)
    assert got.tobytes() == plain.tobytes()


def test_a_stage_that_is_overwritten_too_early_is_a_hazard() -> None:
    """One stage fewer than the fetches need: the interpreter sees what the emulator and a GPU would."""
    arrays = normal(32, 64), normal(64, 32)
    p = lowered(product, *arrays, **BLOCKS)
    (op,) = pipelines(p)
    copies = op.regions[0].block
    copies.ops.insert(0, copies.ops.pop(1))
    second = copies.ops[0]
    second.set_operand(0, copies.ops[1].operands[0])  # both copies into one ring
    with pytest.raises(DebugCheckError, match="without a barrier"):
        interpreted(p, *arrays)


# what is not pipelined


@ts.kernel
def updates_its_source(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "K", ts.f32]) -> ts.Tensor["M", "K", ts.f32]:
    acc = ts.tile.zeros((16, 16), ts.f32)
    for k in ts.tile.range(0, 64, 16):
        a = A[tile_m : tile_m + 16, k : k + 16]
        acc = acc + ts.tile.mma(a, B[0:16, 0:16])
        A[tile_m : tile_m + 16, k : k + 16] = acc
    return A


@ts.kernel
def reads_the_last_step(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "K", ts.f32], C: ts.Tensor["M", 16, ts.f32]):
    kept = ts.tile.alloc_shared((16, 16), ts.f32)
    acc = ts.tile.zeros((16, 16), ts.f32)
    for k in ts.tile.range(0, 64, 16):
        ts.tile.cp_async(kept, A[tile_m : tile_m + 16, k : k + 16])
        ts.tile.barrier()
        acc = acc + ts.tile.mma(kept, B[0:16, 0:16])
    C[tile_m : tile_m + 16, 0:16] = acc + ts.tile.row_sum(kept)[:, None]


@ts.kernel
def loads_ahead_itself(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "K", ts.f32], C: ts.Tensor["M", 16, ts.f32]):
    kept = ts.tile.alloc_shared((16, 16), ts.f32)
    acc = ts.tile.zeros((16, 16), ts.f32)
    ts.tile.cp_async(kept, A[tile_m : tile_m + 16, 0:16])
    for k in ts.tile.range(0, 64, 16):
        ts.tile.barrier()
        acc = acc + ts.tile.mma(kept, B[0:16, 0:16])
        ts.tile.barrier()
        ts.tile.cp_async(kept, A[tile_m : tile_m + 16, k + 16 : k + 32])
    C[tile_m : tile_m + 16, 0:16] = acc


@pytest.mark.parametrize(
    ("kernel", "arrays"),
    [
        (updates_its_source, (normal(16, 64, dtype=np.float32), normal(64, 64, dtype=np.float32))),
        (reads_the_last_step, tuple(normal(*s, dtype=np.float32) for s in ((16, 64), (64, 64), (16, 16)))),
        (loads_ahead_itself, tuple(normal(*s, dtype=np.float32) for s in ((16, 64), (64, 64), (16, 16)))),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_left_alone(kernel: Any, arrays: tuple[Any, ...]) -> None:
    assert not pipelines(lowered(kernel, *arrays, num_stages=3))
