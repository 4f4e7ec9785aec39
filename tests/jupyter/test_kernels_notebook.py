"""The notebook that builds kernels: it runs, its steps are right, and each is shown with its evidence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.browsers import eventually, expect
from tests.conftest import require
from tests.jupyter.conftest import execute, read, texts

NOTEBOOK = Path(__file__).parents[2] / "examples/01_kernels.ipynb"
HEADINGS = ["registers", "spills", "shared", "occupancy", "tensor core", "async copy"]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after a run in a fresh kernel. Its evidence is for an H100, which nothing here needs to be."""
    require("cuda.bindings")
    return execute(NOTEBOOK, tmp_path_factory.mktemp("kernels"))


def code(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def evidence(notebook):
    """Kernel -> what the tables say of it."""
    printed = "\n".join(t for c in code(notebook) if "evidence(" in c.source for t in texts(c))
    rows = re.findall(r"^(\w+) +" + r" +".join([r"([\d.]+)"] * len(HEADINGS)) + "$", printed, re.M)
    return {name: dict(zip(HEADINGS, map(float, figures), strict=True)) for name, *figures in rows}


def test_every_cell_runs_and_every_step_is_right(executed):
    for cell in code(executed):
        failed = [o for o in cell.outputs if o.output_type == "error"]
        assert bool(failed) == ("raises-exception" in cell.metadata.get("tags", ())), (cell.source, failed)
    checks = sum(cell.source.count("\ncheck(") + cell.source.startswith("check(") for cell in code(executed))
    errors = [float(e) for c in code(executed) for t in texts(c) for e in re.findall(r"off by at most (\S+)", t)]
    assert checks >= 8 and len(errors) >= checks
    assert sorted(errors)[-2] < 2e-2  # but for the product that is rounded to bf16


def test_what_does_not_fit_is_said_at_its_line(executed):
    (wrong,) = [c for c in code(executed) if "raises-exception" in c.metadata.get("tags", ())]
    said = "\n".join(texts(wrong))
    assert "TS405" in said and "shared memory" in said


def test_every_kernel_has_its_panel(executed):
    panels = ["\n".join(texts(c)) for c in code(executed) if c.source.startswith("%%tessera")]
    assert len(panels) == 8
    for html in panels:
        assert html.count('class="tessera-panel"') == 1
        assert "Internal error" not in html
        for heading in ("registers", "spills", "shared memory", "occupancy", "instruction mix"):
            assert heading in html
    assert "TS408" in panels[2]  # the barrier that the text says is missing


def test_the_evidence_is_what_the_text_says(executed):
    found = evidence(executed)
    assert found["naive"]["shared"] == found["naive"]["tensor core"] == 0
    assert found["tiled"]["shared"] > 0 and found["tiled"]["tensor core"] == 0
    assert found["tensor_cores"]["tensor core"] > 0
    assert found["staged"]["shared"] > found["tensor_cores"]["shared"]
    assert found["function"]["tensor core"] > 0
    assert found["scores"]["spills"] > 10 * found["online"]["spills"]
    assert found["online"]["shared"] < found["scores"]["shared"] / 2
    assert all(figures["async copy"] > 0 for name, figures in found.items() if name != "naive")
    generated = "\n".join(t for c in code(executed) if "compiled.source" in c.source for t in texts(c))
    assert "__global__" in generated and re.search(r"// In\[\d+\]:\d+  acc \+= ts\.tile\.mma", generated)


def test_what_is_committed_can_be_read_and_is_free_of_noise():
    notebook = read(NOTEBOOK)
    assert NOTEBOOK.stat().st_size < 500_000
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    for cell in code(notebook):
        assert cell.execution_count is not None, "refresh it: python scripts/refresh_notebooks.py"
        assert "execution" not in cell.metadata
        for text in texts(cell):
            assert "\x1b[" not in text
            assert not re.search(r"/(?:home|root|work|tmp|Users)/", text)
    assert len(evidence(notebook)) == 11


def test_links_lead_somewhere():
    for name in (NOTEBOOK, NOTEBOOK.with_name("00_tour.ipynb")):
        for cell in read(name).cells:
            for target in re.findall(r"\]\(([^)#]+)\)", cell.source) if cell.cell_type == "markdown" else ():
                assert "://" in target or (NOTEBOOK.parent / target).exists(), target


def test_python_outside_of_the_dialect_is_python():
    for cell in code(read(NOTEBOOK)):
        if not cell.source.startswith("%"):
            ast.parse(cell.source)


def test_the_notebook_in_jupyterlab(lab):
    require("cuda.bindings")
    page = lab(NOTEBOOK)
    page.run_all()
    sources = page.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.widgets.map(c => c.model.sharedModel.getSource())"
    )
    for index in (i for i, source in enumerate(sources) if source.startswith("%%tessera")):
        output = page.output(index)
        output.get_by_role("tab", name="Kernel").click()
        kernel = output.locator(".ts-kernel")
        expect(kernel).to_contain_text(re.compile(r"registers.*\d", re.S))
        wider = "e => e.scrollWidth > e.clientWidth + 1 ? 'a table wider than its cell' : ''"
        eventually(lambda kernel=kernel, wider=wider: kernel.evaluate(wider), "")
        page.shot(f"kernels{index:02d}")
        if "--show" not in sources[index]:
            output.get_by_role("tab", name="IR").click()
            output.get_by_role("button", name="Target").click()
            output.locator("pre[data-side=source] .ts-l:visible", has_text="ts.tile.mma").first.hover()
            lit = output.locator("pre[data-side=target] .ts-lit")
            expect(lit.filter(has_text="ts::mma")).not_to_have_count(0)
            page.shot(f"kernels{index:02d}_ir")
