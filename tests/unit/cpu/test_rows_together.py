"""Maps that read neighbouring rows compute several at a time: each row is read once, and all bits stay as they are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS
from tessera.compiler.targets.cpu.loops import rows
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.compiler.tile.lifetimes import place


def five_points(x):
    return x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1] - 4 * x[1:-1, 1:-1]


def two_steps(x):
    for _ in range(2):
        p = ts.pad(x, ((1, 1), (1, 1)))
        x = 0.6 * x + 0.1 * (p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1])
    return x


def far_rows(x):
    return x[3:] * x[:-3], x[2:] - x[:-2]


def chosen(x):
    return ts.where(x[1:] > x[:-1], x[1:] + ts.arange(x.shape[1]), 0.5)


def one_row(x):
    row = ts.broadcast_to(x[:1], x.shape)
    return row[:, 1:] - row[:, :-1]


def turned(x):
    back = x[::-1]
    return back[1:] - back[:-1]


PROGRAMS: list[Callable[[Any], Any]] = [five_points, two_steps, far_rows, chosen, one_row, turned]


def compiled(f: Callable[[Any], Any], x: Any) -> Any:
    return ts.compile(f, target="cpu", arguments=(x,))


def results(program: Any, x: Any, level: str) -> list[bytes]:
    target = CpuTarget(level)
    buffers = {b.id: b for b in program.buffers}
    out = {i: np.full(buffers[i].shape, -1, x.dtype) for i in program.outputs}
    given = [x if b.role == "input" else out[b.id] for b in program.buffers if b.role in ("input", "output")]
    target.load(generate(program, target)).run([a.ctypes.data for a in given], [], [])
    return [out[i].tobytes() for i in program.outputs]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("m", "n"), [(5, 17), (9, 3), (6, 16), (9, 40), (23, 67), (64, 130)])
def test_several_rows_have_the_bits_of_one(
    f: Callable[[Any], Any], m: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (np.float32, np.float64):
        x = np.random.default_rng(m * n).standard_normal((m, n)).astype(kind)
        program = compiled(f, x).lowered.program
        several = {level: results(program, x, level) for level in LEVELS}
        with monkeypatch.context() as patch:
            patch.setattr(rows, "MOST", 1)
            one = results(program, x, LEVELS[0])
        assert all(found == one for found in several.values())


def test_a_row_that_lies_between_others_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads() -> int:
        source = generate(
            compiled(five_points, np.zeros((66, 258), np.float32)).lowered.program, CpuTarget("avx2")
        ).source
        return len(re.findall(r"= load <8 x float>", source))

    together = reads()
    monkeypatch.setattr(rows, "MOST", 1)
    assert together - reads() == 14  # of four rows, beside those of one row, which are left


def test_the_result_is_that_of_numpy() -> None:
    x = np.random.default_rng(0).standard_normal((70, 133)).astype(np.float32)
    want = x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1] - 4 * x[1:-1, 1:-1]
    found = np.asarray(ts.function(five_points)(x))
    np.testing.assert_array_equal(found, want)


def test_large_temporaries_do_not_begin_at_one_place_of_a_page() -> None:
    places, total = place([(1 << 22, 0, 3), (1 << 22, 1, 4), (1 << 22, 2, 5), (64, 0, 5)])
    begin = sorted(at % 4096 for at in places[:3])
    assert min(b - a for a, b in itertools.pairwise(begin)) >= 512
    assert all(at % 64 == 0 for at in places) and total < 3 * ((1 << 22) + 4096) + 64
