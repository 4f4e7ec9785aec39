"""Reverse mode: from the cotangents of results to those of arguments.

The ops are gone through from the last to the first. Each hands what its results are worth on to its operands: by the
operator's adjoint, else through its decomposition, and through branches and loops as `REGIONS` says. What is recognised
as an operator that is written out goes by the adjoint of that. What is emitted
carries the place of the op that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tessera.compiler.autodiff.cotangents import Cotangent, Cotangents, along, by_adjoint
from tessera.compiler.autodiff.rules import (
    activate,
    active,
    as_written,
    demand_rule,
    in_simpler,
    is_empty,
    refusals_of,
    rule_of,
    smooth,
)
from tessera.compiler.autodiff.written import WrittenRules
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import attributes_of, operator_of, split_operands
from tessera.compiler.graph.recognize import worth_reading
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.phases import phase


class Reverse:
    """One backward walk over some ops. `live`: the values whose cotangents are wanted, and those on the way to them.
    `order`: the order of the derivative that the emitted ops belong to."""

    def __init__(self, g: GraphBuilder, live: set[Value], order: int, simpler: list[Simpler] | None = None) -> None:
        self.g, self.live, self.order = g, live, order
        self.simpler: list[Simpler] = [] if simpler is None else simpler
        """the ops that others stood for"""
        self.cotangents = Cotangents(g)
        self.rules = WrittenRules(g)
        self.reading = False
        self.met: dict[Value, Value] | None = None

    def walk(self, ops: Sequence[Op]) -> None:
        self.reading = self.reading or worth_reading(ops)
        builder = self.g.builder
        with builder.under(replace(builder.origin, order=self.order)):
            for op in reversed(ops):
                found = self.cotangents.pop(op.results)
                if self.met is not None:
                    self.met.update((r, c.value) for r, c in zip(op.results, found, strict=True) if c is not None)
                if any(c is not None and r in self.live for c, r in zip(found, op.results, strict=True)):
                    with builder.at(op.span):
                        self.through(op, found)

    def through(self, op: Op, found: Sequence[Cotangent | None]) -> None:
        if is_empty(op):
            return  # there is nothing that could change
        demand_rule(op)
        if self.reading and (operator := as_written(self.g, op)) is not None:
            self.instead(op, *operator, found)
            return
        match rule_of(op):
            case "control":
                REGIONS[op.name](self, op, [None if c is None else c.value for c in found])
                self.rules = WrittenRules(self.g)  # what the region asserts holds from here on
            case "decompose":
                self.instead(op, *self.rules.emitted("decompose", op, (), lambda: in_simpler(self.g, op)), found)
            case "adjoint" if operator_of(op).multiple:
                self._several(op, found)
            case _:
                (ct,) = found
                assert ct is not None
                parts, _ = self.rules.emitted("adjoint", op, (ct.value, ct.mask), lambda: by_adjoint(self.g, op, ct))
                self.hand_on(op.operands, parts)

    def instead(self, op: Op, values: Sequence[Value], ops: list[Op], found: Sequence[Cotangent | None]) -> None:
        """Through ops that compute the same as `op`."""
        self.simpler.append((op, values, ops))
        activate(ops, self.live)
        for value, ct in zip(values, found, strict=True):
            if ct is not None and smooth(value):
                self.cotangents.add(value, ct)
        self.walk(ops)

    def _several(self, op: Op, found: Sequence[Cotangent | None]) -> None:
        values = tuple(None if c is None else c.value for c in found)
        rule = operator_of(op).adjoint
        assert rule is not None
        with refusals_of(op):
            parts = along(op, rule(self.g, tuple(op.results), values, *split_operands(op), **attributes_of(op)))
        self.hand_on(op.operands, [None if v is None else Cotangent(v) for v in parts])

    def add(self, values: Sequence[Value], found: Sequence[Value]) -> None:
        """Cotangents that are added to those of `values`."""
        self.hand_on(values, list(map(Cotangent, found)))

    def hand_on(self, operands: Sequence[Value], found: Sequence[Cotangent | None]) -> None:
        for x, ct in zip(operands, found, strict=True):
            if ct is not None and x in self.live:
                self.cotangents.add(x, ct)


Simpler: TypeAlias = "tuple[Op, Sequence[Value], list[Op]]"
"""an op, its results as other ops compute them, and these"""
Back: TypeAlias = Callable[[Reverse, Op, Sequence["Value | None"]], None]
REGIONS: dict[str, Back] = {}
"""how branches and loops are differentiated: (reverse, op, the cotangent of each result)"""


def pull_back(
    g: GraphBuilder, ops: Sequence[Op], wanted: Sequence[Value], seeds: Iterable[tuple[Value, Value]],
    onto: Iterable[tuple[Value, Value]] = (), order: int | None = None, simpler: list[Simpler] | None = None,
    met: dict[Value, Value] | None = None,
) -> list[Value | None]:  # fmt: skip
    """The cotangents of `wanted`, given those of results of `ops` (`seeds`); None where nothing depends on it.

    They are added to those that are given for some of `wanted` (`onto`). `simpler` receives the ops in whose place
    others were gone through, `met` the cotangents of the values on the way.

    Emits further ops behind `ops`, which stay as they are; they are of the derivative `order`, by default the one after
    those of `ops`. Raises CompileError TS353, TS355 at the op through which it is not possible.
    """
    if order is None:
        order = 1 + max((op.origin.order for op in ops), default=0)
    back = Reverse(g, active(ops, wanted), order, simpler)
    back.met = met
    for value, ct in onto:
        back.cotangents.of[value] = Cotangent(ct)
    for value, ct in seeds:
        if value in back.live:
            back.cotangents.add(value, Cotangent(ct))
    with phase("derivatives"):
        back.walk(ops)
    return [None if (c := back.cotangents.of.get(v)) is None else c.value for v in wanted]
