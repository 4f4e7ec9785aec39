"""Bank conflicts of shared tiles, computed from their layout."""

from __future__ import annotations

import pytest

from tessera.compiler.targets.cuda.banks import SharedLayout, degree


def test_degrees_of_plain_accesses() -> None:
    assert degree([4 * lane for lane in range(32)], 4) == 1  # a word to each bank
    assert degree([0] * 32, 4) == 1  # one word for all
    assert degree([8 * lane for lane in range(32)], 4) == 2
    assert degree([128 * lane for lane in range(32)], 4) == 32
    assert degree([16 * lane for lane in range(32)], 16) == 1  # a quarter of the warp at a time
    assert degree([32 * lane for lane in range(32)], 16) == 2


@pytest.mark.parametrize("rows", [16, 32, 64, 128])
@pytest.mark.parametrize("cols", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_16_bit_operands_never_conflict(rows: int, cols: int, left: bool, transposed: bool) -> None:
    layout = SharedLayout(rows, cols, 2)
    assert layout.swizzled and layout.operand_degree(left, transposed) == 1
    assert layout.copy_degree() == 1


@pytest.mark.parametrize("cols", [16, 32, 64, 128])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_32_bit_operands_never_conflict(cols: int, left: bool, transposed: bool) -> None:
    assert SharedLayout(64, cols, 4).operand_degree(left, transposed) == 1
    assert SharedLayout(64, cols, 4).copy_degree() == 1


def test_the_swizzle_is_what_keeps_them_apart() -> None:
    plain = [64 * 2 * row for row in range(8)]  # eight rows of a 64-column f16 tile, unswizzled
    assert degree(plain, 16) == 8
    swizzled = SharedLayout(64, 64, 2)
    assert degree([swizzled.address(row, 0) for row in range(8)], 16) == 1


def test_every_element_has_a_place_of_its_own() -> None:
    for layout in (SharedLayout(16, 64, 2), SharedLayout(16, 16, 4), SharedLayout(8, 24, 2), SharedLayout(8, 10, 4)):
        places = {layout.address(r, c) for r in range(layout.rows) for c in range(layout.cols)}
        assert len(places) == layout.rows * layout.cols
        assert max(places) == (layout.rows * layout.cols - 1) * layout.itemsize
