"""Many small matrices side by side, one in each lane: what `ts.linalg` runs for batches of them.

The axis of the batch is the last one, so that an element of all matrices of a program is one vector. No work is shared
between lanes, and each lane does what the kernels of single matrices do within a block, in the same order: the results
have the same bits.
"""

from __future__ import annotations

import math

import tessera as ts
from tessera import Tensor


@ts.kernel(LANES=16, STEP=8)
def cholesky(a: Tensor["N", "N", "B"], out: Tensor["N", "N", "B"], upper: bool = False):
    """As `factorizations.cholesky`."""
    ctx = ts.tile.context()
    ts.tile.grid(ts.tile.cdiv(ctx.B, ctx.LANES))
    b = ts.tile.program_id(0) * ctx.LANES
    e = b + ctx.LANES
    for j in ts.tile.range_k(0, ctx.N):
        for i in ts.tile.range_k(0, j):
            store(out, i, j, b, e, upper, ts.tile.zeros((ctx.LANES,), a.dtype))
        pivot = left_over(a, out, j, j, b, e, upper, ctx.STEP)
        root = ts.tile.where(pivot > 0, ts.tile.sqrt(pivot), math.nan)
        store(out, j, j, b, e, upper, root)
        for i in ts.tile.range_k(j + 1, ctx.N):
            store(out, i, j, b, e, upper, left_over(a, out, i, j, b, e, upper, ctx.STEP) * (1 / root))


def left_over(a, out, i, j, b, e, upper, step):
    """What the columns before j of a factor leave of an element: whole steps of them are summed first."""
    x, whole = load(a, i, j, b, e, upper), 0
    if a.shape[0] > step:
        whole = j // step * step
        for s in ts.tile.range_k(0, whole, step):
            known = ts.tile.zeros(x.shape, a.dtype)
            for k in ts.tile.range_k(s, s + step):
                known = ts.tile.fma(load(out, i, k, b, e, upper), load(out, j, k, b, e, upper), known)
            x -= known
    for k in ts.tile.range_k(whole, j):
        x -= load(out, i, k, b, e, upper) * load(out, j, k, b, e, upper)
    return x


@ts.kernel(LANES=16, STEP=8)
def solve(
    a: Tensor["N", "N", "B"],
    b: Tensor["N", "K", "B"],
    out: Tensor["N", "K", "B"],
    lower: bool = True,
    trans: bool = False,
    unit: bool = False,
):
    """As `triangular.solve_columns`."""
    ctx = ts.tile.context()
    ts.tile.grid(ts.tile.cdiv(ctx.B, ctx.LANES))
    at = ts.tile.program_id(0) * ctx.LANES
    end = at + ctx.LANES
    ascends = lower != trans
    for c in ts.tile.range_k(0, ctx.K):
        for number in ts.tile.range_k(0, ctx.N):
            i = number if ascends else ctx.N - 1 - number
            x, start, stop = b[i, c, at:end], 0, ctx.N
            if ctx.N > ctx.STEP:
                start = i // ctx.STEP * ctx.STEP
                stop = min(start + ctx.STEP, ctx.N)
                for s in ts.tile.range_k(0 if ascends else stop, start if ascends else ctx.N, ctx.STEP):
                    known = ts.tile.zeros((ctx.LANES,), a.dtype)
                    for j in ts.tile.range_k(s, min(s + ctx.STEP, ctx.N)):
                        known = ts.tile.fma(load(a, i, j, at, end, trans), out[j, c, at:end], known)
                    x -= known
            for before in ts.tile.range_k(0, i - start if ascends else stop - 1 - i):
                j = start + before if ascends else stop - 1 - before
                x -= load(a, i, j, at, end, trans) * out[j, c, at:end]
            out[i, c, at:end] = x if unit else x / a[i, i, at:end]


@ts.kernel(LANES=16)
def lu(a: Tensor["N", "N", "B"], out: Tensor["N", "N", "B"], order: Tensor["N", "B"], sign: Tensor["B"]):
    """As `factorizations.lu`."""
    ctx = ts.tile.context()
    ts.tile.grid(ts.tile.cdiv(ctx.B, ctx.LANES))
    b = ts.tile.program_id(0) * ctx.LANES
    e = b + ctx.LANES
    parity = ts.tile.full((ctx.LANES,), 1.0, a.dtype)
    for i in ts.tile.range_k(0, ctx.N):
        order[i, b:e] = ts.tile.full((ctx.LANES,), i, order.dtype)
        for j in ts.tile.range_k(0, ctx.N):
            out[i, j, b:e] = a[i, j, b:e]
    for c in ts.tile.range_k(0, ctx.N):
        top = ts.tile.full((ctx.LANES,), -1.0, a.dtype)
        p = ts.tile.full((ctx.LANES,), c, ts.int32)
        for i in ts.tile.range_k(c, ctx.N):
            size = ts.tile.abs(out[i, c, b:e])
            p = ts.tile.where(size > top, ts.tile.cast(i, ts.int32), p)
            top = ts.tile.maximum(top, size)
        parity = ts.tile.where(p == ts.tile.cast(c, ts.int32), parity, -parity)
        swap_column(order, (), c, p, b, e, ctx.N)
        pivot = swap_column(out, (c,), c, p, b, e, ctx.N)
        pivot = ts.tile.where(pivot == 0, 1.0, pivot)
        for i in ts.tile.range_k(c + 1, ctx.N):
            out[i, c, b:e] /= pivot
        for j in ts.tile.range_k(0, c):
            swap_column(out, (j,), c, p, b, e, ctx.N)
        for j in ts.tile.range_k(c + 1, ctx.N):
            row = swap_column(out, (j,), c, p, b, e, ctx.N)
            for i in ts.tile.range_k(c + 1, ctx.N):
                out[i, j, b:e] -= out[i, c, b:e] * row
    sign[b:e] = parity


@ts.kernel(LANES=16)
def qr(a: Tensor["M", "N", "B"], out: Tensor["M", "N", "B"], q: Tensor["M", "K", "B"], tau: Tensor["R", "B"]):
    """R in the upper triangle of `out`, reflections below it, and the first K columns of Q. Formulas are those of
    `factorizations.householder`, sums ascend along the rows."""
    ctx = ts.tile.context()
    ts.tile.grid(ts.tile.cdiv(ctx.B, ctx.LANES))
    b = ts.tile.program_id(0) * ctx.LANES
    e = b + ctx.LANES
    count = min(ctx.M, ctx.N)
    for i in ts.tile.range_k(0, ctx.M):
        for j in ts.tile.range_k(0, ctx.N):
            out[i, j, b:e] = a[i, j, b:e]
        for j in ts.tile.range_k(0, ctx.K):
            q[i, j, b:e] = ts.tile.full((ctx.LANES,), 1.0 if i == j else 0.0, a.dtype)
    for c in ts.tile.range_k(0, count):
        head = out[c, c, b:e]
        largest = ts.tile.zeros((ctx.LANES,), a.dtype)
        for i in ts.tile.range_k(c + 1, ctx.M):
            largest = ts.tile.maximum(largest, ts.tile.abs(out[i, c, b:e]))
        none, scale = largest == 0, ts.tile.maximum(largest, ts.tile.abs(head))
        squares = head / scale * (head / scale)
        for i in ts.tile.range_k(c + 1, ctx.M):
            x = out[i, c, b:e] / scale
            squares += x * x
        norm = scale * ts.tile.sqrt(squares)
        beta = ts.tile.where(none, head, ts.tile.where(head < 0, norm, -norm))
        start = ts.tile.where(none, 1.0, head - beta)
        factor = ts.tile.where(none, 0.0, (beta - head) / beta)
        out[c, c, b:e] = beta
        tau[c, b:e] = factor
        for i in ts.tile.range_k(c + 1, ctx.M):
            out[i, c, b:e] = out[i, c, b:e] / start
        for j in ts.tile.range_k(c + 1, ctx.N):
            reflect_column(out, out, j, c, factor, b, e, ctx.M)
    for step in ts.tile.range_k(0, count):
        c = count - 1 - step
        for j in ts.tile.range_k(c, ctx.K):
            reflect_column(q, out, j, c, tau[c, b:e], b, e, ctx.M)


def reflect_column(x, v, j, c, factor, start, end, rows):
    """Column j of `x` behind the reflection that column c of `v` holds."""
    along = x[c, j, start:end]
    for i in ts.tile.range_k(c + 1, rows):
        along += v[i, c, start:end] * x[i, j, start:end]
    along = along * factor
    x[c, j, start:end] -= along
    for i in ts.tile.range_k(c + 1, rows):
        x[i, j, start:end] -= v[i, c, start:end] * along


def swap_column(x, column, c, p, start, end, n):
    """Swaps the elements of rows c and p of one column, and gives the new one of row c. As p differs from lane to lane,
    all rows are read; an index by lanes would read and write lane by lane."""
    upper = x[c, *column, start:end]
    lower = upper
    for i in ts.tile.range_k(c + 1, n):
        own, chosen = x[i, *column, start:end], p == ts.tile.cast(i, ts.int32)
        lower = ts.tile.where(chosen, own, lower)
        x[i, *column, start:end] = ts.tile.where(chosen, upper, own)
    x[c, *column, start:end] = lower
    return lower


def load(x, i, j, start, end, turned):
    """An element of all matrices, or of the transposed ones."""
    return x[j, i, start:end] if turned else x[i, j, start:end]


def store(x, i, j, start, end, turned, value):
    """The opposite of `load`."""
    if turned:
        x[j, i, start:end] = value
    else:
        x[i, j, start:end] = value
