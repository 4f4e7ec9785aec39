"""The Program of a folded function with the launches of all layers.

The launches of a layer are copied as often as layers are missing, each copy with the buffers and parameters that stand
in its place. Where they do not repeat as the operators do, there is no such Program, and the whole function must be
lowered.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from tessera.compiler.ir.core import Op, RenamedCopy
from tessera.compiler.layers.fold import Folded
from tessera.compiler.layers.launch_runs import (
    FixedBuffer,
    Given,
    LaunchRun,
    LaunchRuns,
    NearBuffer,
    OwnBuffer,
    WindowBuffer,
)
from tessera.compiler.layers.repeats import Unequal
from tessera.compiler.tile.program import Branch, Buffer, BufferArg, Launch, Loop, Program, ScalarArg, Step


def unfold(program: Program, folded: Folded) -> Program | None:
    """None where the launches do not repeat as the operators do."""
    try:
        return _Unfolding(program, folded).program()
    except Unequal:
        return None


class _Unfolding:
    """The Program with the windows that were missing. Each run gets its new windows before its last one."""

    def __init__(self, program: Program, folded: Folded) -> None:
        self.old, self.folded, self.gone = program, folded, folded.gone
        self.found = found = LaunchRuns(program, folded)
        self.numbered = re.compile(rf"{re.escape(program.name)}_(\d+)_(.*)")
        self.known: dict[Op, tuple[int, str] | None] = {}
        """the number and the rest of the name of each kernel of the folded program"""
        self.template: dict[tuple[WindowBuffer, int], int] = {}
        """what a window of the folded program makes"""
        for b, at in found.made.items():
            self.template[at] = b
        self.ids: dict[int, int] = {}
        """the numbers that the buffers of the folded program have for steps outside of all runs"""
        self.sides: dict[int, tuple[int, ...]] = {}
        self.new: dict[tuple[WindowBuffer, int], int] = {}
        """those of what the windows of the whole program make"""
        self.buffers = self._numbered()

    def program(self) -> Program:
        steps = tuple(self._steps())
        outputs = tuple(self._outputs())
        states = tuple(self.ids[self.found.input[i]] for i in self.folded.states)
        results = {*outputs}
        if any((b.role == "output") != (b.id in results) for b in self.buffers if b.role in ("temp", "output")):
            raise Unequal
        used = {a.buffer for x in steps for a in (x.args if isinstance(x, Launch) else ()) if isinstance(a, BufferArg)}
        gone = {i for chain in self.folded.chains for i in chain} - self.folded.kept
        if any(self.ids[self.found.input[i]] not in used for i in gone):
            raise Unequal
        return replace(
            self.old, buffers=tuple(self.buffers), steps=steps, outputs=outputs, states=states, sides=self.sides
        )

    def _numbered(self) -> list[Buffer]:
        """All buffers, those of new windows behind those of the window that they are like."""
        rows: list[tuple[tuple[int, int, int], Buffer, tuple[WindowBuffer, int] | None]] = []
        last: dict[tuple[int, int], int] = {}
        for (made, window), b in self.template.items():
            last[made.run, window] = max(last.get((made.run, window), 0), b)
        for b in self.old.buffers:
            made, window = self.found.made.get(b.id, (None, 0))
            if made is None:
                rows.append(((b.id, 0, b.id), b, None))
                continue
            count = self.found.runs[made.run].at.count
            rows.append(((b.id, 0, b.id), b, (made, window if window < count - 1 else window + self.gone)))
            if window == count - 2:
                if not self._alike(b, made, count):
                    raise Unequal
                behind = last[made.run, window]
                rows += [((behind, k, b.id), b, (made, window + k)) for k in range(1, self.gone + 1)]
        rows.sort(key=lambda row: row[0])
        out: list[Buffer] = []
        for i, (_, b, at) in enumerate(rows):
            if at is None:
                self.ids[b.id] = i
            else:
                self.new[at] = i
            name = f"t{i}" if b.name == f"t{b.id}" else b.name
            out.append(Buffer(i, name, b.shape, b.dtype, b.role, b.param, b.data, b.kept))
            if b.id in self.old.sides:
                self.sides[i] = self.old.sides[b.id]
        for b, (made, _) in self.found.made.items():
            with contextlib.suppress(Unequal):  # what only runs use
                self.ids[b] = self.new[made, self.found.whole_window(b)]
        return out

    def _alike(self, b: Buffer, made: WindowBuffer, count: int) -> bool:
        """Whether the other windows make the same. A result may have another shape than a temporary."""
        others = [self.template.get((made, n)) for n in range(count)]
        known = [self.old.buffers[i] for i in others if i is not None]
        same = all(o.dtype == b.dtype and (o.shape == b.shape or o.role != b.role) for o in known)
        return same and len(known) == count

    def _steps(self) -> Iterator[Step]:
        starts = {run.at.start: run for run in self.found.runs}
        shift, i = 0, 0
        while i < len(self.old.steps):
            run = starts.get(i)
            if run is None:
                yield self._outside(self.old.steps[i], shift)
                i += 1
                continue
            count, period = run.at.count, run.at.period
            more = self._names(run)
            for window in range(count + self.gone):
                like = window if window < count - 1 else count - 2 if window < count - 1 + self.gone else count - 1
                for place in range(period):
                    step = self.old.steps[run.at.start + like * period + place]
                    assert isinstance(step, Launch)
                    copies = 0 if like == window else min(window - like, self.gone)
                    yield self._launch(step, run, place, window, shift + copies * more)
            shift += self.gone * more
            i = run.at.stop

    def _launch(self, step: Launch, run: LaunchRun, place: int, window: int, shift: int) -> Launch:
        args = tuple(
            BufferArg(self._buffer(run, run.slots[place, n], window), a.offset) if isinstance(a, BufferArg) else a
            for n, a in enumerate(step.args)
        )
        return self._named(step, args, shift)

    def _buffer(self, run: LaunchRun, slot: Given, window: int) -> int:
        match slot:
            case FixedBuffer():
                return self.ids[slot.buffer]
            case OwnBuffer():
                n = slot.first + slot.step * window
                chain = self.folded.chains[slot.chain]
                if not 0 <= n < len(chain):
                    raise Unequal
                return self.ids[self.found.input[chain[n]]]
            case NearBuffer():
                last = run.at.count + self.gone - 1
                edge = slot.before if window == 0 else slot.behind if window == last else None
                if edge is not None:
                    return self.ids[edge]
                made = self.new.get((slot.made, slot.first + slot.step * window))
                if made is None:
                    raise Unequal
                return made

    def _outputs(self) -> Iterator[int]:
        """The buffers of all results. Of results that windows have, those of the new windows are put between."""
        folded, given = self.folded, dict(zip(self.folded.results, self.old.outputs, strict=True))
        where: dict[int, int] = {}
        for family in folded.families:
            left = [given[k] for k in family if k in given]
            inside = [n for n, b in enumerate(left) if b in self.found.made]
            if len(left) == len(family) or not inside:
                continue
            (made, *others), windows = zip(*(self.found.made[left[n]] for n in inside), strict=True)
            step = 1 if windows[-1] > windows[0] else -1
            follow = windows == tuple(range(windows[0], windows[0] + step * len(windows), step))
            together = len(inside) > 1 and inside[-1] - inside[0] + 1 == len(inside)
            if not (follow and together) or any(other != made for other in others):
                raise Unequal
            first = windows[0] if step > 0 else windows[0] + self.gone
            grown = [self.new[made, first + k * step] for k in range(len(inside) + self.gone)]
            outer = [[self.ids[b] for b in some] for some in (left[: inside[0]], left[inside[-1] + 1 :])]
            all_of_them = [*outer[0], *grown, *outer[1]]
            where.update(zip(family, all_of_them, strict=True))
        for k in range(folded.count):
            if k in where:
                yield where[k]
            elif k in given:
                yield self.ids[self.found.outside(given[k])]
            else:
                raise Unequal

    def _outside(self, step: Step, shift: int) -> Step:
        """A step outside of all runs, by the numbers that its buffers and its kernel have now."""
        match step:
            case Launch():
                args = tuple(
                    BufferArg(self.ids[a.buffer], a.offset) if isinstance(a, BufferArg) else a for a in step.args
                )
                return self._named(step, args, shift)
            case Branch():
                then, orelse = (tuple(self._outside(x, shift) for x in part) for part in (step.then, step.orelse))
                return Branch(self.ids[step.cond], then, orelse)
            case Loop():
                head, body = (tuple(self._outside(x, shift) for x in part) for part in (step.head, step.body))
                turns = tuple(tuple(self.ids[b] for b in turned) for turned in step.turns)
                return Loop(self.ids[step.cond], head, body, turns)

    # names
    def _named(self, step: Launch, args: tuple[BufferArg | ScalarArg, ...], shift: int) -> Launch:
        """The launch with these arguments. Kernels have the numbers and names that they have in the whole function."""
        found, kernel = self._number(step.kernel), step.kernel
        if found is not None:
            name, names = f"{self.old.name}_{found[0] + shift}_{found[1]}"[:60], self._arguments(step, args)
            if (name, names) != (kernel.attrs["sym_name"], kernel.attrs["arg_names"]):
                kernel = RenamedCopy(kernel, name, names)
        return Launch(kernel, args, step.span, step.flops, step.bytes, step.label)

    def _number(self, kernel: Op) -> tuple[int, str] | None:
        if kernel not in self.known:
            found = self.numbered.fullmatch(str(kernel.attrs["sym_name"]))
            self.known[kernel] = (int(found[1]), found[2]) if found else None
        return self.known[kernel]

    def _names(self, run: LaunchRun) -> int:
        """How many kernels are numbered in a window."""
        for i in range(run.at.start, run.at.start + run.at.period):
            here, there = self.old.steps[i], self.old.steps[i + run.at.period]
            assert isinstance(here, Launch) and isinstance(there, Launch)
            a, b = self._number(here.kernel), self._number(there.kernel)
            if a and b:
                return b[0] - a[0]
        return 0

    def _arguments(self, like: Launch, args: Sequence[BufferArg | ScalarArg]) -> tuple[str, ...]:
        """The names of a copy's arguments: after the parameters that it is given in the place of others."""
        names: list[str] = []
        own = cast("tuple[str, ...]", like.kernel.attrs["arg_names"])
        for old, new, name in zip(like.args, args, own, strict=True):
            if isinstance(old, BufferArg) and isinstance(new, BufferArg) and old.buffer in self.found.link:
                hint, now = self.old.buffers[old.buffer].name, self.buffers[new.buffer].name
                if name == hint or (name.startswith(f"{hint}_") and name[len(hint) + 1 :].isdecimal()):
                    name = next(n for n in (now, *(f"{now}_{i}" for i in range(1, len(names) + 2))) if n not in names)
            names.append(name)
        return tuple(names)
