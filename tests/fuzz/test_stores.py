"""A bounded slice of the random kernels that store in place; `python -m tests.fuzz stores --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.levels import NARROWER
from tests.fuzz.stores import Program, check


@pytest.mark.parametrize("part", range(4))
def test_stores_in_place(part: int) -> None:
    refused = [check(seed, ("cpu", *NARROWER[:1])) for seed in range(1 + 50 * part, 51 + 50 * part)]
    assert sum(map(bool, refused)) <= 3


@pytest.mark.parametrize("seed", range(1, 9))
def test_in_the_emulator(seed: int) -> None:
    require("g++")
    check(seed, ("emulator:sm_80", "reference"))


def test_programs_have_what_they_are_about() -> None:
    texts = "".join(Program(seed).text for seed in range(1, 100))
    for part in ("range_k", "if ", ".T", "+= ", "row(", "col(", "ts.tile.sum("):
        assert texts.count(part) > 10, part
