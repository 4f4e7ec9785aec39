"""Arrays of every library: what a kernel sees of them, without copies, and what cannot be one."""

from __future__ import annotations

import array
import ctypes

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tessera.errors import LaunchError
from tessera.language import dtypes
from tessera.runtime.arrays import adapter as arrays
from tessera.runtime.arrays.libraries import JAX, NUMPY, TORCH, adapter_of

SHARED = ("f64", "f32", "f16", "bf16", "int8", "int32", "int64", "uint8", "bool", "complex64", "fp8_e4m3", "fp8_e5m2")


def view(value):
    return adapter_of(value).view(value)


def torch_tensor(dtype: str):
    return torch.zeros(2, 3, dtype=getattr(torch, dtypes.named(dtype).numpy_name))


@pytest.mark.parametrize("dtype", SHARED)
def test_numpy_is_seen_in_place(dtype):
    x = np.zeros((2, 3), dtypes.named(dtype).numpy)
    seen = view(x)
    assert (seen.pointer, seen.shape, seen.dtype.name, seen.device) == (x.ctypes.data, (2, 3), dtype, "cpu")
    assert seen.contiguous
    assert seen.writable


@pytest.mark.parametrize("dtype", SHARED)
def test_torch_is_seen_in_place(dtype):
    x = torch_tensor(dtype)
    seen = view(x)
    assert (seen.pointer, seen.shape, seen.dtype.name, seen.device) == (x.data_ptr(), (2, 3), dtype, "cpu")
    assert seen.contiguous


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "int32", "bool", "complex64", "fp8_e4m3"])
def test_jax_is_seen_in_place_and_read_only(dtype):
    x = jnp.zeros((2, 3), dtypes.named(dtype).numpy)
    seen = view(x)
    assert (seen.pointer, seen.dtype.name) == (x.unsafe_buffer_pointer(), dtype)
    assert not seen.writable


@given(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), st.randoms())
def test_contiguity_is_numpys(shape, random):
    base = np.zeros(shape, np.float32)
    axes = list(range(base.ndim))
    random.shuffle(axes)
    x = base.transpose(axes)
    if x.ndim and random.random() < 0.5:
        x = x[:: random.choice([1, 2, -1])]
    assert view(x).contiguous == x.flags.c_contiguous
    assert view(torch.from_numpy(base).permute(axes)).contiguous == base.transpose(axes).flags.c_contiguous


def test_addresses_are_read_quickly_and_right():
    for x in (np.zeros(3), np.zeros((0, 4)), np.arange(10)[3:], np.zeros(())):
        assert NUMPY.pointer(x) == x.ctypes.data
    t = torch.arange(10)[3:]
    assert TORCH.pointer(t) == t.data_ptr()


@pytest.mark.parametrize("adapter", [NUMPY, TORCH, JAX], ids=lambda a: a.name)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "int32", "bool", "fp8_e4m3"])
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3), (300, 500)], ids=str)
def test_results_are_made_in_their_library(adapter, dtype, shape):
    wanted = dtypes.named(dtype)
    made, pointer = adapter.empty(shape, wanted, "cpu")
    if 0 not in shape:
        ctypes.memset(pointer, 0, max(1, int(np.prod(shape))) * wanted.itemsize)
    result = adapter.finish(made)
    assert adapter_of(result) is adapter
    assert tuple(result.shape) == shape
    assert dtypes.of(result.dtype) == wanted
    assert not adapter.numpy(result).astype(np.float32).any()


@pytest.mark.parametrize("adapter", [NUMPY, TORCH, JAX], ids=lambda a: a.name)
def test_there_and_back(adapter):
    x = np.arange(6, dtype=np.float32).reshape(2, 3).astype(ml_dtypes.bfloat16)
    assert (adapter.numpy(adapter.wrap(x)) == x).all()


def test_what_is_no_array():
    for value in ([1, 2], 3.0, None, "text", np.float32(2), array.array("f", [1]), object(), memoryview(b"")):
        assert adapter_of(value) is None


def test_protocols_are_enough():
    x = np.arange(6, dtype=np.float32)

    class Exchanged:
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    class Described:
        __array_interface__ = x.__array_interface__
        owner = x

    for other in (Exchanged(), Described()):
        seen = view(other)
        assert (seen.pointer, seen.shape, seen.dtype.name) == (x.ctypes.data, (6,), "f32")


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        (np.zeros(3, ">f4"), "TS501", "newbyteorder"),
        (np.array([object()]), "TS501", "Python object"),
        (np.array(["a"]), "TS501", "text"),
        (np.zeros(3, "M8[s]"), "TS501", "dates"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "TS501", "filled"),
        (torch.ones(2, requires_grad=True), "TS501", "detach"),
        (torch.eye(2).to_sparse(), "TS501", "to_dense"),
        (torch.ones(2, dtype=torch.complex64).conj(), "TS501", "resolve_conj"),
        (torch.empty(2, device="meta"), "TS504", "meta"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_unusable_arrays_say_why_and_what_to_do(value, code, said):
    with pytest.raises(LaunchError, match=said) as caught:
        view(value)
    assert caught.value.code == code


def test_a_tensor_that_requires_grad_is_fine_where_nothing_is_recorded():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        allowed = TORCH.key(x)
        assert view(x).shape == (2,)
    assert TORCH.key(x) != allowed


def test_values_that_jax_traces_are_refused():
    def f(x):
        with pytest.raises(LaunchError, match="tracing"):
            view(x)
        return x

    jax.jit(f)(jnp.ones(2))


def test_read_only_memory_is_known():
    x = np.zeros(3)
    x.flags.writeable = False
    assert not view(x).writable


def test_subclasses_of_arrays_are_arrays(tmp_path):
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=(4,))
    assert adapter_of(mapped) is NUMPY
    assert view(mapped).pointer == mapped.ctypes.data
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert adapter_of(parameter) is TORCH


@given(hnp.array_shapes(min_dims=0, max_dims=4, max_side=5))
def test_c_strides_are_numpys(shape):
    assert arrays.c_strides(shape, 8) == np.zeros(shape, np.float64).strides
