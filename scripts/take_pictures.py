"""Takes the pictures of notebooks for README and the documentation: `python -m pytest -n 0 scripts/take_pictures.py`.

A real JupyterLab in a real browser runs cells of the tour; what the picture is to show is waited for. Look at it before
it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat

from tests.browsers import expect
from tests.jupyter.conftest import Page, lab, server, window  # noqa: F401
from tests.jupyter.test_actions_in_lab import HEAD, SMALL_TILES

ROOT = Path(__file__).parents[1]
IMPORTS, LAYER_NORM = 1, 9
"""cells of the tour"""
STEP = """%%tessera --profile "step(x, wq, wk, wv, up, down)"
@ts.function
def step(x: Tensor["S", "D", ts.f32], wq: Tensor["D", "D", ts.f32], wk: Tensor["D", "D", ts.f32],
         wv: Tensor["D", "D", ts.f32], up: Tensor["D", "F", ts.f32], down: Tensor["F", "D", ts.f32]):
    for _ in range(4):
        scores = (x @ wq) @ (x @ wk).T * 0.1
        x = x + ts.softmax(scores) @ (x @ wv)
        x = x + ts.gelu(x @ up) @ down
    return x
"""
ARRAYS = """random = np.random.default_rng(0)
x, up, down = (random.random(s, np.float32) / 50 for s in ((512, 128), (128, 512), (512, 128)))
wq, wk, wv = (random.random((128, 128), np.float32) / 50 for _ in range(3))
"""
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


def test_take_the_picture_of_tiles(lab: Callable[..., Page]) -> None:  # noqa: F811
    head = "%load_ext tessera_jupyter\nimport numpy as np\nimport tessera as ts\nfrom tessera import Tensor"
    page = lab("tiles.ipynb", head, ARRAYS, STEP)
    page.page.set_viewport_size({"width": 1180, "height": 1500})
    page.run_all()
    output = page.output(2)
    expect(output.locator(".ts-slow tbody button").first).to_be_visible()
    output.locator(".ts-over-time").screenshot(path=ROOT / "docs/images/tiles.png")


def test_take_the_picture_of_a_tried_hint(lab: Callable[..., Page]) -> None:  # noqa: F811
    page = lab("tried.ipynb", HEAD, SMALL_TILES)
    page.page.set_viewport_size({"width": 1180, "height": 1500})
    page.run_all()
    hint = page.output(1).locator(".ts-hints > li", has_text="small tiles")
    hint.get_by_role("button", name="Try it").click()
    expect(hint.get_by_role("button", name="Apply: Use BM=")).to_be_visible()
    page.settle()
    hint.screenshot(path=ROOT / "docs/images/tried.png")
