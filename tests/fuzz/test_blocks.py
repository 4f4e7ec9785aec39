"""A bounded slice of the random kernels over blocks of rows; `python -m tests.fuzz blocks --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.blocks import blocks, check
from tests.fuzz.levels import NARROWER


@pytest.mark.parametrize("part", range(3))
def test_blocks_as_functions(part: int) -> None:
    for seed in range(1 + 4 * part, 5 + 4 * part):
        check(seed, ("cpu", *NARROWER, "reference"))


def test_in_the_emulator() -> None:
    require("g++")
    check(4, ("reference", "emulator:sm_80"))


def test_programs_have_what_they_are_about() -> None:
    texts = "".join(blocks(seed).kernel(True) for seed in range(1, 200))
    for part in ("cast(", "where(", "argmax(", "cumsum(", "sort(", "gather(", "for k", "if k", "[:, None]", "bf16"):
        assert texts.count(part) > 4, part
