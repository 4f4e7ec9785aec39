"""Whole kernels as their users write them, on every target, against NumPy: sorting, segments, groups, attention and the
two stages of a deterministic reduction."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import run

rng = np.random.default_rng(17)
targets = pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def top_k(x: ts.Tensor["M", "N", ts.f32], values: ts.Tensor["M", "K", ts.f32], indices: ts.Tensor["M", "K", ts.int64]):
    for i in ts.tile.range(0, M, 4):
        v = x[i : i + 4, 0:128]
        order = ts.tile.argsort(v, axis=1, descending=True)
        at = ts.tile.arange(128)[None, :]
        kept = at < K
        rows = i + ts.tile.arange(4)[:, None]
        inside = kept & (rows < M)
        ts.tile.store(indices[rows, at], order, mask=inside)
        ts.tile.store(values[rows, at], ts.tile.sort(v, axis=1, descending=True), mask=inside)


@targets
@pytest.mark.parametrize(("rows", "columns", "k"), [(9, 100, 5), (4, 128, 128), (1, 3, 1)])
def test_top_k(rows: int, columns: int, k: int, target: str) -> None:
    x = np.round(normal(rows, columns), 1)
    values, indices = np.zeros((rows, k), np.float32), np.zeros((rows, k), np.int64)
    run(top_k, x, values, indices, target=target)
    order = np.argsort(-x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def segmented_sums(
    x: ts.Tensor["n", ts.f32],
    starts: ts.Tensor["S", ts.int32],
    ends: ts.Tensor["S", ts.int32],
    y: ts.Tensor["n", ts.f32],
):
    """Running sums that begin anew at every start; a program per segment, of any length."""
    s = ts.tile.program_id(0)
    end = ends[s]
    carry = 0.0
    for b in ts.tile.range_k(starts[s], end, 32):
        at = b + ts.tile.arange(32)
        sums = carry + ts.tile.cumsum(ts.tile.load(x[at], mask=at < end, other=0.0))
        ts.tile.store(y[at], sums, mask=at < end)
        carry = ts.tile.sum(ts.tile.where(ts.tile.arange(32) == 31, sums, 0))


@targets
def test_segmented_sums(target: str) -> None:
    lengths = [1, 40, 0, 32, 100, 7]
    ends = np.cumsum(lengths).astype(np.int32)
    x = normal(180)
    y = np.zeros_like(x)
    run(segmented_sums, x, ends - np.array(lengths, np.int32), ends, y, target=target)
    want = np.concatenate([np.cumsum(part) for part in np.split(x, ends[:-1])])
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def scattered(x: ts.Tensor["n", ts.f32], to: ts.Tensor["n", ts.int64], y: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 16):
        at = to[i : i + 16]
        old = ts.tile.load(y[at], mask=at % 2 == 0, other=5.0)
        ts.tile.store(y[at], x[i : i + 16] + old, mask=at < 30)


@targets
def test_masks_of_elements_at_computed_indices(target: str) -> None:
    x, to, y = normal(48), rng.permutation(48), normal(48)
    want = y.copy()
    for value, place in zip(x, to, strict=True):
        if place < 30:
            want[place] = value + (y[place] if place % 2 == 0 else 5)
    run(scattered, x, to, y, target=target)
    np.testing.assert_allclose(y, want, rtol=1e-6)


def counted(x: ts.Tensor["n", ts.f32], y: ts.Tensor["m", ts.f32], z: ts.Tensor["m", ts.f32]):
    for i in ts.tile.range(0, n, 8):
        at = i + ts.tile.arange(8)
        y[i // 8] = ts.tile.sum(ts.tile.load(x[at], mask=at % 2 == 0, other=1.0))
        z[i // 8] = ts.tile.prod(ts.tile.load(x[at], mask=at % 2 == 0))


@targets
def test_other_counts_and_padding_does_not(target: str) -> None:
    x, y, z = normal(20), np.zeros(3, np.float32), np.zeros(3, np.float32)
    run(counted, x, y, z, target=target)
    even = np.append(x, np.ones(4, np.float32)).reshape(3, 8)
    even[:, 1::2] = 1
    np.testing.assert_allclose(y, even.sum(1), rtol=1e-5)
    np.testing.assert_allclose(z, even.prod(1), rtol=1e-5)


def grouped_gemm(
    x: ts.Tensor["T", "D", ts.bf16],
    w: ts.Tensor["E", "D", "F", ts.bf16],
    order: ts.Tensor["P", ts.int32],
    expert: ts.Tensor["B", ts.int32],
    y: ts.Tensor["P", "F", ts.f32],
):
    """Tokens sorted by expert, blocks of 16 rows padded to whole experts (order -1): y = x[order] @ w[expert]."""
    for b in ts.tile.range(0, P, 16):
        e = expert[b // 16]
        rows = order[b : b + 16]
        acc = ts.tile.zeros((16, F))
        for d in ts.tile.range_k(0, D, 16):
            cols = d + ts.tile.arange(16)
            real = (rows[:, None] >= 0) & (cols[None, :] < D)
            a = ts.tile.load(x[rows[:, None], cols[None, :]], mask=real, other=0.0)
            acc += ts.tile.mma(a, w[e, d : d + 16, 0:F])
        y[b : b + 16] = acc


@targets
def test_grouped_gemm(target: str) -> None:
    tokens, depth, width, experts = 37, 40, 24, 3
    x = normal(tokens, depth).astype(ml_dtypes.bfloat16)
    w = normal(experts, depth, width).astype(ml_dtypes.bfloat16)
    chosen = rng.integers(0, experts, tokens)
    order, expert = [], []
    for e in range(experts):
        mine = np.flatnonzero(chosen == e)
        padded = -(-len(mine) // 16) * 16
        order += [*mine, *[-1] * (padded - len(mine))]
        expert += [e] * (padded // 16)
    order, expert = np.array(order, np.int32), np.array(expert, np.int32)
    y = np.full((len(order), width), 9, np.float32)
    run(grouped_gemm, x, w, order, expert, y, target=target)
    wide_x, wide_w = x.astype(np.float32), w.astype(np.float32)
    for place, token in enumerate(order):
        want = wide_x[token] @ wide_w[chosen[token]] if token >= 0 else np.zeros(width)
        np.testing.assert_allclose(y[place], want, rtol=1e-4, atol=1e-4)


def attention(
    q: ts.Tensor["BH", "S", "D", ts.bf16],
    k: ts.Tensor["BH", "S", "D", ts.bf16],
    v: ts.Tensor["BH", "S", "D", ts.bf16],
    scale: ts.f32,
) -> ts.Tensor["BH", "S", "D", ts.bf16]:
    for i in ts.tile.range(0, S, 32):
        mine = q[i : i + 32]
        acc = ts.tile.zeros((32, D))
        m = ts.tile.full((32,), -float("inf"))
        total = ts.tile.zeros((32,))
        for j in ts.tile.range(0, i + 32, 16):
            scores = ts.tile.causal_mask(ts.tile.mma(mine, k[j : j + 16].T) * scale, i, j)
            new = ts.tile.maximum(m, ts.tile.row_max(scores))
            p = ts.tile.exp(scores - new)
            kept = ts.tile.exp(m - new)
            total = total * kept + ts.tile.row_sum(p)
            acc = acc * kept + ts.tile.mma(p, v[j : j + 16])
            m = new
    return ts.tile.cast(acc / total, ts.bf16)


@targets
@pytest.mark.parametrize("length", [32, 50, 1, 97])
def test_causal_attention_of_any_length(length: int, target: str) -> None:
    q, k, v = (normal(3, length, 16).astype(ml_dtypes.bfloat16) for _ in range(3))
    got = run(attention, q, k, v, 0.25, target=target).astype(np.float32)
    a, b, c = (t.astype(np.float64) for t in (q, k, v))
    scores = np.where(np.tri(length) > 0, a @ b.transpose(0, 2, 1) * 0.25, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(got, (p / p.sum(-1, keepdims=True)) @ c, atol=3e-2)


def layernorm_backward(
    x: ts.Tensor["M", "N", ts.f32],
    dy: ts.Tensor["M", "N", ts.f32],
    g: ts.Tensor["N", ts.f32],
    dx: ts.Tensor["M", "N", ts.f32],
    parts: ts.Tensor["P", "N", ts.f32],
):
    """dx, and per block of rows the partial sums of dg: the second stage adds those in ascending order."""
    for i in ts.tile.range(0, M, 8):
        v, d = x[i : i + 8], dy[i : i + 8]
        mean = ts.tile.row_mean(v)
        centred = v - mean
        r = ts.tile.rsqrt(ts.tile.row_mean(centred * centred) + 1e-5)
        normed = centred * r
        dn = d * g
        dx[i : i + 8] = r * (dn - ts.tile.row_mean(dn) - normed * ts.tile.row_mean(dn * normed))
        parts[i // 8, :] = ts.tile.col_sum(d * normed)


def add_parts(parts: ts.Tensor["P", "N", ts.f32], dg: ts.Tensor["N", ts.f32]):
    for j in ts.tile.range(0, N, 16):
        total = ts.tile.zeros((16,))
        for p in ts.tile.range_k(0, P):
            total += parts[p, j : j + 16]
        dg[j : j + 16] = total


@targets
@pytest.mark.parametrize("shape", [(20, 33), (8, 16), (1, 7)])
def test_layernorm_backward_in_two_stages(shape: tuple[int, int], target: str) -> None:
    x, dy, g = normal(*shape), normal(*shape), normal(shape[1])
    dx, parts, dg = np.zeros_like(x), np.zeros((-(-shape[0] // 8), shape[1]), np.float32), np.zeros_like(g)
    run(layernorm_backward, x, dy, g, dx, parts, target=target)
    run(add_parts, parts, dg, target=target)
    wide = x.astype(np.float64)
    r = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    normed = (wide - wide.mean(1, keepdims=True)) * r
    dn = dy * g
    want = r * (dn - dn.mean(1, keepdims=True) - normed * (dn * normed).mean(1, keepdims=True))
    np.testing.assert_allclose(dx, want, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(dg, (dy * normed).sum(0), rtol=1e-4, atol=1e-5)


def numbered_blocks(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Tensor["M", "N", ts.f32]):
    """Triton's matrix product: one program number for rows and columns, blocks of rows in groups."""
    p = ts.tile.program_id(0)
    rows, columns = ts.tile.cdiv(M, 16), ts.tile.cdiv(N, 16)
    first = p // (2 * columns) * 2
    height = ts.tile.minimum(rows - first, 2)
    rm = (first + p % (2 * columns) % height) * 16 + ts.tile.arange(16)
    rn = p % (2 * columns) // height * 16 + ts.tile.arange(16)
    acc = ts.tile.zeros((16, 16), ts.f32)
    for k in ts.tile.range_k(0, K, 16):
        rk = k + ts.tile.arange(16)
        a = ts.tile.load(A[rm[:, None], rk[None, :]], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = ts.tile.load(B[rk[:, None], rn[None, :]], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = ts.tile.dot(a, b, acc)
    ts.tile.store(C[rm[:, None], rn[None, :]], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def flat_blocks(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    p = ts.tile.program_id(0)
    columns = ts.tile.cdiv(N, 16)
    r, c = p // columns * 8, p % columns * 16
    y[r : r + 8, c : c + 16] = x[r : r + 8, c : c + 16] * 2


@targets
@pytest.mark.parametrize("shape", [(40, 30, 50), (16, 16, 16), (70, 5, 17)])
def test_blocks_numbered_in_groups(shape: tuple[int, int, int], target: str) -> None:
    m, k, n = shape
    a, b = normal(m, k).astype(np.float16), normal(k, n).astype(np.float16)
    c = np.full((m, n), 9, np.float32)
    run(numbered_blocks, a, b, c, target=target)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-2, atol=1e-2)
    x, y = normal(m, n), np.zeros((m, n), np.float32)
    run(flat_blocks, x, y, target=target)
    np.testing.assert_array_equal(y, x * 2)


def bags(index: ts.Tensor["B", "L", ts.int64], table: ts.Tensor["V", "D", ts.f32]) -> ts.Tensor["B", "D", ts.f32]:
    """The sum of the rows of each bag; negative numbers are left out."""
    b = ts.tile.program_id(0)
    total = ts.tile.zeros((D,))
    for j in ts.tile.range_k(0, L):
        row = index[b, j]
        if row < 0:
            continue
        total += table[row, :]
    return total


@targets
def test_results_of_numbered_programs_have_their_place(target: str) -> None:
    index, table = rng.integers(-2, 9, (5, 7)), normal(9, 6)
    got = run(bags, index, table, target=target)
    want = [table[row[row >= 0]].sum(0) for row in index]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def differences(d: ts.Tensor["N", ts.f32], w: ts.Tensor["N", ts.f32]):
    ts.tile.grid(1)
    g = d[0]
    for i in ts.tile.range_k(0, N):
        g = w[i] - g
        w[i] = g


def pairs_from_the_end(d: ts.Tensor["N", ts.f32], w: ts.Tensor["N", ts.f32]):
    ts.tile.grid(1)
    q = d[0]
    for step in ts.tile.range_k(0, N - 1):
        i = N - 2 - step
        g = w[i + 1] - q
        q = w[i] + g
        w[i + 1] = g + q
    w[0] -= q


@targets
def test_a_number_is_read_before_its_place_is_stored_to_and_carried_behind(target: str) -> None:
    d, w = normal(5), normal(5)
    wanted, before = w.copy(), d[0]
    for i in range(5):
        wanted[i] = before = wanted[i] - before
    run(differences, d, w, target=target)
    assert (w == wanted).all()
    q = d[0]
    for i in range(3, -1, -1):
        g = wanted[i + 1] - q
        q = wanted[i] + g
        wanted[i + 1] = g + q
    wanted[0] -= q
    run(pairs_from_the_end, d, w, target=target)
    assert (w == wanted).all()
