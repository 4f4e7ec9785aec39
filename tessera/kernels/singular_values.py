"""Singular values and vectors of square matrices: what `ts.linalg.svd` runs.

A matrix gets two diagonals by reflections from the left and the right, by blocks of columns and rows (J. Dongarra, D.
Sorensen and S. Hammarling, "Block reduction of matrices to condensed forms", 1989). Two diagonals become one by steps
of QR with implicit shifts (G. Golub and C. Van Loan, "Matrix Computations", 4th edition, 2013, section 8.6).
Elements are f32 or f64, and none is greater than 2.
"""

from __future__ import annotations

import tessera as ts
from tessera import Tensor
from tessera.kernels.condensed import (
    SWEEPS,
    block,
    combined,
    diagonalize,
    diagonalize_step,
    keep,
    load_strips,
    products,
    reflection,
    row,
    tiny,
    unit,
    with_column,
)


@ts.kernel(BLOCK=32, WIDTH=64)
def bidiagonalize(
    a: Tensor["B", "N", "N"], left: Tensor["B", "N", "N"], right: Tensor["B", "N", "N"], t: Tensor["B", "R", "W"],
    s: Tensor["B", "R", "W"], d: Tensor["B", "N"], e: Tensor["B", "N"], v: Tensor["B", "W", "N"],
    y: Tensor["B", "W", "N"], u: Tensor["B", "W", "N"], x: Tensor["B", "W", "N"],
):  # fmt: skip
    """The diagonal `d` of Q^T a P, and `e` above it (the last element is 0). The reflections of Q lie in `left` and `t`
    as `factorizations.householder` stores them, those of P in `right` and `s`, one row below the diagonal.

    Until a block is done, a - V^T Y - X^T U stands for what the matrix has become, with the reflections of Q in the
    rows of `v`, those of P in the rows of `u`, and what they make of the matrix in those of `y` and `x`.
    """
    ctx = ts.tile.context()
    nb, width = ctx.BLOCK, ctx.WIDTH
    ts.tile.grid(ctx.B)
    b = ts.tile.program_id(0)
    for i in ts.tile.range_k(0, ctx.N, nb):
        for j in ts.tile.range_k(0, ctx.N, nb):
            left[b, i : i + nb, j : j + nb] = a[b, i : i + nb, j : j + nb]
            right[b, i : i + nb, j : j + nb] = ts.tile.zeros((nb, nb), a.dtype)
    for k in ts.tile.range_k(0, ctx.N, nb):
        for i in ts.tile.range_k(k, ctx.N, width):
            for panel in (v, y, u, x):
                panel[b, :, i : i + width] = ts.tile.zeros((nb, width), a.dtype)
        of_left, of_right = ts.tile.zeros((nb, nb), a.dtype), ts.tile.zeros((nb, nb), a.dtype)
        for c in ts.tile.range_k(0, min(nb, ctx.N - k)):
            largest = present_column(left, v, y, x, u, b, k, c, width)
            beta, tau = reflection(v, b, k, c, k + c, largest, width)
            d[b, k + c] = beta
            along = image_of_left(left, v, y, x, u, b, k, c, tau, nb, width)
            of_left = with_column(of_left, along, tau, c)
            if k + c == ctx.N - 1:
                e[b, k + c] = ts.tile.zeros((), a.dtype)
            else:
                largest = present_row(left, v, y, x, u, b, k, c, width)
                beta, tau = reflection(u, b, k, c, k + c + 1, largest, width)
                e[b, k + c] = beta
                along = image_of_right(left, v, y, x, u, b, k, c, tau, nb, width)
                of_right = with_column(of_right, along, tau, c)
        t[b, k : k + nb, :] = of_left
        s[b, k : k + nb, :] = of_right
        for i in ts.tile.range_k(k, ctx.N, nb):
            of_v, of_x = block(v, b, i, nb).T, block(x, b, i, nb).T
            for j in ts.tile.range_k(k + nb, ctx.N, nb):
                change = ts.tile.mma(of_v, block(y, b, j, nb)) + ts.tile.mma(of_x, block(u, b, j, nb))
                left[b, i : i + nb, j : j + nb] -= change
            left[b, i : i + nb, k : k + nb] = of_v
            right[b, i : i + nb, k : k + nb] = block(u, b, i, nb).T


@ts.kernel
def bidiagonal_values(
    d: Tensor["B", "N"], e: Tensor["B", "N"], values: Tensor["B", "N"], lines: Tensor["B", 1, 2, "T"]
):
    """The singular values of matrices with the diagonal `d` and `e` above it, unordered and with signs; `lines` is
    memory to work in."""
    ctx = ts.tile.context()
    ts.tile.grid(ctx.B)
    diagonalize(d, e, lines, ts.tile.program_id(0), 0, values, sweep, (), 0, 0, False)


@ts.kernel(BLOCK=32)
def bidiagonal_vectors(
    d: Tensor["B", "N"], e: Tensor["B", "N"], q: Tensor["B", "N", "N"], p: Tensor["B", "N", "N"],
    values: Tensor["B", "N"], left: Tensor["B", "S", "N", "C"], right: Tensor["B", "S", "N", "C"],
    lines: Tensor["B", "P", "L", "T"],
):  # fmt: skip
    """The same, and the columns of `q` and `p` turned into singular vectors: they are the rows of `left` and `right`,
    in strips of C elements. Programs share the strips as those of `eigenvalues.tridiagonal_vectors` do."""
    ctx = ts.tile.context()
    share = ts.tile.cdiv(ctx.S, ctx.P)
    ts.tile.grid(ctx.B, ctx.P)
    b, own = ts.tile.program_id(0), ts.tile.program_id(1)
    first, last = own * share, min((own + 1) * share, ctx.S)
    load_strips(left, q, b, first, last, ctx.BLOCK)
    load_strips(right, p, b, first, last, ctx.BLOCK)
    turned = ((right, 0), (left, 2 * SWEEPS))
    diagonalize(d, e, lines, b, own, values, sweep, turned, first, last, False)


@ts.kernel(BLOCK=32)
def bidiagonal_vectors_step(
    d: Tensor["B", "N"], e: Tensor["B", "N"], q: Tensor["B", "N", "N"], p: Tensor["B", "N", "N"],
    values: Tensor["B", "N"], left: Tensor["B", "S", "N", "C"], right: Tensor["B", "S", "N", "C"],
    lines: Tensor["B", 1, "L", "T"], ranges: Tensor["B", "R", 2, ts.int64], step: Tensor[1, ts.int32], steps: int = 3,
):  # fmt: skip
    """The same by programs that share a matrix, as `eigenvalues.tridiagonal_vectors_step` does."""
    ctx = ts.tile.context()
    ts.tile.grid(ctx.B, 2 * ctx.S + 1)
    b, own = ts.tile.program_id(0), ts.tile.program_id(1)
    if (own > 0) & (own <= ctx.S) & (step[0] == 0):
        load_strips(right, p, b, own - 1, own, ctx.BLOCK)
    if (own > ctx.S) & (step[0] == 0):
        load_strips(left, q, b, own - 1 - ctx.S, own - ctx.S, ctx.BLOCK)
    turned = ((right, 0), (left, 2 * SWEEPS))
    diagonalize_step(d, e, lines, ranges, step[0], steps, b, own, values, sweep, turned, False)


def present_column(a, v, y, x, u, b, k, c, width):
    """Puts column k + c of the matrix, as it has become, into row c of `v`. Its largest element below the diagonal."""
    at, rows = ts.tile.arange(width), v.shape[1]
    of_v, of_x = y[b, :, k + c].reshape(rows), u[b, :, k + c].reshape(rows)
    largest = ts.tile.zeros((), v.dtype)
    for i in ts.tile.range_k(k, v.shape[2], width):
        z = a[b, i : i + width, k + c].reshape(width) - combined(v, of_v, x, of_x, b, i, width)
        v[b, c, i : i + width] = z
        largest = ts.tile.maximum(largest, ts.tile.max(ts.tile.where(i + at > k + c, ts.tile.abs(z), 0.0)))
    return largest


def present_row(a, v, y, x, u, b, k, c, width):
    """Puts row k + c into row c of `u`. Its largest element behind the second diagonal."""
    at, rows = ts.tile.arange(width), v.shape[1]
    of_y, of_u = v[b, :, k + c].reshape(rows), x[b, :, k + c].reshape(rows)
    largest = ts.tile.zeros((), v.dtype)
    for i in ts.tile.range_k(k, v.shape[2], width):
        z = a[b, k + c, i : i + width].reshape(width) - combined(y, of_y, u, of_u, b, i, width)
        u[b, c, i : i + width] = z
        largest = ts.tile.maximum(largest, ts.tile.max(ts.tile.where(i + at > k + c + 1, ts.tile.abs(z), 0.0)))
    return largest


def image_of_left(a, v, y, x, u, b, k, c, tau, nb, width):
    """Puts what reflection c from the left takes away from each row of the matrix into row c of `y`. The products of
    the reflection and those before it."""
    n, at, wide = v.shape[2], ts.tile.arange(nb), ts.tile.arange(width)
    along = ts.tile.where(at < c, products(v, v, b, k, c, nb), 0.0)
    other = products(x, v, b, k, c, nb)
    for i in ts.tile.range_k(k, n, width):
        z = ts.tile.zeros((width,), v.dtype)
        for j in ts.tile.range_k(k, n, nb):
            part = a[b, j : j + nb, i : i + width].reshape((nb, width))
            z += ts.tile.col_sum(row(v, b, c, j, nb)[:, None] * part).reshape(width)
        z = ts.tile.where(i + wide > k + c, z - combined(y, along, u, other, b, i, width), 0.0)
        y[b, c, i : i + width] = tau * z
    return along


def image_of_right(a, v, y, x, u, b, k, c, tau, nb, width):
    """Puts what reflection c from the right takes away from each column into row c of `x`."""
    n, at = v.shape[2], ts.tile.arange(nb)
    along = ts.tile.where(at < c, products(u, u, b, k, c, nb), 0.0)
    other = products(y, u, b, k, c, nb)
    for i in ts.tile.range_k(k, n, nb):
        sums = ts.tile.zeros((nb, width), v.dtype)
        for j in ts.tile.range_k(k, n, width):
            sums += a[b, i : i + nb, j : j + width].reshape((nb, width)) * row(u, b, c, j, width)[None, :]
        z = ts.tile.row_sum(sums).reshape(nb) - combined(v, other, x, along, b, i, nb)
        x[b, c, i : i + nb] = tau * ts.tile.where(i + at > k + c, z, 0.0)
    return along


def shift_of(lines, b, p, low, high):
    """The smaller singular value of the last two rows; 0 where an element of the diagonal is next to nothing, which a
    step without shift takes to the end."""
    f, h = ts.tile.abs(lines[b, p, 0, high - 1]), ts.tile.abs(lines[b, p, 0, high])
    g = ts.tile.abs(lines[b, p, 1, high - 1])
    both = ts.tile.sqrt((f + h) * (f + h) + g * g) + ts.tile.sqrt((f - h) * (f - h) + g * g)
    least, most, at = h, h, ts.tile.arange(64)
    for i in ts.tile.range_k(0, lines.shape[3] - 2 * SWEEPS, 64):
        size, beside = (
            ts.tile.abs(lines[b, p, 0, i : i + 64].reshape(64)),
            ts.tile.abs(lines[b, p, 1, i : i + 64].reshape(64)),
        )
        here = (i + at >= low) & (i + at < high)
        least = ts.tile.minimum(least, ts.tile.min(ts.tile.where(here, size, h)))
        most = ts.tile.maximum(most, ts.tile.max(ts.tile.where(here, ts.tile.maximum(size, beside), h)))
    return ts.tile.where(least <= unit(lines) * most, 0.0, 2 * f * h / both)


def sweep(lines, b, p, low, high, place):
    """One step of QR for rows `low` to `high`: rotations of neighbouring columns and rows from the first ones on."""
    n = lines.shape[3] - 2 * SWEEPS
    shift = shift_of(lines, b, p, low, high)
    own, beside = lines[b, p, 0, low], lines[b, p, 1, low]
    ratio = shift / ts.tile.where(shift == 0, 1.0, own)
    f = (ts.tile.abs(own) - shift) * (ts.tile.where(own < 0, -1.0, 1.0) + ratio)
    g = beside
    for i in ts.tile.range_k(max(low, 0), min(high, n - 1)):
        r, c, s = rotation(f, g)
        keep(lines, b, p, place, i, c, s)
        if i > low:
            lines[b, p, 1, i - 1] = r
        below = lines[b, p, 0, i + 1]
        f, beside, g, below = c * own + s * beside, c * beside - s * own, s * below, c * below
        r, c, s = rotation(f, g)
        keep(lines, b, p, place + 2 * SWEEPS, i, c, s)
        lines[b, p, 0, i] = r
        f, own = c * beside + s * below, c * below - s * beside
        beside = lines[b, p, 1, i + 1]
        g, beside = ts.tile.where(i + 1 < high, s * beside, 0.0), c * beside
    lines[b, p, 0, high] = own
    lines[b, p, 1, high - 1] = f


def rotation(f, g):
    """What f becomes when a rotation makes g 0, and the cosine and the sine of the rotation."""
    square = f * f + g * g
    none = square < tiny(f) * tiny(f)
    r = ts.tile.where(none, f, ts.tile.sqrt(square))
    return r, ts.tile.where(none, 1.0, f / r), ts.tile.where(none, 0.0, g / r)
