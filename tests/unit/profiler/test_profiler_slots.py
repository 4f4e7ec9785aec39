"""Rows for intervals: nothing overlaps that must not, and no row more than is needed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tessera.profiler.balance import assign_slots, nesting_lanes, partition_intervals, tile_extents
from tessera.runtime.events import UNASSIGNED, TileBatch, TileEvent

intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=40).map(
    lambda pairs: (np.array([s for s, _ in pairs], np.int64), np.array([s + d for s, d in pairs], np.int64))
)


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


@given(intervals)
def test_rows_never_overlap_and_are_as_few_as_possible(found: tuple[np.ndarray, np.ndarray]) -> None:
    start, end = found
    rows = partition_intervals(start, end)
    spans = list(zip(start.tolist(), end.tolist(), strict=True))
    for i, first in enumerate(spans):
        for j, second in enumerate(spans[:i]):
            assert not (rows[i] == rows[j] and overlap(first, second))
    # An interval of no length still needs a row at its instant, next to those that span it.
    moments = [sum(s <= t < e or s == e == t for s, e in spans) for t in range(60)]
    assert len(set(rows.tolist())) <= max(moments)


@given(intervals)
def test_lanes_nest(found: tuple[np.ndarray, np.ndarray]) -> None:
    start, end = found
    lanes = nesting_lanes(start, end)
    spans = list(zip(start.tolist(), end.tolist(), strict=True))
    for i, (s, e) in enumerate(spans):
        for j, (t, f) in enumerate(spans[:i]):
            if lanes[i] == lanes[j]:
                assert e <= t or f <= s or (s <= t and f <= e) or (t <= s and e <= f)


def test_intervals_that_nest_share_the_first_lane() -> None:
    start, end = np.array([0, 1, 2, 10, 10]), np.array([10, 9, 3, 20, 20])
    assert nesting_lanes(start, end).tolist() == [0, 0, 0, 0, 0]
    assert nesting_lanes(np.array([0, 5]), np.array([10, 15])).tolist() == [0, 1]


def test_the_extent_of_a_tile_spans_its_phases() -> None:
    batch = TileBatch.from_events(
        [
            TileEvent(1, 1, 0, 0, "mma", 20, 30, 2),
            TileEvent(1, 0, 0, 0, "tile", 0, 5, 1),
            TileEvent(1, 1, 0, 0, "load", 10, 15, 1),
        ]
    )
    extents, membership = tile_extents(batch.records)
    assert extents[["tile", "start", "duration"]].tolist() == [(0, 0, 5), (1, 10, 40)]
    assert membership.tolist() == [1, 0, 1]


def test_co_resident_tiles_get_slots_of_their_own_and_recorded_slots_stay() -> None:
    rows = [(0, UNASSIGNED, 0, 10), (0, UNASSIGNED, 5, 10), (0, UNASSIGNED, 10, 5), (1, UNASSIGNED, 0, 9), (1, 0, 0, 9)]
    batch = TileBatch.from_events(
        [TileEvent(1, tile, resource, slot, "tile", s, d, 1) for tile, (resource, slot, s, d) in enumerate(rows)]
    )
    assert assign_slots(batch.records)["slot"].tolist() == [0, 1, 0, 1, 0]


def test_all_phases_of_a_tile_get_the_same_slot() -> None:
    events = [TileEvent(1, t, 0, UNASSIGNED, p, s, 5, 1) for t in (0, 1) for p, s in (("load", 0), ("mma", 5))]
    slots = assign_slots(TileBatch.from_events(events).records)["slot"].tolist()
    assert slots[0] == slots[1] != slots[2] == slots[3]
