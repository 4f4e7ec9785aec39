"""The panel at the side of a real JupyterLab: the functions of the session, as its kernel tells of them."""

from __future__ import annotations

import pytest

from tests.browsers import eventually, expect

IMPORTS = "import numpy as np\nimport tessera as ts\nfrom tessera import Tensor\nx = np.ones((64, 64), np.float32)"
LOAD = "%load_ext tessera_jupyter"
LAYERS = """%%tessera
@ts.function
def layer(x: Tensor["N", "D", ts.f32], w: Tensor["D", "D", ts.f32]) -> Tensor["N", "D", ts.f32]:
    scores = ts.softmax(x @ w)
    return scores @ w


@ts.function
def loop(x: Tensor["n", "m"]):
    while x.sum() > 2:
        x = x * 0.5
    return x
"""
KERNEL = """%%tessera
@ts.kernel(BM=4, BN=4)
def product(a: Tensor["M", "K"], b: Tensor["K", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return a[tile_m : tile_m + c.BM, :] @ b[:, tile_n : tile_n + c.BN]
"""
PROFILE = "%tessera profile layer(x, x)"
TIMES = """from tessera_jupyter import history
from tessera.profiler.trial.paired import PairedTimes
history.paired = lambda *given, **options: PairedTimes((2.0,) * 12, (1.0,) * 12)"""
RESTART = "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }"
ACTIVE = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"


pytestmark = pytest.mark.usefixtures("extension")


@pytest.fixture
def side(lab):
    """Opens a notebook with the panel beside it; the panel is hidden again in the end."""
    pages = []

    def opened(name, *cells):
        page = lab(name, *cells)
        pages.append(page)
        page.page.evaluate("window.jupyterapp.commands.execute('tessera:show-session')")
        return page, page.page.locator("#tessera-session")

    yield opened
    for page in pages:
        page.page.evaluate("window.jupyterapp.shell.collapseRight()")


def card(panel, name):
    return panel.locator(f'.tessera-card[data-name="{name}"]')


def names(panel):
    return panel.evaluate("panel => [...panel.querySelectorAll('.tessera-card')].map(card => card.dataset.name)")


def test_it_follows_the_kernel(side):
    page, panel = side("follow.ipynb", IMPORTS, LAYERS, KERNEL, PROFILE)
    expect(panel).to_contain_text("Tessera is not loaded in this kernel. Run %load_ext tessera_jupyter")
    page.shot("not-loaded")
    panel.get_by_role("button", name="Load Tessera in this kernel").click()
    expect(panel).to_contain_text("No functions or kernels yet")
    page.run(0)
    page.run(2)
    eventually(lambda: names(panel), ["product"])
    page.run(1)
    eventually(lambda: names(panel), ["layer", "loop", "product"])  # as their cells stand, not as they ran
    layer = card(panel, "layer")
    expect(layer.locator("summary")).to_contain_text("modelled")
    layer.locator("summary").click()
    expect(layer).to_contain_text("assumed sizesN=D=1024")
    page.run(3)
    expect(layer).to_contain_text("last sizesN=D=64")
    expect(layer.locator("summary")).to_contain_text("measured")
    expect(layer).to_contain_text("layer:4 x @ w")
    layer.get_by_role("button", name="Go to its cell").click()
    assert page.page.evaluate(ACTIVE) == 1
    layer.get_by_role("button", name="Show it").click()
    assert page.page.evaluate(ACTIVE) == 3
    page.page.evaluate(RESTART)
    expect(panel).to_contain_text("Tessera is not loaded in this kernel")
    assert names(panel) == []
    page.run(0, f"{LOAD}\n{IMPORTS}")
    expect(panel).to_contain_text("No functions or kernels yet")
    page.run(1)
    eventually(lambda: names(panel), ["layer", "loop"])
    expect(card(panel, "layer")).to_contain_text("None yet")


def test_a_kernel_without_tessera_loads_it_by_a_button(side):
    page, panel = side("without.ipynb", "1 + 1", f"{IMPORTS}\n{LAYERS.removeprefix('%%tessera')}")
    page.page.evaluate("window.jupyterapp.shell.collapseRight()")
    page.run(0)
    page.page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name="Tessera").click()
    panel.get_by_role("button", name="Load Tessera in this kernel").click()
    page.run(1)
    expect(card(panel, "layer")).to_be_visible()


@pytest.mark.usefixtures("own_page")  # where the panel has not been shown before Tessera was imported
def test_a_slow_call_in_a_plain_notebook_is_profiled_from_the_toolbar(side):
    """Nothing of Tessera is typed but the program: what the screen offers leads to the hints."""
    page, panel = side("plain.ipynb", IMPORTS, LAYERS.removeprefix("%%tessera\n"), "%time layer(x, x)")
    expect(panel).to_contain_text("Tessera is not loaded in this kernel")  # asked before `import tessera` has run
    page.page.evaluate("window.jupyterapp.shell.collapseRight()")
    page.run_all()
    page.page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name="Tessera").click()
    layer = card(panel, "layer")
    layer.locator("summary").click()
    layer.get_by_role("button", name="Profile layer(x, x)").click()
    expect(layer.locator(".tessera-panel")).to_contain_text("in kernels")
    expect(layer.locator(".tessera-card-time")).to_contain_text("measured")
    page.shot("plain")


def test_an_open_panel_fills_behind_the_import(side):
    page, panel = side("opened_first.ipynb", IMPORTS, LAYERS.removeprefix("%%tessera\n"))
    expect(panel).to_contain_text("Tessera is not loaded in this kernel")
    page.run(0)
    expect(panel).to_contain_text("No functions or kernels yet")
    page.run(1)
    eventually(lambda: names(panel), ["layer", "loop"])


def test_edits_are_compared_when_somebody_asks(side):
    page, panel = side("edits.ipynb", f"{LOAD}\n{IMPORTS}\n{TIMES}", LAYERS, PROFILE)
    page.run_all()
    page.run(1, LAYERS.replace("return scores @ w", "return scores @ w + x"))
    layer = card(panel, "layer")
    layer.locator("summary").click()
    expect(layer).to_contain_text("of the version before the last edit")
    page.run(2)
    expect(layer).to_contain_text("You changed line 5: not compared yet")
    compare = layer.get_by_role("button", name="Compare")
    compare.focus()
    page.page.keyboard.press("Enter")
    expect(layer).to_contain_text("Since you changed line 5: 2.00x, 95 % interval 2.00 to 2.00: faster")
    expect(compare).to_have_count(0)
    expect(layer.locator(".jp-OutputArea")).to_have_count(0)  # the list says it
    expect(layer.locator(".tessera-card-run")).to_be_hidden()
    expect(layer.locator(".tessera-said")).to_have_text("")
    page.shot("compared")
    layer.get_by_role("button", name="Profile again").click()
    expect(layer.locator(".tessera-panel")).to_contain_text("in kernels")  # below the card
    expect(layer.get_by_role("button", name="Show it")).to_have_count(0)


CUT = """panel => [...panel.querySelectorAll('pre, .jp-OutputArea-output, .ts-tried')]
    .filter(e => e.getClientRects().length && (e.scrollWidth > e.clientWidth + 1 || e.clientWidth < 120))
    .map(e => `${e.className}: ${e.scrollWidth} in ${e.clientWidth}`)"""


def test_a_hint_is_tried_and_applied_at_the_side(side):
    """In a panel of 240 pixels, where nothing is cut."""
    call = "x = np.ones((160, 160), np.float32)\ny = product(x, x)"
    page, panel = side("try_at_the_side.ipynb", f"{LOAD}\n{IMPORTS}", KERNEL, call)
    page.run_all()
    product = card(panel, "product")
    product.locator("summary").first.click()
    product.get_by_role("button", name="Profile product(x, x)").click()
    product.get_by_role("tab", name="Hints").click()
    hint = product.locator(".ts-hints > li", has_text="small tiles")
    hint.get_by_role("button", name="Try it").click()
    expect(hint.locator(".ts-tried")).to_contain_text("tried: faster")
    page.settle()
    apply = hint.get_by_role("button", name="Apply: Use BM=")
    apply.scroll_into_view_if_needed()
    page.shot("tried-at-the-side")
    assert panel.evaluate(CUT) == []
    apply.click()
    expect(hint.get_by_role("status").last).to_have_text("Applied to line 2 of cell 2. Run the cell to use it.")
    source = page.page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.getSource()"
    )
    assert "BM=4, BN=4" not in source and "def product" in source


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_nothing_is_cut_in_a_narrow_panel(side, theme):
    page, panel = side("narrow.ipynb", f"{LOAD}\n{IMPORTS}", LAYERS, KERNEL, PROFILE)
    page.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", theme)
    page.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=theme)
    page.run_all()
    eventually(lambda: names(panel), ["layer", "loop", "product"])
    card(panel, "layer").locator("summary").focus()
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("Enter")
    expect(card(panel, "loop")).to_contain_text("how often it loops depends on its data")
    page.page.keyboard.press("Home")
    page.page.keyboard.press("Enter")
    expect(card(panel, "layer").get_by_role("button", name="Show it")).to_be_visible()
    assert panel.evaluate("panel => panel.clientWidth") <= 300
    assert panel.evaluate("panel => panel.scrollWidth - panel.clientWidth") == 0
    try:
        for width in (800, 1200):
            page.page.set_viewport_size({"width": width, "height": 1000})
            page.shot(f"side-{theme.rpartition(' ')[2].lower()}-{width}")
    finally:
        page.page.set_viewport_size({"width": 1280, "height": 1000})
