"""Functions that call kernels: their IR at each level, what passes may do to a launch, what is launched at last."""

from __future__ import annotations

import re
import types
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.graph.passes.eliminate_common import eliminate_common
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.ir.core import Op, clone
from tessera.compiler.ir.launches import kernel_of, outside_kernels
from tessera.compiler.ir.parser import parse_op
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.spec import InvalidIR
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import Lowered, lower
from tessera.compiler.schedule import dialect as dialect
from tessera.compiler.targets import base
from tessera.compiler.tile.program import ScalarArg
from tessera.errors import CompileError
from tessera.language import dtypes


@ts.kernel
def scaled(x: ts.Tensor["M", "N", ts.f32], a: float) -> ts.Tensor["M", "N", ts.f32]:
    return x * a


@ts.kernel
def saxpy(x: ts.Tensor["K", ts.f32], y: ts.Tensor["K", ts.f32], a: float):
    i = ts.tile.linear_id()
    y[i] = a * x[i] + y[i]


@ts.function
def between(x: ts.Tensor["B", "N", ts.f32], w: ts.Tensor["N", ts.f32], rate: float):
    y = scaled(x + w, rate)
    v = w * 2
    saxpy(w, v, 3.0)
    return y * v


def analysed(f: Any, **sizes: int) -> Analysis:
    found = analyse(f.definition(), None, sizes)
    assert found.op is not None, [d.render() for d in (*found.diagnostics, *found.undecided)]
    verify(found.op)
    return found


def lowered(f: Any, target: str = "reference", **sizes: int) -> Lowered:
    """Verified behind each pass."""
    return lower(analysed(f, **sizes).unit(), base.get(target), lambda _, op: verify(op))


def launches(op: Op | None) -> list[Op]:
    assert op is not None
    return [o for o in outside_kernels(op.region.block) if o.name == "graph.launch"]


# IR


@pytest.mark.parametrize("level", ["graph", "schedule", "tile"])
def test_levels(level: str, golden: Any) -> None:
    text = lowered(between, B=5, N=7).text(level, generic=True)
    golden(
        f"launch.{level}.mlir", re.sub(r'\["[^"]*\.py"(, \d+ : i64)+\]', '"a place"', text)
    )  # not where this file lies


def test_graph_ir_in_the_callers_sizes(golden: Any) -> None:
    found = analysed(between)
    assert found.op is not None
    golden("launch.symbolic.mlir", print_op(found.op))


@pytest.mark.parametrize("level", ["graph", "schedule"])
def test_what_is_printed_is_read_again(level: str) -> None:
    text = lowered(between, B=5, N=7).text(level, generic=True)
    op = parse_op(text)
    verify(op)
    assert print_op(op) == text


def test_the_verifier_holds_a_launch_against_its_kernel() -> None:
    def broken(change: Any) -> None:
        found = analysed(between)
        assert found.op is not None
        op = launches(found.op)[0]
        change(op)
        with pytest.raises(InvalidIR):
            verify(found.op)

    def retyped(op: Op) -> None:
        op.results[0].type = TensorType((3, 4), dtypes.f32)

    def without_writes(op: Op) -> None:
        kernel_of(op).attrs["writes"] = ()

    def other_operand(op: Op) -> None:
        op.set_operand(0, op.operands[1])

    def no_kernel(op: Op) -> None:
        del op.region.block.ops[0]

    for change in (retyped, without_writes, other_operand, no_kernel):
        broken(change)


def test_a_launch_that_nobody_needs_goes() -> None:
    @ts.function
    def f(x: ts.Tensor["B", "N", ts.f32]):
        scaled(x, 2.0)
        y = x * 1
        return y

    op = clone(analysed(f).op, {})  # type: ignore[arg-type]
    assert len(launches(op)) == 1
    eliminate_dead(op)
    assert not launches(op)


def test_a_launch_that_prints_stays(capfd: pytest.CaptureFixture[str]) -> None:
    @ts.kernel
    def shown(x: ts.Tensor["K", ts.f32], y: ts.Tensor["K", ts.f32]):
        i = ts.tile.linear_id()
        ts.tile.print("seen", x[i] * 2.0)
        y[i] = x[i]

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        shown(x, x)
        return x.sum()

    assert not analysed(f).diagnostics
    assert ts.compile(f, "reference", {"N": 2})(np.full(2, 21, np.float32)) == 42
    assert "seen" in capfd.readouterr().out


def test_a_kernels_warnings_are_the_kernels() -> None:
    text = """import tessera as ts
@ts.kernel
def k(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]) -> ts.Tensor["M", ts.f32]:
    i = ts.tile.linear_id()
    y[i] = x[i + 1] + ts.tile.log(1 + y[i])
    return y
@ts.function
def f(x: ts.Tensor["N", ts.f32]):
    return k(x, x)
"""
    kernel, function = FileAnalysis("model.py").update(text)
    assert [d.code for d in kernel.diagnostics] == ["TS415", "TS314"] and not function.diagnostics


def test_passes_over_graphs_leave_kernels_alone() -> None:
    """A kernel's two loads of one place are not one: between them it has stored there."""

    @ts.kernel
    def twice(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
        i = ts.tile.linear_id()
        x[i] = x[i] + 1.0
        x[i] = x[i] + 1.0
        return x

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return twice(x)

    op = clone(analysed(f).op, {})  # type: ignore[arg-type]
    before = print_op(launches(op)[0])
    eliminate_common(op)
    eliminate_dead(op)
    assert print_op(launches(op)[0]) == before
    np.testing.assert_array_equal(f(np.zeros(5, np.float32)), 2)


# lowering


def test_only_what_others_see_is_copied() -> None:
    @ts.function
    def own(x: ts.Tensor["N", ts.f32]):
        y = x * 2
        saxpy(x, y, 1.0)
        saxpy(x, y, 1.0)
        return y

    @ts.function
    def shared(x: ts.Tensor["N", ts.f32]):
        y = x * 2
        z = y
        saxpy(x, y, 1.0)
        return y + z

    @ts.function
    def argument(x: ts.Tensor["N", ts.f32]):
        y = x
        saxpy(x, y, 1.0)
        return y

    programs = [lowered(f, N=9).program for f in (own, shared, argument)]
    labels = [[step.label for step in p.launches] for p in programs]
    assert labels == [["mul", "saxpy", "saxpy"], ["mul", "saxpy", "add"], ["copy", "saxpy"]]
    stores = [len(p.launches[0].kernel.attrs["writes"]) for p in programs]  # type: ignore[arg-type]
    assert stores == [1, 2, 1], "the one that both look at is computed into two places"
    assert [len(p.buffers) for p in programs] == [2, 4, 2]


def test_a_kernel_is_compiled_once_for_each_way_it_is_launched() -> None:
    @ts.function
    def f(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32], rate: float):
        saxpy(x, y, 2.0)
        saxpy(y, x, 2.0)
        saxpy(x, y, 3.0)
        saxpy(x, y, rate)
        return x + y

    program = lowered(f, N=9).program
    authors = [step for step in program.launches if step.label == "saxpy"]
    kernels = list(dict.fromkeys(step.kernel for step in authors))
    assert [k.attrs["sym_name"] for k in kernels] == ["saxpy", "saxpy_2", "saxpy_3"]
    assert authors[0].kernel is authors[1].kernel
    assert [isinstance(step.args[-1], ScalarArg) for step in authors] == [False, False, False, True]


def test_cost_is_the_kernels() -> None:
    @ts.function
    def f(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
        saxpy(x, y, 2.0)
        return y

    copy, step = lowered(f, N=1000).program.launches
    assert (step.flops, step.bytes, copy.label) == (2000, 12000, "copy")


def test_extents_that_need_a_size_say_where_the_launch_is() -> None:
    @ts.function
    def f(x: ts.Tensor["B", "W", ts.f32]):
        return scaled(x, 2.0)

    with pytest.raises(CompileError, match="W must have a size") as e:
        lowered(f)
    (found,) = e.value.diagnostics
    assert found.code == "TS404" and "launched here" in [n.message for n in found.notes]


def test_a_configured_kernel_is_launched_as_configured() -> None:
    @ts.kernel(BLOCK=32)
    def blocks(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
        n = ts.tile.context().BLOCK
        return x[tile_k : tile_k + n]

    wide = blocks.with_config(BLOCK=128)

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return blocks(x) + wide(x)

    kernels = [step.kernel for step in lowered(f, N=256).program.launches if step.label == "blocks"]
    assert [k.attrs["grid"] for k in kernels] == [(8,), (2,)]


def test_methods_hold_kernels() -> None:
    model = types.SimpleNamespace(kernel=scaled)

    @ts.function
    def f(x: ts.Tensor["B", "N", ts.f32]):
        return model.kernel(x, a=3.0)

    np.testing.assert_array_equal(ts.compile(f, "reference", {"B": 2, "N": 3})(np.ones((2, 3), np.float32)), 3)
