"""Calls whose arrays live on a GPU, over a driver of the host: what runs, in what order, and what is kept alive."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.runtime import events
from tessera.runtime.arrays.lifetimes import lifetimes
from tests.conftest import require
from tests.unit.cuda.host_cuda import GpuArray, HostGpu, gpu  # noqa: F401 - a fixture

require("g++")


def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], a: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a * x[i] + y[i]


def layers(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["D", "D", ts.f32]):
    h = ts.softmax(x @ w) @ w
    return h, h.sum(axis=0)


def wanted(x: Any, w: Any) -> tuple[Any, Any]:
    z = x @ w
    e = np.exp(z - z.max(1, keepdims=True))
    h = e / e.sum(1, keepdims=True) @ w
    return h, h.sum(0)


def ready(program: Any) -> Any:
    """The generated launch of a program's only signature."""
    ((site,),) = [list(program.launcher.sites.values())]
    (found,) = site.table.values()
    return found


def launches(gpu: HostGpu) -> list[str]:  # noqa: F811
    return [c for c in gpu.calls if " on " in c and not c.startswith("event")]


def test_repeated_calls_of_several_launches_are_straight_code(gpu: HostGpu, monkeypatch: Any) -> None:  # noqa: F811
    function = ts.function(layers)
    rng = np.random.default_rng(0)
    for round in range(3):
        x, w = (rng.standard_normal(s, np.float32) for s in ((5, 8), (8, 8)))
        before = len(launches(gpu))
        if round == 2:  # what is left of a call neither walks the arguments nor the launches
            prepared = ready(function).prepared
            monkeypatch.setattr(prepared, "_launch", pytest.fail)
        gpu.stream = 5 + round
        got = function(gpu.put(x), gpu.put(w))
        assert isinstance(got[0], GpuArray)
        for result, want in zip(got, wanted(x, w), strict=True):
            np.testing.assert_allclose(result.get(), want, rtol=1e-5, atol=1e-6)
        now = launches(gpu)[before:]
        assert len(now) >= 3 and all(c.endswith(f" on {gpu.stream}") for c in now)
    (executable,) = gpu.executables
    assert len(executable.driver.bindings.machine.memory) == 0, "temporaries are freed"


def test_kernels_take_new_scalars_and_tensors(gpu: HostGpu) -> None:  # noqa: F811
    kernel = ts.kernel(saxpy)
    for a in (2.0, -1.5, 1e300):
        x, y = np.arange(300, dtype=np.float32), np.ones(300, np.float32)
        tx, ty = (ts.tensor(v) for v in (x, y))
        tx._data, ty._data = gpu.put(x), gpu.put(y)
        kernel(tx, ty, a)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(ty._data.get(), np.float32(a) * x + y)
    assert len(launches(gpu)) == 3


def test_what_straight_code_cannot_do_goes_the_long_way(gpu: HostGpu) -> None:  # noqa: F811
    kernel = ts.kernel(saxpy)
    x, y = np.arange(300, dtype=np.float32), np.ones(300, np.float32)
    a, b = gpu.put(x), gpu.put(y)
    for _ in range(2):
        kernel(a, b, 1.0)

    def elsewhere() -> None:  # another thread has no parameters yet
        kernel(a, b, 1.0)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    gpu.context = 8  # another device is current: the launch goes to the arrays'
    kernel(a, b, 1.0)
    assert gpu.context == 8
    gpu.context = 7
    odd = GpuArray(gpu.arrays[0].view(np.uint8)[4:-4].view(np.float32)[:296])
    out = gpu.put(np.zeros(296, np.float32))
    for _ in range(2):  # between 16-byte boundaries
        kernel(odd, out, 1.0)
    np.testing.assert_array_equal(out.get(), 2 * x[1:297])
    seen: list[Any] = []
    token = events.subscribe(seen.append, tiles=False)
    try:
        kernel(a, b, 1.0)
    finally:
        events.unsubscribe(token)
    assert [e.kernel for e in seen if isinstance(e, events.LaunchEvent)] == ["saxpy"]
    np.testing.assert_array_equal(b.get(), 5 * x + y)


@pytest.mark.parametrize("library", ["cupy", "tensor", "foreign"])
def test_every_device_has_launches_of_its_own(gpu: HostGpu, library: str, monkeypatch: Any) -> None:  # noqa: F811
    kernel = ts.kernel(saxpy)
    monkeypatch.setattr(sys.modules["cupy"], "asarray", lambda array: array.inner, raising=False)

    def put(values: Any, device: int) -> Any:
        array = gpu.put(values, device)
        if library != "tensor":
            return array if library == "cupy" else Exported(array)
        out = ts.tensor(values)
        out._data = array
        return out

    for device in (0, 1, 0, 1):
        y = put(np.ones(300, np.float32), device)
        kernel(put(np.arange(300, dtype=np.float32), device), y, 2.0)
        stored = gpu.arrays[-2]  # y was put first
        np.testing.assert_array_equal(stored, np.arange(300, dtype=np.float32) * 2 + 1)
    (site,) = kernel.launcher.sites.values()
    assert [found.prepared.device for found in site.table.values()] == ["cuda:0", "cuda:1"]


def test_memory_that_is_not_to_be_had_is_a_diagnostic(gpu: HostGpu, monkeypatch: Any) -> None:  # noqa: F811
    function = ts.function(layers)
    x, w = gpu.put(np.ones((5, 8), np.float32)), gpu.put(np.ones((8, 8), np.float32))
    function(x, w)
    function(x, w)

    gpu.full, cupy = True, sys.modules["cupy"]
    monkeypatch.setattr(cupy.cuda, "runtime", type("R", (), {"memGetInfo": lambda: (10, 20)}), raising=False)
    with pytest.raises(ts.LaunchError, match="TS505"):
        function(x, w)


class Exported:
    """An array of a library that is only known by a protocol."""

    def __init__(self, inner: GpuArray) -> None:
        self.inner = inner

    @property
    def __cuda_array_interface__(self) -> Any:
        return {}


@pytest.mark.usefixtures("young")
def test_arrays_of_other_libraries_last_until_the_launch_is_done(gpu: HostGpu, monkeypatch: Any) -> None:  # noqa: F811
    kernel = ts.kernel(saxpy)
    monkeypatch.setattr(sys.modules["cupy"], "asarray", lambda array: array.inner, raising=False)
    y = gpu.put(np.ones(300, np.float32))
    seen: list[weakref.ref[Any]] = []
    for n in range(3):
        x = Exported(gpu.put(np.full(300, n, np.float32)))
        seen.append(weakref.ref(x))
        kernel(x, y, 1.0)
        del x
    gc.collect()
    assert [r() is not None for r in seen] == [True] * 3, "no event has been reached"
    order = [c for c in gpu.calls if "saxpy" in c or "event" in c]
    assert order[:2] == ["saxpy on 5", "event 0 on 5"], "the event stands behind the launch"
    gpu.done |= {0, 1}
    kernel(gpu.put(np.zeros(300, np.float32)), y, 1.0)
    gc.collect()
    assert [r() is not None for r in seen] == [False, False, True]
    assert "event 0 gone" in gpu.calls and "event 1 gone" in gpu.calls
    np.testing.assert_array_equal(y.get(), np.full(300, 1 + 0 + 1 + 2, np.float32))


@pytest.mark.usefixtures("young")
def test_asking_for_events_does_not_spoil_a_capture(gpu: HostGpu) -> None:  # noqa: F811
    class Big:
        pass

    held = Big()
    ref = weakref.ref(held)
    lifetimes.keep([held], 1)
    del held
    gpu.graphs.begin(9)
    lifetimes.release()
    assert ref() is not None and not gpu.graphs.spoilt
    gpu.done.add(0)
    lifetimes.release()
    gc.collect()
    assert ref() is None and gpu.graphs.mode == 0


def test_streams_are_asked_apart(gpu: HostGpu) -> None:  # noqa: F811
    class Big:
        pass

    first, second = Big(), Big()
    refs = [weakref.ref(first), weakref.ref(second)]
    lifetimes.keep([first], 1)
    lifetimes.keep([second], 2)
    del first, second
    gpu.done.add(1)
    lifetimes.release()
    assert refs[0]() is not None and refs[1]() is None
    gpu.done.add(0)
    lifetimes.release()
    assert refs[0]() is None


def test_cupys_and_torchs_arrays_need_no_event(gpu: HostGpu) -> None:  # noqa: F811
    kernel = ts.kernel(saxpy)
    x, y = gpu.put(np.ones(300, np.float32)), gpu.put(np.ones(300, np.float32))
    kernel(x, y, 1.0)
    assert not gpu.events and not lifetimes.waiting
