"""Positions of extremes and floats as integers on the CPU target: ties, NaN, infinities, ragged ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
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
