"""Functions that call kernels: on every target what the same text computes on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts

TARGETS = ("reference", "cpu", "emulator:sm_80", "emulator:sm_90a")


@ts.kernel
def damped(x: ts.Tensor["M", "N", ts.f32], a: float) -> ts.Tensor["M", "N", ts.f32]:
    return ts.tile.exp(x) * a


@ts.kernel
def saxpy(x: ts.Tensor["K", ts.f32], y: ts.Tensor["K", ts.f32], a: float):  # noqa: ANN201
    i = ts.tile.linear_id()
    if i < K:  # noqa: F821
        y[i] = a * x[i] + y[i]


@ts.kernel
def halves(x: ts.Tensor["M", "N", ts.f32]) -> tuple[ts.Tensor["M", "N", ts.f32], ts.Tensor["M", ts.f32]]:
    t = ts.tile.load(x)
    return t * 0.5, ts.tile.row_sum(t)


def check(f: Any, want: Any, *args: Any, tolerance: float = 2e-5) -> None:
    """`f` gives `want` on every target, and changes none of its arguments."""
    before = [np.array(a) for a in args]
    for target in TARGETS:
        found = ts.compile(f, target=target, arguments=args)(*args)
        several = isinstance(want, tuple)
        for a, b in zip(found if several else (found,), want if several else (want,), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=tolerance, atol=tolerance, err_msg=target)
    for a, b in zip(args, before, strict=True):
        np.testing.assert_array_equal(a, b)


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


@ts.function
def between(x: ts.Tensor["B", "N", ts.f32], w: ts.Tensor["N", ts.f32]) -> ts.Tensor["B", "N", ts.f32]:
    return damped(x + w, 2.0).T.T * w


@ts.function
def updated(x: ts.Tensor["N", ts.f32], w: ts.Tensor["N", ts.f32]) -> ts.Tensor["N", ts.f32]:
    kept = w
    saxpy(x, w, 3.0)
    return w * kept


def test_operators_around_a_kernel() -> None:
    x, w = normal(5, 37), normal(37)
    check(between, np.exp(x + w) * 2 * w, x, w)


def test_what_a_kernel_stores_to_is_the_variables_new_value() -> None:
    x, w = normal(2500), normal(2501)[1:]
    check(updated, (3 * x + w) * w, x, w)
