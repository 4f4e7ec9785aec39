"""A bounded slice of arguments in odd places; `python -m tests.fuzz arguments --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.arguments import check


@pytest.mark.parametrize("part", range(2))
def test_where_arguments_lie_does_not_matter(part: int) -> None:
    require("torch")
    for seed in range(1 + 2 * part, 3 + 2 * part):
        check(seed, ("cpu", "reference"))
