"""What every test gets: numbers that do not depend on the tests before it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests import generators
from tests.emulator.kernels import normal

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("time", ["first", "second"])
def test_every_test_draws_the_same_numbers(time: str) -> None:
    assert RNG.integers(1000) == np.random.default_rng(5).integers(1000)


def test_functions_of_other_files_draw_them_too() -> None:
    """Their generator does not stand in this file."""
    first = normal(4)
    assert not np.array_equal(normal(4), first)
    generators.rewind(sys.modules[__name__])
    assert np.array_equal(normal(4), first)
