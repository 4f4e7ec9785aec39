"""Buttons in outputs of a real JupyterLab: a fix that edits its cell, a hint that the kernel tries."""

from __future__ import annotations

import re

import pytest

from tests.browsers import expect

HEAD = "%load_ext tessera_jupyter\nimport numpy as np\nimport tessera as ts\nfrom tessera import Tensor"
BROKEN = """%%tessera
# größe 𝒳
@ts.function
def norm(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    mean = x.mean(axis=-1)
    return x - mean
"""
SOURCE = "i => window.jupyterapp.shell.currentWidget.content.widgets[i].model.sharedModel.getSource()"


pytestmark = pytest.mark.usefixtures("extension")


def test_a_fix_under_an_error_edits_its_cell(lab):
    page = lab("apply.ipynb", HEAD, BROKEN, "norm(np.ones((1, 2), np.float32)).tolist()")
    page.run_all()
    output = page.output(1)
    button = output.get_by_role("button", name="Apply: Add keepdim")
    expect(button).to_have_count(1)
    expect(output.locator(".tessera-fix")).to_contain_text("+ mean = x.mean(axis=-1, keepdim=True)")
    page.shot("apply")
    button.focus()
    page.page.keyboard.press("Enter")
    expect(output.get_by_role("status")).to_have_text("Applied to line 5. Run the cell to use it.")
    mended = BROKEN.replace("axis=-1", "axis=-1, keepdim=True").rstrip("\n")
    assert page.page.evaluate(SOURCE, 1).rstrip("\n") == mended
    expect(button).to_be_focused()
    page.shot("applied")
    page.page.keyboard.press(" ")  # the text is another one now
    expect(output.get_by_role("status")).to_contain_text("Not applied: the cell has changed since")
    assert page.page.evaluate(SOURCE, 1).rstrip("\n") == mended
    page.run(1)
    page.run(2)
    expect(page.output(2)).to_contain_text("[[0.0, 0.0]]")


SMALL_TILES = """%%tessera --profile "product(x, x)" --show hints
x = np.ones((160, 160), np.float32)


@ts.kernel(BM=4, BN=4)
def product(a: Tensor["M", "K"], b: Tensor["K", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return a[tile_m : tile_m + c.BM, :] @ b[:, tile_n : tile_n + c.BN]
"""


def test_a_hint_of_a_panel_is_tried(lab):
    """What comes of it stands in the panel, and in the notebook that is saved."""
    page = lab("try.ipynb", HEAD, SMALL_TILES, "%unload_ext tessera_jupyter")
    page.run(0)
    page.run(1)
    hint = page.output(1).locator(".ts-hints > li", has_text="small tiles")
    button = hint.get_by_role("button", name="Try it")
    button.focus()
    page.shot("try")
    page.page.keyboard.press("Enter")
    expect(hint.locator(".ts-tried")).to_contain_text("predicted")
    expect(hint.locator(".ts-tried")).to_contain_text("equal bits")
    expect(hint.get_by_role("button", name="Try again")).to_be_focused()
    page.settle()
    page.shot("tried")
    saved = page.page.evaluate("() => JSON.stringify(window.jupyterapp.shell.currentWidget.content.model.toJSON())")
    assert "equal bits" in saved
    page.run(2)  # as where a notebook is opened again
    hint.get_by_role("button", name="Try again").click()
    expect(hint).to_contain_text("run the cell again, and try its hint")


KEPT = "before, wanted = product, product(x, x)"
SAME = """from tessera.profiler.trial.paired import paired, timed
times = paired(timed(lambda: before(x, x)), timed(lambda: product(x, x)), 0.5)
print(np.array_equal(wanted, product(x, x)), times.verdict)"""


def test_an_edit_that_was_faster_is_applied(lab):
    """The trial is a real one: blocks of 4 x 4 are several times slower than what it finds."""
    page = lab("faster.ipynb", HEAD, SMALL_TILES, KEPT, SAME)
    for index in range(3):
        page.run(index)
    hint = page.output(1).locator(".ts-hints > li", has_text="small tiles")
    hint.get_by_role("button", name="Try it").click()
    expect(hint.locator(".ts-tried")).to_contain_text("tried: faster")
    page.settle()
    apply = hint.get_by_role("button", name="Apply: Use BM=")
    expect(apply).to_contain_text("less time")
    expect(hint.locator(".tessera-fix")).to_contain_text("- @ts.kernel(BM=4, BN=4)")
    page.shot("faster")
    apply.click()
    expect(hint.locator(".tessera-fix")).to_contain_text("Applied to line 5. Run the cell to use it.")
    page.shot("applied-trial")
    edited = page.page.evaluate(SOURCE, 1)
    ((old, new),) = [(a, b) for a, b in zip(SMALL_TILES.splitlines(), edited.splitlines(), strict=True) if a != b]
    assert old == "@ts.kernel(BM=4, BN=4)" and re.fullmatch(r"@ts\.kernel\(BM=\d+, BN=\d+\)", new)
    page.run(1)
    page.run(3)
    expect(page.output(3)).to_contain_text("True faster")
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.undo()")
    assert page.page.evaluate(SOURCE, 1).rstrip("\n") == SMALL_TILES.rstrip("\n")


def test_a_trial_is_stopped(lab):
    endless = "import time\nfrom tessera.profiler.rules import hint\n\ndef attempt(*given):\n    time.sleep(10_000)\n\n"
    page = lab("stop.ipynb", HEAD, SMALL_TILES, endless + "hint.attempt = attempt")
    page.run_all()
    hint = page.output(1).locator(".ts-hints > li", has_text="small tiles")
    hint.get_by_role("button", name="Try it").click()
    expect(hint.get_by_role("status")).to_have_text("Running")
    expect(hint.get_by_role("button", name="Try it")).to_have_attribute("aria-disabled", "true")
    hint.get_by_role("button", name="Stop").click()
    expect(hint).to_contain_text("Interrupted: nothing was changed")
    expect(hint.get_by_role("button", name="Stop")).to_be_hidden()
    expect(hint.get_by_role("button", name="Try it")).not_to_have_attribute("aria-disabled", "true")


WATCHED = """%%tessera --watch --profile "f(x)" --show profile
x = np.ones((64, 64), np.float32)

@ts.function
def f(x: Tensor["N", "D"]) -> Tensor["N", "D"]:
    return x * 2
"""
EDIT = """([old, text]) => {
    const cell = window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel;
    const at = cell.getSource().indexOf(old);
    cell.updateSource(at, at + old.length, text);
}"""
TIMES = """from tessera_jupyter import history
from tessera.profiler.trial.paired import PairedTimes
history.paired = lambda *given, **options: PairedTimes((2.0,) * 12, (1.0,) * 12)"""


def test_a_watched_cell_runs_after_an_edit_without_errors(lab):
    page = lab("watch.ipynb", f"{HEAD}\n{TIMES}", WATCHED)
    page.run(0)
    page.page.evaluate(EDIT, ["x * 2", "x * 3"])
    page.pass_time(2500)  # more than a watched cell waits
    assert not page.page.locator(".tessera-panel").count(), "nobody has run it yet"
    page.run(1)
    panel = page.output(1)
    expect(panel).to_contain_text("the next edit is compared with this run of f(x)")
    page.page.evaluate(EDIT, ["x * 3", "y * 3"])
    expect(page.page.locator(".cm-lintRange-error")).to_have_count(1)
    page.pass_time(2500)
    expect(panel).to_contain_text("the next edit is compared with this run of f(x)")
    page.page.evaluate(EDIT, ["y * 3", "x * 4"])
    expect(panel).to_contain_text("Since you changed line 6: 2.00x, 95 % interval 2.00 to 2.00: faster")
    page.settle()
    page.shot("watched")
    page.page.evaluate(EDIT, [" --watch", ""])
    page.page.evaluate(EDIT, ["x * 4", "x * 5"])
    page.pass_time(2500)
    expect(panel).to_contain_text("Since you changed line 6")
