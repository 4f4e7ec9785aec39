"""TS421: the last step of a range stores past the range's end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor


@ts.kernel
def inner(u: Tensor["H", "W", ts.f32], out: Tensor["H", "W", ts.f32]):
    for i in ts.tile.range(1, H - 1, 8):
        for j in ts.tile.range(0, W, 8):
            out[i : i + 8, j : j + 8] = u[i : i + 8, j : j + 8] + 1


@ts.kernel
def guarded(u: Tensor["H", "W", ts.f32], out: Tensor["H", "W", ts.f32]):
    for i in ts.tile.range(1, H - 1, 8):
        for j in ts.tile.range(0, W, 8):
            if i + ts.tile.arange(8) < H - 1:
                out[i : i + 8, j : j + 8] = u[i : i + 8, j : j + 8] + 1


@ts.kernel
def masked(u: Tensor["H", "W", ts.f32], out: Tensor["H", "W", ts.f32]):
    for i in ts.tile.range(1, H - 1, 8):
        rows = i + ts.tile.arange(8)
        ts.tile.store(out[i : i + 8, :], u[i : i + 8, :] + 1, mask=(rows < H - 1)[:, None])


@ts.kernel
def serial(u: Tensor["H", "W", ts.f32], out: Tensor["H", "W", ts.f32]):
    for i in ts.tile.range_k(1, H - 1, 8):
        out[i : i + 8, :] = u[i : i + 8, :] + 1


@ts.kernel
def shorter(u: Tensor["H", "W", ts.f32], out: Tensor["H - 2", "W", ts.f32]):
    for i in ts.tile.range(0, H - 2, 8):
        out[i : i + 8, :] = u[i + 1 : i + 9, :] + 1


def said(kernel: Callable[..., Any], rows: int) -> tuple[np.ndarray, list[str]]:
    """What the kernel stores to zeros, from zeros, and its warnings."""
    u = np.zeros((rows, 16), np.float32)
    out = np.zeros((rows - 2 if kernel is shorter else rows, 16), np.float32)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        kernel(u, out)
    return out[:, 0], [str(w.message) for w in found if issubclass(w.category, ts.CompilationWarning)]


@pytest.mark.parametrize("kernel", [inner, serial], ids=lambda k: k.name)
def test_a_store_past_the_range_is_said(kernel):
    stored, found = said(kernel, 21)
    assert stored.tolist() == [0, *[1] * 20], "the tensor's last row is stored too"
    assert len(found) == 1 and "TS421" in found[0] and "if i + ts.tile.arange(8) < H-1:" in found[0]
    stored, found = said(kernel, 18)
    assert stored.tolist() == [0, *[1] * 16, 0] and not found, "two blocks of 8 end where the range does"


@pytest.mark.parametrize("kernel", [guarded, masked, shorter], ids=lambda k: k.name)
def test_conditions_and_ends_of_tensors_say_nothing(kernel):
    stored, found = said(kernel, 21)
    assert stored.sum() == 19 and stored[0] == (kernel is shorter) and not found
