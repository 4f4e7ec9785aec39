"""Hints, squiggles, fixes, hovers and completions in `%%tessera` cells of a real JupyterLab, in these cells alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.browsers import eventually, expect, succeeds
from tests.conftest import require

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
OTHER = """%%tessera
@ts.function
def other(x: Tensor["N"]):
    y = x * 3
    return y
"""
PLAIN = """def norm_of(x):
    mean = x.mean(axis=-1, keepdim=True)
    return x - mean"""


pytestmark = pytest.mark.usefixtures("extension")


def cell(page, index):
    return page.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"] .cm-content')


def shown(page, index):
    """(line, hint) of what stands in a cell now."""
    return cell(page, index).evaluate(
        """content => [...content.querySelectorAll('.tessera-hint')].map(hint => {
            const line = hint.closest('.cm-line');
            return [[...content.querySelectorAll('.cm-line')].indexOf(line), hint.textContent.trim()];
        })"""
    )


def expect_hints(page, index, expected):
    """Waits until these hints stand in a cell, and no others: between two texts those of the first one stand there."""
    eventually(lambda: shown(page, index), expected)


def point_at(page, part, explanation, **at):
    """Rests the pointer on a part of a cell until this explanation stands there, and gives it. The pointer goes there
    anew where none comes: text may have moved away below it meanwhile, as it does below a person's."""
    tip = page.page.locator(explanation)

    def shows():
        page.page.mouse.move(5, 5)
        part.hover(**at)
        with contextlib.suppress(require("playwright.sync_api").TimeoutError):
            tip.wait_for(timeout=20_000)
        return tip.count() > 0

    eventually(shows)
    return tip


def squiggle(page, index, severity="error"):
    return cell(page, index).locator(f".cm-lintRange-{severity}")


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
    page = lab("hints.ipynb", HEAD, NORM, PLAIN, USER)
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    expect_hints(page, 3, [[3, ": [B, D] f32"]])  # `norm` is the function of the cell above
    assert shown(page, 0) == shown(page, 2) == []
    page.shot("hints")
    edit(page, 1, ", keepdim=True", "")
    expect(squiggle(page, 1)).to_have_text(["x - mean"])
    expect_hints(page, 3, [])  # of `norm` nothing is known any more, so that cells after the plain one were looked at
    expect(cell(page, 2).locator(".cm-lintRange")).to_have_count(0)
    page.shot("squiggle")


def test_a_fix_is_applied_from_the_squiggle(lab):
    page = lab("fix.ipynb", HEAD, NORM.replace(", keepdim=True", ""))
    expect_hints(page, 1, [[3, ": [B] f32"]])
    tip = point_at(page, squiggle(page, 1), ".cm-tooltip-lint")
    expect(tip).to_contain_text("TS202")
    page.shot("tooltip")
    tip.get_by_role("button", name=re.compile("keepdim")).click()
    expect(squiggle(page, 1)).to_have_count(0)
    expect(cell(page, 1)).to_contain_text("keepdim=True")
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])


def test_a_warning_is_ignored_from_the_squiggle(lab):
    shrink = '\n%%tessera\n@ts.function\ndef shrink(x: Tensor["N"]):\n    return ts.exp(x) - 1\n'
    page = lab("ignore.ipynb", HEAD, shrink)
    mark = squiggle(page, 1, "warning")
    point_at(page, mark, ".cm-tooltip-lint").get_by_role("button", name="Ignore").click()
    expect(mark).to_have_count(0)
    expect(cell(page, 1)).to_contain_text("    return ts.exp(x) - 1  # tessera: ignore[TS314]")
    point_at(page, cell(page, 1).get_by_text("exp", exact=True), ".tessera-hover")  # also below an empty line


def test_hover_explains_a_name(lab):
    page = lab("hover.ipynb", HEAD, NORM, PLAIN)
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    tip = point_at(page, cell(page, 1).get_by_text("mean", exact=True).last, ".tessera-hover")
    expect(tip).to_contain_text("[B, 1]")
    page.shot("hover")
    page.page.mouse.move(5, 5)
    expect(tip).to_have_count(0)
    cell(page, 2).locator(".cm-line").nth(1).hover()
    page.pass_time(1000)  # three times what an editor waits before it asks what is under the pointer
    expect(tip).to_have_count(0)


@pytest.fixture
def held(lab, own_page):
    """A page with cells, and what holds back the server's messages of one method until it is asked for another's."""

    def open_page(*cells):
        held, kept, asked = [], [], {}

        def between(to_page):
            def from_page(text):
                message = json.loads(text)
                asked[message.get("id")] = message.get("method")
                to_server.send(text)

            def from_server(text):
                message = json.loads(text)
                method = message.get("method") or asked.get(message["id"])
                kept.append(text) if method in held else to_page.send(text)

            def hold(*methods):
                held[:] = methods
                while kept:
                    to_page.send(kept.pop(0))

            to_server = to_page.connect_to_server()
            to_page.on_message(from_page)
            to_server.on_message(from_server)
            page.hold = hold

        page = lab("held.ipynb", *cells)
        page.page.route_web_socket(re.compile("/lsp/ws/tessera"), between)
        page.reload()
        return page

    return open_page


def test_what_is_not_known_yet_stays_beside_its_code(held):
    """Hints and squiggles of a new text arrive one after the other, and in any order."""
    page = held(HEAD, NORM)
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    page.hold("textDocument/inlayHint")
    edit(page, 1, "@ts.function\n", "\n\n@ts.function\n")
    edit(page, 1, "* 2", "* nowhere")
    expect(squiggle(page, 1)).to_have_text(["nowhere"])
    assert shown(page, 1) == [[5, ": [B, 1] f32"]]
    page.hold("textDocument/publishDiagnostics")
    edit(page, 1, "keepdim=True", "keepdim=False")
    expect_hints(page, 1, [[5, ": [B] f32"]])
    expect(squiggle(page, 1)).to_have_text(["nowhere"])
    edit(page, 1, "keepdim=False", "keepdim=True")
    edit(page, 1, "* nowhere", "* 2")
    expect_hints(page, 1, [[5, ": [B, 1] f32"]])
    page.hold()
    expect(squiggle(page, 1)).to_have_count(0)


def test_an_explanation_stays_open_while_another_cell_changes(lab):
    page = lab("reading.ipynb", HEAD, NORM.replace(", keepdim=True", ""), OTHER)
    expect_hints(page, 2, [[3, ": [N] f32"]])
    tip = point_at(page, squiggle(page, 1), ".cm-tooltip-lint")
    expect(tip).to_contain_text("TS202")
    page.page.evaluate("document.querySelector('.cm-tooltip-lint').dataset.same = 'yes'")
    edit(page, 2, "x * 3", "x.sum()")
    expect_hints(page, 2, [[3, ": [] f32"]])
    expect(tip).to_have_attribute("data-same", "yes")


def test_hints_follow_the_text_while_it_does_not_parse(lab):
    page = lab("broken.ipynb", HEAD, NORM)
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    edit(page, 1, "(x - mean) * 2", "(x - mean * 2")
    cell(page, 1).locator(".cm-lintRange-error, .cm-lintPoint-error").first.wait_for()
    assert shown(page, 1) == [[3, ": [B, 1] f32"]]
    edit(page, 1, "@ts.function\n", "\n\n@ts.function\n")
    expect_hints(page, 1, [[5, ": [B, 1] f32"]])


def test_a_dim_leads_to_where_it_was_bound(lab):
    page = lab("bound.ipynb", HEAD, NORM)
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    cell(page, 1).locator(".tessera-hint-link", has_text="B").click()
    cursor = "() => window.jupyterapp.shell.currentWidget.content.activeCell.editor.getCursorPosition()"

    def there():
        place = page.page.evaluate(cursor)
        return place["line"], NORM.splitlines()[place["line"]][place["column"] :][:3]

    eventually(there, (2, '"B"'))


def test_the_notebook_application_shows_the_same(lab, own_page, server):
    require("notebook")
    page = lab("seven.ipynb", HEAD, NORM, NORM.replace(", keepdim=True", "")).page
    page.goto(f"{server.url}/notebooks/seven.ipynb")
    expect(page.locator(".tessera-hint").first).to_have_text(": [B, 1] f32")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.get_by_role("button", name="Apply: Add keepdim").click()
    expect(page.get_by_role("status").filter(has_text="Applied to line")).to_have_count(1)
    expect(page.locator(".tessera-hint").filter(has_text=": [B, 1] f32")).to_have_count(2)


def test_completions_come_from_the_server(lab):
    page = lab("complete.ipynb", HEAD, NORM + "    y = ts.softm\n")
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    cell(page, 1).locator(".cm-line", has_text="ts.softm").click()
    page.page.keyboard.press("End")
    found = page.page.locator(".jp-Completer-item", has_text="softmax").first

    def is_offered():  # JupyterLab gives up what a busy server has not answered in time: a person asks again
        page.page.evaluate("window.jupyterapp.commands.execute('completer:invoke-notebook')")
        return succeeds(found.wait_for, 10)

    eventually(is_offered)
    page.shot("completion")


def test_a_server_that_died_is_started_anew(lab, server):
    """The status bar says whether it lives; a click ends the wait for its answers."""
    page = lab("dies.ipynb", HEAD, NORM)
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    status = page.page.locator(".tessera-status")
    expect(status).to_have_text("Tessera")
    (process,) = language_servers(server)
    os.kill(process, signal.SIGKILL)
    cell(page, 1).locator(".cm-line", has_text="mean(axis=-1").click()
    page.page.keyboard.press("End")
    page.page.keyboard.type(" + 1")
    status.click()
    expect_hints(page, 1, [[3, ": [B, 1] f32"]])
    expect(status).to_have_text("Tessera")
    page.shot("status")
    assert language_servers(server) != [process]


def language_servers(server):
    """The processes of language servers that this Jupyter has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            own = b"HOME=" + bytes(server.root.parent) in (folder / "environ").read_bytes().split(b"\0")
            if b"tessera_lsp" in words and own:
                found.append(int(folder.name))
    return found


def test_quiet_mode_shows_what_is_near_the_cursor(lab, own_page):
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

    def expect_lines(*expected):
        eventually(lambda: [line for line, _ in shown(page, 1)], [*expected])

    expect_lines(3, 4, 5, 6, 7, 8)
    setting = """quiet => window.jupyterapp.serviceManager.settings.save(
        'tessera-jupyterlab:plugin', JSON.stringify({inlayHints: {quiet}}))"""
    try:
        page.page.evaluate(setting, True)
        page.reload()
        expect_lines(8)
        cell(page, 1).locator(".cm-line").nth(4).click()
        expect_lines(3, 4, 5, 6, 8)
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


def test_files_that_change_on_the_disk_are_read_again(lab, server):
    """Saved in this page, by others while the person was away, and by a cell."""
    path = server.root / "layer_on_disk.py"
    path.write_text(LAYER)
    writing = "%%writefile layer_on_disk.py\n" + LAYER.replace("x.mean(axis=-1)", "(x * 2).astype(ts.f16)")
    page = lab("disk.ipynb", HEAD, IMPORTING, writing)
    expect_hints(page, 1, [[5, ": [B] f32"]])
    page.page.evaluate(
        """text => window.jupyterapp.serviceManager.contents.save(
            'layer_on_disk.py', {type: 'file', format: 'text', content: text})""",
        LAYER.replace("axis=-1", "axis=0"),
    )
    expect_hints(page, 1, [[5, ": [D] f32"]])
    path.write_text(LAYER.replace(".mean(axis=-1)", ""))
    page.page.evaluate("() => window.dispatchEvent(new Event('focus'))")
    expect_hints(page, 1, [[5, ": [B, D] f32"]])
    page.run(2)
    expect_hints(page, 1, [[5, ": [B, D] f16"]])
    page.page.evaluate("() => window.jupyterapp.serviceManager.contents.delete('layer_on_disk.py')")
    expect_hints(page, 1, [])
