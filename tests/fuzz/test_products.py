"""A bounded slice of the random products; `python -m tests.fuzz products --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.products import Product, check


@pytest.mark.parametrize("part", range(3))
def test_products_of_all_dtypes(part: int) -> None:
    refused = [check(seed, ("cpu", "reference")) for seed in range(1 + 12 * part, 13 + 12 * part)]
    assert sum(map(bool, refused)) <= 3


@pytest.mark.parametrize("seed", [5, 12])
def test_in_the_emulator(seed: int) -> None:
    require("g++")
    check(seed, ("emulator:sm_80",))


def test_programs_have_what_they_are_about() -> None:
    texts = "".join(Product(seed).text for seed in range(1, 100))
    for part in ("a_scale", "b_scale", "fp4_e2m1", "fp6_e2m3", "fp8_e8m0", "cp_async", "tile_b", ".T", "transpose"):
        assert texts.count(part) > 5, part
