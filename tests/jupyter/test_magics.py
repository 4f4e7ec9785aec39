"""The options of `%%tessera` and the sub-commands of `%tessera`."""

from __future__ import annotations

import json
import re
import sys

import nbformat
import numpy as np
import pytest
from IPython.core.error import UsageError
from nbformat.v4 import new_code_cell, new_notebook
from tessera_jupyter import command

import tessera as ts
from tessera.profiler import Profiler
from tessera.profiler.trial.fusing import fused
from tessera.runtime import events
from tests.jupyter.conftest import execute, texts

DOUBLE = "%%tessera\n@ts.function\ndef double(x: Tensor['n']) -> Tensor['n']:\n    return x * 2\n"
CALL = "double(np.ones(8, np.float32))"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")


@pytest.fixture
def doubled(nb):
    assert nb.run(DOUBLE).error is None
    return nb


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("profile f(x, 'a b') -o out.html", ["profile", "f(x, 'a b')", "-o", "out.html"]),
        ('--profile "f(x)"  --dims S=1', ["--profile", '"f(x)"', "--dims", "S=1"]),
        ("f([1, 2])[0]", ["f([1, 2])[0]"]),
        (r'f("it\"s one")', [r'f("it\"s one")']),
        ("", []),
    ],
)
def test_words(line, expected):
    assert command.words(line) == expected


def test_cell_options():
    request = command.cell_request('--target sm_90a --dims S=4_096,D=8 --profile "f(x)" --show ir,shapes')
    assert request.target == "sm_90a"
    assert request.dims == {"S": 4096, "D": 8}
    assert request.profile == "f(x)"
    assert request.show == ("ir", "shapes"), "the first of them is open"
    assert command.cell_request("--target=cpu").target == "cpu"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--dim S=1", "did you mean --dims"),
        ("--dims S", "NAME=SIZE"),
        ("--dims", "needs a value"),
        ("--show shape", "did you mean shapes"),
        ("f(x)", "--profile 'f(x)'"),
        ("--level tile", "no option --level"),
    ],
)
def test_wrong_cell_options_say_what_is_right(line, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        command.cell_request(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("profil f(x)", "did you mean profile"),
        ("profile", "needs"),
        ("doctor now", "takes nothing"),
        ("ir f --level tiles", "did you mean tile"),
        ("why f -o x", "no option -o"),
    ],
)
def test_wrong_commands_say_what_is_right(line, said):
    with pytest.raises(UsageError, match=said):
        command.line_request(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%tessera pr", ["profile"]),
        ("%tessera profile double(x) --o", ["--once"]),
        ("%tessera ir ", ["double", "--level", "--target", "--dims", "--generic"]),
        ("%tessera ir double --level t", ["tile", "target"]),
        ("%%tessera --t", ["--target"]),
        ("%%tessera --show shapes,i", ["shapes,ir"]),
        ("%%tessera --target refer", ["reference"]),
    ],
)
def test_completion(line, expected):
    assert command.completions(line, ["double"]) == expected


def test_the_shell_completes(doubled):
    assert "profile" in doubled.shell.complete("pro", "%tessera pro", 12)[1]
    assert "double" in doubled.shell.complete("dou", "%tessera ir dou", 15)[1]


def test_unknown_target_is_refused_before_anything_runs(nb):
    ran = nb.run("%%tessera --target h10\nmade = 1")
    assert ran.error.code == "TS601"
    assert "h100" in ran.text
    assert "made" not in nb


def test_profile_records_later_runs_and_gives_the_profiler(doubled):
    doubled.run("calls = []")
    ran = doubled.run(f"prof = %tessera profile (calls.append(1), {CALL})")
    assert ran.error is None
    assert isinstance(doubled["prof"], Profiler)
    assert len(doubled["prof"].launches()) == 3
    assert doubled["prof"].recording.compiles == []
    assert len(doubled["calls"]) == 1 + len(doubled["prof"].launches())
    assert "Tiles over time" in ran.html


def test_profile_once_runs_once(doubled):
    doubled.run("calls = []")
    doubled.run(f"prof = %tessera profile (calls.append(1), {CALL}) --once")
    assert doubled["calls"] == [1]
    assert doubled["prof"].recording.compiles


def test_profile_fills_the_panel_of_the_defining_cell(doubled):
    ran = doubled.run(f"%tessera profile {CALL}")
    updated = ran.displays[0]["text/html"]
    assert "ts-shapes" in updated  # the cell's panel
    assert "Tiles over time" in updated


def test_profile_of_a_cell(nb):
    ran = nb.run(DOUBLE.replace("%%tessera", f'%%tessera --profile "{CALL}"'))
    assert ran.error is None
    assert "Tiles over time" in ran.html


def test_profile_writes_a_page(doubled, tmp_path):
    ran = doubled.run(f"%tessera profile {CALL} -o {tmp_path}/page.html")
    assert ran.error is None
    assert "wrote" in ran.stdout
    assert "<!DOCTYPE html>" in (tmp_path / "page.html").read_text()[:100]


@pytest.mark.parametrize("expression", ["double(", "missing(1)", "1 +"])
def test_an_expression_that_cannot_run_leaves_the_session_usable(doubled, expression):
    assert doubled.run(f"%tessera profile {expression}").error is not None
    assert doubled.run(CALL).error is None


@pytest.mark.parametrize(
    "line", ["profile missing(1)", "hints missing(1)", "compare missing(1), double(2)", "memory missing(1)"]
)
def test_what_an_expression_raises_is_shown_from_its_own_line_on(doubled, line):
    ran = doubled.run(f"%tessera {line}")
    said = re.sub("\x1b\\[[0-9;]*m", "", ran.stdout)  # without colours
    assert isinstance(ran.error, NameError)
    assert "missing(1)" in said and "name 'missing' is not defined" in said
    assert "magics.py" not in said


def test_what_python_refuses_in_a_cell_is_a_finding(nb):
    ran = nb.run("%%tessera\nx = 1\nreturn x")
    assert "TS101" in ran.text and "'return' outside function" in ran.text and "parse.py" not in ran.stdout


def test_ir(doubled):
    ran = doubled.run("%tessera ir double --level tile")
    assert "func double_0_" in ran.stdout
    assert '"tile.func"' in doubled.run("%tessera ir double --level tile --generic").stdout
    assert "&quot;graph.func&quot;" in doubled.run("%tessera ir double --generic").html
    ran = doubled.run("%tessera ir double --dims n=16")
    assert "ts-linked" in ran.html
    assert "[16]" in ran.html


def test_ir_is_of_the_last_call(doubled):
    assert doubled.run(CALL).error is None
    assert "x: [8] f32" in doubled.run("%tessera ir double --level graph").stdout
    assert "x [8] f32" in doubled.run("%tessera ir double").html
    assert "x: [n] f32" in doubled.run("%tessera ir double --level graph --target reference").stdout


def test_ir_of_something_else(doubled):
    ran = doubled.run("%tessera ir doubel")
    assert isinstance(ran.error, UsageError)
    assert "did you mean double" in ran.stderr
    assert "not a function or kernel" in doubled.run("%tessera ir np").stderr


def test_hints(doubled):
    assert "has not been profiled" in doubled.run("%tessera hints double").stderr
    assert doubled.run(f"%tessera hints {CALL}").error is None
    ran = doubled.run("%tessera hints double")
    assert ran.error is None
    assert "ts-hints" in ran.html


def test_why(doubled):
    doubled.run(CALL)
    doubled.run(CALL.replace("8", "16"))
    ran = doubled.run("%tessera why double")
    assert "8 -> 16" in ran.text


def test_trace(doubled, tmp_path):
    assert doubled.run(f"%tessera trace {CALL} -o {tmp_path}/new/trace.json").error is None
    assert json.loads((tmp_path / "new/trace.json").read_text())["traceEvents"]


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(doubled, tmp_path):
    doubled.run("calls = []")
    ran = doubled.run(f"%tessera trace calls.append(1) -o {tmp_path}")
    assert isinstance(ran.error, UsageError)
    assert doubled["calls"] == []


def test_alone_it_lists_what_there_is(nb):
    ran = nb.run("%tessera")
    assert ran.error is None
    assert all(name in ran.stdout for name in command.SUBCOMMANDS)
    assert max(map(len, ran.stdout.splitlines())) <= 100, "a notebook of usual width would break a word"


def test_memory(doubled):
    assert "Peak usage" in doubled.run(f"%tessera memory {CALL}").text


def test_doctor(nb):
    ran = nb.run("%tessera doctor")
    assert ran.error is None
    assert "default target" in ran.text


def test_ir_is_for_the_target_and_the_sizes_that_the_cell_has_named(nb):
    cell = """%%tessera --target sm_80 --dims n=48
@ts.function
def halved(x: Tensor["n", ts.f32]):
    return x / 2
"""
    assert nb.run(cell).error is None
    assert "written by Tessera for sm_80" in nb.run("%tessera ir halved --level target").stdout
    assert "[48]" in nb.run("%tessera ir halved").text
    assert "@llvm" in nb.run("%tessera ir halved --level target --target cpu").stdout, "unless another is asked for"


def test_loading_twice_shows_each_wait_once(nb):
    assert nb.run("%reload_ext tessera_jupyter").error is None
    assert len(events._waiters) == 1


def test_unloading_takes_everything_away(nb):
    assert nb.run("%unload_ext tessera_jupyter").error is None
    assert isinstance(nb.run("%tessera doctor").error, UsageError)
    assert not events.waits_heard()
    assert nb.run("1 + 1").result == 2
    assert nb.run("%load_ext tessera_jupyter").error is None
    assert nb.run(DOUBLE).error is None


def test_compare(doubled):
    assert doubled.run(DOUBLE.replace("double", "triple").replace("x * 2", "x * 2 + x")).error is None
    ran = doubled.run(f"%tessera compare {CALL}, {CALL.replace('double', 'triple')}")
    assert ran.error is None
    assert "tessera-lines" in ran.html and "by turns" in ran.html
    assert "is not two calls" in doubled.run(f"%tessera compare {CALL}").stderr
    assert "not an expression" in doubled.run("%tessera compare double(, 2").stderr


def test_try(doubled):
    ran = doubled.run(f"%tessera try {CALL}")
    assert ran.error is None
    assert "Nothing worth changing" in ran.stdout or "not tried" in ran.html


def test_calls_of_functions_of_other_cells_can_be_fused_on_trial(nb):
    """The text of the calls is one expression; what it calls, and what that needs, stands in other cells."""
    nb.run("SCALE = 2.0")
    nb.run("%%tessera\n@ts.function\ndef g[N](x: Tensor[N, ts.f32]):\n    return ts.exp(x) * SCALE")
    nb.run("@ts.function\ndef f(x: Tensor['N', ts.f32]):\n    return x + 1.0")
    ran = nb.run("x = np.arange(64, dtype=np.float32) / 64\nprof = %tessera profile f(g(x))")
    assert ran.error is None
    *_, first, last = nb["prof"].launches()
    made = fused(nb["prof"].recording, [first, last], last.target)
    assert "\n@ts.function\ndef g_f(" in made.new and made.new.endswith("g_f(x)\n")
    np.testing.assert_allclose(made.after(), np.exp(nb["x"]) * 2 + 1, rtol=1e-6)
    assert made.before().tobytes() == made.after().tobytes()


class Missing:
    """Finds no `tessera_jupyter`, as where it is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name == "tessera_jupyter":
            raise ModuleNotFoundError(name, name=name)


def test_it_is_loaded_by_the_name_of_the_library_too(nb, monkeypatch):
    assert nb.run("%unload_ext tessera_jupyter\n%load_ext tessera").error is None
    assert nb.run('%%tessera\n@ts.function\ndef f(x: Tensor["N", ts.f32]):\n    return x + 1').error is None
    assert "f" in nb
    assert nb.run("%unload_ext tessera").error is None
    assert nb.shell.find_cell_magic("tessera") is None
    monkeypatch.delitem(sys.modules, "tessera_jupyter")
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(ts.MissingDependency, match=r"(?s)TS604.*pip install 'tessera\[jupyter\]'"):
        ts.load_ipython_extension(nb.shell)


def test_the_first_cell_behind_an_import_loads_the_magics(tmp_path):
    head = "import tessera as ts\nfrom tessera import Tensor"
    wrong = "\n\n%%tessera\n@ts.function\ndef f(x: Tensor['n'], y: Tensor['n', 'm']):\n    return x @ y @ y\n"
    cells = [new_code_cell(c) for c in (head, wrong, DOUBLE, "%tessera functions")]
    cells[1].metadata["tags"] = ["raises-exception"]
    (tmp_path / "first.ipynb").write_text(nbformat.writes(new_notebook(cells=cells)))
    _, first, second, functions = execute(tmp_path / "first.ipynb", tmp_path).cells
    assert re.search(r"TS\d+.*\n +6 \| +return x @ y @ y", "\n".join(texts(first))), first  # lines of the cell
    assert "double" in "\n".join(texts(second)) and "double" in "\n".join(texts(functions))
