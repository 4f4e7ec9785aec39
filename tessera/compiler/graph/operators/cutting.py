"""Where derivatives end, or go another way than values."""

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


class StraightThrough(Operator):
    """The elements of `y`, with the derivatives of `x` converted to their dtype: for what is computed in bits."""

    batching = "leading"
    functions = ()
    methods = ()

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        if x.shape != y.shape:
            t.fail("TS213", f"straight_through takes tensors of one shape, not {x.shape} and {y.shape}", operand=1)
        return y

    def reference(self, x: Any, y: Any) -> Any:
        return y

    def partition(self, cut: Cut, x: TensorType, y: TensorType) -> None:
        """Each element by itself."""

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        return g.cast(y, tensor(y).dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, y: Value) -> tuple[Value, None]:
        return (g.to(ct, tensor(x).dtype), None)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, y: Value) -> Value | None:
        return None if tangents[0] is None else g.to(tangents[0], tensor(y).dtype)


class Recalled(StraightThrough):
    """`x`, which has been computed before as `y`: what is read of it, also by its derivatives, is read from there."""

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        if x.shape != y.shape or x.dtype != y.dtype:
            t.fail("TS213", f"recalled takes two tensors of one type, not {x} and {y}", operand=1)
        return x
