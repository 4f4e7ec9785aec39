"""Operators that read memory in an order of their own, through windows of every kind, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tests.conftest import require
from tests.together import ahead, builds

require("g++")
TARGETS = ("cpu", "reference", "emulator:sm_80")
X = np.arange(20, dtype=np.float32).reshape(4, 5)
I = np.array([[0, -1, 2], [1, 1, -2]])

TAKEN: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "offset": (lambda x, i: x[1:][i], lambda x, i: x[1:][i]),
    "transposed, rows": (lambda x, i: ts.take(x.T, i, axis=0), lambda x, i: np.take(x.T, i, axis=0)),
    "transposed, columns": (lambda x, i: ts.take(x.T, i, axis=1), lambda x, i: np.take(x.T, i, axis=1)),
    "computed and transposed": (lambda x, i: (x * 2).T[i], lambda x, i: (x * 2).T[i]),
    "embedding": (lambda x, i: ts.embedding(i, x.T), lambda x, i: x.T[i]),
    "reversed": (lambda x, i: x[::-1, ::-1][i], lambda x, i: x[::-1, ::-1][i]),
    "every other": (lambda x, i: x[:, ::2][:, i], lambda x, i: x[:, ::2][:, i]),
    "a row repeated": (
        lambda x, i: ts.take(ts.broadcast_to(x[0], (6, 5)), i, axis=0),
        lambda x, i: np.broadcast_to(x[0], (6, 5))[i],
    ),
    "a column repeated": (
        lambda x, i: ts.take(ts.broadcast_to(x[:, :1], (4, 5)), i, axis=0),
        lambda x, i: np.broadcast_to(x[:, :1], (4, 5))[i],
    ),
    "a middle axis repeated": (
        lambda x, i: ts.take(ts.broadcast_to(x[:, None], (4, 3, 5)), i, axis=1),
        lambda x, i: np.take(np.broadcast_to(x[:, None], (4, 3, 5)), i, axis=1),
    ),
    "three axes turned": (
        lambda x, i: ts.take(x.reshape(2, 2, 5).transpose(2, 0, 1), i % 2, axis=1),
        lambda x, i: np.take(x.reshape(2, 2, 5).transpose(2, 0, 1), i % 2, axis=1),
    ),
    "four axes turned": (
        lambda x, i: ts.take(x[:, 1:].reshape(2, 2, 2, 2).transpose(2, 3, 0, 1), i % 2, axis=2),
        lambda x, i: np.take(x[:, 1:].reshape(2, 2, 2, 2).transpose(2, 3, 0, 1), i % 2, axis=2),
    ),
    "the other axes apart": (
        lambda x, i: ts.take(x.reshape(2, 2, 5)[:, :, 1:4], i % 2, axis=0),
        lambda x, i: np.take(x.reshape(2, 2, 5)[:, :, 1:4], i % 2, axis=0),
    ),
    "one index an element": (
        lambda x, i: ts.take_along_axis(x.T[:2], i, axis=1),
        lambda x, i: np.take_along_axis(x.T[:2], i, 1),
    ),
    "two indices": (lambda x, i: x.T[i, i[0]], lambda x, i: x.T[i, i[0]]),
    "flattened": (lambda x, i: ts.take(x.T, i * 3), lambda x, i: np.take(x.T, i * 3)),
    "indices through views": (lambda x, i: x[i.T[::-1, 1:]], lambda x, i: x[i.T[::-1, 1:]]),
    "indices within others": (lambda x, i: x[i[:, 1:]], lambda x, i: x[i[:, 1:]]),
    "indices repeated": (
        lambda x, i: ts.take(x, ts.broadcast_to(i[:, :1], (2, 3)), axis=1),
        lambda x, i: np.take(x, np.broadcast_to(i[:, :1], (2, 3)), axis=1),
    ),
    "unsigned indices": (lambda x, i: x[1:][ts.cast(i % 3, ts.uint8)], lambda x, i: x[1:][i % 3]),
}


PROGRAMS = {name: ts.function(program) for name, (program, _) in TAKEN.items()}


@builds(lambda name, target: ahead(target, PROGRAMS[name], X, I))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TAKEN)
def test_taken_from_a_view(name: str, target: str, built: None) -> None:
    _, want = TAKEN[name]
    with knobs.target.override(target):
        np.testing.assert_array_equal(PROGRAMS[name](X, I), want(X, I))


@pytest.mark.parametrize("target", TARGETS)
def test_a_scalar_stretched_is_read_as_memory(target: str) -> None:
    def stretched(s: ts.Float, x: ts.Tensor["N", "M"], i: ts.Tensor["K", ts.int64]) -> Any:
        wide = ts.broadcast_to(s, (3, 4))
        return ts.take(wide, i, axis=0), wide @ x

    with knobs.target.override(target):
        taken, product = ts.function(stretched)(2.5, X, I[0])
    np.testing.assert_array_equal(taken, np.full((3, 4), 2.5))
    np.testing.assert_allclose(product, np.full((3, 4), 2.5) @ X)


LONG = np.random.default_rng(0).integers(0, 1000, (3000, 100))
FOLDED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cut": (lambda x: ts.sum(x[:, :50]), lambda x: x[:, :50].sum()),
    "every third, turned": (lambda x: ts.sum(x.T[:, ::3]), lambda x: x.T[:, ::3].sum()),
    "turned, with others": (lambda x: ts.sum(x.T * ts.iota(3000)), lambda x: (x.T * np.arange(3000)).sum()),
    "reversed": (lambda x: ts.max(ts.flip(x[:2900], 0)), lambda x: x[:2900].max()),
    "a row repeated": (lambda x: ts.sum(ts.broadcast_to(x[0], (5000, 100))), lambda x: x[0].sum() * 5000),
    "a column repeated": (lambda x: ts.sum(ts.broadcast_to(x[:, :1], (3000, 100))), lambda x: x[:, 0].sum() * 100),
    "within": (lambda x: ts.max(x[:, 3:70:2] - x[:, :1]), lambda x: (x[:, 3:70:2] - x[:, :1]).max()),
    "computed": (lambda x: ts.sum((x + 1)[:, 10:90].T), lambda x: (x + 1)[:, 10:90].sum()),
    "any": (lambda x: ts.any(x[:, 10:90] > 998), lambda x: np.any(x[:, 10:90] > 998)),
}


REDUCTIONS = {name: ts.function(program) for name, (program, _) in FOLDED.items()}


@builds(lambda name, target: ahead(target, REDUCTIONS[name], LONG))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FOLDED)
def test_long_reduction_of_a_view(name: str, target: str, built: None) -> None:
    _, want = FOLDED[name]
    with knobs.target.override(target):
        np.testing.assert_array_equal(REDUCTIONS[name](LONG), want(LONG))


outside = ts.function(lambda x, i: (ts.take(x[1:3, 1:3], i, axis=0), ts.take(x[1:3, 1:3], i, axis=1)))


@pytest.mark.parametrize("target", TARGETS)
def test_indices_outside_a_view_read_zeros(target: str) -> None:
    """Not what the array holds beside the window."""
    with knobs.target.override(target):
        rows, columns = outside(X, np.array([-3, -2, 1, 2]))
    zeros = np.pad(X[1:3, 1:3], 1)
    np.testing.assert_array_equal(rows, zeros[:, 1:3])
    np.testing.assert_array_equal(columns, zeros[1:3])


def test_indices_outside_a_view_are_reported(debug_target: str) -> None:
    with pytest.raises(ts.TesseraError, match="index 2 leaves axis 0 of x, which has 2 elements"):
        outside(X, np.array([2]))
    with pytest.raises(ts.TesseraError, match="index -3 leaves axis 0 of x, which has 2 elements"):
        outside(X, np.array([0, -3]))
