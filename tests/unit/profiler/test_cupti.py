"""Times by CUPTI: which launches get them, what else is shown, and what is said where it cannot be had."""

from __future__ import annotations

import importlib
import importlib.machinery
import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.targets.cuda.call import graphs
from tessera.profiler import Profiler, profiler
from tessera.profiler.measure import cupti
from tessera.profiler.measure.activities import readable
from tests.conftest import require
from tests.unit.cuda.host_cuda import HostGpu, gpu  # noqa: F401 - a fixture
from tests.unit.cuda.test_cuda_device import HostDriver
from tests.unit.profiler import host_cupti
from tests.unit.profiler.host_cupti import HostCupti, Result
from tests.unit.profiler.test_graphs import Step, capture, layers, nothing_held, replays, scaled  # noqa: F401

require("g++")


@pytest.fixture
def host(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostCupti]:  # noqa: F811
    made = HostCupti()
    package: Any = ModuleType("cupti")
    package.cupti = made
    package.__spec__ = importlib.machinery.ModuleSpec("cupti", None)
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setattr(HostDriver, "ran", [])
    yield made
    assert not made.subscribers and not made.enabled, "nothing is left on"


def foreign(step: Step, name: str, amount: int = 1, what: str = "kernel") -> None:
    """Another library's work on the stream."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    step.gpu.executables[0].driver.bindings._tell(what, name, step.gpu.stream, amount, now)


def test_kernels_of_a_call_without_tile_records_have_times(gpu: HostGpu, host: HostCupti) -> None:  # noqa: F811
    step = Step(gpu, ts.function(layers), (40, 16), (16, 16))
    step.warm()
    with profiler(tiles=False) as prof:
        step()
        step()
    assert len(prof.launches()) >= 6
    for launch in prof.launches():
        assert launch.duration and launch.source == "measured" and not launch.unavailable
        assert prof.recording.start <= launch.start and launch.start + launch.duration <= prof.recording.end
        assert launch.attributes["stream"] == 7 + gpu.stream
    assert "GPU times: by CUPTI" in str(prof.summary())


def test_a_launch_encloses_its_tiles(gpu: HostGpu, host: HostCupti) -> None:  # noqa: F811
    step = Step(gpu, ts.function(layers), (40, 16), (16, 16))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        graph.launch()
        graph.launch()
    assert [key[1] for key in replays(prof)] == [1, 2]
    for launch in prof.launches():
        tiles = prof.recording.tiles_of(launch.launch).records
        assert "stream" in launch.attributes and len(set(tiles["tile"].tolist())) == launch.tiles
        assert launch.start <= tiles["start"].min()
        assert (tiles["start"] + tiles["duration"]).max() <= launch.start + (launch.duration or 0)
    assert not [e for e in prof.launches() if "seen_by" in e.attributes], "the profiler's own copies are not shown"
    for one, other in pairwise(sorted(prof.launches(), key=lambda e: e.start)):
        assert one.start + (one.duration or 0) <= other.start, "all are on CUPTI's clock"
    on_path = [step for step in prof.critical_path().steps if step.kind == "kernel"]
    assert len(on_path) == len(prof.launches())


def test_what_other_libraries_ran_is_shown(gpu: HostGpu, host: HostCupti, tmp_path: Path) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler(tiles=False) as prof:
        step()
        foreign(step, "_ZN7cutlass6KernelI4GemmEEvNT_6ParamsE", 12)
        foreign(step, "HTOD", 4096, "copy")
    others = {e.title: e for e in prof.launches() if e.attributes.get("seen_by") == "CUPTI"}
    assert set(others) == {"cutlass::Kernel", "copy host to device"}
    assert others["cutlass::Kernel"].grid == (12, 1, 1)
    assert others["copy host to device"].attributes["moved"] == 4096
    assert "cutlass::Kernel" in str(prof.summary())
    prof.export_tensorboard(tmp_path)
    assert '"cat": "gpu_memcpy"' in (tmp_path / "rank0.pt.trace.json").read_text()
    loaded = Profiler.load(prof.save(tmp_path / "p.npz"))
    assert loaded.recording.cupti == "" and len(loaded.launches()) == len(prof.launches())


def test_graphs_of_before_the_profile_are_seen(gpu: HostGpu, host: HostCupti) -> None:  # noqa: F811
    step = Step(gpu, ts.function(layers), (40, 16), (16, 16))
    step.warm()
    graph = capture(gpu, step)
    with profiler() as prof:
        step.warm()
        for _ in range(3):
            graph.launch()
    found = replays(prof)
    assert len(found) == 3 and len({tuple(kernels) for kernels in found.values()}) == 1
    titles = {re.sub(r":\d+", "", e.title) for e in prof.launches() if "graph" in e.attributes}
    assert titles == {"layers x @ w or layers ts.softmax(x @ w) @ w", "layers ts.softmax(x @ w)"}
    assert "3 replays of 3 launches" in str(prof.summary())


def test_replays_without_room_have_their_times(
    gpu: HostGpu,  # noqa: F811
    host: HostCupti,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "MOST_RUNS", 1)
    step = Step(gpu, ts.function(scaled), (1000,))
    with profiler() as prof:
        step.warm()
        graph = capture(gpu, step)
        for _ in range(3):
            graph.launch()
    found = replays(prof)
    assert [key[1] for key in found] == [1, 2, 3] and len({key[0] for key in found}) == 1
    assert not prof.recording.unseen_replays


@pytest.mark.parametrize(
    ("call", "result", "said"),
    [
        ("activity_enable", Result.ERROR_INSUFFICIENT_PRIVILEGES, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        ("subscribe", Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "another profiler has CUPTI"),
        ("subscribe", Result.ERROR_MAX_LIMIT_REACHED, "another profiler has CUPTI"),
        ("activity_flush_all", Result.ERROR_INSUFFICIENT_PRIVILEGES, "does not let this user"),
    ],
)
def test_where_it_is_refused_times_stay_and_a_reason_is_given(
    gpu: HostGpu,  # noqa: F811
    host: HostCupti,
    call: str,
    result: Result,
    said: str,
) -> None:
    host.refuse[call] = result
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler() as prof:
        step()
    (launch,) = prof.launches()
    assert launch.duration and said in str(prof.summary())
    counters = prof.counters().figures["GPU counters"]
    assert counters.value is None and counters.reason in str(prof.summary())
    assert "by tile records and CUDA events" in str(prof.summary())


def test_nested_profiles_share_it(gpu: HostGpu, host: HostCupti) -> None:  # noqa: F811
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler(tiles=False) as outer:
        step()
        with profiler(tiles=False) as inner:
            step()
        step()
    assert [len(prof.launches()) for prof in (outer, inner)] == [3, 1]
    assert all("stream" in e.attributes for prof in (outer, inner) for e in prof.launches())


def test_records_that_are_missing_are_counted(
    gpu: HostGpu,  # noqa: F811
    host: HostCupti,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cupti, "MOST", 2)
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler(tiles=False) as prof:
        for _ in range(4):
            step()
        host.dropped = 5
    assert prof.recording.cupti_lost == 2 + 5
    assert "7 records of it are missing" in str(prof.summary())
    assert all(launch.duration for launch in prof.launches())


def test_without_the_package_the_reason_is_said_for_gpus_alone(gpu: HostGpu) -> None:  # noqa: F811
    if importlib.util.find_spec("cupti") is not None:
        pytest.skip("CUPTI is installed")
    step = Step(gpu, ts.function(scaled), (1000,))
    step.warm()
    with profiler() as prof:
        step()
    assert cupti.NOT_INSTALLED in str(prof.summary())
    x = np.ones(10, np.float32)
    host_only = ts.function(scaled)
    with profiler() as prof:
        host_only(x)
    assert "CUPTI" not in str(prof.summary())


def test_the_stand_in_is_as_the_real_one() -> None:
    pytest.importorskip("cupti")
    real = importlib.import_module("cupti.cupti")
    for name in (n for n in vars(HostCupti) if not n.startswith("_") and n != "ran"):
        assert hasattr(real, name), name
    for enum in ("ActivityKind", "ActivityMemcpyKind", "Result"):
        for item in getattr(host_cupti, enum):
            assert int(getattr(real, enum)[item.name]) == item
    for item in Result:
        assert str(real.cuptiError(int(item))) == str(host_cupti.cuptiError(item))
        assert real.cuptiError(int(item)).status == item
    kernel = {"kind", "start", "end", "device_id", "stream_id", "graph_id", "correlation_id", "name", "grid_x"}
    assert kernel <= set(dir(real.ActivityKernel11))
    assert (kernel - {"name", "grid_x"}) | {"bytes", "copy_kind"} <= set(dir(real.ActivityMemcpy6))


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("saxpy_kernel", "saxpy_kernel"),
        ("_ZN7cutlass6KernelI4GemmEEvNT_6ParamsE", "cutlass::Kernel"),
        ("_Z3addPfS_", "add"),
        ("_Znonsense", "_Znonsense"),
    ],
)
def test_names_of_other_kernels(symbol: str, name: str) -> None:
    assert readable(symbol) == name
