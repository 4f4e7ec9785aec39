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
    at = ts.tile.arange(nb)
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
                column = -tau * ts.tile.row_sum(h * along[None, :]).reshape(nb)
                column = ts.tile.where(at == c, tau, column)
                h = ts.tile.where((at == c)[None, :], column[:, None], h)
        t[b, k : k + nb, :] = h
        for i in ts.tile.range_k(k, ctx.N, nb):
            left, right = block(v, b, i, nb).T, block(w, b, i, nb).T
            for j in ts.tile.range_k(k + nb, ctx.N, nb):
                x = ts.tile.mma(left, block(w, b, j, nb)) + ts.tile.mma(right, block(v, b, j, nb))
                out[b, i : i + nb, j : j + nb] -= x
            out[b, i : i + nb, k : k + nb] = left


@ts.kernel
def tridiagonal_values(
    d: Tensor["B", "N"], e: Tensor["B", "N"], values: Tensor["B", "N"], state: Tensor["B", 1, 4, "N"]
):
    """The eigenvalues of matrices with the diagonal `d`, and `e` beside it, unordered; `state` is memory to work in."""
    ctx = ts.tile.context()
    ts.tile.grid(ctx.B)
    b = ts.tile.program_id(0)
    begin(d, e, state, b, 0)
    low, rounds = 0, 0
    while (low < ctx.N - 1) & (rounds < 30 * ctx.N):
        high = coupled(state, b, 0, low)
        rounds += 1
        if high == low:
            low += 1
        else:
            sweep(state, b, 0, low, high)
    end(values, state, b, 0)


@ts.kernel(BLOCK=32)
def tridiagonal_vectors(
    d: Tensor["B", "N"], e: Tensor["B", "N"], q: Tensor["B", "N", "N"], values: Tensor["B", "N"],
    z: Tensor["B", "S", "N", "C"], state: Tensor["B", "P", 4, "N"],
):  # fmt: skip
    """The same, and the columns of `q` turned into eigenvectors: they are the rows of `z`, in strips of C elements.

    Each of P programs has a share of the strips, and finds all the rotations for itself.
    """
    ctx = ts.tile.context()
    nb, width = ctx.BLOCK, ctx.C
    share = ts.tile.cdiv(ctx.S, ctx.P)
    ts.tile.grid(ctx.B, ctx.P)
    b, p = ts.tile.program_id(0), ts.tile.program_id(1)
    first, last = p * share, min((p + 1) * share, ctx.S)
    begin(d, e, state, b, p)
    for s in ts.tile.range_k(first, last):
        for i in ts.tile.range_k(0, ctx.N, nb):
            z[b, s, i : i + nb, :] = q[b, s * width : s * width + width, i : i + nb].T
    low, rounds = 0, 0
    while (low < ctx.N - 1) & (rounds < 30 * ctx.N):
        high = coupled(state, b, p, low)
        rounds += 1
        if high == low:
            low += 1
        else:
            sweep(state, b, p, low, high)
            for s in ts.tile.range_k(first, last):
                turn(z, state, b, p, s, low, high)
    end(values, state, b, p)


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


def reflection(v, b, k, c, first, largest, width):
    """Makes row c of `v` the reflection that leaves only the element `first` of those from there on: what that becomes,
    and the reflection's factor. `largest`: of the elements behind it, which count as 0 if their squares would."""
    at, n = ts.tile.arange(width), v.shape[2]
    head = v[b, c, first]
    scale = ts.tile.maximum(largest, ts.tile.abs(head))
    squares = ts.tile.zeros((), v.dtype)
    for i in ts.tile.range_k(k, n, width):
        x = ts.tile.where(i + at >= first, row(v, b, c, i, width) / scale, 0.0)
        squares += ts.tile.sum(x * x)
    none = largest < tiny(v) * tiny(v)
    norm = scale * ts.tile.sqrt(squares)
    beta = ts.tile.where(none, head, ts.tile.where(head < 0, norm, -norm))
    start = ts.tile.where(none, 1.0, head - beta)
    for i in ts.tile.range_k(k, n, width):
        x = row(v, b, c, i, width) / start
        v[b, c, i : i + width] = ts.tile.where(i + at > first, x, ts.tile.where(i + at == first, 1.0, 0.0))
    return beta, ts.tile.where(none, 0.0, (beta - head) / beta)


def image(out, v, w, b, k, c, tau, nb, width):
    """Puts the w of reflection c into its row: H a H = a - v w^T - w v^T. The products of v and those before it."""
    at, wide, n = ts.tile.arange(nb), ts.tile.arange(width), v.shape[2]
    first, second = ts.tile.zeros((nb, nb), v.dtype), ts.tile.zeros((nb, nb), v.dtype)
    for i in ts.tile.range_k(k, n, nb):
        x = row(v, b, c, i, nb)[None, :]
        first += block(v, b, i, nb) * x
        second += block(w, b, i, nb) * x
    along = ts.tile.where(at < c, ts.tile.row_sum(first).reshape(nb), 0.0)
    other = ts.tile.row_sum(second).reshape(nb)
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


def combined(v, of_v, w, of_w, b, i, width):
    """Sums of the rows of `v` and of `w`, a number times each, at `width` places from i on."""
    sums = ts.tile.col_sum(of_v[:, None] * block(v, b, i, width) + of_w[:, None] * block(w, b, i, width))
    return sums.reshape(width)


def block(x, b, i, count):
    """`count` columns of the rows that belong to a block of columns of matrix b."""
    return x[b, :, i : i + count].reshape((x.shape[1], count))


def row(x, b, c, i, count):
    return x[b, c, i : i + count].reshape(count)


def begin(d, e, state, b, p):
    """`state` is what the diagonals have become, and the cosines and sines of a sweep."""
    for i in ts.tile.range_k(0, d.shape[1]):
        state[b, p, 0, i] = d[b, i]
        state[b, p, 1, i] = e[b, i]


def end(values, state, b, p):
    for i in ts.tile.range_k(0, values.shape[1]):
        if p == 0:
            values[b, i] = state[b, p, 0, i]
        for k in ts.tile.range_k(0, 4):
            state[b, p, k, i] = ts.tile.zeros((), values.dtype)


def coupled(state, b, p, low):
    """The last row of the block that begins at row `low` and has no 0 beside its diagonal. What rounding of its
    neighbours on the diagonal hides counts as 0, and what is so small that its square is none."""
    high = low
    while high < state.shape[3] - 1:
        near = ts.tile.abs(state[b, p, 0, high]) + ts.tile.abs(state[b, p, 0, high + 1])
        if ts.tile.abs(state[b, p, 1, high]) <= ts.tile.maximum(unit(state) * near, tiny(state)):
            break
        high += 1
    return high


def sweep(state, b, p, low, high):
    """One step of QL for rows `low` to `high`: rotations of neighbouring rows from the last one on. The shift is the
    eigenvalue of the first two rows that is nearer to the first element."""
    n = state.shape[3]
    one, zero = ts.tile.full((), 1.0, state.dtype), ts.tile.zeros((), state.dtype)
    first, beside = state[b, p, 0, low], state[b, p, 1, low]
    g = (state[b, p, 0, low + 1] - first) / (2 * beside)
    root = ts.tile.sqrt(g * g + 1)
    g = state[b, p, 0, high] - first + beside / (g + ts.tile.where(g < 0, -root, root))
    s, c, change, above = one, one, zero, state[b, p, 0, high]
    state[b, p, 1, high] = zero
    for step in ts.tile.range_k(max(n - 1 - high, 0), min(n - 1 - low, n - 1)):
        i = n - 2 - step
        own, x = state[b, p, 0, i], state[b, p, 1, i]
        f, h = s * x, c * x
        square = f * f + g * g
        none = square < tiny(state) * tiny(state)
        r = ts.tile.where(none, g, ts.tile.sqrt(square))
        if i + 1 < high:
            state[b, p, 1, i + 1] = r
        state[b, p, 2, i] = ts.tile.where(none, one, g / r)
        state[b, p, 3, i] = ts.tile.where(none, zero, f / r)
        c, s = state[b, p, 2, i], state[b, p, 3, i]
        g = above - change
        x = (own - g) * s + 2 * c * h
        change = s * x
        state[b, p, 0, i + 1] = g + change
        g = c * x - h
        above = own
    state[b, p, 0, low] = above - change
    state[b, p, 1, low] = g


def turn(z, state, b, p, s, low, high):
    """The rows `low` to `high` of a strip, turned as the sweep says."""
    n, width = z.shape[2:]
    carried = z[b, s, high, :].reshape(width)
    for step in ts.tile.range_k(max(n - 1 - high, 0), min(n - 1 - low, n - 1)):
        i = n - 2 - step
        cosine, sine = state[b, p, 2, i], state[b, p, 3, i]
        own = z[b, s, i, :].reshape(width)
        z[b, s, i + 1, :] = sine * own + cosine * carried
        carried = cosine * own - sine * carried
    z[b, s, low, :] = carried


def unit(x):
    """Half of the distance from 1 to the next number."""
    return 2.0**-53 if x.dtype == ts.f64 else 2.0**-24


def tiny(x):
    """Far below what rounding leaves of numbers around 1, and with a square that is a normal number."""
    return 1e-100 if x.dtype == ts.f64 else 1e-15
