"""Launches in bands: random launches over random windows run in an order that keeps what each of them reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
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
    step = draw(st.sampled_from([*[PITCH] * 10, PITCH // 2, 0])) if units > 1 else 0
    touched: list[tuple[int, UnitSpan]] = []
    for i in range(draw(st.integers(1, 3))):
        first = at + draw(st.integers(-2 * PITCH, 2 * PITCH)) if i else at
        length = draw(st.integers(1, 2 * PITCH if i else PITCH))
        own = step if i else PITCH * (units > 1)
        touched.append((draw(st.integers(0, 2)), UnitSpan(i, first, first + length, own, i == 0)))
    return CutLaunch(units, 1, tuple(touched))


@given(launches((ROWS,)), st.lists(launches(), min_size=1, max_size=7), st.integers(1, 5), st.integers(1, 50))
def test_whatever_runs_in_bands_runs_after_what_it_needs(
    one: CutLaunch, found: list[CutLaunch], step: int, wanted: int
) -> None:
    chain, units = Chain(0, LIMIT), list[CutLaunch]()
    for unit in (one, *found):
        if chain.add(unit):
            units.append(unit)
    if not units:
        return
    members = positions_from_0(chain.members)
    when = dict[tuple[int, int], tuple[bool, int, int]]()
    """of each unit of each launch: whether it is left between stretches, in which of them it is, and its turn there"""
    for turn, (*which, member, unit) in enumerate(order(members, step, wanted)):
        assert (member, unit) not in when
        when[member, unit] = (*which, turn)
    assert len(when) == sum(m.units for m in members)
    for (late, p), (early, q) in conflicts(units):
        (left, place, turn), (was_left, was, before) = when[late, p], when[early, q]
        assert left >= was_left, "it runs before what is left between stretches"
        if left == was_left:
            assert (place == was) and before < turn, "stretches run at once"


def positions_from_0(members: Sequence[BandedLaunch]) -> list[BandedLaunch]:
    least = min(m.start for m in members)
    return [BandedLaunch(m.units, m.programs, m.start - least, m.late, m.early) for m in members]


def order(members: Sequence[BandedLaunch], step: int, wanted: int) -> Iterator[tuple[bool, int, int, int]]:
    """What the code does that bands.py of the CPU's kernels writes."""
    end = max(m.start + m.units for m in members)
    behind = max(step, *(m.late + m.early for m in members))
    stretches = min(wanted, max(1, end // (APART * behind)))
    length = -(-end // stretches)

    def first(m: BandedLaunch, s: int) -> int:
        return max(0, min(s * length - m.start + m.early, m.units)) if s else 0

    def behind_last(m: BandedLaunch, s: int) -> int:
        return max(0, min((s + 1) * length - m.start - m.late, m.units)) if s + 1 < stretches else m.units

    far = max(m.start + m.units + m.late for m in members)
    for s in range(stretches):
        done = [first(m, s) for m in members]
        for band in range(s * length, far if s + 1 == stretches else (s + 1) * length, step):
            for i, m in enumerate(members):
                to = min(band + step - m.start - m.late, behind_last(m, s))
                yield from ((False, s, i, u) for u in range(done[i], to))
                done[i] = max(done[i], to)
    for s in range(stretches - 1):
        for i, m in enumerate(members):
            yield from ((True, s, i, u) for u in range(behind_last(m, s), first(m, s + 1)))


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
