"""The tour: it says the same as tour.tess, runs from top to bottom, and can be read where it cannot be run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browsers import expect
from tests.conftest import require
from tests.jupyter.conftest import execute, read, texts

ROOT = Path(__file__).parents[2]
TOUR = ROOT / "examples/00_tour.ipynb"
PROGRAM = ROOT / "examples/tour.tess"
_DEFINITION = re.compile(r"^@ts\.(?:function|kernel)\n(?:.+\n|\n(?=[ \n]))+", re.M)


@pytest.fixture(scope="module")
def tour():
    return read(TOUR)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after a run in a fresh kernel, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("tour")
    return execute(TOUR, folder), folder


def code(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def definitions(text):
    return {m.group().strip() for m in _DEFINITION.finditer(text + "\n")}


def test_the_notebook_and_the_program_define_the_same(tour):
    shown = [definitions(c.source) for c in code(tour) if "raises-exception" not in c.metadata.get("tags", ())]
    assert set().union(*shown) == definitions(PROGRAM.read_text())


def test_the_program_has_no_errors():
    from tessera.compiler.frontend.incremental import FileAnalysis

    analysis = FileAnalysis(str(PROGRAM))
    analysis.update(PROGRAM.read_text())
    assert [d.render() for d in analysis.diagnostics if d.severity == "error"] == []


def test_the_program_runs():
    ran = subprocess.run(
        [sys.executable, "-m", "tessera", "run", str(PROGRAM)], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    loss = re.search(r"text: ([\d.]+); a guess costs ([\d.]+)", ran.stdout)
    assert abs(float(loss[1]) - float(loss[2])) < 0.05
    assert "saxpy: 3.0 .. 3.0" in ran.stdout
    assert float(re.search(r"off by at most (\S+)", ran.stdout)[1]) < 1e-3


def test_every_cell_runs(executed):
    notebook, folder = executed
    for cell in code(notebook):
        failed = [o for o in cell.outputs if o.output_type == "error"]
        expected = "raises-exception" in cell.metadata.get("tags", ())
        assert bool(failed) == expected, (cell.source, failed)
    (wrong,) = [c for c in code(notebook) if "raises-exception" in c.metadata.get("tags", ())]
    said = "\n".join(texts(wrong))
    assert "TS202" in said
    line = re.search(r"^ +(\d+) \| +return weights / weights.sum\(axis=-1\)$", said, re.M)
    assert wrong.source.splitlines()[int(line[1]) - 1].strip() == "return weights / weights.sum(axis=-1)"
    assert (folder / "demo/trace.json").stat().st_size > 1000
    assert "<!DOCTYPE html>" in (folder / "demo/profile.html").read_text()[:50]


def test_its_results_are_right(executed):
    notebook, _ = executed
    text = "\n".join(t for c in code(notebook) for t in texts(c))
    sums = ast.literal_eval(re.search(r"array\((\[.*?\]), dtype=float32\)", text)[1])
    assert all(abs(s - 1) < 1e-5 for s in sums)
    loss = re.search(r"loss ([\d.]+), a guess among 256 bytes costs ([\d.]+)", text)
    assert abs(float(loss[1]) - float(loss[2])) < 0.05
    assert "array([3., 3., 3., 3.], dtype=float32)" in text
    assert "axis 0: 512 -&gt; 4096" in text


def test_every_definition_has_its_panel(executed):
    notebook, _ = executed
    for cell in code(notebook):
        if cell.source.startswith("%%tessera") and "raises-exception" not in cell.metadata.get("tags", ()):
            html = "\n".join(texts(cell))
            assert html.count('class="tessera-panel"') == 1
            assert "Internal error" not in html, re.search(r"Internal error.*", html)[0]


def test_what_is_committed_can_be_read_and_is_free_of_noise(tour):
    assert TOUR.stat().st_size < 500_000
    assert set(tour.metadata) == {"kernelspec", "language_info"}
    for cell in code(tour):
        assert cell.execution_count is not None, "refresh it: python scripts/refresh_notebooks.py"
        assert "execution" not in cell.metadata
        for text in texts(cell):
            assert "\x1b[" not in text
            assert not re.search(r"/(?:home|root|work|tmp|Users)/", text)
    panels = [t for c in code(tour) for t in texts(c) if "tessera-panel" in t]
    assert len(panels) >= 7


def test_nbconvert_shows_static_panels(executed, tmp_path):
    nbconvert = require("nbconvert")
    body, _ = nbconvert.HTMLExporter(embed_images=True).from_notebook_node(executed[0])
    assert body.count('class="tessera-panel"') >= 7
    assert "Tiles over time" in body
    page = tmp_path / "tour.html"
    page.write_text(body)
    assert re.search(r"│ <b>mean</b> \[B, S, 1\] f32", body)


def test_the_tour_in_jupyterlab(lab):
    page = lab(TOUR)
    page.run_all()
    cells = page.page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell, i) =>
            [i, cell.model.type, cell.model.sharedModel.getSource()])"""
    )
    tessera = [i for i, kind, source in cells if kind == "code" and source.startswith("%%tessera")]
    for number, index in enumerate(tessera):
        output = page.output(index)
        if number == 0:
            expect(output).to_contain_text("Did you forget keepdims=True")
        else:
            output.get_by_role("tab", name="Shapes").click()
            expect(output.locator(".ts-typed")).to_contain_text("│")
        page.shot(f"tour{index:02d}")
    profile = next(i for i, _, source in cells if "profile model" in source)
    output = page.output(profile)
    expect(output.locator(".ts-canvas")).to_be_visible()
    page.shot("tour_profile")
