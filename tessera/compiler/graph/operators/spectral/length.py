"""Lines of another length."""

from __future__ import annotations

from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class FitLength(Operator):
    """`x` with `n` elements along `axis`: the first of them, or all and zeros behind."""

    batching = "axis"
    methods = ()

    def infer(self, t: Infer, x: TensorType, n: Dim, axis: int = -1) -> TensorType:
        a, count = t.axis(x, axis), t.dim(n, "n")
        if isinstance(count, int) and count < 0:
            t.fail("TS213", f"fit_length gives no fewer elements than 0, unlike {count}")
        t.canonical(n=count, axis=a)
        return x.with_shape((*x.shape[:a], count, *x.shape[a + 1 :]))

    def reference(self, x: Any, n: int, axis: int) -> Any:
        kept = np.take(x, np.arange(min(n, x.shape[axis])), axis)
        widths = [(0, n - kept.shape[axis] if i == axis else 0) for i in range(x.ndim)]
        return np.pad(kept, widths)

    def decompose(self, g: GraphBuilder, x: Value, n: Dim, axis: int) -> Value:
        shape = tensor(x).shape
        kept = dims.dim_min(n, shape[axis])
        if kept != shape[axis]:
            x = g.slice(x, (0,) * len(shape), (*shape[:axis], kept, *shape[axis + 1 :]))
        if kept != n:
            x = g.pad(x, tuple((0, n - kept if i == axis else 0) for i in range(len(shape))))
        return x

    def partition(self, cut: Cut, x: TensorType, n: Dim, axis: int) -> None:
        if cut.axis(x) == axis or cut.mentioned(n):
            cut.whole(f"lines along {cut.dim} get another length")

    def flops(self, operands: Any, results: Any, **attrs: Any) -> Dim:
        return 0
