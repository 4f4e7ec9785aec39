"""Slices put into tensors: against NumPy, in place where the old one dies, and never where it does not."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor
from tests.conftest import require

TARGETS = ["cpu", "reference", "emulator:sm_80"]


@pytest.fixture(params=TARGETS)
def target(request: Any, monkeypatch: Any) -> str:
    if request.param.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", request.param)
    return request.param


@ts.function
def put_rows(x: Tensor["A", "N", "D"], at: Tensor["M", ts.int64], u: Tensor["A", "M", "D"]):
    return ts.put(x, at, u, axis=1)


@ts.function
def running(x: Tensor["T", "H"]):
    """The states of a loop, each in its place; and the first of them, which is read before the loop goes on."""
    out, h = ts.zeros_like(x), ts.zeros((x.shape[1],))
    for t in ts.range(x.shape[0]):
        h = h * 0.5 + x[t]
        out = ts.put(out, t, h)
    return out


@ts.function
def flipped(x: Tensor["T", "H"], n: ts.Int):
    """Changed on one path only."""
    y = x * 2
    for t in ts.range(n):
        if ts.sum(y[t]) > 0:
            y = ts.put(y, t, -y[t])
    return y


@ts.function
def kept(x: Tensor["N"], at: Tensor["M", ts.int64]):
    """Both the old and the new one are needed, in a loop too."""
    y = x + 1
    z = ts.put(y, at, 0 * ts.take(y, at))
    total = ts.zeros_like(y)
    for i in ts.range(3):
        total = total + ts.sum(ts.put(z, at, z[at] + i)) + z
    return y, z, total


@ts.function
def swapped(x: Tensor["N"], n: ts.Int):
    """Two tensors change places while one of them is changed."""
    a, b = x + 1, x * 2
    for i in ts.range(n):
        a, b = ts.put(b, i, a[i]), a
    return a, b


def put(x: Any, at: Any, u: Any, axis: int = 0) -> Any:
    out = np.moveaxis(x.copy(), axis, 0)
    for i, piece in zip(at.tolist(), np.moveaxis(u, axis, 0), strict=True):
        if -len(out) <= i < len(out):
            out[i] = piece
    return np.moveaxis(out, 0, axis)


def test_every_target(target: str) -> None:
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(2, 5, 3)).astype(np.float32), rng.normal(size=(2, 4, 3)).astype(np.float32)
    at = np.array([1, -1, 7, 1])
    np.testing.assert_array_equal(put_rows(x, at, u), put(x, at, u, 1))
    steps = rng.normal(size=(4, 3)).astype(np.float32)
    want, h = [], np.zeros(3, np.float32)
    for row in steps:
        want.append(h := h * np.float32(0.5) + row)
    np.testing.assert_allclose(running(steps), want, rtol=1e-6)
    want = steps * 2
    for row in want[:3]:
        row *= -1 if row.sum() > 0 else 1
    np.testing.assert_allclose(flipped(steps, 3), want)


@settings(max_examples=25)
@given(st.lists(st.integers(-6, 6), max_size=5), st.sampled_from([np.float32, np.float64, np.int32, np.bool_]))
def test_any_places(places: list[int], dtype: Any) -> None:
    rng = np.random.default_rng(len(places))
    x, u = (rng.integers(0, 9, (2, n, 3)).astype(dtype) for n in (4, len(places)))
    at = np.array(places, np.int64)
    np.testing.assert_array_equal(ts.put(x, at, u, axis=1), put(x, at, u, 1))


def test_what_is_needed_later_is_not_changed() -> None:
    x, at = np.arange(5, dtype=np.float32), np.array([0, 3, -1])
    y, z, total = kept(x, at)
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(z, put(x + 1, at, np.zeros(3)))
    np.testing.assert_array_equal(total, 3 * z + sum(put(z, at, z[at] + i).sum() for i in range(3)))
    a, b = x + 1, x * 2
    for i in range(3):
        a, b = put(b, np.array([i]), a[i : i + 1]), a
    for found, want in zip(swapped(x, 3), (a, b), strict=True):
        np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(x, np.arange(5))


def test_two_names_of_one_tensor_come_apart() -> None:
    @ts.function
    def apart(x: Tensor["N"]):
        y = x + 1
        if ts.sum(y) > 0:
            a = ts.put(y, 0, 9.0 * y[1])
            b = a
        else:
            a, b = y, y
        a = ts.put(a, 1, a[0] * 0)
        return a, b

    for x in (np.array([1, 2, 3], np.float32), -np.array([3, 4, 5], np.float32)):
        y = x + 1
        if y.sum() > 0:
            y[0] = 9 * y[1]
        a, b = apart(x)
        np.testing.assert_array_equal(b, y)
        np.testing.assert_array_equal(a, [y[0], 0, y[2]])


def test_a_tensor_put_into_itself() -> None:
    @ts.function
    def turned(x: Tensor["N"]):
        y = x + 1
        return ts.put(y, ts.arange(y.shape[0] - 1, -1, -1), y)

    np.testing.assert_array_equal(turned(np.arange(5, dtype=np.float32)), np.arange(5, 0, -1))


def test_a_loop_that_stores_a_row_moves_a_row() -> None:
    """And not the whole tensor, which for these 30,000 rounds would be 3.6 TB: minutes, where a row takes a blink."""
    running(np.ones((64, 4), np.float32))
    inside = str(running.explain()).split("copy; grid", 3)[3]  # behind what the states start from
    assert all(int(n) < 64 for n in re.findall(r" copy; .* (\d+) B", inside)) and "put; grid 1; 0 FLOP, 40 B" in inside
    x = np.ones((30_000, 512), np.float32)
    start = time.process_time()
    states = running(x)
    assert time.process_time() - start < 30
    np.testing.assert_array_equal(states[-1], np.full(512, 2, np.float32))


def test_gradients() -> None:
    x, u = np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2) - 2
    for at in (np.array([1, 3, 0]), np.array([1, 1, -3]), np.array([9, -9, 2])):
        ts.check_grad(lambda x, u, at=at: ts.sum(ts.put(x, at, u) ** 3), x, u)
    ts.check_grad(lambda x: ts.sum(ts.put(x, 1, x[0] * 2) ** 2), x)
    ts.check_grad(lambda x: ts.sum(running(x) ** 2), np.linspace(-1, 1, 6).reshape(3, 2).astype(np.float32))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda x: ts.put(x, 0, x), "TS213"),
        (lambda x: ts.put(x, np.array([0.5]), x[:1]), "TS301"),
        (lambda x: ts.put(x, np.array([0, 1]), x[:1]), "TS213"),
        (lambda x: ts.put(x, 0, x[0], axis=2), "TS"),
    ],
)
def test_wrong_operands(call: Any, code: str) -> None:
    with pytest.raises(ts.TesseraError, match=code):
        call(ts.asarray(np.ones((3, 2), np.float32)))
