"""Sorted lines against NumPy to the bit: all dtypes, lengths and ways of sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.targets import base
from tessera.compiler.targets.cpu.llvm.isa import host
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language import dtypes

LENGTHS = (0, 1, 2, 15, 16, 17, 31, 32, 127, 129, 257, 1000)


def order(x: Any, descending: bool) -> Any:
    """Stable, and NaN as the largest."""
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    return x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1)


def check(found: Any, x: Any, descending: bool) -> None:
    positions, values = (np.asarray(v) for v in found)
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    want = order(wide, descending)
    np.testing.assert_array_equal(positions, want)
    assert values.tobytes() == np.take_along_axis(x, want, -1).tobytes()


def elements(name: str, shape: tuple[int, ...], seed: int, how: str) -> Any:
    kind = dtypes.named(name)
    assert kind is not None
    rng = np.random.default_rng(seed)
    if kind.is_float:
        x = rng.normal(size=shape).astype(kind.numpy)
        flat = x.reshape(-1)
        if how == "special":
            flat[::7], flat[1::9], flat[2::5], flat[3::5], flat[4::11] = np.nan, -np.inf, -0.0, 0.0, np.inf
            flat[::14] = -flat[::14]
    else:
        info = np.iinfo(kind.numpy)
        x = rng.integers(info.min, info.max, shape, kind.numpy, endpoint=True)
    if how == "equal":
        x[...] = 3
    if how == "few":
        x[...] = rng.integers(0, 4, shape).astype(kind.numpy)
    return np.sort(x, -1) if how == "sorted" else x


@ts.function
def up(x: ts.Tensor["B", "N", ts.f32]):
    return ts.argsort(x), ts.sort(x)


@ts.function
def down(x: ts.Tensor["B", "N", ts.f32]):
    return ts.argsort(x, descending=True), ts.sort(x, descending=True)


@given(st.integers(0, 20), st.sampled_from(LENGTHS), st.integers(0, 99),
       st.sampled_from(["special", "plain", "equal", "few", "sorted"]))  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_sizes_known_at_launch(rows: int, n: int, seed: int, how: str) -> None:
    x = elements("f32", (rows, n), seed, how)
    check(up(x), x, False)
    check(down(x), x, True)


@pytest.mark.parametrize(
    "dtype", ["f32", "f64", "f16", "bf16", "int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64"]
)
@pytest.mark.parametrize("shape", [(300,), (17, 33), (9, 130)])
def test_dtypes(dtype: str, shape: tuple[int, ...]) -> None:
    """One line with radix digits, and lines side by side: fewer and more than there are lanes."""
    x = elements(dtype, shape, 1, "special")
    for descending in (False, True):
        f = ts.function(lambda v: (ts.argsort(v, descending=descending), ts.sort(v, descending=descending)))  # noqa: B023
        check(f(x), x, descending)


def test_axes_and_views() -> None:
    x = elements("f32", (18, 5, 20), 3, "special")
    for axis in range(3):
        f = ts.function(lambda v: (ts.argsort(v, axis=axis), ts.sort(v, axis=axis)))  # noqa: B023
        places, values = (np.moveaxis(np.asarray(v), axis, -1) for v in f(x))
        check((places, np.ascontiguousarray(values)), np.ascontiguousarray(np.moveaxis(x, axis, -1)), False)


@pytest.mark.parametrize("shape", [(66_000,), (2, 20_000), (16, 3000), (1, 16_385)])
def test_long_lines(shape: tuple[int, ...]) -> None:
    for how in ("special", "few", "equal"):
        x = elements("f32", shape, 5, how)
        check(ts.function(lambda v: (ts.argsort(v), ts.sort(v)))(x), x, False)


@pytest.mark.parametrize(
    "dtype", ["f32", "f64", "f16", "bf16", "int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_long_lines_in_parts(dtype: str) -> None:
    """Runs of 16384 elements, the last one shorter, merged by any number of threads."""
    x = elements(dtype, (2, 37_000), 8, "special")
    before, descending = ts.get_num_threads(), dtype in ("f64", "uint8", "int32", "bf16")
    f = ts.function(lambda v: (ts.argsort(v, descending=descending), ts.sort(v, descending=descending)))
    try:
        for count in (1, 2, 4):
            ts.set_num_threads(count)
            check(f(x), x, descending)
    finally:
        ts.set_num_threads(before)


@given(st.sampled_from([16_385, 32_767, 32_768, 32_769, 49_152, 280_001]), st.integers(0, 99), st.booleans(),
       st.sampled_from(["special", "plain", "equal", "few", "sorted"]))  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_borders_of_runs_and_parts(n: int, seed: int, descending: bool, how: str) -> None:
    x = elements("f32", (n,), seed, how)
    check(
        ts.function(lambda v: (ts.argsort(v, descending=descending), ts.sort(v, descending=descending)))(x),
        x,
        descending,
    )


def test_the_same_bits_for_any_number_of_threads() -> None:
    x = elements("f32", (100, 300), 7, "special")
    before, found = ts.get_num_threads(), []
    try:
        for count in (1, 2):
            ts.set_num_threads(count)
            found.append(np.asarray(ts.sort(x)).tobytes())
    finally:
        ts.set_num_threads(before)
    assert found[0] == found[1]


def first_few(x: Any, k: int, largest: bool) -> tuple[Any, Any]:
    at = order(x.astype(np.float64) if x.dtype.kind not in "iu" else x, largest)[..., :k]
    return np.take_along_axis(x, at, -1), at


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "int8", "uint32", "int64"])
@pytest.mark.parametrize(("shape", "k"), [((20, 300), 16), ((3, 100), 100), ((20, 129), 17), ((2, 40), 1), ((4, 9), 0),
                                          ((1500,), 3), ((17, 33), 32), ((20_000,), 5)])  # fmt: skip
def test_the_first_few(dtype: str, shape: tuple[int, ...], k: int) -> None:
    x = elements(dtype, shape, 2, "special")
    for largest in (False, True):
        values, at = ts.function(lambda v: ts.topk(v, k, largest=largest))(x)  # noqa: B023
        want, places = first_few(x, k, largest)
        np.testing.assert_array_equal(np.asarray(at), places)
        assert np.asarray(values).tobytes() == want.tobytes()


@pytest.mark.parametrize(("dtype", "shape", "k", "how"), [
    ("f32", (2, 5000), 7, "special"), ("f32", (17, 9001), 900, "few"), ("f32", (3, 40_000), 1, "equal"),
    ("f64", (70_001,), 70, "special"), ("f64", (300_000,), 20_000, "sorted"), ("bf16", (20, 9000), 30, "special"),
    ("f16", (2, 20_000), 3, "special"), ("int8", (3, 40_000), 700, "plain"), ("uint32", (70_001,), 900, "sorted"),
    ("int64", (17, 5000), 5, "few"),
])  # fmt: skip
def test_the_first_few_of_long_lines_are_selected(dtype: str, shape: tuple[int, ...], k: int, how: str) -> None:
    """Also where all are as large, and where a sample says little."""
    x, before = elements(dtype, shape, 3, how), ts.get_num_threads()
    try:
        for largest in (False, True):
            f = ts.function(lambda v: (*ts.topk(v, k, largest=largest), ts.sort(v, descending=largest)[..., :k]))  # noqa: B023
            want, places = first_few(x, k, largest)
            for count in (1, 3):
                ts.set_num_threads(count)
                values, at, ordered = (np.asarray(v) for v in f(x))
                np.testing.assert_array_equal(at, places)
                assert values.tobytes() == want.tobytes() == ordered.tobytes()
    finally:
        ts.set_num_threads(before)


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_the_first_few_on_narrower_vectors(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host(level).bits >= host().bits:
        pytest.skip("this machine has no wider vectors")
    target = CpuTarget(level)
    monkeypatch.setattr(base, "get", lambda name: target)
    x = elements("f32", (3, 40_000), 4, "special")

    @ts.function
    def ways(v: ts.Tensor[3, 40_000, ts.f32]):
        return *ts.topk(v, 50), ts.sort(v)[:, :50]

    values, at, least = (np.asarray(v) for v in ts.compile(ways, target="cpu")(x))
    want, places = first_few(x, 50, True)
    np.testing.assert_array_equal(at, places)
    assert values.tobytes() == want.tobytes() and least.tobytes() == first_few(x, 50, False)[0].tobytes()


def test_the_reference_reads_what_runs_have_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "reference")
    x = elements("f32", (40_000,), 4, "special")
    values, at, least = map(np.asarray, ts.function(lambda v: (*ts.topk(v, 5), ts.sort(v)[:7]))(x))
    want, places = first_few(x, 5, True)
    np.testing.assert_array_equal(at, places)
    assert values.tobytes() == want.tobytes() and least.tobytes() == first_few(x, 7, False)[0].tobytes()


def test_a_bound_that_lets_too_few_pass_is_moved() -> None:
    """What is looked at is least; all else is larger and in order."""
    n = 32_000
    x = np.arange(n, dtype=np.float32) + 1000
    x[(np.arange(512 // 8) * (n // (512 // 8)))[:, None] + np.arange(8)] = 0
    f = ts.function(lambda v: ts.topk(v, 600, largest=False))
    want, places = first_few(x[None].repeat(2, 0), 600, False)
    values, at = (np.asarray(v) for v in f(x[None].repeat(2, 0)))
    np.testing.assert_array_equal(at, places)
    assert values.tobytes() == want.tobytes()


@ts.function
def few(x: ts.Tensor["B", "N", ts.f32]):
    values, at = ts.topk(x, 17)
    least = ts.argsort(x)[:, :3]
    return values, at, ts.take_along_axis(x, least, axis=1), least


@given(st.integers(1, 40), st.integers(17, 700), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_the_first_few_of_sizes_known_at_launch(rows: int, n: int, seed: int) -> None:
    x = elements("f32", (rows, n), seed, "special")
    for found, want in zip(few(x), (*first_few(x, 17, True), *first_few(x, 3, False)), strict=True):
        assert np.asarray(found).tobytes() == want.tobytes()


def test_only_what_is_read_is_sorted() -> None:
    """A slice of 3 of N elements may have fewer; `topk` checks that a line has 17."""
    text = str(ts.compile(few).ir("tile"))
    assert "first=17" in text and text.count("first=") == 1


def test_lines_that_are_read_otherwise_too_are_sorted_whole() -> None:
    x = elements("f32", (20, 90), 4, "special")
    at = order(x.astype(np.float64), False)

    def ways(v):
        one, two, three = ts.argsort(v), ts.sort(v), ts.argsort(v, descending=True)
        return one[:, :3] + 0, one[:, 5:9], two[:, ::-1][:, :4], ts.transpose(three)[:2], three[:, :1], two[3:, :6]

    found = [np.asarray(v) for v in ts.function(ways)(x)]
    values, down = np.take_along_axis(x, at, 1), order(x.astype(np.float64), True)
    want = [at[:, :3], at[:, 5:9], values[:, ::-1][:, :4], down.T[:2], down[:, :1], values[3:, :6]]
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)


def test_axis_of_the_first_few() -> None:
    x = elements("f32", (70, 18), 6, "special")
    values, at = (np.asarray(v) for v in ts.function(lambda v: ts.topk(v, 4, axis=0))(x))
    want, places = first_few(np.ascontiguousarray(x.T), 4, True)
    np.testing.assert_array_equal(at, places.T)
    np.testing.assert_array_equal(values, want.T)
