"""Derived backwards of kernels with blocked products: against the same program in operators under ts.grad."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tests.kernel_runner import backward_refusal

rng = np.random.default_rng(5)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def product(a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((8, 16))
    for k in ts.tile.range_k(0, K, 16):
        acc += ts.tile.mma(a[tile_m : tile_m + 8, k : k + 16], b[k : k + 16, tile_n : tile_n + 16])
    return acc


@ts.kernel(ROWS=8, COLUMNS=16)
def linear(
    x: Tensor["...", "M", "K", ts.f32], w: Tensor["K", "N", ts.f32], bias: Tensor["N", ts.f32]
) -> Tensor["...", "M", "N", ts.f32]:
    ts.tile.grid(grouped=4)
    ctx = ts.tile.context()
    rows, columns = ctx.ROWS, ctx.COLUMNS
    acc = ts.tile.zeros((rows, columns))
    for k in ts.tile.range_k(0, K, 16):
        acc += x[tile_m : tile_m + rows, k : k + 16] @ w[k : k + 16, tile_n : tile_n + columns]
    return ts.tile.gelu(acc + bias[tile_n : tile_n + columns])


@ts.kernel
def added(
    a: Tensor["M", "K", ts.f32], b: Tensor["K", "K", ts.f32], bias: Tensor["K", ts.f32], by: ts.f32
) -> Tensor["M", "K", ts.f32]:
    acc = ts.tile.zeros((8, 16))
    for k in ts.tile.range_k(0, K, 16):
        acc += a[tile_m : tile_m + 8, k : k + 16] @ b[k : k + 16, tile_k : tile_k + 16]
    return by * acc + bias[tile_k : tile_k + 16]


@ts.kernel
def turned(a: Tensor["K", "M", ts.f32], b: Tensor["N", "K", ts.f32]) -> Tensor["M", "N", ts.f32]:
    y: Tensor["M", "N", ts.f32]
    for i in ts.tile.range(0, M, 8):
        acc = ts.tile.zeros((8, 16))
        for k in ts.tile.range_k(0, K, 16):
            raised = ts.tile.exp(a[k : k + 16, i : i + 8].T)
            acc = ts.tile.mma(raised, b[tile_n : tile_n + 16, k : k + 16].T, acc)
        y[i : i + 8, tile_n : tile_n + 16] = acc
    return y


@ts.kernel
def gated(
    x: Tensor["M", "K", ts.f32], w: Tensor["K", "N", ts.f32], v: Tensor["K", "N", ts.f32]
) -> Tensor["M", "N", ts.f32]:
    a = ts.tile.zeros((8, 16))
    b = ts.tile.zeros((8, 16))
    for k in ts.tile.range_k(0, K, 16):
        part = x[tile_m : tile_m + 8, k : k + 16]
        a += part @ w[k : k + 16, tile_n : tile_n + 16]
        b += part @ v[k : k + 16, tile_n : tile_n + 16]
    return ts.tile.silu(a) * b


@ts.kernel
def two_layers(
    x: Tensor["M", "D", ts.f32], w: Tensor["D", "H", ts.f32], v: Tensor["H", "E", ts.f32]
) -> Tensor["M", "E", ts.f32]:
    y: Tensor["M", "E", ts.f32]
    for i in ts.tile.range(0, M, 8):
        acc = ts.tile.zeros((8, E))
        for k in ts.tile.range_k(0, H, 16):
            acc += ts.tile.relu(x[i : i + 8, :] @ w[:, k : k + 16]) @ v[k : k + 16, :]
        y[i : i + 8, :] = acc
    return y


@ts.kernel
def of_whole_rows(a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    return a[tile_m : tile_m + 16, :] @ b[:, tile_n : tile_n + 32]


@ts.kernel
def walked(x: Tensor["M", "N", ts.f32], w: Tensor["N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    y: Tensor["M", "N", ts.f32]
    for i in ts.tile.range(0, M, 4):
        for k in ts.tile.range_k(0, N, 16):
            y[i : i + 4, k : k + 16] = ts.tile.exp(x[i : i + 4, k : k + 16]) * w[k : k + 16]
    return y


CASES: list[tuple[Any, Any, list[Any]]] = [
    (product, lambda a, b: a @ b, [numbers(20, 40), numbers(40, 36)]),
    (linear, lambda x, w, b: ts.gelu(x @ w + b), [numbers(3, 20, 40), numbers(40, 36), numbers(36)]),
    (added, lambda a, b, bias, by: by * (a @ b) + bias, [numbers(20, 40), numbers(40, 40), numbers(40), 1.5]),
    (turned, lambda a, b: ts.exp(a.T) @ b.T, [numbers(40, 20), numbers(36, 40)]),
    (gated, lambda x, w, v: ts.silu(x @ w) * (x @ v), [numbers(20, 40), numbers(40, 36), numbers(40, 36)]),
    (two_layers, lambda x, w, v: ts.relu(x @ w) @ v, [numbers(20, 24), numbers(24, 40), numbers(40, 12)]),
    (of_whole_rows, lambda a, b: a @ b, [numbers(20, 40), numbers(40, 36)]),
    (walked, lambda x, w: ts.exp(x) * w, [numbers(10, 40), numbers(40)]),
]
NAMES = [k.name for k, _, _ in CASES]


def loss_of(f: Any, count: int) -> Any:
    if count == 2:
        return ts.function(lambda weights, a, b: ts.sum(f(a, b) * weights))
    if count == 3:
        return ts.function(lambda weights, a, b, c: ts.sum(f(a, b, c) * weights))
    return ts.function(lambda weights, a, b, c, d: ts.sum(f(a, b, c, d) * weights))


def compare(case: Any, target: str) -> None:
    kernel, operators, args = case
    kernel.vjp(kernel.backward())
    weights = numbers(*np.shape(ts.function(operators)(*args)))
    numbered = tuple(range(1, len(args) + 1))
    wanted = ts.grad(loss_of(operators, len(args)), argnums=numbered)(weights, *args)
    with knobs.target.override(target):
        found = ts.grad(loss_of(kernel, len(args)), argnums=numbered)(weights, *args)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_gradient_of_a_blocked_product_is_that_of_the_operators(case: Any, target: str) -> None:
    compare(case, target)


@pytest.mark.parametrize("case", [CASES[1], CASES[5]], ids=[NAMES[1], NAMES[5]])
def test_the_emulated_machine_has_the_same_gradients_of_products(case: Any) -> None:
    compare(case, "emulator:sm_90a")


def test_each_operand_has_a_kernel_that_keeps_the_tiling() -> None:
    text = product.backward().source
    assert "def product_backward(" not in text  # the cotangent of the result is all that they need
    assert "for n in ts.tile.range_k(0, N, 16):" in text and "for m in ts.tile.range_k(0, M, 8):" in text
    assert "d_a[tile_m:tile_m + 8, tile_k:tile_k + 16] = d_a_tile" in text
    assert "d_b[tile_k:tile_k + 16, tile_n:tile_n + 16] = d_b_tile" in text
    assert "reduce_across" not in text
    text = linear.backward().source
    assert text.count("d_added_kept[") == 3  # computed and stored once, read by both


def test_a_stored_parameter_is_added_to_and_products_of_small_floats_are_summed_in_f32() -> None:
    @ts.kernel
    def onto(a: Tensor["M", "K", ts.bf16], b: Tensor["K", "N", ts.bf16], c: Tensor["M", "N", ts.f32]):
        acc = ts.tile.zeros((8, 16))
        for k in ts.tile.range_k(0, K, 16):
            acc += ts.tile.mma(a[tile_m : tile_m + 8, k : k + 16], b[k : k + 16, tile_n : tile_n + 16])
        c[tile_m : tile_m + 8, tile_n : tile_n + 16] += acc

    onto.vjp(onto.backward())

    @ts.function
    def loss(a: Tensor["M", "K", ts.bf16], b: Tensor["K", "N", ts.bf16], c: Tensor["M", "N", ts.f32]):
        total = c * 2
        onto(a, b, total)
        return ts.sum(total)

    a, b = np.ones((1001, 3), ml_dtypes.bfloat16), np.ones((3, 20), ml_dtypes.bfloat16)
    by_a, by_b, by_c = ts.grad(loss, argnums=(0, 1, 2))(a, b, np.zeros((1001, 20), np.float32))
    assert by_a.dtype == by_b.dtype == ml_dtypes.bfloat16
    assert (by_a.astype(np.float32) == 20).all() and (by_c == 2).all()
    assert (by_b.astype(np.float32) == 1000).all()  # 1001, rounded once; sums of bf16 stop at 256


def test_products_whose_places_are_not_written_are_refused_at_their_line() -> None:
    @ts.kernel
    def numbered(a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32], c: Tensor["M", "N", ts.f32]):
        i, j = ts.tile.program_id(0) * 8, ts.tile.program_id(1) * 16
        acc = ts.tile.zeros((8, 16))
        for k in ts.tile.range_k(0, K, 16):
            acc += a[i : i + 8, k : k + 16] @ b[k : k + 16, j : j + 16]
        c[i : i + 8, j : j + 16] = acc

    @ts.kernel
    def overwritten(x: Tensor["M", "N", ts.f32], w: Tensor["N", ts.f32], y: Tensor["M", "N", ts.f32]):
        for i in ts.tile.range(0, M, 4):
            for k in ts.tile.range_k(0, N, 16):
                y[i : i + 4, k : k + 16] = x[i : i + 4, k : k + 16] * w[k : k + 16]

    assert backward_refusal(numbered).startswith("5: ") and "not written as tile_m or a range" in backward_refusal(
        numbered
    )
    assert backward_refusal(overwritten).startswith("4: ") and "declare the result" in backward_refusal(overwritten)
