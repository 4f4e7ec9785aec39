"""Eigenvalues and singular values of many small matrices side by side, one in each lane.

The last axis is that of lanes, so that an element of all matrices of a program is one vector. Matrices are reduced and
diagonalized as larger ones are (`eigenvalues`, `singular_values`), row by row. Each lane has its own range of rows to
turn; all of them pass the rows together until the last one is done, and a lane keeps what is outside of its range.
"""

from __future__ import annotations

import tessera as ts
from tessera import Tensor
from tessera.kernels.condensed import tiny, unit
from tessera.kernels.singular_values import rotation

CLEAR = 0.7
"""as in the operators' `condensed`"""


@ts.kernel
def eigenvalues(a: Tensor["B", "N", "N", "C"], out: Tensor["B", "N", "N", "C"], lines: Tensor["B", 4, "N", "C"]):
    """The eigenvalues of symmetric matrices, unordered, in the first of `lines`. The rest, and `out`, is memory to work
    in."""
    b = ts.tile.program_id(0)
    tridiagonalize(a, out, lines, b)
    diagonalize(out, lines, b, turn_up, ())


@ts.kernel
def eigenvectors(
    a: Tensor["B", "N", "N", "C"], out: Tensor["B", "N", "N", "C"], lines: Tensor["B", 4, "N", "C"],
    z: Tensor["B", "N", "N", "C"],
):  # fmt: skip
    """The same, and the eigenvectors in the rows of `z`."""
    b = ts.tile.program_id(0)
    tridiagonalize(a, out, lines, b)
    multiply(z, out, lines, b, 1, False)
    diagonalize(out, lines, b, turn_up, (z,))


@ts.kernel
def singular_values(a: Tensor["B", "N", "N", "C"], out: Tensor["B", "N", "N", "C"], lines: Tensor["B", 4, "N", "C"]):
    """The singular values of square matrices, unordered and with signs, in the first of `lines`."""
    b = ts.tile.program_id(0)
    bidiagonalize(a, out, lines, b)
    diagonalize(out, lines, b, turn_down, ())


@ts.kernel
def singular_vectors(
    a: Tensor["B", "N", "N", "C"], out: Tensor["B", "N", "N", "C"], lines: Tensor["B", 4, "N", "C"],
    left: Tensor["B", "N", "N", "C"], right: Tensor["B", "N", "N", "C"],
):  # fmt: skip
    """The same, and the singular vectors in the rows of `left` and `right`."""
    b = ts.tile.program_id(0)
    bidiagonalize(a, out, lines, b)
    multiply(left, out, lines, b, 0, False)
    multiply(right, out, lines, b, 1, True)
    diagonalize(out, lines, b, turn_down, (right, left))


def tridiagonalize(a, out, lines, b):
    """The diagonal and what is beside it in `lines`, the reflections in the columns of `out`, their factors in the last
    of `lines`. Only the lower triangle counts."""
    n = a.shape[1]
    for i in ts.tile.range_k(0, n):
        for j in ts.tile.range_k(0, i + 1):
            out[b, i, j, :] = a[b, i, j, :]
    for c in ts.tile.range_k(0, n):
        lines[b, 0, c, :] = out[b, c, c, :]
        lines[b, 1, c, :] = ts.tile.zeros((a.shape[3],), a.dtype)
        if c < n - 1:
            beta, tau = reflection(out, b, c + 1, c, False)
            lines[b, 1, c, :] = beta
            lines[b, 3, c, :] = tau
            both = ts.tile.zeros((a.shape[3],), a.dtype)
            for i in ts.tile.range_k(c + 1, n):
                x = ts.tile.zeros((a.shape[3],), a.dtype)
                for j in ts.tile.range_k(c + 1, i):
                    x += out[b, i, j, :] * out[b, j, c, :]
                for j in ts.tile.range_k(i, n):
                    x += out[b, j, i, :] * out[b, j, c, :]
                lines[b, 2, i, :] = tau * x
                both += tau * x * out[b, i, c, :]
            for i in ts.tile.range_k(c + 1, n):
                lines[b, 2, i, :] -= 0.5 * tau * both * out[b, i, c, :]
                for j in ts.tile.range_k(c + 1, i + 1):
                    out[b, i, j, :] -= out[b, i, c, :] * lines[b, 2, j, :] + lines[b, 2, i, :] * out[b, j, c, :]


def bidiagonalize(a, out, lines, b):
    """The diagonal and what is above it in `lines`; the reflections from the left in the columns of `out`, from the
    right in its rows; their factors in the last two of `lines`."""
    n = a.shape[1]
    for i in ts.tile.range_k(0, n):
        for j in ts.tile.range_k(0, n):
            out[b, i, j, :] = a[b, i, j, :]
    for c in ts.tile.range_k(0, n):
        beta, tau = reflection(out, b, c, c, False)
        lines[b, 0, c, :] = beta
        lines[b, 1, c, :] = ts.tile.zeros((a.shape[3],), a.dtype)
        lines[b, 2, c, :] = tau
        for j in ts.tile.range_k(c + 1, n):
            along = ts.tile.zeros((a.shape[3],), a.dtype)
            for i in ts.tile.range_k(c, n):
                along += out[b, i, c, :] * out[b, i, j, :]
            along = tau * along
            for i in ts.tile.range_k(c, n):
                out[b, i, j, :] -= out[b, i, c, :] * along
        if c < n - 1:
            beta, tau = reflection(out, b, c + 1, c, True)
            lines[b, 1, c, :] = beta
            lines[b, 3, c, :] = tau
            for i in ts.tile.range_k(c + 1, n):
                along = ts.tile.zeros((a.shape[3],), a.dtype)
                for j in ts.tile.range_k(c + 1, n):
                    along += out[b, c, j, :] * out[b, i, j, :]
                along = tau * along
                for j in ts.tile.range_k(c + 1, n):
                    out[b, i, j, :] -= out[b, c, j, :] * along


def reflection(x, b, first, c, across):
    """As `condensed.reflection`, of what is from `first` on in column c, or `across` in row c."""
    n = x.shape[1]
    head = element(x, b, first, c, across)
    largest = ts.tile.zeros((x.shape[3],), x.dtype)
    for i in ts.tile.range_k(first + 1, n):
        largest = ts.tile.maximum(largest, ts.tile.abs(element(x, b, i, c, across)))
    scale = ts.tile.maximum(largest, ts.tile.abs(head))
    scale = ts.tile.where(scale == 0, 1.0, scale)
    squares = ts.tile.zeros((x.shape[3],), x.dtype)
    for i in ts.tile.range_k(first, n):
        part = element(x, b, i, c, across) / scale
        squares += part * part
    none = largest < tiny(x) * tiny(x)
    norm = scale * ts.tile.sqrt(squares)
    beta = ts.tile.where(none, head, ts.tile.where(head < 0, norm, -norm))
    start = ts.tile.where(none, 1.0, head - beta)
    for i in ts.tile.range_k(first, n):
        part = ts.tile.where(none, 0.0, element(x, b, i, c, across) / start)
        part = ts.tile.where(i == first, 1.0, part)
        if across:
            x[b, c, i, :] = part
        else:
            x[b, i, c, :] = part
    return beta, ts.tile.where(none, 0.0, (beta - head) / ts.tile.where(none, 1.0, beta))


def element(x, b, i, c, across):
    return (x[b, c, i, :] if across else x[b, i, c, :]).reshape(x.shape[3])


def multiply(z, x, lines, b, below, across):
    """The columns of the product of all reflections, as the rows of `z`. They begin `below` rows behind the
    diagonal."""
    n = z.shape[1]
    for i in ts.tile.range_k(0, n):
        for j in ts.tile.range_k(0, n):
            z[b, i, j, :] = ts.tile.full((z.shape[3],), 1.0 if i == j else 0.0, z.dtype)
    for step in ts.tile.range_k(0, n - below):
        c = n - below - 1 - step
        tau = lines[b, 2 + below, c, :].reshape(z.shape[3])
        for i in ts.tile.range_k(c + below, n):
            along = ts.tile.zeros((z.shape[3],), z.dtype)
            for j in ts.tile.range_k(c + below, n):
                along += element(x, b, j, c, across) * z[b, i, j, :]
            along = tau * along
            for j in ts.tile.range_k(c + below, n):
                z[b, i, j, :] -= element(x, b, j, c, across) * along


def diagonalize(out, lines, b, turn, vectors):
    """Makes all of `lines` but the first one 0: `turn` is a step for all lanes, each with its first range of rows that
    is not diagonal yet."""
    n, rounds, left = lines.shape[2], 0, 1
    while (left > 0) & (rounds < 30 * n):
        left = turn(lines, b, vectors)
        rounds += 1
    fix_signs(vectors, b, n)
    nothing = ts.tile.zeros((out.shape[3],), out.dtype)
    for i in ts.tile.range_k(0, n):
        for k in ts.tile.range_k(1, 4):
            lines[b, k, i, :] = nothing
        for j in ts.tile.range_k(0, n):
            out[b, i, j, :] = nothing


def fix_signs(vectors, b, n):
    """Makes the first clear element of each vector positive, those of the last array: as `condensed.signs` of the
    operators does. Vectors of other arrays turn with them."""
    for z in vectors[-1:]:
        for i in ts.tile.range_k(0, n):
            greatest = ts.tile.zeros((z.shape[3],), z.dtype)
            for j in ts.tile.range_k(0, n):
                greatest = ts.tile.maximum(greatest, ts.tile.abs(z[b, i, j, :].reshape(z.shape[3])))
            sign = ts.tile.full((z.shape[3],), 1.0, z.dtype)
            for step in ts.tile.range_k(0, n):
                x = z[b, i, n - 1 - step, :].reshape(z.shape[3])
                clear = ts.tile.abs(x) >= CLEAR * greatest
                sign = ts.tile.where(clear, ts.tile.where(x < 0, -1.0, 1.0), sign)
            for turned in vectors:
                for j in ts.tile.range_k(0, n):
                    turned[b, i, j, :] *= sign


def ranges(lines, b):
    """The first and the last row of each lane's range, and how many rows there are in the longest one."""
    n, count = lines.shape[2:]
    low = ts.tile.full((count,), n - 1, ts.int32)
    high, end = low, low
    for step in ts.tile.range_k(0, n - 1):
        i = n - 2 - step
        near = ts.tile.abs(line(lines, b, 0, i)) + ts.tile.abs(line(lines, b, 0, i + 1))
        beside = line(lines, b, 1, i)
        apart = ts.tile.abs(beside) <= ts.tile.maximum(unit(lines) * near, tiny(lines))
        lines[b, 1, i, :] = ts.tile.where(apart, 0.0, beside)
        row = ts.tile.cast(i, ts.int32)
        end = ts.tile.where(apart, row, end)
        low, high = ts.tile.where(apart, low, row), ts.tile.where(apart, high, end)
    return low, high


def line(lines, b, k, i):
    return lines[b, k, i, :].reshape(lines.shape[3])


def at_row(lines, b, k, rows):
    """The elements of a line at the row of each lane."""
    found = line(lines, b, k, 0)
    for i in ts.tile.range_k(1, lines.shape[2]):
        found = ts.tile.where(rows == ts.tile.cast(i, ts.int32), line(lines, b, k, i), found)
    return found


def turn_up(lines, b, vectors):
    """A step of QL, as `eigenvalues.sweep`. How many rows are left in the longest range."""
    n, count = lines.shape[2:]
    low, high = ranges(lines, b)
    first, beside = at_row(lines, b, 0, low), at_row(lines, b, 1, low)
    g = (at_row(lines, b, 0, low + 1) - first) / (2 * ts.tile.where(beside == 0, 1.0, beside))
    root = ts.tile.sqrt(g * g + 1)
    shift = first - beside / (g + ts.tile.where(g < 0, -root, root))
    cosine, sine = ts.tile.full((count,), 1.0, lines.dtype), ts.tile.zeros((count,), lines.dtype)
    g = at_row(lines, b, 0, high) - shift
    h = g
    start, stop = ts.tile.max(high), ts.tile.min(low)
    for step in ts.tile.range_k(max(n - 1 - start, 0), min(n - 1 - stop, n - 1)):
        i = n - 2 - step
        row = ts.tile.cast(i, ts.int32)
        on = (row >= low) & (row < high)
        own, x = line(lines, b, 0, i), line(lines, b, 1, i)
        square = g * g + x * x
        r = ts.tile.sqrt(ts.tile.where(on, square, 1.0))
        lines[b, 1, i + 1, :] = ts.tile.where(on & (row + 1 < high), sine * r, line(lines, b, 1, i + 1))
        beside = cosine * x
        cosine, sine = ts.tile.where(on, g / r, cosine), ts.tile.where(on, x / r, sine)
        g = ts.tile.where(on, cosine * (own - shift) - sine * beside, g)
        before = h
        h = ts.tile.where(on, cosine * g, h)
        lines[b, 0, i + 1, :] = ts.tile.where(on, before + (own - h), line(lines, b, 0, i + 1))
        ends = on & (row == low)
        lines[b, 0, i, :] = ts.tile.where(ends, shift + h, own)
        lines[b, 1, i, :] = ts.tile.where(ends, sine * g, x)
        for z in vectors:
            turn_rows(z, b, i + 1, i, cosine, sine, on)
    return start - stop


def turn_down(lines, b, vectors):
    """A step of QR, as `singular_values.sweep`."""
    n = lines.shape[2]
    low, high = ranges(lines, b)
    own, beside = at_row(lines, b, 0, low), at_row(lines, b, 1, low)
    shift = shift_of(lines, b, low, high)
    ratio = shift / ts.tile.where(shift == 0, 1.0, own)
    f = (ts.tile.abs(own) - shift) * (ts.tile.where(own < 0, -1.0, 1.0) + ratio)
    g = beside
    start, stop = ts.tile.min(low), ts.tile.max(high)
    for i in ts.tile.range_k(max(start, 0), min(stop, n - 1)):
        row = ts.tile.cast(i, ts.int32)
        on = (row >= low) & (row < high)
        r, c, s = rotation(f, g)
        for z in vectors[:1]:
            turn_rows(z, b, i, i + 1, c, s, on)
        if i > 0:
            lines[b, 1, i - 1, :] = ts.tile.where(on & (row > low), r, line(lines, b, 1, i - 1))
        below = line(lines, b, 0, i + 1)
        middle, over, side, under = c * own + s * beside, c * beside - s * own, s * below, c * below
        r, c, s = rotation(middle, side)
        for z in vectors[1:]:
            turn_rows(z, b, i, i + 1, c, s, on)
        lines[b, 0, i, :] = ts.tile.where(on, r, line(lines, b, 0, i))
        f = ts.tile.where(on, c * over + s * under, f)
        own = ts.tile.where(on, c * under - s * over, own)
        lines[b, 0, i + 1, :] = ts.tile.where(on, own, below)
        lines[b, 1, i, :] = ts.tile.where(on, f, line(lines, b, 1, i))
        behind = line(lines, b, 1, i + 1)
        g = ts.tile.where(on, ts.tile.where(row + 1 < high, s * behind, 0.0), g)
        beside = ts.tile.where(on, c * behind, beside)
    return stop - start


def shift_of(lines, b, low, high):
    """As `singular_values.shift_of`."""
    n = lines.shape[2]
    h, f = ts.tile.abs(at_row(lines, b, 0, high)), ts.tile.abs(at_row(lines, b, 0, high - 1))
    g = ts.tile.abs(at_row(lines, b, 1, high - 1))
    both = ts.tile.sqrt((f + h) * (f + h) + g * g) + ts.tile.sqrt((f - h) * (f - h) + g * g)
    least, most = h, h
    for i in ts.tile.range_k(0, n - 1):
        row = ts.tile.cast(i, ts.int32)
        here = (row >= low) & (row < high)
        size, beside = ts.tile.abs(line(lines, b, 0, i)), ts.tile.abs(line(lines, b, 1, i))
        least = ts.tile.where(here, ts.tile.minimum(least, size), least)
        most = ts.tile.where(here, ts.tile.maximum(most, ts.tile.maximum(size, beside)), most)
    none = least <= unit(lines) * most
    return ts.tile.where(none, 0.0, 2 * f * h / ts.tile.where(none, 1.0, both))


def turn_rows(z, b, i, j, cosine, sine, on):
    """Turns the rows i and j of vectors in the lanes that are `on`."""
    for r in ts.tile.range_k(0, z.shape[2]):
        x, y = z[b, i, r, :].reshape(z.shape[3]), z[b, j, r, :].reshape(z.shape[3])
        z[b, i, r, :] = ts.tile.where(on, cosine * x + sine * y, x)
        z[b, j, r, :] = ts.tile.where(on, cosine * y - sine * x, y)
