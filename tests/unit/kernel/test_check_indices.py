"""Debug mode: a computed index outside its axis is an error at the user's line, with the index and the user's axis."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tessera as ts
from tessera.errors import DebugCheckError
from tests.conftest import require


@ts.function
def taken(x: ts.Tensor["B", "n", "D", ts.f32], i: ts.Tensor["m", ts.int64]):
    return ts.take(x, i, axis=1) * 2


@ts.function
def rows(x: ts.Tensor["n", "D", ts.f32], i: ts.Tensor["m", ts.int32]):
    return x[i] + 1


@ts.kernel
def gather(x: ts.Tensor["n", ts.f32], i: ts.Tensor["m", ts.int32], y: ts.Tensor["m", ts.f32]):
    j = ts.tile.linear_id()
    if j < m:
        y[j] = x[i[j]]


@ts.kernel
def scatter(x: ts.Tensor["n", ts.f32], i: ts.Tensor["m", ts.int32], y: ts.Tensor["m", ts.f32]):
    j = ts.tile.linear_id()
    if j < m:
        x[i[j]] = y[j]


@ts.kernel
def row_by_row(x: ts.Tensor["n", "D", ts.f32], i: ts.Tensor["m", ts.int32], y: ts.Tensor["m", "D", ts.f32]):
    for r in ts.tile.range(0, m, 1):
        y[r, :] = x[i[r], :]


@ts.kernel
def past(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    v = x[i + 3]
    if i < n:
        y[i] = v


@ts.kernel(BLOCK=4)
def past_or_one(x: ts.Tensor["n", ts.f32], i: ts.Tensor["n", ts.int32], y: ts.Tensor["n", ts.f32]):
    at = ts.tile.linear_id()
    y[at] = ts.tile.load(x[at + 1], other=1) + ts.tile.load(x[i[at]], other=1)


@ts.kernel(BLOCK=4)
def from_the_end(x: ts.Tensor["n", "D", ts.f32], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", "D", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[n - 1 - i, 1]
    z[i, :] = x[n - 1 - i, :]


@ts.kernel(BLOCK=4)
def later_rows(x: ts.Tensor["n+3", "D", ts.f32], z: ts.Tensor["n", "D", ts.f32]):
    i = ts.tile.linear_id()
    z[i, :] = x[i + 3, :]


@ts.kernel
def column(x: ts.Tensor["n", "D", ts.f32], y: ts.Tensor["n", ts.f32], shift: ts.int64):
    for r in ts.tile.range(0, n, 1):
        j = ts.tile.arange(0, 4) + shift
        y[r] = ts.tile.sum(x[r, j])


def array(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def indices(*values: int, dtype: type = np.int32) -> np.ndarray:
    return np.array(values, dtype)


def outside(index: int, axis: int, text: str) -> pytest.RaisesExc[DebugCheckError]:
    said = re.escape(f"The index {index} leaves axis {axis} of x, which has 5 elements.")

    def at(e: DebugCheckError) -> bool:
        (d,) = e.diagnostics
        with open(d.span.file, encoding="utf-8") as f:
            line = f.read().splitlines()[d.span.line - 1]
        return d.code == "TS506" and line[d.span.col - 1 : d.span.end_col - 1] == text

    return pytest.raises(DebugCheckError, match=said, check=at)


def test_what_lies_inside_is_as_without_debug_mode(debug_target: str) -> None:
    i = indices(0, 4, -5, -1)
    np.testing.assert_array_equal(taken(array(2, 5, 3), i.astype(np.int64)), array(2, 5, 3)[:, i] * 2)
    np.testing.assert_array_equal(rows(array(5, 3), i), array(5, 3)[i] + 1)
    inside, out = indices(0, 4, 2, 1), np.zeros(4, np.float32)
    gather(array(5), inside, out)
    np.testing.assert_array_equal(out, array(5)[inside])
    x = array(5)
    scatter(x, inside, -array(4))
    np.testing.assert_array_equal(x[inside], -array(4))
    out = np.zeros((4, 3), np.float32)
    row_by_row(array(5, 3), inside, out)
    np.testing.assert_array_equal(out, array(5, 3)[inside])


@pytest.mark.parametrize("index", [5, -6, 2**31 - 1])
def test_functions_name_the_axis_of_their_argument(debug_target: str, index: int) -> None:
    i = indices(0, index, 1)
    with outside(index, 1, "ts.take(x, i, axis=1)"):
        taken(array(2, 5, 3), i.astype(np.int64))
    with outside(index, 0, "x[i]"):
        rows(array(5, 3), i)


@pytest.mark.parametrize("index", [5, -1, 2**31 - 1, -(2**31)])
def test_kernels_stay_inside_and_say_where_they_would_not_have(debug_target: str, index: int) -> None:
    i = indices(0, 1, index, 4)
    with outside(index, 0, "x[i[j]]"):
        gather(array(5), i, array(4))
    with outside(index, 0, "x[i[j]] = y[j]"):
        scatter(array(5), i, array(4))
    with outside(index, 0, "x[i[r], :]"):
        row_by_row(array(5, 3), i, array(4, 3))


def test_a_load_past_the_end_needs_a_mask(debug_target: str) -> None:
    with outside(5, 0, "x[i + 3]"):
        past(array(5), array(5))


def test_lanes_behind_the_last_one_index_nothing(debug_target: str) -> None:
    x, column, z = array(5, 2), np.zeros(5, np.float32), np.zeros((5, 2), np.float32)
    from_the_end(x, column, z)
    np.testing.assert_array_equal(column, x[::-1, 1])
    np.testing.assert_array_equal(z, x[::-1])
    later_rows(x, z[:2])
    np.testing.assert_array_equal(z[:2], x[3:])


def test_a_load_that_says_what_lies_outside_may_leave_the_tensor(debug_target: str) -> None:
    out = np.zeros(5, np.float32)
    past_or_one(array(5), indices(0, 4, 5, -1, 2**31 - 1), out)
    np.testing.assert_array_equal(out, [1 + 0, 2 + 4, 3 + 1, 4 + 1, 1 + 1])


def test_axes_that_a_window_took_out_are_counted(debug_target: str) -> None:
    out = np.zeros(3, np.float32)
    column(array(3, 5), out, 1)
    np.testing.assert_array_equal(out, array(3, 5)[:, 1:].sum(1))
    with outside(5, 1, "x[r, j]"):
        column(array(3, 5), out, 2)


def test_without_debug_mode_there_are_no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    np.testing.assert_array_equal(rows(array(5, 3), indices(0, 7))[1], np.ones(3))
    assert not ts.compile(rows, target="cpu").artifact.meta["sites"]


def test_debug_code_compiles_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    require("cuda.bindings")
    monkeypatch.setenv("TESSERA_DEBUG", "1")
    for f in (taken, row_by_row, column):
        assert "ts::check(faults, 0" in ts.compile(f, target="sm_90a", dims={"D": 5}).source
