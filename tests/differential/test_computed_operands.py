"""Operands computed where they are used (ones, iota ...) feed operators that read memory in an order of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs

Y = np.arange(12, dtype=np.float32).reshape(3, 4) % 5


def powers(y: Any) -> Any:
    z = ts.ones((4, 4))
    while ts.max(y) < 100.0:
        y = y @ z
    return y


def powers_reference(y: Any) -> Any:
    while y.max() < 100:
        y = y @ np.ones((4, 4), np.float32)
    return y


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "left": (lambda y: ts.iota(6).reshape(2, 3) @ ts.cast(y, ts.int64), lambda y: np.arange(6).reshape(2, 3) @ y),
    "right": (lambda y: y @ ts.full((4, 2), 0.5), lambda y: y @ np.full((4, 2), 0.5)),
    "both": (lambda y: ts.ones((3, 2)) @ ts.ones((2, 3)), lambda y: np.full((3, 3), 2.0)),
    "turned": (lambda y: y @ ts.iota(8).reshape(2, 4).T * 1.0, lambda y: y @ np.arange(8).reshape(2, 4).T),
    "no elements": (lambda y: y[:, :0] @ ts.ones((0, 2)), lambda y: np.zeros((3, 2))),
    "loop": (powers, powers_reference),
    "taken": (lambda y: ts.take(ts.iota(10) * 3, ts.cast(y, ts.int32)), lambda y: y * 3),
    "taken from": (lambda y: ts.take(ts.iota(10), ts.cast(y, ts.int32)), lambda y: y),
    "taken at": (lambda y: ts.take(y, ts.iota(2), axis=0), lambda y: y[:2]),
}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_generated_operands(name: str, target: str) -> None:
    program, want = CASES[name]
    with knobs.target.override(target):
        np.testing.assert_allclose(ts.function(program)(Y), want(Y))
