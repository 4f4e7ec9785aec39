"""Derived backwards of kernels that move elements within tiles: parts, sorting, picking by numbers, joining."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import backward_refusal, check_backward

rng = np.random.default_rng(29)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def gated(x: Tensor["M", 32, ts.f32]) -> Tensor["M", 16, ts.f32]:
    t = x[tile_m : tile_m + 8, :]
    return t[:, :16] * ts.tile.sigmoid(t[:, 16:])


@ts.kernel
def turned_in_pairs(
    x: Tensor["M", 16, ts.f32], cos: Tensor[8, ts.f32], sin: Tensor[8, ts.f32]
) -> Tensor["M", 16, ts.f32]:
    row = x[tile_m : tile_m + 8, :]
    even, odd = row[:, ::2], row[:, 1::2]
    return ts.tile.concat((even * cos[:] - odd * sin[:], even * sin[:] + odd * cos[:]), axis=-1)


def turned_operators(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = x[:, ::2], x[:, 1::2]
    return ts.concatenate([even * cos - odd * sin, even * sin + odd * cos], 1)


@ts.kernel
def between(x: Tensor["M", 20, ts.f32]) -> Tensor["M", ts.f32]:
    t = ts.tile.exp(x[tile_m : tile_m + 8, :])
    return ts.tile.sum(t[:, 4:12] * t[:, 8:16], axis=-1)


@ts.kernel
def mean_of_blocks(x: Tensor["M", "N", ts.f32]) -> Tensor["M", ts.f32]:
    y: Tensor["M", ts.f32]
    for i in ts.tile.range(0, M, 8):
        total = ts.tile.zeros((8,))
        for k in ts.tile.range_k(0, N, 16):
            total += ts.tile.square(ts.tile.mean(x[i : i + 8, k : k + 16], axis=-1))
        y[i : i + 8] = total
    return y


def mean_of_blocks_operators(x: Any) -> Any:
    return sum(ts.square(ts.mean(x[:, k : k + 16], -1)) for k in range(0, x.shape[1], 16))


@ts.kernel
def ordered(x: Tensor["M", "N", ts.f32], w: Tensor["N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    t = ts.tile.sort(x[tile_m : tile_m + 8, :], axis=-1, descending=True)
    return ts.tile.flip(t, axis=-1) + t * w[:]


@ts.kernel
def median(x: Tensor["M", 5, ts.f32]) -> Tensor["M", 1, ts.f32]:
    return ts.tile.sort(x[tile_m : tile_m + 8, :])[:, 2:3]


@ts.kernel
def picked(x: Tensor["M", "N", ts.f32], at: Tensor["M", "K", ts.int32]) -> Tensor["M", "K", ts.f32]:
    return ts.tile.gather(x[tile_m : tile_m + 8, :], at[tile_m : tile_m + 8, :], axis=-1)


@ts.kernel
def columns(x: Tensor["M", "N", ts.f32], at: Tensor["K", ts.int32]) -> Tensor["M", "K", ts.f32]:
    t = x[tile_m : tile_m + 8, :]
    which = at[:]
    return t[:, which] * ts.tile.take(t, which, axis=-1)


AT = np.array([3, 0, 3, 7, 1], np.int32)
CASES: list[tuple[Any, Callable[..., Any], list[Any]]] = [
    (gated, lambda x: x[:, :16] * ts.sigmoid(x[:, 16:]), [numbers(11, 32)]),
    (turned_in_pairs, turned_operators, [numbers(11, 16), numbers(8), numbers(8)]),
    (between, lambda x: ts.sum(ts.exp(x[:, 4:12]) * ts.exp(x[:, 8:16]), -1), [numbers(11, 20)]),
    (mean_of_blocks, mean_of_blocks_operators, [numbers(11, 40)]),
    (
        ordered,
        lambda x, w: ts.sort(x, 1) + ts.flip(ts.sort(x, 1), 1) * w,
        [numbers(11, 13), numbers(13)],
    ),
    (median, lambda x: ts.sort(x, 1)[:, 2:3], [numbers(11, 5)]),
    (picked, lambda x, at: ts.gather(x, at, 1), [numbers(11, 9), rng.integers(0, 9, (11, 6), np.int32)]),
    (columns, lambda x, at: ts.square(ts.take(x, at, 1)), [numbers(11, 9), AT]),
]


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_90a"])
@pytest.mark.parametrize(("kernel", "operators", "args"), CASES, ids=[k.name for k, *_ in CASES])
def test_elements_that_are_moved_have_gradients(kernel: Any, operators: Any, args: list[Any], target: str) -> None:
    moved = [i for i, a in enumerate(args) if a.dtype == np.float32]
    check_backward(kernel, operators, args, target, moved)


@pytest.mark.parametrize("kernel", [gated, median, mean_of_blocks], ids=lambda k: k.name)
def test_the_texts_are_kept(kernel: Any, golden: Callable[[str, str], None]) -> None:
    golden(f"{kernel.name}_backward", kernel.backward().source)


def test_parts_that_are_not_numbers_are_refused_at_their_line() -> None:
    @ts.kernel
    def of_a_size(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N//2", ts.f32]):
        t = x[tile_m : tile_m + 8, :]
        y[tile_m : tile_m + 8, :] = t[:, : N // 2] * 2.0

    @ts.kernel
    def split(x: Tensor["M", 32, ts.f32]) -> Tensor["M", 16, ts.f32]:
        a, b = ts.tile.split(x[tile_m : tile_m + 8, :], 2)
        return a * b

    assert backward_refusal(of_a_size).startswith("3: ") and "a part of a tile" in backward_refusal(of_a_size)
    assert backward_refusal(split).startswith("2: ") and "gives in parts" in backward_refusal(split)
