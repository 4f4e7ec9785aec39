"""Grids, stacks, diagonals and products of vectors."""

from __future__ import annotations

import tessera as ts


def meshgrid(*xs, indexing: str = "xy"):
    """Coordinates of a grid: for vectors of sizes a, b, c, tensors [a, b, c] that repeat one of them each.

    With `indexing="xy"`, NumPy's default, the first two axes change places: [b, a, c].
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    shape = tuple(x.shape[0] for x in xs)
    out = []
    for i, x in enumerate(xs):
        own = tuple(x.shape[0] if j == i else 1 for j in range(len(xs)))
        grid = ts.broadcast_to(ts.reshape(x, own), shape)
        out.append(ts.swapaxes(grid, 0, 1) if indexing == "xy" and len(xs) > 1 else grid)
    return tuple(out)


def _column(x):
    return ts.reshape(x, (x.shape[0], 1)) if len(x.shape) == 1 else x


def _row(x):
    return ts.reshape(x, (1, x.shape[0])) if len(x.shape) == 1 else x


def vstack(xs):
    """Tensors below each other, along axis 0; vectors are rows."""
    return ts.concat([_row(x) for x in xs], axis=0)


def hstack(xs):
    """Tensors beside each other: along axis 1, vectors along axis 0."""
    return ts.concat(list(xs), axis=0 if len(xs[0].shape) == 1 else 1)


def column_stack(xs):
    """Vectors as the columns of a matrix; matrices beside each other."""
    return ts.concat([_column(x) for x in xs], axis=1)


def dstack(xs):
    """Tensors behind each other, along axis 2; vectors [n] count as [1, n, 1] and matrices [m, n] as [m, n, 1]."""
    out = []
    for x in xs:
        x = _row(x)
        out.append(ts.reshape(x, (*x.shape, 1)) if len(x.shape) == 2 else x)
    return ts.concat(out, axis=2)


def diagonal(x, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The elements [i, i + offset] of the axes `axis1` and `axis2`, as a new last axis."""
    x = ts.moveaxis(x, (axis1, axis2), (-2, -1))
    x = x[..., max(-offset, 0) :, max(offset, 0) :]
    *lead, rows, columns = x.shape
    n = min(rows, columns)
    # In a square that is laid out as one line, every (n + 1)th element is on the diagonal.
    return ts.take(ts.reshape(x[..., :n, :n], (*lead, n * n)), ts.arange(n) * (n + 1), axis=-1)


def diag(x, k: int = 0):
    """A vector as diagonal number `k` of a matrix of zeros; of a matrix, its diagonal number `k`."""
    if len(x.shape) != 1:
        return diagonal(x, k)
    n = x.shape[0] + abs(k)
    rows, columns = ts.arange(n)[:, None], ts.arange(n)[None, :]
    padded = ts.pad(x, ((0, abs(k)),))
    return ts.where(columns - rows == k, padded[:, None] if k >= 0 else padded[None, :], ts.zeros_like(padded[0]))


def trace(x, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The sum of the diagonal of the axes `axis1` and `axis2`."""
    return ts.sum(diagonal(x, offset, axis1, axis2), axis=-1)


def rot90(x, k: int = 1, axes=(0, 1)):
    """`x` turned `k` times by a quarter, from the first of `axes` to the second."""
    first, second = axes
    if k % 4 == 0:
        return x
    if k % 4 == 2:
        return ts.flip(x, (first, second))
    turned = ts.swapaxes(x, first, second)
    return ts.flip(turned, first if k % 4 == 1 else second)


def flipud(x):
    """`x` in reverse order along axis 0."""
    return ts.flip(x, 0)


def fliplr(x):
    """`x` in reverse order along axis 1."""
    return ts.flip(x, 1)


def narrow(x, axis: int, start: int, length: int):
    """`length` elements of `x` along `axis`, from `start` on, which counts from the end where it is negative."""
    moved = ts.moveaxis(x, axis, 0)
    start = start + moved.shape[0] if start < 0 else start
    if start < 0 or length < 0 or start + length > moved.shape[0]:
        raise ValueError(f"{length} elements from {start} on do not lie in an axis of {moved.shape[0]}")
    return ts.moveaxis(moved[start : start + length], 0, axis)


def index_select(x, axis: int, index):
    """The slices of `x` along `axis` at the positions `index`."""
    return ts.take(x, index, axis=axis)


def unflatten(x, axis: int, sizes: tuple[int, ...]):
    """`x` with `axis` split into axes of these sizes, of which one may be -1."""
    axis = axis % len(x.shape)
    if -1 in tuple(sizes):
        known = 1
        for size in sizes:
            known = known * size if size != -1 else known
        sizes = tuple(x.shape[axis] // known if size == -1 else size for size in sizes)
    return ts.reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


def inner(x, y):
    """Sums of products along the last axes of both."""
    return ts.tensordot(x, y, ((len(x.shape) - 1,), (len(y.shape) - 1,)))


def vdot(x, y):
    """The sum of the products of all elements; those of `x` are conjugated."""
    return ts.vecdot(ts.reshape(x, (-1,)), ts.reshape(y, (-1,)))


def kron(x, y):
    """Kronecker's product: `y` times each element of `x`, as blocks. Both have as many axes."""
    if len(x.shape) != len(y.shape):
        raise ValueError(f"kron needs as many axes: {len(x.shape)} and {len(y.shape)}")
    left = tuple(n for size in x.shape for n in (size, 1))
    right = tuple(n for size in y.shape for n in (1, size))
    blocks = ts.reshape(x, left) * ts.reshape(y, right)
    return ts.reshape(blocks, tuple(m * n for m, n in zip(x.shape, y.shape, strict=True)))


def cross(x, y, axis: int = -1):
    """Vector products in space: along `axis` both have 3 elements."""
    x, y = ts.moveaxis(x, axis, 0), ts.moveaxis(y, axis, 0)
    if x.shape[0] != 3 or y.shape[0] != 3:
        raise ValueError(f"cross needs 3 elements along the axis, not {x.shape[0]} and {y.shape[0]}")
    out = [x[(i + 1) % 3] * y[(i + 2) % 3] - x[(i + 2) % 3] * y[(i + 1) % 3] for i in range(3)]
    return ts.stack(out, axis=axis)


def select(conditions, choices, default=0.0):
    """At each place the choice of the first condition that holds, or `default`, as NumPy's."""
    if len(conditions) != len(choices):
        raise ValueError(f"select needs a choice for each condition: {len(conditions)} and {len(choices)}")
    found = default
    for k in range(len(conditions) - 1, -1, -1):
        found = ts.where(conditions[k], choices[k], found)
    return found


def block_diag(*xs):
    """A matrix with these matrices along its diagonal, and zeros elsewhere. Vectors count as one row."""
    blocks, before, columns = [_row(x) for x in xs], 0, sum(_row(x).shape[1] for x in xs)
    rows = []
    for x in blocks:
        rows.append(ts.pad(x, ((0, 0), (before, columns - before - x.shape[1]))))
        before = before + x.shape[1]
    return ts.concat(rows, axis=0)


def diag_embed(x):
    """The last axis [n] as the diagonals of matrices [n, n]."""
    n = x.shape[-1]
    return ts.where(ts.eye(n) > 0, x[..., None], ts.zeros_like(x)[..., None])


_PARTS = 4096
"""as many as `ts.split` makes"""


def array_split(x, sections: int, axis: int = 0):
    """`x` in `sections` parts along `axis`, of which the first ones have one element more if it does not divide."""
    n = x.shape[axis]
    if not 1 <= sections <= _PARTS:
        raise ValueError(f"array_split makes 1 to {_PARTS} parts, not {sections}")
    sizes = [n // sections + (1 if k < n % sections else 0) for k in range(sections)]
    return ts.split(x, [sum(sizes[:k]) for k in range(1, sections)], axis=axis)


def atleast_1d(x):
    """`x`, a number as a vector with one element."""
    return ts.reshape(x, (1,)) if len(x.shape) == 0 else x


def atleast_2d(x):
    """`x`, a number or a vector as a matrix with one row."""
    return _row(atleast_1d(x))


def atleast_3d(x):
    """`x` with three axes at least: vectors [n] as [1, n, 1] and matrices [m, n] as [m, n, 1]."""
    x = atleast_2d(x)
    return ts.reshape(x, (*x.shape, 1)) if len(x.shape) == 2 else x
