"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import Any

import tessera as ts


def vector_norm(x, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2):
    """The norm of order `ord` of the elements along `axis`, an axis or several (None: all): sum(|x|^ord)^(1 / ord), the
    greatest or least |x| for inf and -inf, and the number of elements that are not 0 for 0."""
    if ord == 2:
        return ts.norm(x, axis=axis, keepdims=keepdims)
    size = ts.abs(x)
    if ord == math.inf:
        return ts.max(size, axis=axis, keepdims=keepdims)
    if ord == -math.inf:
        return ts.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return ts.sum(ts.astype(size != 0, size.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return ts.sum(size, axis=axis, keepdims=keepdims)
    return ts.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def norm(x, ord: Any = None, axis: Any = None, keepdims: bool = False):
    """NumPy's: `vector_norm` along one axis, `matrix_norm` over two axes. Without `axis` the norm of all elements, and
    with `ord` that of a vector or matrix x."""
    if axis is None and ord is not None:
        if x.ndim > 2:
            raise ValueError(f"norm with an order needs an axis, or two, for {x.ndim} axes")
        axis = tuple(range(x.ndim))
    if isinstance(axis, (tuple, list)) and len(axis) == 2:
        rows, columns = (a % x.ndim for a in axis)
        found = matrix_norm(ts.moveaxis(x, (rows, columns), (-2, -1)), True, "fro" if ord is None else ord)
        return ts.moveaxis(found, (-2, -1), (rows, columns)) if keepdims else ts.squeeze(found, (-2, -1))
    return vector_norm(x, axis, keepdims, 2 if ord is None else ord)


def matrix_norm(x, keepdims: bool = False, ord="fro"):
    """Norms of the matrices x [..., M, N]: Frobenius' ("fro"), the greatest sum of |x| of a column (1) or a row (inf),
    and the least one (-1, -inf); the greatest (2), the least (-2) and the sum ("nuc") of the singular values."""
    if ord == "fro":
        return ts.norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        s = ts.linalg.svdvals(x)
        found = ts.max(s, axis=-1) if ord == 2 else ts.min(s, axis=-1) if ord == -2 else ts.sum(s, axis=-1)
        return ts.expand_dims(found, (-2, -1)) if keepdims else found
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(f"matrix_norm has the orders 'fro', 'nuc', 1, -1, 2, -2, inf and -inf, not {ord!r}")
    along = -2 if abs(ord) == 1 else -1
    sums = ts.sum(ts.abs(x), axis=along, keepdims=True)
    found = ts.max(sums, axis=(-2, -1), keepdims=True) if ord > 0 else ts.min(sums, axis=(-2, -1), keepdims=True)
    return found if keepdims else ts.squeeze(found, (-2, -1))
