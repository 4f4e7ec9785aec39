"""`ts.tile.print`: every tile once per program, in the order of programs, the same text on every target that prints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts


@ts.kernel
def shown(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for s in ts.tile.range(0, n, 8):
        v = x[s : s + 8]
        print("tile", v)
        ts.tile.print("largest", ts.tile.max(v), "large", v > 1, "half", ts.tile.cast(v, ts.bf16))
        ts.tile.print("whole", ts.tile.cast(v, ts.int32))
        y[s : s + 8] = v * 2


@ts.kernel
def inner(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for s in ts.tile.range(0, n, 4):
        v = x[s : s + 4]
        for _ in ts.tile.range(0, 2):
            v = v * 2
            ts.tile.print("step", v)
        y[s : s + 4] = v


@pytest.mark.parametrize("kernel", [shown, inner], ids=lambda k: k.name)
def test_targets_print_the_same(kernel: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(-2, 2, 1000, dtype=np.float32)
    said: dict[str, str] = {}
    for target in ("reference", "cpu"):
        ts.compile(kernel, target=target)(x, np.empty_like(x))
        said[target] = capsys.readouterr().out
    assert said["cpu"] == said["reference"]
    first = "tile" if kernel is shown else "step"
    heads = [line for line in said["cpu"].splitlines() if line.startswith(f"{first} in program")]
    programs, each = (125, 1) if kernel is shown else (250, 2)
    assert heads == [f"{first} in program ({i},):" for i in range(programs) for _ in range(each)]
