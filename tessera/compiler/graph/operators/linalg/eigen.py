"""Eigenvalues and eigenvectors of symmetric matrices: reflections to three diagonals, then QL with implicit shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, TileKernel, tensor
from tessera.compiler.graph.operators.linalg.condensed import (
    PANEL,
    STEPS,
    Condensed,
    apart,
    batched_lines,
    eigen_rows,
    finite_or_nan,
    from_strips,
    is_shared,
    lines,
    numpy_memory,
    numpy_rows,
    numpy_scaled,
    numpy_signs,
    scaled,
    shared_memory,
    signs,
    strips,
    taken,
    tridiagonal,
)
from tessera.compiler.graph.operators.linalg.matrices import (
    BLOCK,
    batched,
    count_of,
    demand_square,
    diagonal_of,
    each,
    identity,
    keep_matrices,
    lower_part,
    turned,
)
from tessera.compiler.graph.operators.linalg.orthogonal import QrMultiply
from tessera.compiler.graph.operators.linalg.small import is_small, side_by_side
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class Tridiagonalize(Operator):
    """The reflections and triangles (as of `qr_factor`, one row below the diagonal) that give symmetric matrices three
    diagonals; the diagonal [..., N] and what is beside it [..., N], with a 0 at the end; and two blocks of rows where
    the kernel works. They are constants to derivatives."""

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"
    multiple = True
    differentiable = False

    def infer(self, t: Infer, a: TensorType) -> tuple[TensorType, ...]:
        *batch, n, _ = a.shape
        line, panel = a.with_shape((*batch, n)), a.with_shape((*batch, PANEL, n))
        return a, a.with_shape((*batch, dims.ceildiv(n, PANEL) * PANEL, PANEL)), line, line, panel, panel

    def reference(self, a: Any) -> Any:
        n = a.shape[-1]
        return each(tridiagonal, [(n, n), (-(-n // PANEL) * PANEL, PANEL), (n,), (n,), (PANEL, n), (PANEL, n)], a)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 3:
            return None
        return TileKernel("eigenvalues.tridiagonalize", "three diagonals of {0}", config={"BLOCK": PANEL})

    def decompose(self, g: GraphBuilder, a: Value) -> Any:
        return batched(g, "tridiagonalize", [a], [2, 2, 1, 1, 2, 2])

    def partition(self, cut: Cut, a: TensorType) -> None:
        keep_matrices(cut, a)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return count_of(operands[0].shape) * n * n * n * 4 // 3


class TridiagonalValues(Condensed):
    """The eigenvalues [..., N], unordered, of matrices with the diagonal d [..., N] and e [..., N] beside it, of which
    the last element does not count; and memory where the kernel works."""

    def infer(self, t: Infer, d: TensorType, e: TensorType) -> tuple[TensorType, TensorType]:
        *batch, n = d.shape
        return d, d.with_shape((*batch, 1, *lines(n, 0)))

    def reference(self, d: Any, e: Any) -> Any:
        n = d.shape[-1]

        def one(de: Any) -> Any:
            return eigen_rows(de[0], de[1], np.zeros((n, 0), d.dtype))[0]

        w = each(one, [(n,)], np.stack([d, e], -2))
        return w, np.zeros((*d.shape[:-1], 1, *lines(n, 0)), d.dtype)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        return TileKernel("eigenvalues.tridiagonal_values", "eigenvalues of {0}") if operands[0].rank == 2 else None

    def decompose(self, g: GraphBuilder, d: Value, e: Value) -> Any:
        return batched_lines(g, "tridiagonal_values", [d, e], [1, 3])

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * operands[0].shape[-1] * 30


class TridiagonalVectors(Condensed):
    """The same, and before the memory the columns of q [..., N, N] turned into eigenvectors: rows of N in strips
    [..., strips, N, width]."""

    def infer(self, t: Infer, d: TensorType, e: TensorType, q: TensorType) -> tuple[TensorType, ...]:
        *batch, n = d.shape
        count, width, programs = strips(n)
        return d, d.with_shape((*batch, count, n, width)), d.with_shape((*batch, programs, *lines(n, 1)))

    def reference(self, d: Any, e: Any, q: Any) -> Any:
        n = d.shape[-1]
        count, width, programs = strips(n)

        def one(de: Any, q: Any) -> Any:
            w, rows = eigen_rows(de[0], de[1], np.pad(q.T, [(0, 0), (0, count * width - n)]))
            return w, rows.reshape(n, count, width).swapaxes(0, 1)

        shapes: Any = [(n,), (count, n, width)]
        w, z = each(one, shapes, np.stack([d, e], -2), q)
        return w, z, np.zeros((*d.shape[:-1], programs, *lines(n, 1)), d.dtype)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 2:
            return None
        return TileKernel("eigenvalues.tridiagonal_vectors", "eigenvectors of {0}", config={"BLOCK": BLOCK})

    def decompose(self, g: GraphBuilder, d: Value, e: Value, q: Value) -> Any:
        return batched_lines(g, "tridiagonal_vectors", [d, e, q], [1, 3, 3])

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return dims.prod(operands[0].shape) * n * n * 6


class TridiagonalVectorsInSteps(TridiagonalVectors):
    """The same for a few large matrices of a known size, which programs share; with other memory, of floats and of
    whole numbers."""

    def infer(self, t: Infer, d: TensorType, e: TensorType, q: TensorType) -> tuple[TensorType, ...]:
        return (*super().infer(t, d, e, q)[:2], *shared_memory(d, 1))

    def reference(self, d: Any, e: Any, q: Any) -> Any:
        return (*super().reference(d, e, q)[:2], *numpy_memory(d, 1))

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 2:
            return None
        constants, config = {"steps": STEPS}, {"BLOCK": BLOCK}
        name = "eigenvalues.tridiagonal_vectors_step"
        return TileKernel(name, "a step to eigenvectors of {0}", constants, config, steps=STEPS)

    def decompose(self, g: GraphBuilder, d: Value, e: Value, q: Value) -> Any:
        return batched_lines(g, "tridiagonal_vectors_in_steps", [d, e, q], [1, 3, 3, 2])


class Eigh(Operator):
    """Eigenvalues [..., N], ascending, and eigenvectors in columns [..., N, N] of symmetric matrices x [..., N, N].

    The lower triangle counts, as in NumPy. Of each eigenvector's elements that are at least 0.7 times as large as its
    greatest, the first is positive. Derivatives need different eigenvalues where they go through the eigenvectors.
    Where a matrix has NaN or an infinity, its results are NaN.
    """

    space = "linalg"
    methods = ()
    batching = "leading"
    multiple = True

    def infer(self, t: Infer, x: TensorType) -> tuple[TensorType, TensorType]:
        demand_square(t, x)
        return x.with_shape(x.shape[:-1]), x

    def reference(self, x: Any) -> Any:
        a, size, whole = numpy_scaled(np.tril(x) + np.swapaxes(np.tril(x, -1), -1, -2))
        n = a.shape[-1]
        packed, tri, d, e, *_ = Tridiagonalize().reference(a)
        q = QrMultiply().reference(packed, tri, np.broadcast_to(np.eye(n, dtype=a.dtype), a.shape), False, 1)
        w, z, _ = TridiagonalVectors().reference(d, e, q)
        order = np.argsort(w, -1, kind="stable")
        rows = np.take_along_axis(numpy_rows(z, n), order[..., None], -2)
        v = np.swapaxes(rows * numpy_signs(rows), -1, -2)
        w = np.take_along_axis(w, order, -1) * size[..., 0]
        return np.where(whole[..., 0], w, np.nan), np.where(whole, v, np.nan)

    def decompose(self, g: GraphBuilder, x: Value) -> tuple[Value, Value]:
        n = tensor(x).shape[-1]
        if 0 in tensor(x).shape:
            return g.reshape(x, tensor(x).shape[:-1]) if n == 0 else diagonal_of(g, x), x
        a, size, whole = scaled(g, _symmetric(g, x))
        if is_small(tensor(a)):
            w, rows = side_by_side(g, "eigh_lanes", a)
        else:
            packed, tri, d, e, *_ = g.tridiagonalize(a)
            q = g.qr_multiply(packed, tri, identity(g, tensor(a), n, n), False, 1, True)
            w, z, *_ = (g.tridiagonal_vectors_in_steps if is_shared(tensor(d)) else g.tridiagonal_vectors)(d, e, q)
            rows = from_strips(g, z, n)
            rows = g.mul(rows, signs(g, rows))
        order = g.argsort(w, axis=-1)
        w = g.mul(g.take_along_axis(w, order, axis=-1), g.squeeze(size, -1))
        v = turned(g, taken(g, rows, order))
        return finite_or_nan(g, g.squeeze(whole, -1), w), finite_or_nan(g, whole, v)

    def adjoint(self, g: GraphBuilder, outs: Any, cts: Any, x: Value) -> tuple[Value]:
        """M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation",
        2008, 3.1."""
        w, v = outs
        inner = None
        if cts[1] is not None:
            inner = g.mul(apart(g, w), g.matmul(turned(g, v), cts[1]))
        if cts[0] is not None:
            own = g.mul(g.unsqueeze(cts[0], -1), g.eye(tensor(w).shape[-1], dtype=tensor(w).dtype))
            inner = own if inner is None else g.add(inner, own)
        assert inner is not None
        found = g.matmul(g.matmul(v, inner), turned(g, v))
        return (g.mul(g.add(found, turned(g, found)), 0.5),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return count_of(operands[0].shape) * n * n * n * 9


class Eigvalsh(Operator):
    """The eigenvalues [..., N] of symmetric matrices x [..., N, N] in ascending order; the lower triangle counts."""

    space = "linalg"
    methods = ()
    batching = "leading"

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        demand_square(t, x)
        return x.with_shape(x.shape[:-1])

    def reference(self, x: Any) -> Any:
        return Eigh().reference(x)[0]

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        if 0 in tensor(x).shape:
            return g.eigh(x)[0]
        a, size, whole = scaled(g, _symmetric(g, x))
        if is_small(tensor(a)):
            (w,) = side_by_side(g, "eigvalsh_lanes", a)
        else:
            _, _, d, e, *_ = g.tridiagonalize(a)
            w = g.tridiagonal_values(d, e)[0]
        w = g.mul(g.sort(w, axis=-1), g.squeeze(size, -1))
        return finite_or_nan(g, g.squeeze(whole, -1), w)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value) -> tuple[Value]:
        _, v = g.eigh(x)
        return (g.matmul(g.mul(v, g.unsqueeze(ct, -2)), turned(g, v)),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return count_of(operands[0].shape) * n * n * n * 4 // 3


def _symmetric(g: GraphBuilder, x: Value) -> Value:
    return g.add(lower_part(g, x), turned(g, lower_part(g, x, 0.0)))
