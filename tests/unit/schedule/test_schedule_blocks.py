"""How much of each axis one program takes: the choices that speed rests on, and what must hold for any of them."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tessera.compiler.schedule.blocks import (
    contract_block,
    diagonal_block,
    grid,
    map_block,
    part_block,
    row_block,
    sizes_for,
)
from tessera.language.dims import Dim, symbol

SHAPES = st.lists(st.integers(0, 5000), min_size=1, max_size=4).map(tuple)
DEVICES = st.sampled_from(["cpu", "cuda"])


@pytest.mark.parametrize(
    ("dims", "units", "block"),
    [
        ((4096, 4096), {1}, (4, 4096)),  # rows, whole
        ((4096, 4096), {0, 1}, (128, 128)),  # a transposition: both sides by the line
        ((3, 100_000), {0, 1}, (3, 5461)),  # what a short axis leaves goes to the long one
        ((100_000, 3), {0, 1}, (5461, 3)),
        ((512, 5, 512), {0, 2}, (128, 1, 128)),
        ((symbol("M"), symbol("N")), {0, 1}, (128, 128)),
    ],
)
def test_blocks_of_elementwise_groups(dims: tuple[Dim, ...], units: set[int], block: tuple[int, ...]) -> None:
    assert map_block(dims, "cpu", units) == block


@pytest.mark.parametrize(
    ("dims", "inner", "block"),
    [
        ((4096, 4096), (False, True), (2, 4096)),
        ((4096, 4096), (True, False), (4096, 1024)),  # long pieces of every row ...
        ((1024, 1024), (True, False), (1024, 256)),  # ... as long as there are four programs
        ((4096, 8, 512), (False, True, False), (2, 8, 512)),  # the leading axis gives programs enough
        ((4096, 8, 8192), (False, True, False), (1, 8, 1024)),
        ((symbol("M"), symbol("N")), (True, False), (symbol("M"), 256)),
    ],
)
def test_blocks_of_reductions(dims: tuple[Dim, ...], inner: tuple[bool, ...], block: tuple[Dim, ...]) -> None:
    assert row_block(dims, inner, "cpu") == block


def test_blocks_of_batches_of_dot_products() -> None:
    cpu = sizes_for("cpu")
    assert cpu.diagonals and not sizes_for("cuda").diagonals, "lanes are what they are for"
    assert [diagonal_block(n, cpu) for n in (0, 2, 100, 10_000, symbol("N"))] == [1, 2, 32, 512, 512]


def test_blocks_of_rows_of_nearly_one_length() -> None:
    """Launches that hand them to each other have the same rows in a program."""
    assert [map_block((4096, n), "cpu") for n in (511, 512, 513)] == [(32, 511), (32, 512), (32, 513)]
    assert part_block((32, 511), (4096, 511), [513], "cpu") == (32, 511)
    assert map_block((4096, 300), "cuda") == (3, 300)


@given(SHAPES, st.sets(st.integers(0, 3)), DEVICES)
def test_any_elementwise_block_covers_its_space(dims: tuple[int, ...], units: set[int], device: str) -> None:
    block = map_block(dims, device, {a for a in units if a < len(dims)})
    assert all(1 <= b <= max(1, d) for b, d in zip(block, dims, strict=True))
    s = sizes_for(device)
    assert prod(block) <= s.elements * (2**0.5 if s.band else 1), "the nearest power of two of rows"
    assert all(n * b >= d for n, b, d in zip(grid(dims, block), block, dims, strict=True))  # type: ignore[operator]


@given(SHAPES, st.lists(st.booleans(), min_size=4, max_size=4), DEVICES)
def test_any_row_block_keeps_what_is_reduced_whole(dims: tuple[int, ...], inner: list[bool], device: str) -> None:
    kinds = tuple(inner[: len(dims)])
    block = row_block(dims, kinds, device)
    for d, b, whole in zip(dims, block, kinds, strict=True):
        assert b == d if whole else 1 <= b <= max(1, d)  # type: ignore[operator]


@given(st.integers(112, 3000), st.integers(9, 3000), st.sampled_from([1, 2, 3, 48, symbol("B")]))
@example(407, 2817, 1)  # columns for eight programs would be just above a multiple of 32
@example(487, 2266, 3)
@example(254, 1056, 2)
@example(365, 2049, 1)
@example(150, 38, 2)
@example(117, 494, 3)
@example(155, 20, 3)
def test_a_product_is_shared_evenly_and_packs_little(m: int, n: int, batch: Dim) -> None:
    """As much as sharing out rows alone would pack is the most; no program has much less to do than the others."""
    rows, columns = contract_block(m, n, "cpu", batch=batch, k=500)
    down, across = -(-m // rows), -(-n // columns)
    assert rows <= 518 and columns <= 512 and 28 * (down - 1) < m and 32 * (across - 1) < n, "two panels of rows"
    assert down * across * (batch if isinstance(batch, int) else 1) >= 4
    assert m > rows * (down - 1) and n > columns * (across - 1)
    assert down * rows <= m + 32 * down and across * columns <= n + 32 * across, "even"
    if n >= 4 * m:
        assert down == -(-m // 518), "the right operand, which is the larger one, is packed as seldom as possible"


@pytest.mark.parametrize(("n", "columns"), [(512, 512), (2047, 512), (2048, 1024), (4096, 1024), (16384, 2048)])
def test_a_vector_times_a_matrix_reads_long_rows(n: int, columns: int) -> None:
    """Short pieces of rows cost a page each; a narrow matrix is still shared between programs."""
    assert contract_block(1, n, "cpu") == (1, columns)


@pytest.mark.parametrize(
    ("m", "n", "rows"), [(200, 1, 64), (1000, 1, 256), (4096, 1, 256), (4096, 8, 256), (4096, 9, 512)]
)
def test_a_matrix_times_few_columns_has_short_parts(m: int, n: int, rows: int) -> None:
    assert contract_block(m, n, "cpu", k=500)[0] == rows


def test_a_small_product_of_long_operands_is_shared() -> None:
    """Two programs, as for the gradient of a weight over many rows, where one thread would add all of it."""
    assert contract_block(64, 64, "cpu", k=20_000) == (64, 32)
    assert contract_block(1000, 1000, "cpu", k=17) == (28, 1000)
    assert contract_block(3000, 2000, "cpu", k=64) == (28, 1024)
    assert contract_block(1000, 1000, "cpu", k=65) == (504, 512)
    assert contract_block(64, 64, "cpu", k=500) == (64, 64)
    assert contract_block(64, 64, "cpu", batch=2, k=20_000) == (64, 64)
    assert contract_block(64, 40, "cpu", k=20_000) == (64, 40)
