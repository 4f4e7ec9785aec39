"""Forward mode: from the tangents of arguments to those of results.

An operator without a tangent of its own has an adjoint, which is linear in the cotangent: its transpose, found by
reverse mode over the ops of the adjoint, is the tangent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tessera.compiler.autodiff.cotangents import Cotangent, along, by_adjoint
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.autodiff.rules import decomposed, demand_rule, is_empty, reads, refusals_of, rule_of, smooth
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import attributes_of, operator_of, split_operands, tensor
from tessera.compiler.ir.core import Op, Value


class Forward:
    """One forward walk over some ops. `tangents`: those found so far; a value without one does not change."""

    def __init__(self, g: GraphBuilder, tangents: Mapping[Value, Value]) -> None:
        self.g = g
        self.tangents = dict(tangents)

    def walk(self, ops: Sequence[Op]) -> None:
        for op in ops:
            if rule_of(op) != "none" and not self.tangents.keys().isdisjoint(reads(op)):
                with self.g.builder.at(op.span):
                    self.through(op)

    def through(self, op: Op) -> None:
        if is_empty(op):
            return
        demand_rule(op)
        if rule_of(op) == "control":
            REGIONS[op.name](self, op)
            return
        operator = operator_of(op)
        given = [self.tangents.get(v) for v in op.operands]
        if operator.tangent is not None:
            found = operator.tangent(self.g, _result(op), given, *split_operands(op), **attributes_of(op))
            self.keep(op.results, found if operator.multiple else (found,))
        elif operator.adjoint is not None:
            self.keep(op.results, self._transposed(op, given))
        else:
            values, inner = decomposed(self.g, op)
            self.walk(inner)
            self.keep(op.results, [self.tangents.get(v) for v in values])

    def _transposed(self, op: Op, given: Sequence[Value | None]) -> list[Value | None]:
        """The tangents of the results: the adjoint of the adjoint, which does not depend on the cotangents that it is
        taken at."""
        g = self.g
        block = g.builder.block
        cotangents = [g.zeros_like(r) for r in op.results]
        start = len(block.ops)
        operator = operator_of(op)
        if operator.multiple:
            rule: Any = operator.adjoint
            with refusals_of(op):
                parts = along(
                    op, rule(g, tuple(op.results), tuple(cotangents), *split_operands(op), **attributes_of(op))
                )
        else:
            parts = [None if c is None else c.value for c in by_adjoint(g, op, Cotangent(cotangents[0]))]
        seeds = [
            (part, g.to(t, tensor(part).dtype))
            for part, t in zip(parts, given, strict=True)
            if part is not None and t is not None
        ]
        return pull_back(g, block.ops[start:], cotangents, seeds, order=g.builder.origin.order)

    def keep(self, results: Sequence[Value], found: Sequence[Value | None]) -> None:
        for result, tangent in zip(results, found, strict=True):
            if tangent is not None and smooth(result):
                tangent, shape = self.g.to(tangent, tensor(result).dtype), tensor(result).shape
                if tensor(tangent).shape != shape:  # only an operand that was stretched changes
                    tangent = self.g.broadcast_to(tangent, shape)
                self.tangents[result] = tangent


def _result(op: Op) -> Any:
    return tuple(op.results) if operator_of(op).multiple else op.result


Ahead: TypeAlias = Callable[[Forward, Op], None]
REGIONS: dict[str, Ahead] = {}
"""how branches and loops are differentiated"""


def push_forward(
    g: GraphBuilder, ops: Sequence[Op], tangents: Mapping[Value, Value], results: Sequence[Value]
) -> list[Value | None]:
    """The tangents of `results` of `ops`, given those of some values; None where nothing changes it.

    Emits further ops behind `ops`, which stay as they are. Raises CompileError TS353, TS355 at the op through which it
    is not possible.
    """
    ahead = Forward(g, tangents)
    ahead.walk(ops)
    return [ahead.tangents.get(v) for v in results]
