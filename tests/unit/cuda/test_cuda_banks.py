"""Bank conflicts of shared tiles, computed from their layout, and the swizzles chosen by them."""

from __future__ import annotations

import math
import subprocess
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.targets.cuda import host_library, nvrtc
from tessera.compiler.targets.cuda.layouts.banks import (
    SWIZZLES,
    Access,
    Copied,
    Matrices,
    MmaAccess,
    QuarterOperand,
    RegisterAccess,
    SharedLayout,
    choose,
    conflicts,
    degree,
)
from tessera.compiler.targets.cuda.layouts.layout import blocked
from tessera.errors import MissingDependency

OPERANDS = [MmaAccess(left, transposed) for left, transposed in product((True, False), repeat=2)]
QUARTERS = [QuarterOperand(left, transposed) for left, transposed in product((True, False), repeat=2)]


def fitting(tile: SharedLayout) -> list[SharedLayout]:
    row = tile.cols * tile.itemsize
    return [SharedLayout(tile.rows, tile.cols, tile.itemsize, n) for n in SWIZZLES if n == 0 or row % n == 0]


def test_degrees_of_plain_accesses() -> None:
    assert degree([4 * lane for lane in range(32)], 4) == 1  # a word to each bank
    assert degree([0] * 32, 4) == 1  # one word for all
    assert degree([8 * lane for lane in range(32)], 4) == 2
    assert degree([128 * lane for lane in range(32)], 4) == 32
    assert degree([16 * lane for lane in range(32)], 16) == 1  # a quarter of the warp at a time
    assert degree([32 * lane for lane in range(32)], 16) == 2


@pytest.mark.parametrize("rows", [16, 32, 64, 128])
@pytest.mark.parametrize("cols", [16, 32, 48, 64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("operand", OPERANDS, ids=str)
def test_16_bit_operands_never_conflict(rows: int, cols: int, operand: MmaAccess) -> None:
    chosen = choose(SharedLayout(rows, cols, 2), frozenset((Copied(), operand)))
    assert chosen.degree(operand) == chosen.degree(Copied()) == 1


@pytest.mark.parametrize("cols", [16, 32, 48, 64, 80, 96, 128, 192, 256])
def test_accumulators_are_stored_without_conflicts(cols: int) -> None:
    """By stmatrix: eight rows of one piece at a time, as ldmatrix reads them."""
    plain, row = SharedLayout(64, cols, 2), cols * 2
    chosen = choose(plain, frozenset((Matrices(), *OPERANDS)))
    assert chosen.degree(Matrices()) == 1 and chosen == choose(plain, frozenset((Matrices(),)))
    assert plain.degree(Matrices()) == min(8, math.gcd(row, 128) // 16), "rows that start in one bank"


@pytest.mark.parametrize("cols", [16, 32, 64, 128])
@pytest.mark.parametrize("operand", OPERANDS, ids=str)
def test_32_bit_operands_never_conflict(cols: int, operand: MmaAccess) -> None:
    chosen = choose(SharedLayout(64, cols, 4), frozenset((Copied(), operand)))
    assert chosen.degree(operand) == chosen.degree(Copied()) == 1


@pytest.mark.parametrize("cols", [32, 64, 128])
@pytest.mark.parametrize("operand", QUARTERS, ids=str)
def test_operands_of_sm_70_never_conflict(cols: int, operand: QuarterOperand) -> None:
    chosen = choose(SharedLayout(64, cols, 2), frozenset((Copied(), operand)))
    assert chosen.degree(operand) == chosen.degree(Copied()) == 1


HELD = [
    RegisterAccess(blocked(rows, cols, 128, v), verb)
    for rows, cols in ((64, 64), (32, 96))
    for v in (1, 4, 8)
    for verb in ("loaded", "stored")
]


@given(
    st.sampled_from([8, 16, 32, 64, 96]),
    st.sampled_from([8, 16, 24, 32, 48, 64, 72, 96, 128, 160]),
    st.sampled_from([1, 2, 4]),
    st.frozensets(st.sampled_from([Copied(), Matrices(), *OPERANDS, *HELD]), min_size=1, max_size=4),
)
def test_the_chosen_swizzle_is_free_of_conflicts_where_one_is(
    rows: int, cols: int, itemsize: int, accesses: frozenset[Access]
) -> None:
    plain = SharedLayout(rows, cols, itemsize)
    chosen = choose(plain, accesses)
    worst = {s.swizzle: max(s.degree(a) for a in accesses) for s in fitting(plain) if s.swizzle == 0 or s.whole}
    assert worst[chosen.swizzle] == min(worst.values())
    assert (conflicts(chosen, accesses) == "no bank conflicts") == (worst[chosen.swizzle] == 1)


def test_pieces_change_places_only_where_that_helps() -> None:
    assert choose(SharedLayout(64, 64, 2), frozenset((Copied(),))).swizzle == 0
    assert choose(SharedLayout(64, 64, 2), frozenset((Copied(), MmaAccess(True, False)))).swizzle == 128
    assert choose(SharedLayout(64, 32, 2), frozenset((Copied(), MmaAccess(True, False)))).swizzle == 64
    assert choose(SharedLayout(64, 24, 2), frozenset((Copied(), MmaAccess(True, False)))).swizzle == 0, (
        "three pieces a row"
    )
    plain = SharedLayout(64, 64, 2)
    assert plain.degree(MmaAccess(True, False)) == 8
    assert conflicts(plain, frozenset((Copied(), MmaAccess(True, False)))) == "8-way conflicts when multiplied"


def test_every_element_has_a_place_of_its_own() -> None:
    for rows, cols, itemsize in ((16, 64, 2), (16, 16, 4), (8, 24, 2), (8, 10, 4), (16, 96, 2), (32, 48, 1)):
        for layout in fitting(SharedLayout(rows, cols, itemsize)):
            places = {layout.address(r, c) for r in range(rows) for c in range(cols)}
            assert len(places) == rows * cols
            assert max(places) == (rows * cols - 1) * itemsize


def test_the_device_library_places_elements_alike(tmp_path: Path) -> None:
    """`Shared` of shared.cuh, compiled for this machine, and its mirror."""
    try:
        compiler = host_library.compiler()
    except MissingDependency:
        pytest.skip("no C++ compiler")
    shapes = (16, 64, 2), (32, 48, 1), (16, 96, 2), (16, 32, 4), (9, 10, 4)
    tiles = [s for shape in shapes for s in fitting(SharedLayout(*shape)) if s.swizzle == 0 or s.whole]
    types = {1: "u8", 2: "f16", 4: "float"}
    calls = "".join(f"show<Shared<{types[s.itemsize]}, {s.rows}, {s.cols}, {s.swizzle}>>();" for s in tiles)
    source, program = tmp_path / "places.cpp", tmp_path / "places"
    source.write_text(
        "#include <tessera/host.h>\n#include <tessera/shared.cuh>\nusing namespace tessera;\n"
        "template <class S> void show() {\n  S s(0);\n  for (int r = 0; r < S::rows; ++r)\n"
        '    for (int c = 0; c < S::cols; ++c) printf("%ld ", (long)((u8*)s.at(r, c) - hw::shared_memory()));\n}\n'
        f"int main() {{ {calls} }}\n"
    )
    command = [
        *compiler,
        *host_library.FLAGS,
        "-DTESSERA_ARCH=800",
        f"-I{nvrtc.INCLUDE}",
        str(source),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    assert [int(n) for n in said] == [s.address(r, c) for s in tiles for r in range(s.rows) for c in range(s.cols)]
