"""A kernel for a GPU in a real VS Code: what is said of its sizes, with its fix, and the levels of IR that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browsers import expect
from tests.vscode.window import Project, Window, write_settings

pytestmark = [pytest.mark.flaky(reruns=1), pytest.mark.timeout(600)]
MODEL = """import tessera as ts
from tessera import Tensor


@ts.kernel
def double(x: Tensor["M", "N"], y: Tensor["M", "N"]):
    y[tile_m : tile_m + 16, tile_n : tile_n + 32] = x[tile_m : tile_m + 16, tile_n : tile_n + 32] * 2
"""
NOTE = "x[tile_m : tile_m + 16, tile_n : tile_n + 32] * 2"


def write(folder: Path) -> None:
    (folder / "double.py").write_text(MODEL)
    write_settings(folder, {"tessera.target": "sm_90a"})


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(write, "double.py")


def test_an_assert_that_would_help_is_inserted(untrusted_window: Window) -> None:
    window = untrusted_window
    window.lens("modelled on sm_90a at M=N=1024: ")
    squiggle = window.page.locator(".squiggly-info").first
    squiggle.wait_for(state="attached")
    window.put_cursor("double.py", NOTE, "x[")
    fix = window.page.locator(".action-widget .monaco-list-row", has_text="Insert assert N % 4 == 0")
    window.until(lambda: window.page.keyboard.press("Control+."), fix)
    window.shot("assert")
    fix.click()
    window.see("    assert N % 4 == 0")
    squiggle.wait_for(state="detached")


def test_a_kernel_starts_as_tile_ir(untrusted_window: Window) -> None:
    window = untrusted_window
    window.put_cursor("double.py", "def double", "double")
    window.command("Tessera: Show IR at Cursor")
    levels = window.page.locator(".quick-input-list .monaco-list-row .label-name")
    expect(levels).to_have_text(["Tile", "Target", "Assembly"])
    window.shot("levels")
    window.page.keyboard.press("Escape")
