"""Eigenvalues and eigenvectors of symmetric matrices: what `ts.linalg.eigh` runs.

A symmetric matrix becomes one with three diagonals by Householder's reflections, by blocks of columns: half of the work
is products of a matrix and a vector, which read the matrix once for each column, half is products of blocks (J.
Dongarra, D. Sorensen and S. Hammarling, "Block reduction of matrices to condensed forms", 1989). Three diagonals become
one by the QL method with implicit shifts (G. Golub and C. Van Loan, "Matrix Computations", 4th edition, 2013, 8.3).

Elements are f32 or f64, and none is greater than 1 (or 2), so that squares need no care but for small ones.
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
    with_column,
)


@ts.kernel(BLOCK=32, WIDTH=64)
def tridiagonalize(
    a: Tensor["B", "N", "N"], out: Tensor["B", "N", "N"], t: Tensor["B", "R", "W"], d: Tensor["B", "N"],
    e: Tensor["B", "N"], v: Tensor["B", "W", "N"], w: Tensor["B", "W", "N"],
):  # fmt: skip
    """The diagonal `d` of Q^T a Q, and `e` below it (the last element is 0). The reflections of Q lie in the columns of
    `out` from one row below the diagonal on, and in `t`, as `factorizations.householder` stores them.

    A block of columns is reduced before the rest of the matrix is: until then a - V^T W - W^T V, with the reflections
    and their images in the rows of `v` and `w`, stands for what the matrix has become.
    """
    ctx = ts.tile.context()
    nb, width = ctx.BLOCK, ctx.WIDTH
    ts.tile.grid(ctx.B)
    b = ts.tile.program_id(0)
    for i in ts.tile.range_k(0, ctx.N, nb):
        for j in ts.tile.range_k(0, ctx.N, nb):
            out[b, i : i + nb, j : j + nb] = a[b, i : i + nb, j : j + nb]
    for k in ts.tile.range_k(0, ctx.N, nb):
        for i in ts.tile.range_k(k, ctx.N, width):
            v[b, :, i : i + width] = ts.tile.zeros((nb, width), a.dtype)
            w[b, :, i : i + width] = ts.tile.zeros((nb, width), a.dtype)
        h = ts.tile.zeros((nb, nb), a.dtype)
        for c in ts.tile.range_k(0, min(nb, ctx.N - k)):
            largest = present_row(out, v, w, b, k, c, width)
            d[b, k + c] = v[b, c, k + c]
            if k + c == ctx.N - 1:
                e[b, k + c] = ts.tile.zeros((), a.dtype)
            else:
                beta, tau = reflection(v, b, k, c, k + c + 1, largest, width)
                e[b, k + c] = beta
                along = image(out, v, w, b, k, c, tau, nb, width)
                h = with_column(h, along, tau, c)
        t[b, k : k + nb, :] = h
        for i in ts.tile.range_k(k, ctx.N, nb):
            left, right = block(v, b, i, nb).T, block(w, b, i, nb).T
            for j in ts.tile.range_k(k + nb, ctx.N, nb):
                x = ts.tile.mma(left, block(w, b, j, nb)) + ts.tile.mma(right, block(v, b, j, nb))
                out[b, i : i + nb, j : j + nb] -= x
            out[b, i : i + nb, k : k + nb] = left


@ts.kernel
def tridiagonal_values(
    d: Tensor["B", "N"], e: Tensor["B", "N"], values: Tensor["B", "N"], lines: Tensor["B", 1, 2, "T"]
):
    """The eigenvalues of matrices with the diagonal `d`, and `e` beside it, unordered; `lines` is memory to work in."""
    ctx = ts.tile.context()
    ts.tile.grid(ctx.B)
    diagonalize(d, e, lines, ts.tile.program_id(0), 0, values, sweep, (), 0, 0, True)


@ts.kernel(BLOCK=32)
def tridiagonal_vectors(
    d: Tensor["B", "N"], e: Tensor["B", "N"], q: Tensor["B", "N", "N"], values: Tensor["B", "N"],
    z: Tensor["B", "S", "N", "C"], lines: Tensor["B", "P", "L", "T"],
):  # fmt: skip
    """The same, and the columns of `q` turned into eigenvectors: they are the rows of `z`, in strips of C elements.

    Each of P programs has a share of the strips, and finds all the rotations for itself.
    """
    ctx = ts.tile.context()
    share = ts.tile.cdiv(ctx.S, ctx.P)
    ts.tile.grid(ctx.B, ctx.P)
    b, p = ts.tile.program_id(0), ts.tile.program_id(1)
    first, last = p * share, min((p + 1) * share, ctx.S)
    load_strips(z, q, b, first, last, ctx.BLOCK)
    diagonalize(d, e, lines, b, p, values, sweep, ((z, 0),), first, last, True)


@ts.kernel(BLOCK=32)
def tridiagonal_vectors_step(
    d: Tensor["B", "N"], e: Tensor["B", "N"], q: Tensor["B", "N", "N"], values: Tensor["B", "N"],
    z: Tensor["B", "S", "N", "C"], lines: Tensor["B", 1, "L", "T"], ranges: Tensor["B", "R", 2, ts.int64],
    step: Tensor[1, ts.int32], steps: int = 3,
):  # fmt: skip
    """The same by programs that share a matrix: in each step the first one finds rotations, and each of the others
    turns a strip by those of the step before."""
    ctx = ts.tile.context()
    ts.tile.grid(ctx.B, ctx.S + 1)
    b, p = ts.tile.program_id(0), ts.tile.program_id(1)
    if (p > 0) & (step[0] == 0):
        load_strips(z, q, b, p - 1, p, ctx.BLOCK)
    diagonalize_step(d, e, lines, ranges, step[0], steps, b, p, values, sweep, ((z, 0),), True)


def present_row(out, v, w, b, k, c, width):
    """Puts row k + c of the matrix, as it has become, into row c of `v`. Its largest element behind the second
    diagonal."""
    at = ts.tile.arange(width)
    of_v, of_w = v[b, :, k + c].reshape(v.shape[1]), w[b, :, k + c].reshape(v.shape[1])
    largest = ts.tile.zeros((), v.dtype)
    for i in ts.tile.range_k(k, v.shape[2], width):
        x = out[b, k + c, i : i + width].reshape(width) - combined(v, of_w, w, of_v, b, i, width)
        v[b, c, i : i + width] = x
        largest = ts.tile.maximum(largest, ts.tile.max(ts.tile.where(i + at > k + c + 1, ts.tile.abs(x), 0.0)))
    return largest


def image(out, v, w, b, k, c, tau, nb, width):
    """Puts the w of reflection c into its row: H a H = a - v w^T - w v^T. The products of v and those before it."""
    at, wide, n = ts.tile.arange(nb), ts.tile.arange(width), v.shape[2]
    along = ts.tile.where(at < c, products(v, v, b, k, c, nb), 0.0)
    other = products(w, v, b, k, c, nb)
    both = ts.tile.zeros((), v.dtype)
    for i in ts.tile.range_k(k, n, width):
        x = ts.tile.zeros((width,), v.dtype)
        for j in ts.tile.range_k(k, n, nb):
            part = out[b, j : j + nb, i : i + width].reshape((nb, width))
            x += ts.tile.col_sum(row(v, b, c, j, nb)[:, None] * part).reshape(width)
        x = ts.tile.where(i + wide > k + c, x - combined(v, other, w, along, b, i, width), 0.0) * tau
        w[b, c, i : i + width] = x
        both += ts.tile.sum(x * row(v, b, c, i, width))
    for i in ts.tile.range_k(k, n, width):
        w[b, c, i : i + width] -= 0.5 * tau * both * v[b, c, i : i + width]
    return along


def sweep(lines, b, p, low, high, place):
    """One step of QL for rows `low` to `high`: rotations of neighbouring rows from the last one on. The shift is the
    eigenvalue of the first two rows that is nearer to the first element. What it is taken from stays in memory as it
    is, as in LAPACK's `sterf`: so a rotation depends on the one before by one root and one division."""
    n = lines.shape[3] - 2 * SWEEPS
    first, beside = lines[b, p, 0, low], lines[b, p, 1, low]
    g = (lines[b, p, 0, low + 1] - first) / (2 * beside)
    root = ts.tile.sqrt(g * g + 1)
    shift = first - beside / (g + ts.tile.where(g < 0, -root, root))
    cosine, sine = ts.tile.full((), 1.0, lines.dtype), ts.tile.zeros((), lines.dtype)
    g = lines[b, p, 0, high] - shift
    h = g
    for step in ts.tile.range_k(max(n - 1 - high, 0), min(n - 1 - low, n - 1)):
        i = n - 2 - step
        own, x = lines[b, p, 0, i], lines[b, p, 1, i]
        r = ts.tile.sqrt(g * g + x * x)
        if i + 1 < high:
            lines[b, p, 1, i + 1] = sine * r
        beside = cosine * x
        cosine, sine = g / r, x / r
        keep(lines, b, p, place, step, cosine, sine)
        g = cosine * (own - shift) - sine * beside
        before = h
        h = cosine * g
        lines[b, p, 0, i + 1] = before + (own - h)
    lines[b, p, 0, low] = shift + h
    lines[b, p, 1, low] = sine * g
    lines[b, p, 1, high] = ts.tile.zeros((), lines.dtype)
