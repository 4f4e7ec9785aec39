"""Kernels over `...`: the same leading axes in every parameter, of whatever rank it is; on each target, against NumPy."""
# fmt: off
# ruff: noqa

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32
from tests.kernel_runner import run

TARGETS = ("reference", "cpu")
LEADS = ((), (2,), (2, 3), (4, 4), (1, 2))
rng = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def by_rows(x: Tensor["...", "S", "D", f32], w: Tensor["...", "S", f32]) -> Tensor["...", "S", "D", f32]:
    return x * w


def rows_first(w: Tensor["...", "S", f32], x: Tensor["...", "S", "D", f32]) -> Tensor["...", "S", "D", f32]:
    return w - x


def into_a_parameter(x: Tensor["...", "S", "D", f32], w: Tensor["...", "S", f32], y: Tensor["...", "S", "D", f32]):
    ts.tile.store(y, x * w)


def row_results(x: Tensor["...", "S", "D", f32], w: Tensor["...", "S", f32]) -> Tensor["...", "S", f32]:
    return ts.tile.sum(x, axis=-1) * w


def two_results(x: Tensor["...", "S", "D", f32], w: Tensor["...", "S", f32]) -> tuple[Tensor["...", "S", f32], Tensor["...", "S", "D", f32]]:
    total = ts.tile.sum(x * w, axis=-1)
    return total, x - total


def by_columns(x: Tensor["...", "S", "D", f32], g: Tensor["D", f32], w: Tensor["...", "D", f32]) -> Tensor["...", "S", "D", f32]:
    return x * g + w


def one_number_each(x: Tensor["...", "S", "D", f32], s: Tensor["...", f32]) -> Tensor["...", "S", "D", f32]:
    return x * s


def per_row_of_any_rank(x: Tensor["...", "N", f32], s: Tensor["...", f32]) -> Tensor["...", "N", f32]:
    return x * s


def delta(o: Tensor["...", "S", "D", f32], do: Tensor["...", "S", "D", f32], out: Tensor["...", "S", f32]):
    """What attention's backward pass begins with."""
    for i in ts.tile.range(0, S, 4):
        out[i : i + 4] = ts.tile.row_sum(o[i : i + 4] * do[i : i + 4])


def scores(q: Tensor["...", "S", "D", f32], k: Tensor["...", "T", "D", f32], lse: Tensor["...", "S", f32], p: Tensor["...", "S", "T", f32]):
    """What attention's backward pass computes again: exp(q k^T - lse)."""
    for i in ts.tile.range(0, S, 4):
        for j in ts.tile.range(0, T, 4):
            s = ts.tile.mma(q[i : i + 4], k[j : j + 4].T)
            p[i : i + 4, j : j + 4] = ts.tile.exp(s - lse[i : i + 4])


CASES: dict[str, tuple[Callable[..., Any], str, str, Callable[..., Any]]] = {
    "by_rows": (by_rows, "LSD LS", "", lambda x, w: x * w[..., None]),
    "rows_first": (rows_first, "LS LSD", "", lambda w, x: w[..., None] - x),
    "into_a_parameter": (into_a_parameter, "LSD LS", "LSD", lambda x, w: x * w[..., None]),
    "row_results": (row_results, "LSD LS", "", lambda x, w: x.sum(-1) * w),
    "two_results": (two_results, "LSD LS", "", lambda x, w: ((x * w[..., None]).sum(-1), x - (x * w[..., None]).sum(-1, keepdims=True))),
    "by_columns": (by_columns, "LSD D LD", "", lambda x, g, w: x * g + w[..., None, :]),
    "one_number_each": (one_number_each, "LSD L", "", lambda x, s: x * s[..., None, None]),
    "delta": (delta, "LSD LSD", "LS", lambda o, do: (o * do).sum(-1)),
    "scores": (scores, "LSD LTD LS", "LST", lambda q, k, l: np.exp(q @ np.swapaxes(k, -1, -2) - l[..., None])),
}


def shaped(dims: str, lead: tuple[int, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(n for d in dims for n in (lead if d == "L" else (sizes[d],)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_same_leading_axes(name: str, lead: tuple[int, ...], target: str) -> None:
    kernel, inputs, output, wanted = CASES[name]
    if "L" in inputs.split() and not lead:
        pytest.skip("a tensor without axes is not a tensor here")
    for sizes in ({"S": 5, "D": 6, "T": 7}, {"S": 4, "D": 4, "T": 4}, {"S": 2, "D": 2, "T": 3}):
        given = [normal(*shaped(d, lead, sizes)) for d in inputs.split()]
        outs = [np.full(shaped(output, lead, sizes), 99, np.float32)] if output else []
        found = run(kernel, *given, *outs, target=target, debug=False)
        found = outs[0] if outs else found
        want = wanted(*given)
        for f, w in zip(found if isinstance(found, tuple) else (found,), want if isinstance(want, tuple) else (want,), strict=True):
            assert f.shape == w.shape
            np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-5, err_msg=str(sizes))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lead", [(5,), (6,), (2, 3), (3, 3), (2, 4)], ids=str)
def test_a_number_for_each_leading_place(lead: tuple[int, ...], target: str) -> None:
    x, s = normal(*lead, 6), normal(*lead)
    np.testing.assert_allclose(run(per_row_of_any_rank, x, s, target=target), x * s[..., None], rtol=1e-6)


def without_ellipsis(x: Tensor["M", "N", f32], w: Tensor["M", f32], z: Tensor["N", "M", f32]) -> Tensor["M", "N", f32]:
    return x * w + z.T


@pytest.mark.parametrize("shape", [(5, 7), (6, 6), (8, 8), (3, 8)])
def test_vectors_of_rows_beside_whole_parameters(shape: tuple[int, int]) -> None:
    x, w, z = normal(*shape), normal(shape[0]), normal(*shape[::-1])
    np.testing.assert_allclose(run(without_ellipsis, x, w, z), x * w[:, None] + z.T, rtol=1e-5, atol=1e-6)


def batches(b: Tensor["B", f32], w: Tensor["H", "D", f32], x: Tensor["B", "H", "S", "D", f32]):
    return x * b + w


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (4, 4, 4, 4)])
def test_dims_of_the_widest_parameter_mean_the_same_in_the_others(shape: tuple[int, ...]) -> None:
    x, b, w = normal(*shape), normal(shape[0]), normal(shape[1], shape[3])
    want = x * b[:, None, None, None] + w[None, :, None, :]
    np.testing.assert_allclose(run(batches, b, w, x), want, rtol=1e-5, atol=1e-6)
