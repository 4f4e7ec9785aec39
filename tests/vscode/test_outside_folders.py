"""A window of several folders in a real VS Code: files outside of them all share one server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browsers import eventually, expect
from tests.vscode.window import MODEL, Project, Window

pytestmark = [pytest.mark.flaky(reruns=1), pytest.mark.timeout(600)]


def write(top: Path) -> None:
    """Two folders of a workspace, and beside them a file that imports one of another directory."""
    for name in ("alpha", "beta", "loose", "loose/deep"):
        (top / name).mkdir()
    for name in ("alpha", "beta"):
        (top / name / f"{name}.py").write_text(MODEL.format(name=name))
    (top / "loose/deep/helper.py").write_text(MODEL.format(name="helper"))
    (top / "loose/loose.py").write_text("from .deep.helper import helper\n" + MODEL.format(name="loose"))
    folders = [{"path": "alpha"}, {"path": "beta"}]
    (top / "both.code-workspace").write_text(json.dumps({"folders": folders}))


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(write, "loose/loose.py", "both.code-workspace")


def shown_once(window: Window, name: str) -> None:
    """Each hint and lens of the file in view, and the status."""
    window.page.locator(f'.tab.active[data-resource-name="{name}.py"]').wait_for()
    window.see(f"def {name}")
    window.see("y: [N, 4] f32 = x * 2")
    window.lens("modelled on cpu at N=1024: ")
    expect(window.status).to_have_text("Tessera: auto")
    eventually(lambda: [line for line in window.lines() if "y: [N, 4]" in line], ["    y: [N, 4] f32 = x * 2"])
    expect(window.page.locator(".codelens-decoration a", has_text="Profile")).to_have_count(1)


def test_files_outside_of_all_folders_have_a_server(untrusted_window: Window) -> None:
    shown_once(untrusted_window, "loose")


def test_so_have_those_of_other_directories(untrusted_window: Window) -> None:
    window = untrusted_window
    window.see("y: [N, 4] f32 = x * 2")
    window.put_cursor("loose/loose.py", "from .deep.helper import helper", "import helper")
    window.page.keyboard.press("End")
    opened = window.page.locator('.tab.active[data-resource-name="helper.py"]')
    window.until(lambda: window.page.keyboard.press("F12"), opened)
    shown_once(window, "helper")


def test_files_of_folders_keep_their_own(untrusted_window: Window) -> None:
    untrusted_window.open("alpha.py")
    shown_once(untrusted_window, "alpha")
