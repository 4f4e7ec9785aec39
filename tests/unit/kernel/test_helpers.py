"""Plain functions that kernels call: inlined, and held to their annotations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, Tile, bf16, f16, f32, f64  # noqa: F401
from tessera.errors import register_source
from tests.kernel_runner import check, codes, run


@ts.tile.helper
def outer(a: Tile["m", f32], b: Tile["n", f32]) -> Tile["m", "n", f32]:
    assert m == 8
    return a[:, None] * b[None, :] / n


def same(a: Tensor["m", f32], b: Tensor["m", f32]):
    return a + b


def scaled(a: Tensor["...", f32], by: f32) -> Tensor["...", f32]:
    return a * by


def wrong_shape(a: Tile["m", f32]) -> Tile["m", "m", f32]:
    return a


def wrong_dtype(a: Tile["m", f32]) -> Tile["m", f16]:
    return a * 2


def moments(a: Tile["m", "n", f32]) -> tuple[Tile["m", f32], Tile["n", f32]]:
    return ts.tile.row_sum(a), ts.tile.row_sum(a)


def part(w: Tensor["k", f32], at: int) -> Tile[4, f32]:
    return w[at : at + 4]


def width(w: Tensor["k", f32]) -> int:
    return k


def sign(x: Tile["m", f32]) -> Tile["m", f32]:
    if x > 0:
        return x * 0 + 1
    if x < 0:
        low = x * 0 - 1
        return low
    return x * 0


def halves(x: Tile["m", f32]):
    """Two values, from either side of a condition."""
    if x > 4:
        return x, x * 2
    else:
        x = x + 10
    return x, x * 3


def some(x: Tile["m", f32]):
    if x > 4:
        return x


def kernel(expression: str, dtype: str = "f32") -> Any:
    """A kernel that stores an expression of a vector's block x and a matrix' block z."""
    text = f"""def kernel(v: Tensor["N", {dtype}], a: Tensor["N", "N", f32], w: Tensor["q", f32], y: Tensor["N", f32]):
    for i in ts.tile.range(0, N, 8):
        x, z = v[i : i + 8], a[i : i + 8, 0:4]
        y[i : i + 8] = {expression}
"""
    name = f"helpers {expression} {dtype}"
    register_source(name, text)
    names = {**globals()}
    exec(compile(text, name, "exec"), names)
    return names["kernel"]


def arguments(dtype: str = "f32") -> list[Any]:
    kind = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}[dtype]
    a = np.arange(100, dtype=np.float32).reshape(10, 10)
    return [np.arange(10).astype(kind), a, np.arange(4, 11, dtype=np.float32), np.zeros(10, np.float32)]


@pytest.mark.parametrize(
    "expression,wanted",
    [
        ("ts.tile.sum(outer(x, v[0:4]), axis=1)", lambda v, a, w: v * 6 / 4),
        ("same(x, a[0, i : i + 8])", lambda v, a, w: v + a[0]),
        ("ts.tile.row_sum(scaled(z, 2.0))", lambda v, a, w: 2 * a[:, :4].sum(1)),
        ("scaled(x, x)", lambda v, a, w: v * v),
        ("sign(x - 4)", lambda v, a, w: np.sign(v - 4)),
        ("halves(x)[0] + halves(x)[1]", lambda v, a, w: np.where(v > 4, v * 3, (v + 10) * 4)),
        ("x + ts.tile.sum(part(w, 1)) + width(w)", lambda v, a, w: v + w[1:5].sum() + 7),
    ],
)
def test_dims_are_bound_by_tiles(expression: str, wanted: Any) -> None:
    for target in ("reference", "cpu"):
        given = arguments()
        run(kernel(expression), *given, target=target)
        np.testing.assert_allclose(given[-1], wanted(*given[:3]), rtol=1e-6)


@pytest.mark.parametrize(
    "expression,dtype,code",
    [
        ("same(x, v[0:4])", "f32", "TS208"),
        ("ts.tile.row_sum(outer(z, x))", "f32", "TS209"),
        ("part(a, 1)", "f32", "TS209"),
        ("scaled(x, 2.0)", "f64", "TS304"),
        ("same(x * 2, x)", "bf16", "TS304"),
        ("scaled(x, i)", "f32", None),
        ("scaled(z, ts.tile.cast(z, ts.f64))", "f32", "TS303"),
        ("wrong_shape(x)", "f32", "TS201"),
        ("wrong_dtype(x)", "f32", "TS303"),
        ("moments(z)[0]", "f32", "TS201"),
        ("some(x)", "f32", "TS102"),
    ],
)
def test_what_an_annotation_does_not_say_is_refused(expression: str, dtype: str, code: str | None) -> None:
    """By the compiler, which knows sizes, and by an editor, which may not."""
    assert codes(kernel(expression, dtype), *arguments(dtype)) == ([code] if code else [])
    found = [d.code for d in check(kernel(expression, dtype)).diagnostics if d.severity == "error"]
    assert found in ([code] if code else [], []) if code != "TS208" else found == ["TS208"]


def test_the_marker_changes_nothing() -> None:
    def plain(x: float) -> float:
        return x + 1

    assert ts.tile.helper(plain) is plain
