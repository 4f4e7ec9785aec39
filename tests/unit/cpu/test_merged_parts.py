"""`tile.merge`: parts of lines whose runs are sorted, in every instruction set, and interpreted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.compiler.targets.reference.executable import ReferenceExecutable
from tessera.compiler.tile.interpret.arithmetic import order
from tessera.compiler.tile.interpret.interpreter import InterpreterOptions
from tessera.compiler.tile.program import Program
from tessera.language import dtypes as dt
from tessera.language.dims import ceildiv
from tests.emulator.harness import Arg, LineBuilder, build

LINES = 2


def merge(dtype: dt.DType, n: int, run: int, part: int, positions: bool, descending: bool) -> Program:
    kind = dt.int64 if positions else dtype
    args = [Arg("x", (LINES, n), dtype), Arg("places", (LINES, n), dt.int64), Arg("out", (LINES, n), kind, out=True)]

    def body(t: LineBuilder, x: Value, places: Value, out: Value) -> None:
        at = [t.program_id(0), t.iop("imul", t.program_id(1), t.index(part))]
        operands = (*at, x, places) if positions else (*at, x)
        attrs = {"run": run, "descending": descending}
        t.store(out, t.value("tile.merge", operands, TileType((1, part), kind), attrs), at)

    return build("merges", args, (LINES, int(ceildiv(n, part))), body)


@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.bf16, dt.uint8, dt.int64], ids=str)
@pytest.mark.parametrize(("n", "run", "part"), [(300, 16, 70), (37, 1, 37)])
def test_parts(dtype: dt.DType, n: int, run: int, part: int) -> None:
    """Many equal elements, zeros of both signs and NaN of several kinds: they keep their order over all runs."""
    rng, descending = np.random.default_rng(n), n == 37
    x = rng.integers(0, 9, (LINES, n)).astype(dtype.numpy)
    if dtype.is_float:
        x[rng.random(x.shape) < 0.2] = -0.0
        x[rng.random(x.shape) < 0.2] = np.nan
        x[rng.random(x.shape) < 0.1] = -x[0, 0]
        x[rng.random(x.shape) < 0.1] = -np.array(np.nan, x.dtype)
    wide: Any = x.astype(np.float64) if dtype.is_float else x
    edges = [*range(0, n, run), n]
    places = np.concatenate([a + order(wide[:, a:b], 1, descending) for a, b in pairwise(edges)], 1)
    runs, at = np.take_along_axis(x, places, 1), order(wide, 1, descending)
    for positions, source, want in ((False, runs, np.take_along_axis(x, at, 1)), (True, x, at)):
        program = merge(dtype, n, run, part, positions, descending)
        targets = [CpuTarget(level) for level in (None, "avx2", "baseline")]
        for ready in (
            *(t.load(generate(program, t)) for t in targets),
            ReferenceExecutable(program, InterpreterOptions()),
        ):
            out = np.empty_like(want)
            ready.run([v.ctypes.data for v in (source, places, out)], [], [])
            assert out.tobytes() == want.tobytes()
