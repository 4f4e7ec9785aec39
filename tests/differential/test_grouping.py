"""Programs that bring row values, stretched values and dead branches into one group, against NumPy on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tests.conftest import require

require("g++")
X = np.arange(20, dtype=np.float64).reshape(4, 5)


def unused_branches(x: Any) -> Any:
    c = ts.concat([x, x])
    if x[0, 1] > 0:
        if x[0, 2] > 0:
            c = c + 1
        else:
            c = c * 2
    return x


def total_of_totals(x: Any) -> Any:
    s = ts.sum(x)
    return ts.sum(ts.broadcast_to(s, (3,)), axis=0, keepdims=True) + s


def rows_stretched(x: Any) -> Any:
    wide = ts.broadcast_to(ts.max(x, axis=1, keepdims=True), (4, 5))
    return ts.sum(wide, axis=1), ts.cumsum(wide, axis=1), ts.argmax(wide, axis=1), ts.mean(wide) - ts.sum(x, axis=1)


def rows_stretched_wanted(x: Any) -> Any:
    wide = np.broadcast_to(x.max(1, keepdims=True), (4, 5))
    return wide.sum(1), wide.cumsum(1), wide.argmax(1), wide.mean() - x.sum(1)


def reshaped_rows(x: Any) -> Any:
    y = x[:1] + 1
    return ts.sum(y.reshape(5, 1), axis=0), ts.sum(y.reshape(1, 5), axis=0), ts.sum(y.reshape(5, 1), axis=1)


def reshaped_rows_wanted(x: Any) -> Any:
    y = x[:1] + 1
    return y.sum(1), y[0], y[0]


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dead branches in branches": (unused_branches, lambda x: x),
    "a total stretched and summed": (total_of_totals, lambda x: np.full(1, x.sum() * 4)),
    "rows stretched": (rows_stretched, rows_stretched_wanted),
    "rows under another shape": (reshaped_rows, reshaped_rows_wanted),
}


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_groups_of_row_values(name: str, target: str) -> None:
    program, want = CASES[name]
    with knobs.target.override(target):
        found, wanted = ts.function(program)(X), want(X)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_total_of_bools_is_stretched_and_summed() -> None:
    found = ts.function(total_of_totals)(np.array([True, False, True]))
    np.testing.assert_array_equal(found, np.array([8]))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_branches_in_branches_whose_result_nobody_uses(target: str) -> None:
    """What the branches read is computed in no group then."""

    @ts.function
    def f(x: ts.Tensor["N"], y: ts.Tensor["N"]):
        joined = ts.concat([x, y])
        if ts.sum(x) > 0:
            if ts.max(joined) > 2:
                joined = ts.concat([y, x])
            else:
                joined = joined + 1
        return x * 2

    for x in (np.ones(4, np.float32), -np.ones(4, np.float32), np.full(4, 3, np.float32)):
        np.testing.assert_array_equal(ts.compile(f, target=target, arguments=(x, x))(x, x), x * 2)
