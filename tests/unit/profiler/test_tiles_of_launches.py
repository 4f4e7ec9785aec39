"""Tile records belong to the launch that they are of, on every target."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.profiler import Profiler
from tessera.runtime.call.observe import clock_step, record_cost
from tessera.runtime.events import TileBatch
from tests.conftest import require
from tests.profiler import synthetic


def layers(x: ts.Tensor["B", "D", ts.f32], w: ts.Tensor["D", "D", ts.f32]):
    return ts.softmax(x @ w) @ w


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_each_launch_of_a_call_has_its_own_tiles(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if target.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", target)
    function = ts.function(layers)
    x, w = np.ones((40, 16), np.float32), np.ones((16, 16), np.float32)
    with ts.profiler() as prof:
        function(x, w)
    launches = sorted(prof.launches(), key=lambda event: event.launch)
    assert len(launches) >= 2
    for launch in launches:
        tiles = prof.recording.tiles_of(launch.launch).records
        assert sorted(set(tiles["tile"].tolist())) == list(range(launch.tiles))
        assert launch.duration is not None
    for one, other in pairwise(launches):
        assert one.start <= other.start


def timed(step: int, typical: int) -> Profiler:
    """A launch of 40 tiles on a GPU, whose clock moves in steps."""
    rng = np.random.default_rng(0)
    took = rng.integers(typical // 2, typical * 2, 40) // step * step
    prof = Profiler()
    found = clock_step([{"duration": took[:20]}, {"duration": took[20:]}])
    assert found == step
    launch = synthetic.launch(1, "k", 0, 10**6)
    prof.recording.add(replace(launch, device="cuda:0", attributes={**launch.attributes, "clock_ns": found}))
    start = np.arange(40) * 10_000
    columns = {"tile": np.arange(40), "start": start, "duration": took, "resource": np.arange(40) % 8}
    prof.recording.add(TileBatch.from_columns(("tile",), launch=1, **columns))
    return prof


def test_nothing_is_said_of_tiles_below_the_steps_of_the_clock() -> None:
    coarse, fine = timed(1024, 2000), timed(32, 2000)
    assert not coarse.timeline().balances and fine.timeline().balances
    assert "too short for the GPU's clock, which moves in steps of 1.02 µs" in str(coarse.timeline())
    assert "too short" not in str(fine.timeline())


def test_a_phase_has_its_part_of_what_a_record_and_its_readings_cost() -> None:
    columns: dict[str, Any] = {"tile": np.array([0, 0, 0, 1, 1]), "written": (2, 30)}
    device: Any = SimpleNamespace(record_costs=(50.0, 2.0))
    assert record_cost(device, columns) == {"record_ns": (2 * 50.0 + 30 * 2.0) / 5} and "written" not in columns
    unknown: Any = SimpleNamespace(record_costs=None)
    assert record_cost(unknown, {"tile": np.zeros(1), "written": (1, 0)}) == {}
    host: Any = SimpleNamespace(record_ns=7.0)
    assert record_cost(host, {"tile": np.zeros(3)}) == {"record_ns": 7.0}


def test_the_steps_are_those_of_whole_tiles() -> None:
    """Phases, which divide them, do not count."""
    tile = np.repeat(np.arange(20), 3)
    whole = np.random.default_rng(0).integers(50, 99, 20) * 32
    first = np.arange(20) + 1
    took = np.stack([first, first + 1, whole - 2 * first - 1], 1).ravel()
    assert clock_step([{"tile": tile, "duration": took}]) == 32


def test_a_few_times_do_not_show_the_steps() -> None:
    assert clock_step([{"duration": np.array([3000, 6000, 9000])}]) == 0
    assert clock_step([]) == 0
