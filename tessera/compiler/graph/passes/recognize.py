"""What is written out in simple operators becomes the operator that it is: attention, which stores no scores."""

from __future__ import annotations

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import facts_of
from tessera.compiler.graph.passes.eliminate_dead import has_effects
from tessera.compiler.graph.recognize import recognized, worth_reading
from tessera.compiler.ir.core import Builder, Op
from tessera.compiler.ir.rewriter import erase_dead


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
