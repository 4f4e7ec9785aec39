"""Operators in terms of simpler ones, down to the structural kinds that lowering knows."""

from __future__ import annotations

from collections.abc import Container
from typing import cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import (
    BY_OP,
    attributes_of,
    kernel_for,
    split_operands,
    tensor,
)
from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.ir.spec import demand


def decompose(func: Op, keep: Container[str] = (), kernels: bool = False) -> None:
    """Replaces every op whose operator has a decomposition by simpler ones, in place. Operators named in `keep` stay,
    and with `kernels` those that a kernel written in tiles computes."""
    for op in func.walk():
        if op is not func and op.block is not None:
            expand(op, keep, kernels)


def expand(op: Op, keep: Container[str] = (), kernels: bool = False) -> None:
    """Replaces one op, and then the ops that replace it, until only primitives are left."""
    operator = BY_OP.get(op.name)
    if operator is None or operator.name in keep or (kernels and kernel_for(op) is not None):
        return
    assert op.block is not None
    block = Block()
    g = GraphBuilder(Builder(block, span=op.span, origin=op.origin), at=op)
    found = _nothing(g, op)
    if found is None and operator.decompose is not None:
        found = operator.decompose(g, *split_operands(op), **attributes_of(op))
    if found is None:
        return
    values = cast("tuple[Value, ...]", found if isinstance(found, tuple) else (found,))
    at = op.block.index(op)
    new = list(block.ops)
    for i, inner in enumerate(new):
        op.block.insert(at + i, inner)
    for result, value in zip(op.results, values, strict=True):
        demand(tensor(value).dtype == tensor(result).dtype, op, f"decomposes to {value.type} instead of {result.type}")
        value.hint = value.hint or result.hint
        result.replace_by(value)
    op.erase()
    for inner in new:
        expand(inner, keep, kernels)


def _nothing(g: GraphBuilder, op: Op) -> tuple[Value, ...] | None:
    """Results without elements need no computing, and some decompositions have no meaning for them: softmax starts
    with a maximum, which no elements have."""
    types = [tensor(r) for r in op.results]
    if op.name == "graph.full" or not types or any(0 not in t.shape for t in types):
        return None
    return tuple(g.full(t.shape, 0, t.dtype) for t in types)
