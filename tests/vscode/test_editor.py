"""Tessera in a real VS Code. The tests share one window, but none needs another to have run before it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import eventually, expect
from tests.vscode import stand_ins
from tests.vscode.window import Project, Window, write_settings

pytestmark = [pytest.mark.flaky(reruns=1), pytest.mark.timeout(600)]
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
CLIP = """import tessera as ts
from tessera import Tensor


@ts.function
def clip(x: Tensor["N", 4], low: bool):
    y = x * 2
    if low:
        return y
    return y + 1
"""
ENDLESS = """import os, time
import tessera as ts


@ts.function
def forever(x: ts.Tensor["N"]) -> ts.Tensor["N"]:
    return x * 2


open(__file__ + ".pid", "w").write(str(os.getpid()))
time.sleep(600)
"""
TRIAL = """from pathlib import Path
import tessera as ts
from tessera.compiler import tried_edits


@ts.function
def twice(x: ts.Tensor["N"]) -> ts.Tensor["N"]:
    return x * 2


text = Path(__file__).read_text()  # as a hint does that has made it faster
tried_edits.record(__file__, text, text.replace("x * 2", "x + x", 1), "Add x to itself (tried)")
"""
DIMS = {"B": 8, "H": 16, "S": 1024, "E": 64, "R": 512, "C": 512}
SETTINGS = {"tessera.interpreter": "${workspaceFolder}/tools/python", "tessera.dims": DIMS}
WITHOUT_C = {name: size for name, size in DIMS.items() if name != "C"}


def write(folder: Path) -> None:
    """A workspace whose own interpreter leaves a mark when it is run."""
    shim = folder / "tools/python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\ntouch "{folder}/tools/was-run"\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    write_settings(folder, SETTINGS)
    (folder / "model.py").write_text(MODEL)
    (folder / "scale.tess").write_text(DIALECT)
    (folder / "norm.py").write_text(PROGRAM)
    (folder / "clip.py").write_text(CLIP)
    (folder / "endless.py").write_text(ENDLESS)
    (folder / "trial.py").write_text(TRIAL)
    cells = [{"cell_type": "code", "source": c, "metadata": {}, "outputs": [], "execution_count": None} for c in CELLS]
    language = {"language_info": {"name": "python"}}
    notebook = {"cells": cells, "metadata": language, "nbformat": 4, "nbformat_minor": 5}
    (folder / "notes.ipynb").write_text(json.dumps(notebook))


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(write, "model.py")


def page_of_profile(window: Window) -> Any:
    """What the profile panel shows."""
    outer = window.page.locator("iframe.webview.ready").last.content_frame
    return outer.locator("iframe#active-frame").content_frame


def test_workspace_that_is_not_trusted_gets_the_bundled_server(untrusted_window: Window) -> None:
    window = untrusted_window
    window.see("scores: [B, H, S, S] bf16")
    window.shot("untrusted")
    (started,) = [line for line in window.log().splitlines() if "[info] starting " in line]
    assert " -I -S " in started
    refusal = window.page.locator(".notification-toast", has_text="this workspace is not trusted to run anything")
    window.until(window.lens("Profile").click, refusal)
    window.shot("untrusted-profile")
    refusal.locator(".monaco-button", has_text="Manage Workspace Trust").click()
    window.page.locator(".workspace-trust-editor").wait_for()
    assert not (window.folder / "tools/was-run").exists()


def test_interpreter_of_a_trusted_workspace(untrusted_window: Window) -> None:
    window = untrusted_window
    window.trust()
    window.command("Tessera: Debug Information")
    window.see("Interpreter from the setting tessera.interpreter")
    window.shot("debug")
    command = f"{window.folder}/tools/python -P -m tessera_lsp --log-level WARNING"
    considered = [f"Python extension: `{stand_ins.PYTHON}`", f"Environments extension: `{stand_ins.ENVIRONMENTS}`"]
    parts = [
        "Workspace is trusted",
        f"Command: `{command}",
        "- the setting tessera.interpreter: ",
        *considered,
        "- PATH: ",
    ]
    in_order = re.compile(".*".join(map(re.escape, parts)))
    eventually(lambda: in_order.search("".join(window.lines())) is not None)  # long lines are wrapped
    assert (window.folder / "tools/was-run").exists()
    assert f"[info] starting {command}" in window.log()


def test_hints(window: Window) -> None:
    window.open("model.py")
    window.see("scores: [B, H, S, S] bf16 = q @ k.transpose(2, 3)")
    window.lens("modelled on cpu: ")
    window.picture("hints", height=400)


def test_squiggle_hover_and_fix(window: Window) -> None:
    window.open("model.py")
    squiggle = window.page.locator(".squiggly-error").first
    squiggle.wait_for(state="attached")
    window.until(
        lambda: point_at(window, "return x @ w", "@"), window.page.locator(".monaco-hover-content", has_text="TS2")
    )
    window.put_cursor("model.py", "return x @ w", "@")
    fix = window.page.locator(".action-widget .monaco-list-row", has_text="Use the transpose of the right operand")
    window.until(lambda: window.page.keyboard.press("Control+."), fix)
    window.picture("fix", height=440)
    fix.click()
    window.see("return x @ w.T")
    squiggle.wait_for(state="detached")
    window.revert()


def point_at(window: Window, text: str, word: str) -> None:
    """Moves the mouse to a word, from elsewhere: a hover is shown when the mouse has moved."""
    window.page.mouse.move(5, 5)
    window.page.mouse.move(*window.point(text, word), steps=2)


def test_what_can_be_done_with_selected_lines(window: Window) -> None:
    """Entries that are not possible say why, of which VS Code itself shows nothing."""
    window.open("clip.py")
    window.see("y: [N, 4] f32 = x * 2")
    window.put_cursor("clip.py", "y = x * 2", "y")
    for key in ("Shift+ArrowDown", "Shift+ArrowDown", "Shift+End"):
        window.page.keyboard.press(key)
    expect(window.page.locator('[id="status.editor.selection"]')).to_contain_text("Ln 9, Col 17 (")
    entry = window.page.locator(".action-widget:visible .monaco-list-row")
    annotate = entry.filter(has_text="Annotate y with its shape")
    window.until(lambda: window.page.keyboard.press("Control+Shift+R"), annotate)
    window.page.locator(".action-widget:visible a", has_text="Show Disabled").click()
    entry.filter(has_text="Extract kernel: the function returns from inside the selection").wait_for()
    window.shot("actions")
    window.page.keyboard.press("Escape")


def test_rename_of_a_dim(window: Window) -> None:
    window.open("model.py")
    window.see("scores: [B, H, S, S] bf16")
    box = window.page.locator(".rename-box input")
    window.put_cursor("model.py", "def project", "C")
    window.until(lambda: window.page.keyboard.press("F2"), box)
    box.fill("K")
    box.press("Enter")
    window.see('def project(x: Tensor["R", "K"], w: Tensor["D", "K"])')
    window.revert()


def test_ir_beside_the_source(window: Window) -> None:
    window.open("model.py")
    window.see("scores: [B, H, S, S] bf16")
    window.put_cursor("model.py", "q @ k.transpose", "transpose")
    window.command("View: Close Primary Side Bar")
    window.command("Tessera: Show IR at Cursor")
    window.choose("Graph")
    window.page.locator('.tab.active[data-resource-name="attend.graph"]').wait_for()
    window.see("scores = contract(")
    source, ir = window.page.locator(".editor-instance").first, window.page.locator(".editor-instance").last
    lit = '.view-overlays [class*="ced-"]'
    window.put_cursor("model.py", "ts.softmax(scores", "softmax")
    ir.locator(lit).first.wait_for()
    window.picture("ir", height=400)
    click = window.page.mouse.click
    window.until(lambda: click(*window.point("scores = contract(", "contract")), source.locator(lit).first)
    window.command("Tessera: Show IR at Cursor")  # in an IR document: another level of the same function
    window.choose("Tile")
    window.page.locator('.tab.active[data-resource-name="attend.tile"]').wait_for()
    window.see("func attend_")
    window.command("View: Show Explorer")


def test_ir_of_a_source_that_was_closed(window: Window) -> None:
    """What is shown of it stays right: the server is asked anew, and knows only files that are open."""
    window.open("model.py")
    window.see("scores: [B, H, S, S] bf16")
    window.put_cursor("model.py", "q @ k.transpose", "transpose")
    window.command("Tessera: Show IR at Cursor")
    window.choose("Schedule")
    ir = window.page.locator('.tab[data-resource-name="attend.schedule"]')
    ir.wait_for()
    ir.click()
    closed = window.page.locator('.tab[data-resource-name="model.py"]')
    window.command("View: Close Other Editors in Group")
    window.command("View: Close Editors in Other Groups")
    closed.wait_for(state="detached")
    settings = json.loads((window.folder / ".vscode/settings.json").read_text())
    write_settings(window.folder, {**settings, "tessera.dims": {"B": 2, "H": 3, "S": 128, "D": 64}})
    window.see("[2, 3, 128, 128]")
    window.shot("ir-alone")
    write_settings(window.folder, settings)


def test_dialect(window: Window) -> None:
    window.open("scale.tess")
    window.see("y: [B, D] f32 @accum(f32) = x * w")
    window.shot("dialect")


def test_notebook_cells(window: Window) -> None:
    window.open("notes.ipynb")
    window.see("y: [4*N] f32 = ts.reshape(x, (-1,))")
    window.picture("notebook")


def test_status_and_target(window: Window) -> None:
    write_settings(window.folder, SETTINGS)
    window.open("norm.py")
    expect(window.status).to_have_text("Tessera: auto")
    window.status.click()
    window.choose("sm_90a")
    expect(window.status).to_have_text("Tessera: sm_90a")
    settings = window.folder / ".vscode/settings.json"
    eventually(lambda: '"tessera.target": "sm_90a"' in settings.read_text())


def test_interpreter_that_does_not_run(window: Window) -> None:
    """The status item says so; once mended, the server is back."""
    window.open("norm.py")
    window.lens("modelled on")
    write_settings(window.folder, {**SETTINGS, "tessera.interpreter": "${workspaceFolder}/tools/none"})
    window.page.locator('[id*="tessera.status"].error-kind').wait_for()
    reason = "tools/none, from the setting tessera.interpreter, does not exist"
    window.until(window.status.hover, window.page.locator(".monaco-hover", has_text=reason))
    window.shot("problem")
    write_settings(window.folder, {**SETTINGS, "tessera.target": "sm_90a"})
    expect(window.status).to_have_text("Tessera: sm_90a")
    window.lens("modelled on sm_90a: ")
    (error,) = [line for line in window.log().splitlines() if "[error]" in line and "tools/none" in line]
    assert f"{reason}." in error


def test_restart(window: Window) -> None:
    window.open("norm.py")
    window.lens("modelled on")
    before = window.log()
    window.command("Tessera: Restart Server")
    eventually(lambda: "[info] starting " in window.log().removeprefix(before))
    expect(window.status.locator(".codicon-layers")).to_be_visible()
    window.lens("modelled on")
    window.command("Tessera: Show Logs")
    window.see("[info] Server process exited successfully")
    window.shot("logs")
    window.command("View: Hide Panel")


def test_profile_of_a_function(window: Window) -> None:
    """Sizes that nobody has said are asked for, and offered again the next time."""
    write_settings(window.folder, {**SETTINGS, "tessera.dims": WITHOUT_C, "tessera.target": "sm_90a"})
    window.open("norm.py")
    window.lens("modelled on sm_90a at C=1024: ")
    window.until(window.lens("Profile").click, window.box)
    expect(window.box).to_have_value("C=1024")
    window.box.fill("C=3O0")
    window.page.locator(".quick-input-message", has_text='"C=3O0" is not NAME=SIZE').wait_for()
    window.shot("sizes")
    window.box.fill("C=384")
    window.box.press("Enter")
    profile = page_of_profile(window)
    expect(profile.locator("h1")).to_contain_text("Tessera profile")
    profile.locator("th", has_text="norm").first.wait_for()
    profile.locator("#timeline canvas").first.wait_for()
    window.lens("measured on cpu at ")
    window.picture("profile", height=560)
    window.open("norm.py")  # closes what is open
    window.until(window.lens("measured on cpu at ").click, profile.locator("h1", has_text="Tessera profile"))
    window.open("norm.py")
    window.put_cursor("norm.py", "return x / ts.sqrt", "sqrt")
    window.command("Tessera: Profile Function")
    expect(window.box).to_have_value("C=384")
    window.box.press("Escape")


def test_an_edit_that_was_tried_is_applied(window: Window) -> None:
    window.open("trial.py")
    window.put_cursor("trial.py", "return x * 2", "x")
    window.command("Tessera: Try Hints of Function")
    expect(window.box).to_have_value("N=1024")
    window.box.press("Enter")
    toast = window.page.locator(".notification-toast", has_text="Add x to itself (tried)")
    toast.wait_for()
    window.lens("Try hints")
    window.shot("tried")
    toast.hover()
    toast.locator(".monaco-button", has_text="Apply").click()
    window.see("return x + x")
    window.revert()
    window.see("return x * 2")
    window.command("View: Hide Panel")


def test_profile_that_is_cancelled(window: Window) -> None:
    """The process ends, and nothing is said to have failed."""
    window.open("endless.py")
    window.lens("modelled on")
    window.until(window.lens("Profile").click, window.box)
    expect(window.box).to_have_value("N=1024")
    window.box.press("Enter")
    toast = window.page.locator(".notification-toast", has_text="Profiling forever")
    toast.wait_for()
    file = window.folder / "endless.py.pid"
    eventually(lambda: file.exists() and bool(file.read_text()))
    process = int(file.read_text())
    assert is_running(process)
    toast.hover()
    toast.locator(".monaco-button", has_text="Cancel").click()
    toast.wait_for(state="detached")
    eventually(lambda: is_running(process), False)
    expect(window.page.locator(".notification-toast", has_text="ended with code")).to_have_count(0)
    file.unlink()


def test_profile_of_a_file(window: Window) -> None:
    window.open("norm.py")
    window.command("Tessera: Profile File")
    profile = page_of_profile(window)
    profile.locator("tbody tr", has_text="norm").first.wait_for()
    expect(profile.locator(".facts")).to_have_text(re.compile("^[^·]+ · [^·]+ · 3 launches · "))
    window.open("norm.py")  # closes what is open
    window.command("Tessera: Open Profile")  # the newest of those of this file
    expect(profile.locator(".facts")).to_have_text(re.compile("^[^·]+ · [^·]+ · 3 launches · "))


def test_nothing_else_was_logged(window: Window) -> None:
    """Neither by the server nor by the extension, in all that was done here."""
    window.open("model.py")
    window.lens("modelled on")
    late = " WARNING pygls.protocol.json_rpc: "  # a request was cancelled after its answer, or came during the end
    expected = ("tools/none, from the setting tessera.interpreter, does not exist.", late)
    errors = [line for line in window.log().splitlines() if "[error]" in line]
    assert [line for line in errors if not any(part in line for part in expected)] == []


def is_running(process: int) -> bool:
    """A zombie that nobody has waited for has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
