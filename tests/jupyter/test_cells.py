"""`%%tessera` cells: what they define, where their errors point, and that nothing stale is ever run."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tessera.compiler.targets.reference import ReferenceTarget
from tessera.errors import CompileError, LaunchError

NORM = """%%tessera
@ts.function
def norm(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    mean = x.mean(axis=-1, keepdim=True)
    return x - mean
"""
FUNCTION = "%%tessera\n@ts.function\ndef f(x: Tensor['n']) -> Tensor['n']:\n"
BROKEN = NORM.replace(", keepdim=True", "")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """These tests are about cells, not about code generation."""
    monkeypatch.setenv("TESSERA_TARGET", "reference")


def test_a_cell_defines_and_shows(nb):
    ran = nb.run(NORM)
    assert ran.error is None
    assert "norm" in nb
    x = np.array([[1.0, 3.0]], np.float32)
    assert nb["norm"](x).tolist() == [[-1.0, 1.0]]
    assert "function norm: x [B, D] f32 -&gt; [B, D] f32".replace("-&gt;", "->") in ran.text
    assert "tessera-panel" in ran.html


def test_the_last_expression_is_the_result(nb):
    ran = nb.run(NORM + "norm(np.array([[1.0, 3.0]], np.float32)).tolist()")
    assert ran.error is None
    assert nb["_"] == [[-1.0, 1.0]]


def test_carets_point_into_the_cell_as_it_is_seen(nb):
    ran = nb.run("\n\n" + BROKEN)
    (d,) = [d for d in ran.error.diagnostics if d.severity == "error"]
    assert d.code == "TS202"
    assert (d.span.line, d.span.col, d.span.end_col) == (7, 12, 20)  # two blank lines and the magic's stand above
    assert "  7 |     return x - mean" in ran.text
    assert "    |            ^^^^^^^^ " in ran.text


def test_a_cell_under_another_magic_keeps_its_lines(nb):
    ran = nb.run("%%capture --no-stdout --no-stderr --no-display\n" + BROKEN)
    assert ran.error is None or ran.error.diagnostics[0].span.line == 6


def test_every_error_is_shown_with_its_fix(nb):
    ran = nb.run(BROKEN + "\n@ts.function\ndef other(x: Tensor['n']) -> Tensor['n']:\n    return x + nowhere\n")
    assert {d.code for d in ran.error.diagnostics} == {"TS202", "TS103"}
    assert "+ mean = x.mean(axis=-1, keepdim=True)" in ran.html
    assert "fix: " in ran.text
    assert "2 errors, shown above" in ran.stdout
    assert len(ran.stdout.splitlines()) == 1  # no traceback through Tessera


def test_an_error_defines_nothing_broken_and_keeps_what_is_right(nb):
    nb.run(NORM)
    ran = nb.run(BROKEN + "\n@ts.function\ndef twice(x: Tensor['n']) -> Tensor['n']:\n    return x * 2\n")
    assert isinstance(ran.error, CompileError)
    assert "norm" not in nb  # neither the broken one nor the old one, which would be stale
    assert nb["twice"](np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert nb.run(NORM).error is None
    assert "norm" in nb


def test_a_broken_function_called_in_its_own_cell_is_told_once(nb):
    ran = nb.run(BROKEN + "norm(np.ones((2, 3), np.float32))")
    assert len(ran.displays) == 1
    assert ran.text.count("TS202") == 1


def test_the_dialect_is_understood(nb):
    head = "def scale[B, D](x: Tensor[B, D, dtype=f32, @accum(f32)]) -> Tensor[B, D]:"
    ran = nb.run(f"%%tessera\n@ts.function\n{head}\n    return x * 2\nscale(np.ones((1, 2), np.float32))")
    assert ran.error is None, ran.text
    assert nb["_"].tolist() == [[2.0, 2.0]]


def test_a_syntax_error_points_at_its_place(nb):
    ran = nb.run("%%tessera\nx = 1\ndef f(:\n    pass\n")
    assert ran.error.code == "TS101"
    assert ran.error.diagnostics[0].span.line == 3
    assert nb.run("1 + 1").result == 2


def test_another_exception_shows_the_users_frames_only(nb):
    ran = nb.run("%%tessera\ndef f(x):\n    return 1 / x\nf(0)\n")
    assert isinstance(ran.error, ZeroDivisionError)
    assert "tessera_jupyter" not in ran.stdout
    assert "In[" in ran.stdout and "---->" in ran.stdout


def test_an_edited_cell_gives_new_results(nb):
    nb.run(NORM)
    x = np.array([[1.0, 3.0]], np.float32)
    before = nb["norm"](x)
    nb.run(NORM.replace("x - mean", "x + mean"))
    assert not np.array_equal(nb["norm"](x), before)
    assert nb["norm"](x).tolist() == [[3.0, 5.0]]


def test_an_edited_helper_reaches_its_callers(nb):
    nb.run("%%tessera\n@ts.function\ndef inner(x: Tensor['n']) -> Tensor['n']:\n    return x + 1\n")
    nb.run("%%tessera\n@ts.function\ndef outer(x: Tensor['n']) -> Tensor['n']:\n    return inner(x) * 10\n")
    x = np.zeros(2, np.float32)
    assert nb["outer"](x).tolist() == [10.0, 10.0]
    nb.run("%%tessera\n@ts.function\ndef inner(x: Tensor['n']) -> Tensor['n']:\n    return x + 2\n")
    assert nb["outer"](x).tolist() == [20.0, 20.0]
    nb.run("SCALE = 3.0")
    nb.run("%%tessera\n@ts.function\ndef scaled(x: Tensor['n']) -> Tensor['n']:\n    return (x + 1) * SCALE\n")
    assert nb["scaled"](x).tolist() == [3.0, 3.0]
    nb.run("SCALE = 4.0")
    assert nb["scaled"](x).tolist() == [4.0, 4.0]


def test_a_launch_error_names_the_calling_line(nb):
    nb.run(NORM)
    ran = nb.run("y = 1\nnorm(np.ones(3, np.float32))")
    assert isinstance(ran.error, LaunchError)
    assert ":2:" in ran.text  # the line of the call, under the cell's own name
    assert "ipython-input" not in ran.text
    assert len(ran.stdout.splitlines()) == 1


def test_methods_of_a_class_are_found(nb):
    head = "def double(x: Tensor['n']) -> Tensor['n']:"
    ran = nb.run(f"%%tessera\nclass Model:\n    @ts.function\n    {head}\n        return x * 2\n")
    assert ran.error is None
    assert "Model.double" in ran.text


PRINTED = """%%tessera
@ts.kernel
def shown(x: Tensor["n"], y: Tensor["n"]):
    for s in ts.tile.range(0, n, 2):
        v = x[s:s+2] * 2
        ts.tile.print("doubled", v)
        y[s:s+2] = v
"""


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_tile_print_arrives_once_per_program_as_an_array_in_order(nb, monkeypatch, target):
    monkeypatch.setenv("TESSERA_TARGET", target)
    ran = nb.run(PRINTED + "shown(np.arange(6, dtype=np.float32), np.zeros(6, np.float32))")
    assert ran.error is None
    assert ran.stdout == "".join(f"doubled in program ({i},):\n{np.float32([4 * i, 4 * i + 2])}\n" for i in range(3))


def test_source_is_escaped(nb):
    ran = nb.run(FUNCTION + "    '<script>alert(1)</script>'\n    return x\n")
    assert ran.error is None
    assert "<script>alert" not in ran.html
    ran = nb.run(FUNCTION + "    return x + '<img src=x onerror=alert(1)>'\n")
    assert isinstance(ran.error, CompileError)
    assert "<img" not in ran.html


def test_an_interrupt_leaves_the_session_usable(nb):
    ran = nb.run("%%tessera\nraise KeyboardInterrupt\n")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert nb.run(NORM).error is None


def test_a_function_of_a_timed_cell_says_where_to_define_it(nb):
    ran = nb.run("%%time\nimport tessera as ts\n@ts.function\ndef f(x: ts.Tensor['n']):\n    return x\nf(np.ones(3))")
    assert isinstance(ran.error, CompileError)
    assert "define it in a cell of its own, and time the call" in ran.text


NEW = NORM.replace("x - mean", "x - mean * 17")  # what no other test has compiled


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (NEW, []),
        (f"{NEW}def mine(x):\n    return norm(x)\nmine(np.ones((1, 2), np.float32))", ["return norm(x)", "mine(np."]),
        ("%tessera ir old", []),
        ("def other(x):\n    return old(x)\n\nother(np.ones((1, 5), np.float32))", ["return old(x)", "other(np."]),
    ],
)
def test_an_interrupt_inside_of_tessera_shows_the_users_calls_alone(nb, monkeypatch, cell, shown):
    """As where a compilation takes minutes."""
    nb.run(NEW.replace("norm", "old").removeprefix("%%tessera"))

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ReferenceTarget, "compile", interrupt)
    ran = nb.run(cell)
    assert isinstance(ran.error, KeyboardInterrupt)
    assert "KeyboardInterrupt: Tessera was interrupted" in ran.stdout
    assert "/tessera/" not in ran.stdout and "tessera_jupyter" not in ran.stdout
    said = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout)  # colours
    assert all(line in said for line in shown), said


@pytest.mark.parametrize("cell", [NEW, "unplaced()"])
def test_an_interrupt_can_come_at_an_instruction_that_has_no_line(nb, monkeypatch, cell):
    """As at the jump back of a loop, in the library and in what a cell defines."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    interrupt.__code__ = interrupt.__code__.replace(co_linetable=b"")
    with pytest.raises(KeyboardInterrupt) as raised:
        interrupt()
    assert raised.tb.tb_next.tb_lineno is None
    monkeypatch.setattr(ReferenceTarget, "compile", interrupt)
    nb.run(NEW.replace("norm", "old").removeprefix("%%tessera"))
    nb.run("def unplaced():\n    old(np.ones((1, 5), np.float32))")
    nb.run("unplaced.__code__ = unplaced.__code__.replace(co_linetable=b'')")
    ran = nb.run(cell)
    assert isinstance(ran.error, KeyboardInterrupt)
    assert "KeyboardInterrupt: Tessera was interrupted" in ran.stdout
    assert "Unexpected exception" not in ran.stdout
