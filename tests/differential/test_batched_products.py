"""Products of batches of matrices in kernels: each has the bits of a product of two matrices, on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tests.kernel_runner import check, codes, program, run

TARGETS = ("reference", "cpu", "emulator:sm_80")
rng = np.random.default_rng(17)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


def empty(*shape: int) -> Any:
    return np.full(shape, 99, np.float32)


def carried(a: Tensor["B", "M", "K", ts.f32], b: Tensor["B", "K", "N", ts.f32], y: Tensor["B", "M", "N", ts.f32]):
    acc = ts.tile.zeros((2, 16, 16))
    for k in ts.tile.range_k(0, K, 8):
        left = a[tile_b : tile_b + 2, tile_m : tile_m + 16, k : k + 8]
        acc += ts.tile.mma(left, b[tile_b : tile_b + 2, k : k + 8, tile_n : tile_n + 16])
    y[tile_b : tile_b + 2, tile_m : tile_m + 16, tile_n : tile_n + 16] = acc * 2


def one_by_one(a: Tensor["B", "M", "K", ts.f32], b: Tensor["B", "K", "N", ts.f32], y: Tensor["B", "M", "N", ts.f32]):
    for i in ts.tile.range(0, B):
        acc = ts.tile.zeros((16, 16))
        for k in ts.tile.range_k(0, K, 8):
            acc += ts.tile.mma(a[i, tile_m : tile_m + 16, k : k + 8], b[i, k : k + 8, tile_n : tile_n + 16])
        y[i, tile_m : tile_m + 16, tile_n : tile_n + 16] = acc * 2


@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_has_the_bits_of_its_matrices(target: str) -> None:
    """At ragged edges of all axes, the batch's too."""
    a, b, y, z = normal(3, 20, 19), normal(3, 19, 18), empty(3, 20, 18), empty(3, 20, 18)
    run(carried, a, b, y, target=target)
    run(one_by_one, a, b, z, target=target)
    np.testing.assert_array_equal(y, z)
    np.testing.assert_allclose(y, 2 * (a @ b), rtol=1e-4, atol=1e-4)


def test_no_element_of_a_carried_batch_moves() -> None:
    """The loop carries matrices, which stay in registers, and each is stored by itself."""
    ops = [
        op.name
        for op in program(carried, normal(3, 20, 19), normal(3, 19, 18), empty(3, 20, 18)).launches[0].kernel.walk()
    ]
    assert ops.count("tile.mma") == ops.count("tile.store") == 2
    assert not {"tile.part", "tile.joined"} & set(ops)


def scores(q: Tensor["B", "S", "D", ts.f16], k: Tensor["B", "T", "D", ts.f16], y: Tensor["B", "S", "T", ts.f32]):
    s = ts.tile.mma(q[tile_b : tile_b + 2, tile_s : tile_s + 16], k[tile_b : tile_b + 2, :, :].transpose(0, 2, 1))
    p = ts.tile.exp(s - ts.tile.max(s, axis=-1, keepdim=True))
    y[tile_b : tile_b + 2, tile_s : tile_s + 16, :] = p / ts.tile.sum(p, axis=-1, keepdim=True)


def shared_right(a: Tensor["B", "M", "K", ts.bf16], b: Tensor["K", "N", ts.bf16], y: Tensor["B", "M", "N", ts.f32]):
    y[tile_b : tile_b + 2, tile_m : tile_m + 16, :] = a[tile_b : tile_b + 2, tile_m : tile_m + 16, :] @ b[:, :]


def shared_left(a: Tensor["M", "K", ts.f32], b: Tensor["B", "K", "N", ts.f32], y: Tensor["B", "M", "N", ts.f32]):
    s = ts.tile.alloc_shared((16, 8), ts.f32)
    ts.tile.cp_async(s, a[tile_m : tile_m + 16, 0:8])
    ts.tile.barrier()
    y[tile_b : tile_b + 2, tile_m : tile_m + 16, :] = ts.tile.mma(s, b[tile_b : tile_b + 2, 0:8, :])


def two_axes(a: Tensor["B", "H", "M", "K", ts.f32], b: Tensor["H", "K", "N", ts.f32],
             y: Tensor["B", "H", "M", "N", ts.f32]):  # fmt: skip
    y[tile_b : tile_b + 2, 0:2, 0:8, :] = ts.tile.mma(a[tile_b : tile_b + 2, 0:2, 0:8, :], b[0:2, :, :])


def added_up(a: Tensor["B", "M", "K", ts.f32], b: Tensor["B", "K", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    """Across the batch: the matrices are put together again."""
    y[0:8, :] = ts.tile.sum(ts.tile.mma(a[0:4, 0:8, :], b[0:4, :, :]), axis=0)


def while_carried(a: Tensor["B", "M", "M", ts.f32], y: Tensor["B", "M", "M", ts.f32], most: float):
    x, steps = a[0:2, 0:4, 0:4] * 1, 0
    while ts.tile.max(x) < most:
        x, steps = ts.tile.mma(x, a[0:2, 0:4, 0:4]), steps + 1
    y[0:2, 0:4, 0:4] = x + steps * 0


def masked(a: Tensor["B", "M", "K", ts.f32], b: Tensor["B", "K", "N", ts.f32], y: Tensor["B", "M", "N", ts.f32]):
    left = a[tile_b : tile_b + 2, 0:8, :]
    product = ts.tile.mma(ts.tile.where(left > 0, left, 0), b[tile_b : tile_b + 2, :, :])
    if product > 0:
        y[tile_b : tile_b + 2, 0:8, :] = product


def from_tile(a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32], y: Tensor["M", "P", ts.f32]):
    """Of parts that no load gives."""
    left, right = ts.tile.reshape(a[0:6, 0:8], (2, 3, 8)), ts.tile.stack((b[0:8, 0:4], b[0:8, 4:8]))
    y[0:6, 0:4] = ts.tile.reshape(ts.tile.mma(left, right), (6, 4))


def softmaxed(q: Any, k: Any) -> Any:
    s = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def powers(a: Any, most: float) -> Any:
    x = a
    while x.max() < most:
        x = x @ a
    return x


def positive(a: Any, b: Any) -> Any:
    found = np.maximum(a, 0) @ b
    return np.where(found > 0, found, np.float32(99))


def wide(x: Any) -> Any:
    return x.astype(np.float32)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], Callable[..., Any]]] = {
    "scores": (scores, lambda: (normal(3, 20, 32, dtype=np.float16), normal(3, 16, 32, dtype=np.float16),
                                empty(3, 20, 16)), softmaxed),
    "shared_right": (shared_right, lambda: (normal(3, 20, 32, dtype=ml_dtypes.bfloat16),
                                            normal(32, 16, dtype=ml_dtypes.bfloat16), empty(3, 20, 16)),
                     lambda a, b: wide(a) @ wide(b)),
    "shared_left": (shared_left, lambda: (normal(20, 8), normal(3, 8, 5), empty(3, 20, 5)), lambda a, b: a @ b),
    "two_axes": (two_axes, lambda: (normal(3, 2, 8, 7), normal(2, 7, 6), empty(3, 2, 8, 6)), lambda a, b: a @ b),
    "added_up": (added_up, lambda: (normal(3, 8, 5), normal(3, 5, 6), empty(8, 6)), lambda a, b: (a @ b).sum(0)),
    "masked": (masked, lambda: (normal(3, 8, 5), normal(3, 5, 6), empty(3, 8, 6)), positive),
    "from_tile": (from_tile, lambda: (normal(6, 8), normal(8, 8), empty(6, 4)),
                  lambda a, b: np.concatenate((a[:3] @ b[:, :4], a[3:] @ b[:, 4:]))),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_batches_against_numpy(case: str, target: str) -> None:
    kernel, given, wanted = CASES[case]
    *inputs, out = given()
    run(kernel, *inputs, out, target=target)
    np.testing.assert_allclose(out, wanted(*inputs), rtol=2e-3 if case == "scores" else 1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_carried_by_while(target: str) -> None:
    a, y = np.abs(normal(2, 4, 4)) + 1, empty(2, 4, 4)
    run(while_carried, a, y, 1e4, target=target)
    np.testing.assert_allclose(y, powers(a, 1e4), rtol=1e-4)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
def test_batches_are_assembled_with_tensor_cores(target: str) -> None:
    chosen = base.get(target)
    *inputs, out = CASES["shared_right"][1]()
    artifact = generate(program(shared_right, *inputs, out), chosen)
    assert "Fragment" in artifact.source or "mma_warpgroups" in artifact.source


def summed_in_a_loop(a: Tensor["B", "M", "M", ts.f32], y: Tensor["B", "M", "M", ts.f32], r: Tensor["B", ts.f32]):
    x = a[0:2, 0:4, 0:4] * 1
    for _ in ts.tile.range_k(0, M, 1):
        x = ts.tile.concat((x[0:1], x[1:2]), axis=0) / 4 + ts.tile.sum(x, axis=(1, 2))[:, None, None]
    y[0:2, 0:4, 0:4] = x
    r[0:2] = ts.tile.sum(ts.tile.cumsum(x, axis=1) * 2, axis=(1, 2))


@pytest.mark.parametrize("target", TARGETS)
def test_a_carried_tile_is_reduced_over_two_axes(target: str) -> None:
    """On a GPU tiles of one group lie one way, whatever reductions want of some of them."""
    a = rng.integers(0, 9, (2, 4, 4)).astype(np.float32)
    y, r, x = empty(2, 4, 4), empty(2), a
    run(summed_in_a_loop, a, y, r, target=target)
    for _ in range(4):
        x = x / 4 + x.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(y, x, rtol=1e-5)
    np.testing.assert_allclose(r, (x.cumsum(1) * 2).sum((1, 2)), rtol=1e-5)


def sizes_differ(a: Tensor["B", "M", "K", ts.f32], y: Tensor["M", "M", ts.f32]):
    y[0:4, 0:4] = ts.tile.sum(ts.tile.mma(a[0:2, 0:4, 0:4], a[0:3, 0:4, 0:4]), axis=0)


def axes_differ(a: Tensor["B", "M", "K", ts.f32], c: Tensor["C", "K", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    for i in ts.tile.range(0, B, 2):
        for j in ts.tile.range(0, C, 2):
            y[0:4, 0:4] = ts.tile.sum(ts.tile.mma(a[i : i + 2, 0:4, 0:4], c[j : j + 2, 0:4, 0:4]), axis=0)


def too_many(a: Tensor["B", "M", "K", ts.f32], y: Tensor["B", "M", "M", ts.f32]):
    y[0:65, 0:4, 0:4] = ts.tile.mma(a[0:65, 0:4, 0:4], a[0:65, 0:4, 0:4])


def vectors(a: Tensor["M", "K", ts.f32], y: Tensor["M", ts.f32]):
    y[0:4] = ts.tile.mma(a[0:4, 0:4], a[0, 0:4])


@pytest.mark.parametrize(
    ("kernel", "code", "says"),
    [
        (sizes_differ, "TS402", "2 and 3"),
        (axes_differ, "TS418", "one runs along i, the other along j"),
        (too_many, "TS402", "up to 64 matrices"),
        (vectors, "TS402", "two axes or more"),
    ],
)
def test_what_is_refused(kernel: Callable[..., Any], code: str, says: str) -> None:
    assert codes(kernel)[:1] == [code]
    assert any(says in d.message for d in check(kernel).diagnostics)
