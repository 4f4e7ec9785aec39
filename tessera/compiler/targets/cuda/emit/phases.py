"""Phases of a program: where profiled code reads the clock, and which lines the time between two readings belongs to.

A reading adds the cycles since the last one to a phase, in shared memory; only the first thread's are counted.
Loads that run ahead are waited for where their stage is: that time belongs to the lines of the loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import pairwise
from typing import TypeAlias

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cuda.layouts.groups import is_tile
from tessera.compiler.targets.cuda.write.source import CxxSource
from tessera.immutable import immutable, mutable

LIMIT = 16
"""phases of a kernel"""

COUNTED = "sums over all steps; waiting for plain loads counts where a value is first used"
"""what people are told of the phases"""
WAIT = "wait for loads"
"""until copies into shared memory have landed, for all threads"""
_KINDS = {
    **dict.fromkeys(("load", "gather", "copy_async"), "load"),
    **dict.fromkeys(("store", "scatter"), "store"),
    **dict.fromkeys(("reduce", "scan", "sort", "fold"), "reduce"),
    **dict.fromkeys(("mma", "contract"), "mma"),
    "barrier": "barrier",
    "store_shared": "compute",
}
_NONE = frozenset(("subview", "print", "assert"))


@immutable
class Phase:
    """`lines`: of the kernel's file, in order."""

    kind: str
    lines: tuple[int, ...]

    @property
    def line(self) -> int:
        """0: none is known."""
        return self.lines[0] if self.lines else 0


End: TypeAlias = tuple[int, int, Phase]
"""of a phase: the number of the line behind it, its indentation, what ends"""


@mutable
class PhaseMarks:
    """Where phases begin and end in the text of a kernel, as it is written."""

    source: CxxSource
    file: str
    copies: list[Op]
    """those that no pipeline starts"""
    found: list[tuple[int, int, Phase | None]] = field(default_factory=list["tuple[int, int, Phase | None]"])
    """number of the line from which on it is, its indentation; None: what follows is of the next phase"""
    quiet: int = 0

    def enter(self, kind: str, ops: Iterable[Op]) -> None:
        """What is written next does this, for these ops."""
        lines = {op.span.line for op in ops if op.span.file == self.file and op.span.line > 0}
        self._mark(Phase(kind, tuple(sorted(lines))))

    def begin(self, op: Op) -> None:
        """What is written next is the code of this op. Index arithmetic is part of what stands before it."""
        name = op.name.removeprefix("tile.")
        if name == "alloc_shared" or (op.regions and name != "fold"):
            self.end()
        elif name in _KINDS:
            self.enter(_KINDS[name], (op,))
        elif name not in _NONE and any(map(is_tile, op.results)):
            self.enter("compute", (op,))

    def wait(self, op: Op) -> None:
        """What is written next waits for the copies that were started before this op, and for all threads."""
        self.enter(WAIT if self.copies else "barrier", self.copies or (op,))

    def end(self) -> None:
        """Here a loop or a branch begins or ends: what stands before it is not told together with what follows."""
        self._mark(None)

    def _mark(self, phase: Phase | None) -> None:
        if not self.quiet:
            self.found.append((len(self.source.lines), self.source.indent, phase))

    @contextmanager
    def silent(self) -> Generator[None]:
        """No phase begins inside: one thread alone runs this, or it is part of a phase."""
        self.quiet += 1
        yield
        self.quiet -= 1

    def write(self, room: int) -> list[Phase]:
        """Has the clock read behind each phase, by a statement of its own but for the last, and gives the phases by
        their numbers; none where there would be one, or their sums do not fit into so many bytes of shared memory."""
        ends = _by_kind(self._ends())
        phases = list(dict.fromkeys(phase for _, _, phase in ends))
        if len(phases) < 2 or state_bytes(len(phases)) > room:
            self._add(len(self.source.lines), self.source.indent, "timer.stop();")
            return []
        self._add(len(self.source.lines), self.source.indent, f"timer.stop<{phases.index(ends[-1][2])}>();")
        for at, indent, phase in reversed(ends):
            if at < len(self.source.lines) - 1:
                self._add(at, indent, f"timer.read<{phases.index(phase)}>();")
        return phases

    def _add(self, at: int, indent: int, text: str) -> None:
        self.source.lines.insert(at, "  " * indent + text)
        self.source.spans.insert(at, None)

    def _ends(self) -> list[End]:
        """The phases that have code; neighbours of one kind are one."""
        out: list[End] = []
        last: Phase | None = None
        marks = [*self.found, (len(self.source.lines), self.source.indent, None)]
        for (start, indent, phase), (stop, _, _) in pairwise(marks):
            if phase is None:
                last = None
            elif any(map(_is_code, self.source.lines[start:stop])):
                if last is not None and last.kind == phase.kind:
                    phase = Phase(phase.kind, tuple(sorted({*last.lines, *phase.lines})))
                    out.pop()
                out.append((stop, indent, phase))
                last = phase
        return out


def state_bytes(phases: int) -> int:
    """Of shared memory, for what is known of a program until its end: in pieces as it is given out."""
    return -(-(16 + 4 * phases) // 128) * 128


def _by_kind(ends: Sequence[End]) -> list[End]:
    """All phases of the kinds that have the most of them as one, until there are few enough."""
    phases = list(dict.fromkeys(phase for _, _, phase in ends))
    if len(phases) <= LIMIT:
        return list(ends)
    (kind, _), *_ = Counter(phase.kind for phase in phases).most_common(1)
    whole = Phase(kind, tuple(sorted({line for phase in phases if phase.kind == kind for line in phase.lines})))
    return _by_kind([(at, indent, whole if phase.kind == kind else phase) for at, indent, phase in ends])


def names(phases: Sequence[Phase]) -> list[str]:
    """What the phases of a kernel are called: with their lines where those of a kind would be alike, and where one wait
    is for the loads of several lines."""
    kinds = Counter(phase.kind for phase in phases)
    return [
        f"{p.kind} ({_spelled(p.lines)})" if p.lines and (kinds[p.kind] > 1 or p.kind == WAIT) else p.kind
        for p in phases
    ]


def _spelled(lines: Sequence[int]) -> str:
    if len(lines) > 3:
        return f"lines {lines[0]} to {lines[-1]}"
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"


def _is_code(line: str) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith("//")
