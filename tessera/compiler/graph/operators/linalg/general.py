"""Systems of equations, inverses and determinants of square matrices, by L U with partial pivoting."""

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
    demand_square,
    diagonal_of,
    each,
    identity,
    keep_matrices,
    turned,
    whole_blocks,
)
from tessera.compiler.graph.operators.linalg.triangular import is_shared, numpy_pair, paired, right_side
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

SINGULAR = "the matrix is singular"


class LuFactor(Operator):
    """L and U of a[order] = L U in one matrix (the diagonal of L is 1 and not stored), `order` [..., N], and its sign.

    The last result is the last block of columns [..., 1, N in whole blocks, block], where the kernel works on each
    block. The pivot of a column is its largest element. The factors are constants to derivatives: what is computed from
    them has rules of its own.
    """

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"
    multiple = True
    differentiable = False

    def infer(self, t: Infer, a: TensorType) -> tuple[TensorType, TensorType, TensorType, TensorType]:
        *batch, n, _ = a.shape
        order = a.with_shape((*batch, n)).with_dtype(dtypes.int32)
        return a, order, a.with_shape((*batch,)), a.with_shape((*batch, 1, whole_blocks(n), BLOCK))

    def reference(self, a: Any) -> Any:
        n = a.shape[-1]
        factors, order, sign, _ = each(_lu, [(n, n), (n,), (), (n,)], a)
        panel = np.zeros((*a.shape[:-2], 1, whole_blocks(n), BLOCK), a.dtype)
        if n:
            last = factors[..., None, :, (n - 1) // BLOCK * BLOCK :]
            panel[..., :n, : last.shape[-1]] = last
        return factors, order.astype(np.int32), sign, panel

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 3 or is_small(operands[0]) or is_shared(operands[0]):
            return None
        return TileKernel("factorizations.lu", "L and U of {0}", config={"BLOCK": BLOCK})

    def decompose(self, g: GraphBuilder, a: Value) -> Any:
        shape = tensor(a).shape
        if 0 in shape[-2:]:
            order = g.full(shape[:-1], 0, dtypes.int32)
            panel = g.full((*shape[:-2], 1, shape[-2], BLOCK), 0, tensor(a).dtype)
            return a, order, g.full(shape[:-2], 1, tensor(a).dtype), panel
        if is_small(tensor(a)):
            factors, order, sign = in_lanes(g, "lu_factor_lanes", [a])
            return factors, order, sign, _last_block(g, factors)
        if is_shared(tensor(a)):
            factors, order, sign, *_ = g.lu_factor_in_steps(a)
            return factors, order, sign, _last_block(g, factors)
        return batched(g, "lu_factor", [a], [2, 1, 0, 3])

    def partition(self, cut: Cut, a: TensorType) -> None:
        keep_matrices(cut, a)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return count_of(operands[0].shape) * n * n * n * 2 // 3


class LuFactorInSteps(Operator):
    """The same for a few large matrices of a known size, which programs share; then the pivot of each column
    [..., N], and memory where the kernel works, [..., 2, N in whole blocks, block]."""

    functions = ()
    methods = ()
    kind = "scan"
    batching = "leading"
    multiple = True
    differentiable = False

    def infer(self, t: Infer, a: TensorType) -> tuple[TensorType, ...]:
        *batch, n, _ = a.shape
        line = a.with_shape((*batch, n))
        pivots, panel = line.with_dtype(dtypes.int64), a.with_shape((*batch, 2, whole_blocks(n), BLOCK))
        return a, line.with_dtype(dtypes.int32), a.with_shape((*batch,)), pivots, panel

    def reference(self, a: Any) -> Any:
        n = a.shape[-1]
        factors, order, sign, pivots = each(_lu, [(n, n), (n,), (), (n,)], a)
        panel = np.zeros((*a.shape[:-2], 2, whole_blocks(n), BLOCK), a.dtype)
        return factors, order.astype(np.int32), sign, pivots.astype(np.int64), panel

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        if operands[0].rank != 3 or not isinstance(n := operands[0].shape[-1], int):
            return None
        steps = -(-n // BLOCK) + 1
        return TileKernel("factorizations.lu_step", "a step to L and U of {0}", config={"BLOCK": BLOCK}, steps=steps)

    def decompose(self, g: GraphBuilder, a: Value) -> Any:
        return batched(g, "lu_factor_in_steps", [a], [2, 1, 0, 1, 3])

    def partition(self, cut: Cut, a: TensorType) -> None:
        keep_matrices(cut, a)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        n = operands[0].shape[-1]
        return count_of(operands[0].shape) * n * n * n * 2 // 3


def _last_block(g: GraphBuilder, factors: Value) -> Value:
    """The last block of columns, as `lu_factor`'s kernel leaves it."""
    shape = tensor(factors).shape
    start = (shape[-1] - 1) // BLOCK * BLOCK
    last = g.slice(factors, (*(0,) * (len(shape) - 1), start), shape)
    return g.unsqueeze(g.pad(last, [(0, 0)] * (len(shape) - 2) + [(0, start + BLOCK - shape[-1])] * 2), -3)


def _lu(x: Any) -> Any:
    out, order, sign, pivots = np.array(x), np.arange(len(x)), 1.0, np.arange(len(x))
    with np.errstate(all="ignore"):
        for j in range(len(x)):
            p = pivots[j] = j + int(np.argmax(np.abs(out[j:, j])))
            if p != j:
                out[[j, p]], order[[j, p]], sign = out[[p, j]], order[[p, j]], -sign
            out[j + 1 :, j] /= 1 if out[j, j] == 0 else out[j, j]
            out[j + 1 :, j + 1 :] -= np.outer(out[j + 1 :, j], out[j, j + 1 :])
    return out, order, sign, pivots


class SolveSquare(Operator):
    """The y of a y = b, or with `trans` of a^T y = b, for a [..., N, N] and b [..., N, K].

    The factors of `a` are found once for all solutions with `a` and its transpose, as derivatives need them: equal
    operators of a program are computed once.
    """

    functions = ()
    methods = ()
    batching = "leading"

    def infer(self, t: Infer, a: TensorType, b: TensorType, trans: bool = False) -> TensorType:
        t.canonical(trans=bool(trans))
        return b

    def reference(self, a: Any, b: Any, trans: bool) -> Any:
        return each(_solve, [b.shape[-2:]], np.swapaxes(a, -1, -2) if trans else a, b)

    def decompose(self, g: GraphBuilder, a: Value, b: Value, trans: bool) -> Value:
        factors, order, *_ = g.lu_factor(a)
        if trans:
            y = g.triangular_solve(factors, b, False, True)
            y = g.triangular_solve(factors, y, True, True, True)
            return _rows(g, y, g.argsort(order, -1))
        y = g.triangular_solve(factors, _rows(g, b, order), True, False, True)
        return g.triangular_solve(factors, y, False)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, a: Value, b: Value, trans: bool) -> tuple[Value, Value]:
        back = g.solve_square(a, ct, not trans)
        pair = (out, back) if trans else (back, out)
        return g.neg(g.matmul(pair[0], turned(g, pair[1]))), back

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Sequence[Value | None], a: Value, b: Value, trans: bool
    ) -> Value:
        of_a, change = tangents
        if of_a is not None:
            moved = g.neg(g.matmul(turned(g, of_a) if trans else of_a, out))
            change = moved if change is None else g.add(change, moved)
        assert change is not None
        return g.solve_square(a, change, trans)


def _rows(g: GraphBuilder, x: Value, order: Value) -> Value:
    """The rows of matrices in another order."""
    at = g.broadcast_to(g.unsqueeze(order, -1), tensor(x).shape)
    return g.take_along_axis(x, at, axis=-2)


def _solve(a: Any, b: Any) -> Any:
    factors, order, *_ = _lu(a)
    y = np.array(b[order])
    n = len(y)
    with np.errstate(all="ignore"):
        for i in range(n):
            y[i] -= factors[i, :i] @ y[:i]
        for i in reversed(range(n)):
            y[i] = (y[i] - factors[i, i + 1 :] @ y[i + 1 :]) / factors[i, i]
    return y


class Solve(Operator):
    """The y of a y = b for square matrices a [..., N, N], and b [N] or [..., N, K]; batches broadcast.

    By L U with partial pivoting. Compiled, a singular matrix gives infinities and NaN; outside of functions it raises
    LaunchError TS501.
    """

    space = "linalg"
    methods = ()
    singular = SINGULAR

    def infer(self, t: Infer, a: TensorType, b: TensorType) -> TensorType:
        return right_side(t, a, b)

    def reference(self, a: Any, b: Any) -> Any:
        a, b, vector = numpy_pair(a, b)
        found = each(_solve, [b.shape[-2:]], a, b)
        return found[..., 0] if vector else found

    def decompose(self, g: GraphBuilder, a: Value, b: Value) -> Value:
        return paired(g, a, b, "solve_square")


class Inv(Operator):
    """The inverses of square matrices x [..., N, N], by L U with partial pivoting.

    Compiled, a singular matrix gives infinities and NaN; outside of functions it raises LaunchError TS501. To multiply
    by an inverse, `solve` is quicker and more accurate.
    """

    space = "linalg"
    methods = ()
    singular = SINGULAR

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        demand_square(t, x)
        return x

    def reference(self, x: Any) -> Any:
        return each(_solve, [x.shape[-2:]], x, np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape))

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        n = tensor(x).shape[-1]
        return g.solve_square(x, identity(g, tensor(x), n, n))

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value) -> tuple[Value]:
        back = turned(g, out)
        return (g.neg(g.matmul(g.matmul(back, ct), back)),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value) -> Value:
        return g.neg(g.matmul(g.matmul(out, tangents[0]), out))


class Det(Operator):
    """The determinants of square matrices x [..., N, N], by L U with partial pivoting; 1 for N = 0.

    The gradient, det(x) x^-T, is not finite where a matrix is singular.
    """

    space = "linalg"
    methods = ()
    batching = "leading"

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        demand_square(t, x)
        return x.with_shape(x.shape[:-2])

    def reference(self, x: Any) -> Any:
        def one(m: Any) -> Any:
            factors, _, sign, _ = _lu(m)
            return sign * np.diagonal(factors).prod()

        return each(one, [()], x)

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        factors, _, sign, _ = g.lu_factor(x)
        return g.mul(sign, g.prod(diagonal_of(g, factors), axis=-1))

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value) -> tuple[Value]:
        return (scaled_inverse(g, x, g.mul(ct, out), True),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value) -> Value:
        return g.mul(out, inner_product(g, scaled_inverse(g, x, None, True), tangents[0]))


class Slogdet(Operator):
    """The sign of the determinants of square matrices x [..., N, N], and the logarithm of their absolute values.

    The determinant is sign * exp(logarithm), and may be too large or too small for a float. Of a singular matrix they
    are 0 and -inf, and the gradient is not finite.
    """

    space = "linalg"
    methods = ()
    batching = "leading"
    multiple = True

    def infer(self, t: Infer, x: TensorType) -> tuple[TensorType, TensorType]:
        demand_square(t, x)
        out = x.with_shape(x.shape[:-2])
        return out, out

    def reference(self, x: Any) -> Any:
        def one(m: Any) -> Any:
            factors, _, sign, _ = _lu(m)
            d = np.diagonal(factors)
            with np.errstate(all="ignore"):
                return sign * np.sign(d).prod(), np.log(np.abs(d)).sum()

        return each(one, [(), ()], x)

    def decompose(self, g: GraphBuilder, x: Value) -> tuple[Value, Value]:
        factors, _, sign, _ = g.lu_factor(x)
        d = diagonal_of(g, factors)
        return g.mul(sign, g.prod(g.sign(d), axis=-1)), g.sum(g.log(g.abs(d)), axis=-1)

    def adjoint(self, g: GraphBuilder, outs: Any, cts: Any, x: Value) -> tuple[Value | None]:
        return (None if cts[1] is None else scaled_inverse(g, x, cts[1], True),)


def scaled_inverse(g: GraphBuilder, x: Value, factor: Value | None, trans: bool) -> Value:
    """x^-1, or with `trans` x^-T, times a number for each matrix."""
    n = tensor(x).shape[-1]
    right = identity(g, tensor(x), n, n)
    if factor is not None:
        right = g.mul(right, g.unsqueeze(g.unsqueeze(factor, -1), -1))
    return g.solve_square(x, right, trans)


def inner_product(g: GraphBuilder, a: Value, b: Value) -> Value:
    return g.sum(g.mul(a, b), axis=(-2, -1))
