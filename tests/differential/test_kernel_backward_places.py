"""Derived backwards of kernels that read one parameter at several places: the rule adds what each place gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import backward_refusal, check_backward

rng = np.random.default_rng(19)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def gram(x: Tensor["M", "K", ts.f32]) -> Tensor["M", "M", ts.f32]:
    y: Tensor["M", "M", ts.f32]
    for i in ts.tile.range(0, M, 8):
        for j in ts.tile.range(0, M, 8):
            y[i : i + 8, j : j + 8] = x[i : i + 8, :] @ x[j : j + 8, :].T
    return y


@ts.kernel
def scores(x: Tensor["M", "K", ts.f32]) -> Tensor["M", ts.f32]:
    """Of each row, how it lies to all others and to itself."""
    y: Tensor["M", ts.f32]
    for i in ts.tile.range(0, M, 8):
        total = ts.tile.zeros((8,))
        for j in ts.tile.range_k(0, M, 8):
            total += ts.tile.row_sum(ts.tile.tanh(x[i : i + 8, :] @ x[j : j + 8, :].T))
        y[i : i + 8] = total + ts.tile.row_sum(x[i : i + 8, :])
    return y


@ts.kernel
def second_difference(x: Tensor["N", ts.f32]) -> Tensor["N", ts.f32]:
    y: Tensor["N", ts.f32]
    i = ts.tile.linear_id()
    if i > 0 and i < N - 1:
        y[i] = x[i - 1] - 2 * x[i] + x[i + 1]
    return y


@ts.kernel
def heated(u: Tensor["M", "N", ts.f32], rate: ts.f32) -> Tensor["M", "N", ts.f32]:
    y: Tensor["M", "N", ts.f32]
    for i in ts.tile.range(0, M, 4):
        for j in ts.tile.range(0, N, 8):
            here = u[i : i + 4, j : j + 8]
            beside = u[i - 1 : i + 3, j : j + 8] + u[i + 1 : i + 5, j : j + 8]
            around = beside + u[i : i + 4, j - 1 : j + 7] + u[i : i + 4, j + 1 : j + 9]
            y[i : i + 4, j : j + 8] = here + rate * (around - 4 * here) * here
    return y


def heated_operators(u: Any, rate: Any) -> Any:
    wide = ts.pad(u, ((1, 1), (1, 1)))
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return u + rate * (around - 4 * u) * u


@ts.kernel
def weighed(x: Tensor["M", "N", ts.f32], w: Tensor[3, ts.f32]) -> Tensor["M", "N", ts.f32]:
    v = x[tile_m : tile_m + 8, tile_n : tile_n + 8]
    return w[0] + v * (w[1] + v * w[2]) + w[0] * v


@ts.kernel
def filled(x: Tensor["8*M", ts.f32], z: Tensor["8*M", ts.f32]) -> Tensor["M", ts.f32]:
    y: Tensor["M", ts.f32]
    for i in ts.tile.range(0, M):
        y[i] = ts.tile.sum(ts.tile.load(x[8 * i - 1 : 8 * i + 7], other=0) + z[8 * i : 8 * i + 8]) / 8
    return y


@ts.kernel
def each_and_all(x: Tensor["N", "N", ts.f32]) -> Tensor["N", "N", ts.f32]:
    y: Tensor["N", "N", ts.f32]
    for i in ts.tile.range(0, N, 8):
        y[i : i + 8, :] = x[i : i + 8, :] * x[0, :]
    return y


CASES: list[tuple[Any, Callable[..., Any], list[Any]]] = [
    (gram, lambda x: x @ ts.permute(x, (1, 0)), [numbers(21, 10)]),
    (scores, lambda x: ts.sum(ts.tanh(x @ ts.permute(x, (1, 0))), 1) + ts.sum(x, 1), [numbers(21, 10) / 3]),
    (
        second_difference,
        lambda x: ts.pad(x[:-2] - 2 * x[1:-1] + x[2:], ((1, 1),)),
        [numbers(40)],
    ),
    (heated, heated_operators, [numbers(9, 20), 0.1]),
    (weighed, lambda x, w: w[0] + x * (w[1] + x * w[2]) + w[0] * x, [numbers(11, 19), numbers(3)]),
    (
        filled,
        lambda x, z: ts.sum(ts.reshape(ts.pad(x[:-1], ((1, 0),)) + z, (-1, 8)), 1) / 8,
        [numbers(32), numbers(32)],
    ),
    (each_and_all, lambda x: x * x[0], [numbers(19, 19)]),
]


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_90a"])
@pytest.mark.parametrize(("kernel", "operators", "args"), CASES, ids=[k.name for k, *_ in CASES])
def test_each_place_has_its_share(kernel: Any, operators: Any, args: list[Any], target: str) -> None:
    check_backward(kernel, operators, args, target)


def test_small_floats_of_several_places_are_rounded_once() -> None:
    @ts.kernel
    def doubled(x: Tensor["N", ts.bf16], y: Tensor["N", ts.f32]):
        i = ts.tile.linear_id()
        if i > 0:
            y[i] = x[i].to(ts.f32) + x[i - 1].to(ts.f32) * 0.001

    rule = doubled.backward()
    doubled.vjp(rule)
    assert "return (d_x + d_x_2).to(x.dtype)" in rule.source

    @ts.function
    def loss(x: Tensor["N", ts.bf16], weights: Tensor["N", ts.f32]):
        y = ts.zeros_like(weights)
        doubled(x, y)
        return ts.sum(y * weights)

    weights = numbers(40)
    found = ts.grad(loss)(np.ones(40, ml_dtypes.bfloat16), weights)
    wanted = np.concatenate([[0], weights[1:]]) + np.concatenate([weights[1:] * np.float32(0.001), [0]])
    np.testing.assert_array_equal(found, wanted.astype(np.float32).astype(ml_dtypes.bfloat16))


def test_a_sum_that_leaves_out_what_others_have_is_refused() -> None:
    @ts.kernel
    def of_pairs(x: Tensor["N", ts.f32], z: Tensor["N", ts.f32], y: Tensor["M", ts.f32]):
        for i in ts.tile.range(0, M):
            y[i] = ts.tile.sum(x[8 * i - 1 : 8 * i + 7] + z[8 * i : 8 * i + 8])

    @ts.kernel
    def of_shifted(x: Tensor["N", ts.f32], z: Tensor["N", ts.f32], a: ts.f32, y: Tensor["N", ts.f32]):
        for i in ts.tile.range(0, N, 8):
            before = x[i - 1 : i + 7]
            y[i : i + 8] = z[i : i + 8] * a * before - ts.tile.sum(before)

    assert backward_refusal(of_pairs).startswith("3: ") and "load them with other=0" in backward_refusal(of_pairs)
    assert backward_refusal(of_shifted).startswith("4: ") and "a displaced block" in backward_refusal(of_shifted)


@pytest.mark.parametrize("kernel", [gram, heated, weighed], ids=lambda k: k.name)
def test_the_texts_are_kept(kernel: Any, golden: Callable[[str, str], None]) -> None:
    golden(f"{kernel.name}_backward", kernel.backward().source)
