"""Results that a kernel declares and stores in parts: against NumPy on every target, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.conftest import require
from tests.kernel_runner import check
from tests.unit.kernel.test_builtins import loaded

TARGETS = ("cpu", "reference", "emulator:sm_90a")
PROGRAM = """
factor = np.array([2.0], np.float32)


@ts.kernel
def halves(x: Tensor["N", "D", ts.f32]) -> Tensor["N", "D", ts.f32]:
    out: Tensor["N", "D", ts.f32]
    for i in ts.tile.range(0, N, 4):
        out[i : i + 4, 0:3] = x[i : i + 4, 0:3] * factor[0]
        out[i : i + 4, 4:6] = x[i : i + 4, 4:6] + 1
    return out


@ts.kernel
def product(A: Tensor["M", "K", ts.f32], B: Tensor["K", "N", ts.f32]):
    C: Tensor["M", "N", ts.f32]
    a, b = A[tile_m : tile_m + 8, tile_k : tile_k + 4], B[tile_k : tile_k + 4, tile_n : tile_n + 8]
    C[tile_m : tile_m + 8, tile_n : tile_n + 8] += ts.tile.mma(a, b)
    return C


@ts.kernel
def normed(x: Tensor["...", "D", ts.f32]) -> tuple[Tensor["...", "D", ts.f32], Tensor["...", ts.f32]]:
    y: Tensor["...", "D", ts.f32]
    sums: Tensor["...", ts.f32]
    total = ts.tile.zeros(())
    for d in ts.tile.range_k(0, D, 4):
        total += ts.tile.sum(x[d : d + 4])
    for d in ts.tile.range_k(0, D, 4):
        y[d : d + 4] = x[d : d + 4] / total
    ts.tile.store(sums, total)
    return y, sums


@ts.kernel
def above(x: Tensor["n", ts.f32], limit: ts.f32) -> tuple[Tensor["n", ts.f32], Tensor["n", ts.bool_]]:
    kept: Tensor["n", ts.f32]
    found: Tensor["n", ts.bool_]
    i = ts.tile.linear_id()
    if x[i] > limit:
        kept[i], found[i] = x[i], True
    return kept, found


@ts.kernel
def counted(x: Tensor["n", ts.int32], k: Const[int]) -> Tensor["k", ts.int32]:
    counts: Tensor["k", ts.int32]
    for i in ts.tile.range_k(0, n, 16):
        counts[0:k] = ts.tile.scatter_add(counts[0:k], x[i : i + 16], 1)
    return counts


@ts.function
def twice(x: Tensor["N", "D", ts.f32]):
    return halves(x + 1), halves(x * 3) * 2
"""


def halved(x: Any) -> Any:
    out = np.zeros_like(x)
    out[:, 0:3], out[:, 4:6] = x[:, 0:3] * 2, x[:, 4:6] + 1
    return out


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return loaded("from tessera import Const\n" + PROGRAM, tmp_path_factory.mktemp("declared"))


@pytest.fixture(params=TARGETS)
def on_target(request: pytest.FixtureRequest) -> Any:
    if request.param.startswith("emulator"):
        require("g++")
    with ts.knobs.target.override(request.param):
        yield


@pytest.mark.usefixtures("on_target")
def test_what_nothing_is_stored_to_is_zero(kernels: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    for rows in (9, 1):
        x = rng.standard_normal((rows, 7), np.float32)
        np.testing.assert_array_equal(kernels["halves"](x), halved(x))
    x = rng.standard_normal(3000, np.float32)
    kept, found = kernels["above"](x, 0.5)
    np.testing.assert_array_equal(kept, np.where(x > 0.5, x, 0))
    np.testing.assert_array_equal(found, x > 0.5)


@pytest.mark.usefixtures("on_target")
def test_accumulation_begins_at_zero(kernels: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((10, 9), (9, 11)))
    np.testing.assert_array_equal(kernels["product"](a, b), a @ b)
    x = rng.integers(0, 5, 50).astype(np.int32)
    np.testing.assert_array_equal(kernels["counted"](x, 5), np.bincount(x, minlength=5))


@pytest.mark.usefixtures("on_target")
@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
def test_results_of_several_ranks_have_the_leading_axes(shape: tuple[int, ...], kernels: dict[str, Any]) -> None:
    x = np.random.default_rng(2).random(shape, np.float32)
    y, sums = kernels["normed"](x)
    assert (y.shape, sums.shape) == (shape, shape[:-1])
    np.testing.assert_allclose(sums, x.sum(-1), rtol=1e-6)
    np.testing.assert_allclose(y, x / x.sum(-1, keepdims=True), rtol=1e-6)


def test_in_functions(kernels: dict[str, Any]) -> None:
    x = np.random.default_rng(3).standard_normal((10, 7), np.float32)
    first, second = kernels["twice"](x)
    np.testing.assert_array_equal(first, halved(x + 1))
    np.testing.assert_array_equal(second, halved(x * 3) * 2)


def test_open_sizes(kernels: dict[str, Any]) -> None:
    """One code for any N: the zeros are as many as there are when it runs."""
    compiled = ts.compile(kernels["halves"], target="cpu", dims={"D": 7})
    for rows in (1, 6, 5000):
        x = np.random.default_rng(rows).standard_normal((rows, 7), np.float32)
        np.testing.assert_array_equal(compiled(x), halved(x))


WHOLE = {
    "out[tile_n : tile_n + 4, :] = x[tile_n : tile_n + 4, :]": (),
    "out[tile_n : tile_n + 4, tile_d : tile_d + 8] = x[tile_n : tile_n + 4, tile_d : tile_d + 8]": (),
    "out[0:N, 0:D] = x[0:N, 0:D]": (),
    "out[tile_n : tile_n + 4, 0:2] = x[tile_n : tile_n + 4, 0:2]": (1,),
    "out[tile_n : tile_n + 4, :] += x[tile_n : tile_n + 4, :]": (1,),
    "out[tile_n, tile_n] = x[tile_n, tile_n]": (1,),
    "if x[0, 0] > 0:\n        out[0:N, 0:D] = x[0:N, 0:D]": (1,),
}


@pytest.mark.parametrize("statement", WHOLE)
def test_zeros_are_left_out_where_all_is_stored(statement: str, tmp_path: Path) -> None:
    """Which results are filled before the kernel runs: not those that programs surely write whole and never read."""
    program = f"""
def k(x: Tensor["N", "D", ts.f32]) -> Tensor["N", "D", ts.f32]:
    out: Tensor["N", "D", ts.f32]
    {statement}
    return out
"""
    found = check(loaded(program, tmp_path)["k"], np.zeros((16, 16), np.float32))
    assert [d.message for d in found.diagnostics if d.severity == "error"] == []
    assert found.op is not None and found.op.attrs.get("zeroed", ()) == WHOLE[statement]


REFUSED = {
    'out: Tensor["N", "D", ts.f32]\n    return x[0:4, :]': (
        "TS406",
        "the result out is declared, and nothing is stored to it",
    ),
    'out: Tensor["N", "D", ts.f32]\n    out[0:4, :] = 1\n    y[0:4, :] = 1': (
        "TS406", "the result out is stored to, and not returned",
    ),
    'out: Tensor["N", "Q", ts.f32]': ("TS403", "out has the dim Q, which no parameter binds (bound: N, D)"),
    'out: Tensor["N", "D", ts.f32]\n    out[0:4, :] = 1\n    return out, out': ("TS406", "out is returned twice"),
    'out: Tensor["N"]': ("TS406", "a result says its shape and dtype"),
    'out: Tensor["...", ts.f32]': ("TS403", "the `...` of out is that of a parameter, and none has one"),
    'x: Tensor["N", ts.f32]': ("TS406", "x already stands for something"),
    'if x[0, 0] > 0:\n        out: Tensor["N", ts.f32]': ("TS102", "declare the result out outside of branches"),
    'out: Tensor["N", ts.f32]\n    out[tile_n : tile_n + 4] = 1\n    return out': (
        "TS201", 'Expected: Tensor["N", "D", f32]   (the return annotation)\nReceived: out [N]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("statements", REFUSED)
def test_refused(statements: str, tmp_path: Path) -> None:
    program = f"""
def k(x: Tensor["N", "D", ts.f32], y: Tensor["N", "D", ts.f32]) -> Tensor["N", "D", ts.f32]:
    {statements}
"""
    x = np.zeros((4, 8), np.float32)
    found = [
        (d.code, d.message) for d in check(loaded(program, tmp_path)["k"], x, x).diagnostics if d.severity == "error"
    ]
    assert found and found[0][0] == REFUSED[statements][0], found
    assert found[0][1].startswith(REFUSED[statements][1]), found
