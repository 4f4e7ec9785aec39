"""A function of many equal layers as one of three, in which the first and the last ones are as they were.

Layers are stretches of operators that repeat, forward and, in the other direction, in the derivative. An operand of
what repeats is the same in each window (a mask), made of an argument that each window has of its own (a weight), or a
result that lies as many windows away in each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, TypeAlias, cast

from tessera.compiler.ir.core import Block, Op, Region, Value, clone
from tessera.compiler.layers.repeats import Stretch, Unequal, long_stretches, numbered
from tessera.immutable import immutable, mutable

KEPT = 3
"""windows that stay of each stretch, at least"""
WORTH = 100
"""operators that must go, or putting launches back costs more than lowering all of them"""


@immutable
class Folded:
    """A function with `gone` windows less in each of its stretches, and what it takes to put them back."""

    func: Op
    gone: int
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


@immutable
class SameOperand:
    """An operand that is the same in all windows but, perhaps, the outer ones."""

    value: Value


@immutable
class OwnOperand:
    """An operand that is made of an argument of each window's own; -1 in an outer window where it is something else."""

    arguments: tuple[int, ...]


@immutable
class NearOperand:
    """A result in window `first + step * window` of a run. The outer windows may have others."""

    run: OpRun
    first: int
    step: int


Operand: TypeAlias = SameOperand | OwnOperand | NearOperand


@mutable(eq=False)
class OpRun:
    """A stretch of operators and the operands of a window. `way`: 1 where its windows go through the layers as those of
    the base do, -1 where they go the other way, 0 where they have other layers. `first`: the first window that goes."""

    at: Stretch
    operands: list[Operand] = field(default_factory=list[Operand])
    way: int = 0
    first: int = -1


def fold(func: Op) -> Folded | None:
    """None where nothing repeats, or not enough of it to be worth it."""
    if not {"memory", "scheduler"}.isdisjoint(func.attrs):
        return None
    block = func.region.block
    found = list(long_stretches(numbered([_key(op) for op in block.ops]), KEPT + 2))
    if sum((s.count - KEPT) * s.period for s in found) < WORTH:
        return None
    runs = [OpRun(s) for s in found]
    number = {op: i for i, op in enumerate(block.ops)}
    for base in runs:
        with contextlib.suppress(Unequal):
            return _Fold(func, runs, number, base).folded()
    return None


def _key(op: Op) -> Any:
    """Equal for operators that differ in operands alone. Attributes as text: there 0.0 is not -0.0."""
    if op.regions:
        return id(op)
    within = tuple(section.policy for section in op.origin.within)
    kinds = tuple((r.type, r.hint) for r in op.results)
    return op.name, op.span, kinds, repr(op.attrs) if op.attrs else "", op.origin.order, op.origin.again, within


class _Fold:
    """`base` is the run that says how many layers there are; runs that read what others make are of the same layers."""

    def __init__(self, func: Op, runs: list[OpRun], number: dict[Op, int], base: OpRun) -> None:
        self.func, self.block, self.number, self.base = func, func.region.block, number, base
        self.arguments = {v: i for i, v in enumerate(self.block.args)}
        self.runs = runs
        self.runs = self._related()
        self.gone = 0

    def folded(self) -> Folded:
        self._choose()
        going = {i for run in self.runs for i in self._going(run)}
        going |= self._unused(going)
        func, results = self._without(going)
        used = {v for op, i in self.number.items() if i not in going for v in op.operands}
        kept = frozenset(i for v, i in self.arguments.items() if v in used)
        states = cast("tuple[int, ...]", self.func.attrs.get("states", ()))
        count = len(self.block.terminator.operands) - len(states)
        left = tuple(k for k in results if k < count)
        return Folded(func, self.gone, self._chains(kept), kept, left, count, states, self._families({*left}, count))

    # what repeats
    def place(self, v: Value) -> tuple[OpRun, int, int] | None:
        """The run, window and place in it of the operator that makes a value; None outside of all runs."""
        i = self.number.get(v.op) if v.op is not None else None
        if i is not None:
            for run in self.runs:
                if run.at.start <= i < run.at.stop:
                    return run, *divmod(i - run.at.start, run.at.period)
        return None

    def _operands(self, run: OpRun) -> Iterator[Operand]:
        s = run.at
        for inside in range(s.period):
            ops = self.block.ops[s.start + inside : s.stop : s.period]
            for column in zip(*(op.operands for op in ops), strict=True):
                yield self._operand(run, column)

    def _operand(self, run: OpRun, column: Sequence[Value]) -> Operand:
        """What is read in all windows of a run. Raises Unequal where these differ otherwise."""
        inner = column[1:-1]
        if all(v is inner[0] for v in inner):
            return SameOperand(inner[0])
        here = self.place(inner[0])
        if here is None:
            made = [self._argument(v) for v in column]
            first = made[1]
            if first is None or any(m is None or m[1] != first[1] for m in made[1:-1]):
                raise Unequal
            return OwnOperand(tuple(-1 if m is None else m[0] for m in made))
        second = self.place(inner[1])
        step = second[1] - here[1] if second is not None else 0
        for n, v in enumerate(inner):
            at = self.place(v)
            if at is None or at != (here[0], here[1] + n * step, here[2]) or v.index != inner[0].index:
                raise Unequal
        if step not in (1, -1) or (here[0] is run and step < 0):
            raise Unequal
        return NearOperand(here[0], here[1] - step, step)

    def _argument(self, v: Value) -> tuple[int, tuple[Any, ...]] | None:
        """The number of an argument, and which operators it goes through, each by itself, until it is `v`."""
        path: list[Any] = []
        while v not in self.arguments:
            if v.op is None or len(v.op.operands) != 1 or v.op not in self.number or self.place(v) is not None:
                return None
            path.append((v.op.name, v.op.span, v.type, repr(v.op.attrs)))
            v = v.op.operands[0]
        return self.arguments[v], tuple(path)

    def _related(self) -> list[OpRun]:
        """The base and the runs of the same layers, which read what it makes. Raises Unequal where they read of others
        what changes from window to window, or the same of their own."""
        for run in self.runs:
            if not run.operands:
                with contextlib.suppress(Unequal):
                    run.operands = list(self._operands(run))
            run.way, run.first = int(run is self.base), -1
        for run in self.runs:
            near = [o for o in run.operands if isinstance(o, NearOperand) and o.run is not run and o.run.way]
            ways = {o.run.way * o.step for o in near}
            if run is not self.base and len(ways) == 1:
                run.way = ways.pop()
        related = [run for run in self.runs if run.way and run.operands]
        for operand in (o for run in related for o in run.operands):
            if isinstance(operand, NearOperand) and operand.run not in related:
                raise Unequal
            if isinstance(operand, SameOperand) and (at := self.place(operand.value)) and at[0] in related:
                raise Unequal
        if self.base not in related:
            raise Unequal
        return related

    # what goes
    def _choose(self) -> None:
        """As many windows as can go, the same of each run: those of the same layers."""
        periods = sum(run.at.period for run in self.runs)
        for gone in range(min(run.at.count for run in self.runs) - KEPT, -(-WORTH // periods) - 1, -1):
            for first in range(1, self.base.at.count - gone):
                self.base.first = first
                if gone > 1 and all(self._fits(run, gone) for run in self.runs):
                    self.gone = gone
                    return
        raise Unequal

    def _fits(self, run: OpRun, gone: int) -> bool:
        """Whether the windows of the layers that go are inner ones of a run."""
        if run is not self.base:
            near = next(o for o in run.operands if isinstance(o, NearOperand) and o.run is not run and o.run.way)
            other = near.run
            run.first = other.first - near.first if near.step > 0 else near.first - other.first - gone + 1
        return run.first >= 1 and run.first + gone < run.at.count

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
            body.append(clone(op, known))
            for v in instead:
                del known[v]
        end = self.block.terminator
        results = tuple(k for k, v in enumerate(end.operands) if v in known)
        body.append(Op(end.name, [known[end.operands[k]] for k in results], (), end.span, dict(end.attrs)))
        attrs = dict(self.func.attrs)
        if states := cast("tuple[int, ...]", attrs.get("states", ())):
            plain = len(end.operands) - len(states)
            attrs["states"] = tuple(states[k - plain] for k in results if k >= plain)
        return Op(self.func.name, (), (), self.func.span, attrs, [Region([body])]), results

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

    def _families(self, kept: set[int], count: int) -> tuple[tuple[int, ...], ...]:
        """Results that one operator gives in each window. Raises Unequal where another one is gone."""
        found: dict[tuple[OpRun, int, int], dict[int, int]] = {}
        for k, v in enumerate(self.block.terminator.operands[:count]):
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
