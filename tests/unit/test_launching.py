"""Functions that call kernels: their IR at each level, what passes may do to a launch, findings, caches, arrays."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.analysis import Analysis, analyse
from tessera.compiler.frontend.files import FileAnalysis
from tessera.compiler.graph.eliminate_common import eliminate_common
from tessera.compiler.graph.eliminate_dead import eliminate_dead
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
from tessera.errors import CompileError, LaunchError, TesseraError
from tessera.language import dtypes

scale = 2.0
table = np.arange(6, dtype=np.float32)


@ts.kernel
def scaled(x: ts.Tensor["M", "N", ts.f32], a: float) -> ts.Tensor["M", "N", ts.f32]:
    return x * a


@ts.kernel
def saxpy(x: ts.Tensor["K", ts.f32], y: ts.Tensor["K", ts.f32], a: float):
    i = ts.tile.linear_id()
    y[i] = a * x[i] + y[i]


@ts.kernel
def reading(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
    i = ts.tile.linear_id()
    return x[i] * scale + table[i]


@ts.kernel
def fours(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
    assert K % 4 == 0
    i = ts.tile.linear_id()
    return x[i] * 4.0


@ts.kernel
def mistaken(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
    i = ts.tile.linear_id()
    return x[i] + missing


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
    return lower(analysed(f, **sizes), base.get(target), lambda _, op: verify(op))


def launches(op: Op | None) -> list[Op]:
    assert op is not None
    return [o for o in outside_kernels(op) if o.name == "graph.launch"]


# IR


@pytest.mark.parametrize("level", ["graph", "schedule", "tile"])
def test_levels(level: str, golden: Any) -> None:
    golden(f"launch.{level}.mlir", lowered(between, B=5, N=7).text(level))


def test_graph_ir_in_the_callers_sizes(golden: Any) -> None:
    found = analysed(between)
    assert found.op is not None
    golden("launch.symbolic.mlir", print_op(found.op))


@pytest.mark.parametrize("level", ["graph", "schedule"])
def test_what_is_printed_is_read_again(level: str) -> None:
    text = lowered(between, B=5, N=7).text(level)
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


# findings


def findings(f: Any) -> list[tuple[str, str]]:
    """Codes and the text they underline."""
    found = analyse(f.definition())
    assert found.op is None
    return [(d.code, found.definition.text.segment(d.span)) for d in found.diagnostics if d.severity == "error"]


def test_sizes_that_a_kernel_asserts() -> None:
    @ts.function
    def unknown(x: ts.Tensor["N", ts.f32]):
        return fours(x)

    @ts.function
    def known(x: ts.Tensor["N", ts.f32]):
        assert x.shape[0] % 4 == 0
        return fours(x)

    @ts.function
    def wrong(x: ts.Tensor[6, ts.f32]):
        return fours(x)

    assert [str(c.left) for c in analysed(unknown).checks] == ["N%4"]
    assert len(analysed(known).checks) == 1, "the function's own"
    assert findings(wrong) == [("TS106", "fours(x)")]
    with pytest.raises(LaunchError, match=r"fours: assert K % 4 == 0"):
        ts.compile(unknown, target="reference")(np.ones(6, np.float32))


def test_mistakes_of_the_kernel_itself_stop_the_call() -> None:
    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return mistaken(x) + 1

    with pytest.raises(CompileError, match="'missing' is not defined") as e:
        f(np.ones(4, np.float32))
    assert any("called from f" in n.message for n in e.value.diagnostics[0].notes)


def test_updates_that_nobody_would_see() -> None:
    @ts.function
    def expression(x: ts.Tensor["N", ts.f32]):
        saxpy(x, x * 2, 1.0)
        return x

    @ts.function
    def global_array(x: ts.Tensor[6, ts.f32]):
        saxpy(x, table, 1.0)
        return x

    @ts.kernel
    def both(x: ts.Tensor["K", ts.f32], y: ts.Tensor["K", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = 1.0
        y[i] = 2.0

    @ts.function
    def twice(x: ts.Tensor["N", ts.f32]):
        both(x, x)
        return x

    @ts.kernel
    def outside(x: ts.Tensor["K", ts.f32]):
        i = ts.tile.linear_id()
        table[i] = x[i]

    @ts.function
    def captured(x: ts.Tensor[6, ts.f32]):
        outside(x)
        return x

    assert findings(expression) == [("TS406", "x * 2")]
    assert findings(global_array) == [("TS406", "table")]
    assert findings(twice) == [("TS406", "x"), ("TS406", "x")]
    assert findings(captured) == [("TS406", "outside(x)")]


def test_numbers_that_the_kernel_cannot_take() -> None:
    @ts.kernel
    def counted(x: ts.Tensor["K", ts.f32], n: ts.int8) -> ts.Tensor["K", ts.f32]:
        i = ts.tile.linear_id()
        return x[i] * ts.tile.cast(n, ts.f32)

    @ts.function
    def f(x: ts.Tensor["N", ts.f32], a: float):
        return counted(x, 1.5), counted(x, 300), counted(x, a), counted(x, x), counted(x, "n"), counted(x, 3)

    wrong = [("TS304", "1.5"), ("TS304", "300"), ("TS304", "a"), ("TS105", "x"), ("TS105", '"n"')]
    assert findings(f) == wrong


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any


def test_several_tensors_for_one_parameter() -> None:
    @ts.kernel
    def summed(xs, n: int):
        i = ts.tile.linear_id()
        total = xs[0][i]
        for k in ts.static_range(1, n):
            total = total + xs[k][i]
        return total

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return summed((x, x * 2, x[::1]), 3), summed(xs=[x], n=1)

    @ts.function
    def g(x: ts.Tensor["N", ts.f32]):
        return summed(Pair(x, x), 2)

    x = np.ones(5, np.float32)
    several, one = ts.compile(f, "reference", arguments=(x,))(x)
    np.testing.assert_array_equal(several, 4 * x)
    np.testing.assert_array_equal(one, x)
    assert findings(g) == [("TS105", "Pair(x, x)")]


# what a function that calls a kernel depends on

TEXT = """import tessera as ts
from tessera import Tensor, f32

SCALE = 2.0


@ts.kernel
def k(x: Tensor["M", f32]) -> Tensor["M", f32]:
    i = ts.tile.linear_id()
    return x[i] * SCALE


@ts.function
def f(x: Tensor["N", f32]):
    return k(x)


@ts.function
def g(x: Tensor["N", f32]):
    return x + 1
"""


@pytest.mark.parametrize(
    "change",
    [("x[i] * SCALE", "x[i] + SCALE"), ("SCALE = 2.0", "SCALE = 3.0"), ("@ts.kernel", "@ts.kernel(BLOCK=32)")],
)
def test_a_changed_kernel_is_analysed_with_its_callers(change: tuple[str, str]) -> None:
    file = FileAnalysis("model.py")
    k, f, g = file.update(TEXT)
    k2, f2, g2 = file.update(TEXT.replace(*change))
    assert (k.op is k2.op, f.op is f2.op, g.op is g2.op) == (False, False, True)


def test_configurations_in_a_text() -> None:
    named = TEXT.replace("@ts.function\ndef f", "small = k.with_config(BLOCK=32)\n\n\n@ts.function\ndef f")
    both = named.replace("return k(x)", "return k(x), small(x), k.with_config(BLOCK=64)(x)")
    _, f, _ = FileAnalysis("model.py").update(both)
    grids = [kernel_of(op).attrs["grid"] for op in launches(f.op)]
    assert [str(*g) for g in grids] == ["(N+1023)//1024", "(N+31)//32", "(N+63)//64"]


@pytest.mark.parametrize("before", ["SCALE = 2.0", "@ts.kernel", "@ts.function\ndef f", "@ts.function\ndef g"])
def test_lines_of_a_kernel_are_where_it_stands(before: str) -> None:
    """Also where the function that launches it has moved by another distance, or not at all."""
    file = FileAnalysis("model.py")
    file.update(TEXT)
    text = TEXT.replace(before, "\n\n\n" + before)
    _, f, _ = file.update(text)
    op = launches(f.op)[0]
    lines = {o.span.line for o in kernel_of(op).walk()}
    first = text[: text.index("def k")].count("\n") + 1
    assert lines == {first, first + 2}
    assert op.span.line == text[: text.index("return k(x)")].count("\n") + 1


def test_a_changed_kernel_is_compiled_with_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "reference")

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return reading(x)

    x = np.ones(6, np.float32)
    np.testing.assert_array_equal(f(x), 2 + table)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "scale", 5.0)
        np.testing.assert_array_equal(f(x), 5 + table)
        assert "scale: 2.0 -> 5.0" in str(ts.why_recompiled(f))
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "reading", fours.with_config(BLOCK=64))
        with pytest.raises(TesseraError, match="K % 4"):
            f(x)
        np.testing.assert_array_equal(f(x[:4]), 4)
        assert "callee reading" in str(ts.why_recompiled(f))
    table[0] = 7
    np.testing.assert_array_equal(f(x), 2 + table)
    table[0] = 0


def test_a_changed_kernel_is_no_disk_hit(tmp_path: Path, own_cache: Path) -> None:
    """Of another process, which knows only what the files say."""
    end = """
import numpy as np
x = np.ones(4, np.float32)
print(f(x)[0])
from tessera.runtime.dispatch import launcher_of
print(launcher_of(f).last.origin)
"""

    def run(text: str) -> list[str]:
        (tmp_path / "model.py").write_text(text + end)
        environment = {**os.environ, "TESSERA_TARGET": "reference"}
        command = [sys.executable, str(tmp_path / "model.py")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run(TEXT) == ["2.0", "miss"]
    assert run(TEXT) == ["2.0", "disk"]
    assert run(TEXT.replace("x[i] * SCALE", "x[i] + SCALE")) == ["3.0", "miss"]
    assert run(TEXT.replace("SCALE = 2.0", "SCALE = 7.0")) == ["7.0", "miss"]
    assert run(TEXT) == ["2.0", "disk"]


def test_a_kernels_arrays_are_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another module under one name too."""
    monkeypatch.setenv("TESSERA_TARGET", "reference")

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return reading(x) + table

    x = np.ones(6, np.float32)
    np.testing.assert_array_equal(f(x), 2 + 2 * np.arange(6))
    monkeypatch.setitem(globals(), "table", np.full(6, 3, np.float32))
    np.testing.assert_array_equal(f(x), 8)


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
