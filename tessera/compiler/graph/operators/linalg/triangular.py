"""Cholesky's factor, and systems of equations with triangular matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, TileKernel, tensor
from tessera.compiler.graph.operators.linalg.lanes import in_lanes, is_small
from tessera.compiler.graph.operators.linalg.matrices import (
    BLOCK,
    batched,
    count_of,
    demand_matrices,
    demand_square,
    each,
    keep_matrices,
    lower_part,
    one_of,
    turned,
    upper_part,
)
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language.dims import Dim
from tessera.language.lazy import np

_WAYS: Mapping[str | int, int] = {0: 0, "N": 0, 1: 1, "T": 1, 2: 1, "C": 1}
"""values of `trans`, as 0 or 1"""
FEW, SHARED = 4, 192
"""Programs share each of so few matrices, from so many rows on."""
WIDTHS = (2, 4, 8, 16, 32, 64)
"""columns of right sides that a program solves for: the least that holds all, at most the last"""


class Cholesky(Operator):
    """The lower triangular L of symmetric positive definite matrices x = L L^T; with `upper` U, for x = U^T U.

    x [..., N, N] is taken to be symmetric: only the lower triangle is read, with `upper` only the upper one, and the
    gradient is symmetric. Compiled, a matrix that is not positive definite gives NaN from the first column on that
    shows it; called outside of functions it raises LaunchError TS501.
    """

    space = "linalg"
    methods = ()
    kind = "scan"
    batching = "leading"
    singular = "the matrix is not positive definite"

    def infer(self, t: Infer, x: TensorType, upper: bool = False) -> TensorType:
        demand_square(t, x)
        t.canonical(upper=t.flag(upper, "upper"))
        return x

    def reference(self, x: Any, upper: bool) -> Any:
        x = np.swapaxes(x, -1, -2) if upper else x
        out = each(_cholesky, [x.shape[-2:]], x)
        return np.swapaxes(out, -1, -2) if upper else out

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 3 or is_small(operands[0]):
            return None
        if is_shared(operands[0]):
            steps = -(-operands[0].shape[-1] // BLOCK)
            return TileKernel("factorizations.cholesky_step", "a step of Cholesky's factor of {0}", steps=steps)
        return TileKernel("factorizations.cholesky", "Cholesky's factor of {0}")

    def decompose(self, g: GraphBuilder, x: Value, upper: bool) -> Any:
        if is_small(tensor(x)):
            return in_lanes(g, "cholesky_lanes", [x], upper)
        return batched(g, "cholesky", [x], [2], upper)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, upper: bool) -> tuple[Value]:
        """L^-T P L^-1 with P the symmetric part of the lower triangle of L^T ct (S. P. Smith, 1995; I. Murray,
        "Differentiation of the Cholesky decomposition", 2016)."""
        low, ct = (turned(g, out), turned(g, ct)) if upper else (out, ct)
        p = lower_part(g, g.matmul(turned(g, low), ct), 0.5)
        p = g.mul(g.add(p, turned(g, p)), 0.5)
        half = g.triangular_solve(low, p, True, True)
        return (g.triangular_solve(low, turned(g, half), True, True),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, upper: bool) -> Value:
        low, change = (turned(g, out), turned(g, tangents[0])) if upper else (out, tangents[0])
        change = g.mul(g.add(change, turned(g, change)), 0.5)
        half = g.triangular_solve(low, change, True)
        inner = g.triangular_solve(low, turned(g, half), True)
        found = g.matmul(low, lower_part(g, inner, 0.5))
        return turned(g, found) if upper else found

    def partition(self, cut: Cut, x: TensorType, upper: bool) -> None:
        keep_matrices(cut, x)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return count_of(operands[0].shape) * n * n * n // 3


def is_shared(x: TensorType) -> bool:
    """Whether programs share each of the matrices: few large ones of a known size."""
    count, n = count_of(x.shape), x.shape[-1]
    return isinstance(count, int) and isinstance(n, int) and count <= FEW and n >= SHARED


def _cholesky(x: Any) -> Any:
    """NaN where a pivot is not positive, and in what depends on it."""
    out = np.tril(x)
    with np.errstate(all="ignore"):
        for j in range(len(x)):
            pivot = out[j, j] if out[j, j] > 0 else np.nan
            out[j:, j] /= np.sqrt(pivot)
            out[j + 1 :, j + 1 :] -= np.tril(np.outer(out[j + 1 :, j], out[j + 1 :, j]))
    return out


class TriangularSolve(Operator):
    """The y of a y = b, for the triangle of a [..., N, N] on one side of its diagonal, and b [..., N, K].

    `lower`: which triangle is read. `trans`: of a^T y = b. `unit`: the diagonal counts as 1, and is not read.
    """

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"

    def infer(
        self, t: Infer, a: TensorType, b: TensorType, lower: bool, trans: bool = False, unit: bool = False
    ) -> TensorType:
        t.canonical(lower=bool(lower), trans=bool(trans), unit=bool(unit))
        return b

    def reference(self, a: Any, b: Any, lower: bool, trans: bool, unit: bool) -> Any:
        a = np.tril(a) if lower else np.triu(a)
        a = np.swapaxes(a, -1, -2) if trans else a
        out, n = np.array(b), a.shape[-1]
        with np.errstate(all="ignore"):
            for i in range(n) if lower != trans else reversed(range(n)):
                known = slice(0, i) if lower != trans else slice(i + 1, n)
                out[..., i, :] -= (a[..., i, known, None] * out[..., known, :]).sum(-2)
                out[..., i, :] /= 1 if unit else a[..., i, i, None]
        return out

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 3 or is_small(*operands):
            return None
        matrices, _, columns = operands[1].shape
        if columns == 1:
            return TileKernel("triangular.solve_vector", "solution of {0} y = {1}")
        width = next((w for w in WIDTHS if isinstance(columns, int) and columns <= w), WIDTHS[-1])
        if matrices == 1 and isinstance(columns, int) and 32 < columns <= 64:
            width = 32  # two programs: a twentieth more work, in half the time on two threads
        return TileKernel("triangular.solve_columns", "solution of {0} y = {1}", config={"COLUMNS": width})

    def decompose(self, g: GraphBuilder, a: Value, b: Value, lower: bool, trans: bool, unit: bool) -> Any:
        if is_small(tensor(a), tensor(b)):
            return in_lanes(g, "triangular_solve_lanes", [a, b], lower, trans, unit)
        return batched(g, "triangular_solve", [a, b], [2], lower, trans, unit)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, a: Value, b: Value, lower: bool, trans: bool, unit: bool
    ) -> tuple[Value, Value]:
        back = g.triangular_solve(a, ct, lower, not trans, unit)
        pair = (out, back) if trans else (back, out)
        of_a = g.neg(g.matmul(pair[0], turned(g, pair[1])))
        return (lower_part if lower else upper_part)(g, of_a, 0.0 if unit else 1.0), back

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Sequence[Value | None], a: Value, b: Value, lower: bool,
        trans: bool, unit: bool,
    ) -> Value:  # fmt: skip
        of_a, change = tangents
        if of_a is not None:
            of_a = (lower_part if lower else upper_part)(g, of_a, 0.0 if unit else 1.0)
            moved = g.neg(g.matmul(turned(g, of_a) if trans else of_a, out))
            change = moved if change is None else g.add(change, moved)
        assert change is not None
        return g.triangular_solve(a, change, lower, trans, unit)

    def partition(self, cut: Cut, a: TensorType, b: TensorType, lower: bool, trans: bool, unit: bool) -> None:
        keep_matrices(cut, a, b)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n, k = operands[1].shape[-2:]
        return count_of(operands[1].shape) * n * n * k


class SolveTriangular(Operator):
    """The y of a y = b for triangular matrices a [..., N, N], and b [N] or [..., N, K]; batches broadcast.

    `lower`: the lower triangle is read, else the upper one. `trans` 1 or "T" (also 2 or "C"): of a^T y = b.
    `unit_diagonal`: the diagonal counts as 1, and is not read. These are SciPy's and JAX's parameters. A 0 on the
    diagonal gives infinities and NaN; outside of functions it raises LaunchError TS501.
    """

    space = "linalg"
    methods = ()
    says: ClassVar[Mapping[str, str]] = {
        "upper": "write lower=True or lower=False",
        "unitriangular": "it is called unit_diagonal",
        "left": "y of y a = b is the transpose of solve_triangular(a, b.T, trans=1, ...)",
    }
    singular = "the matrix is singular: its diagonal has a 0"

    def infer(
        self, t: Infer, a: TensorType, b: TensorType, lower: bool = False, trans: int | str = 0,
        unit_diagonal: bool = False,
    ) -> TensorType:  # fmt: skip
        out = right_side(t, a, b)
        way = one_of(t, trans, "trans", _WAYS, '0 or "N", 1 or "T", 2 or "C"')
        t.canonical(lower=t.flag(lower, "lower"), trans=way, unit_diagonal=t.flag(unit_diagonal, "unit_diagonal"))
        return out

    def reference(self, a: Any, b: Any, lower: bool, trans: int, unit_diagonal: bool) -> Any:
        a, b, vector = numpy_pair(a, b)
        found = TriangularSolve().reference(a, b, lower, bool(trans), unit_diagonal)
        return found[..., 0] if vector else found

    def decompose(self, g: GraphBuilder, a: Value, b: Value, lower: bool, trans: int, unit_diagonal: bool) -> Value:
        return paired(g, a, b, "triangular_solve", lower, bool(trans), unit_diagonal)


def right_side(t: Infer, a: TensorType, b: TensorType) -> TensorType:
    """The type of y in a y = b, where b of one axis is a vector."""
    demand_square(t, a)
    if b.rank == 1:
        demand_matrices(t, b.with_shape((b.shape[0], 1)), 1)
    else:
        demand_matrices(t, b, 1)
    n, rows = a.shape[-1], b.shape[0 if b.rank == 1 else -2]
    both = f"{shape_text(a.shape)} and {shape_text(b.shape)}"
    t.same(n, rows, "TS203", f"{t.operator} of {both}: the matrix has {n} rows, the right side {rows}", 1)
    dtype = t.promote(a, b)
    if b.rank == 1:
        return TensorType(a.shape[:-1], dtype)
    batch = t.broadcast(a.shape[:-2], b.shape[:-2], batch_of=f"{t.operator} of {both}")
    return TensorType((*batch, *b.shape[-2:]), dtype)


def paired(g: GraphBuilder, a: Value, b: Value, name: str, *attrs: Any) -> Value:
    """Solves for a vector as for a matrix of one column; for many right sides of one matrix as for one with all their
    columns; and with batches that broadcast."""
    shape = tensor(b).shape
    if len(shape) == 1:
        return g.squeeze(paired(g, a, g.unsqueeze(b, -1), name, *attrs), -1)
    if tensor(a).rank == 2 and len(shape) > 2:
        columns = g.reshape(g.moveaxis(b, -2, 0), (shape[-2], count_of(shape) * shape[-1]))
        return g.moveaxis(g.reshape(getattr(g, name)(a, columns, *attrs), (shape[-2], *shape[:-2], shape[-1])), 0, -2)
    batch = Infer("solve", g.facts, g.checks).broadcast(tensor(a).shape[:-2], shape[:-2])
    wide = (g.broadcast_to(v, (*batch, *tensor(v).shape[-2:])) for v in (a, b))
    return getattr(g, name)(*wide, *attrs)


def numpy_pair(a: Any, b: Any) -> tuple[Any, Any, bool]:
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:])), vector
