"""Triangular and orthogonal factors of matrices, by blocks of columns: what `ts.linalg` runs.

One program factors one matrix of the batch. It takes a block of columns at a time and first brings it up to date with
the factors on its left, by products of blocks (left-looking; G. Golub and C. Van Loan, "Matrix Computations", 4th
edition, 2013, sections 3.2, 4.2 and 5.2). So nearly all work is products, each element of the result is stored a few
times only, and every sum has one order, whatever the size of the batch and the number of threads.

Elements are f32 or f64.
"""

from __future__ import annotations

import math

import tessera as ts
from tessera import Tensor
from tessera.kernels.condensed import with_column


@ts.kernel(BLOCK=32, STEP=8)
def cholesky(a: Tensor["B", "N", "N"], out: Tensor["B", "N", "N"], upper: bool = False):
    """`out` is lower triangular with a = out out^T, of which only the lower triangle is read; with `upper` it is upper
    triangular with a = out^T out, and only the upper triangle is read.

    Where a pivot is not positive, its column and what depends on it are NaN.
    """
    ctx = ts.tile.context()
    nb = ctx.BLOCK
    ts.tile.grid(ctx.B)
    m = ts.tile.program_id(0)
    for k in ts.tile.range_k(0, ctx.N, nb):
        for i in ts.tile.range_k(0, k, nb):
            put(out, m, i, k, upper, ts.tile.zeros((nb, nb), a.dtype))
        factor_diagonal(a, out, m, k, upper, nb, ctx.STEP)
        for i in ts.tile.range_k(k + nb, ctx.N, nb):
            factor_below(a, out, m, i, k, upper, nb, ctx.STEP)


@ts.kernel(BLOCK=32, STEP=8)
def cholesky_step(a: Tensor["B", "N", "N"], out: Tensor["B", "N", "N"], step: Tensor[1, ts.int32], upper: bool = False):
    """The same by programs that share a matrix: each has a block of rows, and each launch is a step.

    Step s computes the blocks of column s - 1 below the diagonal. The program that has computed the first of them
    goes on with the block on the diagonal of column s, for which no other is needed. Each block is computed as by
    `cholesky`.
    """
    ctx = ts.tile.context()
    nb = ctx.BLOCK
    ts.tile.grid(ctx.B, ts.tile.cdiv(ctx.N, nb))
    m, i = ts.tile.program_id(0), ts.tile.program_id(1) * nb
    s = step[0] * nb
    for k in ts.tile.range_k(0, ctx.N, nb):  # a loop, as the range of its counter is known, and that of a number is not
        if k + nb == s and i > k:
            factor_below(a, out, m, i, k, upper, nb, ctx.STEP)
    if i == s:
        factor_diagonal(a, out, m, i, upper, nb, ctx.STEP)
    for k in ts.tile.range_k(0, ctx.N, nb):
        if k == s and i < k:
            put(out, m, i, k, upper, ts.tile.zeros((nb, nb), a.dtype))


@ts.kernel(BLOCK=32, STEP=8)
def lu(
    a: Tensor["B", "N", "N"], out: Tensor["B", "N", "N"], order: Tensor["B", "N"], sign: Tensor["B"],
    panel: Tensor["B", 1, "P", "W"],
):  # fmt: skip
    """a[order] = L U, with L (unit diagonal, not stored) below the diagonal of `out` and U in the rest.

    The pivot of a column is its largest element, of equal ones the first. `sign` is the parity of `order`, 1 or -1.
    A column without a pivot keeps its zeros, so that U has a 0 on its diagonal. A block of columns, of width W, lies in
    `panel` while it is worked on: rows of the matrix may be so far apart that a cache has few places for its columns. P
    is N in whole blocks; the rows beyond N are 0.
    """
    ctx = ts.tile.context()
    nb = ctx.BLOCK
    ts.tile.grid(ctx.B)
    m = ts.tile.program_id(0)
    at = ts.tile.arange(nb)
    parity = ts.tile.full((), 1.0, a.dtype)
    for i in ts.tile.range_k(0, ctx.N, nb):
        order[m, i : i + nb] = ts.tile.cast(i + at, order.dtype)
        for j in ts.tile.range_k(0, ctx.N, nb):
            out[m, i : i + nb, j : j + nb] = a[m, i : i + nb, j : j + nb]
    for k in ts.tile.range_k(0, ctx.N, nb):
        bring_up(out, panel, m, 0, k, k, ctx.STEP)
        for c in ts.tile.range_k(0, min(nb, ctx.N - k)):
            p = pivot_row(panel, m, 0, k, c, ctx.N)
            if p != k + c:
                parity = -parity
                for j in ts.tile.range_k(0, ctx.N, nb):
                    exchange(out, m, k + c, p, j, nb)
                exchange_in_panel(panel, m, 0, k + c, p)
                exchange_numbers(order, m, k + c, p)
            eliminate(panel, m, 0, k, c)
        store_panel(out, panel, m, 0, k)
    sign[m] = parity


@ts.kernel(BLOCK=32, STEP=8)
def lu_step(
    a: Tensor["B", "N", "N"], out: Tensor["B", "N", "N"], order: Tensor["B", "N"], sign: Tensor["B"],
    pivots: Tensor["B", "N"], panel: Tensor["B", 2, "P", "W"], step: Tensor[1, ts.int32],
):  # fmt: skip
    """The same by two programs that share a matrix, with the same sums in the same order.

    In step s the first one factors block of columns s, in one half of `panel`. The other one exchanges rows of other
    blocks by the `pivots` of block s - 1, and brings block s + 1 up to date with those before s, in the other half.
    What block s - 1 adds to block s is left to the first one. One step more exchanges the last rows.
    """
    ctx = ts.tile.context()
    nb = ctx.BLOCK
    ts.tile.grid(ctx.B, 2)
    m, other = ts.tile.program_id(0), ts.tile.program_id(1)
    now, odd = step[0] * nb, step[0] % 2
    if other == 0:
        for half in ts.tile.range_k(0, 2):  # loops, as the ranges of their counters are known
            for k in ts.tile.range_k(0, ctx.N, nb):
                if (half == odd) & (k == now):
                    factor_block(a, out, order, sign, pivots, panel, m, half, k, ctx.STEP)
    if other == 1:
        for k in ts.tile.range_k(0, ctx.N, nb):
            if k + nb == now:
                exchange_rows(out, pivots, m, k, now, nb)
        for i in ts.tile.range_k(0, ctx.N, nb):
            for j in ts.tile.range_k(nb, ctx.N, nb):
                if now == 0:
                    out[m, i : i + nb, j : j + nb] = a[m, i : i + nb, j : j + nb]
        for half in ts.tile.range_k(0, 2):
            for k in ts.tile.range_k(nb, ctx.N, nb):
                if (half != odd) & (k == now + nb):
                    bring_up(out, panel, m, half, k, k - nb, ctx.STEP)
            for i in ts.tile.range_k(0, ctx.N, nb):
                if now >= ctx.N:
                    panel[m, half, i : i + nb, :] = ts.tile.zeros((nb, nb), a.dtype)


@ts.kernel(BLOCK=32, STEP=8)
def householder(
    a: Tensor["B", "M", "N"], out: Tensor["B", "M", "N"], t: Tensor["B", "R", "W"], panel: Tensor["B", 2, "P", "W"]
):
    """R of a = Q R in the upper triangle of `out`, and below it the reflections v (first element 1, not stored) whose
    product is Q. W is the width of a block, R the number of reflections, min(M, N), in whole blocks.

    A block's reflections are I - V T V^T; its triangular T is a block of `t` (R. Schreiber and C. Van Loan, "A storage
    efficient WY representation for products of Householder transformations", 1989). Signs are LAPACK's: the diagonal
    of R has the opposite sign of what it replaces, and a column that is 0 below its diagonal is left as it is.

    A block of columns lies in the first half of `panel` while it is worked on, and its V in the other one; P is M in
    whole blocks. It is factored by steps of a few columns, each of them brought up to date with those on its left.
    """
    ctx = ts.tile.context()
    nb, few = ctx.BLOCK, ctx.STEP
    ts.tile.grid(ctx.B)
    m = ts.tile.program_id(0)
    at = ts.tile.arange(nb)
    count = min(ctx.M, ctx.N)
    whole = ctx.M // nb * nb
    for k in ts.tile.range_k(0, ctx.N, nb):
        for i in ts.tile.range_k(0, ctx.P, nb):
            panel[m, 0, i : i + nb, :] = filled(a[m, i : i + nb, k : k + nb], nb)
            panel[m, 1, i : i + nb, :] = ts.tile.zeros((nb, nb), a.dtype)
        for j in ts.tile.range_k(0, min(k, count), nb):
            v = reflections(filled(out[m, j : j + nb, j : j + nb], nb), at, 0)
            w = ts.tile.mma(v.T, rows_of(panel, m, 0, j, nb))
            for i in ts.tile.range_k(j + nb, whole, nb):
                w += ts.tile.mma(filled(out[m, i : i + nb, j : j + nb], nb).T, rows_of(panel, m, 0, i, nb))
            if whole < ctx.M and j < whole:
                last = filled(out[m, whole : whole + nb, j : j + nb], nb)
                w += ts.tile.mma(last.T, rows_of(panel, m, 0, whole, nb))
            w = ts.tile.mma(t[m, j : j + nb, :].T, w)
            panel[m, 0, j : j + nb, :] -= ts.tile.mma(v, w)
            for i in ts.tile.range_k(j + nb, whole, nb):
                panel[m, 0, i : i + nb, :] -= ts.tile.mma(filled(out[m, i : i + nb, j : j + nb], nb), w)
            if whole < ctx.M and j < whole:
                last = filled(out[m, whole : whole + nb, j : j + nb], nb)
                panel[m, 0, whole : whole + nb, :] -= ts.tile.mma(last, w)
        if k < count:
            t[m, k : k + nb, :] = ts.tile.zeros((nb, nb), a.dtype)
            for s in ts.tile.range_k(0, min(nb, ctx.N - k), few):
                if s > 0:
                    bring_up_step(t, panel, m, k, s, nb, few)
                if s < count - k:
                    taus = reflect_step(panel, m, k, s, count, nb, few)
                    join_triangle(t, panel, m, k, s, taus, nb, few)
        for i in ts.tile.range_k(0, ctx.P, nb):
            below = ((i + at)[:, None] > (k + at)[None, :]) & (k + at < count)[None, :]
            x = ts.tile.where(below, rows_of(panel, m, 1, i, nb), rows_of(panel, m, 0, i, nb))
            out[m, i : i + nb, k : k + nb] = x
            if k + nb >= ctx.N:
                for half in ts.tile.range_k(0, 2):
                    panel[m, half, i : i + nb, :] = ts.tile.zeros((nb, nb), a.dtype)


@ts.kernel(BLOCK=32, COLUMNS=32)
def reflect(
    a: Tensor["B", "M", "N"], t: Tensor["B", "R", "W"], x: Tensor["B", "M", "K"], out: Tensor["B", "M", "K"],
    trans: bool = False, below: int = 0, eye: bool = False,
):  # fmt: skip
    """Q x, with `trans` Q^T x, for the Q whose reflections `householder` stored in `a` and `t`; they begin `below` rows
    below the diagonal. `eye`: x is an identity matrix, and `trans` is not set. A column of it is 0 in the rows that
    the reflections of later columns change, so that these are left out."""
    ctx = ts.tile.context()
    nb, width = ctx.BLOCK, ctx.COLUMNS
    ts.tile.grid(ctx.B, ts.tile.cdiv(ctx.K, width))
    m, c = ts.tile.program_id(0), ts.tile.program_id(1) * width
    at = ts.tile.arange(nb)
    for i in ts.tile.range_k(0, ctx.M, nb):
        out[m, i : i + nb, c : c + width] = x[m, i : i + nb, c : c + width]
    count = min(ctx.M, ctx.N)
    blocks = ts.tile.cdiv(min(count, c + width) if eye else count, nb)
    for step in ts.tile.range_k(0, blocks):
        k = (step if trans else blocks - 1 - step) * nb
        dense = k + nb if below == 0 else k + nb + nb  # the rows from here on are in all reflections
        w = ts.tile.zeros((nb, width), a.dtype)
        for i in ts.tile.range_k(k, min(dense, ctx.M), nb):
            v = reflections(filled(a[m, i : i + nb, k : k + nb], nb), at, i - k - below)
            w += ts.tile.mma(v.T, ts.tile.load(out[m, i : i + nb, c : c + width], other=0.0))
        for i in ts.tile.range_k(dense, ctx.M, nb):
            v = filled(a[m, i : i + nb, k : k + nb], nb)
            w += ts.tile.mma(v.T, ts.tile.load(out[m, i : i + nb, c : c + width], other=0.0))
        w = ts.tile.mma(t[m, k : k + nb, :].T if trans else t[m, k : k + nb, :], w)
        for i in ts.tile.range_k(k, min(dense, ctx.M), nb):
            v = reflections(filled(a[m, i : i + nb, k : k + nb], nb), at, i - k - below)
            out[m, i : i + nb, c : c + width] -= ts.tile.mma(v, w)
        for i in ts.tile.range_k(dense, ctx.M, nb):
            out[m, i : i + nb, c : c + width] -= ts.tile.mma(filled(a[m, i : i + nb, k : k + nb], nb), w)


def factor_diagonal(a, out, m, k, upper, nb, step):
    """The block at k on the diagonal of Cholesky's factor, from those on its left."""
    put(out, m, k, k, upper, left_over(a, out, m, k, k, upper, nb))
    rows, at = ts.tile.arange(nb), ts.tile.arange(step)
    for s in ts.tile.range_k(k, min(k + nb, a.shape[1]), step):
        d = block(out, m, s, s, upper, step, step)
        for j in ts.tile.range_k(k, s, step):
            row = block(out, m, s, j, upper, step, step)
            d -= ts.tile.mma(row, row.T)
        for r in ts.tile.range_k(0, min(step, a.shape[1] - s)):
            root = ts.tile.where(d[r, r] > 0, ts.tile.sqrt(d[r, r]), math.nan)
            column = ts.tile.where(at == r, root, d[:, r] * (1 / root))
            below = ts.tile.where(at > r, column, 0.0)
            d = ts.tile.where((at == r)[None, :], column[:, None], d - below[:, None] * below[None, :])
        put(out, m, s, s, upper, ts.tile.where(at[:, None] >= at[None, :], d, 0.0))
        if s + step < k + nb:
            x = solved(out, m, k, k, s, upper, nb, step)
            below = (rows >= s + step - k)[:, None]
            put(out, m, k, s, upper, ts.tile.where(below, x, block(out, m, k, s, upper, nb, step)))
    d = block(out, m, k, k, upper, nb, nb)
    put(out, m, k, k, upper, ts.tile.where(rows[:, None] >= rows[None, :], d, 0.0))


def factor_below(a, out, m, i, k, upper, nb, step):
    """Block i of the rows below the block at k on the diagonal."""
    put(out, m, i, k, upper, left_over(a, out, m, i, k, upper, nb))
    for s in ts.tile.range_k(k, k + nb, step):
        put(out, m, i, s, upper, solved(out, m, i, k, s, upper, nb, step))


def left_over(a, out, m, i, k, upper, nb):
    """What the blocks on the left leave of the block of rows i and columns k."""
    known = ts.tile.zeros((nb, nb), a.dtype)
    for j in ts.tile.range_k(0, k, nb):
        known += ts.tile.mma(block(out, m, i, j, upper, nb, nb), block(out, m, k, j, upper, nb, nb).T)
    return block(a, m, i, k, upper, nb, nb) - known


def solved(out, m, i, k, s, upper, nb, step):
    """`step` columns from s on of the block of rows i and columns k, from those on their left and the triangle at s."""
    at = ts.tile.arange(step)
    x = block(out, m, i, s, upper, nb, step)
    for j in ts.tile.range_k(k, s, step):
        x -= ts.tile.mma(block(out, m, i, j, upper, nb, step), block(out, m, s, j, upper, step, step).T)
    d = block(out, m, s, s, upper, step, step)
    for r in ts.tile.range_k(0, step):
        column = x[:, r] * (1 / d[r, r])
        right = ts.tile.where(at > r, d[:, r], 0.0)
        x = ts.tile.where((at == r)[None, :], column[:, None], x - column[:, None] * right[None, :])
    return x


def block(x, m, i, j, upper, rows, columns):
    """A block of matrix m as it is in the lower triangle, with zeros beyond the edge."""
    if upper:
        return ts.tile.load(x[m, j : j + columns, i : i + rows], other=0.0).reshape((columns, rows)).T
    return ts.tile.load(x[m, i : i + rows, j : j + columns], other=0.0).reshape((rows, columns))


def put(out, m, i, j, upper, x):
    """The opposite of `block`."""
    rows, columns = x.shape
    if upper:
        out[m, j : j + columns, i : i + rows] = x.T
    else:
        out[m, i : i + rows, j : j + columns] = x


def bring_up(out, panel, m, half, k, known, step):
    """Puts the block of columns at k into a half of the panel, without what the blocks before `known` add to it."""
    nb = panel.shape[3]
    for i in ts.tile.range_k(0, out.shape[1], nb):
        x = filled(out[m, i : i + nb, k : k + nb], nb)
        for j in ts.tile.range_k(0, min(i, known), nb):
            x -= ts.tile.mma(filled(out[m, i : i + nb, j : j + nb], nb), rows_of(panel, m, half, j, nb))
        panel[m, half, i : i + nb, :] = x
        for s in ts.tile.range_k(i, min(i + nb, known), step):  # above the diagonal
            solve_step(out, panel, m, half, i, s, step)


def factor_block(a, out, order, sign, pivots, panel, m, half, k, step):
    """Finishes the block of columns at k, of which `bring_up` has left out what the block before it adds."""
    nb, n = panel.shape[3], out.shape[1]
    if k == 0:
        sign[m] = ts.tile.full((), 1.0, a.dtype)
        for i in ts.tile.range_k(0, n, nb):
            order[m, i : i + nb] = ts.tile.cast(i + ts.tile.arange(nb), order.dtype)
            panel[m, half, i : i + nb, :] = filled(a[m, i : i + nb, :nb], nb)
    else:
        before = max(k - nb, 0)
        for c in ts.tile.range_k(before, k):
            exchange_in_panel(panel, m, half, c, pivots[m, c])
        for s in ts.tile.range_k(before, k, step):
            solve_step(out, panel, m, half, before, s, step)
        for i in ts.tile.range_k(k, n, nb):
            left = filled(out[m, i : i + nb, before : before + nb], nb)
            panel[m, half, i : i + nb, :] -= ts.tile.mma(left, rows_of(panel, m, half, before, nb))
    parity = sign[m]
    for c in ts.tile.range_k(0, min(nb, n - k)):
        p = pivot_row(panel, m, half, k, c, n)
        pivots[m, k + c] = p
        if p != k + c:
            parity = -parity
            exchange_in_panel(panel, m, half, k + c, p)
            exchange_numbers(order, m, k + c, p)
        eliminate(panel, m, half, k, c)
    sign[m] = parity
    store_panel(out, panel, m, half, k)


def pivot_row(panel, m, half, k, c, n):
    """The row, from k + c to n - 1, of the largest element of column c of the panel; of equal ones the first."""
    nb = panel.shape[3]
    at, top, p = ts.tile.arange(nb), ts.tile.full((), -1.0, panel.dtype), k + c
    for i in ts.tile.range_k(k, panel.shape[2], nb):
        own = (i + at >= k + c) & (i + at < n)
        size = ts.tile.where(own, ts.tile.abs(panel[m, half, i : i + nb, c].reshape(nb)), -1.0)
        best = ts.tile.max(size)
        p = ts.tile.where(best > top, i + ts.tile.argmax(size), p)
        top = ts.tile.maximum(best, top)
    return p


def eliminate(panel, m, half, k, c):
    """Makes column c the factors of row k + c, and takes multiples of this row from those below it."""
    nb = panel.shape[3]
    at = ts.tile.arange(nb)
    row = panel[m, half, k + c, :].reshape(nb)
    pivot = ts.tile.where(row[c] == 0, 1.0, row[c])
    right = ts.tile.where(at > c, row, 0.0)[None, :]
    for i in ts.tile.range_k(k, panel.shape[2], nb):
        below = (i + at > k + c).reshape(nb)
        column = panel[m, half, i : i + nb, c].reshape(nb)
        factors = column / pivot
        panel[m, half, i : i + nb, c] = ts.tile.where(below, factors, column)
        left = ts.tile.where(below, factors, 0.0)[:, None]
        panel[m, half, i : i + nb, :] = rows_of(panel, m, half, i, nb) - left * right


def exchange_rows(out, pivots, m, k, but, nb):
    """Exchanges rows as the pivots of the block at k ask for, in all other blocks of columns but one."""
    for j in ts.tile.range_k(0, out.shape[1], nb):
        if (j != k) & (j != but):
            for c in ts.tile.range_k(k, min(k + nb, out.shape[1])):
                p = pivots[m, c]
                if p != c:
                    exchange(out, m, c, p, j, nb)


def exchange(out, m, i, p, j, nb):
    upper, lower = out[m, i, j : j + nb], out[m, p, j : j + nb]
    out[m, i, j : j + nb] = lower
    out[m, p, j : j + nb] = upper


def exchange_in_panel(panel, m, half, i, p):
    upper, lower = panel[m, half, i, :], panel[m, half, p, :]
    panel[m, half, i, :] = lower
    panel[m, half, p, :] = upper


def exchange_numbers(order, m, i, p):
    first, second = order[m, i], order[m, p]
    order[m, i] = second
    order[m, p] = first


def store_panel(out, panel, m, half, k):
    nb = panel.shape[3]
    for i in ts.tile.range_k(0, out.shape[1], nb):
        out[m, i : i + nb, k : k + nb] = rows_of(panel, m, half, i, nb)


def rows_of(panel, m, half, i, count):
    """`count` rows of a half of the panel of matrix m."""
    return panel[m, half, i : i + count, :].reshape((count, panel.shape[3]))


def solve_step(out, panel, m, half, i, s, step):
    """Rows s to s + step of a panel, solved for with the triangle of `out` that begins at row i."""
    at = ts.tile.arange(step)
    x = rows_of(panel, m, half, s, step)
    for j in ts.tile.range_k(i, s, step):
        x -= ts.tile.mma(out[m, s : s + step, j : j + step].reshape((step, step)), rows_of(panel, m, half, j, step))
    d = out[m, s : s + step, s : s + step].reshape((step, step))
    for r in ts.tile.range_k(0, step):
        x = x - ts.tile.where(at > r, d[:, r], 0.0)[:, None] * x[r][None, :]
    panel[m, half, s : s + step, :] = x


def bring_up_step(t, panel, m, k, s, nb, few):
    """Brings the columns from s on of a panel up to date with the reflections of those before."""
    w = ts.tile.zeros((nb, few), panel.dtype)
    for i in ts.tile.range_k(k, panel.shape[2], nb):
        w += ts.tile.mma(rows_of(panel, m, 1, i, nb).T, step_of(panel, m, 0, i, s, nb, few))
    w = ts.tile.mma(t[m, k : k + nb, :].T, w)
    for i in ts.tile.range_k(k, panel.shape[2], nb):
        panel[m, 0, i : i + nb, s : s + few] -= ts.tile.mma(rows_of(panel, m, 1, i, nb), w)


def reflect_step(panel, m, k, s, count, nb, few):
    """Makes reflections of a few columns from s on of a panel, as far as there are to be any; gives their factors."""
    at, columns = ts.tile.arange(nb), ts.tile.arange(few)
    taus = ts.tile.zeros((few,), panel.dtype)
    for c in ts.tile.range_k(0, min(few, count - k - s)):
        top = k + s + c
        largest = ts.tile.zeros((), panel.dtype)
        for i in ts.tile.range_k(k, panel.shape[2], nb):
            size = ts.tile.abs(column_of(panel, m, 0, i, s + c, nb))
            largest = ts.tile.maximum(largest, ts.tile.max(ts.tile.where(i + at > top, size, 0.0)))
        head = panel[m, 0, top, s + c]
        scale = ts.tile.maximum(largest, ts.tile.abs(head))
        squares = ts.tile.zeros((), panel.dtype)
        for i in ts.tile.range_k(k, panel.shape[2], nb):
            x = ts.tile.where(i + at >= top, column_of(panel, m, 0, i, s + c, nb) / scale, 0.0)
            squares += ts.tile.sum(x * x)
        none = largest == 0
        norm = scale * ts.tile.sqrt(squares)
        beta = ts.tile.where(none, head, ts.tile.where(head < 0, norm, -norm))
        tau = ts.tile.where(none, 0.0, (beta - head) / beta)
        start = ts.tile.where(none, 1.0, head - beta)
        along = ts.tile.zeros((few,), panel.dtype)
        for i in ts.tile.range_k(k, panel.shape[2], nb):
            v = ts.tile.where(i + at > top, column_of(panel, m, 0, i, s + c, nb) / start, 0.0)
            v = ts.tile.where(i + at == top, 1.0, v)
            panel[m, 1, i : i + nb, s + c] = v
            along += ts.tile.col_sum(v[:, None] * step_of(panel, m, 0, i, s, nb, few)).reshape(few)
        along = ts.tile.where(columns > c, tau * along, 0.0)
        for i in ts.tile.range_k(k, panel.shape[2], nb):
            v = column_of(panel, m, 1, i, s + c, nb)
            panel[m, 0, i : i + nb, s : s + few] = step_of(panel, m, 0, i, s, nb, few) - v[:, None] * along[None, :]
        panel[m, 0, top, s + c] = beta
        taus = ts.tile.where(columns == c, tau, taus)
    return taus


def join_triangle(t, panel, m, k, s, taus, nb, few):
    """Adds the reflections of a few columns to the triangle of a block: T2 below T1, and -T1 V1^T V2 T2 beside it."""
    at = ts.tile.arange(few)
    all_by, own = ts.tile.zeros((nb, few), t.dtype), ts.tile.zeros((few, few), t.dtype)
    for i in ts.tile.range_k(k, panel.shape[2], nb):
        v = step_of(panel, m, 1, i, s, nb, few)
        all_by += ts.tile.mma(rows_of(panel, m, 1, i, nb).T, v)
        own += ts.tile.mma(v.T, v)
    h = ts.tile.zeros((few, few), t.dtype)
    for c in ts.tile.range_k(0, few):
        h = with_column(h, ts.tile.where(at < c, own[:, c], 0.0), taus[c], c)
    known = t[m, k : k + nb, :].reshape((nb, nb))
    t[m, k : k + nb, s : s + few] = -ts.tile.mma(ts.tile.mma(known, all_by), h)
    t[m, k + s : k + s + few, s : s + few] = h


def filled(x, size):
    """A square block, with zeros beyond the edge."""
    return ts.tile.load(x, other=0.0).reshape((size, size))


def step_of(panel, m, half, i, s, rows, columns):
    """A few columns of a block of rows of a panel."""
    return panel[m, half, i : i + rows, s : s + columns].reshape((rows, columns))


def column_of(panel, m, half, i, c, rows):
    """A column of a block of rows of a panel."""
    return panel[m, half, i : i + rows, c].reshape(rows)


def reflections(x, at, down):
    """The reflections in a block that lies `down` rows below the diagonal: 1 on the diagonal, 0 above."""
    apart = (at + down)[:, None] - at[None, :]
    return ts.tile.where(apart > 0, x.reshape(x.shape), ts.tile.where(apart == 0, 1.0, 0.0))
