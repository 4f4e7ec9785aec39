"""The rule of docs/kernels.md, applied by hand to tricky kernels.

The compiler's answer, that of an editor and the one written here are the same; what the rule refuses is refused with
all readings, each with a fix that mends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tests.kernel_runner import check
from tests.unit.kernel.axes_by_hand import BY_HAND, HEAD


def analysed(text: str) -> FileAnalysis:
    file = FileAnalysis("axes.py")
    file.update(text)
    return file


@pytest.mark.parametrize("name", [n for n, k in BY_HAND.items() if k.says])
def test_the_rule_by_hand_is_the_compilers(name: str) -> None:
    (analysis,) = analysed(BY_HAND[name].text).analyses
    assert analysis.ok, [d.render() for d in analysis.diagnostics]
    found = sorted((e for e in analysis.expressions if e.kind == "index"), key=lambda e: (e.span.line, e.span.col))
    assert tuple(f"{e.type.axis} {e.type.label}" for e in found) == BY_HAND[name].says


@pytest.mark.parametrize("name", [n for n, k in BY_HAND.items() if not k.says])
def test_what_is_open_is_refused_with_every_reading(name: str) -> None:
    text = BY_HAND[name].text
    found = [d for d in analysed(text).diagnostics if d.severity == "error"]
    assert [d.code for d in found] == ["TS419"], [d.render() for d in found]
    readings = [line for line in found[0].message.splitlines() if " means " in line]
    assert len(readings) >= 2, found[0].message
    for fix in found[0].fixes:
        assert "TS419" not in [d.code for d in analysed(apply(text, fix)).diagnostics]


def test_both_readings_have_a_fix() -> None:
    text = (
        HEAD
        + """def f(x: Tensor["M", "N", f32], at: int32, y: Tensor["M", f32]):
    y[ts.tile.each()] = ts.tile.sum(x[at])
"""
    )
    (found,) = analysed(text).diagnostics
    assert [f.message for f in found.fixes] == ["Let it mean M", "Let it mean N"], found.render()
    assert "ts.tile.sum(x[at, :])" in apply(text, found.fixes[0])
    assert "ts.tile.sum(x[ts.tile.each(), at])" in apply(text, found.fixes[1])
    for fix in found.fixes:
        assert not analysed(apply(text, fix)).diagnostics


def too_many(x: ts.Tensor["n", 3, ts.f32], y: ts.Tensor["n", 3, ts.f32]):
    y[tile_n : tile_n + 8, 0, 0] = x[tile_n : tile_n + 8, :]


def every_batch_to_one_place(x: ts.Tensor["...", "N", ts.f32], y: ts.Tensor["N", ts.f32]):
    for i in ts.tile.range(0, N, 8):
        y[i : i + 8] = x[i : i + 8]


def of_other_lengths(x: ts.Tensor["n", 3, ts.f32], v: ts.Tensor[5, ts.f32], y: ts.Tensor["n", 3, ts.f32]):
    y[tile_n : tile_n + 8, :] = x[tile_n : tile_n + 8, :] * v[:]


def without_annotations(x: ts.Tensor, v: ts.Tensor) -> ts.Tensor:
    return x * v


@pytest.mark.parametrize(
    ("kernel", "shapes", "says"),
    [
        (too_many, [(9, 3), (9, 3)], "2 axes [n, 3]"),
        (every_batch_to_one_place, [(2, 9), (9,)], "programs along a leading axis (2)"),
        (of_other_lengths, [(9, 3), (5,), (9, 3)], "runs along 5, which is not an axis of [8 along tile_n, 3]"),
        (without_annotations, [(4, 6), (5,)], "5"),
    ],
)
def test_messages_show_no_names_of_the_compilers_own(
    kernel: Callable[..., Any], shapes: list[tuple[int, ...]], says: str
) -> None:
    found = check(kernel, *(np.zeros(s, np.float32) for s in shapes)).diagnostics
    assert found
    text = "\n".join(d.render() for d in found)
    own = "\n".join(d.message for d in found)
    assert says in own, text
    assert not re.search(r"\d'\d|%|#\d|'\?", own), text
    assert all(c.isprintable() or c == "\n" for c in own)


@ts.kernel
def named_coordinates(u: Tensor["H", "W", ts.f32], out: Tensor["H", "W", ts.f32]):
    i, j = tile_h, tile_w
    column = j
    a, b = i, j
    a, b = b, a  # neither is a coordinate's other name
    low = i + b - a + j - i
    out[low : low + 4, column : column + 8] = u[i : i + 4, j : j + 8] + (j + ts.tile.arange(8))[None, :]


@ts.kernel
def named_and_serial(a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    k = tile_k
    total = ts.tile.zeros((8, 8))
    total += a[tile_m : tile_m + 8, k : k + 8] @ b[k : k + 8, tile_n : tile_n + 8]
    return total


def test_a_coordinate_may_have_another_name():
    u = np.random.default_rng(0).standard_normal((10, 20), np.float32)
    out = np.zeros_like(u)
    named_coordinates(u, out)
    assert np.array_equal(out, u + np.arange(20, dtype=np.float32))
    np.testing.assert_allclose(named_and_serial(u, u.T.copy()), u @ u.T, rtol=1e-5)
