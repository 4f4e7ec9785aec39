"""What people write out in simple operators, recognised as the operator that it is.

The pass of that name asks, and so do derivatives, which thereby agree on what a text means. Nothing here loads a pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.ir.core import Op, Value

PRODUCTS = frozenset(("graph.contract", "graph.matmul", "graph.einsum", "graph.dot"))
"""ops that may be the last one"""
EXPONENTIALS = frozenset(("graph.softmax", "graph.exp"))


def worth_reading(ops: Iterable[Op]) -> bool:
    """Whether there may be something to recognise. This is all that other programs pay for."""
    products = exponentials = 0
    for op in ops:
        products += op.name in PRODUCTS
        exponentials += op.name in EXPONENTIALS
        if products > 1 and exponentials:
            return True
    return False


def recognized(g: GraphBuilder, op: Op) -> Value | None:
    """What stands for the result of `op`, emitted by `g`; None where it is not the last op of anything known."""
    if op.name not in PRODUCTS:
        return None
    from tessera.compiler.graph.recognize.attention import attention  # slow: most programs have no attention

    return attention(g, op)
