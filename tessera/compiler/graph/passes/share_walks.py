"""Cotangents of one attention that one kernel computes, in the place of two that walk the same keys and queries."""

from __future__ import annotations

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import attributes_of, kernel_for, split_operands, tensor
from tessera.compiler.graph.operators.attention.steps import in_one_walk
from tessera.compiler.ir.core import Block, Builder, Op

QUERIES, KEYS = "graph.attention_backward_queries", "graph.attention_backward_keys"


def share_walks(func: Op) -> None:
    """Joins, in place, the cotangents of queries with those of keys and values, where both are read and the operands
    are the same. For targets on which a program for all keys of a head leaves enough of them."""
    for op in func.walk():
        if op.name == QUERIES and (other := _beside(op)) is not None:
            _join(op, other)


def _beside(op: Op) -> Op | None:
    """The cotangents of keys and values from the operands of `op`."""
    q, v = op.operands[0], op.operands[2]
    if kernel_for(op) is None or not in_one_walk(tensor(v)):
        return None
    for other in q.users:
        alike = other.name == KEYS and other.operands == op.operands and other.attrs == op.attrs
        if alike and other.block is op.block and all(r.uses for r in other.results):
            return other
    return None


def _join(op: Op, other: Op) -> None:
    assert op.block is not None
    first = min(op, other, key=op.block.index)
    block = Block()
    g = GraphBuilder(Builder(block, span=op.span, origin=op.origin), at=first)
    dq, dk, dv = g.attention_backward(*split_operands(op), **attributes_of(op))
    found = (g.to(dq, tensor(op.result).dtype), dk, dv)
    at = op.block.index(first)
    for i, new in enumerate(list(block.ops)):
        op.block.insert(at + i, new)
    for result, value in zip((op.result, *other.results), found, strict=True):
        value.hint = value.hint or result.hint
        result.replace_by(value)
    op.erase()
    other.erase()
