"""Eigenvalues and singular values of small matrices [B, N, N, LANES]: one matrix in each lane of a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, TileKernel, tensor
from tessera.compiler.graph.operators.linalg.condensed import (
    bidiagonal,
    eigen_rows,
    numpy_signs,
    singular_rows,
    tridiagonal,
)
from tessera.compiler.graph.operators.linalg.lanes import SMALL
from tessera.compiler.graph.operators.linalg.matrices import each
from tessera.compiler.graph.operators.linalg.orthogonal import reflected
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

LANES = 16
"""matrices of a program: two vectors of f64 and one of f32, where these are widest"""


def is_small(x: TensorType) -> bool:
    """Whether a lane takes such a matrix, alone or in a batch, so that its bits do not depend on that."""
    n = x.shape[-1]
    return isinstance(n, int) and 0 < n <= SMALL


def side_by_side(g: GraphBuilder, name: str, x: Value) -> list[Value]:
    """The values [..., N] and the rows of vectors [..., N, N] that an operator of this file finds for x [..., N, N]."""
    *batch, n, _ = tensor(x).shape
    count = dims.prod(batch)
    groups = dims.ceildiv(count, LANES)
    x = g.reshape(x, (count, n, n))
    if groups * LANES != count:
        x = g.pad(x, [(0, groups * LANES - count), (0, 0), (0, 0)])
    _, lines, *vectors = getattr(g, name)(g.moveaxis(g.reshape(x, (groups, LANES, n, n)), 1, -1))
    values = g.slice(lines, (0, 0, 0, 0), (groups, 1, n, LANES))
    found = [g.reshape(values, (groups, n, LANES)), *vectors]
    whole = (g.reshape(g.moveaxis(v, -1, 1), (groups * LANES, *tensor(v).shape[1:-1])) for v in found)
    some = (g.slice(v, (0,) * tensor(v).rank, (count, *tensor(v).shape[1:])) for v in whole)
    return [g.reshape(v, (*batch, *tensor(v).shape[1:])) for v in some]


class _SideBySide(Operator, abstract=True):
    """Of matrices a [..., N, N, lanes]: memory where the kernel works; lines [..., 4, N, lanes], of which the first has
    the values, unordered; and the vectors in rows."""

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"
    multiple = True
    differentiable = False
    sides = 0
    """of how many sides there are vectors"""
    runs: ClassVar[tuple[str, str]]
    """the kernel, and what it finds"""

    def infer(self, t: Infer, a: TensorType) -> tuple[TensorType, ...]:
        *batch, n, _, lanes = a.shape
        return a, a.with_shape((*batch, 4, n, lanes)), *([a] * self.sides)

    def reference(self, a: Any) -> Any:
        n, lanes = a.shape[-2:]
        shapes = [(n,), *([(n, n)] * self.sides)]
        found = each(self.of_one, shapes, np.moveaxis(a, -1, -3))
        values, *vectors = found if self.sides else (found,)
        lines = np.zeros((*a.shape[:-3], 4, n, lanes), a.dtype)
        lines[..., 0, :, :] = np.moveaxis(values, -1, -2)
        return np.zeros_like(a), lines, *(np.moveaxis(v, -3, -1) for v in vectors)

    def of_one(self, a: Any) -> Any:
        """NumPy's way: the values, and the rows of vectors, of one matrix."""
        raise NotImplementedError

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        return TileKernel(f"small_diagonals.{self.runs[0]}", self.runs[1]) if operands[0].rank == 4 else None

    def decompose(self, g: GraphBuilder, a: Value) -> Any:
        *batch, n, _, lanes = tensor(a).shape
        if len(batch) == 1:
            return None
        found = getattr(g, self.name)(g.reshape(a, (dims.prod(batch), n, n, lanes)))
        return tuple(g.reshape(v, (*batch, *tensor(v).shape[1:])) for v in found)

    def partition(self, cut: Cut, a: TensorType) -> None:
        at = cut.axis(a)
        if at is not None and at >= a.rank - 3:
            cut.whole(f"it needs whole matrices, which run along {cut.dim}")

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * operands[0].shape[-2] * (2 + 9 * self.sides)


class EigvalshLanes(_SideBySide):
    """Eigenvalues of symmetric matrices, of which the lower triangle counts."""

    runs = "eigenvalues", "eigenvalues of {0}"

    def of_one(self, a: Any) -> Any:
        _, _, d, e, *_ = tridiagonal(np.tril(a) + np.tril(a, -1).T)
        return eigen_rows(d, e, np.zeros((len(a), 0), a.dtype))[0]


class EighLanes(_SideBySide):
    """Eigenvalues and eigenvectors, with the signs of `eigh`, of symmetric matrices, of which the lower triangle
    counts."""

    sides = 1
    runs = "eigenvectors", "eigenvectors of {0}"

    def of_one(self, a: Any) -> Any:
        packed, tri, d, e, *_ = tridiagonal(np.tril(a) + np.tril(a, -1).T)
        w, rows = eigen_rows(d, e, reflected(packed, tri, np.eye(len(a), dtype=a.dtype), False, 1).T)
        return w, rows * numpy_signs(rows)


class SvdvalsLanes(_SideBySide):
    """Singular values, with signs."""

    runs = "singular_values", "singular values of {0}"

    def of_one(self, a: Any) -> Any:
        _, _, _, _, d, e, *_ = bidiagonal(a)
        none = np.zeros((len(a), 0), a.dtype)
        return singular_rows(d, e, none, none)[0]


class SvdLanes(_SideBySide):
    """Singular values, with signs, and singular vectors from the left, with the signs of `svd`, and the right."""

    sides = 2
    runs = "singular_vectors", "singular vectors of {0}"

    def of_one(self, a: Any) -> Any:
        left, right, t, s, d, e, *_ = bidiagonal(a)
        eye = np.eye(len(a), dtype=a.dtype)
        w, u, v = singular_rows(d, e, reflected(left, t, eye, False, 0).T, reflected(right, s, eye, False, 1).T)
        sign = numpy_signs(u)
        return w, u * sign, v * sign
