"""Products of vectors and matrices, powers, diagonals: as the Array API names them, over the last axes."""

from __future__ import annotations

import tessera as ts


def cross(x1, x2, axis: int = -1):
    """Cross products of vectors of three elements along `axis`."""
    return ts.cross(x1, x2, axis)


def diagonal(x, offset: int = 0):
    """The elements of diagonal number `offset` of each matrix of x [..., M, N]."""
    return ts.diagonal(x, offset, -2, -1)


def matmul(x1, x2):
    """x1 @ x2."""
    return ts.matmul(x1, x2)


def matrix_power(x, n: int):
    """The square matrices x [..., N, N] multiplied n times; a negative n inverts. By squares: 2 log2(n) products."""
    if len(x.shape) < 2:
        raise ValueError(f"matrix_power takes matrices, [..., rows, columns], not an array of {len(x.shape)} axes")
    if n < 0:
        return matrix_power(ts.linalg.inv(x), -n)
    if n == 0:
        return ts.broadcast_to(ts.eye(x.shape[-1], dtype=x.dtype), x.shape)
    if n == 1:
        return x
    half = matrix_power(x, n // 2)
    return half @ half @ x if n % 2 else half @ half


def matrix_transpose(x):
    """x [..., M, N] as [..., N, M]."""
    return ts.matrix_transpose(x)


def outer(x1, x2):
    """All products of an element of one vector with one of the other."""
    return ts.outer(x1, x2)


def tensordot(x1, x2, axes=2):
    """Sums of products over the last `axes` axes of x1 and the first ones of x2, or over two lists of axes."""
    return ts.tensordot(x1, x2, axes)


def trace(x, offset: int = 0):
    """The sum of diagonal number `offset` of each matrix of x [..., M, N]."""
    return ts.sum(diagonal(x, offset), axis=-1)


def vecdot(x1, x2, axis: int = -1):
    """Inner products along `axis`; complex elements of x1 are conjugated."""
    return ts.vecdot(x1, x2, axis)
