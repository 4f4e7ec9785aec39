"""`B=32 now`: the sizes at a function's last call, beside its code in a real JupyterLab."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from tessera_jupyter.session import message
from tessera_jupyter.session.arrays import arrays
from tessera_jupyter.session.sizes import called

import tessera as ts
from tests.browsers import eventually, expect
from tests.conftest import require
from tests.jupyter.conftest import ROOT
from tests.jupyter.test_lab import HEAD, NORM
from tests.jupyter.test_labextension import cell, edit, expect_hints, point_at

HINTS = [[3, ": [B, 1] f32"], [9, ": lanes of n, 1024 at a time"]]
DEF, KERNEL_DEF = (line for line in NORM.splitlines() if line.startswith("def "))


def test_an_editor_that_runs_code_is_shown_the_arrays(nb):
    """The expression that VS Code's extension runs: nothing where Tessera is not loaded, and no name stays."""
    text = (ROOT / "vscode/src/kernelArrays.ts").read_text("utf-8")
    tessera = re.search(r"const TESSERA = '(.*)';", text)[1]
    question = re.search(r"const QUESTION = `(.*)`;", text)[1].replace("${TESSERA}", tessera)
    nb.run("W = np.ones((4, 8), np.float32)")
    names = set(nb.shell.user_ns)
    ran = nb.run(question)
    assert ran.error is None and ran.result is None
    (shown,) = ran.displays
    told = shown[message.FORM]["arrays"]["W"]
    assert (told["shape"], told["dtype"], told["elements"]["mean"]) == ([4, 8], "f32", "1")
    assert {n for n in set(nb.shell.user_ns) - names if not n.startswith("_")} == set()
    assert subprocess.run([sys.executable, "-c", question], check=True, capture_output=True).stdout == b""


def test_an_editor_is_shown_the_functions(nb):
    nb.run("%%tessera\n@ts.function\ndef twice(x: Tensor['n']):\n    return x * 2\n")
    ran = nb.run("import tessera_jupyter.session.message as m; m.show_functions()")
    (shown,) = ran.displays
    told = shown[message.FORM]
    assert told["whole"] is True and "twice" in told["functions"] and "modelled" in told["functions"]
    assert "<script" not in told["functions"]


@pytest.fixture
def on_reference(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")


def test_the_last_call_counts_also_where_nothing_is_compiled(on_reference):
    @ts.function
    def twice(x: ts.Tensor["B", "D"]):
        return x * 2

    class Layer:
        @ts.function
        def scaled(x: ts.Tensor["N"]):
            return x * 3

    names = {"twice": twice, "Layer": Layer, "again": twice}
    assert called(names) == []
    for b, d in ((32, 4), (8, 4), (32, 4)):
        twice(np.ones((b, d), np.float32))
        assert [c["sizes"] for c in called(names)] == [{"B": b, "D": d}]
    twice(x=np.ones((3, 5), np.float32))
    Layer.scaled(np.ones(7, np.float32))
    first, second = called(names)
    assert first["sizes"] == {"B": 3, "D": 5}
    assert (first["name"], second["name"], second["sizes"]) == ("twice", "scaled", {"N": 7})
    assert first["text"].splitlines()[0].strip() == "@ts.function"
    assert first["text"].splitlines()[-1].strip() == "return x * 2"


def test_a_call_that_fails_leaves_what_was(on_reference):
    @ts.function
    def product(x: ts.Tensor["M", "K"], y: ts.Tensor["K", "N"]):
        return x @ y

    product(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32))
    with pytest.raises(ts.TesseraError):
        product(np.ones((2, 3), np.float32), np.ones((5, 4), np.float32))
    assert called({"product": product})[0]["sizes"] == {"M": 2, "K": 3, "N": 4}


def test_arrays_are_told_by_shape_and_dtype(on_reference):
    """And nothing else of the namespace: no elements, scalars, classes, names of IPython's, nor objects that do not say
    what they hold."""
    capsule = type("Capsule", (), {"__dlpack__": lambda self: None})()
    names = {
        "W": np.ones((3, 4), np.float32), "t": ts.ones((2,), ts.bf16), "_1": np.ones(3), "s": np.float32(2),
        "text": np.array(["a"]), "kind": np.ndarray, "n": 3, "empty": np.ones((0, 2), np.int64),
        "capsule": capsule,
    }  # fmt: skip
    assert arrays(names) == {
        "W": {"shape": [3, 4], "dtype": "f32"},
        "t": {"shape": [2], "dtype": "bf16"},
        "empty": {"shape": [0, 2], "dtype": "int64"},
    }


def test_a_notebook_without_a_kernel_tells_nobody(nb):
    assert nb.run("%%tessera\n@ts.function\ndef f(x: Tensor['n']):\n    return x + 1\n").error is None
    ran = nb.run("f(np.ones(3, np.float32)).shape")
    assert ran.error is None
    assert ran.displays == [] or ran.stderr == ""


def expect_now(page, *said):
    """What stands beside the functions of cell 1, in their order."""
    eventually(
        lambda: cell(page, 1).evaluate(
            """content => [...content.querySelectorAll('.tessera-now')].map(hint =>
                [hint.closest('.cm-line').innerText.replace(hint.innerText, '').trim(), hint.textContent])"""
        ),
        [[line, text] for line, text in zip((DEF, KERNEL_DEF), said, strict=False)],
    )


@pytest.fixture
def called_page(lab):
    require("npm")
    page = lab("sizes.ipynb", HEAD, NORM, "norm(np.ones((32, 8), np.float32)).shape")
    expect_hints(page, 1, HINTS)
    page.run(0)
    page.run(1)
    expect_now(page)
    page.run(2)
    expect_now(page, "B=32, D=8 now")
    return page


def test_sizes_stand_beside_the_function(called_page):
    page = called_page
    page.shot("sizes")
    part = cell(page, 1).locator(".tessera-hint-link", has_text="B").first
    expect(part).to_have_attribute("title", re.compile(r"(^|\n)B=32 now$"))
    tip = point_at(page, cell(page, 1).get_by_text("mean", exact=True).last, ".tessera-hover")
    expect(tip).to_contain_text("B=32 now")
    page.shot("sizes-hover")
    page.page.mouse.move(5, 5)
    page.run(2, "norm(np.ones((4, 2), np.float32)).shape")
    expect_now(page, "B=4, D=2 now")
    page.run(2, "saxpy(np.ones(5, np.float32), np.ones(5, np.float32), 2.0)")
    expect_now(page, "B=4, D=2 now", "n=5 now")


def test_they_go_with_the_text_and_the_kernel(called_page):
    page = called_page
    edit(page, 1, "* 2", "* 3")  # another function, which nobody has called
    expect_now(page)
    edit(page, 1, "* 3", "* 2")
    expect_now(page, "B=32, D=8 now")
    page.run(1)  # defined anew
    expect_now(page)
    page.run(2)
    expect_now(page, "B=32, D=8 now")
    page.page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    expect_now(page)
    for index in range(3):
        page.run(index)
    expect_now(page, "B=32, D=8 now")


def test_typing_at_the_end_of_that_line(called_page):
    page = called_page
    page.page.evaluate(
        """() => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            notebook.activeCellIndex = 1;
            notebook.mode = 'edit';
            notebook.activeCell.editor.focus();
            notebook.activeCell.editor.setCursorPosition({line: 2, column: 0});
        }"""
    )
    expect(cell(page, 1)).to_be_focused()
    page.page.keyboard.press("End")
    page.page.keyboard.type("  # größe")
    text = "() => window.jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel.source"
    eventually(lambda: page.page.evaluate(text), NORM.replace(DEF, f"{DEF}  # größe"))
    expect_now(page)


def test_a_setting_turns_them_off(called_page):
    page = called_page
    setting = """shown => window.jupyterapp.serviceManager.settings.save(
        'tessera-jupyterlab:plugin', JSON.stringify({inlayHints: {sizes: shown}}))"""
    try:
        page.page.evaluate(setting, False)
        page.reload()
        expect_hints(page, 1, HINTS)
        page.run(2, "norm(np.ones((4, 2), np.float32)).shape")
        expect(page.output(2)).to_contain_text("(4, 2)")  # the kernel tells of a call before it says that it is done
        expect_now(page)
    finally:
        page.page.evaluate(setting, True)
    page.reload()
    expect_hints(page, 1, HINTS)
    page.run(2)
    expect_now(page, "B=32, D=8 now")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_in_both_themes(called_page, theme):
    page = called_page
    page.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", theme)
    page.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=theme)
    page.shot(f"sizes-{theme.rpartition(' ')[2].lower()}")


READS = """%%tessera
@ts.function
def project(x: Tensor["B", 8]):
    y = x @ W
    return y * 2
"""


def test_functions_that_read_arrays_show_their_shapes(lab):
    """As the kernel holds them; one that starts again has forgotten them."""
    require("npm")
    page = lab("arrays.ipynb", HEAD, "W = np.ones([8, 2 + 2], 'float32')", READS)
    expect_hints(page, 2, [])
    page.run(0)
    page.run(1)
    expect_hints(page, 2, [[3, ": [B, 4] f32"]])
    page.shot("arrays")
    page.run(1, "W = np.ones([8, 6], 'float32')")
    expect_hints(page, 2, [[3, ": [B, 6] f32"]])
    page.page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    expect_hints(page, 2, [])
