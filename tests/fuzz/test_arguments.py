"""A bounded slice of arguments in odd places; `python -m tests.fuzz arguments --help` runs more of it."""

from __future__ import annotations

import random

import pytest

from tessera import knobs
from tests.conftest import require
from tests.fuzz.arguments import check, shared


@pytest.mark.parametrize("part", range(2))
def test_where_arguments_lie_does_not_matter(part: int) -> None:
    require("torch")
    for seed in range(1 + 2 * part, 3 + 2 * part):
        check(seed, ("cpu", "reference"))


def test_arguments_that_share_memory() -> None:
    with knobs.target.override("cpu"):
        found = [tuple(shared(random.Random(seed), "cpu")) for seed in range(1, 41)]
    assert found.count(("TS507",)) > 5 and found.count(()) > 3
