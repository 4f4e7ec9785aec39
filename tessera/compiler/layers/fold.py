"""A function of many equal layers as one of three, in which the first and the last ones are as they were.

Layers are stretches of operators that repeat (`op_runs.py`): forward, in the other direction in the derivative, and in
the update of parameters.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

from tessera.compiler.ir.core import Block, Op, Region, Value, clone
from tessera.compiler.ir.origin import OpOrigin
from tessera.compiler.layers.op_runs import NearOperand, OpRun, OpRuns, OwnOperand
from tessera.compiler.layers.repeats import Numbering, Unequal, long_stretches, numbered
from tessera.immutable import immutable

KEPT = 3
"""windows that stay of each stretch, at least. Kernels reach across layers, so that windows of launches begin
elsewhere, and there is one less of them"""
REPEATED = 5
"""windows of a stretch, at least"""
WORTH = 100
"""operators that must go, or putting launches back costs more than lowering all of them"""


@immutable
class Folded:
    """A function with `gone` windows less in each of its stretches, and what it takes to put them back."""

    func: Op
    gone: int
    number: int
    """of the stack of layers, from 1 on, as the sides of operators' origins have it"""
    chains: tuple[tuple[int, ...], ...]
    """arguments, by number, that windows have of their own: one in each, in the order of the layers"""
    kept: frozenset[int]
    """arguments that the function still uses"""
    results: tuple[int, ...]
    """the results that stayed, by their numbers in the whole function"""
    count: int
    """of results of the whole function, without the states"""
    states: tuple[int, ...]
    """the arguments whose new values the whole function gives last"""
    families: tuple[tuple[int, ...], ...]
    """results of one operator, one of each window, by their numbers in the whole function"""


def fold(func: Op) -> Folded | None:
    """None where nothing repeats, or not enough of it to be worth it."""
    if not {"memory", "scheduler"}.isdisjoint(func.attrs):
        return None
    block = func.region.block
    number_of = Numbering()
    keys = numbered(_key(op, number_of) for op in block.ops)
    found = list(long_stretches(keys, REPEATED))
    if sum((s.count - KEPT) * s.period for s in found) < WORTH:
        return None
    number = {op: i for i, op in enumerate(block.ops)}
    for base in range(len(found)):
        with contextlib.suppress(Unequal):
            return _Fold(func, found, keys, number, base).folded()
    return None


def _key(op: Op, number_of: Numbering) -> Any:
    """Equal for operators that differ in operands alone. Attributes as text: there 0.0 is not -0.0."""
    if op.regions:
        return id(op)
    if len(op.results) == 1:  # most have one: a list for it takes as long as the rest
        (result,) = op.results
        kinds: tuple[Any, ...] = number_of(result.type), result.hint
    else:
        kinds = tuple([x for r in op.results for x in (number_of(r.type), r.hint)])
    origin = op.origin
    within = tuple([section.policy for section in origin.within]) if origin.within else ()
    return (
        op.name, number_of(op.span), kinds, repr(op.attrs) if op.attrs else "", origin.order, origin.again, within
    )  # fmt: skip


class _Fold(OpRuns):
    """The windows that go, and what it takes to put them back."""

    gone = 0

    @cached_property
    def _origins(self) -> dict[tuple[int, int], OpOrigin]:
        """Origins with a side, by those without, which the function's operators hold."""
        return {}

    @cached_property
    def states(self) -> tuple[int, ...]:
        """The arguments whose new values the function gives last."""
        return cast("tuple[int, ...]", self.func.attrs.get("states", ()))

    @cached_property
    def count(self) -> int:
        """How many results there are, without the states."""
        return len(self.block.terminator.operands) - len(self.states)

    def folded(self) -> Folded:
        self._choose()
        going = {i for run in self.runs for i in self._going(run)}
        going |= self._unused(going)
        func, results = self._without(going)
        used = {v for op, i in self.number.items() if i not in going for v in op.operands}
        kept = frozenset(i for v, i in self.arguments.items() if v in used)
        left = tuple(k for k in results if k < self.count)
        families = self._families({*left})
        return Folded(func, self.gone, self._number, self._chains(kept), kept, left, self.count, self.states, families)

    # what goes
    def _choose(self) -> None:
        """As many windows as can go, the same of each run: those of the same layers."""
        periods = sum(run.at.period for run in self.runs)
        most = self.base.at.count - KEPT
        for gone in range(most, max(-(-WORTH // periods), 2) - 1, -1):
            for first in range(1, self.base.at.count - gone):
                self.base.first = first
                if all(self._fits(run, gone) for run in self.runs):
                    self.gone = gone
                    return
        raise Unequal

    def _fits(self, run: OpRun, gone: int) -> bool:
        """Whether the windows of the layers that go are inner ones of a run."""
        if run is not self.base:
            near = next(o for o in run.operands if isinstance(o, NearOperand) and o.run is not run and o.run.way)
            other = near.run
            run.first = other.first - near.first if near.step > 0 else near.first - other.first - gone + 1
        return run.first >= 1 and run.first + gone < run.at.count and gone + KEPT <= run.at.count

    def _going(self, run: OpRun) -> range:
        first = run.at.start + run.first * run.at.period
        return range(first, first + self.gone * run.at.period)

    def _unused(self, going: set[int]) -> set[int]:
        """Operators on arguments whose results only operators `going` read."""
        found: set[int] = set()
        for i in range(min(run.at.start for run in self.runs) - 1, -1, -1):
            results = self.block.ops[i].results
            readers = {self.number.get(user, -1) for r in results for user in r.users}
            if readers and readers <= going | found and self._argument(results[0]) is not None:
                found.add(i)
        return found

    def _without(self, going: set[int]) -> tuple[Op, tuple[int, ...]]:
        """The function without the operators of these numbers, and the results that it still has."""
        body = Block([a.type for a in self.block.args], [a.hint for a in self.block.args])
        known = dict(zip(self.block.args, body.args, strict=True))
        for i, op in enumerate(self.block.ops[:-1]):
            if i in going:
                continue
            instead = {v: known[self._instead(i, k)] for k, v in enumerate(op.operands) if v not in known}
            known |= instead
            new = body.append(clone(op, known))
            new.origin = self._sided(new.origin, self._sides[i])
            for v in instead:
                del known[v]
        end = self.block.terminator
        results = tuple(k for k, v in enumerate(end.operands) if v in known)
        body.append(Op(end.name, [known[end.operands[k]] for k in results], (), end.span, dict(end.attrs)))
        attrs = dict(self.func.attrs)
        if self.states:
            attrs["states"] = tuple(self.states[k - self.count] for k in results if k >= self.count)
        return Op(self.func.name, (), (), self.func.span, attrs, [Region([body])]), results

    @cached_property
    def _number(self) -> int:
        return 1 + max((abs(n) for op in self.block.ops for n in op.origin.sides), default=0)

    @cached_property
    def _sides(self) -> list[int]:
        """Whether each operator belongs to the layers before those that go (1) or to those behind them (-1). What is of
        no layer belongs to those that it reads and that read it; 0 where these are on both sides."""
        found = [0] * len(self.block.ops)
        for run in self.runs:
            for i in range(run.at.start, run.at.stop):
                found[i] = run.way if (i - run.at.start) // run.at.period < run.first else -run.way
        for i, op in enumerate(self.block.ops):
            if self.owner[i] is None:
                near = {found[self.number[v.op]] for v in op.operands if v.op in self.number}
                near |= {found[n] for r in op.results for u in r.users if self.owner[n := self.number[u]] is not None}
                sides = near - {0}
                found[i] = sides.pop() if len(sides) == 1 else 0
        return found

    def _sided(self, origin: OpOrigin, side: int) -> OpOrigin:
        if not side:
            return origin
        if (made := self._origins.get((id(origin), side))) is None:
            made = self._origins[id(origin), side] = replace(origin, sides=(*origin.sides, side * self._number))
        return made

    def _instead(self, i: int, k: int) -> Value:
        """What operator `i` reads in the place of its operand `k`, a result of a window that goes: that of the window
        that is as far away now. Raises Unequal where it reads that window alone."""
        run = next((r for r in self.runs if r.at.start <= i < r.at.stop), None)
        value = self.block.ops[i].operands[k]
        there = self.place(value)
        if run is None or there is None:
            raise Unequal
        window, inside = divmod(i - run.at.start, run.at.period)
        before = sum(len(self.block.ops[run.at.start + n].operands) for n in range(inside))
        near, (other, t, place) = run.operands[before + k], there
        if not isinstance(near, NearOperand) or near.run is not other or t != near.first + near.step * window:
            raise Unequal
        now = window if window < run.first else window - self.gone
        t = near.first + now if near.step > 0 else near.first - self.gone - now
        t += self.gone if t >= other.first else 0
        if not 0 <= t < other.at.count:
            raise Unequal
        return self.block.ops[other.at.start + t * other.at.period + place].results[value.index]

    # what it takes to put it back
    def _chains(self, kept: frozenset[int]) -> tuple[tuple[int, ...], ...]:
        """The arguments that windows have of their own, each behind that of the layer before."""
        after: dict[int, int] = {}
        for run in self.runs:
            for operand in run.operands:
                if isinstance(operand, OwnOperand):
                    for pair in pairwise(operand.arguments):
                        a, b = pair[:: run.way]
                        if -1 not in pair and after.setdefault(a, b) != b:
                            raise Unequal
        behind = {*after.values()}
        chains: list[tuple[int, ...]] = []
        for first in (a for a in after if a not in behind):
            chain = [first]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            away = [n for n, i in enumerate(chain) if i not in kept]
            if not away or away != [*range(away[0], away[0] + self.gone)]:
                raise Unequal
            chains.append(tuple(chain))
        if len(behind) < len(after) or sum(map(len, chains)) != len({*after} | behind):
            raise Unequal
        return tuple(chains)

    def _families(self, kept: set[int]) -> tuple[tuple[int, ...], ...]:
        """Results that one operator gives in each window. Raises Unequal where another one is gone."""
        found: dict[tuple[OpRun, int, int], dict[int, int]] = {}
        for k, v in enumerate(self.block.terminator.operands[: self.count]):
            at = self.place(v)
            if at is None:
                if k not in kept:
                    raise Unequal
            elif found.setdefault((at[0], at[2], v.index), {}).setdefault(at[1], k) != k:
                raise Unequal
        for (run, *_), mine in found.items():
            if len(mine) != run.at.count and any(k not in kept for k in mine.values()):
                raise Unequal
        return tuple(
            tuple(mine[n] for n in range(run.at.count))
            for (run, *_), mine in found.items()
            if len(mine) == run.at.count
        )
