"""Singular values by Jacobi's rotations, and what is made of them.

Columns are taken in pairs that lie half of the matrix apart, so that a round rotates all pairs at once, and then change
places, so that each meets each other once in a sweep (R. P. Brent, F. T. Luk, 1985). Rotations need no
reduction to a simpler form, and keep small values as exact as the matrix has them (J. Demmel, K. Veselić, 1992).
"""

from __future__ import annotations

import math

import tessera as ts

_SWEEPS = 30
"""at most; about ten are needed"""


def svd(x, full_matrices: bool = True):
    """u, s [..., K] and v^T of x = u diag(s) v^T for x [..., M, N], with K = min(M, N) and s in descending order.

    u is [..., M, M] and v^T [..., N, N]; with `full_matrices=False` they are [..., M, K] and [..., K, N]. Signs of
    singular vectors are not defined. Derivatives need different singular values, all of them greater than 0, where they
    go through the vectors; vectors beyond K have none. Raises ValueError for what are not matrices of f32 or f64.
    """
    x = _given(x)
    if len(x.shape) < 2:
        raise ValueError(f"svd takes matrices, [..., rows, columns], not an array of {len(x.shape)} axes")
    if x.shape[-2] < x.shape[-1]:
        u, s, vt = svd(ts.matrix_transpose(x), full_matrices)
        return ts.matrix_transpose(vt), s, ts.matrix_transpose(u)
    u, s, vt = _svd(x)
    if full_matrices and x.shape[-2] > x.shape[-1]:
        u = ts.concat([u, ts.linalg.qr(u, mode="complete")[0][..., x.shape[-1] :]], -1)
    return u, s, vt


def svdvals(x):
    """The singular values of matrices [..., M, N] in descending order."""
    return svd(x, full_matrices=False)[1]


def pinv(x, rtol: float | None = None):
    """The pseudo-inverse [..., N, M] of matrices [..., M, N].

    Singular values up to `rtol` times the greatest count as 0; by default max(M, N) times the dtype's epsilon.
    """
    x = _given(x)
    u, s, vt = svd(x, full_matrices=False)
    inverse = ts.where(s > _limit(x, s, rtol), 1 / ts.where(s > 0, s, 1), 0)
    return ts.matrix_transpose(vt) @ (ts.expand_dims(inverse, -1) * ts.matrix_transpose(u))


def matrix_rank(x, rtol: float | None = None):
    """How many singular values of matrices [..., M, N] are above `rtol` times the greatest, as int64; by default
    max(M, N) times the dtype's epsilon."""
    x = _given(x)
    s = svdvals(x)
    return ts.sum(ts.astype(s > _limit(x, s, rtol), ts.int64), axis=-1)


def lstsq(a, b, rtol: float | None = None):
    """The shortest y for which |a y - b| is least, for a [..., M, N] and b [M] or [..., M, K]. `rtol` as for `pinv`."""
    return pinv(a, rtol) @ b


def _limit(x, s, rtol):
    rtol = max(x.shape[-2:]) * _epsilon(x) if rtol is None else rtol
    return rtol * ts.max(s, axis=-1, keepdims=True)


def _epsilon(x):
    return 2.0**-52 if x.dtype == ts.f64 else 2.0**-23


def _given(x):
    return x if hasattr(x, "shape") else ts.asarray(x)


def _demand(x, name):
    if x.dtype != ts.f32 and x.dtype != ts.f64:
        raise ValueError(f"{name} takes matrices of f32 or f64, not of {x.dtype}; convert them, x.to(ts.f32)")
    if 0 in x.shape:
        raise ValueError(f"{name} takes matrices with elements, not {list(x.shape)}")


@ts.function
def _svd(x):
    _demand(x, "svd")
    n = x.shape[-1]
    size, a = _scaled(x)
    a = _even(a)
    v = ts.broadcast_to(ts.eye(a.shape[-1], dtype=x.dtype), (*a.shape[:-2], a.shape[-1], a.shape[-1]))
    sweep, worst = 0, ts.full((), math.inf, x.dtype)
    while (sweep < _SWEEPS) & (worst > _epsilon(x)) & ts.all(ts.isfinite(size)):
        worst = ts.zeros((), x.dtype)
        for _ in ts.range(a.shape[-1] - 1):
            half = a.shape[-1] // 2
            left, right = a[..., :half], a[..., half:]
            p, q, both = ts.sum(left * left, -2), ts.sum(right * right, -2), ts.sum(left * right, -2)
            c, s = _rotation(p, q, both)
            a, v = _rotated(a, c, s, -1), _rotated(v, c, s, -1)
            apart = ts.abs(both) / ts.sqrt(ts.where((p > 0) & (q > 0), p * q, 1))
            worst = ts.maximum(worst, ts.max(apart))
        sweep = sweep + 1
    order = ts.argsort(_last(-ts.norm(a, axis=-2), v, n, math.inf), axis=-1)[..., :n]
    v = ts.take_along_axis(v, ts.expand_dims(order, -2), -1)[..., :n, :]
    u, r = ts.linalg.qr(ts.take_along_axis(a, ts.expand_dims(order, -2), -1))  # columns of zeros get vectors too
    d = ts.linalg.diagonal(r)
    s = ts.where(ts.squeeze(ts.isfinite(size), -1), ts.abs(d) * ts.squeeze(size, -1), math.nan)
    return u * ts.expand_dims(ts.where(d < 0, -1.0, 1.0).to(x.dtype), -2), s, ts.matrix_transpose(v)


@_svd.vjp
def _svd_vjp(result, cotangent, x):
    """J. Townsend, "Differentiating the singular value decomposition", 2016."""
    u, s, vt = result
    of_u, of_s, of_vt = cotangent
    ut, v, of_v = ts.matrix_transpose(u), ts.matrix_transpose(vt), ts.matrix_transpose(of_vt)
    between = _apart(s * s)
    rows, columns = ts.expand_dims(s, -1), ts.expand_dims(s, -2)
    inner = between * _skew(ut @ of_u) * columns + rows * between * _skew(vt @ of_v)
    inner = inner + ts.expand_dims(of_s, -1) * ts.eye(s.shape[-1], dtype=s.dtype)
    found = u @ inner
    if u.shape[-2] != u.shape[-1]:
        found = found + (of_u - u @ (ut @ of_u)) / columns
    return found @ vt


def _skew(x):
    return x - ts.matrix_transpose(x)


def _apart(w):
    """1 / (w_j - w_i), and 0 where they are equal."""
    difference = ts.expand_dims(w, -2) - ts.expand_dims(w, -1)
    return ts.where(difference == 0, 0, 1 / ts.where(difference == 0, 1, difference))


def _scaled(x):
    """The greatest element of each matrix [..., 1, 1], and the matrices divided by it: squares are finite numbers."""
    size = ts.max(ts.abs(x), axis=(-2, -1), keepdims=True)
    size = ts.where(size == 0, 1, size)
    return size, x / size


def _even(a):
    """With a column of zeros behind an odd number of columns: no rotation touches it."""
    more = a.shape[-1] % 2
    return ts.pad(a, [(0, 0)] * (len(a.shape) - 1) + [(0, more)]) if more else a


def _last(key, v, n, most):
    """The key to sort columns by, in which one that `_even` has put there is the last."""
    return ts.where(ts.abs(v[..., n, :]) > 0.5, most, key) if v.shape[-1] > n else key


def _rotation(p, q, both):
    """Cosines and sines that make `both`, a pair's element beside the diagonal, 0 (G. Golub, C. Van Loan, 8.5.2)."""
    tau = (q - p) / (2 * ts.where(both == 0, 1, both))
    t = ts.where(tau < 0, -1.0, 1.0).to(p.dtype) / (ts.abs(tau) + ts.sqrt(1 + tau * tau))
    t = ts.where(both == 0, 0, t)
    c = 1 / ts.sqrt(1 + t * t)
    return c, t * c


def _rotated(a, c, s, axis):
    """The pairs of an axis turned, and moved to their next partners: the first one stays, all others go around."""
    c, s = ts.expand_dims(c, -3 - axis), ts.expand_dims(s, -3 - axis)
    top, bottom = ts.split(a, 2, axis)
    top, bottom = c * top - s * bottom, s * top + c * bottom
    half = top.shape[axis]
    if half == 1:
        return ts.concat([top, bottom], axis)
    kept, rest, last = ts.split(top, [1, half - 1], axis)
    first, others = ts.split(bottom, [1], axis)
    return ts.concat([kept, first, rest, others, last], axis)
