"""Derived backwards of kernels with loops that are unrolled: the text has each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import backward_refusal, check_backward

rng = np.random.default_rng(23)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def filtered(x: Tensor["N", ts.f32], w: Tensor[3, ts.f32]) -> Tensor["N", ts.f32]:
    y: Tensor["N", ts.f32]
    for i in ts.tile.range(0, N, 16):
        acc = ts.tile.zeros((16,))
        for k in range(3):
            acc += x[i + k - 1 : i + k + 15] * w[k]
        y[i : i + 16] = acc
    return y


def filtered_operators(x: Any, w: Any) -> Any:
    wide = ts.pad(x, ((1, 1),))
    return wide[:-2] * w[0] + wide[1:-1] * w[1] + wide[2:] * w[2]


@ts.kernel
def convolved(x: Tensor["M", "N", ts.f32], w: Tensor[3, 3, ts.f32]) -> Tensor["M", "N", ts.f32]:
    y: Tensor["M", "N", ts.f32]
    for i in ts.tile.range(0, M, 4):
        for j in ts.tile.range(0, N, 8):
            acc = ts.tile.zeros((4, 8))
            for a in ts.static_range(3):
                for b in ts.static_range(3):
                    acc += x[i + a - 1 : i + a + 3, j + b - 1 : j + b + 7] * w[a, b]
            y[i : i + 4, j : j + 8] = ts.tile.relu(acc)
    return y


def convolved_operators(x: Any, w: Any) -> Any:
    wide = ts.pad(x, ((1, 1), (1, 1)))
    m, n = x.shape
    return ts.relu(sum(wide[a : a + m, b : b + n] * w[a, b] for a in range(3) for b in range(3)))


def smooth(v: Any, sharpness: float) -> Any:
    bent = ts.tile.tanh(v * sharpness)
    return bent / sharpness


@ts.kernel
def polynomial(x: Tensor["M", "N", ts.f32], c: ts.f32) -> Tensor["M", "N", ts.f32]:
    v = x[tile_m : tile_m + 8, :]
    total = v * 0
    for power, factor in enumerate((0.5, -1.0, c * 0 + 0.25)):
        total += factor * v**power
    return total


@ts.kernel
def layers(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    v = x[tile_m : tile_m + 8, :]
    for sharpness in (0.5, 2.0, 1.0):
        v = smooth(v, sharpness) + v * 0.25
        if sharpness == 2.0:
            v = v - ts.tile.mean(v, axis=-1, keepdim=True)
    return v * sharpness


def layers_operators(x: Any) -> Any:
    for sharpness in (0.5, 2.0, 1.0):
        x = ts.tanh(x * sharpness) / sharpness + x * 0.25
        if sharpness == 2.0:
            x = x - ts.mean(x, -1, keepdims=True)
    return x


@ts.kernel
def added_up(x: Tensor["N", 4, ts.f32], y: Tensor["N", ts.f32]) -> Tensor["N", ts.f32]:
    i = ts.tile.linear_id()
    for j in ts.tile.static_range(4):  # a sum in a register, written back behind the loop
        y[i] += x[i, j] * x[i, 3 - j]
    return y


@ts.kernel
def blocks(x: Tensor["M", "N", ts.f32], w: Tensor["N", "K", ts.f32]) -> Tensor["M", "K", ts.f32]:
    acc = ts.tile.zeros((8, 16))
    for n in ts.tile.range_k(0, N, 16):
        for half in range(2):
            at = n + 8 * half
            acc += x[tile_m : tile_m + 8, at : at + 8] @ w[at : at + 8, tile_k : tile_k + 16]
    return acc


@ts.kernel
def onto(
    a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32], c: Tensor["M", "N", ts.f32]
) -> Tensor["M", "N", ts.f32]:
    for k in ts.tile.range_k(0, K, 16):
        at = a[tile_m : tile_m + 8, k : k + 16]
        c[tile_m : tile_m + 8, tile_n : tile_n + 16] -= at @ b[k : k + 16, tile_n : tile_n + 16]
    return c


CASES: list[tuple[Any, Callable[..., Any], list[Any]]] = [
    (filtered, filtered_operators, [numbers(40), numbers(3)]),
    (convolved, convolved_operators, [numbers(9, 20), numbers(3, 3)]),
    (layers, layers_operators, [numbers(11, 12)]),
    (
        added_up,
        lambda x, y: y + 2 * (x[:, 0] * x[:, 3] + x[:, 1] * x[:, 2]),
        [numbers(21, 4), numbers(21)],
    ),
    (onto, lambda a, b, c: c - a @ b, [numbers(11, 40), numbers(40, 20), numbers(11, 20)]),
    (blocks, lambda x, w: x @ w, [numbers(11, 40), numbers(40, 20)]),
]


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_90a"])
@pytest.mark.parametrize(("kernel", "operators", "args"), CASES, ids=[k.name for k, *_ in CASES])
def test_unrolled_steps_have_gradients(kernel: Any, operators: Any, args: list[Any], target: str) -> None:
    check_backward(kernel, operators, args, target)


@pytest.mark.parametrize("kernel", [filtered, layers, onto], ids=lambda k: k.name)
def test_the_texts_are_kept(kernel: Any, golden: Callable[[str, str], None]) -> None:
    golden(f"{kernel.name}_backward", kernel.backward().source)


def test_sums_of_small_floats_in_registers_are_f32() -> None:
    @ts.kernel
    def summed(x: Tensor["n", "m", ts.bf16], y: Tensor["n", ts.bf16]) -> Tensor["n", ts.bf16]:
        i = ts.tile.linear_id()
        for j in ts.tile.range_k(0, m):
            y[i] += x[i, j] * x[i, j]
        return y

    rule = summed.backward()
    summed.vjp(rule)
    x = numbers(5, 7).astype(ml_dtypes.bfloat16)
    found, before = ts.grad(lambda x, y: ts.sum(summed(x, y)), argnums=(0, 1))(x, np.zeros(5, ml_dtypes.bfloat16))
    np.testing.assert_array_equal(found.astype(np.float32), 2 * x.astype(np.float32))
    assert (before.astype(np.float32) == 1).all()


def test_gradients_are_those_of_differences() -> None:
    filtered.vjp(filtered.backward())
    x, w, weights = numbers(40), numbers(3), numbers(40)

    def loss(x: Any, w: Any) -> float:
        return float((filtered(x, w).astype(np.float64) * weights).sum())

    by_w = ts.grad(lambda w: ts.sum(filtered(x, w) * weights))(w)
    for k in range(3):
        step = np.float32(0.5) * (np.arange(3) == k).astype(np.float32)  # the filter is linear in w
        np.testing.assert_allclose(by_w[k], loss(x, w + step) - loss(x, w - step), rtol=1e-4, atol=1e-4)


def test_loops_that_cannot_be_written_out_are_refused_at_their_line() -> None:
    @ts.kernel
    def left(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        v = x[i]
        for k in range(4):
            if k == 2:
                break
            v = v * v
        y[i] = v

    @ts.kernel
    def long(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        v = x[i]
        for _ in range(100):
            v = ts.tile.sin(v)
        y[i] = v

    assert backward_refusal(left).startswith("4: ") and "left early" in backward_refusal(left)
    assert backward_refusal(long).startswith("4: ") and "its 100 steps are unrolled" in backward_refusal(long)
    assert backward_refusal(polynomial).startswith("4: ") and "count more than numbers" in backward_refusal(polynomial)
