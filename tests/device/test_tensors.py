"""Tensors on the GPU: moving, operators, DLPack, arrays on two devices, times by the device's own clock."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.errors import LaunchError
from tests.device import gpu

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)

import cupy


def test_there_and_back():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = ts.tensor(x).cuda()
    assert t.device == "cuda:0"
    np.testing.assert_array_equal(t.cpu().numpy(), x)
    np.testing.assert_array_equal(t.T.numpy(), x.T)


def test_operators_stay_on_the_device():
    x = np.linspace(-2, 2, 512, dtype=np.float32).reshape(8, 64)
    t = ts.tensor(x, device="cuda")
    out = ts.softmax(t * 2.0, axis=1)
    assert out.device == "cuda:0"
    e = np.exp(2 * x - 2 * x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_random_bits_are_those_of_the_host():
    host, device = ts.rand(1000, seed=3), ts.rand(1000, seed=3, device="cuda")
    np.testing.assert_array_equal(host.numpy(), device.numpy())


def test_dlpack_shares_memory_with_cupy():
    x = cupy.arange(4, dtype=cupy.float32)
    t = ts.from_dlpack(x)
    x[0] = 7
    assert t[0].item() == 7
    back = cupy.from_dlpack(t)
    assert back.data.ptr == x.data.ptr


def test_arrays_on_two_devices_are_refused():
    @ts.function
    def add(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        return x + y

    x = np.ones(4, np.float32)
    with pytest.raises(LaunchError, match="TS504"):
        add(x, cupy.asarray(x))
    with pytest.raises(LaunchError, match="TS504"):
        ts.tensor(x) + ts.tensor(x, device="cuda")


def test_launches_are_timed_by_the_device():
    @ts.function
    def work(x: ts.Tensor["n", ts.f32]):
        return ts.gelu(x) * 2

    x = cupy.ones(1 << 24, cupy.float32)
    work(x)
    with ts.profiler(tiles=False) as prof:
        work(x)
    (launch,) = prof.launches()
    assert launch.device == "cuda:0"
    assert 1_000 < launch.duration < 1_000_000_000
