"""Launches that may run in bands: how far each has to stay behind those before it.

Positions are counted in units along the bands. Each launch begins at one, and so does each buffer, so that what lies at
the same place of two arrays has nearly the same position, whatever their shapes. Unit p of a launch may touch what the
units from p + `lead` to p + `lag` of an earlier one touch, and has to run after these. It then runs after all others
of that launch up to there too.

A small launch that needs rows which are far away, such as the first rows of an array that is rolled, runs last, and so
does what needs it, at both ends of the bands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from tessera.compiler.tile.bands.spans import UnitSpan
from tessera.compiler.tile.program import BandedLaunch
from tessera.immutable import immutable, mutable

FEW = 8
"""units that each view may be as large as of a launch that runs last: one thread computes it"""


@immutable
class MemberAccess:
    """What a unit of a member of the chain touches of a buffer: `UnitSpan` as elements of the buffer. `step` None: the
    launch is a single unit."""

    member: int
    first: int
    behind: int
    step: int | None
    stored: bool


@immutable
class CutLaunch:
    """A launch that could be a member: how its programs are cut, and the buffers that it touches."""

    units: int
    programs: int
    touched: tuple[tuple[int, UnitSpan], ...]

    @property
    def widest(self) -> int:
        """Elements from the first to the last one that a unit touches through one view, at most."""
        return max(span.behind - span.first for _, span in self.touched)

    @property
    def whole(self) -> CutLaunch:
        """The launch as one unit."""
        far = self.units - 1
        touched = tuple((b, replace(s, behind=s.behind + far * s.step, step=0)) for b, s in self.touched)
        return CutLaunch(1, self.units * self.programs, touched)

    def grouped(self, count: int) -> CutLaunch:
        """The launch with so many units as one. The last one may be smaller."""
        if self.units == 1 or count == 1:
            return self
        far = count - 1
        touched = tuple((b, replace(s, behind=s.behind + far * s.step, step=s.step * count)) for b, s in self.touched)
        return CutLaunch(-(-self.units // count), self.programs * count, touched)


@mutable
class Chain:
    """`steps`: elements of each buffer from one unit to the next; `shifts`: the positions at which buffers begin."""

    first: int
    limit: int
    """units that a launch may stay behind"""
    launches: list[CutLaunch] = field(default_factory=list[CutLaunch])
    members: list[BandedLaunch] = field(default_factory=list[BandedLaunch])
    accesses: dict[int, list[MemberAccess]] = field(default_factory=dict[int, list[MemberAccess]])
    steps: dict[int, int] = field(default_factory=dict[int, int])
    shifts: dict[int, int] = field(default_factory=dict[int, int])
    written: set[int] = field(default_factory=set[int])
    """buffers that a member stores"""
    handed: set[int] = field(default_factory=set[int])
    """buffers that one member has stored and another, of several units, reads"""

    @property
    def last(self) -> int:
        return self.first + len(self.members) - 1

    @property
    def end(self) -> int:
        """Where the first launch ends."""
        return self.members[0].units

    def add(self, launch: CutLaunch) -> bool:
        """Makes a launch the next member. False, and nothing is changed, where it cannot be one."""
        steps = self._steps(launch)
        start = self._start(launch, steps) if steps is not None else None
        if steps is None or start is None:
            return False
        late = early = 0
        for before, lead, lag in self._earlier(launch, steps):
            if not before.last:
                late = max(late, before.late + lag + before.start - start)
                early = max(early, before.early - lead - before.start + start)
            else:  # its units from -lag to -lead are among those at one end
                begin, end = start - lead + 1, self.end - start + lag
                late, early = (late, max(early, begin)) if begin <= end else (max(late, end), early)
        last = max(late, early) > self.limit
        if last:
            if launch.units > 1 or launch.widest > FEW * max(steps.values(), default=0):
                return False
            late = early = 0
        self.steps, member = steps, len(self.members)
        for buffer, span in launch.touched:
            if buffer in steps and buffer not in self.shifts:
                self.shifts[buffer] = start - _place(span, launch.units, steps[buffer])
            if span.stored:
                self.written.add(buffer)
            before = self.accesses.setdefault(buffer, [])
            if launch.units > 1 and not span.stored and any(a.stored and a.member != member for a in before):
                self.handed.add(buffer)
            step = span.step if launch.units > 1 else None
            before.append(MemberAccess(member, span.first, span.behind, step, span.stored))
        self.launches.append(launch)
        self.members.append(BandedLaunch(launch.units, launch.programs, start, late, early, last))
        return True

    def with_one_more(self, launch: CutLaunch) -> Chain | None:
        """The chain with a launch more, of which several units may be one, as may several of all others. None where it
        cannot be a member."""
        of_launch, of_others = self._ratio(launch)
        if self.add(launch.grouped(of_launch)) or self.add(launch.whole):
            return self
        coarser = self._coarser(of_others) if of_others > 1 else None
        return coarser if coarser is not None and coarser.add(launch) else None

    def _ratio(self, launch: CutLaunch) -> tuple[int, int]:
        """How many units of a launch are one of the chain, and how many of the chain one of the launch, rounded
        down."""
        for buffer, span in launch.touched:
            own = self.steps.get(buffer, span.step)
            if launch.units > 1 and span.step > 0 and own != span.step:
                return max(own // span.step, 1), max(span.step // own, 1)
        return 1, 1

    def _coarser(self, count: int) -> Chain | None:
        """The chain with so many units as one; None where its launches cannot be members then."""
        new = Chain(self.first, self.limit // count)
        return new if all(new.add(launch.grouped(count)) for launch in self.launches) else None

    def _earlier(self, launch: CutLaunch, steps: dict[int, int]) -> Iterator[tuple[BandedLaunch, int, int]]:
        """The members for whose units a launch's units wait, with `lead` and `lag`."""
        for buffer, span in launch.touched:
            for other in self.accesses.get(buffer, ()):
                before = self.members[other.member]
                if other.stored or span.stored:
                    found = _apart(span, launch.units, other, before.units, steps.get(buffer))
                    if found is not None:
                        yield before, *found

    def _steps(self, launch: CutLaunch) -> dict[int, int] | None:
        """The steps of all buffers, with those of another launch. None where a buffer that is written has several."""
        steps = dict(self.steps)
        written = self.written.union([b for b, s in launch.touched if s.stored])
        for buffer, span in launch.touched:
            step = steps.get(buffer) if launch.units == 1 else span.step
            known = self.accesses.get(buffer, ())
            if buffer in written and (step == 0 or any(a.step not in (None, step) for a in known)):
                return None
            if launch.units > 1 and span.step > 0:
                steps.setdefault(buffer, span.step)
        return steps

    def _start(self, launch: CutLaunch, steps: dict[int, int]) -> int | None:
        """The position at which a launch begins: where the arrays do that it shares with the chain. The first one, of
        several units, begins at 0."""
        for buffer, span in launch.touched:
            if buffer in self.shifts and (launch.units == 1 or span.step == steps[buffer]):
                return _place(span, launch.units, steps[buffer]) + self.shifts[buffer]
        return 0 if not self.members and launch.units > 1 else None


def _place(span: UnitSpan, units: int, step: int) -> int:
    """The unit of a buffer at which a launch's first one begins: for several, that of its middle."""
    return (span.first + span.behind) // (2 * step) if units > 1 else span.first // step


def _apart(span: UnitSpan, units: int, other: MemberAccess, others: int, step: int | None) -> tuple[int, int] | None:
    """(lead, lag) between a launch and an earlier one that touch the same buffer; None where they touch nothing in
    common."""
    if step is None:  # a single unit each
        return (0, 0) if span.first < other.behind and other.first < span.behind else None
    lag = -((other.first - span.behind) // step) - 1
    lead = (span.first - other.behind) // step + 1
    return None if lag < lead or lag + units - 1 < 0 or lead >= others else (lead, lag)
