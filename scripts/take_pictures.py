"""Takes the picture of a notebook for README and the documentation: `python -m pytest -n 0 scripts/take_pictures.py`.

A real JupyterLab in a real browser runs cells of the tour; what the picture is to show is waited for. Look at it before
it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat

from tests.browsers import expect
from tests.jupyter.conftest import Page, lab, server, window  # noqa: F401

ROOT = Path(__file__).parents[1]
IMPORTS, LAYER_NORM = 1, 9
"""cells of the tour"""
MEAN = 2
"""a line of the function"""


def test_take_the_picture_of_the_panel(lab: Callable[..., Page], tmp_path: Path) -> None:  # noqa: F811
    tour = nbformat.read(ROOT / "examples/00_tour.ipynb", as_version=4)
    for cell in tour.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":  # JupyterLab trusts a notebook without outputs, and runs the panel's script
            cell.outputs, cell.execution_count = [], None
    nbformat.write(tour, tmp_path / "00_tour.ipynb")
    page = lab(tmp_path / "00_tour.ipynb")
    page.page.set_viewport_size({"width": 1180, "height": 760})
    page.page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    for cell in (IMPORTS, LAYER_NORM):
        page.run(cell)
    output = page.output(LAYER_NORM)
    output.get_by_role("tab", name="IR").click()
    panel = output.locator(".ts-linked").first
    for button in panel.locator(".ts-choice button").all():
        if (button.get_attribute("aria-pressed") == "true") != (button.inner_text() in ("Graph", "Tile")):
            button.click()
    cell = page.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{LAYER_NORM}"]')
    cell.evaluate("e => e.scrollIntoView({block: 'start'})")
    source = panel.locator("pre[data-side=source] .ts-l:visible")
    expect(source.nth(MEAN)).to_contain_text("mean = ")
    source.nth(MEAN).hover()
    expect(panel.locator("pre[data-side=graph] .ts-lit").first).to_be_visible()
    page.page.screenshot(path=ROOT / "docs/images/notebook.png")
