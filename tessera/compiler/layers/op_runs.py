"""Stretches of operators that repeat as layers do, and what the operators of a window read.

An operand is the same in each window (a mask), made of an argument that each window has of its own (a weight), or a
result that lies as many windows away in each of them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.layers.repeats import Stretch, Unequal
from tessera.immutable import immutable, mutable


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


class OpRuns:
    """`base` is the run that says how many layers there are; runs that read what others make are of the same layers.
    `keys`: equal numbers for equal operators."""

    def __init__(
        self, func: Op, found: Sequence[Stretch], keys: Sequence[int], number: dict[Op, int], base: int
    ) -> None:
        self.func, self.block, self.number, self.keys = func, func.region.block, number, keys
        self.arguments = {v: i for i, v in enumerate(self.block.args)}
        self.runs = [OpRun(s) for s in found]
        self.base = self.runs[base]
        self._find_owners()
        list(self._operands(self.base))  # most that repeats by chance ends here
        self._align()
        self.runs = self._related()
        self._find_owners()

    # where windows begin
    def _align(self) -> None:
        """Lets windows begin where those of the base do: a stretch may begin with any of its operators, also in the
        middle of what belongs to a layer."""
        layer: dict[Value, int] = {}
        self._note(self.base, layer, 0, 1)
        others = [run for run in self.runs if run is not self.base]
        known = {run: -sum(v in layer for _, v in self._read(run, 1, 2)) for run in others}
        for run in sorted(others, key=lambda run: known[run]):
            run.at = run.at.later(self.keys, self._uncut(run, layer))
            first, second = (self._layer(run, n, layer) for n in (1, 2))
            if first is not None and second is not None and abs(second - first) == 1:
                self._note(run, layer, 2 * first - second, second - first)
            self._find_owners()
        ends = [0, *(run.at.stop for run in self.runs)]
        self.runs = [run for run, end in zip(self.runs, ends, strict=False) if run.at.start >= end]
        self._find_owners()

    def _read(self, run: OpRun, first: int, stop: int) -> Iterator[tuple[int, Value]]:
        """The arguments that the operators of these windows read, perhaps through others, and results of other runs."""
        start, period = run.at.start, run.at.period
        for i in range(start + first * period, start + stop * period):
            for v in self.block.ops[i].operands:
                if v in self.arguments:
                    yield i, v
                    continue
                n = self.number.get(v.op) if v.op is not None else None
                owner = None if n is None else self.owner[n]
                if owner is None:
                    if (found := self._argument(v)) is not None:
                        yield i, self.block.args[found[0]]
                elif owner is not run:
                    yield i, v

    def _note(self, run: OpRun, layer: dict[Value, int], first: int, step: int) -> None:
        """Notes of which layer that is what one window of a run reads, unless it is known."""
        windows: dict[Value, set[int]] = {}
        for i, v in self._read(run, 0, run.at.count):
            windows.setdefault(v, set()).add((i - run.at.start) // run.at.period)
        for v, found in windows.items():
            if len(found) == 1:
                layer.setdefault(v, first + step * found.pop())

    def _layer(self, run: OpRun, n: int, layer: dict[Value, int]) -> int | None:
        """The layer of most of what a window reads."""
        found = Counter(layer[v] for _, v in self._read(run, n, n + 1) if v in layer)
        return found.most_common(1)[0][0] if found else None

    def _uncut(self, run: OpRun, layer: dict[Value, int]) -> int:
        """How many operators later windows begin, so that none begins between operators that read the same argument, or
        what is of one layer."""
        start, period = run.at.start, run.at.period
        spans: dict[int | Value, list[int]] = {}
        for i, v in self._read(run, 0, 3):
            if v in layer or v in self.arguments:
                spans.setdefault(layer.get(v, v), [i, i])[1] = i
        cut: set[int] = set()
        for first, last in spans.values():
            if start + period <= first < start + 2 * period and last - first < period:
                cut |= {(i - start) % period for i in range(first + 1, last + 1)}
        return next((n for n in range(period) if n not in cut), 0)

    # what repeats
    def place(self, v: Value) -> tuple[OpRun, int, int] | None:
        """The run, window and place in it of the operator that makes a value; None outside of all runs."""
        i = self.number.get(v.op) if v.op is not None else None
        run = self.owner[i] if i is not None else None
        return None if i is None or run is None else (run, *divmod(i - run.at.start, run.at.period))

    def _find_owners(self) -> None:
        self.owner: list[OpRun | None] = [None] * len(self.keys)
        """the run of each operator"""
        for run in self.runs:
            at = run.at
            self.owner[at.start : at.stop] = [run] * (at.stop - at.start)

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
