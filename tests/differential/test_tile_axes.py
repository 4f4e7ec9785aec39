"""Tiles meet by the axes they lie along, never by their lengths: one text, blocks of equal and of unequal length.

Every kernel runs with several pairs of block sizes, against NumPy. A kernel that is refused is refused under all.
"""
# fmt: off
# ruff: noqa

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32
from tests.conftest import require
from tests.kernel_runner import check, run

TARGETS = ("reference", "cpu", "emulator:sm_80")
BLOCKS = ((8, 8), (8, 4), (4, 8), (1, 8), (8, 1), (16, 16))
M, N, K = 19, 21, 8
rng = np.random.default_rng(5)

MEETING: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
REFUSED: list[tuple[Callable[..., Any], str, int]] = []


def gives(wanted: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What the kernel stores into `out`, from x [M], y [N], a [M, K], b [N, K] and c [M, N]."""
    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        MEETING.append((kernel, wanted))
        return kernel
    return add


def refused(says: str, fixes: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        REFUSED.append((kernel, says, fixes))
        return kernel
    return add


@gives(lambda x, y, a, b, c: x[:, None] * y)
def outer(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    for i in ts.tile.range(0, M, BM):
        for j in ts.tile.range(0, N, BN):
            out[i:i+BM, j:j+BN] = x[i:i+BM] * y[j:j+BN]


@gives(lambda x, y, a, b, c: y - x[:, None])
def outer_in_another_order(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    for i in ts.tile.range(0, M, BM):
        for j in ts.tile.range(0, N, BN):
            out[i:i+BM, j:j+BN] = y[j:j+BN] - x[i:i+BM]


@gives(lambda x, y, a, b, c: x[:, None] + y)
def implicit_coordinates(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = x[tile_m:tile_m+BM] + y[tile_n:tile_n+BN]


@gives(lambda x, y, a, b, c: x[:, None] + y)
def program_ids(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    i, j = ts.tile.program_id(0) * BM, ts.tile.program_id(1) * BN
    out[i:i+BM, j:j+BN] = x[i:i+BM] + y[j:j+BN]


@gives(lambda x, y, a, b, c: np.where(x[:, None] > y, x[:, None], y * 2))
def selected(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    p, q = x[tile_m:tile_m+BM], y[tile_n:tile_n+BN]
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = ts.tile.where(p > q, p, q * 2)


@gives(lambda x, y, a, b, c: np.maximum(x[:, None], y) - np.minimum(y, c))
def extremes(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    p, q = x[tile_m:tile_m+BM], y[tile_n:tile_n+BN]
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = ts.tile.maximum(p, q) - ts.tile.minimum(q, c[tile_m:tile_m+BM, tile_n:tile_n+BN])


@gives(lambda x, y, a, b, c: (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T)
def distances(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    for i in ts.tile.range(0, M, BM):
        for j in ts.tile.range(0, N, BN):
            p, q = a[i:i+BM, :], b[j:j+BN, :]
            out[i:i+BM, j:j+BN] = ts.tile.row_sum(p * p) + ts.tile.row_sum(q * q) - 2 * ts.tile.mma(p, q.T)


@gives(lambda x, y, a, b, c: (b**2).sum(1) + (a**2).sum(1)[:, None] - 2 * a @ b.T)
def distances_in_another_order(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    for i in ts.tile.range(0, M, BM):
        for j in ts.tile.range(0, N, BN):
            p, q = a[i:i+BM, :], b[j:j+BN, :]
            out[i:i+BM, j:j+BN] = ts.tile.row_sum(q * q) + ts.tile.row_sum(p * p) - 2 * ts.tile.mma(p, q.T)


@gives(lambda x, y, a, b, c: (c - x[:, None]) * y + (c.T * x).T)
def rows_and_columns(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    v = c[tile_m:tile_m+BM, tile_n:tile_n+BN]
    p, q = x[tile_m:tile_m+BM], y[tile_n:tile_n+BN]
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = (v - p) * q + (v.T * p).T


@gives(lambda x, y, a, b, c: np.broadcast_to(x[:, None], (M, N)))
def stored_by_rows(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = x[tile_m:tile_m+BM]


@gives(lambda x, y, a, b, c: np.where((x[:, None] > 0) & (y > 0), c, -1))
def masks(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    v = c[tile_m:tile_m+BM, tile_n:tile_n+BN]
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = ts.tile.full((BM, BN), -1.0)
    if x[tile_m:tile_m+BM] > 0:
        if y[tile_n:tile_n+BN] > 0:
            out[tile_m:tile_m+BM, tile_n:tile_n+BN] = v


@gives(lambda x, y, a, b, c: np.where(y > 0, c, -1))
def mask_of_columns(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    v = ts.tile.load(c[tile_m:tile_m+BM, tile_n:tile_n+BN], mask=y[tile_n:tile_n+BN] > 0, other=-1.0)
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = v


@gives(lambda x, y, a, b, c: c * (x[:, None] * y).sum(1, keepdims=True))
def reduced_matrix(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    for i in ts.tile.range(0, M, BM):
        total = ts.tile.zeros((BM,))
        for j in ts.tile.range(0, N, BN):
            total += ts.tile.sum(x[i:i+BM] * y[j:j+BN], axis=1)
        for j in ts.tile.range(0, N, BN):
            out[i:i+BM, j:j+BN] = c[i:i+BM, j:j+BN] * total


@gives(lambda x, y, a, b, c: x[:, None] * y + np.arange(M)[:, None])
def lanes(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    rows = ts.tile.program_id(0) * BM + ts.tile.arange(BM)
    cols = ts.tile.program_id(1) * BN + ts.tile.arange(BN)
    out[rows, cols] = x[rows] * y[cols] + ts.tile.cast(rows, ts.f32)


@gives(lambda x, y, a, b, c: x[:, None] - np.r_[y[1:], 0])
def displaced(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    for i in ts.tile.range(0, M, BM):
        for j in ts.tile.range(0, N, BN):
            out[i:i+BM, j:j+BN] = x[i:i+BM] - y[j+1:j+1+BN] * (y[j:j+BN] - y[j:j+BN] + 1)


@gives(lambda x, y, a, b, c: x[:, None] + y[:N].sum() + c)
def whole_beside_blocks(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM = ts.tile.context().BM
    for i in ts.tile.range(0, M, BM):
        pairs = x[i:i+BM] * 0 + y[:]
        out[i:i+BM, :] = x[i:i+BM] + c[i:i+BM, :] + ts.tile.row_sum(pairs)


@gives(lambda x, y, a, b, c: (a[:, None] * b).sum(-1))
def three_axes(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    p, q = a[tile_m:tile_m+BM, :], b[tile_n:tile_n+BN, :]
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = ts.tile.sum(p[:, None, :] * q[None, :, :], axis=2)


@gives(lambda x, y, a, b, c: x[:, None] * 0 + a @ b.T)
def one_element_stretches(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    acc = ts.tile.zeros((BM, BN))
    for k in ts.tile.range_k(0, K):
        acc += a[tile_m:tile_m+BM, k:k+1] * b[tile_n:tile_n+BN, k:k+1].T
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = acc


@refused("runs along tile_n", 1)
def pairs_of_blocks(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = ts.tile.sum(a[tile_m:tile_m+BM, :] * b[tile_n:tile_n+BN, :], axis=1)


@refused("the axes lie in another order", 2)
def transposed_beside_itself(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    v = c[tile_m:tile_m+BM, tile_n:tile_n+BN]
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = v + v.T


@refused("the axes lie in another order", 1)
def stored_transposed(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = c[tile_m:tile_m+BM, tile_n:tile_n+BN].T


@refused("may run along either axis", 2)
def a_vector_of_nothing(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = c[tile_m:tile_m+BM, tile_n:tile_n+BN] + ts.tile.ones((BN,))


@refused("which is not an axis of", 0)
def a_third_axis(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = c[tile_m:tile_m+BM, tile_n:tile_n+BN] + a[0, :]


@refused("vectors of two axes make a matrix", 0)
def three_vectors(x: Tensor["M", f32], y: Tensor["N", f32], a: Tensor["M", "K", f32], b: Tensor["N", "K", f32], c: Tensor["M", "N", f32], out: Tensor["M", "N", f32]):
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    out[tile_m:tile_m+BM, tile_n:tile_n+BN] = ts.tile.where(x[tile_m:tile_m+BM] > 0, y[tile_n:tile_n+BN], a[0, :])


def arguments() -> dict[str, Any]:
    shapes = {"x": (M,), "y": (N,), "a": (M, K), "b": (N, K), "c": (M, N)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kernel", "wanted"), MEETING, ids=[k.__name__ for k, _ in MEETING])
def test_lengths_decide_nothing(kernel: Callable[..., Any], wanted: Callable[..., Any], target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    blocks = BLOCKS if target == "reference" else BLOCKS[:2]
    for bm, bn in blocks:
        given, out = arguments(), np.full((M, N), 99, np.float32)
        run(kernel, *given.values(), out, target=target, debug=False, BM=bm, BN=bn)
        np.testing.assert_allclose(out, wanted(**given), rtol=2e-5, atol=2e-5, err_msg=f"blocks of {bm} and {bn}")


@pytest.mark.parametrize(("kernel", "says", "fixes"), REFUSED, ids=[k.__name__ for k, _, _ in REFUSED])
def test_refusals_do_not_depend_on_lengths(kernel: Callable[..., Any], says: str, fixes: int) -> None:
    for bm, bn in (b for b in BLOCKS if 1 not in b):  # one element stretches, as in NumPy
        for given in ((), (*arguments().values(), np.zeros((M, N), np.float32))):
            found = [d for d in check(kernel, *given, BM=bm, BN=bn).diagnostics if d.severity == "error"]
            assert [d.code for d in found] == ["TS418"], (bm, bn, [d.render() for d in found])
            assert says in found[0].message, found[0].render()
            assert len(found[0].fixes) >= fixes or bm != bn, found[0].render()


def ahead(x: Tensor["N", f32], w: Tensor["N", f32], y: Tensor["N", f32]):
    """A block is fetched one step before it is used: along what a carried tile lies, no single step says."""
    coming = x[0:8]
    for k in ts.tile.range_k(0, N, 8):
        now = coming
        coming = x[k + 8:k + 16]
        y[k:k + 8] = now * w[k:k + 8]


def partial_sums(x: Tensor["N", f32], y: Tensor["N", f32]):
    """Behind a loop its counter is gone: sums that lie along its steps lie along nothing."""
    acc = ts.tile.zeros((8,))
    for k in ts.tile.range_k(0, N, 8):
        acc += x[k:k + 8]
    for k in ts.tile.range_k(0, N, 8):
        y[k:k + 8] = x[k:k + 8] - acc


def one_of_two(x: Tensor["M", f32], y: Tensor["N", f32], out: Tensor["M", f32], flag: f32):
    for i in ts.tile.range(0, M, 8):
        v = x[i:i + 8]
        if flag > 0:
            v = y[0:8] + 0
        out[i:i + 8] = v * x[i:i + 8]


@pytest.mark.parametrize("target", TARGETS[:2])
def test_axes_of_what_loops_carry(target: str) -> None:
    x, w, y = (rng.standard_normal(24).astype(np.float32) for _ in range(3))
    run(ahead, x, w, y, target=target, debug=False)
    np.testing.assert_array_equal(y, x * w)
    run(partial_sums, x, y, target=target)
    np.testing.assert_allclose(y, x - np.tile(x.reshape(3, 8).sum(0), 3), rtol=1e-5, atol=1e-5)
    run(one_of_two, x, w, y, 1.0, target=target)
    np.testing.assert_array_equal(y, np.tile(w[:8], 3) * x)
