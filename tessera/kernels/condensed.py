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
    to `last` are turned, with the lines where `sweep` puts their rotations, counted from the first ones of a pair.
    `down`: sweeps begin at the last row. Programs find all rotations for themselves; the first one stores the values.
    """
    n = d.shape[1]
    begin(d, e, lines, b, p)
    low, rounds = 0, 0
    while (low < n - 1) & (rounds < 30 * n):
        low, rounds, begun, ended = find(lines, b, p, low, rounds, 2, lines.shape[2], sweep)
        for z, place in strips:
            for s in ts.tile.range_k(first, last):
                turn(z, lines, b, p, s, begun, ended, 2 + place, down)
    for i in ts.tile.range_k(0, n):
        if p == 0:
            values[b, i] = lines[b, p, 0, i]
    for k in ts.tile.range_k(0, lines.shape[2]):
        clear(lines, b, p, k, 0.0)


def diagonalize_step(d, e, lines, ranges, step, steps, b, p, values, sweep, strips, down):
    """A step of the same by programs that share a matrix, with the same rotations in the same order: the first program
    finds those of one half of the lines, while each of the others turns a strip by those of the other half, which the
    step before found. The last step but one finds nothing, and the last one goes on alone with what few matrices then
    leave to find.

    `ranges` [B, pairs + 1, 2]: between which rows each pair of sweeps turns, then where the next one begins, and how
    many rounds there were.
    """
    pairs = ranges.shape[1] - 1
    of_pair, odd = (lines.shape[2] - 2) // pairs, step % 2 == 1
    if p == 0:
        if step == 0:
            begin(d, e, lines, b, 0)
            ranges[b, pairs, :] = ts.tile.zeros((2,), ranges.dtype)
        if step == steps - 1:
            finish(lines, ranges, b, values, sweep, strips, of_pair, down)
        else:
            find_half(lines, ranges, b, (odd, step < steps - 2), sweep, of_pair)
    elif (step > 0) & (step < steps - 1):
        for k in ts.tile.range_k(0, pairs):
            begun, ended = 0, 0
            if (k >= pairs // 2) != odd:
                begun, ended = ranges[b, k, 0], ranges[b, k, 1]
            if ended > begun:
                for side, (z, place) in enumerate(strips):
                    s = p - 1 - side * z.shape[1]
                    if (s >= 0) & (s < z.shape[1]):
                        turn(z, lines, b, 0, s, begun, ended, 2 + of_pair * k + place, down)


def find_half(lines, ranges, b, now, sweep, of_pair):
    """Rotations in one half of the lines, as long as there are any. `now`: of the second half; whether to find any."""
    n, pairs = lines.shape[3] - 2 * SWEEPS, ranges.shape[1] - 1
    low, rounds = ranges[b, pairs, 0], ranges[b, pairs, 1]
    for k in ts.tile.range_k(0, pairs):
        if (k >= pairs // 2) == now[0]:
            begun, ended = low, low
            if (low < n - 1) & (rounds < 30 * n) & now[1]:
                place = 2 + of_pair * k
                low, rounds, begun, ended = find(lines, b, 0, low, rounds, place, place + of_pair, sweep)
            ranges[b, k, 0], ranges[b, k, 1] = begun, ended
    ranges[b, pairs, 0], ranges[b, pairs, 1] = low, rounds


def finish(lines, ranges, b, values, sweep, strips, of_pair, down):
    """Finds what rotations are left, and turns all strips by them; then stores the values and clears the memory."""
    n, pairs = lines.shape[3] - 2 * SWEEPS, ranges.shape[1] - 1
    low, rounds = ranges[b, pairs, 0], ranges[b, pairs, 1]
    while (low < n - 1) & (rounds < 30 * n):
        low, rounds, begun, ended = find(lines, b, 0, low, rounds, 2, 2 + of_pair, sweep)
        for z, place in strips:
            for s in ts.tile.range_k(0, z.shape[1]):
                turn(z, lines, b, 0, s, begun, ended, 2 + place, down)
    for i in ts.tile.range_k(0, n):
        values[b, i] = lines[b, 0, 0, i]
    for k in ts.tile.range_k(0, lines.shape[2]):
        clear(lines, b, 0, k, 0.0)
    for k in ts.tile.range_k(0, pairs + 1):
        ranges[b, k, :] = ts.tile.zeros((2,), ranges.dtype)


def begin(d, e, lines, b, p):
    """Puts the diagonal and what is beside it into the first two lines."""
    for k in ts.tile.range_k(0, 2):  # `shift_of` reads whole vectors
        clear(lines, b, p, k, 0.0)
    for i in ts.tile.range_k(0, d.shape[1]):
        lines[b, p, 0, i] = d[b, i]
        lines[b, p, 1, i] = e[b, i]


def clear(lines, b, p, k, value):
    for i in ts.tile.range_k(0, lines.shape[3], 64):
        lines[b, p, k, i : i + 64] = ts.tile.full((64,), value, lines.dtype)


def find(lines, b, p, low, rounds, place, stop, sweep):
    """Puts the rotations of up to `SWEEPS` sweeps into the lines from `place` to `stop`. Where the next sweep begins,
    the number of rounds until then, and the first and the last row that these sweeps turn."""
    n = lines.shape[3] - 2 * SWEEPS
    begun, ended, found = low, low, 0
    for k in ts.tile.range_k(place, stop, 2):
        clear(lines, b, p, k, 1.0)
        clear(lines, b, p, k + 1, 0.0)
    while (found < SWEEPS) & (low < n - 1) & (rounds < 30 * n):
        high = coupled(lines, b, p, low, n)
        rounds += 1
        if high == low:
            low += 1
        else:
            sweep(lines, b, p, low, high, place + 2 * found)
            found += 1
            ended = max(ended, high)
    return low, rounds, begun, ended


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
    """The rows `low` to `high` of a strip, turned by all sweeps, each a row behind the one before. They pass through
    the sweeps: the first rows fill these, and nothing follows the last ones."""
    n, width = z.shape[2:]
    low, high = (n - 1 - high, n - 1 - low) if down else (low, high)
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
