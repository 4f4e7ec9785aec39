"""The functions of `ts.linalg`, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from tessera.linalg.products import cross as cross
from tessera.linalg.products import diagonal as diagonal
from tessera.linalg.least_squares import lstsq as lstsq
from tessera.linalg.products import matmul as matmul
from tessera.linalg.norms import matrix_norm as matrix_norm
from tessera.linalg.products import matrix_power as matrix_power
from tessera.linalg.least_squares import matrix_rank as matrix_rank
from tessera.linalg.products import matrix_transpose as matrix_transpose
from tessera.linalg.norms import norm as norm
from tessera.linalg.products import outer as outer
from tessera.linalg.least_squares import pinv as pinv
from tessera.linalg.products import tensordot as tensordot
from tessera.linalg.products import trace as trace
from tessera.linalg.products import vecdot as vecdot
from tessera.linalg.norms import vector_norm as vector_norm

Array: TypeAlias = Any
"""a Tensor, a number, or an array of NumPy, CuPy, PyTorch or JAX"""
A = TypeVar("A")
"""results belong to the library of the first array"""


def cholesky(x: A, upper: bool = False) -> A:
    """The lower triangular L of symmetric positive definite matrices x = L L^T; with `upper` U, for x = U^T U.

    x [..., N, N] is taken to be symmetric: only the lower triangle is read, with `upper` only the upper one, and the
    gradient is symmetric. Compiled, a matrix that is not positive definite gives NaN from the first column on that
    shows it; called outside of functions it raises LaunchError TS501.
    """

def det(x: A) -> A:
    """The determinants of square matrices x [..., N, N], by L U with partial pivoting; 1 for N = 0.

    The gradient, det(x) x^-T, is not finite where a matrix is singular.
    """

def eigh(x: A) -> tuple[A, ...]:
    """Eigenvalues [..., N], ascending, and eigenvectors in columns [..., N, N] of symmetric matrices x [..., N, N].

    The lower triangle counts, as in NumPy. Of each eigenvector's elements that are at least 0.7 times as large as its
    greatest, the first is positive. Derivatives need different eigenvalues where they go through the eigenvectors.
    Where a matrix has NaN or an infinity, its results are NaN.
    """

def eigvalsh(x: A) -> A:
    """The eigenvalues [..., N] of symmetric matrices x [..., N, N] in ascending order; the lower triangle counts."""

def inv(x: A) -> A:
    """The inverses of square matrices x [..., N, N], by L U with partial pivoting.

    Compiled, a singular matrix gives infinities and NaN; outside of functions it raises LaunchError TS501. To multiply
    by an inverse, `solve` is quicker and more accurate.
    """

def qr(x: A, mode: str = 'reduced') -> tuple[A, ...]:
    """The factors of x = q r for x [..., M, N]: q has orthonormal columns, r is upper triangular.

    `mode` "reduced": q [..., M, K] and r [..., K, N], with K = min(M, N); "complete": q [..., M, M], r [..., M, N]. By
    Householder's reflections, with the signs of LAPACK, NumPy and JAX: the diagonal of r can be negative. Derivatives
    need the first K columns to be independent, and "complete" has none for M > N.
    """

def slogdet(x: A) -> tuple[A, ...]:
    """The sign of the determinants of square matrices x [..., N, N], and the logarithm of their absolute values.

    The determinant is sign * exp(logarithm), and may be too large or too small for a float. Of a singular matrix they
    are 0 and -inf, and the gradient is not finite.
    """

def solve(a: A, b: Array) -> A:
    """The y of a y = b for square matrices a [..., N, N], and b [N] or [..., N, K]; batches broadcast.

    By L U with partial pivoting. Compiled, a singular matrix gives infinities and NaN; outside of functions it raises
    LaunchError TS501.
    """

def solve_triangular(a: A, b: Array, lower: bool = False, trans: int | str = 0, unit_diagonal: bool = False) -> A:
    """The y of a y = b for triangular matrices a [..., N, N], and b [N] or [..., N, K]; batches broadcast.

    `lower`: the lower triangle is read, else the upper one. `trans` 1 or "T" (also 2 or "C"): of a^T y = b.
    `unit_diagonal`: the diagonal counts as 1, and is not read. These are SciPy's and JAX's parameters. A 0 on the
    diagonal gives infinities and NaN; outside of functions it raises LaunchError TS501.
    """

def svd(x: A, full_matrices: bool = True) -> tuple[A, ...]:
    """u, s [..., K] and v^T of x = u diag(s) v^T for x [..., M, N], with K = min(M, N) and s in descending order.

    u is [..., M, M] and v^T [..., N, N]; with `full_matrices=False` they are [..., M, K] and [..., K, N]. Signs of
    singular vectors are not defined. Derivatives need different singular values, all of them greater than 0, where they
    go through the vectors; vectors beyond K have none. Where a matrix has NaN or an infinity, its results are NaN.
    """

def svdvals(x: A) -> A:
    """The singular values [..., K] of matrices x [..., M, N] in descending order, with K = min(M, N)."""
