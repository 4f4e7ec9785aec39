"""A bounded slice of the faults; `python -m tests.fuzz faults --help` makes more of them."""

from __future__ import annotations

import pytest

from tests.fuzz import faults


@pytest.mark.parametrize("part", range(3))
def test_damage_does_no_harm(part: int) -> None:
    said: list[str] = []
    assert faults.run(100, part, "damage", said.append) == 0, "\n".join(said)


COUNTS = {"full": 30, "killed": 2, "short": 2, "little": 1, "met": 1, "interrupted": 2}


@pytest.mark.parametrize("name, count", COUNTS.items())
def test_faults_of_processes_do_no_harm(name: str, count: int) -> None:
    said: list[str] = []
    assert faults.run(count, 1, name, said.append) == 0, "\n".join(said)


def test_a_harmful_fault_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(folder: object) -> None:
        raise AssertionError("another result")

    monkeypatch.setitem(faults.PLACES, "cache", believe)
    monkeypatch.setattr(faults, "prepare", lambda folder: [(folder / name).mkdir() for name in faults.PLACES])
    said: list[str] = []
    assert faults.run(20, 1, "damage", said.append) > 0
    assert any("another result" in text for text in said)
    again = next(text for text in said if "another result" in text).splitlines()[0].split()
    number = int(again[again.index("--first") + 1])
    assert faults.run(1, 1, "damage", said.append, number) == 1, "a fault can be had again alone"
