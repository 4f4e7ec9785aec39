"""Buttons below cells of a notebook in a real VS Code: the fix of an error, and a hint that the kernel tries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.browsers import expect
from tests.vscode.window import ROOT, Project, Window, write_notebook, write_settings

pytestmark = [pytest.mark.flaky(reruns=1), pytest.mark.timeout(600)]
CELL = '%%tessera\n@ts.function\ndef f(x: Tensor["B", 4]):\n    é = "𝒮"; return ts.sofmax(x)'


def write(folder: Path) -> None:
    write_notebook(folder / "fixes.ipynb", CELL)
    write_settings(folder, {"tessera.interpreter": sys.executable})
    (folder / "first.py").write_text("import tessera as ts\n")


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(write, "first.py")


def test_a_fix_and_a_hint(window: Window) -> None:
    window.open("fixes.ipynb")
    window.see("ts.sofmax(x)")
    window.run_all()
    item = window.page.locator(".cell-status-item")
    expect(item.filter(has_text="Apply: did you mean softmax?")).to_be_visible()
    window.shot("output-actions")
    item.filter(has_text="Try: use larger tiles").click()
    told = window.page.locator(".notification-list-item", has_text="larger tiles: 1.3x, predicted 1.1x to 2x")
    expect(told.first).to_be_visible()
    window.shot("output-hint-tried")
    assert "Trying: use larger tiles" in window.log()
    item.filter(has_text="Apply: did you mean softmax?").click()
    window.see("ts.softmax(x)")
    expect(item.filter(has_text="Apply")).to_have_count(0)  # of a text that is no more
    expect(item.filter(has_text="Try: use larger tiles")).to_be_visible()


def test_the_form_is_the_one_that_the_kernel_writes() -> None:
    from tessera_jupyter import actions  # slow: IPython

    text = (ROOT / "vscode/src/outputActions.ts").read_text()
    assert f'const MIME = "{actions.MIME}"' in text
    assert set(actions.Actions.__annotations__) == {"fixes", "hints", "changes"}
    assert "run_line_magic" in text and "try --hint" in text
