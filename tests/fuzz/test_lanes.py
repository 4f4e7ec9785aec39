"""A bounded slice of the random control flow over lanes; `python -m tests.fuzz lanes --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.lanes import check, program
from tests.fuzz.levels import NARROWER


@pytest.mark.parametrize("part", range(4))
def test_control_flow_over_lanes(part: int) -> None:
    for seed in range(1 + 8 * part, 9 + 8 * part):
        check(seed, ("reference", "cpu", *(NARROWER if part == 0 else ())))


def test_in_the_emulator() -> None:
    require("g++")
    check(59, ("emulator:sm_80",))


def test_programs_have_what_they_are_about() -> None:
    texts = "".join(map(program, range(1, 33)))
    for part in ("while", "for", "break", "continue", "else", "return", "z[i]"):
        assert texts.count(part) > 10, part
