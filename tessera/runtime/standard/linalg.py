"""Linear algebra: LAPACK through NumPy on the CPU, cuSOLVER through CuPy on a GPU.

Products (`matmul`, `vecdot`, `tensordot`, `outer`, `matrix_transpose`) are Tessera's operators; the rest is not part of
`@ts.function` graphs. Elements are f32, f64 or complex.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from tessera.runtime.eager.operators import function
from tessera.runtime.eager.tensor import Tensor
from tessera.runtime.standard.host import library, public, run, tensor
from tessera.runtime.standard.shapes import sum as total

matmul, matrix_transpose, tensordot = function("matmul"), function("matrix_transpose"), function("tensordot")
vecdot = function("vecdot")
_OWN = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matrix_norm", "matrix_power", "matrix_rank",
    "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "trace", "vector_norm",
]  # fmt: skip
__all__ = [*_OWN, "matmul", "matrix_transpose", "tensordot", "vecdot"]


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and their vectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """An orthonormal matrix and an upper triangular one."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The determinant's sign and the logarithm of its size."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left vectors as columns, singular values in descending order, right vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _run(name: str, *args: Any, **kwargs: Any) -> Any:
    return run(getattr(library(*args).linalg, name), *args, **kwargs)


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of symmetric positive definite matrices: x = L L^H, or U^H U."""
    return _run("cholesky", tensor(x), upper=upper)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of three elements along `axis`."""
    return _run("cross", tensor(x1, "x1"), tensor(x2, "x2"), axis=axis)


def det(x: Any, /) -> Tensor:
    """Determinants of square matrices."""
    return _run("det", tensor(x))


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """The elements of diagonal number `offset` of each matrix."""
    return _run("diagonal", tensor(x), offset=offset)


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices."""
    return EighResult(*_run("eigh", tensor(x)))


def eigvalsh(x: Any, /) -> Tensor:
    """Eigenvalues of symmetric or Hermitian matrices, ascending."""
    return _run("eigvalsh", tensor(x))


def inv(x: Any, /) -> Tensor:
    """Inverses. Raises LaunchError TS501 where a matrix is singular."""
    return _run("inv", tensor(x))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro") -> Tensor:
    """Norms of matrices: Frobenius', nuclear, or of order 1, 2, inf and their negatives."""
    return _run("matrix_norm", tensor(x), keepdims=keepdims, ord=ord)


def matrix_power(x: Any, n: int, /) -> Tensor:
    """Square matrices to an integer power; a negative one inverts."""
    return _run("matrix_power", tensor(x), n)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are greater than `rtol` times the largest."""
    return _run("matrix_rank", tensor(x), rtol=rtol)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """All products of an element of one vector with one of the other."""
    a, b = tensor(x1, "x1"), tensor(x2, "x2")
    if a.ndim != 1 or b.ndim != 1:
        return _run("outer", a, b)  # which says what is wrong
    made = function("outer")
    assert made is not None
    return made(a, b)


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverses; singular values up to `rtol` times the largest count as 0."""
    return _run("pinv", tensor(x), rtol=rtol)


def qr(x: Any, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """The factors of x = Q R."""
    return QRResult(*_run("qr", tensor(x), mode=mode))


def slogdet(x: Any, /) -> SlogdetResult:
    """Determinants as sign and logarithm, without overflow."""
    return SlogdetResult(*_run("slogdet", tensor(x)))


def solve(x1: Any, x2: Any, /) -> Tensor:
    """The y for which x1 @ y is x2: a vector where x2 has one axis, else matrices."""
    return _run("solve", tensor(x1, "x1"), tensor(x2, "x2"))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """The factors of x = U diag(S) Vh."""
    return SVDResult(*_run("svd", tensor(x), full_matrices=full_matrices))


def svdvals(x: Any, /) -> Tensor:
    """Singular values, descending."""
    return _run("svdvals", tensor(x))


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of diagonal number `offset` of each matrix."""
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The norm of order `ord` of the elements along `axis`."""
    return _run("vector_norm", tensor(x), axis=axis, keepdims=keepdims, ord=ord)


public(globals(), _OWN)
