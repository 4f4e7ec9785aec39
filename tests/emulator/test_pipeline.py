"""Functions and kernels through the whole compiler onto emulated CUDA: every operator, and the seeds' kernels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import filterfalse
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.lower.schedule_to_tile import schedule_to_tile
from tessera.compiler.pipeline import generate, passes, to_schedule
from tessera.compiler.targets import base
from tessera.compiler.tile.program import Program
from tessera.compiler.unit import Param
from tests import kernel_runner
from tests.differential.operator_examples import (
    EXAMPLES,
    Example,
    applied,
    close,
    is_long_in_two_batches,
    symbols,
    values,
)
from tests.seeds import kernels as seeds
from tests.together import builds

ORDERS = (1, 2, 9)
"""seeds of the orders that every kernel runs its threads in: the first warp ahead, the last warp ahead, shuffled"""
SIZES = {"B": 2, "S": 37, "D": 12, "E": 4, "K": 9, "H": 2}


def load(program: Program, architecture: str = "sm_80") -> Any:
    target = base.get(f"emulator:{architecture}")
    return target.load(generate(program, target))


def execute(executable: Any, program: Program, arrays: list[Any], scalars: tuple[float, ...] = ()) -> list[Any]:
    """Runs a program on emulated CUDA; arrays that it stores to change in place. Gives the outputs in order."""
    memory = {b.id: np.zeros(b.shape, b.dtype.numpy) for b in program.buffers if b.role in ("input", "output")}  # type: ignore[arg-type]
    given = iter(arrays)
    for b in program.buffers:
        if b.role in ("input", "output") and b.param is not None:
            memory[b.id] = next(given)
    results: list[list[bytes]] = []
    for seed in ORDERS:
        used = {number: m.copy() for number, m in memory.items()} if seed != ORDERS[-1] else memory
        executable.seed = seed
        executable.run([m.ctypes.data for m in used.values()], scalars, [])
        results.append([used[o].tobytes() for o in program.outputs])
    assert results == results[:1] * len(ORDERS), "the result depends on the order of the threads"
    return [memory[o] for o in program.outputs]


@dataclass
class Compiled:
    """An example for the GPU, the arrays that it is run on and what the reference gives for them."""

    executable: Any
    program: Program
    bound: list[Any]
    wanted: list[Any]
    dtypes: list[Any]


def compiled(example: Example) -> Compiled:
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    sizes = {s: max(SIZES[s], example.least) for s in symbols(example)}
    chosen = [x.dtypes()[0] for x in flat]
    rng = np.random.default_rng(1)
    arrays = [values(rng, x, d, sizes) for x, d in zip(flat, chosen, strict=True)]
    arrays.append(np.zeros(tuple(sizes.values()), bool))
    func = applied(example, chosen, sizes)
    wanted = evaluate(func, arrays)
    results = [tensor(v).dtype for v in func.region.block.terminator.operands]
    params = [Param(a.hint, tensor(a).shape, tensor(a).dtype) for a in func.region.block.args]
    for transform in passes("graph"):
        transform.run(func)
    program = schedule_to_tile(to_schedule(func, "cuda"), params, (), "cuda", len(results) != 1)
    given = [np.ascontiguousarray(a) for a in arrays]
    bound = [given[b.param] for b in program.buffers if b.role == "input" and b.param is not None]
    return Compiled(load(program), program, bound, wanted, results)


@builds(compiled)
@pytest.mark.parametrize("example", list(filterfalse(is_long_in_two_batches, EXAMPLES)), ids=str)
def test_every_operator(example: Example, built: Compiled) -> None:
    results = execute(built.executable, built.program, built.bound)
    for got, want, dtype in zip(results, built.wanted, built.dtypes, strict=True):
        close(got, np.asarray(want), dtype, factor=4)


def run(kernel: Any, *args: Any, architecture: str = "sm_80", **config: Any) -> Any:
    program = kernel_runner.program(kernel, *args, **config)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    out = execute(load(program, architecture), program, arrays, tuple(a for a in args if isinstance(a, float)))
    return out[0] if out else None


RNG = np.random.default_rng(4)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90a"])
def test_saxpy_of_the_seeds(architecture: str) -> None:
    x, y = normal(777), normal(777)
    expected = np.float32(2) * x + y
    np.testing.assert_array_equal(run(seeds.saxpy, x, y, 2.0, architecture=architecture), expected)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80"])
@pytest.mark.parametrize("shape", [(128, 128, 64), (70, 90, 50)])
def test_gemm_of_the_seeds(shape: tuple[int, int, int], architecture: str) -> None:
    m, n, k = shape
    a, b, c = normal(m, k, dtype=ml_dtypes.bfloat16), normal(k, n, dtype=ml_dtypes.bfloat16), normal(m, n)
    expected = c + a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(run(seeds.gemm, a, b, c, architecture=architecture), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("causal", [True, False])
def test_flash_attention_of_the_seeds(causal: bool) -> None:
    from tests.seeds.test_kernels_attention import as_written

    q, k, v = (normal(2, 100, 32, dtype=ml_dtypes.bfloat16) for _ in range(3))
    got = run(seeds.flash_attention, q, k, v, causal, BLOCK_M=32, BLOCK_N=32).astype("f8")
    np.testing.assert_allclose(got, as_written(q, k, v, causal, 32), rtol=3e-2, atol=3e-2)


def test_matmul_kernel_of_the_seeds() -> None:
    a, b, c = normal(128, 64, dtype=ml_dtypes.bfloat16), normal(64, 128, dtype=ml_dtypes.bfloat16), normal(128, 128)
    run(seeds.matmul_kernel, a, b, c)
    np.testing.assert_allclose(c, a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-3)


def test_safe_softmax_of_the_seeds() -> None:
    x = normal(9, 130) * 50
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(seeds.safe_softmax, x), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)
