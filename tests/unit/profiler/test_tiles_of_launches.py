"""Tile records belong to the launch that they are of, on every target."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tessera as ts
from tests.conftest import require


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
