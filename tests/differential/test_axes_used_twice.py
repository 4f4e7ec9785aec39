"""Tiles in which one axis stands twice, as in `v[:, None] - v[None, :]` and `t / col_sum(t)[:, None]`."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.targets.cuda import host_library
from tests.conftest import require
from tests.kernel_runner import compiled, run
from tests.together import builds

HEADER = "import tessera as ts\nfrom tessera import Tensor\n\n\n"


class Expressions:
    """Random arithmetic on an 8 x 8 tile `t` and a vector `v` of its rows, as text for `ts.tile` and for NumPy."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def vector(self, deep: int) -> tuple[str, str]:
        if not deep or self.draw.random() < 0.3:
            return "v", "v"
        (a, x), (b, y) = self.matrix(deep - 1), self.vector(deep - 1)
        match self.draw.randrange(4):
            case 0:
                return f"ts.tile.sum({a}, axis=1)", f"np.sum({x}, axis=1)"
            case 1:
                return f"ts.tile.max({a}, axis=0)", f"np.max({x}, axis=0)"
            case 2:
                return f"({b} + 1)", f"({y} + 1)"
            case _:
                return f"ts.tile.min({a}, axis=1)", f"np.min({x}, axis=1)"

    def matrix(self, deep: int) -> tuple[str, str]:
        if not deep or self.draw.random() < 0.2:
            return "t", "t"
        (a, x), (b, y) = self.matrix(deep - 1), self.vector(deep - 1)
        match self.draw.randrange(6):
            case 0:
                return f"({b}[:, None] - {b}[None, :])", f"({y}[:, None] - {y}[None, :])"
            case 1:
                return f"({a} * 2 - {b}[:, None])", f"({x} * 2 - {y}[:, None])"
            case 2:
                return f"({a} + {b}[None, :])", f"({x} + {y}[None, :])"
            case 3:
                return f"({a} + {a}.T)", f"({x} + {x}.T)"
            case 4:
                return (f"ts.tile.where({b}[:, None] > {b}[None, :], {a}, -{a})",
                        f"np.where({y}[:, None] > {y}[None, :], {x}, -{x})")  # fmt: skip
            case _:
                return f"{a}.T", f"{x}.T"


def kernel(seed: int, folder: Path) -> tuple[Any, str]:
    text, plain = Expressions(seed).matrix(3)
    path = folder / f"twice{seed}.py"
    path.write_text(
        f'{HEADER}def k(x: Tensor[8, 8, ts.f32], y: Tensor["B", 8, 8, ts.f32]):\n'
        "    for p in ts.tile.range(0, B, 1):\n"
        f"        t = x[0:8, 0:8]\n        v = ts.tile.sum(t, axis=1)\n        y[p, 0:8, 0:8] = {text}\n"
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.k, plain


@pytest.mark.parametrize("target,seeds", [("cpu", range(40)), ("reference", range(10)), ("emulator:sm_80", range(6))])
def test_random_tiles(target: str, seeds: range, tmp_path: Path) -> None:
    if target.startswith("emulator"):
        require("g++")
    launches: list[tuple[Callable[[], None], str, np.ndarray, np.ndarray]] = []
    with host_library.together():
        for seed in seeds:
            f, plain = kernel(seed, tmp_path)
            t = np.random.default_rng(seed).integers(-4, 5, (8, 8)).astype(np.float32)
            y = np.zeros((2, 8, 8), np.float32)
            launches.append((compiled(f, t.copy(), y, target=target, debug=False), plain, t, y))
    for launch, plain, t, y in launches:
        launch()
        want = eval(plain, {"np": np, "t": t, "v": t.sum(1)})
        np.testing.assert_array_equal(y, np.stack([want] * 2), err_msg=plain)


def whole_pages(n: Tensor["B", ts.int32], u: Tensor["B", ts.uint32], y: Tensor["B", 3, ts.int32], page: int = 16):
    b = ts.tile.program_id()
    length = n[b]
    y[b, 0] = ts.tile.cdiv(n[b], 16)
    y[b, 1] = ts.tile.cdiv(length, page)
    y[b, 2] = ts.tile.cast(ts.tile.cdiv(u[b], 7), ts.int32)


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_cdiv_of_what_a_program_reads(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    n, u = np.array([0, 1, 16, 17, -1, -17], np.int32), np.array([0, 1, 7, 8, 2**31 - 1, 13], np.uint32)
    y = np.zeros((6, 3), np.int32)
    run(whole_pages, n, u, y, target=target, debug=False)
    want = [-(-n // 16), -(-n // 16), (u.astype(np.int64) + 6) // 7]
    np.testing.assert_array_equal(y, np.stack(want, 1))


def one_by_one(x: Tensor["M", "N", ts.f32], w: Tensor["N", "K", ts.f32], y: Tensor["M", "K", ts.f32]):
    for p in ts.tile.range(0, M, 1):
        for q in ts.tile.range(0, K, 1):
            total = ts.tile.zeros((1, 1))
            for k in ts.tile.range_k(0, N, 1):
                total += x[p : p + 1, k : k + 1] @ w[k : k + 1, q : q + 1]
            y[p : p + 1, q : q + 1] = total


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80"])
def test_products_of_single_elements(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    x, w = (np.random.default_rng(3).standard_normal(s).astype(np.float32) for s in ((3, 5), (5, 4)))
    found = []
    for chosen in ("reference", target):
        y = np.zeros((3, 4), np.float32)
        run(one_by_one, x, w, y, target=chosen, debug=False)
        found.append(y)
    np.testing.assert_array_equal(*found)


def one_row(x: Tensor[8, 8, ts.f32], y: Tensor[8, 8, 8, ts.f32]):
    for p in ts.tile.range(0, 8, 1):
        v = ts.tile.col_sum(x[p : p + 1, 0:8])
        y[p, 0:8, 0:8] = v[:, None] - v[None, :]


def one_column(x: Tensor[8, 8, ts.f32], y: Tensor[8, 8, 8, ts.f32]):
    for p in ts.tile.range(0, 8, 1):
        v = ts.tile.max(x[0:8, p : p + 1], axis=1)
        y[p, 0:8, 0:8] = v[:, None] - v[None, :]


def row_of_a_product(x: Tensor[8, 8, ts.f32], y: Tensor[8, 8, 8, ts.f32]):
    for p in ts.tile.range(0, 8, 1):
        v = ts.tile.col_sum(x[p : p + 1, 0:8] @ x[0:8, 0:8])
        y[p, 0:8, 0:8] = v[:, None] - v[None, :]


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80", "emulator:sm_90a"])
@pytest.mark.parametrize(
    "f, vectors", [(one_row, lambda x: x), (one_column, lambda x: x.T), (row_of_a_product, lambda x: x @ x)]
)
def test_vectors_reduced_from_one_row(f: Any, vectors: Any, target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    x = np.random.default_rng(1).integers(-9, 10, (8, 8)).astype(np.float32)
    y = np.zeros((8, 8, 8), np.float32)
    run(f, x.copy(), y, target=target, debug=False)
    v = vectors(x)
    np.testing.assert_array_equal(y, v[:, :, None] - v[:, None, :])


def long_rows(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32], z: Tensor["M", ts.f32]):
    for p in ts.tile.range(0, M, 1):
        v = ts.tile.col_sum(x[p : p + 1, :])
        y[p, :] = v * 2
        z[p] = ts.tile.sum(v)


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80"])
def test_a_long_row_is_walked_in_pieces(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    x = np.random.default_rng(2).integers(-9, 10, (2, 40000)).astype(np.float32)
    y, z = np.zeros_like(x), np.zeros(2, np.float32)
    run(long_rows, x.copy(), y, z, target=target, debug=False)
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_array_equal(z, x.sum(1))


def one_dot(x: Tensor["M", "N"], w: Tensor["N", "K"], y: Tensor["M", "K"]):
    for p in ts.tile.range(0, M, 1):
        for q in ts.tile.range(0, K, 1):
            y[p : p + 1, q : q + 1] = x[p : p + 1, 0:N] @ w[0:N, q : q + 1]


def dot_in_steps(x: Tensor["M", "N"], w: Tensor["N", "K"], y: Tensor["M", "K"]):
    for p in ts.tile.range(0, M, 1):
        for q in ts.tile.range(0, K, 1):
            total = ts.tile.zeros((1, 1), dtype=y.dtype)
            for k in ts.tile.range_k(0, N, 4):
                total += x[p : p + 1, k : k + 4] @ w[k : k + 4, q : q + 1]
            y[p : p + 1, q : q + 1] = total


def dot_of_shared(x: Tensor["M", "N"], w: Tensor["N", "K"], y: Tensor["M", "K"]):
    for p in ts.tile.range(0, M, 1):
        for q in ts.tile.range(0, K, 1):
            a, b = ts.tile.alloc_shared((1, N), x.dtype), ts.tile.alloc_shared((N, 1), x.dtype)
            a[:, :], b[:, :] = x[p : p + 1, 0:N], w[0:N, q : q + 1]
            ts.tile.barrier()
            y[p : p + 1, q : q + 1] = ts.tile.mma(a, b)
            ts.tile.barrier()


def dot_with_itself(x: Tensor["M", "N"], w: Tensor["N", "K"], y: Tensor["M", "K"]):
    for p in ts.tile.range(0, M, 1):
        row = x[p : p + 1, 0:N]
        own = row @ row.T
        for q in ts.tile.range(0, K, 1):
            y[p : p + 1, q : q + 1] = own


DTYPES = {"f32": ("f4", "f4"), "f16": ("f2", "f4"), "f64": ("f8", "f8"), "int8": ("i1", "i8")}


def with_one_element(f: Any, n: int, dtype: str, target: str = "emulator:sm_80") -> tuple[Callable[[], None], Any]:
    """A launch, and its arrays."""
    require("g++")
    own, given = DTYPES[dtype]
    rng = np.random.default_rng(n)
    x, w = ((rng.standard_normal(s) * 20).astype(own) for s in ((2, n), (n, 3)))
    y = np.zeros((2, 3), given)
    return compiled(f, x.copy(), w.copy(), y, target=target, debug=False), (x, w, y)


@builds(with_one_element)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 4, 160])
@pytest.mark.parametrize("f", [one_dot, dot_in_steps, dot_of_shared, dot_with_itself])
def test_products_with_one_element_have_the_same_bits_on_every_target(f: Any, n: int, dtype: str, built: Any) -> None:
    found: list[bytes] = []
    for launch, (x, w, y) in (with_one_element(f, n, dtype, "cpu"), built):
        launch()
        found.append(y.tobytes())
        a, b = x.astype("f8"), w.astype("f8")
        want = a @ b if f is not dot_with_itself else np.repeat((a * a).sum(1)[:, None], 3, 1)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-2)
    assert found[0] == found[1]
