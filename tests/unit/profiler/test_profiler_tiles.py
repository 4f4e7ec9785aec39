"""Load balance, occupancy, phases: recordings whose answers are known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.profiler.balance import balance, busy_map, histogram, imbalance_cause, occupancy, phase_stats
from tessera.runtime.events import TileEvent
from tests.profiler.synthetic import batch, launch, tiles


def test_balance_of_two_workers_one_of_which_ends_early() -> None:
    found = balance(launch(), tiles((0, 0, 0, 100), (1, 0, 100, 100), (2, 1, 0, 100)))
    assert found is not None
    assert (found.tiles, found.lanes, found.makespan, found.load) == (3, 2, 200, 300)
    assert found.idle == pytest.approx(0.25)
    assert found.tail == 100
    assert found.tail_idle == pytest.approx(0.25)
    assert found.waves == 1.5
    assert found.wave_loss == pytest.approx(0.25)
    assert found.saving == (25, 50)  # perfect: 150; in halves: at most 150 + (1 - 1/2) * 100 / 2 = 175


def test_lanes_that_the_launch_could_have_used_count_even_when_idle() -> None:
    found = balance(launch(attributes={"resources": 4}), tiles((0, 0, 0, 100)))
    assert found is not None
    assert found.lanes == 4
    assert found.idle == pytest.approx(0.75)
    assert found.tail == 100


def test_no_records_no_balance() -> None:
    assert balance(launch(), tiles()) is None


def uniform(count: int, lanes: int, duration: int = 100) -> list[tuple[int, int, int, int]]:
    return [(i, i % lanes, i // lanes * duration, duration) for i in range(count)]


@pytest.mark.parametrize(
    ("rows", "attributes", "cause"),
    [
        (uniform(3, 3), {"resources": 8}, "underfilled"),
        (uniform(9, 4), {}, "wave quantisation"),
        ([*uniform(8, 4), (8, 0, 200, 900)], {}, "tail"),
        ([(0, 0, 0, 100), (1, 0, 100, 150), (2, 0, 250, 100), (3, 1, 0, 150)], {}, "imbalance"),
    ],
)
def test_causes_of_idle_lanes(rows: list[tuple[int, int, int, int]], attributes: dict[str, int], cause: str) -> None:
    records = tiles(*rows)
    found = balance(launch(attributes=attributes), records)
    assert found is not None
    assert imbalance_cause(found, records) == cause


def test_perfect_balance_saves_nothing() -> None:
    found = balance(launch(), tiles(*uniform(8, 4)))
    assert found is not None
    assert found.idle == 0
    assert found.saving == (0, 0)


def test_occupancy_is_a_step_function() -> None:
    times, counts = occupancy(tiles((0, 0, 0, 10), (1, 1, 5, 10), (2, 0, 10, 10)).records)
    assert times.tolist() == [0, 5, 10, 15, 20]
    assert counts.tolist() == [1, 2, 2, 1, 0]


def test_phase_statistics() -> None:
    events = [TileEvent(1, i, 0, 0, phase, 0, d, 1) for i, (phase, d) in enumerate([("a", 1), ("b", 10), ("a", 3)])]
    long, short = phase_stats(batch(events))
    assert (long.phase, long.count, long.total) == ("b", 1, 10)
    assert (short.phase, short.count, short.total, short.mean, short.longest) == ("a", 2, 4, 2.0, 3)


def test_histogram_counts_tiles_not_phases() -> None:
    events = [TileEvent(1, 0, 0, 0, "load", 0, 5, 1), TileEvent(1, 0, 0, 0, "mma", 5, 5, 1)]
    counts, edges = histogram(batch(events).records, bins=4)
    assert counts.sum() == 1
    assert edges[0] <= 10 <= edges[-1]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90), st.integers(0, 30)), max_size=20),
    st.sampled_from([1, 7, 60]),
)
def test_the_busy_map_loses_no_time(rows: list[tuple[int, int, int]], bins: int) -> None:
    records = tiles(*[(i, r, s, d) for i, (r, s, d) in enumerate(rows)]).records
    found = busy_map(records, records["resource"].astype(np.int64), 4, 0, 120, bins)
    expected = [sum(d for r, _, d in rows if r == resource) for resource in range(4)]
    assert found.sum(axis=1) * 120 / bins == pytest.approx(expected)
    brute = np.array([[sum(s <= t < s + d for r, s, d in rows if r == row) for t in range(120)] for row in range(4)])
    if 120 % bins == 0:
        assert found == pytest.approx(brute.reshape(4, bins, -1).mean(axis=2))
