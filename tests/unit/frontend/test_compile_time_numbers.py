"""Numbers that are known when a program is compiled are of the kind that their annotation says, however they come."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Bool, Int, Tensor, TesseraError, f32

X = np.arange(4, dtype=np.float32)


@ts.function
def times_python(x: Tensor["N", f32], n: int):
    return x * n


@ts.function
def times_own(x: Tensor["N", f32], n: Int):
    return x * n


@ts.function
def times_short(x: Tensor["N", f32], n: Int[8]):
    return x * n


@ts.function
def perhaps(x: Tensor["N", f32], twice: Bool = False, n: int | None = None):
    y = x * 2 if twice else x
    return y if n is None else y * n


@ts.kernel
def scaled(n: Int, x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i] * n


@pytest.mark.parametrize("f", [times_python, times_own, times_short])
def test_whole_numbers_of_every_kind(f):
    for n in (3, 3.0, np.int64(3), np.float32(3), np.uint8(3)):
        np.testing.assert_array_equal(np.asarray(f(X, n)), X * 3)
    np.testing.assert_array_equal(np.asarray(f(X, n=True)), X)


@pytest.mark.parametrize("f", [times_python, times_own, times_short])
@pytest.mark.parametrize(
    ("n", "code"), [(2.5, "TS304"), (float("nan"), "TS304"), (1j, "TS304"), ("3", "TS501"), (None, "TS501")]
)
def test_what_is_no_whole_number_is_refused(f, n, code):
    with pytest.raises(TesseraError) as raised:
        f(X, n)
    (found,) = raised.value.diagnostics
    assert found.code == code and "n " in found.message
    with pytest.raises(TesseraError):
        f(X, n=n)


def test_range_and_kernels():
    with pytest.raises(TesseraError, match="int8 cannot hold"):
        times_short(X, 200)
    y = np.zeros(4, np.float32)
    scaled(2.0, X, y)
    np.testing.assert_array_equal(y, X * 2)
    with pytest.raises(TesseraError, match=r"n is 2\.5, which int64 cannot hold"):
        scaled(2.5, X, y)


def test_options():
    np.testing.assert_array_equal(np.asarray(perhaps(X, True, None)), X * 2)
    np.testing.assert_array_equal(np.asarray(perhaps(X, 1, 3)), X * 6)
    for wrong in (2, 0.5, "yes", None):
        if wrong is None:  # an option with a default may be left out by None
            perhaps(X, wrong)
            continue
        with pytest.raises(TesseraError):
            perhaps(X, wrong)


def test_inside_other_programs():
    @ts.function
    def outer(x: Tensor["N", f32]):
        return times_python(x, 2.0)

    np.testing.assert_array_equal(np.asarray(outer(X)), X * 2)

    @ts.function
    def wrong(x: Tensor["N", f32]):
        return times_python(x, 2.5)

    with pytest.raises(TesseraError, match=r"cannot hold 2\.5"):
        wrong(X)
