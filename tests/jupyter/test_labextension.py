"""Hints, squiggles, fixes, hovers and completions in `%%tessera` cells of a real JupyterLab, in these cells alone."""

from __future__ import annotations

import re

import pytest

from tests.conftest import require
from tests.jupyter.conftest import ROOT

HEAD = "%load_ext tessera_jupyter\nimport tessera as ts\nfrom tessera import Tensor\nHEADS = 4"
NORM = """%%tessera
@ts.function
def norm(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    mean = x.mean(axis=-1, keepdim=True)
    return (x - mean) * 2
"""
USER = """%%tessera
@ts.function
def twice(größe: Tensor["B", "D"]) -> Tensor["B", "D"]:
    first = norm(größe)
    return first + first
"""
PLAIN = """def norm_of(x):
    mean = x.mean(axis=-1, keepdim=True)
    return x - mean"""


@pytest.fixture(scope="module", autouse=True)
def built():
    require("npm")
    place = ROOT / "jupyter_ext/tessera_jupyter/labextensions/tessera-jupyterlab/package.json"
    assert place.is_file(), "make labextension"


def cell(page, index):
    return page.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"] .cm-content')


def hints(page, index):
    """(line, hint) of a cell, once there are any."""
    cell(page, index).locator(".tessera-hint").first.wait_for(timeout=30_000)
    return shown(page, index)


def shown(page, index):
    return cell(page, index).evaluate(
        """content => [...content.querySelectorAll('.tessera-hint')].map(hint => {
            const line = hint.closest('.cm-line');
            return [[...content.querySelectorAll('.cm-line')].indexOf(line), hint.textContent.trim()];
        })"""
    )


def edit(page, index, old, new):
    """Changes the one place of a cell where `old` stands, through the document that the editor shows."""
    page.page.evaluate(
        """([index, old, text]) => {
            const cell = window.jupyterapp.shell.currentWidget.content.widgets[index].model.sharedModel;
            const at = cell.getSource().indexOf(old);
            cell.updateSource(at, at + old.length, text);
        }""",
        [index, old, new],
    )


def test_hints_stand_in_tessera_cells_alone(lab):
    page = lab("hints.ipynb", HEAD, NORM, USER, PLAIN)
    assert hints(page, 1) == [[3, ": [B, 1] f32"]]
    assert hints(page, 2) == [[3, ": [B, D] f32"]]  # `norm` is the function of the cell above
    assert shown(page, 0) == shown(page, 3) == []
    page.shot("hints")
    edit(page, 1, ", keepdim=True", "")
    cell(page, 1).locator(".cm-lintRange-error").wait_for()
    assert cell(page, 1).locator(".cm-lintRange-error").inner_text() == "x - mean"
    assert cell(page, 3).locator(".cm-lintRange").count() == 0
    page.shot("squiggle")


def test_a_fix_is_applied_from_the_squiggle(lab):
    page = lab("fix.ipynb", HEAD, NORM.replace(", keepdim=True", ""))
    mark = cell(page, 1).locator(".cm-lintRange-error")
    mark.wait_for(timeout=30_000)
    mark.hover()
    tip = page.page.locator(".cm-tooltip-lint")
    tip.wait_for()
    assert "TS202" in tip.inner_text()
    page.shot("tooltip")
    tip.get_by_role("button", name=re.compile("keepdim")).click()
    mark.wait_for(state="detached")
    assert "keepdim=True" in cell(page, 1).inner_text()
    assert hints(page, 1) == [[3, ": [B, 1] f32"]]


def test_a_warning_is_ignored_from_the_squiggle(lab):
    shrink = '\n%%tessera\n@ts.function\ndef shrink(x: Tensor["N"]):\n    return ts.exp(x) - 1\n'
    page = lab("ignore.ipynb", HEAD, shrink)
    mark = cell(page, 1).locator(".cm-lintRange-warning")
    mark.wait_for(timeout=30_000)
    mark.hover()
    page.page.locator(".cm-tooltip-lint").get_by_role("button", name="Ignore").click()
    mark.wait_for(state="detached")
    assert "    return ts.exp(x) - 1  # tessera: ignore[TS314]" in cell(page, 1).inner_text()
    page.page.mouse.move(5, 5)
    cell(page, 1).get_by_text("exp", exact=True).hover()
    page.page.locator(".tessera-hover").wait_for()  # also below an empty line


def test_hover_explains_a_name(lab):
    page = lab("hover.ipynb", HEAD, NORM, PLAIN)
    hints(page, 1)
    cell(page, 1).get_by_text("mean", exact=True).last.hover()
    tip = page.page.locator(".tessera-hover")
    tip.wait_for()
    assert "[B, 1]" in tip.inner_text()
    page.shot("hover")
    page.page.mouse.move(5, 5)
    tip.wait_for(state="detached")
    cell(page, 2).locator(".cm-line").nth(1).hover()
    page.page.wait_for_timeout(600)
    assert tip.count() == 0


def test_hints_follow_the_text_while_it_does_not_parse(lab):
    page = lab("broken.ipynb", HEAD, NORM)
    assert hints(page, 1) == [[3, ": [B, 1] f32"]]
    edit(page, 1, "(x - mean) * 2", "(x - mean * 2")
    cell(page, 1).locator(".cm-lintRange-error, .cm-lintPoint-error").first.wait_for()
    assert shown(page, 1) == [[3, ": [B, 1] f32"]]
    edit(page, 1, "@ts.function\n", "\n\n@ts.function\n")
    page.page.wait_for_timeout(500)
    assert shown(page, 1) == [[5, ": [B, 1] f32"]]


def test_a_dim_leads_to_where_it_was_bound(lab):
    page = lab("bound.ipynb", HEAD, NORM)
    hints(page, 1)
    cell(page, 1).locator(".tessera-hint-link", has_text="B").click()
    place = page.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.activeCell.editor.getCursorPosition()"
    )
    assert (place["line"], NORM.splitlines()[2][place["column"] :][:3]) == (2, '"B"') or place["line"] == 2


def test_the_notebook_application_shows_the_same(lab, server):
    require("notebook")
    page = lab("seven.ipynb", HEAD, NORM).page
    page.goto(f"{server.url}/notebooks/seven.ipynb")
    page.locator(".tessera-hint").first.wait_for(timeout=60_000)
    assert page.locator(".tessera-hint").all_inner_texts() == [": [B, 1] f32"]


def test_completions_come_from_the_server(lab):
    page = lab("complete.ipynb", HEAD, NORM + "    y = ts.softm\n")
    hints(page, 1)
    cell(page, 1).locator(".cm-line", has_text="ts.softm").click()
    page.page.keyboard.press("End")
    page.page.evaluate("window.jupyterapp.commands.execute('completer:invoke-notebook')")
    found = page.page.locator(".jp-Completer-item", has_text="softmax").first
    found.wait_for()
    page.shot("completion")


def test_quiet_mode_shows_what_is_near_the_cursor(lab):
    text = """%%tessera
@ts.function
def steps(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    a = x * 2
    b = a.astype(ts.f16)
    c = b + 1
    d = c + 1
    e = d + 1
    f = e.mean(axis=-1, keepdim=True)
    return x
"""
    page = lab("quiet.ipynb", HEAD, text)
    assert [line for line, _ in hints(page, 1)] == [3, 4, 5, 6, 7, 8]
    setting = """quiet => window.jupyterapp.serviceManager.settings.save(
        'tessera-jupyterlab:plugin', JSON.stringify({inlayHints: {quiet}}))"""
    try:
        page.page.evaluate(setting, True)
        page.page.reload()
        cell(page, 1).locator(".tessera-hint").first.wait_for()
        assert [line for line, _ in shown(page, 1)] == [8]
        cell(page, 1).locator(".cm-line").nth(4).click()
        page.page.wait_for_function("() => document.querySelectorAll('.tessera-hint').length > 3")
    finally:
        page.page.evaluate(setting, False)


LAYER = """import tessera as ts
from tessera import Tensor


@ts.function
def layer(x: Tensor["B", "D"]):
    return x.mean(axis=-1)
"""
IMPORTING = """%%tessera
from layer_on_disk import layer

@ts.function
def use(x: Tensor["B", "D"]):
    y = layer(x)
    return y
"""


def hint(page, index, text):
    cell(page, index).locator(".tessera-hint", has_text=text).wait_for(timeout=30_000)


def test_files_that_change_on_the_disk_are_read_again(lab, server):
    """Saved in this page, by others while the person was away, and by a cell."""
    path = server.root / "layer_on_disk.py"
    path.write_text(LAYER)
    writing = "%%writefile layer_on_disk.py\n" + LAYER.replace("x.mean(axis=-1)", "(x * 2).astype(ts.f16)")
    page = lab("disk.ipynb", HEAD, IMPORTING, writing)
    assert hints(page, 1) == [[5, ": [B] f32"]]
    page.page.evaluate(
        """text => window.jupyterapp.serviceManager.contents.save(
            'layer_on_disk.py', {type: 'file', format: 'text', content: text})""",
        LAYER.replace("axis=-1", "axis=0"),
    )
    hint(page, 1, ": [D] f32")
    path.write_text(LAYER.replace(".mean(axis=-1)", ""))
    page.page.evaluate("() => window.dispatchEvent(new Event('focus'))")
    hint(page, 1, ": [B, D] f32")
    page.run(2)
    hint(page, 1, ": [B, D] f16")
    page.page.evaluate("() => window.jupyterapp.serviceManager.contents.delete('layer_on_disk.py')")
    cell(page, 1).locator(".tessera-hint").wait_for(state="detached")
