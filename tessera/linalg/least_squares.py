"""What singular values say of a matrix: its pseudo-inverse, its rank, and the nearest solutions."""

from __future__ import annotations

import tessera as ts


def pinv(x, rtol: float | None = None):
    """The pseudo-inverse [..., N, M] of matrices [..., M, N].

    Singular values up to `rtol` times the greatest count as 0; by default max(M, N) times the dtype's epsilon.
    """
    x = _given(x)
    u, s, vt = ts.linalg.svd(x, full_matrices=False)
    inverse = ts.where(s > _limit(x, s, rtol), 1 / ts.where(s > 0, s, 1), 0)
    return ts.matrix_transpose(vt) @ (ts.expand_dims(inverse, -1) * ts.matrix_transpose(u))


def matrix_rank(x, rtol: float | None = None):
    """How many singular values of matrices [..., M, N] are above `rtol` times the greatest, as int64; by default
    max(M, N) times the dtype's epsilon."""
    x = _given(x)
    s = ts.linalg.svdvals(x)
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
