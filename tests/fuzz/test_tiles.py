"""A slice of the fuzzer of tile expressions that is the same in every run."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.fuzz.tiles import BLOCKS, check, random_kernel


@pytest.mark.parametrize("seed", range(60))
def test_tiles_meet_as_numpy_with_explicit_axes(seed: int) -> None:
    check(seed, ("reference",))


@pytest.mark.parametrize("seed", range(100, 110))
def test_on_compiled_targets(seed: int) -> None:
    check(seed, ("cpu",))
    require("g++")
    check(seed, ("emulator:sm_80",), BLOCKS[:1])


def test_both_kinds_are_made() -> None:
    refused = [random_kernel(seed)[1] is None for seed in range(120)]
    assert 5 < sum(refused) < 100
