"""A bounded slice of the random subscripts with index tiles; `python -m tests.fuzz gathers --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.gathers import Gathers, check


@pytest.mark.parametrize("part", range(2))
def test_subscripts_as_numpy(part: int) -> None:
    for seed in range(1 + 30 * part, 31 + 30 * part):
        assert check(seed, ("reference",)) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_on_compiled_targets(seed: int) -> None:
    check(seed, ("cpu",))
    require("g++")
    check(seed, ("emulator:sm_80",))


def test_programs_have_what_they_are_about() -> None:
    programs = [Gathers(seed) for seed in range(1, 200)]
    texts = "".join(p.text for p in programs)
    assert all(texts.count(part) > 20 for part in ("[:, None]", "[None, :]", "ids", " % ", "z["))
    assert sum(p.subscript.count("None") > 2 for p in programs) > 20
