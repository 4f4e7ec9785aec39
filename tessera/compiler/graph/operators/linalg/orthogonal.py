"""Orthogonal and triangular factors, by Householder's reflections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, TileKernel, tensor
from tessera.compiler.graph.operators.linalg.lanes import in_lanes, is_small
from tessera.compiler.graph.operators.linalg.matrices import (
    BLOCK,
    batched,
    count_of,
    demand_matrices,
    each,
    identity,
    keep_matrices,
    lower_part,
    one_of,
    turned,
    upper_part,
    whole_blocks,
)
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class QrFactor(Operator):
    """R and the reflections of a = Q R [..., M, N] in one matrix, the triangles [..., reflections in whole blocks,
    block] by which blocks of reflections are multiplied, and memory where the kernel works, [..., 2, M in whole blocks,
    block]. They are constants to derivatives."""

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"
    multiple = True
    differentiable = False

    def infer(self, t: Infer, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        *batch, m, n = a.shape
        triangles = a.with_shape((*batch, whole_blocks(dims.dim_min(m, n)), BLOCK))
        return a, triangles, a.with_shape((*batch, 2, whole_blocks(m), BLOCK))

    def reference(self, a: Any) -> Any:
        m, n = a.shape[-2:]
        rows = -(-min(m, n) // BLOCK) * BLOCK
        packed, tri = each(_reflections, [(m, n), (rows, BLOCK)], a)
        return packed, tri, np.zeros((*a.shape[:-2], 2, whole_blocks(m), BLOCK), a.dtype)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        three = operands[0].rank == 3
        return (
            TileKernel("factorizations.householder", "reflections of {0}", config={"BLOCK": BLOCK}) if three else None
        )

    def decompose(self, g: GraphBuilder, a: Value) -> Any:
        return batched(g, "qr_factor", [a], [2, 2, 3])

    def partition(self, cut: Cut, a: TensorType) -> None:
        keep_matrices(cut, a)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        m, n = operands[0].shape[-2:]
        return count_of(operands[0].shape) * m * n * dims.dim_min(m, n) * 2


class QrMultiply(Operator):
    """Q x, or with `trans` Q^T x, for x [..., M, K] and the Q that `qr_factor` found. `below`: how many rows below the
    diagonal of `a` the reflections begin. `eye`: x is an identity matrix, and `trans` is not set."""

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"
    differentiable = False

    def infer(
        self, t: Infer, a: TensorType, tri: TensorType, x: TensorType, trans: bool = False, below: int = 0,
        eye: bool = False,
    ) -> TensorType:  # fmt: skip
        t.canonical(trans=bool(trans), below=int(below), eye=bool(eye))
        return x

    def reference(self, a: Any, tri: Any, x: Any, trans: bool, below: int = 0, eye: bool = False) -> Any:
        def one(a: Any, tri: Any, x: Any) -> Any:
            return reflected(a, tri, x, trans, below)

        return each(one, [x.shape[-2:]], a, tri, x)

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 3:
            return None
        block, columns = operands[1].shape[-1], operands[2].shape[-1]
        width = 64 if isinstance(columns, int) and columns >= 128 else 32
        config = {"BLOCK": int(block), "COLUMNS": width}
        return TileKernel("factorizations.reflect", "reflections of {0}", config=config)

    def decompose(self, g: GraphBuilder, a: Value, tri: Value, x: Value, trans: bool, below: int, eye: bool) -> Any:
        return batched(g, "qr_multiply", [a, tri, x], [2], trans, below, eye)

    def partition(
        self, cut: Cut, a: TensorType, tri: TensorType, x: TensorType, trans: bool, below: int, eye: bool
    ) -> None:
        keep_matrices(cut, a, x)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        m, k = operands[2].shape[-2:]
        return count_of(operands[2].shape) * m * k * dims.dim_min(*operands[0].shape[-2:]) * 4


def _reflections(a: Any) -> Any:
    m, n = a.shape
    out, tri = np.array(a), np.zeros((-(-min(m, n) // BLOCK) * BLOCK, BLOCK), a.dtype)
    for j in range(min(m, n)):
        x = out[j:, j].copy()
        norm = np.linalg.norm(x) if np.any(x[1:]) else 0
        if norm == 0:
            beta, tau, v = x[0], 0, np.eye(len(x), 1, dtype=a.dtype)[:, 0]
        else:
            beta = norm if x[0] < 0 else -norm
            tau, v = (beta - x[0]) / beta, x / (x[0] - beta)
            v[0] = 1
        out[j:, j + 1 :] -= tau * np.outer(v, v @ out[j:, j + 1 :])
        out[j, j], out[j + 1 :, j] = beta, v[1:]
        first = j - j % BLOCK
        tri[first:j, j - first] = -tau * tri[first:j, : j - first] @ (out[j:, first:j].T @ v)
        tri[j, j - first] = tau
    return out, tri


def reflected(a: Any, tri: Any, x: Any, trans: bool, below: int) -> Any:
    """NumPy's `factorizations.reflect`."""
    block = tri.shape[-1]
    out, blocks = np.array(x), range(0, min(a.shape), block)
    for k in blocks if trans else reversed(blocks):
        width = min(block, min(a.shape) - k)
        v = np.tril(a[k:, k : k + width], -1 - below) + np.eye(len(a) - k, width, -below, dtype=a.dtype)
        t = tri[k : k + width, :width]
        out[k:] -= v @ ((t.T if trans else t) @ (v.T @ out[k:]))
    return out


class Qr(Operator):
    """The factors of x = q r for x [..., M, N]: q has orthonormal columns, r is upper triangular.

    `mode` "reduced": q [..., M, K] and r [..., K, N], with K = min(M, N); "complete": q [..., M, M], r [..., M, N]. By
    Householder's reflections, with the signs of LAPACK, NumPy and JAX: the diagonal of r can be negative. Derivatives
    need the first K columns to be independent, and "complete" has none for M > N.
    """

    space = "linalg"
    methods = ()
    batching = "leading"
    multiple = True

    def infer(self, t: Infer, x: TensorType, mode: str = "reduced") -> tuple[TensorType, TensorType]:
        demand_matrices(t, x)
        one_of(t, mode, "mode", {"reduced": 0, "complete": 1}, '"reduced" or "complete"')
        m, n = x.shape[-2:]
        k = dims.dim_min(m, n) if mode == "reduced" else m
        return x.with_shape((*x.shape[:-2], m, k)), x.with_shape((*x.shape[:-2], k, n))

    def reference(self, x: Any, mode: str) -> Any:
        m, n = x.shape[-2:]
        k = min(m, n) if mode == "reduced" else m
        packed, tri, _ = QrFactor().reference(x)
        eye = np.broadcast_to(np.eye(m, k, dtype=x.dtype), (*x.shape[:-2], m, k))
        return QrMultiply().reference(packed, tri, eye, False), np.triu(packed[..., :k, :])

    def decompose(self, g: GraphBuilder, x: Value, mode: str) -> tuple[Value, Value]:
        m, n = tensor(x).shape[-2:]
        k = dims.dim_min(m, n) if mode == "reduced" else m
        if 0 in (m, n):
            return identity(g, tensor(x), m, k), g.full((*tensor(x).shape[:-2], k, n), 0, tensor(x).dtype)
        if tensor(x).rank == 3 and is_small(tensor(x)):
            packed, q, _ = in_lanes(g, "qr_lanes", [x], k)
            return q, upper_part(g, packed if k is m else first_rows(g, packed, k))
        packed, tri, _ = g.qr_factor(x)
        q = g.qr_multiply(packed, tri, identity(g, tensor(x), m, k), False, 0, True)
        return q, upper_part(g, packed if k is m else first_rows(g, packed, k))

    def adjoint(self, g: GraphBuilder, outs: Any, cts: Any, x: Value, mode: str) -> tuple[Value]:
        """(ct_q + q S) r^-T, with S symmetric, of the lower triangle of r ct_r^T - ct_q^T q (S. Walter, L. Lehmann and
        R. Lamour, 2012). Columns behind the first M are q^T-images: what they change of q is handed to it."""
        q, r = outs
        m, n = tensor(x).shape[-2:]
        if not dims.at_most(n, m, g.facts) and not dims.at_most(m, n, g.facts):
            message = f"qr of {m} x {n} has a derivative where it is known which is larger"
            Infer("qr", g.facts).fail("TS353", message, f"assert {m} >= {n} before")
        if mode == "complete" and not dims.at_most(m, n, g.facts):
            message = (
                f'qr with mode="complete" of {m} x {n} has no derivative: columns behind the first {n} are not unique'
            )
            Infer("qr", g.facts).fail("TS353", message, 'mode="reduced" has one')
        of_q = g.zeros_like(q) if cts[0] is None else cts[0]
        of_r = g.zeros_like(r) if cts[1] is None else cts[1]
        if dims.at_most(n, m, g.facts):
            return (_tall(g, q, r, of_q, of_r),)
        behind = last_columns(g, of_r, m)
        of_q = g.add(of_q, g.matmul(last_columns(g, x, m), turned(g, behind)))
        first = _tall(g, q, first_columns(g, r, m), of_q, first_columns(g, of_r, m))
        return (g.concat([first, g.matmul(q, behind)], axis=-1),)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        m, n = operands[0].shape[-2:]
        return count_of(operands[0].shape) * m * n * dims.dim_min(m, n) * 4


def _tall(g: GraphBuilder, q: Value, r: Value, of_q: Value, of_r: Value) -> Value:
    s = g.sub(g.matmul(r, turned(g, of_r)), g.matmul(turned(g, of_q), q))
    s = g.add(lower_part(g, s), turned(g, lower_part(g, s, 0.0)))
    right = g.add(of_q, g.matmul(q, s))
    return turned(g, g.triangular_solve(r, turned(g, right), False))


def first_rows(g: GraphBuilder, x: Value, count: Dim) -> Value:
    shape = tensor(x).shape
    return g.slice(x, (0,) * len(shape), (*shape[:-2], count, shape[-1]))


def first_columns(g: GraphBuilder, x: Value, count: Dim) -> Value:
    shape = tensor(x).shape
    return g.slice(x, (0,) * len(shape), (*shape[:-1], count))


def last_columns(g: GraphBuilder, x: Value, start: Dim) -> Value:
    shape = tensor(x).shape
    return g.slice(x, (*(0,) * (len(shape) - 1), start), shape)
