"""The computations of layers, without their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.contraction import contract
from tessera.compiler.graph.operators.indexing import taken
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np


class Linear(Operator):
    """x weight^T + bias: features [..., n] to [..., m], with a weight [m, n], as in PyTorch."""

    methods = ()

    def infer(self, t: Infer, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        t.require(x, "float", operand=0)
        if not weight.rank:
            message = "linear takes its weights: a number of features has none, and new ones at each call would learn"
            t.fail(
                "TS213",
                f"{message} nothing; hold nn.Linear(inputs, outputs, key=0) in a module, and call it",
                operand=1,
            )
        if weight.rank != 2 or not x.rank or (bias is not None and bias.rank != 1):
            t.fail("TS213", f"linear needs a weight [m, n] and a bias [m], not {shape_text(weight.shape)}", operand=1)
        n, m = x.shape[-1], weight.shape[0]
        text = f"linear of {shape_text(x.shape)} with a weight {shape_text(weight.shape)}"
        message = f"{text}: {n} and {weight.shape[1]} differ"
        t.same(n, weight.shape[1], "TS203", message, operand=1)
        if bias is not None:
            t.same(m, bias.shape[0], "TS203", f"linear gives {m} features, its bias has {bias.shape[0]}", operand=2)
        return TensorType((*x.shape[:-1], m), t.promote(*(v for v in (x, weight, bias) if v is not None)))

    def reference(self, x: Any, weight: Any, bias: Any) -> Any:
        return np.matmul(x, weight.T) if bias is None else np.matmul(x, weight.T) + bias

    def decompose(self, g: GraphBuilder, x: Value, weight: Value, bias: Value | None) -> Value:
        rows = ascii_uppercase[: tensor(x).rank - 1]
        dtype = tensor(x).dtype
        out = contract(g, g.compute(x), g.compute(weight), rows + "k", "jk", rows + "j")
        return g.to(out if bias is None else g.add(out, g.compute(bias)), dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * operands[0].shape[-1] * 2


class Embedding(Operator):
    """The rows of `weight` at `indices`; a row outside of `weight` reads as 0."""

    apart = ("indices",)

    methods = ()

    def infer(self, t: Infer, indices: TensorType, weight: TensorType) -> TensorType:
        if weight.dtype.is_integer and not indices.dtype.is_integer:
            message = f"embedding takes the indices first and then the weight, and here the first is of {indices.dtype}"
            t.fail("TS301", f"{message}, the second of {weight.dtype}: swap them", operand=0)
        t.require(indices, "integer", operand=0)
        if weight.rank != 2:
            t.fail("TS213", f"embedding needs a weight [rows, features], not {shape_text(weight.shape)}", operand=1)
        return weight.with_shape((*indices.shape, weight.shape[1]))

    def reference(self, indices: Any, weight: Any) -> Any:
        return taken(weight, indices, 0)

    def decompose(self, g: GraphBuilder, indices: Value, weight: Value) -> Value:
        return g.take(weight, indices, axis=0)
