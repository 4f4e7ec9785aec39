"""Counted loops over tensors as while loops that carry their counter: lowering knows one kind of loop."""

from __future__ import annotations

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import while_
from tessera.compiler.graph.operator import facts_of
from tessera.compiler.ir.core import Builder, Op, Value, clone


def for_to_while(func: Op) -> None:
    """Rewrites every `graph.for` inside `func`, inner ones first."""
    for op in reversed(list(func.walk())):
        if op.name == "graph.for":
            _rewrite(op)


def _rewrite(op: Op) -> None:
    lower, upper, step, *initial = op.operands
    g = GraphBuilder(Builder.before(op), facts_of(op))

    def goes_on(counter: Value, *carried: Value) -> Value:
        up = g.logical_and(g.gt(step, 0), g.lt(counter, upper))
        down = g.logical_and(g.lt(step, 0), g.gt(counter, upper))
        return g.logical_or(up, down)

    def body(counter: Value, *carried: Value) -> list[Value]:
        block = op.region.block
        known = dict(zip(block.args, (counter, *carried), strict=True))
        for inner in block.ops[:-1]:
            g.builder.insert(clone(inner, known))
        return [g.add(counter, step), *(known.get(v, v) for v in block.terminator.operands)]

    _, *results = while_(g, [lower, *initial], goes_on, body)
    for old, new in zip(op.results, results, strict=True):
        new.hint = old.hint
        old.replace_by(new)
    op.erase()
