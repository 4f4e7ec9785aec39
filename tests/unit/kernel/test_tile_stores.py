"""What is stored to parts of tiles, read and put at computed places: against NumPy on every target."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.conftest import require
from tests.kernel_runner import check, run
from tests.unit.kernel.test_builtins import loaded

TARGETS = ("cpu", "reference", "emulator:sm_90a")


def needs(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")


STORES = (
    "t[2:5] = 9", "t[0] = u", "t[:, 3] = 7", "t[::2, ::-1] = t[:3] * 2", "t[..., -2:] = 0.5", "t[-1, 1:7:3] += 100",
    "t[i] = u", "t[:, i] = t[:, i + 1] + 1", "t[i, i] = 4", "t[i : i + 2] = u", "t[1:4, i : i + 3] = t[:3, :3]",
    "t[i, 2:5] -= 1", "t[at] = u", "t[:, at] = t[:, :4]", "t[at, 2] = -1", "t[i:i + 2, i:i + 3] = t[2:4, 1:4]",
    "t[...] = u", "t[1:3, :] = u[None, :]", "t[at, i] = v",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_parts_are_stored_as_numpy_does(target: str, tmp_path: Path) -> None:
    """One statement after the other; two values for one place leave the last one there."""
    needs(target)
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    at = np.array([3, 0, 3, 5], np.int32)
    lines = "\n".join(f"        {s}\n        y[{n * 6} : {n * 6 + 6}, 0:8] = t" for n, s in enumerate(STORES))
    program = f"""
def k(x: Tensor["M", "N", ts.f32], places: Tensor["n", ts.int32], y: Tensor["K", "N", ts.f32]):
    for p in ts.tile.range(0, 1):
        t, u, v, at = x[0:6, 0:8] + 0, x[1, 0:8] * 3, x[2, 0:4].reshape(4), places[0:4].reshape(4)
        i = places[0]
{lines}
"""
    y = np.zeros((6 * len(STORES), 8), np.float32)
    run(loaded(program, tmp_path)["k"], x, at, y, target=target)
    names = {"t": x.copy(), "u": x[1] * 3, "v": x[2, :4], "at": at, "i": 3}
    for n, statement in enumerate(STORES):
        exec(statement, {"np": np}, names)
        np.testing.assert_array_equal(y[n * 6 : n * 6 + 6], names["t"], err_msg=statement)


@pytest.mark.parametrize("target", TARGETS)
def test_a_place_outside_is_read_as_padding_and_not_stored(target: str, tmp_path: Path) -> None:
    needs(target)
    program = """
def k(x: Tensor["M", "N", ts.f32], at: Tensor["n", ts.int32], y: Tensor["n", "N", ts.f32], z: Tensor["n", ts.f32]):
    for j in ts.tile.range(0, n):
        t = x[0:4, 0:8] - 100
        z[j] = ts.tile.max(t[at[j]])
        t[at[j]] = 1
        y[j, 0:8] = ts.tile.col_sum(t)
"""
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    at = np.array([2, 4, -1, 2**31 - 1], np.int32)
    y, z = np.zeros((4, 8), np.float32), np.zeros(4, np.float32)
    run(loaded(program, tmp_path)["k"], x, at, y, z, target=target)
    np.testing.assert_array_equal(z, [x[2].max() - 100, -np.inf, -np.inf, -np.inf])
    np.testing.assert_array_equal(y[0], (x - 100)[[0, 1, 3]].sum(0) + 1)
    for row in y[1:]:
        np.testing.assert_array_equal(row, (x - 100).sum(0))


@pytest.mark.parametrize("target", TARGETS)
def test_elements_of_a_tile_at_computed_places(target: str, tmp_path: Path) -> None:
    """gather, scatter and scatter_add against NumPy; several values for one place are taken in order."""
    needs(target)
    program = """
def k(x: Tensor["M", "N", ts.f32], at: Tensor["M", "K", ts.int32], v: Tensor["M", "K", ts.f32],
      g: Tensor["M", "K", ts.f32], s: Tensor["M", "N", ts.f32], a: Tensor["M", "N", ts.f32],
      r: Tensor["M", "N", ts.f32]):
    for p in ts.tile.range(0, 1):
        t, places, new = x[0:4, 0:8], at[0:4, 0:16], v[0:4, 0:16]
        g[0:4, 0:16] = ts.tile.gather(t, places)
        s[0:4, 0:8] = ts.tile.scatter(t, places, new)
        a[0:4, 0:8] = ts.tile.scatter_add(t, places, new, axis=1)
        r[0:4, 0:8] = ts.tile.scatter_add(t, at[0, 0:4], x[0:4, 0:8] * 0.1, axis=0)
"""
    rng = np.random.default_rng(3)
    x, v = rng.standard_normal((4, 8), np.float32), rng.standard_normal((4, 16), np.float32)
    at = rng.integers(-2, 10, (4, 16)).astype(np.int32)
    g, (s, a, r) = np.zeros_like(v), (np.zeros_like(x) for _ in range(3))
    run(loaded(program, tmp_path)["k"], x, at, v, g, s, a, r, target=target)
    inside = (at >= 0) & (at < 8)
    np.testing.assert_array_equal(g, np.where(inside, np.take_along_axis(x, np.clip(at, 0, 7), 1), 0))
    put, added, rows = x.copy(), x.copy(), x.copy()
    for i, j in itertools.product(range(4), range(16)):
        if inside[i, j]:
            put[i, at[i, j]] = v[i, j]
            added[i, at[i, j]] += v[i, j]
    for j in range(4):
        if 0 <= at[0, j] < 4:
            rows[at[0, j]] += x[j] * np.float32(0.1)
    np.testing.assert_array_equal(s, put)
    np.testing.assert_array_equal(a, added)  # the same order, so the same bits
    np.testing.assert_array_equal(r, rows)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f64", "bf16", "int8", "bool_", "complex64"])
def test_stores_keep_the_dtype(dtype: str, target: str, tmp_path: Path) -> None:
    needs(target)
    program = f"""
def k(x: Tensor["M", "N", ts.{dtype}], at: Tensor["n", ts.int32], y: Tensor["M", "N", ts.{dtype}]):
    t = x[0:4, 0:8]
    t[1:3, ::2] = x[0:1, 0:4]
    t[at[0:2]] = x[3, 0:8]
    t[at[0], 1] = x[0, 0]
    y[0:4, 0:8] = t
"""
    kind = {"f64": np.float64, "bf16": ml_dtypes.bfloat16, "bool_": np.bool_}.get(dtype) or getattr(np, dtype)
    x = (np.arange(32).reshape(4, 8) % 3).astype(kind)
    y, at = np.zeros_like(x), np.array([2, 0], np.int32)
    run(loaded(program, tmp_path)["k"], x, at, y, target=target)
    want = x.copy()
    want[1:3, ::2] = x[0, :4]
    want[at] = x[3]
    want[2, 1] = x[0, 0]
    np.testing.assert_array_equal(y, want)


EXISTENCE: dict[str, Callable[[Any], Any]] = {
    "t[:, 0:4] = z[0:4, 4:8]": lambda x: x[:, 4].copy(),  # of columns 4 to 7 there is one
    "t[:, at[0:2]] = ts.tile.ones((4, 2)) * -0.5": lambda x: np.full(len(x), -0.5),
    "t = ts.tile.scatter(t, ts.tile.arange(8), t)": lambda x: x.max(1),
    "t = ts.tile.gather(t, ts.tile.full((4, 2), 6, ts.int32))": lambda x: np.full(len(x), -np.inf),
    "t[:, ts.tile.arange(4)] = -9": lambda x: np.maximum(x[:, 4], -9),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("statement", EXISTENCE)
def test_what_does_not_exist_is_in_no_reduction(statement: str, target: str, tmp_path: Path) -> None:
    """Rows of 5 elements below zero in tiles of 8: a maximum that saw padding would be 0."""
    needs(target)
    program = f"""
def k(x: Tensor["M", "N", ts.f32], at: Tensor["n", ts.int32], y: Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        t, z = x[i : i + 4, 0:8], x
        {statement.replace("z[0:4", "x[i : i + 4")}
        y[i : i + 4] = ts.tile.row_max(t)
"""
    x = -1 - np.random.default_rng(0).random((6, 5), np.float32)
    y = np.zeros(6, np.float32)
    run(loaded(program, tmp_path)["k"], x, np.array([1, 2, 3], np.int32), y, target=target)
    np.testing.assert_allclose(y, EXISTENCE[statement](x), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_branch_stores_exists_where_it_is_taken(target: str, tmp_path: Path) -> None:
    """Also at places that lay outside of the tensor before."""
    needs(target)
    program = """
def k(x: Tensor["N", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        t = x[p * 4 - 2 : p * 4 + 6]
        if p != 1:
            t[0] = -20
            t[7] = -30
        y[p] = ts.tile.max(t[0:2]) + ts.tile.max(t[6:8])
"""
    x, y = -np.arange(1, 13, dtype=np.float32), np.zeros(3, np.float32)
    run(loaded(program, tmp_path)["k"], x, y, target=target)
    np.testing.assert_array_equal(y, [-20 + x[4], x[2] + x[8], x[7] - 30])


@pytest.mark.parametrize("target", TARGETS)
def test_parts_are_carried_by_loops_branches_and_masks(target: str, tmp_path: Path) -> None:
    """A part that is stored is an assignment: what is behind the statement sees it, other names do not."""
    needs(target)
    program = """
def first_half(t, by):
    t[0:4] = t[0:4] * by
    return t


def k(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32], z: Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M):
        t = x[i, 0:8]
        old = t
        for j in ts.tile.range_k(1, 8):
            if x[i, j] > 2:
                t[j] = t[j - 1] + 1
            else:
                t[j - 1 : j + 1] += 10
        if t > 20:
            t[4:] = -t[4:]
        y[i, 0:8] = first_half(t, 2)
        z[i] = ts.tile.sum(old)
"""
    x = np.random.default_rng(1).integers(-4, 9, (5, 8)).astype(np.float32)
    y, z = np.zeros_like(x), np.zeros(5, np.float32)
    run(loaded(program, tmp_path)["k"], x, y, z, target=target)
    for row, got in zip(x, y, strict=True):
        t = row.copy()
        for j in range(1, 8):
            if row[j] > 2:
                t[j] = t[j - 1] + 1
            else:
                t[j - 1 : j + 1] += 10
        t[4:] = np.where(t[4:] > 20, -t[4:], t[4:])
        t[:4] *= 2
        np.testing.assert_array_equal(got, t)
    np.testing.assert_array_equal(z, x.sum(1))


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_shared_tiles(target: str, tmp_path: Path) -> None:
    needs(target)
    program = """
def k(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    s = ts.tile.alloc_shared((4, 8), ts.f32)
    for i in ts.tile.range(0, M, 4):
        s[:] = x[i : i + 4, 0:8]
        s[1:3, 4:] = 5
        for j in ts.tile.range_k(0, 4):
            s[j, j] = s[j, 7] + 1
        s[:, ::-1] = s * 2
        y[i : i + 4, 0:8] = s
"""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    y = np.zeros_like(x)
    run(loaded(program, tmp_path)["k"], x, y, target=target)
    for i in (0, 4):
        s = x[i : i + 4].copy()
        s[1:3, 4:] = 5
        for j in range(4):
            s[j, j] = s[j, 7] + 1
        np.testing.assert_array_equal(y[i : i + 4], s[:, ::-1] * 2)


@pytest.mark.parametrize("target", TARGETS)
def test_slices_before_index_tiles(target: str, tmp_path: Path) -> None:
    """Read, stored and reduced, with a ragged slice and places that do not exist."""
    needs(target)
    program = """
def k(x: Tensor["B", "M", "N", ts.f32], columns: Tensor["n", ts.int32], y: Tensor["B", "M", "n", ts.f32],
      z: Tensor["B", ts.f32], w: Tensor["B", "M", "N", ts.f32]):
    for b in ts.tile.range(0, B):
        for m in ts.tile.range_k(0, M, 4):
            t = x[b, m : m + 4, columns[0:8]]
            y[b, m : m + 4, 0:8] = t
            w[b, m : m + 4, columns[0:8]] = t + 1
        z[b] = ts.tile.max(x[b, 4:8, columns[0:8]])
"""
    x = -1 - np.random.default_rng(0).integers(0, 50, (2, 6, 9)).astype(np.float32)
    columns = np.array([8, 0, 3, 5, 7], np.int32)
    y, z, w = np.zeros((2, 6, 5), np.float32), np.zeros(2, np.float32), np.zeros_like(x)
    run(loaded(program, tmp_path)["k"], x, columns, y, z, w, target=target)
    np.testing.assert_array_equal(y, x[:, :, columns])
    np.testing.assert_array_equal(z, x[:, 4:][:, :, columns].max((1, 2)))
    want = np.zeros_like(x)
    want[:, :, columns] = x[:, :, columns] + 1
    np.testing.assert_array_equal(w, want)


@pytest.mark.parametrize("target", TARGETS)
def test_an_element_at_a_fixed_place_is_that_of_its_program(target: str, tmp_path: Path) -> None:
    """The CPU used to read it before the program's loop, from memory that nothing had been written to."""
    needs(target)
    program = """
def k(x: Tensor["M", "N", ts.f32], y: Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M):
        t = x[i, 0:4] * 2
        y[i] = ts.tile.cumsum(t)[2]
"""
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(3, np.float32)
    run(loaded(program, tmp_path)["k"], x, y, target=target)
    np.testing.assert_array_equal(y, x[:, :3].sum(1) * 2)


@pytest.mark.parametrize("target", TARGETS)
def test_values_meet_the_axes_that_a_part_has_all_of(target: str, tmp_path: Path) -> None:
    """A vector along N goes to each row, one along the rows to each column, whatever the lengths are."""
    needs(target)
    program = """
def k(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        t = x[i : i + 4, :]
        t[1:3, :] = ts.tile.col_max(t)
        t[:, 2:4] = ts.tile.row_sum(t)
        y[i : i + 4, :] = t
"""
    x = np.random.default_rng(5).integers(0, 9, (4, 4)).astype(np.float32)
    y = np.zeros_like(x)
    run(loaded(program, tmp_path)["k"], x, y, target=target)
    want = x.copy()
    want[1:3] = want.max(0)
    want[:, 2:4] = want.sum(1)[:, None]
    np.testing.assert_array_equal(y, want)


def test_a_stored_part_says_nothing_of_the_grid(tmp_path: Path) -> None:
    """Implicit coordinates are found by what is stored to tensors, or returned."""
    program = """
def k(x: Tensor["M", "K", ts.f32]) -> Tensor["M", ts.f32]:
    t = ts.tile.zeros((4,))
    t += ts.tile.row_sum(x[tile_m : tile_m + 4, tile_k : tile_k + 8])
    t[0:2] = t[0:2] * 2
    return t
"""
    x = np.arange(96, dtype=np.float32).reshape(6, 16)
    found = check(loaded(program, tmp_path)["k"], x)
    assert [d.message for d in found.diagnostics if d.severity == "error"] == []
    assert found.op is not None and found.op.attrs["grid"] == (2,)


REFUSED = {
    "x[0:4, 0:8][0] = 1": ("TS406", "only a tile that has a name can be changed in part"),
    "t[0:2] = x[0:4, 0:8]": ("TS402", "[4, 8] does not broadcast to [2, 8]"),
    "t[0] = x[0:4, 0:8]": ("TS402", "[4, 8] does not fit the part [8]"),
    "t[0, None] = 1": ("TS402", "a store cannot insert an axis; leave out the None"),
    "n[0] = 1.5": ("TS303", "1.5 cannot be stored to the tile, which holds int32"),
    "s[0:2] = 1": ("TS407", "a part of this shared tile is stored to before anything is in it"),
    "ts.tile.scatter(s, n, 1)": ("TS406", "scatter gives a new tile; to a shared one, store a part"),
    "inner()": ("TS406", "t belongs to the function around this one; change it there"),
}


@pytest.mark.parametrize("statement", REFUSED)
def test_refused(statement: str, tmp_path: Path) -> None:
    program = f"""
def k(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    def inner():
        t[0] = 1

    t, n = x[0:4, 0:8] + 1, ts.tile.zeros((4,), ts.int32)
    s = ts.tile.alloc_shared((4, 8), ts.f32)
    {statement}
    y[0:4, 0:8] = t
"""
    x = np.zeros((4, 8), np.float32)
    found = [
        (d.code, d.message) for d in check(loaded(program, tmp_path)["k"], x, x).diagnostics if d.severity == "error"
    ]
    assert [code for code, _ in found] == [REFUSED[statement][0]], found
    assert found[0][1].startswith(REFUSED[statement][1])
