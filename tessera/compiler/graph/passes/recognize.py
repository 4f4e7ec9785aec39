"""What is written out in simple operators becomes the operator that it is: attention, which needs no memory for scores.

Derivatives ask `recognized` as well, so that they agree with the pass on what a text means.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import facts_of
from tessera.compiler.graph.passes.eliminate_dead import has_effects
from tessera.compiler.graph.passes.written.attention import PRODUCTS, attention
from tessera.compiler.ir.core import Builder, Op, Value
from tessera.compiler.ir.rewriter import erase_dead

EXPONENTIALS = frozenset(("graph.softmax", "graph.exp"))


def recognize(func: Op) -> None:
    """Replaces the last op of what is recognised, in place, and removes the others."""
    if not worth_reading(func.walk()):
        return
    facts, done = facts_of(func), False
    for op in func.walk():
        if op.block is not None and (found := recognized(GraphBuilder(Builder.before(op), facts), op)) is not None:
            found.hint = found.hint or op.result.hint
            op.result.replace_by(found)
            op.erase()
            done = True
    if done:
        erase_dead(func, has_effects)


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
    return attention(g, op) if op.name in PRODUCTS else None
