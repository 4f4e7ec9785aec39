"""A window of several folders in a real VS Code: files outside of them all share one server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vscode.conftest import Window

MODEL = """import tessera as ts
from tessera import Tensor


@ts.function
def {name}(x: Tensor["N", 4]):
    y = x * 2
    return y
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of a workspace, and beside them a file that imports one of another directory."""
    top = tmp_path_factory.mktemp("outside")
    for name in ("alpha", "beta", "loose", "loose/deep"):
        (top / name).mkdir()
    for name in ("alpha", "beta"):
        (top / name / f"{name}.py").write_text(MODEL.format(name=name))
    (top / "loose/deep/helper.py").write_text(MODEL.format(name="helper"))
    (top / "loose/loose.py").write_text("from .deep.helper import helper\n" + MODEL.format(name="loose"))
    folders = [{"path": "alpha"}, {"path": "beta"}]
    (top / "both.code-workspace").write_text(json.dumps({"folders": folders}))
    return top


@pytest.fixture(scope="module")
def window(code_server: Any, chromium: Any, folder: Path) -> Iterator[Window]:
    page = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
    window = Window(page, code_server, folder)
    window.load("loose/loose.py", "both.code-workspace")
    yield window
    page.close()


def shown_once(window: Window, name: str) -> None:
    """Each hint and lens of the file in view, and the status."""
    window.page.locator(f'.tab.active[data-resource-name="{name}.py"]').wait_for()
    window.see(f"def {name}")
    window.see("y: [N, 4] f32 = x * 2")
    window.lens("modelled on cpu at N=1024: ")
    window.page.locator('[id*="tessera.status"]', has_text="Tessera: auto").wait_for()
    assert [line for line in window.lines() if "y: [N, 4]" in line] == ["    y: [N, 4] f32 = x * 2"]
    assert window.page.locator(".codelens-decoration a", has_text="Profile").count() == 1


def test_files_outside_of_all_folders_have_a_server(window: Window) -> None:
    shown_once(window, "loose")


def test_so_have_those_of_other_directories(window: Window) -> None:
    opened = window.page.locator('.tab.active[data-resource-name="helper.py"]')
    window.press_at("from .deep.helper import helper", "import helper", "End", window.line("def loose"))
    window.page.keyboard.press("F12")
    opened.wait_for()
    shown_once(window, "helper")


def test_files_of_folders_keep_their_own(window: Window) -> None:
    window.page.locator('.explorer-folders-view .monaco-list-row[aria-label^="alpha.py"]').dblclick()
    shown_once(window, "alpha")
