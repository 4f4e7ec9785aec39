"""Code for AMX where no AMX is: its instructions are calls of functions that do the same (tile_registers.cpp).

So the layout of panels, blocks, groups and edges is run on every machine; that the processor does what the functions
do is tested where it has the instructions (test_narrow_products.py).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language import dtypes as dt
from tests.conftest import require
from tests.unit.cpu.test_narrow_products import LAYOUTS, PAIRS, SIZES, added_in_tiles, forms, product

BF16 = ml_dtypes.bfloat16
TILES = ("amx-tile", "amx-bf16", "amx-int8")
pytestmark = pytest.mark.skipif(not isa.host().masks, reason="code for AMX has vectors of 512 bits")


@cache
def functions() -> bytes:
    """The object code of the instructions' functions."""
    source = Path(__file__).parent / "tile_registers.cpp"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "functions.o"
        options = ["-c", "-O1", "-fPIC", "-ffp-contract=off", "-mfma"]
        subprocess.run([require("g++"), *options, str(source), "-o", str(made)], check=True)
        return made.read_bytes()


class SoftTiles(CpuTarget):
    """This processor, with tile registers in memory."""

    def __init__(self) -> None:
        super().__init__()
        features = {f[1:]: f[0] == "+" for f in isa.host().features.split(",")}
        self.__dict__["isa"] = isa.from_features(features | dict.fromkeys(TILES, True))

    def compile(self, program: Any, *, profile: bool = False, debug: bool = False) -> Artifact:
        artifact = super().compile(program, profile=profile, debug=debug)
        text = re.sub(r"@llvm\.x86\.(tile\w+|ldtilecfg|tdp\w+)", r"@soft_\1", artifact.source)
        assert "llvm.x86.t" not in text and "soft_tdp" in text
        files = {name: data for name, data in artifact.files.items() if not name.endswith(".o")}
        (code,) = jit.compile_objects(text, isa.host(), program.name)
        files |= {"code.o": code, "functions.o": functions()}
        return replace(artifact, source=text, files=files, meta=artifact.meta | {"features": isa.host().features})


@pytest.fixture(scope="module")
def tiles() -> Iterator[SoftTiles]:
    """All threads would share the registers that stand in memory, so there is one."""
    require("g++")
    threads = ts.get_num_threads()
    ts.set_num_threads(1)
    yield SoftTiles()
    ts.set_num_threads(threads)


@pytest.mark.parametrize("number", range(len(SIZES)), ids=["x".join(map(str, s)) for s in SIZES])
def test_pairs_have_the_order_of_tiles(number: int, tiles: SoftTiles) -> None:
    m, k, n = SIZES[number]
    rng = np.random.default_rng(number)
    a, b = (rng.standard_normal(s).astype(BF16) for s in ((m, k), (k, n)))
    want = added_in_tiles(a, b)
    for i, layout in enumerate(LAYOUTS):
        layouts = layout, LAYOUTS[(i + number) % 3]
        got = product(tiles, a, b, (dt.bf16, dt.bf16, dt.f32), layouts, (8, 32, 20)[(i + number) % 3])
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("types", PAIRS, ids=lambda p: f"{p[0]}-{p[1]}")
def test_bytes_of_any_sign(types: tuple[dt.DType, dt.DType], tiles: SoftTiles) -> None:
    for number, (m, k, n) in enumerate(SIZES[1:6]):
        rng = np.random.default_rng(number)
        ends = [np.array([0 if t.kind == "uint" else -128, int(t.maximum), 1, 99], t.numpy) for t in types]
        a, b = rng.choice(ends[0], (m, k)), rng.choice(ends[1], (k, n))
        layouts = LAYOUTS[number % 3], LAYOUTS[(number + 1) % 3]
        got = product(tiles, a, b, (*types, dt.int32), layouts, (8, 32)[number % 2])
        np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("k", [17, 70, 128])
def test_tiles_in_scratch_memory(k: int, tiles: SoftTiles) -> None:
    """Scratch memory holds bf16 in the upper halves of f32: packing makes words of them, in either order of axes."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(s).astype(BF16) for s in ((80, k), (k, 24)))
    results = [np.empty(s, np.float32) for s in ((80, 24), (24, 80), (80, 24))]
    program = ts.compile(ts.kernel(forms), target="cpu", arguments=(a, b, *results)).lowered.program
    tiles.load(generate(program, tiles)).run([v.ctypes.data for v in (a, b, *results)], [], [])
    want = added_in_tiles(a, b)
    for got in (results[0], results[1].T, results[2]):
        np.testing.assert_array_equal(got, want)


@ts.function
def rows(a: ts.Tensor["M", 300, ts.bf16], b: ts.Tensor[300, 96, ts.bf16]):  # type: ignore[name-defined]
    return a @ b


def test_few_rows_and_frozen_weights(tiles: SoftTiles) -> None:
    """Open rows have blocks of registers for few of them; constant weights are packed for tiles before."""
    program = ts.compile(rows, target="cpu").lowered.program
    constant = replace(program, params=tuple(replace(p, constant=p.name == "b") for p in program.params))
    rng = np.random.default_rng(1)
    b = rng.standard_normal((300, 96)).astype(BF16)
    keep: list[Any] = []

    def place(pack: Any, write: Any) -> int:
        memory = np.zeros(pack.bytes + 64, np.uint8)
        keep.append(memory)
        address = -(-memory.ctypes.data // 64) * 64
        write(b.ctypes.data, address)
        return address

    codes = [tiles.load(generate(program, tiles)), tiles.load(generate(constant, tiles)).filled(place)]  # type: ignore[attr-defined]
    assert len(keep) == 1
    for count in (1, 4, 5, 16, 17, 70):
        a = rng.standard_normal((count, 300)).astype(BF16)
        want = added_in_tiles(a, b).astype(BF16)
        for code in codes:
            out = np.empty((count, 96), BF16)
            code.run([v.ctypes.data for v in (a, b, out)], [], [count])
            np.testing.assert_array_equal(out, want)
