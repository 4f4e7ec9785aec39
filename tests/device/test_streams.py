"""Streams and graphs on the GPU: launches follow the library's current stream, and are captured and replayed."""

from __future__ import annotations

import pytest

import tessera as ts
from tessera.errors import DeviceError
from tests.device import gpu

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)

import cupy


@ts.function
def twice(x: ts.Tensor["n", ts.f32]):
    return ts.tanh(x) * 2


def test_launches_are_ordered_on_cupys_current_stream():
    x = cupy.linspace(-1, 1, 1 << 22, dtype=cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(5):  # each round reads what the round before has written on this stream
            x = twice(x) * 0.5
    stream.synchronize()
    y = cupy.linspace(-1, 1, 1 << 22, dtype=cupy.float32)
    for _ in range(5):
        y = cupy.tanh(y)
    cupy.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_arrays_of_two_libraries_on_two_streams():
    torch = pytest.importorskip("torch")

    @ts.function
    def add(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        return x + y

    mine, theirs = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    for round in range(20):
        with theirs, torch.cuda.stream(mine):
            y = cupy.full(1 << 22, 1.0, cupy.float32)
            for _ in range(10):
                y += 1
            x = torch.full((1 << 22,), float(round), device="cuda")
            out = add(x, y)
            y.fill(-1)  # comes after the launch has read it
        torch.cuda.synchronize()
        assert bool((out == round + 11).all())


def test_a_graph_of_pytorch_replays_launches():
    torch = pytest.importorskip("torch")
    x = torch.randn(4096, device="cuda")
    twice(x)  # loads the code
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = twice(twice(x))
    for _ in range(3):
        x.copy_(torch.randn(4096, device="cuda"))
        graph.replay()
        torch.testing.assert_close(out, torch.tanh(torch.tanh(x) * 2) * 2, rtol=1e-5, atol=1e-5)


def test_a_first_call_inside_a_capture_says_what_to_do():
    @ts.function
    def fresh(x: ts.Tensor["n", ts.f32]):
        return ts.exp(x) - 3

    x = cupy.ones(256, cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(DeviceError, match="TS611"):
                fresh(x)
        finally:
            stream.end_capture()
        cupy.testing.assert_allclose(fresh(x), cupy.exp(x) - 3, rtol=1e-5)
