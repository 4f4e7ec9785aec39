"""What `ts.tile.grid` says: lengths, the order of programs, and how many run. No bit of a result depends on it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.tile.program_order import in_order
from tests.kernel_runner import check, codes, program, run

TARGETS = ("reference", "cpu", "emulator:sm_80")
rng = np.random.default_rng(23)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


def empty(*shape: int) -> Any:
    return np.full(shape, 99, np.float32)


def product(A: Tensor["M", "K", ts.bf16], B: Tensor["K", "N", ts.bf16], y: Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((16, 8))
    for k in ts.tile.range_k(0, K, 16):
        acc += ts.tile.mma(A[tile_m : tile_m + 16, k : k + 16], B[k : k + 16, tile_n : tile_n + 8])
    y[tile_m : tile_m + 16, tile_n : tile_n + 8] = acc


def grouped(A: Tensor["M", "K", ts.bf16], B: Tensor["K", "N", ts.bf16], y: Tensor["M", "N", ts.f32]):
    ts.tile.grid(grouped=ts.tile.context().GROUP)
    acc = ts.tile.zeros((16, 8))
    for k in ts.tile.range_k(0, K, 16):
        acc += ts.tile.mma(A[tile_m : tile_m + 16, k : k + 16], B[k : k + 16, tile_n : tile_n + 8])
    y[tile_m : tile_m + 16, tile_n : tile_n + 8] = acc


def persistent(A: Tensor["M", "K", ts.bf16], B: Tensor["K", "N", ts.bf16], y: Tensor["M", "N", ts.f32]):
    ts.tile.grid(grouped=3, persistent=True)
    acc = ts.tile.zeros((16, 8))
    for k in ts.tile.range_k(0, K, 16):
        acc += ts.tile.mma(A[tile_m : tile_m + 16, k : k + 16], B[k : k + 16, tile_n : tile_n + 8])
    y[tile_m : tile_m + 16, tile_n : tile_n + 8] = acc


SHAPES = ((80, 40), (40, 60), (80, 60))


@pytest.mark.parametrize("target", [*TARGETS, "emulator:sm_90a"])
def test_no_bit_depends_on_the_order(target: str) -> None:
    a, b = (normal(*shape, dtype=ml_dtypes.bfloat16) for shape in SHAPES[:2])
    wanted = empty(*SHAPES[2])
    run(product, a, b, wanted, target=target)
    for kernel, config in ((grouped, {"GROUP": 2}), (grouped, {"GROUP": 100}), (persistent, {})):
        y = empty(*SHAPES[2])
        run(kernel, a, b, y, target=target, **config)
        np.testing.assert_array_equal(y, wanted)


def order_of(kernel: Callable[..., Any], target: str, *arrays: Any, **config: Any) -> list[int]:
    """The numbers of the programs, as they run."""
    p = program(kernel, *arrays, **config)
    chosen = base.get(target)
    seen: list[Any] = []
    executable = chosen.load(generate(p, chosen, profile=True))
    executable.run([a.ctypes.data for a in arrays], [], [], record=SimpleNamespace(record=seen.append))
    (columns,) = seen
    keep = columns["phase"] == columns["phase"][0]
    tiles, starts = columns["tile"][keep], columns["start"][keep]
    return list(dict.fromkeys(tiles[np.argsort(starts, kind="stable")].tolist()))


def filled(x: Tensor["B", "M", "N", ts.f32], y: Tensor["B", "M", "N", ts.f32]):
    ts.tile.grid(grouped=2)
    y[ts.tile.each(), tile_m : tile_m + 4, tile_n : tile_n + 4] = x[
        ts.tile.each(), tile_m : tile_m + 4, tile_n : tile_n + 4
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_programs_run_in_groups_of_rows(target: str) -> None:
    x, y = normal(2, 10, 16), empty(2, 10, 16)
    matrix = [0, 4, 1, 5, 2, 6, 3, 7, 8, 9, 10, 11]  # 3 by 4: two rows together, then the last one
    assert order_of(filled, target, x, y) == [*matrix, *(12 + n for n in matrix)]
    np.testing.assert_array_equal(x, y)


def talking(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    ts.tile.grid(grouped=2, persistent=True)
    block = x[tile_m : tile_m + 4, tile_n : tile_n + 4]
    ts.tile.print("sum", ts.tile.sum(block))
    y[tile_m : tile_m + 4, tile_n : tile_n + 4] = block


def test_what_programs_print_stands_in_one_order(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(96, dtype=np.float32).reshape(12, 8)
    found: list[str] = []
    for target in TARGETS:
        run(talking, x, empty(12, 8), target=target)
        found.append(capsys.readouterr().out)
    assert found[0] == found[1] == found[2] and found[0].index("(0, 1)") < found[0].index("(1, 0)")


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(1, 8))
def test_every_program_runs_once(grid: list[int], rows: int) -> None:
    assert sorted(in_order(grid, rows)) == list(range(int(np.prod(grid))))


@pytest.mark.parametrize("seed", [1, 5])
def test_persistent_blocks_share_nothing_but_memory(seed: int) -> None:
    """Whatever warps run ahead: a program's shared tiles are not the next one's before all threads are done."""
    a, b = (normal(*shape, dtype=ml_dtypes.bfloat16) for shape in SHAPES[:2])
    y, chosen = empty(*SHAPES[2]), base.get("emulator:sm_80")
    executable: Any = chosen.load(generate(program(persistent, a, b, y), chosen))
    executable.seed = seed
    executable.run([v.ctypes.data for v in (a, b, y)], [], [])
    np.testing.assert_allclose(y, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


def test_a_block_of_a_persistent_kernel_runs_several_programs() -> None:
    arrays = [normal(*shape, dtype=ml_dtypes.bfloat16) for shape in SHAPES[:2]]
    made = generate(program(persistent, *arrays, empty(*SHAPES[2])), base.get("sm_80"))
    assert "+= ts::hw::blocks()" in made.source and made.meta["kernels"]["persistent"]["persistent"]


# lengths


def in_turns(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    ts.tile.grid(ts.tile.context().PROGRAMS)
    p = ts.tile.program_id()
    for t in ts.tile.range(p, ts.tile.cdiv(n, 16), ts.tile.num_programs(0)):
        y[t * 16 : t * 16 + 16] = x[t * 16 : t * 16 + 16] * 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("programs", [1, 4, 40])
def test_programs_take_several_steps(programs: int, target: str) -> None:
    x, y = normal(333), empty(333)
    run(in_turns, x, y, target=target, PROGRAMS=programs)
    np.testing.assert_array_equal(y, x * 2)
    assert program(in_turns, x, y, PROGRAMS=programs).launches[0].kernel.attrs["grid"] == (programs,)


def partial_sums(x: Tensor["n", ts.f32], y: Tensor["P", ts.f32]):
    """One sum for each program: how many there are is the author's number, and the same on every machine."""
    ts.tile.grid(P)
    p, total = ts.tile.program_id(), ts.tile.zeros(())
    for t in ts.tile.range(p * 8, n, P * 8):
        total += ts.tile.sum(x[t : t + 8])
    y[p] = total + 0 * ts.tile.num_programs()


@pytest.mark.parametrize("target", TARGETS)
def test_a_dim_says_how_many(target: str) -> None:
    x, y = rng.integers(-9, 9, 100).astype(np.float32), empty(3)
    run(partial_sums, x, y, target=target)
    steps = np.pad(x, (0, 20)).reshape(5, 3, 8)
    np.testing.assert_array_equal(y, steps.sum((0, 2)))


# what is refused


def one_axis(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    ts.tile.grid(grouped=8)
    y[tile_n : tile_n + 8] = x[tile_n : tile_n + 8]


def twice(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    ts.tile.grid(persistent=True)
    ts.tile.grid(4)
    y[tile_n : tile_n + 8] = x[tile_n : tile_n + 8]


def in_a_loop(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    for _ in ts.tile.range_k(0, n, 8):
        ts.tile.grid(persistent=True)
    y[tile_n : tile_n + 8] = x[tile_n : tile_n + 8]


def computed(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    ts.tile.grid(ts.tile.program_id(1))
    y[tile_n : tile_n + 8] = x[tile_n : tile_n + 8]


def in_groups_of_nothing(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    ts.tile.grid(grouped=0)
    y[tile_n : tile_n + 8] = x[tile_n : tile_n + 8]


def of_no_use(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    """Four programs do the same: a race, as of any axis that no store shows."""
    ts.tile.grid(4)
    y[tile_n : tile_n + 8] = x[tile_n : tile_n + 8]


def perhaps(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    ts.tile.grid(persistent=1)
    y[tile_n : tile_n + 8] = x[tile_n : tile_n + 8]


@pytest.mark.parametrize(
    ("kernel", "code", "says"),
    [
        (one_axis, "TS403", "this one has one axis"),
        (twice, "TS403", "called twice"),
        (in_a_loop, "TS403", "outside of conditions and loops"),
        (computed, "TS403", "axis 0 of a grid"),
        (in_groups_of_nothing, "TS404", "a positive number"),
        (of_no_use, "TS406", "store to the same place"),
        (perhaps, "TS105", "True or False"),
    ],
)
def test_what_is_refused(kernel: Callable[..., Any], code: str, says: str) -> None:
    assert codes(kernel)[:1] == [code]
    assert any(says in d.message for d in check(kernel).diagnostics)
