"""Kernels of serving and training as people write them from the documentation alone, on every target against NumPy.

Small sizes, few of them multiples of a block.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.conftest import require
from tests.together import ahead, builds

bf16, f8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
rng = np.random.default_rng(3)
CASES: dict[str, Callable[[], Any]] = {}


def case(make: Callable[[], Any]) -> Callable[[], Any]:
    """Gives a kernel, its arguments, and what it returns, or what the arguments of these numbers are afterwards."""
    CASES[make.__name__.removeprefix("of_")] = make
    return make


def N(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


@ts.kernel
def grouped_gemm(
    x: Tensor["T", "K", ts.f32],
    w: Tensor["E", "K", "N", ts.f32],
    starts: Tensor["E+1", ts.int32],
    y: Tensor["T", "N", ts.f32],
):
    e = ts.tile.program_id(0)
    for r in ts.tile.range_k(starts[e], starts[e + 1], 8):
        rows = r + ts.tile.arange(8)
        if rows < starts[e + 1]:
            y[rows, :] = ts.tile.mma(x[rows, :], w[e, :, :])


@case
def of_grouped_gemm():
    x, w = (N(29, 12), N(4, 12, 10))
    st = np.array([0, 5, 5, 20, 29], np.int32)
    want = np.concatenate([x[st[e] : st[e + 1]] @ w[e] for e in range(4)])
    return (grouped_gemm, [x, w, st, np.full((29, 10), 7, np.float32)], {3: want})


def bs_data():
    a, b = (N(20, 64).astype(f8), N(96, 64).astype(f8))
    sa, sb = (abs(N(20, 2)) + 0.1, abs(N(3, 2)) + 0.1)
    want = (
        a.astype(np.float32) * np.repeat(sa, 32, 1) @ (b.astype(np.float32) * np.repeat(np.repeat(sb, 32, 0), 32, 1)).T
    )
    return (a, sa, b, sb, want)


@ts.kernel
def block_scaled2(
    A: Tensor["M", "K", ts.fp8_e4m3],
    sa: Tensor["M", "K//32", ts.f32],
    B: Tensor["N", "K", ts.fp8_e4m3],
    sb: Tensor["N//32", "K//32", ts.f32],
    C: Tensor["M", "N", ts.bf16],
):
    for i in ts.tile.range(0, M, 16):
        for j in ts.tile.range(0, N, 32):
            acc = ts.tile.zeros((16, 32))
            for k in ts.tile.range_k(0, K, 32):
                part = ts.tile.mma(A[i : i + 16, k : k + 32], B[j : j + 32, k : k + 32].T)
                acc += part * sa[i : i + 16, k // 32] * sb[j // 32, k // 32]
            C[i : i + 16, j : j + 32] = acc


@case
def of_block_scaled():
    a, sa, b, sb, want = bs_data()
    return (block_scaled2, [a, sa, b, sb, np.zeros((20, 96), bf16)], {4: want})


@ts.kernel
def paged(
    q: Tensor["B", "H", "D", ts.f32],
    kc: Tensor["P", 4, "H", "D", ts.f32],
    vc: Tensor["P", 4, "H", "D", ts.f32],
    table: Tensor["B", "W", ts.int32],
    lengths: Tensor["B", ts.int32],
    scale: ts.f32,
) -> Tensor["B", "H", "D", ts.f32]:
    out: Tensor["B", "H", "D", ts.f32]
    b, h = (ts.tile.program_id(0), ts.tile.program_id(1))
    query = q[b, h, :]
    m = ts.tile.full((), float("-inf"))
    l = ts.tile.zeros(())
    acc = ts.tile.zeros((D,))
    for w in ts.tile.range_k(0, ts.tile.cdiv(lengths[b], 4)):
        page = table[b, w]
        s = ts.tile.sum(kc[page, :, h, :] * query, axis=1) * scale
        left = lengths[b] - w * 4
        s = ts.tile.where(ts.tile.arange(4) < left, s, float("-inf"))
        m_new = ts.tile.maximum(m, ts.tile.max(s))
        p = ts.tile.exp(s - m_new)
        alpha = ts.tile.exp(m - m_new)
        l = l * alpha + ts.tile.sum(p)
        acc = acc * alpha + ts.tile.sum(p[:, None] * vc[page, :, h, :], axis=0)
        m = m_new
    out[b, h, :] = acc / l
    return out


@case
def of_paged_attention():
    B, H, D, P, W = (3, 2, 8, 9, 4)
    q, kc, vc = (N(B, H, D), N(P, 4, H, D), N(P, 4, H, D))
    table = rng.permutation(12).reshape(3, 4).astype(np.int32) % 9
    ln = np.array([5, 16, 1], np.int32)
    want = np.zeros((B, H, D), np.float32)
    for b in range(B):
        k = kc[table[b]].reshape(-1, H, D)[: ln[b]]
        v = vc[table[b]].reshape(-1, H, D)[: ln[b]]
        s = np.einsum("hd,thd->ht", q[b], k) * 0.3
        e = np.exp(s - s.max(1, keepdims=True))
        e /= e.sum(1, keepdims=True)
        want[b] = np.einsum("ht,thd->hd", e, v)
    return (paged, [q, kc, vc, table, ln, 0.3], [want])


@ts.kernel
def rope(x: Tensor["T", "H", "D", ts.f32], pos: Tensor["T", ts.int32], cache: Tensor["L", "R", ts.f32]):
    assert R % 2 == 0
    t = ts.tile.program_id()
    p = pos[t]
    half = R // 2
    cos, sin = (cache[p, 0:half][None, :], cache[p, half:R][None, :])
    a, b = (x[t, :, 0:half], x[t, :, half:R])
    x[t, :, 0:half] = a * cos - b * sin
    x[t, :, half:R] = b * cos + a * sin


@case
def of_rope():
    x, c = (N(5, 3, 10), N(20, 6))
    pos = np.array([3, 0, 19, 7, 7], np.int32)
    co, si = (c[pos][:, None, :3], c[pos][:, None, 3:])
    a, b = (x[..., :3], x[..., 3:6])
    return (rope, [x, pos, c], {0: np.concatenate([a * co - b * si, b * co + a * si, x[..., 6:]], -1)})


@ts.kernel
def rms_res(x: Tensor["M", "N", ts.bf16], residual: Tensor["M", "N", ts.bf16], w: Tensor["N", ts.bf16], eps: ts.f32):
    for i in ts.tile.range(0, M, 4):
        z = x[i : i + 4, :] + residual[i : i + 4, :]
        residual[i : i + 4, :] = z
        x[i : i + 4, :] = z * ts.tile.rsqrt(ts.tile.row_mean(z * z) + eps) * w


@case
def of_rms_residual():
    x, r, w = (N(7, 33).astype(bf16), N(7, 33).astype(bf16), N(33).astype(bf16))
    z = x.astype(np.float32) + r.astype(np.float32)
    return (
        rms_res,
        [x, r, w, 1e-06],
        {0: z / np.sqrt((z * z).mean(1, keepdims=True) + 1e-06) * w.astype(np.float32), 1: z},
    )


def silu_data(*s):
    x = N(*s)
    d = s[-1] // 2
    return (x, x[..., :d] / (1 + np.exp(-x[..., :d])) * x[..., d:])


@ts.kernel
def silu_mul(x: Tensor["...", "2*D", ts.f32]) -> Tensor["...", "D", ts.f32]:
    return ts.tile.silu(x[0:D]) * x[D : 2 * D]


@case
def of_silu_mul_anyrank():
    x, y = silu_data(2, 3, 14)
    return (silu_mul, [x], [y])


def topk_data(k):
    z = N(6, 11)
    ids = np.argsort(-z, 1, kind="stable")[:, :k]
    top = np.take_along_axis(z, ids, 1)
    e = np.exp(top - top.max(1, keepdims=True))
    return (z, e / e.sum(1, keepdims=True), ids)


@ts.kernel
def topk_gate(logits: Tensor["T", "E", ts.f32], weights: Tensor["T", "k", ts.f32], ids: Tensor["T", "k", ts.int32]):
    t = ts.tile.program_id()
    z = logits[t, :]
    p = ts.tile.exp(z - ts.tile.max(z))
    p = p / ts.tile.sum(p)
    total = ts.tile.zeros(())
    for j in ts.tile.range_k(0, k):
        best = ts.tile.argmax(p)
        w = ts.tile.max(p)
        weights[t, j] = w
        ids[t, j] = best
        total += w
        p = ts.tile.where(ts.tile.arange(E) == best, -1.0, p)
    weights[t, :] = weights[t, :] / total


@case
def of_topk_loop():
    z, w, i = topk_data(3)
    return (topk_gate, [z, np.zeros((6, 3), np.float32), np.zeros((6, 3), np.int32)], {1: w, 2: i})


@ts.kernel
def moe_align(
    experts: Tensor["n", ts.int32],
    block: int,
    E: int,
    starts: Tensor["E+1", ts.int32],
    sorted_ids: Tensor["m", ts.int32],
):
    e = ts.tile.program_id()
    counts = ts.tile.zeros((E,), ts.int32)
    for i in ts.tile.range_k(0, n, 16):
        counts = ts.tile.scatter_add(counts, experts[i : i + 16], 1)
    ends = ts.tile.cumsum(ts.tile.cdiv(counts, block) * block)
    if e == 0:
        starts[0] = 0
    starts[e + 1] = ends[e]
    at = ends[e] - ts.tile.cdiv(counts[e], block) * block
    for i in ts.tile.range_k(0, n, 16):
        mine = experts[i : i + 16] == e
        place = at + ts.tile.cumsum(ts.tile.cast(mine, ts.int32)) - 1
        if mine:
            sorted_ids[place] = i + ts.tile.arange(16)
        at += ts.tile.sum(ts.tile.cast(mine, ts.int32))


@case
def of_moe_align():
    ex = rng.integers(0, 5, 37).astype(np.int32)
    blk = 4
    starts = np.zeros(6, np.int32)
    s = np.full(64, -1, np.int32)
    at = 0
    for e in range(5):
        ids = np.where(ex == e)[0]
        s[at : at + len(ids)] = ids
        at += -(-len(ids) // blk) * blk
        starts[e + 1] = at
    return (moe_align, [ex, blk, 5, np.zeros(6, np.int32), np.full(64, -1, np.int32)], {3: starts, 4: s})


@ts.kernel
def moe_gather(x: Tensor["T", "D", ts.f32], ids: Tensor["m", ts.int32]) -> Tensor["m", "D", ts.f32]:
    for i in ts.tile.range(0, m, 8):
        at = ids[i : i + 8]
        rows = ts.tile.load(x[at, :], mask=(at >= 0)[:, None], other=0.0)
        out = rows
    return out


@case
def of_moe_gather():
    x = N(7, 5)
    ids = np.array([3, -1, 0, 6, -1, 2, 2, 1, 0, -1], np.int32)
    return (moe_gather, [x, ids], [np.where(ids[:, None] >= 0, x[ids], 0)])


@ts.kernel
def quant_fp8(x: Tensor["...", "N", ts.bf16]) -> tuple[Tensor["...", "N", ts.fp8_e4m3], Tensor["...", ts.f32]]:
    scale = ts.tile.max(ts.tile.abs(x), axis=-1) / 448
    return (ts.tile.cast(x / scale[..., None], ts.fp8_e4m3), scale)


@case
def of_quant_fp8():
    x = N(2, 5, 16).astype(bf16)
    s = abs(x.astype(np.float32)).max(-1) / np.float32(448)
    return (quant_fp8, [x], [(x.astype(np.float32) / s[..., None]).astype(f8), s])


@ts.kernel
def w4a16(
    A: Tensor["M", "K", ts.f32], W: Tensor["K//2", "N", ts.uint8], S: Tensor["K//16", "N", ts.f32]
) -> Tensor["M", "N", ts.f32]:
    assert K % 16 == 0
    acc = ts.tile.zeros((16, 16))
    for g in ts.tile.range_k(0, K // 16):
        packed = ts.tile.cast(W[g * 8 : g * 8 + 8, tile_n : tile_n + 16], ts.int32)
        low, high = ((packed & 15) - 8, (packed >> 4) - 8)
        both = ts.tile.stack((low, high), axis=1).reshape(16, 16)
        w = ts.tile.cast(both, ts.f32) * S[g, tile_n : tile_n + 16][None, :]
        acc += ts.tile.mma(A[tile_m : tile_m + 16, g * 16 : g * 16 + 16], w)
    return acc


@case
def of_w4a16():
    a = N(10, 48)
    w = rng.integers(0, 256, (24, 20)).astype(np.uint8)
    s = abs(N(3, 20))
    full = np.stack([(w & 15).astype(int) - 8, (w >> 4).astype(int) - 8], 1).reshape(48, 20) * np.repeat(s, 16, 0)
    return (w4a16, [a, w, s], [a @ full.astype(np.float32)])


@ts.kernel
def cache_write(
    k: Tensor["T", "H", "D", ts.f32], cache: Tensor["P", "bs", "H", "D", ts.f32], slots: Tensor["T", ts.int32]
):
    t = ts.tile.program_id()
    slot = slots[t]
    if slot >= 0:
        cache[slot // bs, slot % bs, :, :] = k[t, :, :]


@case
def of_reshape_and_cache():
    k, c = (N(5, 2, 3), N(4, 4, 2, 3))
    sl = np.array([3, -1, 15, 0, 6], np.int32)
    w = c.copy()
    for t in range(5):
        if sl[t] >= 0:
            w[sl[t] // 4, sl[t] % 4] = k[t]
    return (cache_write, [k, c, sl], {1: w})


@ts.kernel
def top_p(probs: Tensor["B", "V", ts.f32], p: ts.f32, u: Tensor["B", ts.f32], token: Tensor["B", ts.int32]):
    b = ts.tile.program_id()
    row = probs[b, :]
    order = ts.tile.argsort(row, descending=True)
    s = ts.tile.take(row, order)
    c = ts.tile.cumsum(s)
    kept = ts.tile.where(c - s < p, s, 0.0)
    run = ts.tile.cumsum(kept)
    target = u[b] * ts.tile.sum(kept)
    place = ts.tile.sum(ts.tile.cast(run <= target, ts.int32))
    token[b] = order[place]


@case
def of_top_p():
    z = np.exp(2 * N(5, 17))
    z /= z.sum(1, keepdims=True)
    u = rng.random(5).astype(np.float32)
    t = []
    for b in range(5):
        o = np.argsort(-z[b], kind="stable")
        s = z[b][o]
        c = np.cumsum(s)
        k = np.where(c - s < 0.8, s, 0)
        t.append(o[(np.cumsum(k) <= u[b] * k.sum()).sum()])
    return (top_p, [z, 0.8, u, np.zeros(5, np.int32)], {3: np.array(t)})


def merge2(oa, la, ob, lb):
    m = ts.tile.maximum(la, lb)
    wa, wb = (ts.tile.exp(la - m), ts.tile.exp(lb - m))
    return ((oa * wa + ob * wb) / (wa + wb), m + ts.tile.log(wa + wb))


@ts.kernel
def merge_reduce(o: Tensor["S", "T", "D", ts.f32], lse: Tensor["S", "T", ts.f32]) -> Tensor["T", "D", ts.f32]:
    for t in ts.tile.range(0, T, 4):
        out, _ = ts.tile.reduce((o[:, t : t + 4, :], lse[:, t : t + 4, None]), merge2, axis=0)
    return out


@case
def of_merge_by_reduce():
    o, l = (N(3, 7, 5), N(3, 7))
    w = np.exp(l - l.max(0))
    return (merge_reduce, [o, l], [(o * w[..., None]).sum(0) / w.sum(0)[:, None]])


def wa_data():
    q, k, v, sl = (N(2, 3, 19, 8), N(2, 3, 19, 8), N(2, 3, 19, 8), np.array([0.5, 0.25, 0.125], np.float32))
    ap = np.arange(19)[:, None] - np.arange(19)[None]
    s = np.einsum("bhid,bhjd->bhij", q, k) - sl[:, None, None] * ap
    s = np.where((ap >= 0) & (ap < 6), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    return ([q, k, v, sl, 6], e @ v)


@ts.kernel
def window_alibi(
    q: Tensor["B", "H", "S", "D", ts.f32],
    k: Tensor["B", "H", "S", "D", ts.f32],
    v: Tensor["B", "H", "S", "D", ts.f32],
    slopes: Tensor["H", ts.f32],
    window: int,
) -> Tensor["B", "H", "S", "D", ts.f32]:
    for i in ts.tile.range(0, S, 8):
        slope = slopes[ts.tile.each()]
        m, l, acc = (ts.tile.full((8,), -1e30), ts.tile.zeros((8,)), ts.tile.zeros((8, D)))
        for j in ts.tile.range(0, S, 8):
            rows, cols = (i + ts.tile.arange(8), j + ts.tile.arange(8))
            apart = rows[:, None] - cols[None, :]
            s = ts.tile.mma(q[i : i + 8, :], k[j : j + 8, :].T) - slope * apart
            s = ts.tile.where((apart >= 0) & (apart < window), s, -1e30)
            m_new = ts.tile.maximum(m, ts.tile.row_max(s))
            p = ts.tile.exp(s - m_new)
            a = ts.tile.exp(m - m_new)
            l = l * a + ts.tile.row_sum(p)
            acc = acc * a + ts.tile.mma(p, v[j : j + 8, :])
            m = m_new
        out = acc / l
    return out


@case
def of_window_alibi():
    a, w = wa_data()
    return (window_alibi, a, [w])


@ts.kernel
def segment_sum(x: Tensor["n", "D", ts.f32], starts: Tensor["s+1", ts.int32]) -> Tensor["s", "D", ts.f32]:
    out: Tensor["s", "D", ts.f32]
    g = ts.tile.program_id()
    acc = ts.tile.zeros((D,))
    for i in ts.tile.range_k(starts[g], starts[g + 1], 4):
        rows = i + ts.tile.arange(4)
        acc += ts.tile.sum(ts.tile.load(x[rows, :], mask=(rows < starts[g + 1])[:, None], other=0.0), axis=0)
    out[g, :] = acc
    return out


@case
def of_segment_sum():
    x = N(23, 5)
    st = np.array([0, 3, 3, 17, 23], np.int32)
    return (segment_sum, [x, st], [np.stack([x[a:b].sum(0) for a, b in itertools.pairwise(st)])])


def seg(a, b):
    return (b[0] if b[1] else a[0] + b[0], a[1] | b[1])


@ts.kernel
def segmented_scan(x: Tensor["M", "N", ts.f32], flag: Tensor["M", "N", ts.bool_]) -> Tensor["M", "N", ts.f32]:
    for i in ts.tile.range(0, M, 4):
        y, _ = ts.tile.associative_scan((x[i : i + 4, :], flag[i : i + 4, :]), seg)
    return y


@case
def of_segmented_scan():
    x = N(5, 13)
    f = rng.random((5, 13)) < 0.3
    w = x.copy()
    for j in range(1, 13):
        w[:, j] = np.where(f[:, j], x[:, j], w[:, j - 1] + x[:, j])
    return (segmented_scan, [x, f], [w])


def compiled_ahead(name: str, target: str) -> None:
    kernel, args, _ = CASES[name]()
    ahead(target, kernel, *args)


@builds(compiled_ahead)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])
def test_agrees_with_numpy(name: str, target: str, monkeypatch: pytest.MonkeyPatch, built: None) -> None:
    if target.startswith("emulator"):
        require("c++")
    monkeypatch.setenv("TESSERA_TARGET", target)
    kernel, args, wanted = CASES[name]()
    given = kernel(*args)
    if isinstance(wanted, dict):
        pairs = [(args[i], w) for i, w in wanted.items()]
    else:
        pairs = list(zip(given if isinstance(given, tuple) else (given,), wanted, strict=True))
    for got, want in pairs:
        assert got.shape == np.shape(want)
        coarse = got.dtype.itemsize < 4 and got.dtype.kind not in "iub"
        close = 3e-2 if coarse else 2e-4
        np.testing.assert_allclose(got.astype(np.float64), np.asarray(want, np.float64), rtol=close, atol=close)
