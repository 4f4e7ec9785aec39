"""Positions of extremes and floats as integers on the CPU target: ties, NaN, infinities, ragged ends."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import knobs
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import host
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language.rounding import round_to


@ts.function
def positions(x):
    return ts.argmax(x, axis=0), ts.argmax(x, axis=1), ts.argmin(x, axis=1), ts.argmin(x)


@given(st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**32 - 1), st.sampled_from(["f4", "f8", "i4", "u1"]))
@settings(max_examples=40, deadline=None)
def test_positions_of_extremes(rows: int, columns: int, seed: int, dtype: str) -> None:
    """The first of equals, the first NaN above all, also where nothing is better than -inf or the least integer."""
    r = np.random.default_rng(seed)
    if dtype[0] == "f":
        x: Any = r.choice(
            [-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0], (rows, columns), p=[0.4, 0.2, 0.02, 0.1, 0.1, 0.18]
        )
    else:
        info = np.iinfo(dtype)
        x = r.choice([info.min, info.max, 1], (rows, columns), p=[0.8, 0.1, 0.1])
    x = x.astype(dtype)
    got = positions(x)
    want = np.argmax(x, 0), np.argmax(x, 1), np.argmin(x, 1), np.argmin(x)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(g), w)


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_all_elements_are_the_same(value: float) -> None:
    x = np.full((3, 200_003), value, np.float32)  # more than one chunk of the reduction's order
    for g in positions(x):
        assert (np.asarray(g) == 0).all()


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
def test_floats_become_integers(name: str, source: str) -> None:
    """Cut off towards zero, held within the range, NaN to 0: around every end."""
    dtype = getattr(ts, name)
    ends = [0.0, 127.0, 128.0, 255.0, 256.0, 32768.0, 65536.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e30, np.inf]
    values = [s * (e + d) for e in ends for d in (-1.5, -0.5, 0.0, 0.5) for s in (1, -1)] + [np.nan]
    with np.errstate(over="ignore"):
        x = np.array(values).astype(source)

    @ts.function
    def f(a):
        return a.cast(dtype)

    np.testing.assert_array_equal(np.asarray(f(x)), round_to(x, dtype))


def test_what_is_fused_with_a_sum_does_not_change_its_bits() -> None:
    """Axes that are one in memory are one for a sum, also where the kernel reads something else along one of them."""

    def alone(x: Any, w: Any) -> Any:
        return ts.sum(x, axis=(1, 2)), ts.group_norm(x, 2), ts.sum(x * x, axis=(1, 2))

    def beside(x: Any, w: Any) -> Any:
        total = ts.sum(x, axis=(1, 2), keepdims=True)
        return total, ts.group_norm(x, 2, w, 0 * w), ts.sum(x * x, axis=(1, 2)), (x - total) * w[:, None]

    def opened(x: ts.Tensor["N", 6, "L", ts.f32], w: ts.Tensor[6, ts.f32]) -> Any:
        return beside(x, w)

    rng = np.random.default_rng(0)
    x, w = 100 * rng.standard_normal((3, 6, 35), np.float32), np.ones(6, np.float32)
    want = [np.asarray(v) for v in ts.function(alone)(x, w)]
    for f in (beside, opened):
        for v, mine in zip(want, ts.function(f)(x, w), strict=False):
            np.testing.assert_array_equal(np.asarray(mine).reshape(v.shape), v)
    for size in (1, 35):
        np.testing.assert_array_equal(
            *(np.asarray(ts.function(f)(x[:, :, :size].copy(), w)[1]) for f in (beside, opened))
        )


@pytest.mark.parametrize("level", ["avx512", "avx2", "baseline"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i1"])
def test_the_first_extremum_is_found_wherever_it_is(level: str, dtype: str) -> None:
    if level == "avx512" and host().name != "avx512":
        pytest.skip("this machine has no AVX-512")

    @ts.function
    def places(x):
        return x.argmax(), x.argmin()

    x = np.random.default_rng(1).integers(-100, 100, 5003).astype(dtype)
    target = CpuTarget(level)
    program = ts.compile(places, target="cpu", arguments=[x]).lowered.program
    code = target.load(generate(program, target))
    for place in (0, 15, 127, 128, 4999, 5002, None):
        y = x.copy()
        if place is not None:
            y[place], y[(place + 130) % 5003] = 110, 110
            y[(place + 7) % 5003] = y[(place + 300) % 5003] = np.nan if dtype != "i1" and place % 2 else -110
        found = [np.zeros((), np.int64) for _ in range(2)]
        code.run([a.ctypes.data for a in (y, *found)], [], [])
        assert [int(i) for i in found] == [y.argmax(), y.argmin()]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u2", "i8"])
@pytest.mark.parametrize("size", [65536 * 5, 65536 * 4 + 5, 65536 * 6 - 1])
def test_threads_share_the_search_of_a_long_row(dtype: str, size: int) -> None:
    """Chunks are searched by programs of their own: the first of equal elements is found, the first NaN above all."""

    @ts.function
    def places(x, y):
        return x.argmax(), x.argmin(), ts.argmax(x * 2 + y), ts.argmin(x[1:].reshape(1, -1))

    @ts.function
    def opened(x: ts.Tensor["N"], y: ts.Tensor["N"]):
        return x.argmax(), x.argmin(), ts.argmax(x * 2 + y), ts.argmin(x[1:])

    def wanted(x: Any, y: Any) -> list[int]:
        return [int(i) for i in (x.argmax(), x.argmin(), (x * 2 + y).argmax(), x[1:].argmin())]

    rng = np.random.default_rng(size)
    x, y = (rng.integers(0, 40, size).astype(dtype) for _ in range(2))
    program = ts.compile(places, target="cpu", arguments=[x, y])
    grids = [prod(launch.kernel.attrs["grid"]) for launch in program.lowered.program.launches]
    assert grids.count(-(-size // 65536)) >= 3
    for here in ((), (5, 65536), (65535, 65536), (size - 1,), (70, size - 2)):
        own = x.copy()
        for place in here:
            own[place] = 50
        assert [int(i) for i in program(own, y)] == wanted(own, y)
        assert [int(i) for i in opened(own, y)] == wanted(own, y)
        if dtype[0] == "f" and here:
            own[here[-1]] = np.nan
            assert [int(i) for i in program(own, y)] == wanted(own, y)
    nothing = np.full(size, -np.inf if dtype[0] == "f" else np.iinfo(dtype).min, dtype)
    assert [int(i) for i in program(nothing, nothing)][:2] == [0, 0]


@pytest.mark.parametrize("target", ["reference", "emulator:sm_80"])
def test_other_targets_search_long_rows_in_chunks_too(target: str) -> None:
    x = np.random.default_rng(3).integers(0, 1000, 65536 * 4 + 77).astype(np.float32)
    x[[5, 70_000]] = 2000
    with knobs.target.override(target):
        found = ts.function(lambda x: (ts.argmax(x), ts.argmin(x * 2), ts.max(x)))
        assert [np.asarray(v).item() for v in found(x)] == [5, x.argmin(), 2000]
        x[200_000] = np.nan
        assert [np.asarray(v).item() for v in found(x)][:2] == [200_000, 200_000]


@pytest.mark.parametrize("size", [65537, 100_001])
def test_nothing_is_read_behind_the_end_of_a_long_row(size: int) -> None:
    """Where there is no memory, an instruction that reads none of its lanes is slow. A sum of what is in memory ends
    with it; of computed elements, the address is another one there."""
    if host().name != "avx512":
        pytest.skip("this machine has no AVX-512")
    x = np.ones(size, np.float32)
    plain = ts.compile(ts.function(lambda x: ts.sum(x)), target="cpu", arguments=[x])
    computed = ts.compile(ts.function(lambda x: ts.sum(x * x)), target="cpu", arguments=[x])
    assert plain(x) == computed(x) == size
    loads = re.findall(r"call <16 x float> @llvm.masked.load[^\n]*ptr align 4 (%\w+)", computed.source)
    assert loads
    for address in loads:
        assert re.search(rf"{address} = select i1 ", computed.source)


@pytest.mark.parametrize("columns", [5, 40])
def test_values_of_a_row_do_not_turn_lanes_away_from_its_elements(columns: int) -> None:
    """Three values of each row are read beside its elements. Of short rows, lanes are neighbours."""

    @ts.function
    def weighted(x: ts.Tensor["B", "D", ts.f32], a: ts.Tensor["B", ts.f32], b: ts.Tensor["B", ts.f32]):
        e = ts.exp(x - ts.max(x, axis=1, keepdims=True))
        return e / ts.sum(e, axis=1, keepdims=True) * a[:, None] - b[:, None]

    r = np.random.default_rng(columns)
    x, a, b = (r.standard_normal(shape).astype(np.float32) for shape in ((37, columns), 37, 37))
    program = ts.compile(weighted, target="cpu", arguments=[x, a, b])
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(program(x, a, b), e / e.sum(axis=1, keepdims=True) * a[:, None] - b[:, None], atol=1e-6)
    assert columns == 5 or "masked.scatter" not in program.source


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_lines_that_are_added_up_side_by_side_keep_their_bits(dtype: Any) -> None:
    """Each prefix is the sum in ascending order, whatever stands beside it."""

    @ts.function
    def prefixes(x):
        return ts.cumsum(x, axis=1)

    r = np.random.default_rng(0)
    x = (r.standard_normal((8, 700)) + (1j * r.standard_normal((8, 700)) if dtype is np.complex64 else 0)).astype(dtype)
    for rows in range(1, 9):
        np.testing.assert_array_equal(prefixes(x[:rows]), np.cumsum(x[:rows], axis=1, dtype=dtype))
    source = ts.compile(prefixes, target="cpu", arguments=[x]).source
    assert "= phi float" in source and source.count("= phi float") >= (2 if dtype is np.float32 else 4)


def test_a_sum_of_what_is_kept_is_written_out_only_if_it_is_cheap() -> None:
    """64 exponentials in a row would be half of the code of attention."""

    @ts.function
    def attended(q: ts.Tensor[1, 8, 512, 64], k: ts.Tensor[1, 8, 512, 64], v: ts.Tensor[1, 8, 512, 64]):
        return ts.attention(q, k, v)

    lines = ts.compile(attended, target="cpu").source.splitlines()
    assert sum(" call " in line and "@llvm.roundeven" in line for line in lines) <= 24
