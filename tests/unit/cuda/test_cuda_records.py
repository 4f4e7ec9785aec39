"""Records of programs, as the first thread of a block writes them, as columns."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tessera.compiler.targets.cuda.call import records

PHASES = [(1, 10), (2, 12), (3, 0)]


def memory(tiles: Sequence[tuple[int, int, Sequence[int]]], phases: int = 3, runs: int = 1) -> bytes:
    """Of programs with these starts, durations and cycles."""
    data = records.HEAD.pack(len(tiles) * runs, runs, len(tiles), phases)
    for _ in range(runs):
        for number, (start, duration, cycles) in enumerate(tiles):
            own = struct.pack("<2Q3I", start, duration, number, number % 2, 7)
            own += struct.pack(f"<{len(cycles)}I", *cycles).ljust(4 * (phases | 1), b"\0")
            assert len(own) == records.record_bytes(phases)
            data += own
    return data


def only(data: bytes, phases: Sequence[Sequence[int]] = PHASES) -> dict[str, Any]:
    (found,) = records.runs(data, phases)
    return found


def test_the_time_of_a_tile_is_divided_by_its_cycles() -> None:
    found = only(memory([(1000, 50_001, (10, 30, 60)), (3000, 80_003, (1, 1, 1))]))
    assert found["tile"].tolist() == [0, 0, 0, 1, 1, 1] and found["resource"].tolist() == [0, 0, 0, 1, 1, 1]
    assert found["phase"].tolist() == [1, 2, 3] * 2 and found["line"].tolist() == [10, 12, 0] * 2
    assert found["duration"][:3].tolist() == [5000, 15_000, 30_001]
    assert found["start"][:3].tolist() == [1000, 6000, 21_000]
    assert found["duration"][3:].sum() == 80_003


def test_a_phase_that_never_was_is_left_out() -> None:
    found = only(memory([(0, 50_000, (10, 0, 10)), (0, 50_001, (0, 0, 10))]))
    assert found["phase"].tolist() == [1, 3, 3] and found["duration"].tolist() == [25_000, 25_000, 50_001]


@pytest.mark.parametrize("step", [32, 1000, 1024])
def test_below_the_steps_of_the_clock_a_tile_is_whole(step: int) -> None:
    """Four steps may be told; what does not show the steps counts as the coarsest clock."""
    tiles = [(0, n * step, (1, 1, 2)) for n in (0, 1, 3, 4, 7)]
    found, first = only(memory(tiles)), round(7 * step / 4)
    assert found["tile"].tolist() == [0, 1, 2, 3, 3, 3, 4, 4, 4]
    assert found["phase"].tolist() == [0, 0, 0, 1, 2, 3, 1, 2, 3] and found["line"].tolist()[:3] == [0, 0, 0]
    assert found["duration"].tolist() == [
        0,
        step,
        3 * step,
        step,
        step,
        2 * step,
        first,
        7 * step // 2 - first,
        7 * step // 2,
    ]
    alone = only(memory([(0, 3000, (1, 1, 2))]))
    assert alone["phase"].tolist() == [0]


def test_beyond_a_round_of_the_counter_a_tile_is_whole() -> None:
    found = only(memory([(0, 999_999_999, (1, 1, 2)), (0, 1_000_000_000, (1, 1, 2))]))
    assert found["phase"].tolist() == [1, 2, 3, 0]


def test_a_kernel_of_one_phase() -> None:
    found = only(memory([(5, 7, (0,)), (6, 100_000, (0,))], phases=0), [])
    assert found["phase"].tolist() == [0, 0] and found["duration"].tolist() == [7, 100_000]
    assert found["start"].tolist() == [5, 6]


def test_runs_have_records_of_their_own() -> None:
    data = memory([(0, 50_000, (1, 1, 2)), (9, 60_000, (1, 1, 2))], runs=3)
    found = list(records.runs(data, PHASES))
    assert len(found) == 3 and all(np.array_equal(found[0][c], f[c]) for f in found for c in f)
    assert records.made(data) == (3, 3) and len(data) == records.size(2, 3, 3)
