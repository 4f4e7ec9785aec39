"""Intervals of medians, pairs of timings, and the ledger of what hints predicted."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from tessera.profiler.trial import ledger
from tessera.profiler.trial.intervals import median_interval
from tessera.profiler.trial.ledger import Entry
from tessera.profiler.trial.outcome import TriedHint
from tessera.profiler.trial.paired import PairedTimes, paired


def test_the_interval_of_a_median_lies_between_samples() -> None:
    found = median_interval(list(range(1, 21)), 0.95)
    assert (found.low, found.middle, found.high) == (6, 10.5, 15)  # as tables of the sign test have it for n = 20
    assert median_interval([3.0, 1.0, 2.0], 0.95).low == -math.inf  # three samples can say nothing at 95 %
    assert median_interval([5.0] * 8).low == median_interval([5.0] * 8).high == 5.0


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_intervals_cover_as_often_as_they_say(confidence: float) -> None:
    random = np.random.default_rng(1)
    for samples in (random.standard_normal((2000, 21)), random.standard_cauchy((2000, 21)),
                    random.exponential(1.0, (2000, 21)) - math.log(2)):  # fmt: skip
        covered = sum(median_interval(row.tolist(), confidence).holds(0.0) for row in samples)
        slack = 3 * math.sqrt(2000 * confidence * (1 - confidence))
        assert covered >= 2000 * confidence - slack


def test_verdicts() -> None:
    def pairs(*ratios: float) -> PairedTimes:
        return PairedTimes(tuple(1.0 for _ in ratios), ratios)

    assert pairs(*[0.5] * 12).verdict == "faster"
    assert pairs(*[1.3] * 12).verdict == "slower"
    assert pairs(*[0.9, 1.1] * 6).verdict == "unclear"  # it may save 10 %
    assert pairs(*[0.95] * 6, *[1.0] * 6).verdict == "unclear"
    assert pairs(*[1.0, 1.1] * 6).verdict == "no gain"  # as wide, and on the other side
    assert pairs(*[0.98] * 12).verdict == "no gain"  # it is so, and not worth an edit
    assert "saves 50.0%" in str(pairs(*[0.5] * 12))


def test_a_hint_whose_interval_is_too_wide_is_not_said_to_gain_nothing() -> None:
    wide, same, quick = (PairedTimes((1.0,) * 12, ratios) for ratios in ((0.9, 1.1) * 6, (1.0,) * 12, (0.5,) * 12))

    def tried(warm: PairedTimes, cold: PairedTimes | None) -> TriedHint:
        return TriedHint("f", "change", (0.0, 0.5), results="equal bits", warm=warm, cold=cold)

    assert str(tried(wide, None)).endswith("\n  unclear: needs more runs, try_it(budget=...)")
    assert {tried(*both).verdict for both in ((wide, same), (same, wide))} == {"unclear"}
    assert {tried(*both).verdict for both in ((wide, quick), (quick, wide))} == {"faster"}
    assert tried(same, same).verdict == "no gain"


def test_sides_take_turns_and_the_first_of_a_pair_alternates() -> None:
    order: list[str] = []

    def side(name: str):
        def run(times: int) -> float:
            order.append(name)
            return 1.0

        return run

    found = paired(side("a"), side("b"), budget=0.0)
    assert "".join(order[4:]) == "abba" * 6
    assert found.verdict == "no gain"


@pytest.fixture
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    return tmp_path / "hints.jsonl"


def outcome(measured: float, rule: str = "small tiles", version: int = 1, program: str = "product") -> Entry:
    return Entry(rule, version, program, "cpu", (0.2, 0.4), (measured - 0.01, measured, measured + 0.01), 1.0)


def test_the_ledger_keeps_what_it_is_given(own_ledger: Path) -> None:
    assert ledger.entries() == []
    assert ledger.record(outcome(0.3)) and ledger.record(outcome(0.7))
    assert ledger.entries() == [outcome(0.3), outcome(0.7)]
    assert [entry.covered for entry in ledger.entries()] == [True, False]
    assert ledger.standings(1) == [ledger.Standing("small tiles", 2, 1, 2)]
    assert ledger.standings(2) == []


def test_a_torn_line_costs_one_outcome(own_ledger: Path) -> None:
    ledger.record(outcome(0.3))
    with own_ledger.open("ab") as file:
        file.write(b'{"rule": "small ti')  # the process died here
    ledger.record(outcome(0.31))
    with own_ledger.open("ab") as file:
        file.write(b'[]\n{"rule": 3}\n\xff\xfe\nnull\n')
    ledger.record(outcome(0.32))
    assert [entry.measured[1] for entry in ledger.entries()] == [0.3, 0.31, 0.32]


def test_the_ledger_is_bounded(own_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LARGEST", 4000)
    monkeypatch.setattr(ledger, "KEPT", 5)
    for i in range(200):
        ledger.record(outcome(i / 1000))
    assert own_ledger.stat().st_size <= 4000 + 300
    assert ledger.entries()[-1].measured[1] == 0.199
    assert [p.name for p in own_ledger.parent.iterdir()] == ["hints.jsonl"]


def _many(folder: str, number: int) -> None:
    import os

    os.environ["TESSERA_CACHE_DIR"] = folder
    for _ in range(50):
        ledger.record(outcome(0.3, program=f"p{number}" * 40))


def test_processes_that_write_at_once_lose_nothing(own_ledger: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_many, args=(str(own_ledger.parent), n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(200)
    assert len(ledger.entries()) == 150
    assert all(json.loads(line) for line in own_ledger.read_text().splitlines() if line)


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert not ledger.record(outcome(0.3))
    assert ledger.entries() == []


def test_a_rule_that_is_often_wrong_is_silent_until_it_is_better(own_ledger: Path) -> None:
    for _ in range(9):
        ledger.record(outcome(0.9))
    assert not ledger.standings(1)[0].silent  # nine are too few
    ledger.record(outcome(0.9))
    assert ledger.standings(1)[0].silent
    for _ in range(24):
        ledger.record(outcome(0.3))
    (standing,) = ledger.standings(1)
    assert (standing.tried, standing.covered, standing.silent) == (30, 24, False)  # 24 of the newest 30: 80 %
    ledger.record(outcome(0.9, rule="tail"))
    assert [s.rule for s in ledger.standings(1)] == ["small tiles", "tail"]


def test_the_times_that_are_shown_are_of_one_pair() -> None:
    """Half of the pairs met a busy machine: medians of the sides would say that nothing is saved."""
    before, after = (100.0, 100.0, 100.0, 200.0, 200.0), (90.0, 90.0, 180.0, 180.0, 180.0)
    pairs = PairedTimes(before, after)
    assert pairs.saved.middle == pytest.approx(0.1)
    assert pairs.usual in set(zip(before, after, strict=True))
    assert 1 - pairs.usual[1] / pairs.usual[0] == pytest.approx(0.1)
    assert str(PairedTimes((2e-6,) * 12, (1e-6,) * 12)).startswith("2.00 µs -> 1.00 µs, saves 50.0%")
