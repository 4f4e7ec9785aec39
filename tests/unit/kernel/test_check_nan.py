"""Debug mode: a NaN that is stored is an error at the user's line; what is not written may be anything."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.errors import DebugCheckError


@ts.function
def root(x: ts.Tensor["n", "D", ts.f32]):
    return ts.sqrt(x) + 1


@ts.kernel
def ratio(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for s in ts.tile.range(0, n, 8):
        v = x[s : s + 8]
        y[s : s + 8] = v / v


@ts.kernel
def where_positive(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        v = x[i]
        if v > 0:
            y[i] = ts.tile.log(v)


def test_a_nan_that_is_stored_is_reported(debug_target: str) -> None:
    x = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(root(x), x + 1)
    x[2, 3] = -1
    with pytest.raises(DebugCheckError, match="Stores NaN into") as caught:
        root(x)
    (found,) = caught.value.diagnostics
    assert found.code == "TS506" and found.span.file == __file__


def test_a_kernel_names_its_array_and_line(debug_target: str) -> None:
    with pytest.raises(DebugCheckError, match=r"(?s)y\[s : s \+ 8\] = v / v.*Stores NaN into y"):
        ratio(np.zeros(16, np.float32), np.empty(16, np.float32))


def test_what_is_not_written_may_be_anything(debug_target: str) -> None:
    x, y = np.ones(11, np.float32), np.zeros(11, np.float32)
    ratio(x, y)  # beyond the end, 0 / 0
    np.testing.assert_array_equal(y, x)
    x[::2], y = -1, np.zeros(11, np.float32)
    where_positive(x, y)
    np.testing.assert_array_equal(y, 0)
