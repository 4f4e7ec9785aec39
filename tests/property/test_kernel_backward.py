"""The derived backward of random elementwise and row kernels is the gradient of the same expression in operators."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts

UNARY = ("exp", "tanh", "sin", "square", "sigmoid", "relu", "silu", "gelu", "abs", "softplus")
BINARY = ("{} + {}", "{} - {}", "{} * {}", "{} / (1 + F.square({}))", "F.maximum({}, {})", "F.where({} > 0.1, {}, 0.5)")
ROWS = ("F.sum({}, -1, {k}=True)", "F.mean({}, -1, {k}=True)", "F.max({}, -1, {k}=True)")
LEAVES = st.sampled_from(["v", "w", "c", "a", "0.7"])


def expressions(rows: bool) -> st.SearchStrategy[str]:
    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        unary = st.builds(lambda f, e: f"F.{f}({e})", st.sampled_from(UNARY), inner)
        binary = st.builds(lambda f, a, b: f"({f.format(a, b)})", st.sampled_from(BINARY), inner, inner)
        row = st.builds(lambda f, e: f.replace("{}", f"(v * {e})"), st.sampled_from(ROWS), inner)
        return st.one_of(unary, binary, binary, row) if rows else st.one_of(unary, binary, binary)

    return st.recursive(LEAVES, grown, max_leaves=6)


def module(expression: str, again: str, rows: bool) -> str:
    columns = ":" if rows else "tile_n : tile_n + 4"
    tile, whole = (e.replace("F.", p).replace("{k}", k) for e, p, k in
                   ((expression, "ts.tile.", "keepdim"), (expression, "ts.", "keepdims")))  # fmt: skip
    tile2, whole2 = (e.replace("F.", p).replace("{k}", k) for e, p, k in
                     ((again, "ts.tile.", "keepdim"), (again, "ts.", "keepdims")))  # fmt: skip
    columns_of_c = "[:]" if rows else "[tile_n : tile_n + 4]"
    return f"""
import tessera as ts
from tessera import Tensor

@ts.kernel
def kernel(
    x: Tensor["M", "N", ts.f64], y: Tensor["M", "N", ts.f64], b: Tensor["N", ts.f64], a: ts.f64
) -> Tensor["M", "N", ts.f64]:
    out: Tensor["M", "N", ts.f64]
    v = x[tile_m : tile_m + 4, {columns}]
    w = y[tile_m : tile_m + 4, {columns}]
    c = b{columns_of_c}
    w = v * 0.5 + {tile}
    if v > w:
        w = w * c
    out[tile_m : tile_m + 4, {columns}] = v * 0.25 + {tile2}
    return out

kernel.vjp(kernel.backward())

@ts.function
def by_kernel(x, y, b, a: ts.f64, weights):
    return ts.sum(kernel(x, y, b, a) * weights)

@ts.function
def by_operators(x, y, b, a: ts.f64, weights):
    v, w, c = x, y, b
    w = v * 0.5 + {whole}
    w = ts.where(v > w, w * c, w)
    return ts.sum((v * 0.25 + {whole2}) * weights)
"""


def loaded(text: str) -> dict[str, Any]:
    file = f"<random kernel {abs(hash(text)):x}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {"__name__": "random_kernel"}
    exec(compile(text, file, "exec"), names)
    return names


def compare(text: str, m: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, weights = rng.standard_normal((3, m, n))
    args = x, y, rng.standard_normal(n), float(rng.standard_normal()), weights
    names = loaded(text)
    found, wanted = (ts.grad(names[f], argnums=(0, 1, 2, 3))(*args) for f in ("by_kernel", "by_operators"))
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9, err_msg=text)


@settings(max_examples=4, deadline=None)
@given(expressions(False), expressions(False), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_elementwise_kernels(e: str, again: str, m: int, n: int, seed: int) -> None:
    compare(module(e, again, False), m, n, seed)


@settings(max_examples=4, deadline=None)
@given(expressions(True), expressions(True), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_row_kernels(e: str, again: str, m: int, n: int, seed: int) -> None:
    compare(module(e, again, True), m, n, seed)
