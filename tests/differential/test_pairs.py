"""Programs over all pairs of points: their coordinates, a short axis, are taken apart, and no bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.schedule import graph_to_schedule
from tests.conftest import require


def forces(x, m):
    d = x[None, :, :] - x[:, None, :]
    r = ts.sum(d * d, axis=2) + 0.01
    return ts.sum(d * (m / (r * ts.sqrt(r)))[:, :, None], axis=1)


def distances(x, m):
    return ts.sqrt(ts.sum(ts.square(x[:, None] - x[None] * m[:, None]), axis=-1))


def kept_axes(x, m):
    y = x * 2.0 + m[:, None]
    d = ts.abs(y[:, None] - y)
    near = ts.exp(-ts.sum(d, axis=-1, keepdims=True))
    return ts.sum(near * d, axis=0, keepdims=True), ts.max(d, axis=-1)


def energy(x, m):
    d = x[None, :, :] - x[:, None, :]
    return ts.sum(m / (ts.sum(d * d, axis=2) + 0.1))


def slopes(x, m):
    return ts.grad(energy)(x, m)


def zeros(x, m):
    d = (x[None, :, :] - x[:, None, :]) * 0.0 * -1.0
    return 1.0 / ts.sum(d, axis=2), 1.0 / ts.sum(d * ts.sum(d, axis=2)[:, :, None], axis=1)


def stored(x, m):
    d = x[None, :, :] - x[:, None, :]
    return d, ts.sum(d * ts.sum(d, axis=2)[:, :, None], axis=1)


PROGRAMS = [forces, distances, kept_axes, energy, slopes, zeros, stored]


def results(f: Any, n: int, k: int) -> tuple[list[np.ndarray], int]:
    rng = np.random.default_rng(k)
    x, m = rng.standard_normal((n, k)).astype(np.float32), rng.uniform(1, 2, n).astype(np.float32)
    function = ts.function(f)
    found = function(x, m)
    return [np.array(r) for r in (found if isinstance(found, tuple) else (found,))], function.ir("tile").count("func ")


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_same_bits(f: Any, k: int, target: str, monkeypatch: Any, tmp_path: Any) -> None:
    if target.startswith("emulator"):
        require("g++")
        if k != 3 or f not in (forces, kept_axes):
            return
    monkeypatch.setenv("TESSERA_TARGET", target)
    found, _ = results(f, 70, k)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(graph_to_schedule, "take_apart_short_axes", lambda _: None)
    wanted, _ = results(f, 70, k)
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()


def test_pairs_are_not_in_memory(monkeypatch: Any, tmp_path: Any) -> None:
    """Three coordinates are copied, each for itself, as all pairs read them; all else is one kernel."""
    found, count = results(forces, 70, 3)
    assert count == 4
    d = found[0]
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(graph_to_schedule, "take_apart_short_axes", lambda _: None)
    plain, count = results(forces, 70, 3)
    assert count == 2 and plain[0].tobytes() == d.tobytes()


def test_small_tensors_of_their_own_stay() -> None:
    """What is read from memory, and not broadcast, is summed where it lies."""
    function = ts.function(lambda x: ts.sum(ts.square(x), axis=-1))
    function(np.ones((50, 3), np.float32))
    assert "axes=[1]" in function.ir("tile")
