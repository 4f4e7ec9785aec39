"""Where derivatives end."""

from __future__ import annotations

from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType


class StopGradient(Operator):
    """`x` itself, but a constant for derivatives: no gradient flows through it."""

    batching = "map"

    differentiable = False
    functions = ("stop_gradient", "detach")
    methods = ("stop_gradient", "detach")

    def infer(self, t: Infer, x: TensorType) -> TensorType:
        return x

    def reference(self, x: Any) -> Any:
        return x

    def partition(self, cut: Cut, x: TensorType) -> None:
        """Each element by itself."""

    def decompose(self, g: GraphBuilder, x: Value) -> Value:
        return g.cast(x, tensor(x).dtype)
