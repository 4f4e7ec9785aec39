"""Asserts over tiles in debug mode: which element of which program does not hold, and its value, on every target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.errors import DebugCheckError
from tests.conftest import require

F = np.float32


@ts.kernel(BLOCK=8)
def lanes(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        v = x[i]
        assert v > 0, "v is positive"
        y[i] = v


@ts.kernel
def blocks(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    b = x[tile_m : tile_m + 8, tile_n : tile_n + 16]
    assert 0 < b  # noqa: SIM300
    ts.tile.debug_assert(ts.tile.max(b) < 50, "the block is small")
    y[tile_m : tile_m + 8, tile_n : tile_n + 16] = b


@ts.kernel
def steps(x: ts.Tensor["M", "N", ts.int32], y: ts.Tensor["M", "N", ts.int32]):
    for k in ts.tile.range_k(0, N, 16):
        b = x[tile_m : tile_m + 8, k : k + 16]
        assert b != y[tile_m : tile_m + 8, k : k + 16], "changed"
        y[tile_m : tile_m + 8, k : k + 16] = b


@ts.kernel
def both(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    b = x[tile_m : tile_m + 8, tile_n : tile_n + 16]
    assert (b > 0) & (b < 50), "within bounds"
    y[tile_m : tile_m + 8, tile_n : tile_n + 16] = b


def with_(value: Any, *place: int, like: Any) -> Any:
    out = like.copy()
    out[place] = value
    return out


ONES, ROW = np.ones((20, 40), F), np.ones(20, F)
COUNT = np.arange(1, 801, dtype=np.int32).reshape(20, 40)
# kernel, arguments, what is said: the first program's first element
FAILING: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "lane": (lanes, (with_(-2.5, 13, like=ROW), ROW), "v is positive\n  Element (5,) of program (1,) is -2.5."),
    "block": (blocks, (with_(-1e20, 11, 37, like=ONES), ONES), "Element (3, 5) of program (1, 2) is -1e+20."),
    "nan": (blocks, (with_(np.nan, 0, 1, like=ONES), ONES), "Element (0, 1) of program (0, 0) is nan."),
    "one number": (blocks, (with_(77, 19, 39, like=ONES), ONES), "small\n  The value in program (2, 2) is 77."),
    "integers": (steps, (COUNT, with_(COUNT[9, 20], 9, 20, like=COUNT * 0)), "Element (1, 4) of program (1,) is 381."),
    "no one value": (both, (with_(60, 8, 0, like=ONES), ONES), "Element (0, 0) of program (1, 0) does not hold."),
}


@pytest.fixture(params=["reference", "cpu", "emulator:sm_80"])
def debugged(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param.startswith("emulator"):
        require("g++")
    with knobs.target.override(request.param), knobs.debug.override("1"):
        yield request.param


@pytest.mark.parametrize("name", FAILING)
def test_the_first_element_that_does_not_hold(debugged: str, name: str) -> None:
    kernel, arrays, said = FAILING[name]
    with pytest.raises(DebugCheckError) as e:
        kernel(*(a.copy() for a in arrays))
    assert e.value.code == "TS506" and said in str(e.value), str(e.value)


def test_nothing_is_claimed_of_padding_and_masked_lanes(debugged: str) -> None:
    """The last blocks reach past the ends: what is read there is 0, and no element."""
    for kernel, x in ((lanes, ROW), (blocks, ONES), (both, ONES)):
        y = np.zeros_like(x)
        kernel(x, y)
        np.testing.assert_array_equal(y, x)


def test_of_several_programs_the_first_is_told(debugged: str) -> None:
    x = with_(-1, 17, 3, like=with_(-2, 9, 35, like=with_(-3, 8, 39, like=ONES)))
    with pytest.raises(DebugCheckError, match=r"Element \(0, 7\) of program \(1, 2\) is -3\."):
        blocks(x, ONES.copy())
