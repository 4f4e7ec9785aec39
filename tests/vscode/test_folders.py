"""A workspace of several folders in a real VS Code: each has a server, an interpreter and settings of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.browsers import eventually, expect
from tests.vscode.window import MODEL, Project, Window, write_settings

pytestmark = [pytest.mark.flaky(reruns=1), pytest.mark.timeout(600)]
CELL = """%%tessera
import tessera as ts
from tessera import Tensor


@ts.function
def twice(x: Tensor["N", 3]):
    z = x * 2
    return z"""


def write(top: Path) -> None:
    """Folders whose interpreters leave marks when they are run, and a file that is in none of them."""
    for name, dims in (("alpha", {"N": 1024}), ("beta", {})):
        (top / name).mkdir()
        python = top / name / "python"
        python.write_text(f'#!/bin/sh\ntouch "{top / name}/was-run"\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        write_settings(top / name, {"tessera.interpreter": "${workspaceFolder}/python", "tessera.dims": dims})
        (top / name / f"{name}_model.py").write_text(MODEL.format(name=name))
    cell = {"cell_type": "code", "source": CELL, "metadata": {}, "outputs": [], "execution_count": None}
    language = {"language_info": {"name": "python"}}
    notebook = {"cells": [cell], "metadata": language, "nbformat": 4, "nbformat_minor": 5}
    (top / "beta/notes.ipynb").write_text(json.dumps(notebook))
    folders = [{"path": "alpha"}, {"path": "beta"}]
    (top / "both.code-workspace").write_text(json.dumps({"folders": folders}))


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(write, "alpha/alpha_model.py", "both.code-workspace")


def test_a_server_for_each_folder(untrusted_window: Window) -> None:
    window, folder = untrusted_window, untrusted_window.folder
    window.see("y: [N, 4] f32 = x * 2")
    window.trust()
    window.open("alpha_model.py")
    window.lens("modelled on cpu: ")
    eventually((folder / "alpha/was-run").exists)  # its own server takes the bundled one's place
    assert not (folder / "beta/was-run").exists()  # nothing there needed a server yet
    window.open("beta_model.py")
    window.see("y: [N, 4] f32 = x * 2")
    window.lens("modelled on cpu at N=1024: ")  # the other folder's sizes are its own
    assert (folder / "beta/was-run").exists()


def test_each_hint_is_shown_once(window: Window) -> None:
    window.open("beta_model.py")
    window.lens("modelled on cpu at N=1024: ")
    expect(window.line("y: [N, 4] f32")).to_have_count(1)
    expect(window.page.locator(".codelens-decoration a", has_text="Profile")).to_have_count(1)


def test_a_cell_belongs_to_its_notebooks_folder(window: Window) -> None:
    window.open("notes.ipynb")
    eventually(lambda: [line for line in window.lines() if "z: [N, 3]" in line], ["    z: [N, 3] f32 = x * 2"])
