"""A bounded slice of the random kernels over rows; `python -m tests.fuzz rows --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.rows import Rows, check


@pytest.mark.parametrize("part", range(3))
def test_rows_as_numpy(part: int) -> None:
    for seed in range(1 + 10 * part, 11 + 10 * part):
        assert check(seed, ("reference",)) == []


@pytest.mark.parametrize("seed", [4, 7, 22])
def test_on_compiled_targets(seed: int) -> None:
    check(seed, ("cpu",))
    require("g++")
    check(seed, ("emulator:sm_80",))


def test_programs_have_what_they_are_about() -> None:
    texts = "".join(Rows(seed).text for seed in range(1, 200))
    for part in ("associative_scan((", "reduce((", "reduce_across", "gather", "scatter(", "scatter_add", "uniform",
                 "while", "spread(t, ", "grouped", "persistent"):  # fmt: skip
        assert texts.count(part) > 10, part
