"""Singular values and vectors: reflections from both sides to two diagonals, then QR with implicit shifts."""

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
    bidiagonal,
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
    singular_rows,
    strips,
    taken,
)
from tessera.compiler.graph.operators.linalg.matrices import (
    BLOCK,
    batched,
    count_of,
    demand_matrices,
    each,
    identity,
    keep_matrices,
    positions,
    turned,
    upper_part,
)
from tessera.compiler.graph.operators.linalg.orthogonal import QrFactor, QrMultiply, first_columns, first_rows
from tessera.compiler.graph.operators.linalg.small import is_small, side_by_side
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class Bidiagonalize(Operator):
    """The reflections and triangles from the left and from the right (these one row below the diagonal) that give
    square matrices two diagonals; the diagonal [..., N] and what is above it [..., N], with a 0 at the end; and four
    blocks of rows where the kernel works. They are constants to derivatives."""

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"
    multiple = True
    differentiable = False

    def infer(self, t: Infer, a: TensorType) -> tuple[TensorType, ...]:
        *batch, n, _ = a.shape
        line, panel = a.with_shape((*batch, n)), a.with_shape((*batch, PANEL, n))
        triangles = a.with_shape((*batch, dims.ceildiv(n, PANEL) * PANEL, PANEL))
        return a, a, triangles, triangles, line, line, panel, panel, panel, panel

    def reference(self, a: Any) -> Any:
        n = a.shape[-1]
        triangles = (-(-n // PANEL) * PANEL, PANEL)
        return each(bidiagonal, [(n, n), (n, n), triangles, triangles, (n,), (n,), *([(PANEL, n)] * 4)], a)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 3:
            return None
        return TileKernel("singular_values.bidiagonalize", "two diagonals of {0}", config={"BLOCK": PANEL})

    def decompose(self, g: GraphBuilder, a: Value) -> Any:
        return batched(g, "bidiagonalize", [a], [2, 2, 2, 2, 1, 1, 2, 2, 2, 2])

    def partition(self, cut: Cut, a: TensorType) -> None:
        keep_matrices(cut, a)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return count_of(operands[0].shape) * n * n * n * 8 // 3


class BidiagonalValues(Condensed):
    """The singular values [..., N], unordered and with signs, of matrices with the diagonal d [..., N] and e [..., N]
    above it, of which the last element does not count; and memory where the kernel works."""

    def infer(self, t: Infer, d: TensorType, e: TensorType) -> tuple[TensorType, TensorType]:
        *batch, n = d.shape
        return d, d.with_shape((*batch, 1, *lines(n, 0)))

    def reference(self, d: Any, e: Any) -> Any:
        n = d.shape[-1]

        def one(de: Any) -> Any:
            return singular_rows(de[0], de[1], np.zeros((n, 0), d.dtype), np.zeros((n, 0), d.dtype))[0]

        return each(one, [(n,)], np.stack([d, e], -2)), np.zeros((*d.shape[:-1], 1, *lines(n, 0)), d.dtype)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        return TileKernel("singular_values.bidiagonal_values", "singular values") if operands[0].rank == 2 else None

    def decompose(self, g: GraphBuilder, d: Value, e: Value) -> Any:
        return batched_lines(g, "bidiagonal_values", [d, e], [1, 3])

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * operands[0].shape[-1] * 60


class BidiagonalVectors(Condensed):
    """The same, and before the memory the columns of q and p [..., N, N] turned into singular vectors from the left and
    the right: rows of N in strips [..., strips, N, width]."""

    def infer(self, t: Infer, d: TensorType, e: TensorType, q: TensorType, p: TensorType) -> tuple[TensorType, ...]:
        *batch, n = d.shape
        count, width, programs = strips(n)
        rows = d.with_shape((*batch, count, n, width))
        return d, rows, rows, d.with_shape((*batch, programs, *lines(n, 2)))

    def reference(self, d: Any, e: Any, q: Any, p: Any) -> Any:
        n = d.shape[-1]
        count, width, programs = strips(n)
        more = [(0, 0), (0, count * width - n)]

        def one(de: Any, q: Any, p: Any) -> Any:
            w, *sides = singular_rows(de[0], de[1], np.pad(q.T, more), np.pad(p.T, more))
            return w, *(rows.reshape(n, count, width).swapaxes(0, 1) for rows in sides)

        shapes: Any = [(n,), (count, n, width), (count, n, width)]
        return *each(one, shapes, np.stack([d, e], -2), q, p), np.zeros(
            (*d.shape[:-1], programs, *lines(n, 2)), d.dtype
        )

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 2:
            return None
        return TileKernel("singular_values.bidiagonal_vectors", "singular vectors", config={"BLOCK": BLOCK})

    def decompose(self, g: GraphBuilder, d: Value, e: Value, q: Value, p: Value) -> Any:
        return batched_lines(g, "bidiagonal_vectors", [d, e, q, p], [1, 3, 3, 3])

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return dims.prod(operands[0].shape) * n * n * 24


class BidiagonalVectorsInSteps(BidiagonalVectors):
    """The same for a few large matrices of a known size, as `TridiagonalVectorsInSteps`."""

    def infer(self, t: Infer, d: TensorType, e: TensorType, q: TensorType, p: TensorType) -> tuple[TensorType, ...]:
        return (*super().infer(t, d, e, q, p)[:3], *shared_memory(d, 2))

    def reference(self, d: Any, e: Any, q: Any, p: Any) -> Any:
        return (*super().reference(d, e, q, p)[:3], *numpy_memory(d, 2))

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 2:
            return None
        constants, config = {"steps": STEPS}, {"BLOCK": BLOCK}
        name = "singular_values.bidiagonal_vectors_step"
        return TileKernel(name, "a step to singular vectors", constants, config, steps=STEPS)

    def decompose(self, g: GraphBuilder, d: Value, e: Value, q: Value, p: Value) -> Any:
        return batched_lines(g, "bidiagonal_vectors_in_steps", [d, e, q, p], [1, 3, 3, 3, 2])


class Svd(Operator):
    """u, s [..., K] and v^T of x = u diag(s) v^T for x [..., M, N], with K = min(M, N) and s in descending order.

    u is [..., M, M] and v^T [..., N, N]; with `full_matrices=False` they are [..., M, K] and [..., K, N]. Signs of
    singular vectors are not defined. Derivatives need different singular values, all of them greater than 0, where they
    go through the vectors; vectors beyond K have none. Where a matrix has NaN or an infinity, its results are NaN.
    """

    space = "linalg"
    methods = ()
    batching = "leading"
    multiple = True

    def infer(self, t: Infer, x: TensorType, full_matrices: bool = True) -> tuple[TensorType, TensorType, TensorType]:
        demand_matrices(t, x)
        t.canonical(full_matrices=t.flag(full_matrices, "full_matrices"))
        *batch, m, n = x.shape
        k = dims.dim_min(m, n)
        left, right = (m, n) if full_matrices else (k, k)
        return x.with_shape((*batch, m, left)), x.with_shape((*batch, k)), x.with_shape((*batch, right, n))

    def reference(self, x: Any, full_matrices: bool) -> Any:
        (m, n), k = x.shape[-2:], min(x.shape[-2:])
        a, size, whole = numpy_scaled(x)
        before, after = QrFactor().reference(a) if m > n else None, None
        a = a if before is None else np.triu(before[0][..., :n, :])
        if n > m:
            after = QrFactor().reference(np.swapaxes(a, -1, -2))
            a = np.swapaxes(np.triu(after[0][..., :m, :]), -1, -2)
        left, right, t, s, d, e, *_ = Bidiagonalize().reference(a)
        eye = np.broadcast_to(np.eye(k, dtype=a.dtype), a.shape)
        q, p = QrMultiply().reference(left, t, eye, False), QrMultiply().reference(right, s, eye, False, 1)
        w, rows, columns, _ = BidiagonalVectors().reference(d, e, q, p)
        order = np.argsort(-np.abs(w), -1, kind="stable")
        w, at = np.take_along_axis(w, order, -1), order[..., None]
        u = np.take_along_axis(numpy_rows(rows, k), at, -2)
        sign = numpy_signs(u)
        v = np.take_along_axis(numpy_rows(columns, k), at, -2) * np.where(w[..., None] < 0, -sign, sign)
        u = u * sign
        u = _numpy_behind(before, np.swapaxes(u, -1, -2), m, full_matrices)
        v = _numpy_behind(after, np.swapaxes(v, -1, -2), n, full_matrices)
        s = np.where(whole[..., 0], np.abs(w) * size[..., 0], np.nan)
        return np.where(whole, u, np.nan), s, np.where(whole, np.swapaxes(v, -1, -2), np.nan)

    def decompose(self, g: GraphBuilder, x: Value, full_matrices: bool) -> tuple[Value, Value, Value]:
        *batch, m, n = tensor(x).shape
        k = dims.dim_min(m, n)
        if 0 in tensor(x).shape:
            left, right = (m, n) if full_matrices else (k, k)
            s = g.full((*batch, k), 0, tensor(x).dtype)
            return identity(g, tensor(x), m, left), s, identity(g, tensor(x), right, n)
        a, size, whole = scaled(g, x)
        square, before, after = _square(g, a)
        u, w, v = _of_square(g, square)
        u, v = _behind(g, before, u, m, full_matrices), _behind(g, after, v, n, full_matrices)
        s = finite_or_nan(g, g.squeeze(whole, -1), g.mul(w, g.squeeze(size, -1)))
        return finite_or_nan(g, whole, u), s, finite_or_nan(g, whole, turned(g, v))

    def adjoint(self, g: GraphBuilder, outs: Any, cts: Any, x: Value, full_matrices: bool) -> tuple[Value]:
        """J. Townsend, "Differentiating the singular value decomposition", 2016."""
        m, n = tensor(x).shape[-2:]
        if not full_matrices:
            return (_adjoint(g, outs, cts),)
        k = dims.dim_min(m, n)
        for ct, name, more, less in ((cts[0], "u", m, n), (cts[2], "v", n, m)):
            if ct is not None and not dims.at_most(more, less, g.facts):
                message = (
                    f"{name} of the svd of {m} x {n} has no derivative: vectors beyond the first {k} are not unique"
                )
                Infer("svd", g.facts).fail("TS353", message, "full_matrices=False has one")
        of_u = None if cts[0] is None else first_columns(g, cts[0], k)
        of_vt = None if cts[2] is None else first_rows(g, cts[2], k)
        return (_adjoint(g, g.svd(x, False), (of_u, cts[1], of_vt)),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        m, n = operands[0].shape[-2:]
        k = dims.dim_min(m, n)
        return count_of(operands[0].shape) * (m * n * k * 4 + k * k * k * 22)


class Svdvals(Operator):
    """The singular values [..., K] of matrices x [..., M, N] in descending order, with K = min(M, N)."""

    space = "linalg"
    methods = ()
    batching = "leading"

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        demand_matrices(t, x)
        return x.with_shape((*x.shape[:-2], dims.dim_min(*x.shape[-2:])))

    def reference(self, x: Any) -> Any:
        whole = np.isfinite(x).all((-2, -1))[..., None]
        return np.where(whole, np.linalg.svd(np.where(whole[..., None], x, 0), compute_uv=False), np.nan)

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        if 0 in tensor(x).shape:
            return g.svd(x)[1]
        a, size, whole = scaled(g, x)
        a, _, _ = _square(g, a)
        if is_small(tensor(a)):
            (w,) = side_by_side(g, "svdvals_lanes", a)
        else:
            _, _, _, _, d, e, *_ = g.bidiagonalize(a)
            w = g.bidiagonal_values(d, e)[0]
        w = g.sort(g.abs(w), axis=-1, descending=True)
        return finite_or_nan(g, g.squeeze(whole, -1), g.mul(w, g.squeeze(size, -1)))

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value) -> tuple[Value]:
        u, _, vt = g.svd(x, False)
        return (g.matmul(g.mul(u, g.unsqueeze(ct, -2)), vt),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        m, n = operands[0].shape[-2:]
        return count_of(operands[0].shape) * m * n * dims.dim_min(m, n) * 8 // 3


def _square(g: GraphBuilder, x: Value) -> tuple[Value, Any, Any]:
    """A square matrix [..., K, K] with the same singular values, and the factors of `qr_factor` that take its vectors
    from the left and the right to those of x. If it is not known which of M and N is larger, both are made shorter."""
    m, n = tensor(x).shape[-2:]
    wide, tall = dims.at_most(m, n, g.facts), dims.at_most(n, m, g.facts)
    before = after = None
    if not wide:
        before = g.qr_factor(x)
        k = n if tall else dims.dim_min(m, n)
        x = upper_part(g, first_rows(g, before[0], k))
    if not tall:
        after = g.qr_factor(turned(g, x))
        x = turned(g, upper_part(g, first_rows(g, after[0], tensor(x).shape[-2])))
    return x, before, after


def _of_square(g: GraphBuilder, x: Value) -> tuple[Value, Value, Value]:
    """u, s and v of a square matrix."""
    n = tensor(x).shape[-1]
    if is_small(tensor(x)):
        w, u, v = side_by_side(g, "svd_lanes", x)
    else:
        left, right, t, s, d, e, *_ = g.bidiagonalize(x)
        eye = identity(g, tensor(x), n, n)
        q, p = g.qr_multiply(left, t, eye, False, 0, True), g.qr_multiply(right, s, eye, False, 1, True)
        vectors = g.bidiagonal_vectors_in_steps if is_shared(tensor(d)) else g.bidiagonal_vectors
        w, rows, columns, *_ = vectors(d, e, q, p)
        u, v = from_strips(g, rows, n), from_strips(g, columns, n)
        sign = signs(g, u)
        u, v = g.mul(u, sign), g.mul(v, sign)
    order = g.argsort(g.abs(w), axis=-1, descending=True)
    w = g.take_along_axis(w, order, axis=-1)
    u, v = taken(g, u, order), taken(g, v, order)
    v = g.mul(v, g.where(g.lt(g.unsqueeze(w, -1), 0.0), -1.0, 1.0))
    return turned(g, u), g.abs(w), turned(g, v)


def _behind(g: GraphBuilder, factor: Any, u: Value, m: Dim, full: bool) -> Value:
    """Vectors of m elements from those of a square matrix: all m of them, or as many as these are."""
    *batch, k, _ = tensor(u).shape
    if factor is None:
        return u
    more = [(0, 0)] * len(batch)
    u = g.pad(u, [*more, (0, m - k), (0, m - k if full else 0)])
    if full:
        row, column = positions(g, u)
        u = g.where(g.ge(column, k), g.to(g.eq(row, column), tensor(u).dtype), u)
    packed, tri, _ = factor
    return g.qr_multiply(packed, tri, u)


def _numpy_behind(factor: Any, u: Any, m: int, full: bool) -> Any:
    if factor is None:
        return u
    *batch, k, _ = u.shape
    more = np.zeros((*batch, m, m if full else k), u.dtype)
    more[..., :k, :k] = u
    if full:
        more[..., k:, k:] = np.eye(m - k)
    return QrMultiply().reference(factor[0], factor[1], more, False)


def _adjoint(g: GraphBuilder, outs: Sequence[Value], cts: Sequence[Value | None]) -> Value:
    (u, s, vt), (of_u, of_s, of_vt) = outs, cts
    ut = turned(g, u)
    rows, columns = g.unsqueeze(s, -1), g.unsqueeze(s, -2)
    between = apart(g, g.mul(s, s))
    inner: Value | None = None
    parts: list[Value] = []
    if of_s is not None:
        inner = g.mul(g.unsqueeze(of_s, -1), g.eye(tensor(s).shape[-1], dtype=tensor(s).dtype))
    if of_u is not None:
        along = g.matmul(ut, of_u)
        turn = g.mul(g.mul(between, g.sub(along, turned(g, along))), columns)
        inner = turn if inner is None else g.add(inner, turn)
        parts.append(g.matmul(g.div(g.sub(of_u, g.matmul(u, along)), columns), vt))
    if of_vt is not None:
        along = g.matmul(vt, turned(g, of_vt))
        turn = g.mul(g.mul(rows, between), g.sub(along, turned(g, along)))
        inner = turn if inner is None else g.add(inner, turn)
        outside = g.sub(of_vt, g.matmul(turned(g, along), vt))
        parts.append(g.matmul(u, g.div(outside, rows)))
    assert inner is not None
    found = g.matmul(g.matmul(u, inner), vt)
    for part in parts:
        found = g.add(found, part)
    return found
