"""Launches in bands: random launches over random windows run in an order that keeps what each of them reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from tessera.compiler.targets.cpu.kernel.bands import APART
from tessera.compiler.tile.bands.chain import Chain, CutLaunch
from tessera.compiler.tile.bands.spans import UnitSpan
from tessera.compiler.tile.program import BandedLaunch

PITCH, ROWS, LIMIT = 8, 400, 12


@st.composite
def launches(draw: st.DrawFn, sizes: Sequence[int] = (ROWS, ROWS, ROWS - 3, 1, 1)) -> CutLaunch:
    """A launch that stores rows of a buffer, or a part of one of them, and reads windows around the same rows."""
    units = draw(st.sampled_from(sizes))
    at = 0 if units > 1 else draw(st.sampled_from([0, 1, ROWS // 2, ROWS - 1])) * PITCH
    step = draw(st.sampled_from([*[PITCH] * 10, PITCH // 2, 2 * PITCH, 0])) if units > 1 else 0
    if step and units > 1:
        units = units * PITCH // step
    touched: list[tuple[int, UnitSpan]] = []
    for i in range(draw(st.integers(1, 3))):
        first = at + draw(st.integers(-2 * PITCH, 2 * PITCH)) if i else at
        length = draw(st.integers(1, 2 * PITCH if i else PITCH))
        own = step if i or step else PITCH * (units > 1)
        touched.append((draw(st.integers(0, 2)), UnitSpan(i, first, first + length, own, i == 0)))
    return CutLaunch(units, 1, tuple(touched))


@st.composite
def around_the_ends(draw: st.DrawFn) -> CutLaunch:
    """A launch that computes a row at an end from rows at both ends, as the edge of an array that wraps around."""
    touched: list[tuple[int, UnitSpan]] = []
    for i in range(draw(st.integers(2, 4))):
        row = draw(st.integers(0, 2)) + draw(st.booleans()) * (ROWS - 3)
        touched.append((draw(st.integers(0, 2)), UnitSpan(i, row * PITCH, (row + 1) * PITCH, 0, i == 0)))
    return CutLaunch(1, 1, tuple(touched))


STEP, WANTED = st.integers(1, 5), st.integers(1, 50)


@given(launches((ROWS,)), st.lists(launches(), min_size=1, max_size=7), STEP, WANTED)
def test_whatever_runs_in_bands_runs_after_what_it_needs(
    one: CutLaunch, found: list[CutLaunch], step: int, wanted: int
) -> None:
    demand_order([one, *found], step, wanted)


def row(buffer: int, number: int, stored: bool = False) -> tuple[int, UnitSpan]:
    return buffer, UnitSpan(0, number * PITCH, (number + 1) * PITCH, 0, stored)


ROW_BY_ROW = CutLaunch(ROWS, 1, ((0, UnitSpan(0, 0, PITCH, PITCH, True)), (1, UnitSpan(1, 0, PITCH, PITCH, False))))
FAR = CutLaunch(1, 1, (row(1, ROWS - 2, stored=True), row(0, 0), row(0, ROWS - 3)))
NEAR = CutLaunch(1, 1, (row(2, ROWS - 2, stored=True), row(1, ROWS - 2)))


@example(ROW_BY_ROW, [FAR, NEAR], 1, 21)  # 21 stretches of 20 rows would leave none to the last one
@given(
    launches((ROWS,)), st.lists(launches((ROWS, ROWS - 2)) | around_the_ends(), min_size=2, max_size=7), STEP, WANTED
)
def test_so_does_what_is_at_both_ends(one: CutLaunch, found: list[CutLaunch], step: int, wanted: int) -> None:
    demand_order([one, *found], step, wanted)


def demand_order(found: Sequence[CutLaunch], step: int, wanted: int) -> None:
    chain = Chain(0, LIMIT)
    for launch in found:
        chain = chain.with_one_more(launch) or chain
    members, units = chain.members, chain.launches
    if not members:
        return
    when = dict[tuple[int, int], tuple[int, int, int]]()
    """of each unit of each launch: in a stretch, between two of them or at an end, in or behind which, and its turn"""
    for turn, (*which, member, unit) in enumerate(order(members, step, wanted)):
        assert (member, unit) not in when
        when[member, unit] = (*which, turn)
    assert len(when) == sum(m.units for m in members)
    for (late, p), (early, q) in conflicts(units):
        (part, place, turn), (before, was, turned) = when[late, p], when[early, q]
        assert part >= before, "it runs before what is left until later"
        if part == before:
            assert place == was and turned < turn, "stretches run at once"


def order(members: Sequence[BandedLaunch], step: int, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    """What the code does that bands.py of the CPU's kernels writes."""
    end, ring = members[0].units, any(m.last for m in members)
    behind = max(step, *(m.late + m.early for m in members))
    stretches = min(wanted, max(1, end // (APART * behind)))
    length = end // stretches

    def first(m: BandedLaunch, s: int) -> int:
        if m.last:
            return m.units
        return max(0, min(s * length - m.start + m.early, m.units)) if s or ring else 0

    def behind_last(m: BandedLaunch, s: int) -> int:
        if m.last or (s + 1 == stretches and not ring):
            return m.units
        return max(0, min((end if s + 1 == stretches else (s + 1) * length) - m.start - m.late, m.units))

    reached = max(end, *(m.start + m.units + m.late for m in members))
    for s in range(stretches):
        done = [first(m, s) for m in members]
        for band in range(s * length, reached if s + 1 == stretches else (s + 1) * length, step):
            for i, m in enumerate(members):
                to = min(band + step - m.start - m.late, behind_last(m, s))
                yield from ((0, s, i, u) for u in range(done[i], to))
                done[i] = max(done[i], to)
    for s in range(stretches - 1):
        for i, m in enumerate(members):
            yield from ((1, s, i, u) for u in range(behind_last(m, s), first(m, s + 1)))
    for i, m in enumerate(members if ring else ()):
        yield from ((2, 0, i, u) for u in (*range(first(m, 0)), *range(behind_last(m, stretches - 1), m.units)))


def conflicts(units: Sequence[CutLaunch]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Units of two launches, the later one first, that touch one element, to which one of them stores."""
    touching: dict[tuple[int, int], list[tuple[int, int, bool]]] = {}
    for member, unit in enumerate(units):
        for u in range(unit.units):
            for buffer, span in unit.touched:
                for element in range(span.first + span.step * u, span.behind + span.step * u):
                    touching.setdefault((buffer, element), []).append((member, u, span.stored))
    for at_once in touching.values():
        for i, (member, u, stored) in enumerate(at_once):
            for other, v, also in at_once[:i]:
                if member != other and (stored or also):
                    yield (member, u), (other, v)
