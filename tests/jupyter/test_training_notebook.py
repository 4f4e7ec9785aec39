"""The notebook that trains a language model: it runs, learns, shows its curves, and goes on where it was stopped."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.browsers import eventually, expect
from tests.jupyter.conftest import execute, read, texts

NOTEBOOK = Path(__file__).parents[2] / "examples/02_training.ipynb"


def code(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def cell(notebook, holds):
    return next(c for c in code(notebook) if holds in c.source)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after a run in a fresh kernel, with fewer and smaller steps."""
    folder = tmp_path_factory.mktemp("training")
    notebook = read(NOTEBOOK)
    for c in code(notebook):
        c.source = c.source.replace("steps = 600", "steps = 60").replace("every=200", "every=25")
        c.source = c.source.replace("width=64, heads=4", "width=16, heads=2").replace("count=300", "count=20")
        c.source = c.source.replace("count=16, length=64", "count=8, length=32").replace("steps=100)", "steps=10)")
    again = cell(notebook, "ts.train(model, optimizer, loss")
    again.source += "\nrun = ts.train(model, optimizer, loss, batch, steps=steps, checkpoint='gpt', every=25)"
    (folder / NOTEBOOK.name).write_text(json.dumps(notebook))
    return execute(folder / NOTEBOOK.name, folder)


def test_every_cell_runs(executed):
    for c in code(executed):
        failed = [o for o in c.outputs if o.output_type == "error"]
        assert bool(failed) == ("raises-exception" in c.metadata.get("tags", ())), (c.source, failed)


def test_it_learns_and_shows_its_curves(executed):
    shown = "\n".join(texts(cell(executed, "ts.train(model, optimizer, loss")))
    (page,) = re.findall(r'<div class="tessera-run".*', shown)
    loss, norm = ElementTree.fromstring(page).iter("svg")
    assert float(loss.get("aria-label").removeprefix("loss ")) < 5.0 and norm.get("aria-label").startswith("grad_norm")
    assert "60 of 60" in page and "gpt is at step 60" in shown


def test_a_nan_is_found_at_its_line(executed):
    said = "\n".join(texts(cell(executed, "def faulty")))
    assert "TS371" in said and re.search(r"the loss of step 10 is nan; log takes -\d", said)
    assert re.search(r"^ +3 \| +extra = ts\.mean\(ts\.log\(", re.sub(r"\x1b\[\d*;?\d*m", "", said), re.M)


def test_what_is_committed_can_be_read_and_is_free_of_noise():
    notebook = read(NOTEBOOK)
    assert NOTEBOOK.stat().st_size < 200_000 and set(notebook.metadata) == {"kernelspec", "language_info"}
    for c in code(notebook):
        assert c.execution_count is not None, "refresh it: python scripts/refresh_notebooks.py"
        for text in texts(c):
            assert "\x1b[" not in text and not re.search(r"/(?:home|root|work|tmp|Users)/", text)
    said = "\n".join(texts(cell(notebook, "nats a byte on text")))
    reached, pairs = map(float, re.search(r"([\d.]+) nats .*: ([\d.]+)", said).groups())
    assert reached < pairs - 0.3
    for c in notebook.cells:
        for target in re.findall(r"\]\(([^)#]+)\)", c.source) if c.cell_type == "markdown" else ():
            assert (NOTEBOOK.parent / target).exists(), target


DATA = """import time
import numpy as np
import tessera as ts
from tessera import nn
x = np.ones((4, 2), np.float32)
def loss(model, x):
    return ts.mse(model(x), x)
def data(i):
    time.sleep(0.01)
    return x + np.float32(i % 3)"""
TRAIN = "run = ts.train(nn.Linear(2, 2, key=0), ts.optimizers.SGD(1e-4), loss, data, steps=1_000_000)"


def test_curves_are_drawn_while_it_runs_and_it_can_be_stopped(lab):
    page = lab("live.ipynb", DATA, TRAIN, "run.step == len(run.history) == int(run.optimizer.step) > 1")
    page.run(0)
    page.page.evaluate(
        """() => { const notebook = window.jupyterapp.shell.currentWidget.content;
            notebook.activeCellIndex = 1; window.jupyterapp.commands.execute('notebook:run-cell'); }"""
    )
    shown = page.output(1).locator(".tessera-run")
    expect(shown.locator("svg")).to_have_count(2)
    expect(shown).to_contain_text(re.compile(r"\d of 1,000,000, [\d:]+ left, [\d.]+/s"))
    before = shown.inner_text()
    eventually(lambda: shown.inner_text() != before)
    page.shot("live")
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()")
    expect(shown).to_contain_text(re.compile(r"interrupted: model and optimizer are those of step [\d,]+"))
    page.run(2)
    expect(page.output(2)).to_contain_text("True")
    page.shot("interrupted")
