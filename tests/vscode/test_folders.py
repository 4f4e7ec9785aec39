"""A workspace of several folders in a real VS Code: each has a server, an interpreter and settings of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vscode.conftest import Window

pytestmark = pytest.mark.flaky(reruns=1)
MODEL = """import tessera as ts
from tessera import Tensor


@ts.function
def {name}(x: Tensor["N", 4]):
    y = x * 2
    return y
"""
CELL = """%%tessera
import tessera as ts
from tessera import Tensor


@ts.function
def twice(x: Tensor["N", 3]):
    z = x * 2
    return z"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders whose interpreters leave marks when they are run, and a file that is in none of them."""
    top = tmp_path_factory.mktemp("several")
    for name, dims in (("alpha", {"N": 1024}), ("beta", {})):
        (top / name / ".vscode").mkdir(parents=True)
        python = top / name / "python"
        python.write_text(f'#!/bin/sh\ntouch "{top / name}/was-run"\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        settings = {"tessera.interpreter": "${workspaceFolder}/python", "tessera.dims": dims}
        (top / name / ".vscode/settings.json").write_text(json.dumps(settings))
        (top / name / f"{name}_model.py").write_text(MODEL.format(name=name))
    cell = {"cell_type": "code", "source": CELL, "metadata": {}, "outputs": [], "execution_count": None}
    language = {"language_info": {"name": "python"}}
    notebook = {"cells": [cell], "metadata": language, "nbformat": 4, "nbformat_minor": 5}
    (top / "beta/notes.ipynb").write_text(json.dumps(notebook))
    folders = [{"path": "alpha"}, {"path": "beta"}]
    (top / "both.code-workspace").write_text(json.dumps({"folders": folders}))
    return top


@pytest.fixture(scope="module")
def window(code_server: Any, chromium: Any, folder: Path) -> Iterator[Window]:
    page = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
    window = Window(page, code_server, folder)
    window.load("alpha/alpha_model.py", "both.code-workspace")
    yield window
    page.close()


def quick_open(window: Window, name: str) -> None:
    window.pick("Control+p").fill(name)
    window.page.locator(".quick-input-list .monaco-list-row", has_text=name).first.wait_for()
    window.page.keyboard.press("Enter")
    window.page.locator(f'.tab.active[data-resource-name="{name}"]').wait_for()


def test_a_server_for_each_folder(window: Window, folder: Path) -> None:
    window.see("y: [N, 4] f32 = x * 2")
    window.command("Workspaces: Manage Workspace Trust")
    window.page.locator(".workspace-trust-editor .monaco-button", has_text="Trust").first.click()
    window.page.locator(".workspace-trust-editor", has_text="You trust").wait_for()
    window.load("alpha/alpha_model.py", "both.code-workspace")
    window.lens("modelled on cpu: ")
    assert (folder / "alpha/was-run").exists()
    assert not (folder / "beta/was-run").exists()  # nothing there needed a server yet
    quick_open(window, "beta_model.py")
    window.see("y: [N, 4] f32 = x * 2")
    window.lens("modelled on cpu at N=1024: ")  # the other folder's sizes are its own
    assert (folder / "beta/was-run").exists()


def test_each_hint_is_shown_once(window: Window) -> None:
    quick_open(window, "beta_model.py")
    window.see("y: [N, 4] f32 = x * 2")
    assert sum("y: [N, 4] f32" in line for line in window.lines()) == 1
    assert window.page.locator(".codelens-decoration a", has_text="Profile").count() == 1


def test_a_cell_belongs_to_its_notebooks_folder(window: Window) -> None:
    quick_open(window, "notes.ipynb")
    window.see("z: [N, 3] f32 = x * 2")
    assert [line for line in window.lines() if "z: [N, 3]" in line] == ["    z: [N, 3] f32 = x * 2"]
