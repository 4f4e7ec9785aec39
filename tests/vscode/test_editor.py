"""Tessera in a real VS Code. The tests share one window and run in order, since opening one takes long."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vscode import stand_ins
from tests.vscode.conftest import Window

pytestmark = pytest.mark.flaky(reruns=1)
MODEL = '''"""Scores of attention, and a projection."""
import tessera as ts
from tessera import Tensor, bf16


@ts.function
def attend(q: Tensor["B", "H", "S", "E", bf16], k: Tensor["B", "H", "S", "E", bf16]):
    scores = q @ k.transpose(2, 3)
    weights = ts.softmax(scores, axis=-1)
    return weights


@ts.function
def project(x: Tensor["R", "C"], w: Tensor["D", "C"]) -> Tensor["R", "D"]:
    return x @ w
'''
DIALECT = """import tessera as ts
from tessera import Tensor, Normal, bf16


@ts.function
def scale[D](x: Tensor["B", D, dtype=bf16, @accum(f32)], w: Tensor[D]) -> Tensor["B", D]:
    y = x * w
    return y
"""
CELLS = (
    "import tessera as ts\nfrom tessera import Tensor",
    '%%tessera\n@ts.function\ndef twice(x: Tensor["N", 4]):\n    y = ts.reshape(x, (-1,))\n    return y * 2',
)
PROGRAM = """import numpy as np
import tessera as ts
from tessera import Tensor


@ts.function
def norm(x: Tensor["R", "C"]) -> Tensor["R", "C"]:
    return x / ts.sqrt((x * x).sum(axis=-1, keepdims=True))


if __name__ == "__main__":
    x = np.ones((512, 512), np.float32)
    for _ in range(3):
        norm(x)
"""
ENDLESS = """import os, time
import tessera as ts


@ts.function
def forever(x: ts.Tensor["N"]) -> ts.Tensor["N"]:
    return x * 2


open(__file__ + ".pid", "w").write(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose own interpreter leaves a mark when it is run."""
    folder = tmp_path_factory.mktemp("work") / "shapes"
    (folder / ".vscode").mkdir(parents=True)
    shim = folder / "tools/python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\ntouch "{folder}/tools/was-run"\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    dims = {"B": 8, "H": 16, "S": 1024, "E": 64, "R": 512, "C": 512}
    settings = {"tessera.interpreter": "${workspaceFolder}/tools/python", "tessera.dims": dims}
    (folder / ".vscode/settings.json").write_text(json.dumps(settings))
    (folder / "model.py").write_text(MODEL)
    (folder / "scale.tess").write_text(DIALECT)
    (folder / "norm.py").write_text(PROGRAM)
    (folder / "endless.py").write_text(ENDLESS)
    cells = [{"cell_type": "code", "source": c, "metadata": {}, "outputs": [], "execution_count": None} for c in CELLS]
    language = {"language_info": {"name": "python"}}
    notebook = {"cells": cells, "metadata": language, "nbformat": 4, "nbformat_minor": 5}
    (folder / "notes.ipynb").write_text(json.dumps(notebook))
    return folder


@pytest.fixture(scope="module")
def window(code_server: Any, chromium: Any, folder: Path, request: pytest.FixtureRequest) -> Iterator[Window]:
    page = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
    window = Window(page, code_server, folder, request.config.getoption("--update-golden"))
    window.load("model.py")
    yield window
    page.close()


def test_workspace_that_is_not_trusted_gets_the_bundled_server(window: Window, folder: Path) -> None:
    window.see("scores: [B, H, S, S] bf16")
    window.shot("untrusted")
    window.page.locator(".codelens-decoration a", has_text="Profile").first.click()
    refusal = window.page.locator(".notification-toast", has_text="this workspace is not trusted to run anything")
    refusal.wait_for()
    window.shot("untrusted-profile")
    refusal.locator(".monaco-button", has_text="Manage Workspace Trust").click()
    window.page.locator(".workspace-trust-editor").wait_for()
    assert not (folder / "tools/was-run").exists()


def test_interpreter_of_a_trusted_workspace(window: Window, folder: Path) -> None:
    window.page.locator(".workspace-trust-editor .monaco-button", has_text="Trust").first.click()
    window.page.locator(".workspace-trust-editor", has_text="You trust this folder").wait_for()
    window.command("Tessera: Debug Information")
    window.see("Interpreter from the setting tessera.interpreter")
    text = "\n".join(window.lines())
    window.shot("debug")
    assert "Workspace is trusted" in text
    assert f"Command: `{folder}/tools/python -P -m tessera_lsp" in text.replace("\n", "")
    assert (folder / "tools/was-run").exists()
    assert f"- the Python extension: `{stand_ins.PYTHON}`" in text
    assert f"- the Python Environments extension: `{stand_ins.ENVIRONMENTS}`" in text
    places = [text.index(name) for name in ("setting tessera.interpreter: ", "Python extension: ", "PATH: ")]
    assert places == sorted(places)


def test_hints(window: Window) -> None:
    window.open("model.py")
    window.see("scores: [B, H, S, S] bf16 = q @ k.transpose(2, 3)")
    window.lens("modelled on cpu: ")
    window.picture("hints", height=400)


def test_squiggle_hover_and_fix(window: Window) -> None:
    window.page.locator(".squiggly-error").first.wait_for(state="attached")
    window.page.mouse.move(*window.point("return x @ w", "@"))
    window.page.locator(".monaco-hover-content", has_text="TS2").wait_for()
    fix = window.page.locator(".action-widget .monaco-list-row", has_text="Use the transpose of the right operand")
    window.press_at("return x @ w", "@", "Control+.", fix)
    window.picture("fix", height=440)
    fix.click()
    window.see("return x @ w.T")
    window.page.locator(".squiggly-error").first.wait_for(state="detached")


def test_what_can_be_done_with_selected_lines(window: Window) -> None:
    """Entries that are not possible say why, of which VS Code itself shows nothing."""
    entry = window.page.locator(".action-widget:visible .monaco-list-row")
    window.page.mouse.click(*window.point("q @ k.transpose", "scores"))
    for key in ("Home", "Shift+ArrowDown", "Shift+End"):
        window.page.keyboard.press(key)
    window.page.wait_for_timeout(500)  # a menu is closed by a cursor that has yet to arrive
    window.page.keyboard.press("Control+Shift+R")
    entry.filter(has_text="Annotate scores and weights with their shapes").wait_for()
    window.page.locator(".action-widget:visible a", has_text="Show Disabled").click()
    entry.filter(has_text="Extract kernel: ts.softmax needs whole rows").wait_for()
    window.shot("actions")
    window.page.keyboard.press("Escape")


def test_rename_of_a_dim(window: Window) -> None:
    box = window.page.locator(".rename-box input")
    window.press_at("def project", "C", "F2", box)
    box.fill("K")
    box.press("Enter")
    window.see('def project(x: Tensor["R", "K"], w: Tensor["D", "K"])')
    window.command("File: Revert File")


def test_ir_beside_the_source(window: Window) -> None:
    window.open("model.py")
    window.see("scores: [B, H, S, S] bf16")
    window.page.mouse.click(*window.point("q @ k.transpose", "transpose"))
    window.command("View: Close Primary Side Bar")
    window.command("Tessera: Show IR at Cursor")
    window.choose("Graph")
    window.page.locator('.tab.active[data-resource-name="attend.graph"]').wait_for()
    window.see("graph.contract")
    ir = window.page.locator(".editor-instance").last
    window.page.mouse.click(*window.point("ts.softmax(scores", "softmax"))
    lit = ir.locator('.view-overlays [class*="ced-"]')
    lit.first.wait_for()
    window.picture("ir", height=400)
    window.page.mouse.click(*window.point("graph.contract", "graph.contract"))
    window.page.locator(".editor-instance").first.locator('.view-overlays [class*="ced-"]').first.wait_for()
    window.command("Tessera: Show IR at Cursor")  # in an IR document: another level of the same function
    window.choose("Tile")
    window.page.locator('.tab.active[data-resource-name="attend.tile"]').wait_for()
    window.see('"tile.func"')


def test_dialect(window: Window) -> None:
    window.open("scale.tess")
    window.see("y: [B, D] f32 @accum(f32) = x * w")
    window.shot("dialect")


def test_notebook_cells(window: Window) -> None:
    window.open("notes.ipynb")
    window.see("y: [4*N] f32 = ts.reshape(x, (-1,))")
    window.picture("notebook")


def test_status_and_target(window: Window) -> None:
    window.open("norm.py")
    item = window.page.locator('[id*="tessera.status"]').first
    assert item.inner_text().strip() == "Tessera: auto"
    item.click()
    window.choose("sm_90a")
    window.page.locator('[id*="tessera.status"]', has_text="Tessera: sm_90a").wait_for()
    assert '"tessera.target": "sm_90a"' in (window.folder / ".vscode/settings.json").read_text()


def test_interpreter_that_does_not_run(window: Window) -> None:
    """The status item says so; once mended, the server is back."""
    path = window.folder / ".vscode/settings.json"
    settings = path.read_text()
    path.write_text(settings.replace("tools/python", "tools/none"))
    window.page.locator('[id*="tessera.status"].error-kind').wait_for()
    window.page.locator('[id*="tessera.status"]').hover()
    window.page.locator(
        ".monaco-hover", has_text="tools/none, from the setting tessera.interpreter, does not exist"
    ).wait_for()
    window.shot("problem")
    path.write_text(settings)
    window.page.locator('[id*="tessera.status"]', has_text="Tessera: sm_90a").wait_for()
    window.lens("modelled on sm_90a: ")


def test_restart(window: Window) -> None:
    window.command("Tessera: Restart Server")
    window.page.locator('[id*="tessera.status"] .codicon-loading').wait_for()
    window.page.locator('[id*="tessera.status"] .codicon-layers').wait_for()


def test_profile_of_a_function(window: Window) -> None:
    """Sizes that nobody has said are asked for, and offered again the next time."""
    window.open("norm.py")
    window.lens("Profile")
    (window.folder / ".vscode/settings.json").write_text((window.folder / ".vscode/settings.json").read_text().replace(
        '"C": 512', '"Z": 512'))  # fmt: skip
    lens = window.page.locator(".codelens-decoration a", has_text="Profile").first
    box = window.page.locator(".quick-input-widget input:visible")
    window.see("def norm")
    window.lens("modelled on sm_90a at C=1024: ")
    lens.click()
    box.wait_for()
    assert box.input_value() == "C=1024"
    box.fill("C=3O0")
    window.page.locator(".quick-input-message", has_text='"C=3O0" is not NAME=SIZE').wait_for()
    window.shot("sizes")
    box.fill("C=384")
    box.press("Enter")
    inner = window.page.frame_locator("iframe.webview.ready").frame_locator("iframe#active-frame")
    inner.locator("h1", has_text="Tessera profile").wait_for(timeout=60_000)
    inner.locator("th", has_text="norm").first.wait_for()
    inner.locator("#timeline .main-svg").first.wait_for()
    window.lens("measured on cpu at ")
    window.picture("profile", height=560)
    window.open("norm.py")  # closes what is open
    window.lens("measured on cpu at ")
    window.page.locator(".codelens-decoration a", has_text="measured on cpu at ").first.click()
    inner.locator("h1", has_text="Tessera profile").wait_for()
    window.open("norm.py")
    window.page.mouse.click(*window.point("return x / ts.sqrt", "sqrt"))
    window.command("Tessera: Profile Function")
    box.wait_for()
    assert box.input_value() == "C=384"
    box.press("Escape")


def test_profile_that_is_cancelled(window: Window) -> None:
    """The process ends, and nothing is said to have failed."""
    window.open("endless.py")
    window.page.locator(".codelens-decoration a", has_text="Profile").first.click()
    window.page.locator(".quick-input-widget input:visible").press("Enter")
    toast = window.page.locator(".notification-toast", has_text="Profiling forever")
    toast.wait_for()
    file = window.folder / "endless.py.pid"
    wait_until(lambda: file.exists() and bool(file.read_text()))
    process = int(file.read_text())
    assert is_running(process)
    toast.hover()
    toast.locator(".monaco-button", has_text="Cancel").click()
    toast.wait_for(state="detached")
    wait_until(lambda: not is_running(process))
    assert not window.page.locator(".notification-toast", has_text="ended with code").is_visible()


def test_profile_of_a_file(window: Window) -> None:
    window.open("norm.py")
    window.command("Tessera: Profile File")
    inner = window.page.frame_locator("iframe.webview.ready").frame_locator("iframe#active-frame")
    inner.locator("tbody tr", has_text="norm").first.wait_for(timeout=60_000)
    assert inner.locator(".facts").inner_text().split(" · ")[2] == "3 launches"
    window.open("norm.py")  # closes what is open
    window.command("Tessera: Open Profile")
    inner.locator("h1", has_text="Tessera profile").wait_for()
    assert inner.locator(".facts").inner_text().split(" · ")[2] == "3 launches"  # the newest of the two


def test_logs(window: Window) -> None:
    """What was started and what went wrong, in the output channel, and nothing else."""
    window.command("Tessera: Show Logs")
    window.see("[info] Server process exited successfully")  # when it was restarted
    window.shot("logs")
    logs = (window.server.home / "user/logs").glob("**/exthost*/tessera.tessera/Tessera.log")
    text = max(logs, key=lambda log: log.stat().st_mtime).read_text()
    first, *rest = text.splitlines()
    assert "[info] starting " in first and " -I -S " in first  # not trusted at first
    assert any(f"[info] starting {window.folder}/tools/python -P -m tessera_lsp --log-level WARNING" in r for r in rest)
    late = " WARNING pygls.protocol.json_rpc: "  # a request was cancelled after its answer, or came during the end
    errors = [line for line in rest if "[error]" in line and late not in line]
    assert len(errors) == 1 and "tools/none, from the setting tessera.interpreter, does not exist." in errors[0]


def is_running(process: int) -> bool:
    """A zombie that nobody has waited for has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
