"""The work and traffic that launches of kernels announce."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import program
from tests.seeds.kernels import flash_attention, gemm, matmul_kernel, saxpy


@pytest.mark.parametrize(("M", "K", "N"), [(64, 32, 64), (128, 256, 192), (100, 70, 90), (1, 1, 1)])
@pytest.mark.parametrize("kernel", [gemm, matmul_kernel])
def test_a_product_counts_two_operations_per_term_at_any_size(kernel: object, M: int, K: int, N: int) -> None:
    a, b, c = np.zeros((M, K), ml_dtypes.bfloat16), np.zeros((K, N), ml_dtypes.bfloat16), np.zeros((M, N), np.float32)
    launch = program(kernel, a, b, c).launches[0]  # type: ignore[arg-type]
    assert launch.flops == 2 * M * K * N
    reads_c = kernel is gemm
    assert launch.bytes == 2 * (M * K + K * N) + 4 * M * N * (1 + reads_c)


@pytest.mark.parametrize("n", [1, 1000, 1024, 5000])
def test_saxpy(n: int) -> None:
    launch = program(saxpy, np.zeros(n, np.float32), np.zeros(n, np.float32), 1.0).launches[0]
    assert (launch.flops, launch.bytes) == (2 * n, 12 * n)


def test_attention_is_dominated_by_its_two_products() -> None:
    B, S, D = 2, 200, 64
    x = np.zeros((B, S, D), ml_dtypes.bfloat16)
    launch = program(flash_attention, x, x, x, False).launches[0]
    products = 4 * B * S * S * D
    assert products < launch.flops < 1.4 * products  # type: ignore[operator]
    assert launch.bytes == 4 * B * S * D * 2


@ts.kernel(BLOCK=16)
def some_rounds(x: ts.Tensor["N"], step: ts.Tensor[1, ts.int32]):
    ctx = ts.tile.context()
    ts.tile.grid(ts.tile.cdiv(ctx.N, ctx.BLOCK))
    at = ts.tile.program_id(0) * ctx.BLOCK
    for k in ts.tile.range_k(0, ctx.N, ctx.BLOCK):
        if k == step[0]:
            x[at : at + ctx.BLOCK] = x[at : at + ctx.BLOCK] * 2.0


@ts.kernel(BLOCK=16)
def half_of_the_rounds(x: ts.Tensor["N"]):
    ctx = ts.tile.context()
    ts.tile.grid(ts.tile.cdiv(ctx.N, ctx.BLOCK))
    at = ts.tile.program_id(0) * ctx.BLOCK
    for k in ts.tile.range_k(0, ctx.N, ctx.BLOCK):
        if k < at:
            x[at : at + ctx.BLOCK] = x[at : at + ctx.BLOCK] * 2.0


def test_a_branch_counts_by_the_values_of_a_counter_that_take_it() -> None:
    """Of 16 rounds one equals the step; on average half are below the program's rows."""
    x = np.zeros(256, np.float32)
    assert program(some_rounds, x, np.zeros(1, np.int32)).launches[0].flops == 256
    assert program(half_of_the_rounds, x).launches[0].flops == 16 * 256 // 2
