"""Parts of tiles: against NumPy on every target, at ragged edges, and what is refused."""

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
INDICES = (
    "2:5", "::-1", "::3", "-1", "0", "1:-1:2", "5:1:-2", ":, 3", "2, 1:4", "::2, ::-1", "-3:, :2", "..., 1",
    "None, 2:4", "1:3, None, ::2", "..., ::-2", "0, None", "2:3", "-2, -1:",
)  # fmt: skip


def needs(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")


@pytest.mark.parametrize("target", TARGETS)
def test_subscripts_are_numpys(target: str, tmp_path: Path) -> None:
    needs(target)
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    wanted = [eval(f"x[{i}]", {"x": x}) for i in INDICES]
    lines = [
        f"    y[{n}:{n + w.size}] = t[{i}].reshape({w.size})"
        for i, w, n in zip(INDICES, wanted, itertools.accumulate((w.size for w in wanted), initial=0), strict=False)
    ]
    program = "def k(x: Tensor['M', 'N', ts.f32], y: Tensor['K', ts.f32]):\n    t = x[0:6, 0:8] + 0\n" + "\n".join(
        lines
    )
    y = np.zeros(sum(w.size for w in wanted), np.float32)
    run(loaded(program, tmp_path)["k"], x, y, target=target)
    np.testing.assert_array_equal(y, np.concatenate([w.ravel() for w in wanted]))


def test_iteration_is_numpys(tmp_path: Path) -> None:
    program = """
def k(x: Tensor["n", ts.f32], y: Tensor["m", ts.f32]):
    a, b = x[0:8].reshape(2, 4)
    first, *_, last = x[0:8]
    y[0:4], y[4], y[5] = a - b, first, last
    for v in x[2:5]:
        last = last * 2 + v
    y[6], y[7] = last, sum(v * w for v, w in zip(x[0:4], reversed(x[0:4])))
"""
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run(loaded(program, tmp_path)["k"], x, y)
    assert y.tolist() == [-4, -4, -4, -4, 0, 7, 7 * 8 + 2 * 4 + 3 * 2 + 4, 4]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f64", "bf16", "int8", "uint64", "bool_", "complex128"])
def test_moving_keeps_the_dtype(dtype: str, target: str, tmp_path: Path) -> None:
    needs(target)
    program = f"""
def k(x: Tensor["M", "N", ts.{dtype}], y: Tensor["M", "N", ts.{dtype}], z: Tensor["M", ts.{dtype}]):
    t = x[0:4, 0:8]
    y[0:4, 0:8] = ts.tile.concat((t[::-1, 4:], t[:, :4]))
    z[0:4] = t[:, -1]
"""
    kind = {"f64": np.float64, "bf16": ml_dtypes.bfloat16, "bool_": np.bool_}.get(dtype) or getattr(np, dtype)
    x = (np.arange(32).reshape(4, 8) % 3).astype(kind)
    y, z = np.zeros_like(x), np.zeros_like(x[:, 0])
    run(loaded(program, tmp_path)["k"], x, y, z, target=target)
    np.testing.assert_array_equal(y, np.concatenate((x[::-1, 4:], x[:, :4]), -1))
    np.testing.assert_array_equal(z, x[:, -1])


RAGGED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "slice": ("ts.tile.row_max(t[:, 2:])", lambda x: x[:, 2:].max(1)),
    "flip": ("ts.tile.row_max(ts.tile.flip(t))", lambda x: x.max(1)),
    "index": ("t[:, 4]", lambda x: x[:, 4]),
    "concat": ("ts.tile.row_max(ts.tile.concat((t, t * 2)))", lambda x: np.concatenate((x, 2 * x), 1).max(1)),
    "mean": ("ts.tile.sum(t[:, ::2], axis=1)", lambda x: x[:, ::2].sum(1)),
    "stack": ("ts.tile.max(ts.tile.stack((t, t)), axis=(0, 2))", lambda x: x.max(1)),
    "split": ("ts.tile.row_max(ts.tile.split(t, 2)[0] + 0)", lambda x: x[:, :4].max(1)),
    "take": ("ts.tile.row_max(ts.tile.take(t, ts.tile.arange(-1, 7)))", lambda x: x.max(1)),
    "places": ("ts.tile.row_max(ts.tile.take(t, at[0:4]))", lambda x: x[:, [1, 2, 3]].max(1)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", RAGGED)
def test_what_does_not_exist_is_in_no_reduction(name: str, target: str, tmp_path: Path) -> None:
    """Rows of 5 elements below zero in tiles of 8: a maximum that saw padding would be 0."""
    needs(target)
    expression, meaning = RAGGED[name]
    program = f"""
def k(x: Tensor["M", "N", ts.f32], at: Tensor["n", ts.int32], y: Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        t = x[i : i + 4, 0:8]
        y[i : i + 4] = {expression}
"""
    x = -1 - np.random.default_rng(0).random((6, 5), np.float32)
    y = np.zeros(6, np.float32)
    run(loaded(program, tmp_path)["k"], x, np.array([1, 2, 3], np.int32), y, target=target)
    np.testing.assert_allclose(y, meaning(x), rtol=1e-6)


REFUSED = {
    "t[9]": ("TS204", "index 9 is outside of an axis of 4 elements of [4, 8]"),
    "t[0:5]": ("TS204", "the slice reaches outside of an axis of 4 elements of [4, 8]"),
    "t[2:2]": ("TS204", "the slice takes none of the 4 elements of an axis of [4, 8]"),
    "t[::0]": ("TS105", "the step of a slice is not 0"),
    "t[0, 0, 0]": ("TS204", "3 indices for the 2 axes of [4, 8] f32"),
    "t[0:p]": ("TS404", "the slice's width must be known at compile time; here it is p"),
    "t[p : p + 4 : 2]": ("TS404", "a slice that starts at a computed place has no step"),
    "t[x[0:4, 0]]": ("TS207", "an index is an integer, not [4] f32"),
    "t[at[0:4], at[0:4]]": ("TS402", "a subscript of a tile takes one index tile"),
    "t[N - 20]": ("TS204", "index -12 is outside of an axis of 4 elements of [4, 8]"),
    "ts.tile.gather(t, at[0:4])": ("TS402", "gather: an index [4] int32 has other axes than [4, 8] f32"),
    "t[..., ..., 0]": ("TS204", "an index has one `...` at most"),
    "ts.tile.take(t, at[0:4], axis=None)": ("TS204", "take runs along one axis of [4, 8], not None"),
    "ts.tile.gather(t, u)": ("TS402", "gather: an index is as long as the tile along all axes but axis 1"),
    "ts.tile.scatter(t, at[0:4], t)": ("TS402", "[4, 8] does not broadcast to [4, 4]"),
    "ts.tile.scatter_add(t > 0, at[0:4], True)": ("TS402", "scatter_add: bools cannot be added"),
    "ts.tile.concat(t)": ("TS105", "concat takes a tuple of tiles, such as concat((a, b)), not"),
    "ts.tile.concat((t, t[:, 0:3]), axis=0)": (
        "TS402",
        "concat joins tiles that differ along axis 0 alone, not",
    ),
    "ts.tile.stack((t, t), axis=3)": ("TS204", "axis 3 is out of range"),
    "ts.tile.split(t, 3)": ("TS402", "[4, 8] has no 3 equal parts along axis 1"),
    "ts.tile.take(t, t)": ("TS402", "take: places are integers, not [4, 8] f32"),
    "ts.tile.take(t, ts.tile.arange(4), axis=2)": ("TS204", "axis 2 is out of range for [4, 8]"),
}


@pytest.mark.parametrize("expression", REFUSED)
def test_refused(expression: str, tmp_path: Path) -> None:
    program = f"""
def k(x: Tensor["M", "N", ts.f32], at: Tensor["n", ts.int32], y: Tensor["M", "N", ts.f32]):
    p = ts.tile.program_id()
    t, u = x[0:4, 0:8] + 1, ts.tile.zeros((3, 2), ts.int32)
    y[p, :] = x[p, :]
    found = {expression}
"""
    x = np.zeros((4, 8), np.float32)
    found = [
        (d.code, d.message)
        for d in check(loaded(program, tmp_path)["k"], x, np.zeros(9, np.int32), x).diagnostics
        if d.severity == "error"
    ]
    assert [code for code, _ in found] == [REFUSED[expression][0]]
    assert found[0][1].startswith(REFUSED[expression][1])


def test_sizes_that_are_not_known_yet_are_symbols(tmp_path: Path) -> None:
    """In an editor, where N has no size: the types are those of slices that stay inside, and nothing is refused."""
    program = """
def k(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        t = x[i : i + 4, :]
        a, b, c, d, e = t[:, 1:], t[:, -1], t[:, ::-1], t[:, 2:6], t[:, :-2:2]
        f = ts.tile.split(t, 2)[0]
        y[i : i + 4, :] = t
"""
    analysis = check(loaded(program, tmp_path)["k"])
    assert [d.message for d in analysis.diagnostics if d.severity == "error"] == []
    types = {e.name: str(e.type.shape) for e in analysis.expressions if e.name in tuple("abcdef")}
    assert types == {"a": "(4, N-1)", "b": "(4,)", "c": "(4, N)", "d": "(4, 4)", "e": "(4, (N-1)//2)", "f": "(4, N//2)"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("moved", ["ts.tile.concat((t, t), axis=0)", "t[::-1]", "ts.tile.take(t, at[0:4], axis=0)"])
def test_rows_that_do_not_exist_stay_out_of_a_second_reduction(moved: str, target: str, tmp_path: Path) -> None:
    """The maximum of such a row is not a number: not even of what is summed afterwards."""
    needs(target)
    program = f"""
def k(x: Tensor["M", "N", ts.f32], at: Tensor["n", ts.int32], y: Tensor["P", ts.f32]):
    for i in ts.tile.range(0, M, 4):
        t = x[i : i + 4, 0:8]
        y[i // 4] = ts.tile.sum(ts.tile.row_max({moved}))
"""
    x = -1 - np.random.default_rng(0).random((6, 5), np.float32)
    y = np.zeros(2, np.float32)
    run(loaded(program, tmp_path)["k"], x, np.array([0, 1, -1], np.int32), y, target=target)
    most = x.max(1)
    wanted = {"ts.tile.concat((t, t), axis=0)": [2 * most[:4].sum(), 2 * most[4:].sum()],
              "t[::-1]": [most[:4].sum(), most[4:].sum()]}.get(moved, [most[:2].sum(), most[4:].sum()])  # fmt: skip
    np.testing.assert_allclose(y, wanted, rtol=1e-5)


def test_what_is_asserted_of_sizes_is_known_of_parts(tmp_path: Path) -> None:
    """Of an even D, that is not known yet, each second element is D//2 elements; of any D it is not."""
    program = """
def k(x: Tensor["M", "D", ts.f32], w: Tensor["D//2", ts.f32], y: Tensor["M", "D", ts.f32]):
    assert D % 2 == 0
    for i in ts.tile.range(0, M, 4):
        t = x[i : i + 4, :]
        t[:, ::2] = t[:, 1::2] * w[0 : D - D // 2]
        y[i : i + 4, :] = t
"""
    assert [d for d in check(loaded(program, tmp_path)["k"]).diagnostics if d.severity == "error"] == []
    found = check(loaded(program.replace("assert D % 2 == 0", "pass"), tmp_path)["k"]).diagnostics
    assert [d.code for d in found if d.severity == "error"] == ["TS402"]
