"""What the kernels of eigenvalues and of singular values share: reflections, and rotations that find values and turn
the rows of vectors.

Programs find rotations in the lines of a matrix, [2 + ..., N + 2 SWEEPS]: the diagonal, what is beside it, and the
cosines and sines of `SWEEPS` sweeps, each of which turns neighbouring rows, one pair after the other. A position counts
rows in the order in which sweeps turn them. Where a sweep turns nothing, its cosines are 1 and its sines 0.
"""

from __future__ import annotations

import tessera as ts

SWEEPS = 2
"""so many sweeps are found before rows are turned: each row is loaded and stored once for all of them"""


def diagonalize(d, e, lines, b, p, values, sweep, strips, first, last, down):
    """Puts what sweeps make of the diagonal `d` into `values`, when nothing is left beside it, of what was `e`.

    `sweep` is one step of an iteration for a range of rows. `strips` are arrays of vectors, of which those from `first`
    to `last` are turned, with the lines where `sweep` puts their rotations. `down`: sweeps begin at the last row.
    Programs find all rotations for themselves; the first one stores the values.
    """
    n = d.shape[1]
    for k in ts.tile.range_k(0, 2):  # `shift_of` reads whole vectors
        for i in ts.tile.range_k(0, lines.shape[3], 64):
            lines[b, p, k, i : i + 64] = ts.tile.zeros((64,), d.dtype)
    for i in ts.tile.range_k(0, n):
        lines[b, p, 0, i] = d[b, i]
        lines[b, p, 1, i] = e[b, i]
    low, rounds = 0, 0
    while (low < n - 1) & (rounds < 30 * n):
        begun, ended, found = low, low, 0
        for k in ts.tile.range_k(2, lines.shape[2], 2):
            for i in ts.tile.range_k(0, lines.shape[3], 64):
                lines[b, p, k, i : i + 64] = ts.tile.full((64,), 1.0, d.dtype)
                lines[b, p, k + 1, i : i + 64] = ts.tile.zeros((64,), d.dtype)
        while (found < SWEEPS) & (low < n - 1) & (rounds < 30 * n):
            high = coupled(lines, b, p, low, n)
            rounds += 1
            if high == low:
                low += 1
            else:
                sweep(lines, b, p, low, high, 2 + 2 * found)
                found += 1
                ended = max(ended, high)
        for z, place in strips:
            for s in ts.tile.range_k(first, last):
                if down:
                    turn(z, lines, b, p, s, n - 1 - ended, n - 1 - begun, place, down)
                else:
                    turn(z, lines, b, p, s, begun, ended, place, down)
    for i in ts.tile.range_k(0, n):
        if p == 0:
            values[b, i] = lines[b, p, 0, i]
    for k in ts.tile.range_k(0, lines.shape[2]):
        for i in ts.tile.range_k(0, lines.shape[3], 64):
            lines[b, p, k, i : i + 64] = ts.tile.zeros((64,), d.dtype)


def coupled(lines, b, p, low, n):
    """The last row of the part that begins at row `low` and has no 0 beside its diagonal. What rounding of its
    neighbours on the diagonal hides counts as 0, and what is so small that its square is none."""
    high = low
    while high < n - 1:
        near = ts.tile.abs(lines[b, p, 0, high]) + ts.tile.abs(lines[b, p, 0, high + 1])
        if ts.tile.abs(lines[b, p, 1, high]) <= ts.tile.maximum(unit(lines) * near, tiny(lines)):
            break
        high += 1
    return high


def keep(lines, b, p, place, position, cosine, sine):
    """Puts the rotation of two rows into the lines of a sweep, if there are any."""
    if lines.shape[2] != 2:
        lines[b, p, place, position + SWEEPS] = cosine
        lines[b, p, place + 1, position + SWEEPS] = sine


def turn(z, lines, b, p, s, low, high, place, down):
    """The rows at the positions `low` to `high` of a strip, turned by all sweeps, each a row behind the one before.
    They pass through the sweeps: the first rows fill these, and nothing follows the last ones."""
    n, width = z.shape[2:]
    nothing = ts.tile.zeros((width,), z.dtype)
    carried = (nothing,) * SWEEPS
    for j in ts.tile.range_k(max(low, 0), min(low + SWEEPS, n + SWEEPS)):
        x = nothing
        if j <= high:
            x = z[b, s, row_at(min(j, n - 1), n, down), :].reshape(width)
        x, carried = passed(x, carried, lines, b, p, j, place)
    for j in ts.tile.range_k(max(low + SWEEPS, 0), min(high + 1, n)):
        x = z[b, s, row_at(j, n, down), :].reshape(width)
        x, carried = passed(x, carried, lines, b, p, j, place)
        z[b, s, row_at(j - SWEEPS, n, down), :] = x
    for j in ts.tile.range_k(max(low + SWEEPS, high + 1), min(high + 1 + SWEEPS, n + SWEEPS)):
        x, carried = passed(nothing, carried, lines, b, p, j, place)
        z[b, s, row_at(j - SWEEPS, n, down), :] = x


def passed(x, carried, lines, b, p, j, place):
    """What leaves the sweeps when row `x`, at position j, enters the first of them, and what they carry on."""
    rest = ()
    for k in range(SWEEPS):
        at = j - 1 - k + SWEEPS
        cosine, sine = lines[b, p, place + 2 * k, at], lines[b, p, place + 2 * k + 1, at]
        rest = (*rest, cosine * x - sine * carried[k])
        x = cosine * carried[k] + sine * x
    return x, rest


def row_at(position, n, down):
    return n - 1 - position if down else position


def load_strips(z, q, b, first, last, nb):
    """The columns of `q` as rows of the strips of a program."""
    width = z.shape[3]
    for s in ts.tile.range_k(first, last):
        for i in ts.tile.range_k(0, z.shape[2], nb):
            z[b, s, i : i + nb, :] = q[b, s * width : s * width + width, i : i + nb].T


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


def with_column(h, along, tau, c):
    """The triangle of a block of reflections with one more of them; `along`: its products with those before."""
    nb = h.shape[0]
    at = ts.tile.arange(nb)
    column = ts.tile.where(at == c, tau, -tau * ts.tile.row_sum(h * along[None, :]).reshape(nb))
    return ts.tile.where((at == c)[None, :], column[:, None], h)


def products(x, v, b, k, c, nb):
    """The products of the rows of `x` with row c of `v`."""
    sums = ts.tile.zeros((nb, nb), v.dtype)
    for i in ts.tile.range_k(k, v.shape[2], nb):
        sums += block(x, b, i, nb) * row(v, b, c, i, nb)[None, :]
    return ts.tile.row_sum(sums).reshape(nb)


def combined(v, of_v, w, of_w, b, i, width):
    """Sums of the rows of `v` and of `w`, a number times each, at `width` places from i on."""
    sums = ts.tile.col_sum(of_v[:, None] * block(v, b, i, width) + of_w[:, None] * block(w, b, i, width))
    return sums.reshape(width)


def block(x, b, i, count):
    """`count` columns of the rows that belong to a block of columns of matrix b."""
    return x[b, :, i : i + count].reshape((x.shape[1], count))


def row(x, b, c, i, count):
    return x[b, c, i : i + count].reshape(count)


def unit(x):
    """Half of the distance from 1 to the next number."""
    return 2.0**-53 if x.dtype == ts.f64 else 2.0**-24


def tiny(x):
    """Far below what rounding leaves of numbers around 1, and with a square that is a normal number."""
    return 1e-100 if x.dtype == ts.f64 else 1e-15
