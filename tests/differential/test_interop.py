"""Functions and kernels on NumPy, PyTorch, JAX arrays and Tensors: the same numbers, in the caller's memory."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tessera as ts
from tessera import knobs
from tessera.runtime.arrays.libraries import JAX, NUMPY, TORCH, adapter_of
from tessera.runtime.eager.tensor import TENSOR

LIBRARIES = [NUMPY, TORCH, JAX, TENSOR]
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8, np.bool_]


@pytest.fixture(params=LIBRARIES, ids=lambda a: a.name)
def library(request):
    return request.param


@ts.function
def affine(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["D", "E", ts.f32], b: ts.Tensor["E", ts.f32]):
    return ts.gelu(x @ w + b), (x * 2).sum(axis=1)


@ts.function
def same(x):
    return x.flip(0)


@ts.function
def added(x, y):
    return x + y


@ts.kernel
def accumulate(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]


def test_functions_agree_with_torch_whatever_the_library(library):
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(s, np.float32) for s in ((5, 7), (7, 6), (6,)))
    hidden, total = affine(*map(library.wrap, (x, w, b)))
    assert adapter_of(hidden) is library
    want = torch.nn.functional.gelu(torch.from_numpy(x) @ torch.from_numpy(w) + torch.from_numpy(b))
    np.testing.assert_allclose(library.numpy(hidden), want.numpy(), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(library.numpy(total), (x * 2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_every_dtype_passes_through_every_library(library, dtype):
    x = np.arange(6).reshape(3, 2).astype(dtype)
    result = same(library.wrap(x))
    assert adapter_of(result) is library
    np.testing.assert_array_equal(library.numpy(result), x[::-1])
    assert library.numpy(result).dtype == dtype


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_the_largest_integer_without_axes(wrap, target):
    """PyTorch refuses to make a Python number of uint64 beyond int64."""
    x = np.array(2**64 - 1, np.uint64)
    with knobs.target.override(target):
        assert int(ts.asarray(added(wrap(np.ones(1, np.uint64)), wrap(x)))[0]) == 0


@pytest.mark.parametrize("library", [NUMPY, TORCH, TENSOR], ids=lambda a: a.name)
def test_kernels_write_into_the_callers_memory(library):
    x, y = np.ones(1000, np.float32), np.arange(1000, dtype=np.float32)
    want = 3 * x + y
    theirs = library.wrap(y)
    accumulate(library.wrap(x), theirs, 3.0)
    np.testing.assert_array_equal(library.numpy(theirs), want)
    np.testing.assert_array_equal(y, want)


def test_inputs_are_read_where_they_lie(monkeypatch):
    """No adapter is asked for a copy of a contiguous array."""

    def fail(array):
        raise AssertionError("copied")

    for adapter in LIBRARIES:
        monkeypatch.setattr(adapter, "contiguous", fail, raising=True)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for adapter in LIBRARIES:
        same(adapter.wrap(x))


@settings(max_examples=20)
@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=5), elements=st.floats(-4, 4, width=16))
)
def test_layout_does_not_matter(x):
    want = x[::-1]
    np.testing.assert_array_equal(same(np.asfortranarray(x)), want)
    padded = np.zeros((*x.shape[:-1], x.shape[-1] + 3), np.float32)
    padded[..., 1:-2] = x
    np.testing.assert_array_equal(same(padded[..., 1:-2]), want)
    np.testing.assert_array_equal(same(torch.from_numpy(padded)[..., 1:-2]).numpy(), want)


def test_libraries_may_be_mixed():
    rng = np.random.default_rng(2)
    x, w, b = (rng.standard_normal(s, np.float32) for s in ((3, 4), (4, 2), (2,)))
    hidden, _ = affine(torch.from_numpy(x), jnp.asarray(w), ts.asarray(b))
    assert isinstance(hidden, torch.Tensor)
    np.testing.assert_array_equal(hidden.numpy(), affine(x, w, b)[0])


def test_results_can_go_on_in_their_library():
    x = torch.ones(3, 2)
    assert torch.equal(same(x) + 1, torch.full((3, 2), 2.0))
    assert (jnp.exp(same(jnp.zeros((2, 2)))) == 1).all()
    module = torch.nn.Linear(2, 2)
    assert module(same(x)).shape == (3, 2)


def test_exchange_of_tensors_shares_memory():
    t = ts.tensor(np.zeros(4, np.float32))
    torch.from_dlpack(t)[1] = 5
    np.from_dlpack(t)[2] = 6
    assert t.tolist() == [0, 5, 6, 0]
    back = ts.from_dlpack(torch.from_dlpack(t))
    back[3] = 7
    assert t.tolist() == [0, 5, 6, 7]
