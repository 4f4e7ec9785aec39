"""Distributed functions on two GPUs, over a driver and a CuPy of the host: who gets which part, and the bits."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.conftest import require
from tests.unit.cuda.host_cuda import GpuArray, HostGpu, gpu  # noqa: F401 - a fixture

require("g++")

RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(s).astype(np.float32) for s in ((10, 16), (16, 8)))


def body(x: Tensor["B", "D"], w: Tensor["D", "H"]):
    h = ts.tanh(x @ w)
    return ts.softmax(h, axis=-1), h.mean(axis=0)


@pytest.fixture
def layer(two: Any) -> Any:
    """Compiled for this test's driver."""
    return ts.function(body)


class Array(GpuArray):
    """An array that knows its device and can be cut."""

    def __getitem__(self, index: Any) -> Array:
        piece = Array(self.host[index], self.device.id)
        assert self.host.size == 0 or np.shares_memory(piece.host, self.host)
        return piece


@pytest.fixture
def two(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> HostGpu:  # noqa: F811
    """What CuPy does on several devices: `log` has every copy between them, and every wait before one."""
    cupy, log = sys.modules["cupy"], []

    def here() -> int:
        return gpu.context - 7

    def put(array: Any, device: int) -> Array:
        return Array(gpu.put(array).host, device)

    def asarray(array: Any) -> Array:
        host, source = (array.host, f"cuda:{array.device.id}") if isinstance(array, GpuArray) else (array, "cpu")
        log.append(f"{source} to cuda:{here()}")
        return put(host, here())

    def concatenate(parts: list[Array], axis: int) -> Array:
        assert {p.device.id for p in parts} == {here()}
        return put(np.concatenate([p.host for p in parts], axis), here())

    class Stream:
        ptr = property(lambda _: gpu.stream)

        def synchronize(self) -> None:
            log.append(f"waits for cuda:{here()}")

    monkeypatch.setattr(cupy, "ndarray", Array)
    monkeypatch.setattr(cupy, "asarray", asarray, raising=False)
    monkeypatch.setattr(cupy, "concatenate", concatenate, raising=False)
    monkeypatch.setattr(cupy, "empty", lambda shape, dtype: put(gpu.empty(shape, dtype).host, here()))
    monkeypatch.setattr(cupy.cuda, "get_current_stream", Stream)
    gpu.log = log  # type: ignore[attr-defined]
    gpu.at = put  # type: ignore[attr-defined]
    return gpu


def test_parts_go_round_the_gpus(two: Any, layer: Any) -> None:
    x, w = two.at(X, 0), two.at(W, 0)
    program = ts.distributed(ts.mesh(4))(layer)
    assert [str(p) for p in program.plan(x, w).parts] == [
        "0:3 on cuda:0",
        "3:6 on cuda:1",
        "6:8 on cuda:0",
        "8:10 on cuda:1",
    ]
    p, mean = program(x, w)
    assert type(p) is Array and p.device.id == 0 and type(mean) is Array and mean.device.id == 0
    whole, want = layer(x, w)
    assert p.host.tobytes() == whole.host.tobytes()
    np.testing.assert_allclose(mean.host, want.host, rtol=1e-6)
    assert two.log.count("cuda:0 to cuda:1") == 3, "two parts of x, and w once"
    assert two.log.count("cuda:1 to cuda:0") == 2, "two parts of the result"
    first = two.log.index("cuda:1 to cuda:0")
    assert two.log[first - 1] == "waits for cuda:1"
    launches = [c for c in two.calls if " on " in c and "event" not in c]
    assert len(launches) > 4


def normalised(x: Tensor["B", "D"], w: Tensor["D", "H"]):
    return (x - x.mean(axis=0)) @ w


def test_what_the_parts_send_each_other_goes_to_every_gpu(two: Any) -> None:
    x, w = two.at(X, 0), two.at(W, 0)
    program = ts.distributed(ts.mesh(4))(normalised)
    found = program(x, w)
    np.testing.assert_allclose(found.host, ts.function(normalised)(x, w).host, rtol=1e-5, atol=1e-5)
    assert type(found) is Array and found.device.id == 0
    one = ts.distributed(ts.mesh(["cuda:0"] * 4))(normalised)(x, w)
    assert found.host.tobytes() == one.host.tobytes()


def test_bits_do_not_depend_on_the_number_of_devices(two: Any, layer: Any) -> None:
    x, w = two.at(X, 0), two.at(W, 0)
    one = ts.distributed(ts.mesh(["cuda:0"] * 4))(layer)(x, w)
    other = ts.distributed(ts.mesh(4))(layer)(x, w)
    for a, b in zip(one, other, strict=True):
        assert a.host.tobytes() == b.host.tobytes()


def test_arrays_of_the_host_go_to_the_gpus_that_the_mesh_names(two: Any, layer: Any) -> None:
    p, mean = ts.distributed(ts.mesh(["cuda:0", "cuda:1"]))(layer)(X, W)
    assert type(p) is np.ndarray and type(mean) is np.ndarray
    x, w = two.at(X, 0), two.at(W, 0)
    assert p.tobytes() == layer(x, w)[0].host.tobytes()


def test_arrays_of_a_gpu_go_to_the_cpu_that_the_mesh_names(two: Any, layer: Any) -> None:
    p, _ = ts.distributed(ts.mesh(["cpu", "cpu"]))(layer)(two.at(X, 1), two.at(W, 1))
    assert type(p) is Array and p.device.id == 1
    assert p.host.tobytes() == layer(X, W)[0].tobytes()


def test_all_devices(two: Any, layer: Any) -> None:
    x, w = two.at(X, 0), two.at(W, 0)
    program = ts.distributed(layer)
    assert [p.device for p in program.plan(x, w).parts] == ["cuda:0", "cuda:1"]
    assert [p.device for p in program.plan(X, W).parts] == ["cpu"], "NumPy's arrays live on the CPU"
