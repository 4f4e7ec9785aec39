"""A notebook in a real VS Code whose kernel holds arrays: hints know their shapes once a cell has run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.browsers import expect
from tests.vscode.window import ROOT, Project, Window, write_notebook, write_settings

pytestmark = [pytest.mark.flaky(reruns=1), pytest.mark.timeout(600)]
CELLS = (
    "%load_ext tessera_jupyter\nimport tessera as ts\nfrom tessera import Tensor\nW = read_somewhere()",
    '%%tessera\n@ts.function\ndef layer(x: Tensor["B", 4]):\n    y = x @ W\n    return y',
)


def write(folder: Path) -> None:
    write_notebook(folder / "arrays.ipynb", *CELLS)
    write_settings(folder, {"tessera.interpreter": sys.executable})
    (folder / "first.py").write_text("import tessera as ts\n")


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(write, "first.py")


def test_hints_have_the_shapes_of_the_kernel_s_arrays(window: Window) -> None:
    window.open("arrays.ipynb")
    window.see("y = x @ W")  # nothing is known of it
    window.run_all()
    window.see("y: [B, 24] f32 = x @ W")
    window.see('def layer(x: Tensor["B", 4]):B=32 now')
    window.see("W: [4, 24] f32 = read_somewhere()min 0, max 95, mean 47.5")  # padding is no text
    window.shot("kernel-arrays")
    window.command("Explorer: Focus on Functions of the Session View")
    view = window.page.frame_locator('iframe.webview.ready[src*="tessera.tessera"]').frame_locator(
        "iframe#active-frame"
    )
    table = view.locator(".tessera-functions")
    expect(table).to_contain_text("function layer")
    expect(table).to_contain_text("7.2 µs")
    window.shot("session-view")


def test_the_question_is_the_one_that_is_answered() -> None:
    """What the extension runs in a kernel names what is there; the answer's form is the one that it looks for."""
    from tessera_jupyter.session import message  # slow: IPython

    text = (ROOT / "vscode/src/kernelArrays.ts").read_text()
    assert f'const FORM = "{message.FORM}"' in text
    assert f'get("{message.__name__}")' in text and "m.show()" in text and callable(message.show)
    view = (ROOT / "vscode/src/sessionView.ts").read_text()
    assert "m.show_functions()" in view and callable(message.show_functions)
