"""Profiles on the GPU: clocks, tiles of launches, graphs, CUPTI."""

from __future__ import annotations

import importlib.util
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.targets.cuda.call import graphs
from tessera.compiler.targets.cuda.call.clock import clock_of
from tessera.compiler.targets.cuda.call.context import Driver
from tessera.compiler.targets.cuda.call.device import driver
from tessera.profiler import Profiler
from tessera.profiler.balance import phase_stats
from tests.device import gpu

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)

import cupy

ALLOWED = 20_000
"""ns that two looks at the clocks may be apart"""


@ts.function
def layers(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["D", "D", ts.f32]):
    return ts.softmax(x @ w) @ w


@pytest.fixture
def arrays() -> Any:
    return cupy.random.random((2048, 256), dtype=cupy.float32), cupy.random.random((256, 256), dtype=cupy.float32)


def replays(prof: Profiler) -> list[tuple[int, int]]:
    return [(replay.graph, replay.number) for replay in prof.recording.replays]


def test_the_clocks_stay_together() -> None:
    call = Driver(driver())
    call.ensure_context()
    clock = clock_of(call)
    clock.compare(always=True)
    first = clock.known[-1]
    time.sleep(1)
    clock.compare(always=True)
    drift = clock.known[-1][1] - first[1]
    assert abs(drift) < 1_000_000, f"the clocks drift by {drift} ns a second"
    before = time.perf_counter_ns()
    _, device, _ = min(clock._try() for _ in range(8))
    (at,) = clock.host(np.array([device]))
    assert before - ALLOWED <= at <= time.perf_counter_ns() + ALLOWED


def test_launches_and_tiles_lie_in_the_region_one_after_the_other(arrays: Any) -> None:
    layers(*arrays)
    with ts.profiler() as prof:
        layers(*arrays)
    assert len(prof.launches()) >= 2
    for launch in prof.launches():
        tiles = prof.recording.tiles_of(launch.launch).records
        assert set(tiles["tile"].tolist()) == set(range(launch.tiles))
        assert prof.recording.start - ALLOWED <= launch.start
        assert launch.start + (launch.duration or 0) <= prof.recording.end + ALLOWED
    for one, other in pairwise(sorted(prof.launches(), key=lambda e: e.start)):
        assert one.start + (one.duration or 0) <= other.start + ALLOWED


@ts.kernel(num_stages=3, num_warps=4)
def product(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Tensor["M", "N", ts.f32]):
    a, b = ts.tile.load(A, shape=(64, 32)), ts.tile.load(B, shape=(32, 64))
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    ts.tile.store(C, acc)


@ts.kernel
def repeated(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f32]):
    block = x[tile_n : tile_n + 1024]
    total = ts.tile.sum(block)
    for _ in ts.tile.range(0, 200, 1):
        block = ts.tile.exp(block * -1)
    y[tile_n : tile_n + 1024] = block
    z[tile_n : tile_n + 1024] = block + total


def phase_shares(prof: Profiler) -> dict[str, float]:
    """What part of the tiles' time phases of each kind take."""
    tiles, found = prof.recording.tiles, {}
    for entry in phase_stats(tiles):
        kind = entry.phase.partition(" (")[0]
        found[kind] = found.get(kind, 0.0) + entry.total / int(tiles.records["duration"].sum())
    return found


def test_phases_of_a_pipelined_product() -> None:
    a, b = (cupy.random.random((2048, 2048), dtype=cupy.float32).astype(cupy.float16) for _ in range(2))
    c = cupy.zeros((2048, 2048), dtype=cupy.float32)
    product(a, b, c)
    with ts.profiler() as prof:
        product(a, b, c)
    found = phase_shares(prof)
    assert {"load", "wait for loads", "mma", "store"} <= found.keys(), found
    assert found["wait for loads"] + found["mma"] + found["load"] > 0.8, "64 steps, and one store"
    extents, membership = prof.recording.extents
    summed = np.bincount(membership, prof.recording.tiles.records["duration"])
    np.testing.assert_array_equal(summed, extents["duration"])


def test_a_slow_loop_is_most_of_its_tiles_time() -> None:
    x, y, z = (cupy.random.random(1 << 20, dtype=cupy.float32) for _ in range(3))
    repeated(x, y, z)
    with ts.profiler() as prof:
        repeated(x, y, z)
    found = phase_shares(prof)
    assert found["compute"] > 0.6 and {"load", "reduce", "store"} <= found.keys(), found


def test_replays_of_a_graph_of_cupy(arrays: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with ts.profiler() as prof, stream:
        layers(*arrays)
        stream.begin_capture()
        out = layers(*arrays)
        graph = stream.end_capture()
        for _ in range(5):
            graph.launch(stream)
        stream.synchronize()
    cupy.testing.assert_allclose(out, layers(*arrays), rtol=1e-6)
    assert [number for _, number in replays(prof)] == [1, 2, 3, 4, 5]
    each = {len(replay.launches) for replay in prof.recording.replays}
    assert each == {len([e for e in prof.launches() if "graph" not in e.attributes])}
    for launch in prof.launches():
        assert len(prof.recording.tiles_of(launch.launch)) == launch.tiles
    for one, other in pairwise(prof.recording.replays):
        assert one.end <= other.start + ALLOWED
    graph.launch(stream)
    with ts.profiler() as later:
        graph.launch(stream)
        stream.synchronize()
    assert [number for _, number in replays(later)] == [7]


def test_replays_of_a_graph_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(graphs, "MOST_RUNS", 3)
    x, w = torch.randn(2048, 256, device="cuda"), torch.randn(256, 256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with ts.profiler() as prof:
        layers(x, w)
        with torch.cuda.graph(graph):
            out = layers(x, w)
        for _ in range(4):
            graph.replay()
        torch.cuda.synchronize()
    torch.testing.assert_close(out, torch.softmax(x @ w, 1) @ w, rtol=1e-3, atol=1e-3)
    told = prof.recording.graphs[-1]
    assert (told.replays, told.recorded) == (4, 3)


def test_the_records_of_a_graph_that_is_gone_are_read_and_freed(arrays: Any) -> None:
    from tessera.runtime.call import captured

    stream = cupy.cuda.Stream(non_blocking=True)
    with ts.profiler() as prof, stream:
        layers(*arrays)
        stream.begin_capture()
        layers(*arrays)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        del graph
    assert len(replays(prof)) == 1
    for _ in range(50):  # the driver tells on a thread of its own
        with ts.profiler():
            pass
        if not captured._graphs.calls:
            return
        time.sleep(0.1)
    pytest.fail("the driver has not told that the graph is gone")


def test_cupti_sees_what_tile_records_see(arrays: Any) -> None:
    if importlib.util.find_spec("cupti") is None:
        pytest.skip("cupti-python is not installed")
    layers(*arrays)
    with ts.profiler() as tiled:
        layers(*arrays)
        cupy.sin(arrays[0]).sum()
    with ts.profiler(tiles=False) as plain:
        for _ in range(3):
            layers(*arrays)
    if tiled.recording.cupti:
        pytest.skip(tiled.recording.cupti)
    own = [e for e in tiled.launches() if "seen_by" not in e.attributes]
    assert all("stream" in e.attributes for e in own)
    assert any(e.attributes.get("seen_by") == "CUPTI" for e in tiled.launches()), "CuPy's kernels"
    for launch in own:
        tiles = tiled.recording.tiles_of(launch.launch).records
        assert (tiles["start"] + tiles["duration"]).max() - tiles["start"].min() <= (launch.duration or 0) + ALLOWED
    assert all(launch.duration for launch in plain.launches())
