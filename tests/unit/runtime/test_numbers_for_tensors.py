"""A Python number for a tensor without axes: the same inside of functions as outside, at each call."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor


@ts.function
def whole(n: Tensor[ts.int64], x: Tensor["N", ts.f64]):
    return x * n


@ts.function
def small(n: Tensor[ts.uint8], x: Tensor["N", ts.f64]):
    return x * n


@ts.function
def real(n: Tensor[ts.f32], x: Tensor["N", ts.f64]):
    return x * n


def plain(n: Tensor[()], x):
    return x * n


X = np.array([1.0, 2.0])


def outside(f, n):
    return f(n, X)


def inside(f, n):
    return ts.function(lambda x: f(n, x))(X)


@pytest.mark.parametrize("call", [outside, inside])
def test_numbers_that_fit(call):
    for f, n in (
        (whole, 3),
        (whole, 2.0),
        (whole, 4.0),
        (whole, True),
        (small, 255),
        (real, 2),
        (real, 2.5),
        (plain, 3),
    ):
        assert call(f, n).tolist() == (X * n).tolist()


@pytest.mark.parametrize("call", [outside, inside])
def test_numbers_that_do_not_fit(call):
    assert call(whole, 2.0)[0] == 2 and call(small, 3)[0] == 3  # calls of these types have been prepared
    for f, n in ((whole, 2.5), (whole, 2**70), (whole, float("nan")), (small, 256), (small, -1), (real, 1j)):
        with pytest.raises(ts.TesseraError, match="TS304"):
            call(f, n)


def test_scalars_of_numpy_that_do_not_fit():
    assert whole(np.float32(2.0), X)[0] == 2
    with pytest.raises(ts.LaunchError, match="TS304"):
        whole(np.float32(2.5), X)


def test_mapped_and_differentiated():
    numbers = np.arange(3, dtype=np.float32)
    mapped = ts.vmap(lambda n, factor: real(n, X) * plain(factor, X), in_axes=(0, None))
    np.testing.assert_allclose(mapped(numbers, 2.0), numbers[:, None] * 2 * X * X)
    assert ts.function(lambda x: ts.grad(lambda n: ts.sum(real(n, x)))(3.0) * x)(X).tolist() == [3, 6]
