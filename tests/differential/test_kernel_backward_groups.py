"""Derived backwards of kernels whose programs share blocks by groups, as heads do: against operators under ts.grad."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import backward_refusal, check_backward

rng = np.random.default_rng(11)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@ts.kernel
def attend(
    q: Tensor["B", "H", "S", "D", ts.f32], k: Tensor["B", "G", "T", "D", ts.f32], v: Tensor["B", "G", "T", "E", ts.f32]
) -> Tensor["B", "H", "S", "E", ts.f32]:
    g = tile_h // (H // G)
    top = ts.tile.full((8,), -math.inf)
    total = ts.tile.zeros((8,))
    acc = ts.tile.zeros((8, E))
    for j in ts.tile.range_k(0, T, 16):
        s = q[tile_b, tile_h, tile_s : tile_s + 8, :] @ k[tile_b, g, j : j + 16, :].T * 0.25
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        p, shrink = ts.tile.exp(s - new[:, None]), ts.tile.exp(top - new)
        total = total * shrink + ts.tile.row_sum(p)
        acc = acc * shrink[:, None] + p @ v[tile_b, g, j : j + 16, :]
        top = new
    return acc / total[:, None]


@ts.kernel
def causal(
    q: Tensor["B", "H", "S", "D", ts.f32],
    k: Tensor["B", "G", "S", "D", ts.f32],
    v: Tensor["B", "G", "S", "E", ts.f32],
) -> Tensor["B", "H", "S", "E", ts.f32]:
    top = ts.tile.full((8,), -math.inf)
    total = ts.tile.zeros((8,))
    acc = ts.tile.zeros((8, E))
    for j in ts.tile.range_k(0, min(tile_s + 8, S), 16):
        s = q[tile_b, tile_h, tile_s : tile_s + 8, :] @ k[tile_b, tile_h // (H // G), j : j + 16, :].T * 0.25
        seen = (tile_s + ts.tile.arange(8))[:, None] >= (j + ts.tile.arange(16))[None, :]
        s = ts.tile.where(seen, s, -math.inf)
        new = ts.tile.maximum(top, ts.tile.row_max(s))
        p, shrink = ts.tile.exp(s - new[:, None]), ts.tile.exp(top - new)
        total = total * shrink + ts.tile.row_sum(p)
        acc = acc * shrink[:, None] + p @ v[tile_b, tile_h // (H // G), j : j + 16, :]
        top = new
    return acc / total[:, None]


@ts.kernel
def apart(
    q: Tensor["G", "R", "S", "D", ts.f32], k: Tensor["G", "T", "D", ts.f32]
) -> Tensor["G", "R", "S", "T", ts.f32]:
    return q[tile_g, tile_r, tile_s : tile_s + 8, :] @ k[tile_g, tile_t : tile_t + 8, :].T


@ts.kernel
def scaled(q: Tensor["H", "S", "D", ts.f32], k: Tensor["G", "D", ts.f32]) -> Tensor["H", "S", "D", ts.f32]:
    return q[tile_h, tile_s : tile_s + 8, :] * k[tile_h // (H // G), :]


@ts.kernel
def in_pairs(q: Tensor["H", "S", "D", ts.f32], k: Tensor["G", "S", "D", ts.f32]) -> Tensor["H", "S", "D", ts.f32]:
    return q[tile_h, tile_s : tile_s + 8, :] * k[tile_h // 2, tile_s : tile_s + 8, :]


@ts.kernel
def rows(q: Tensor["H", "D", ts.f32], k: Tensor["G", "D", ts.f32]) -> Tensor["H", "D", ts.f32]:
    return q[tile_h, :] * k[tile_h // (H // G), :]


@ts.kernel
def narrow(q: Tensor["H", "D", ts.bf16], k: Tensor["G", "D", ts.bf16]) -> Tensor["H", "D", ts.bf16]:
    return q[tile_h, :] * k[tile_h // (H // G), :]


@ts.kernel
def numbered(q: Tensor["H", "S", ts.f32]) -> Tensor["H", "S", ts.f32]:
    """Quotient and remainder together tell every program: nothing is shared."""
    out: Tensor["H", "S", ts.f32]
    for p in ts.tile.range(0, H * S, 1):
        out[p // S, p % S] = q[p // S, p % S] * 2.0
    return out


def spread(k: Any, q: Any, axis: int) -> Any:
    return ts.repeat(k, q.shape[axis] // k.shape[axis], axis=axis)


def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    s = q @ ts.swapaxes(spread(k, q, -3), -1, -2) * 0.25
    if causal:
        seen = ts.arange(q.shape[-2])[:, None] >= ts.arange(k.shape[-2])[None, :]
        s = ts.where(seen, s, -1e30)
    return ts.softmax(s, -1) @ spread(v, q, -3)


def product(q: Any, k: Any) -> Any:
    return q * spread(k[:, None] if k.ndim < q.ndim else k, q, 0)


def heads(h: int, g: int) -> list[Any]:
    return [numbers(2, h, 21, 8), numbers(2, g, 21, 8), numbers(2, g, 21, 12)]


CASES: dict[str, tuple[Any, Any, list[Any]]] = {
    "two groups": (attend, attention, heads(4, 2)),
    "one group": (attend, attention, heads(3, 1)),
    "groups of one": (attend, attention, heads(3, 3)),
    "causal": (causal, lambda q, k, v: attention(q, k, v, True), heads(6, 2)),
    "numbered": (numbered, lambda q: q * 2.0, [numbers(4, 6)]),
    "axes apart": (
        apart, lambda q, k: q @ ts.swapaxes(k, -1, -2)[:, None], [numbers(2, 3, 21, 8), numbers(2, 13, 8)],
    ),
    "scaled": (scaled, product, [numbers(6, 21, 8), numbers(2, 8)]),
    "in pairs": (in_pairs, product, [numbers(4, 21, 8), numbers(2, 21, 8)]),
    "rows": (rows, product, [numbers(6, 8), numbers(3, 8)]),
}  # fmt: skip


def compare(case: str, target: str) -> None:
    check_backward(*CASES[case], target)


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_what_a_group_shares_is_the_sum_over_it(case: str) -> None:
    compare(case, "cpu")


@pytest.mark.parametrize("case", ["causal", "scaled"])
@pytest.mark.parametrize("target", ["reference", "emulator:sm_90a"])
def test_other_machines_have_the_same_gradients(case: str, target: str) -> None:
    compare(case, target)


def test_the_sum_is_in_f32_and_in_ascending_order() -> None:
    """Sixteen heads of a group in bf16: the sum is rounded once, as a loop over the heads has it."""
    import ml_dtypes

    q, k = numbers(16, 8).astype(ml_dtypes.bfloat16), numbers(1, 8).astype(ml_dtypes.bfloat16)
    narrow.vjp(narrow.backward())
    found = ts.grad(lambda k: ts.sum(narrow(q, k).to(ts.f32)))(k)
    total = np.zeros(8, np.float32)
    for head in q.astype(np.float32):
        total += head
    np.testing.assert_array_equal(np.asarray(found)[0].astype(np.float32), total.astype(ml_dtypes.bfloat16))


def test_the_text_is_what_one_would_write() -> None:
    text = attend.backward().source
    loop = "for h in ts.tile.range_k(tile_g * (H // G), min(tile_g * (H // G) + H // G, H), 1):"
    assert loop in text and "d_v[tile_b, tile_g, tile_t:tile_t + 16, :] = d_v_tile" in text
    assert "v[tile_b, tile_g" in text[: text.index(loop)]  # what the group shares is read once


@ts.kernel
def displaced(q: Tensor["H", "D", ts.f32], k: Tensor["G", "D", ts.f32]) -> Tensor["H", "D", ts.f32]:
    return q[tile_h, :] * k[(tile_h + 1) // 2, :]


@ts.kernel
def clipped(q: Tensor["H", "D", ts.f32], k: Tensor["G", "D", ts.f32]) -> Tensor["H", "D", ts.f32]:
    return q[tile_h, :] * k[min(tile_h, G - 1), :]


@pytest.mark.parametrize("kernel", [displaced, clipped])
def test_other_places_that_programs_have_in_common_are_refused(kernel: Any) -> None:
    """They were derived as if each program had a place of its own, which is wrong."""
    assert "overlap" in backward_refusal(kernel)
