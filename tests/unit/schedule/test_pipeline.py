"""One list of passes: the compiler, the editor and the predictions run the same ones."""

from __future__ import annotations

from typing import Any

import pytest

import tessera as ts
from tessera.compiler import levels, predict
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import PASSES, generate, lower, passes
from tessera.compiler.targets import base
from tessera.language.decorators import Decorated

SIZES = {"B": 64, "S": 96, "D": 32, "E": 16}


@ts.kernel
def rows(x: ts.Tensor["S", "D", ts.f32], y: ts.Tensor["S", "D", ts.f32]):  # type: ignore[name-defined]
    tile = x[tile_s : tile_s + 16]  # type: ignore[name-defined]
    y[tile_s : tile_s + 16] = ts.tile.exp(tile - ts.tile.max(tile, axis=1))  # type: ignore[name-defined]


@ts.function
def attend(q: ts.Tensor["S", "D", ts.f32], k: ts.Tensor["S", "D", ts.f32]):  # type: ignore[name-defined]
    return ts.softmax(q @ k.T * 0.125)


@ts.function
def launches(x: ts.Tensor["S", "D", ts.f32]):  # type: ignore[name-defined]
    y = ts.zeros((S, D), ts.f32)  # type: ignore[name-defined]
    rows(x, y)
    return y * 2.0


def analysed(program: Decorated[Any, Any]) -> Analysis:
    return analyse(program.definition(), None, {})


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a", "reference"])
@pytest.mark.parametrize("program", [attend, launches])
def test_the_editor_shows_what_the_compiler_does(program: Any, target: str) -> None:
    compiled = lower(levels.unit(analysed(program), SIZES), base.get(target))
    assert compiled.graph is not None and compiled.schedule is not None
    assert print_op(levels.graph(analysed(program), SIZES)) == print_op(compiled.graph)
    assert print_op(levels.schedule(analysed(program), SIZES, target)) == print_op(compiled.schedule)


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a"])
@pytest.mark.parametrize("program", [attend, rows, launches])
def test_predictions_are_of_the_program_that_is_compiled(program: Any, target: str) -> None:
    predicted = predict.program(analysed(program), SIZES, target)
    compiled = lower(levels.unit(analysed(program), SIZES), base.get(target)).program
    assert predicted.buffers == compiled.buffers
    assert [(e.label, e.flops, e.bytes) for e in predicted.launches] == [
        (e.label, e.flops, e.bytes) for e in compiled.launches
    ]
    if target == "cpu":  # which has no passes of its own over what is shown
        assert [print_op(e.kernel) for e in predicted.launches] == [print_op(e.kernel) for e in compiled.launches]


def test_every_pass_has_a_name_and_targets_ask_for_passes_that_exist() -> None:
    names = [p.name for p in PASSES]
    assert len(set(names)) == len(names)
    optional = {p.name for p in PASSES if p.optional}
    wanted = {name for t in ("cpu", "reference", "sm_80", "sm_120f", "emulator:sm_80") for name in base.get(t).passes}
    assert wanted == optional


def test_code_is_generated_behind_the_passes_that_the_target_asks_for() -> None:
    @ts.kernel
    def pick(x: ts.Tensor["S", "D", ts.f32], i: ts.Tensor["D", ts.int32], y: ts.Tensor["D", ts.f32]):  # type: ignore[name-defined]
        for d in range(D):  # type: ignore[name-defined]
            y[d : d + 1] = x[i[d], d : d + 1]

    seen: dict[bool, list[str]] = {}
    for debug in (False, True):
        ran: list[str] = []

        def after(name: str, op: Op, ran: list[str] = ran) -> None:
            verify(op)
            ran.append(name)

        cpu = base.get("cpu")
        lowered = lower(levels.unit(analysed(pick), {"S": 8, "D": 2}), cpu, after)
        shown = lowered.text("tile")
        generate(lowered.program, cpu, debug=debug, after=after)
        assert lowered.text("tile") == shown  # its own passes work on a copy
        seen[debug] = ran
    last = [p.name for p in passes("target", base.get("cpu").passes, True)]
    assert [name for name in seen[True] if name in last] == [
        "show_elements",
        "check_nan",
        "check_indices",
        "keep_inside",
    ]
    assert [name for name in seen[False] if name in last] == ["keep_inside"]


@ts.function
def narrow(x: ts.Tensor["N", ts.bf16], scale: ts.Tensor[ts.f32]):  # type: ignore[name-defined]
    wide = x.to(ts.f32)
    norm = ts.sum(ts.square(wide / scale))
    return (wide * ts.rsqrt(norm) * scale).to(ts.bf16), norm


def test_narrow_arrays_are_converted_in_each_kernel_that_reads_them() -> None:
    """No wide copy of x is stored: both kernels read it as it is."""
    made = lower(levels.unit(analysed(narrow), {"N": 1 << 19}), base.get("cpu")).program
    given = [str(v.type) for launch in made.launches for v in launch.kernel.region.block.args]
    assert any("524288" in t and "bf16" in t for t in given)
    assert not any("524288" in t and "f32" in t for t in given), given
