"""`ts.tile.print`: every tile once per program, in the order of programs, the same text on every target that prints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.kernel_runner import run


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


@ts.kernel
def halving(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for s in ts.tile.range(0, n, 4):
        v = x[s : s + 4]
        while ts.tile.max(v) > 0.5:
            v = v / 2
            ts.tile.print("at", s, "matrix", ts.tile.reshape(v, (2, 2)))
        y[s : s + 4] = v


@pytest.mark.parametrize("kernel", [halving, shown, inner], ids=lambda k: k.name)
def test_targets_print_the_same(kernel: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(-2, 2, 1000, dtype=np.float32)
    said: dict[str, str] = {}
    for target in ("reference", "cpu", "emulator:sm_80"):
        ts.compile(kernel, target=target)(x, np.empty_like(x))
        said[target] = capsys.readouterr().out
    assert said["cpu"] == said["reference"] == said["emulator:sm_80"]
    if kernel is halving:
        return
    first = "tile" if kernel is shown else "step"
    heads = [line for line in said["cpu"].splitlines() if line.startswith(f"{first} in program")]
    programs, each = (125, 1) if kernel is shown else (250, 2)
    assert heads == [f"{first} in program ({i},):" for i in range(programs) for _ in range(each)]


def test_a_launch_keeps_a_bounded_number_of_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program says how many of its prints found no room, and the rest of the programs are counted."""
    from tessera.compiler.targets.cuda.write import print_buffer

    monkeypatch.setattr(print_buffer, "MOST_BYTES", 3 * (16 + 32))
    monkeypatch.setattr(print_buffer, "UNKNOWN_TRIPS", 1)
    x = np.full(5, 2.0, np.float32)
    run(counting, x, np.empty_like(x), target="emulator:sm_80")
    each = [f"v in program ({i},):\n1.0\n... 1 more of program ({i},): a launch keeps 144 bytes\n" for i in range(3)]
    assert capsys.readouterr().out == "".join(each) + "... and those of 2 more programs: a launch keeps 144 bytes\n"


@ts.kernel
def counting(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 1):
        v = x[i : i + 1]
        while ts.tile.max(v) > 0.6:
            v = v / 2
            ts.tile.print("v", ts.tile.max(v))
        y[i : i + 1] = v
