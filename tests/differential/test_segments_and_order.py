"""Folds of segments and orders of long lines: many duplicates, no elements, sizes known at launch, every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.language import dtypes
from tests.conftest import require

DUPLICATES = 200_000


@ts.function
def sums(x: ts.Tensor["N", "D", ts.f32], ids: ts.Tensor["N", ts.int64], w: ts.Tensor["V", ts.f32]):
    return ts.segment_sum(x, ids, V)


@ts.function
def ordered(x: ts.Tensor["N", ts.f32]):
    return ts.sort(x), ts.argsort(x, descending=True)


@ts.function
def read_back(x: ts.Tensor["V", "D", ts.f32], at: ts.Tensor["N", ts.int32]):
    return ts.take(x, at, axis=0)


@pytest.fixture(params=["cpu", "reference", "emulator:sm_80"])
def target(request: Any, monkeypatch: Any) -> str:
    if request.param.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", request.param)
    return request.param


def test_bits_of_many_duplicates_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(-2, 9, DUPLICATES)
    before = ts.get_num_threads()
    for width in (1, 17, 33):
        x = rng.normal(size=(DUPLICATES, width)).astype(np.float32)
        want = np.zeros((5, width))
        np.add.at(want, ids[(ids >= 0) & (ids < 5)], x[(ids >= 0) & (ids < 5)].astype(np.float64))
        found = []
        try:
            for count in (1, 2):
                ts.set_num_threads(count)
                found.append(np.asarray(sums(x, ids, np.zeros(5, np.float32))))
        finally:
            ts.set_num_threads(before)
        assert found[0].tobytes() == found[1].tobytes()
        np.testing.assert_array_max_ulp(found[0], want.astype(np.float32), 1)


@given(st.integers(0, 200), st.sampled_from([1, 3, 17, 300]), st.sampled_from([1, 15, 16, 33, 260]), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_folds_of_slices_of_any_width(n: int, segments: int, width: int, seed: int) -> None:
    """In ascending order, in f64: equal to NumPy's to the bit, the sign of a zero too."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, n, width)).astype(np.float32)
    x.reshape(-1)[::7] = -0.0
    ids = rng.integers(-1, segments + 1, n)
    inside = (ids >= 0) & (ids < segments)
    sizes = ts.Tensor["B", "N", "D", ts.f32], ts.Tensor["N", ts.int64], ts.Tensor["V", ts.f32]
    names = dict(zip(("x", "ids", "w"), sizes, strict=True))
    for given_sizes in ({}, names):

        def folds(x, ids, w):
            some = w.shape[0]
            return (
                ts.segment_sum(x, ids, some, axis=1),
                ts.segment_max(x, ids, some, axis=1),
                ts.segment_sum(x.to(ts.f64), ids, some, axis=1),
            )

        folds.__annotations__ = given_sizes
        total, most, wide = (np.asarray(v) for v in ts.function(folds)(x, ids, np.zeros(segments, np.float32)))
        want = np.zeros((2, segments, width))
        largest = np.full((2, segments, width), -np.inf, np.float32)
        np.add.at(want, (slice(None), ids[inside]), x[:, inside].astype(np.float64))
        np.maximum.at(largest, (slice(None), ids[inside]), x[:, inside])
        assert total.tobytes() == want.astype(np.float32).tobytes()
        assert wide.tobytes() == want.tobytes()
        np.testing.assert_array_equal(most, largest)


@pytest.mark.parametrize(("n", "segments", "width"), [(40_003, 7, 1), (33_000, 300, 3), (5, 5, 1), (70_001, 1, 2),
                                                     (20_001, 90, 17), (900, 600, 40)])  # fmt: skip
@pytest.mark.parametrize("index", [np.int8, np.uint8, np.int64])
def test_parts_of_many_slices(n: int, segments: int, width: int, index: Any) -> None:
    """Neither they nor threads show in the bits; numbers of slices need not be whole rounds of the loop. Wide slices
    are walked over where there are few segments, else grouped."""
    rng = np.random.default_rng(n)
    info = np.iinfo(index)
    ids = rng.integers(max(info.min, -2), min(info.max, segments + 2) + 1, n).astype(index)
    inside = (ids >= 0) & (ids < segments)
    x, whole = rng.normal(size=(n, width)).astype(np.float32), rng.integers(-9, 9, (n, width))

    @ts.function
    def folds(x, whole, ids):
        ways = (ts.segment_sum(whole, ids, segments), ts.segment_max(whole, ids, segments))
        sums = ts.segment_sum(x, ids, segments), ts.segment_sum(x.to(ts.f64), ids, segments)
        return *sums, ts.segment_min(x, ids, segments), *ways

    before, found = ts.get_num_threads(), []
    try:
        for count in (1, 2):
            ts.set_num_threads(count)
            found.append([np.asarray(v) for v in folds(x, whole, ids)])
    finally:
        ts.set_num_threads(before)
    assert [v.tobytes() for v in found[0]] == [v.tobytes() for v in found[1]]
    total, least = np.zeros((segments, width)), np.full((segments, width), np.inf, np.float32)
    counts, most = np.zeros((segments, width), int), np.full((segments, width), np.iinfo(np.int64).min)
    at = ids[inside].astype(int)
    np.add.at(total, at, x[inside].astype(np.float64))
    np.minimum.at(least, at, x[inside])
    np.add.at(counts, at, whole[inside])
    np.maximum.at(most, at, whole[inside])
    assert found[0][0].tobytes() == total.astype(np.float32).tobytes()
    assert found[0][1].tobytes() == total.tobytes(), "one chain, as for sizes that are not known"
    for one, other in zip(found[0][2:], (least, counts, most), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_gradient_of_a_take_is_rounded_once() -> None:
    """With duplicates, negative positions and positions outside; of sizes known when it is compiled, and at launch."""
    rng = np.random.default_rng(0)
    rows, n = 7, 50_000
    x, ct = rng.normal(size=(rows, 3)).astype(np.float32), rng.uniform(size=(n, 3)).astype(np.float32)
    at = rng.integers(-9, 9, n)
    place = np.where(at < 0, at + rows, at)
    want = np.zeros((rows, 3))
    inside = (place >= 0) & (place < rows)
    np.add.at(want, place[inside], ct[inside].astype(np.float64))

    def weighed(x: ts.Tensor["V", 3, ts.f32], at: ts.Tensor["N", ts.int64], ct: ts.Tensor["N", 3, ts.f32]):
        return ts.sum(ts.take(x, at, axis=0) * ct)

    for f in (weighed, lambda x, at, ct: ts.sum(ts.take(x, at, axis=0) * ct)):
        found = np.asarray(ts.grad(f)(x, at, ct))
        np.testing.assert_array_max_ulp(found, want.astype(np.float32), 1)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (1, "f32"),
        (-0.0, "f32"),
        (0.1, "f32"),
        (-1e30, "f32"),
        (-3, "f64"),
        (-3, "int8"),
        (200, "uint8"),
        (2**62, "int64"),
    ],
)
@pytest.mark.parametrize("bins", [5, 2000])
def test_sums_of_one_number_everywhere(number: float, dtype: str, bins: int) -> None:
    """They are counted: integers wrap around as if they were added, and a sum of nothing, or of -0, is 0."""
    ids = np.sort(np.random.default_rng(bins).integers(-1, bins // 2, 40_001))

    def sums(ids, start):
        return ts.segment_sum(ts.full(ids.shape, number, getattr(ts, dtype)), ids, start.shape[0])

    found = np.asarray(ts.function(sums)(ids, np.zeros(bins, np.float32)))
    want = np.zeros(bins, "float64" if dtype[0] == "f" else found.dtype)  # floats are added in f64
    np.add.at(want, ids[ids >= 0], want.dtype.type(found.dtype.type(number)))
    assert found.tobytes() == want.astype(found.dtype).tobytes()
    assert not np.signbit(found[bins // 2 :]).any()


@pytest.mark.parametrize(("n", "bins"), [(40_002, 7), (33_792, 300), (3, 3)])
def test_histograms(n: int, bins: int) -> None:
    """One number everywhere is not in memory, nor are the bins' numbers, which are computed where they are counted.
    The sums of one number are exact, so that parts, threads and open sizes give the same bits."""
    ids = np.random.default_rng(n).integers(-bins - 2, bins + 2, n)

    def counts(ids, start):
        again = ts.segment_sum(ts.full(ids.shape, 0.1, ts.f32), ids * 2 - 1, start.shape[0])
        whole = ts.segment_max(ts.full(ids.shape, 3, ts.int64), ids, start.shape[0])
        return ts.scatter_add(start, ids, ts.ones_like(ids).to(ts.f32)), again, whole

    known, start = ts.function(counts), np.arange(bins, dtype=np.float32)
    before, found = ts.get_num_threads(), []
    try:
        for count in (1, 2):
            ts.set_num_threads(count)
            found.append([np.asarray(v) for v in known(ids, start)])
    finally:
        ts.set_num_threads(before)
    text = ts.compile(known, target="cpu", arguments=(ids, start)).ir("schedule")
    assert text.count('kind="scatter"') == 3 and text.count(" = group(") == 4
    counts.__annotations__ = {"ids": ts.Tensor["N", ts.int64], "start": ts.Tensor["V", ts.f32]}
    found.append([np.asarray(v) for v in ts.function(counts)(ids, start)])
    assert len({b"".join(v.tobytes() for v in each) for each in found}) == 1
    at = np.where(ids < 0, ids + bins, ids)
    want, again = start.copy(), np.zeros(bins)
    np.add.at(want, at[(at >= 0) & (at < bins)], 1)
    second = ids * 2 - 1
    np.add.at(again, second[(second >= 0) & (second < bins)], np.float64(np.float32(0.1)))
    whole = np.where(np.bincount(ids[(ids >= 0) & (ids < bins)], minlength=bins) > 0, 3, np.iinfo(np.int64).min)
    for got, right in zip(found[0], (want, again.astype(np.float32), whole), strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("n, segments", [(0, 3), (1, 1), (70, 3), (5, 0), (1500, 2)])
def test_sizes_known_at_launch(target: str, n: int, segments: int) -> None:
    """1500 slices are more than one program of a GPU sorts."""
    if n == 1500 and target == "reference":
        pytest.skip("one slice after the other, interpreted")
    rng = np.random.default_rng(n)
    x, ids = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(-1, segments + 1, n)
    want = np.zeros((segments, 3))
    inside = (ids >= 0) & (ids < segments)
    np.add.at(want, ids[inside], x[inside].astype(np.float64))
    found = np.asarray(sums(x, ids, np.zeros(segments, np.float32)))
    np.testing.assert_allclose(found, want, 1e-5, 1e-4)


@pytest.mark.parametrize("n", [0, 1, 5, 2500])
def test_long_lines_with_ties_and_nan(target: str, n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.integers(-20, 20, n).astype(np.float32)
    x[:: max(n // 7, 2)] = np.nan
    up, down = (np.asarray(v) for v in ordered(x))
    np.testing.assert_array_equal(up, np.sort(x))
    np.testing.assert_array_equal(down, n - 1 - np.argsort(x[::-1], kind="stable")[::-1])


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "int8", "uint16", "int64"])
@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order_in_lines_of_any_length(dtype: str, descending: bool) -> None:
    """Both ways that a CPU sorts; zeros of both signs are equal, and all NaN are."""
    kind = dtypes.named(dtype)
    assert kind is not None
    rng = np.random.default_rng(0)
    for n in (31, 32, 300):
        x = rng.integers(0, 9, n).astype(kind.numpy)
        if kind.is_float:
            x[::7], x[1::9], x[2::5], x[3::8] = np.nan, -np.inf, -0.0, -x[3::8]
            x[::14] = -x[::14]
        order = x.astype(np.float64)
        want = n - 1 - np.argsort(order[::-1], kind="stable")[::-1] if descending else np.argsort(order, kind="stable")
        found = ts.function(lambda v: (ts.argsort(v, descending=descending), ts.sort(v, descending=descending)))(x)
        np.testing.assert_array_equal(np.asarray(found[0]), want)
        np.testing.assert_array_equal(np.asarray(found[1]).astype(np.float64), order[want])


def test_of_several_updates_of_one_place_the_last_counts(target: str) -> None:
    @ts.function
    def both(x: ts.Tensor["B", "V", ts.f32], at: ts.Tensor["B", "N", ts.int32], u: ts.Tensor["B", "N", ts.f32]):
        return ts.scatter(x, at, u), ts.scatter_add(x, at, u)

    at = np.array([[0, -1, 0, 9, 1, 0]], np.int32)
    put, added = both(np.zeros((1, 4), np.float32), at, np.arange(1, 7, dtype=np.float32)[None])
    np.testing.assert_array_equal(np.asarray(put), [[6, 5, 0, 2]])
    np.testing.assert_array_equal(np.asarray(added), [[10, 5, 0, 2]])


def test_largest_few() -> None:
    @ts.function
    def some(x: ts.Tensor["B", "N", ts.f32]):
        return ts.topk(x, 3, axis=0)

    x = np.array([[1, 7], [3, np.nan], [3, 2], [0, 5]], np.float32)
    values, at = (np.asarray(v) for v in some(x))
    np.testing.assert_array_equal(values, [[3, np.nan], [3, 7], [1, 5]])
    np.testing.assert_array_equal(at, [[1, 1], [2, 0], [0, 3]])
    with pytest.raises(ts.TesseraError, match="topk takes 0 to 2 elements"):
        some(np.zeros((2, 5), np.float32))


def test_kernels_compile_for_gpus() -> None:
    """All merges are one kernel, whose runs' length is read from memory."""
    require("cuda.bindings")
    found = ts.compile(sums, target="sm_90a")
    assert found.artifact.files["code.cubin"][:4] == b"\x7fELF" and "atomic" not in found.source
    assert found.source.count("__global__") == 5  # the first length lies on a multiple of 16 bytes
