"""What people and other tools may rely on: compiled objects, profiles, devices, settings, reasons for recompiling."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tests.conftest import require

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
GAIN = 2.0


@ts.function
def softmax(x: ts.Tensor["B", "S", ts.f32]):
    return ts.softmax(x, axis=-1)


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y


@ts.kernel
def gemm(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((64, 64), dtype=ts.f32)
    a = A[tile_m : tile_m + 64, tile_k : tile_k + 32]
    b = B[tile_k : tile_k + 32, tile_n : tile_n + 64]
    acc = ts.tile.mma(a, b, accumulator=acc)
    C[tile_m : tile_m + 64, tile_n : tile_n + 64] += acc


@pytest.mark.parametrize("target", ["cpu", "reference", "sm_90a"])
def test_a_compiled_function_shows_everything(target: str) -> None:
    compiled = ts.compile(softmax, target=target, dims={"B": 3, "S": 4})
    texts = [compiled.ir(level) for level in ("graph", "schedule", "tile", "target")]
    for text, holds in zip(texts, ("= max(", "= group(", "= reduce(", ""), strict=True):
        assert text.strip() and (holds in text or target == "reference"), text[:200]
    assert len(set(texts[:3])) == 3 and compiled.source == texts[3]
    assert isinstance(compiled.resources, dict) and json.dumps(compiled.resources)
    assert "softmax" in str(compiled.explain()) and target in str(compiled.explain())
    if target != "sm_90a":
        np.testing.assert_allclose(compiled(X).sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("program", [saxpy, softmax], ids=lambda p: p.name)
@pytest.mark.parametrize("dims", [None, {"n": 100, "B": 3, "S": 4}], ids=["open", "fixed"])
@pytest.mark.parametrize("target", ["cpu", "reference", "sm_90a", "emulator:sm_90a"])
def test_every_program_shows_everything_on_every_target(target: str, dims: Any, program: Any) -> None:
    require("c++" if target.startswith("emulator") else "cuda" if target.startswith("sm_") else "numpy")
    named = program.ir("graph")
    compiled = ts.compile(program, target=target, dims={k: v for k, v in (dims or {}).items() if k in named} or None)
    for level in ("graph", "schedule", "tile", "target"):
        assert program.name in compiled.ir(level)
    assert compiled.source == compiled.ir("target")
    assert json.loads(json.dumps(compiled.resources))
    assert compiled.explain().target == target and f"{program.name} on {target}" in str(compiled.explain())


@pytest.mark.parametrize("program", [saxpy, gemm, softmax], ids=lambda p: p.name)
@pytest.mark.parametrize("target", ARCHITECTURES)
def test_every_architecture_is_compiled_for_without_a_gpu(program: Any, target: str) -> None:
    require("cuda")
    resources = ts.compile(program, target=target).resources
    assert resources
    for kernel in resources.values():
        assert 0 < kernel["registers"] <= 255 and kernel["spills"] == 0


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_profile_is_data(target: str, tmp_path: Path) -> None:
    with knobs.target.override(target):
        softmax(X)
        with ts.profiler() as prof:
            for _ in range(3):
                softmax(X)
    tiles = prof.tiles()
    assert tiles and all(dataclasses.is_dataclass(t) and t.duration >= 0 for t in tiles)
    assert "softmax" in str(prof.summary())
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(e["ph"] in "XB" and "softmax" in e["name"] for e in events)


def test_devices_and_threads() -> None:
    assert any("cpu" in str(d) for d in ts.devices())
    before = ts.get_num_threads()
    try:
        ts.set_num_threads(2)
        assert ts.get_num_threads() == 2
        for bad in (0, -1, 1.5, "two"):
            with pytest.raises((ts.TesseraError, ValueError, TypeError)):
                ts.set_num_threads(bad)  # type: ignore[arg-type]
        assert ts.get_num_threads() == 2
    finally:
        ts.set_num_threads(before)


def test_the_cache_lies_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "here"))
    ts.function(lambda x: ts.tanh(x) * 41)(X)
    assert any(f.is_file() for f in (tmp_path / "here").rglob("*"))


def test_a_recompilation_names_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    callee = ts.function(lambda x: x + 1)

    options = {"power": 2}

    @ts.function
    def program(x, scale: int = 1):
        return callee(x) * GAIN * options["power"] + scale

    def reason() -> str:
        return str(ts.why_recompiled(program))

    program(X)
    program(X[:2])
    assert "x" in reason() and "2" in reason() and "3" in reason()
    program(X[:2], 5)
    assert "scale" in reason()
    monkeypatch.setitem(globals(), "GAIN", 3.0)
    np.testing.assert_allclose(program(X[:2], 5), (X[:2] + 1) * 6 + 5, rtol=1e-6)
    assert "GAIN" in reason()
    options["power"] = 4
    np.testing.assert_allclose(program(X[:2], 5), (X[:2] + 1) * 12 + 5, rtol=1e-6)
    assert "power" in reason() or "options" in reason()

    callee = ts.function(lambda x: x + 2)

    np.testing.assert_allclose(program(X[:2], 5), (X[:2] + 2) * 12 + 5, rtol=1e-6)
    assert "callee" in reason()
    monkeypatch.setenv("TESSERA_TARGET", "reference")
    program(X[:2], 5)
    assert "target" in reason() and "reference" in reason()
