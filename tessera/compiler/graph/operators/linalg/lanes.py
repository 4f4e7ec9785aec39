"""Batches of small matrices, whose last axis is that of the batch: one matrix in each lane of a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import REGISTRY, Infer, Operator, TileKernel, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

SMALL, LARGER, MANY = 16, 32, 16
"""rows and columns of a matrix that a lane takes, and those where there are MANY. Larger ones are computed block by
block; a block has as many, so that bits are the same."""
APART, SPARE = 64, 16
"""Rows of so many matrices, or a multiple, would share few places of a cache: so many more are put behind them."""


def is_small(*operands: TensorType) -> bool:
    """Whether these are matrices of a batch with a known and small number of rows and columns."""
    if any(x.rank != 3 for x in operands):
        return False
    count = operands[0].shape[0]
    most = LARGER if isinstance(count, int) and count >= MANY else SMALL
    return all(isinstance(d, int) and 0 < d <= most for x in operands for d in x.shape[1:])


def in_lanes(g: GraphBuilder, name: str, operands: Sequence[Value], *attrs: Any) -> Any:
    """An operator of this file for batches [B, ...]."""
    count = tensor(operands[0]).shape[0]
    if isinstance(count, int) and count % APART == 0:
        operands = [g.pad(v, [(0, SPARE), *[(0, 0)] * (tensor(v).rank - 1)]) for v in operands]
    out = getattr(g, name)(*(g.moveaxis(v, 0, -1) for v in operands), *attrs)
    found = tuple(g.moveaxis(v, -1, 0) for v in (cast("tuple[Value, ...]", out) if isinstance(out, tuple) else (out,)))
    found = tuple(g.slice(v, (0,) * tensor(v).rank, (count, *tensor(v).shape[1:])) for v in found)
    return found if isinstance(out, tuple) else found[0]


class _InLanes(Operator, abstract=True):
    functions = ()
    methods = ()
    kind = "scan"
    batching = "trailing"
    differentiable = False
    """that of the operator over whole batches has the rules"""

    def reference(self, *arrays: Any, **attrs: Any) -> Any:
        whole = REGISTRY[self.name.removesuffix("_lanes")]
        out = whole.reference(*(np.moveaxis(a, -1, 0) for a in arrays), **attrs)
        if not isinstance(out, tuple):
            return np.moveaxis(out, 0, -1)
        return tuple(np.moveaxis(o, 0, -1) for o in cast("tuple[Any, ...]", out))

    def partition(self, cut: Cut, *operands: TensorType, **attrs: Any) -> None:
        for x in operands:
            a = cut.axis(x)
            if a is not None and a < x.rank - 1:
                cut.whole(f"it needs whole matrices, which run along {cut.dim}")

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * operands[0].shape[0]


class CholeskyLanes(_InLanes):
    """`linalg.cholesky` of x [N, N, B]."""

    def infer(self, t: Infer, x: TensorType, upper: bool = False) -> TensorType:
        return x

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        return TileKernel("small_matrices.cholesky", "Cholesky's factors of {0}")


class TriangularSolveLanes(_InLanes):
    """`triangular_solve` of a [N, N, B] and b [N, K, B]."""

    def infer(
        self, t: Infer, a: TensorType, b: TensorType, lower: bool, trans: bool = False, unit: bool = False
    ) -> TensorType:
        return b

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        return TileKernel("small_matrices.solve", "solutions of {0} y = {1}")


class QrLanes(_InLanes):
    """R and reflections of x [M, N, B] in one matrix, the first K columns of Q [M, K, B], and the factors of the
    reflections [min(M, N), B]."""

    multiple = True

    def infer(self, t: Infer, x: TensorType, k: int) -> tuple[TensorType, TensorType, TensorType]:
        m, n, b = x.shape
        return x, x.with_shape((m, k, b)), x.with_shape((dims.dim_min(m, n), b))

    def reference(self, x: Any, k: int) -> Any:
        m, n, b = x.shape
        packed, tri, _ = REGISTRY["qr_factor"].reference(np.moveaxis(x, -1, 0))
        q = REGISTRY["qr_multiply"].reference(
            packed, tri, np.broadcast_to(np.eye(m, k, dtype=x.dtype), (b, m, k)), False
        )
        tau = np.stack([tri[:, i, i % tri.shape[-1]] for i in range(min(m, n))])
        return np.moveaxis(packed, 0, -1), np.moveaxis(q, 0, -1), tau

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        return TileKernel("small_matrices.qr", "Q and R of {0}")


class LuFactorLanes(_InLanes):
    """`lu_factor` of a [N, N, B], without the block of columns."""

    multiple = True

    def infer(self, t: Infer, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        return a, a.with_shape(a.shape[1:]).with_dtype(dtypes.int32), a.with_shape(a.shape[2:])

    def reference(self, *arrays: Any, **attrs: Any) -> Any:
        return super().reference(*arrays, **attrs)[:3]

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        return TileKernel("small_matrices.lu", "L and U of {0}")
