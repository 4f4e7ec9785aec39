"""The launches of a folded function that repeat as its operators do, and what their arguments are in each window.

As for operators: the same buffer in each window (a mask), a parameter of each window's own (a weight), or what is made
as many windows away in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import TypeAlias

from tessera.compiler.layers.fold import Folded
from tessera.compiler.layers.repeats import Stretch, Unequal, numbered, stretches
from tessera.compiler.tile.program import Branch, BufferArg, Launch, Loop, Program, Step
from tessera.immutable import immutable, mutable


@immutable
class WindowBuffer:
    """The buffer that launch `place` of each window is the first to use, as its argument `slot`."""

    run: int
    place: int
    slot: int


@immutable
class FixedBuffer:
    """A buffer that is the same in all windows."""

    buffer: int


@immutable
class OwnBuffer:
    """An argument of a window's own: number `first + step * window` of a chain."""

    chain: int
    first: int
    step: int


@immutable
class NearBuffer:
    """What window `first + step * window` of a run makes; in the outer windows perhaps `before` and `behind`."""

    made: WindowBuffer
    first: int
    step: int
    before: int | None
    behind: int | None


Given: TypeAlias = FixedBuffer | OwnBuffer | NearBuffer


@mutable(eq=False)
class LaunchRun:
    """A stretch of launches, and what the arguments of its windows are; `way`: 1 where it goes through the layers as
    the chains do, -1 where it goes the other way."""

    at: Stretch
    way: int = 0
    slots: dict[tuple[int, int], Given] = field(default_factory=dict[tuple[int, int], Given])


def _buffers(step: Step) -> Iterator[int]:
    match step:
        case Launch():
            yield from (a.buffer for a in step.args if isinstance(a, BufferArg))
        case Branch():
            yield step.cond
            for inner in (*step.then, *step.orelse):
                yield from _buffers(inner)
        case Loop():
            yield from (step.cond, *(b for turned in step.turns for b in turned))
            for inner in (*step.head, *step.body):
                yield from _buffers(inner)


class LaunchRuns:
    """The runs of a Program. Raises Unequal where its launches do not repeat as the operators of `folded` do."""

    def __init__(self, program: Program, folded: Folded) -> None:
        self.before, self.gone, self.folded = program, folded.gone, folded
        self.steps = program.steps
        self.chains = folded.chains
        self.left = [[i for i in chain if i in folded.kept] for chain in folded.chains]
        """of each chain what the program uses"""
        self.input = {b.param: b.id for b in program.buffers if b.role == "input"}
        numbers = {i: (c, n) for c, chain in enumerate(self.left) for n, i in enumerate(chain)}
        self.link = {self.input[i]: at for i, at in numbers.items() if i in self.input}
        """input buffers of the program: their chain, and their place in what is left of it"""
        self.runs: list[LaunchRun] = []
        self.made: dict[int, tuple[WindowBuffer, int]] = {}
        """buffers that a window is the first to use, and the window"""
        self._find()

    def _find(self) -> None:
        keys = numbered([self._key(step) for step in self.steps])
        self.runs = [LaunchRun(s) for s in stretches(keys, self._fits)]
        self._find_made()
        self._find_ways()
        while not all(run.way for run in self.runs):  # what repeats by chance is no layer
            self.runs = [run for run in self.runs if run.way]
            self._find_made()
            self._find_ways()
        if not self.runs:
            raise Unequal
        for run in self.runs:
            for place, slot, column in self._columns(run.at):
                run.slots[place, slot] = self._slot(run, column)
        self._look_outside()

    def _key(self, step: Step) -> object:
        """Equal for launches that differ in the buffers they are given alone."""
        if not isinstance(step, Launch):
            return id(step)
        given = tuple(a.offset if isinstance(a, BufferArg) else a for a in step.args)
        return id(step.code), step.span, step.label, str(step.flops), str(step.bytes), given

    def _columns(self, at: Stretch) -> Iterator[tuple[int, int, list[int]]]:
        """For each argument of a window its place, its number, and the buffers in all windows."""
        for place in range(at.period):
            launches = self.steps[at.start + place : at.stop : at.period]
            rows = [
                [a.buffer if isinstance(a, BufferArg) else -1 for a in x.args]
                for x in launches
                if isinstance(x, Launch)
            ]
            for slot, column in enumerate(zip(*rows, strict=True)):
                if column[0] >= 0:
                    yield place, slot, list(column)

    def _fits(self, at: Stretch) -> bool:
        """Whether windows take the arguments of layers that follow each other, or none of layers."""
        if any(not isinstance(x, Launch) for x in self.steps[at.start : at.stop]):
            return False
        ways: set[int] = set()
        for _, _, column in self._columns(at):
            links = [self.link.get(b) for b in column]
            if all(link is None for link in links) or len({*column}) == 1:
                continue
            way = self._way(links)
            if way is None:
                return False
            ways.add(way)
        return len(ways) <= 1

    def _way(self, links: Sequence[tuple[int, int] | None]) -> int | None:
        """1 for arguments each behind the other in a chain, -1 for each before it, None for others."""
        if any(link is None for link in links):
            return None
        places = [link for link in links if link is not None]
        steps = {b[1] - a[1] for a, b in pairwise(places)}
        return steps.pop() if len({c for c, _ in places}) == 1 and steps in ({1}, {-1}) else None

    def _find_made(self) -> None:
        roles = [b.role for b in self.before.buffers]
        where: dict[int, tuple[int, int, int]] = {}
        for r, run in enumerate(self.runs):
            for i in range(run.at.start, run.at.stop):
                where[i] = r, *divmod(i - run.at.start, run.at.period)
        seen: set[int] = set()
        self.made = {}
        for i, step in enumerate(self.steps):
            for slot, b in enumerate(self._given(step)):
                if b in seen:
                    continue
                seen.add(b)
                if b >= 0 and i in where and roles[b] in ("temp", "output"):
                    r, window, place = where[i]
                    self.made[b] = WindowBuffer(r, place, slot), window

    def _given(self, step: Step) -> list[int]:
        if isinstance(step, Launch):
            return [a.buffer if isinstance(a, BufferArg) else -1 for a in step.args]
        return list(_buffers(step))

    def _find_ways(self) -> None:
        for run in self.runs:
            for _, _, column in self._columns(run.at):
                if len({*column}) > 1 and (way := self._way([self.link.get(b) for b in column])):
                    run.way = way
        for run in self.runs:
            for _, _, column in self._columns(run.at):
                found = [self.made.get(b) for b in column]
                pairs = [(a, b) for a, b in pairwise(found) if a is not None and b is not None]
                for a, b in pairs:
                    other = self.runs[a[0].run]
                    if not run.way and a[0] == b[0] and other.way and abs(b[1] - a[1]) == 1:
                        run.way = other.way * (b[1] - a[1])

    def _slot(self, run: LaunchRun, column: list[int]) -> Given:
        if len({*column}) == 1:
            if column[0] in self.made:
                raise Unequal
            return FixedBuffer(column[0])
        if all(b in self.link for b in column):
            (chain, first), way = self.link[column[0]], self._way([self.link[b] for b in column])
            if way is None:
                raise Unequal
            return OwnBuffer(chain, first if way > 0 else first + self.gone, way)
        found = [self.made.get(b) for b in column]
        inside = [(n, f) for n, f in enumerate(found) if f is not None]
        if not inside:
            raise Unequal
        n, (made, window) = inside[0]
        step = self.runs[made.run].way * run.way
        first = window - step * n
        for k, b in enumerate(column):
            if found[k] is not None and found[k] != (made, first + step * k):
                raise Unequal
            if b in self.link or (found[k] is None and k not in (0, len(column) - 1)):
                raise Unequal
        before, behind = (column[k] if found[k] is None else None for k in (0, -1))
        return NearBuffer(made, first if step > 0 else first + self.gone, step, before, behind)

    def _look_outside(self) -> None:
        """What is not part of a run may use what the last window makes, and the arguments of the outer layers; of the
        first window what it makes where others stand between it and the last."""
        inside = {i for run in self.runs for i in range(run.at.start, run.at.stop)}
        edges = [
            b
            for run in self.runs
            for s in run.slots.values()
            if isinstance(s, NearBuffer)
            for b in (s.before, s.behind)
        ]
        for b in (*(b for i, x in enumerate(self.steps) if i not in inside for b in _buffers(x)), *edges):
            if b is not None:
                self.outside(b)

    def outside(self, b: int) -> int:
        """A buffer that something else than a run uses. Raises Unequal where it belongs to a layer in between."""
        if b in self.link:
            chain, place = self.link[b]
            if 0 < place < len(self.left[chain]) - 1:
                raise Unequal
        if b in self.made:
            self.whole_window(b)
        return b

    def whole_window(self, b: int) -> int:
        """Which window of the whole Program makes what a window here makes, for a reader outside of all runs. Raises
        Unequal where it is not known: of several windows here, one stands for the layers that are gone."""
        made, window = self.made[b]
        way, sides = self.runs[made.run].way, self.before.sides.get(b, ())
        if way * self.folded.number in sides:
            return window
        if -way * self.folded.number in sides:
            return window + self.gone
        raise Unequal
