"""The notebook as a person meets it: a real JupyterLab in a real browser. Screenshots lie in the temporary folder."""

from __future__ import annotations

import re

import pytest

from tests.browsers import eventually, expect

HEAD = "%load_ext tessera_jupyter\nimport numpy as np\nimport tessera as ts\nfrom tessera import Tensor"
NORM = """%%tessera
@ts.function
def norm(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    mean = x.mean(axis=-1, keepdim=True)
    return (x - mean) * 2


@ts.kernel
def saxpy(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], alpha: ts.f32) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y
"""
CALL = "norm(np.array([[1, 3]], np.float32)).tolist()"


def tab(output, name):
    button = output.get_by_role("tab", name=re.compile(name))
    button.click()
    return output.locator(f".ts-{name.lower()}")


def lit(panel, side, text=""):
    """The lines that are lit in one column, those with a text."""
    return panel.locator(f"pre[data-side={side}] .ts-lit").filter(has_text=text)


def test_shapes_stand_under_the_cell(lab):
    page = lab("shapes.ipynb", HEAD, NORM, CALL)
    page.run_all()
    panel = page.output(1)
    expect(panel.get_by_role("tab")).to_have_text(["Shapes", "IR", "Kernel", "Profile", "Hints"])
    row = panel.locator(".ts-row").filter(has_text="mean = x.mean")
    expect(row).to_have_text(re.compile(r"^\s*4\s+mean = x\.mean.*│ mean \[B, 1\] f32"))
    expect(panel.locator(".ts-ir")).to_be_hidden()
    page.shot("shapes")
    expect(page.output(2)).to_contain_text("[[-2.0, 2.0]]")


def test_a_line_lights_up_at_every_level_and_back(lab):
    page = lab("linked.ipynb", HEAD, NORM)
    page.run_all()
    panel = tab(page.output(1), "IR").locator(".ts-linked").first
    for button in panel.locator(".ts-choice button").all():
        if button.get_attribute("aria-pressed") == "false":
            button.click()
    source = panel.locator("pre[data-side=source] .ts-l")
    source.nth(2).hover()
    expect(lit(panel, "source")).to_have_text(["4 mean = x.mean(axis=-1, keepdim=True)"])
    for side, op in (("graph", "= sum(x"), ("tile", '= reduce(t1, op="sum"')):
        expect(lit(panel, side, op)).not_to_have_count(0)
    expect(lit(panel, "graph", "return t3")).to_have_count(0)
    expect(lit(panel, "schedule").or_(lit(panel, "target"))).not_to_have_count(0)
    page.shot("linked")
    panel.locator("pre[data-side=graph] .ts-l", has_text="= sub(x, mean)").first.hover()
    expect(lit(panel, "source")).to_have_text(["5 return (x - mean) * 2"])
    expect(lit(panel, "tile", "= sub(")).not_to_have_count(0)
    page.page.mouse.move(5, 5)
    expect(lit(panel, "source")).to_have_count(0)


def test_the_keyboard_does_all_that_the_mouse_does(lab):
    page = lab("keys.ipynb", HEAD, NORM)
    page.run_all()
    output = page.output(1)
    output.get_by_role("tab", name="Shapes").focus()
    page.page.keyboard.press("ArrowRight")
    expect(output.get_by_role("tab", name="IR")).to_have_attribute("aria-selected", "true")
    panel = output.locator(".ts-linked").first
    panel.locator("pre[data-side=source] .ts-l").first.focus()
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("ArrowDown")
    expect(lit(panel, "source")).to_have_text(["4 mean = x.mean(axis=-1, keepdim=True)"])
    page.page.keyboard.press("Enter")
    expect(panel.locator("pre[data-side=graph] .ts-pin")).not_to_have_count(0)
    output.get_by_role("tab", name="IR").focus()
    expect(lit(panel, "source")).to_have_text(["4 mean = x.mean(axis=-1, keepdim=True)"])  # it stays
    panel.locator("pre[data-side=source] .ts-pin").focus()
    page.page.keyboard.press("Escape")
    expect(panel.locator(".ts-pin")).to_have_count(0)
    expect(page.page.locator(".jp-Notebook .jp-Cell")).to_have_count(2)  # no key has reached the notebook's commands


def test_one_function_at_a_time(lab):
    page = lab("several.ipynb", HEAD, NORM)
    page.run_all()
    kernels = tab(page.output(1), "Kernel")
    expect(kernels.locator(".ts-subject:visible")).to_have_count(1)
    kernels.get_by_role("combobox").select_option("saxpy")
    expect(kernels.locator(".ts-subject:visible")).to_have_attribute("data-name", "saxpy")
    page.shot("kernel")


def test_an_error_points_at_the_line_and_the_fix_mends_it(lab):
    broken = NORM.replace(", keepdim=True", "")
    page = lab("error.ipynb", HEAD, broken, CALL)
    page.run_all()
    output = page.output(1)
    expect(output).to_contain_text("+ mean = x.mean(axis=-1, keepdim=True)")
    expect(output).to_contain_text("norm is not defined until that is fixed")
    said = output.inner_text()
    line = next(line for line in broken.splitlines() if "x - mean" in line)
    number = broken.splitlines().index(line) + 1
    shown = re.search(rf"^ +{number} \| (.*)\n +\| ( *)(\^+)", said, re.M)
    assert shown is not None, said
    assert shown[1] == line
    start = len(shown[2])
    assert line[start : start + len(shown[3])] == "x - mean"
    page.shot("error")
    page.run(1, NORM)
    page.run(2)
    expect(page.output(2)).to_contain_text("[[-2.0, 2.0]]")


def test_an_edited_cell_gives_new_results(lab):
    page = lab("edited.ipynb", HEAD, NORM, CALL)
    page.run_all()
    expect(page.output(2)).to_contain_text("[[-2.0, 2.0]]")
    page.run(1, NORM.replace("* 2", "* 3"))
    page.run(2)
    expect(page.output(2)).to_contain_text("[[-3.0, 3.0]]")


def test_a_profile_fills_the_cell_that_defined_the_function(lab):
    page = lab("profile.ipynb", HEAD, NORM, "%tessera profile norm(np.ones((64, 64), np.float32))")
    page.run(0)
    page.run(1)
    expect(tab(page.output(1), "Profile")).to_contain_text("Not run yet")
    page.run(2)
    expect(page.output(2)).to_contain_text("Tiles over time")
    profile = tab(page.output(1), "Profile")  # it is drawn anew
    expect(profile).to_contain_text("Tiles over time")
    expect(profile).to_contain_text("Roofline")
    expect(profile.locator(".ts-over-time canvas")).to_be_visible()
    page.shot("profile")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_is_readable_in_both_themes(lab, theme):
    page = lab("theme.ipynb", HEAD, NORM)
    page.run_all()
    page.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", theme)
    page.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=theme)
    output = page.output(1)
    output.get_by_role("tab").first.wait_for()
    contrast = page.page.evaluate(
        """() => {
            const number = c => c.match(/[\\d.]+/g).map(Number);
            const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
                .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const behind = e => {
                for (; e; e = e.parentElement) {
                    const c = number(getComputedStyle(e).backgroundColor);
                    if (c.length < 4 || c[3] > 0.9) return c;
                }
                return [255, 255, 255];
            };
            return ['.ts-type', '.ts-row', '.ts-n', '[role=tab]'].map(s => {
                const e = document.querySelector('.tessera-panel ' + s);
                const [a, b] = [number(getComputedStyle(e).color), behind(e)].map(luminance).sort((x, y) => y - x);
                return (a + 0.05) / (b + 0.05);
            });
        }"""
    )
    tab(output, "IR")
    page.shot(theme.rpartition(" ")[2].lower())
    assert min(contrast) >= 3.5, contrast


def test_a_saved_notebook_is_interactive_without_a_kernel_and_readable_without_trust(lab, server):
    training = (
        "ts.train(ts.nn.Linear(2, 2, key=0), ts.optimizers.SGD(0.1), loss, [np.ones((4, 2), np.float32)], steps=5)"
    )
    training = f"import numpy as np\ndef loss(model, x):\n    return ts.mse(model(x), x)\nrun = {training}"
    page = lab("saved.ipynb", HEAD, NORM, "%tessera profile norm(ts.ones((64, 32)))", training)
    page.run_all()
    assert images(page.output(2)) == images(page.output(3)) == (), "there are the pictures themselves"
    page.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.reload()
    panel = page.output(1)
    expect(panel.get_by_role("tab")).to_have_count(5)
    tab(panel, "IR").locator("pre[data-side=source] .ts-l:visible").nth(2).hover()
    expect(lit(panel.locator(".ts-linked").first, "graph")).not_to_have_count(0)

    untrusted = (
        server.root / "untrusted.ipynb"
    )  # a copy that this server has never run: scripts and styles are taken out
    untrusted.write_text((server.root / "saved.ipynb").read_text().replace("* 2", "* 2 "))
    page.open(untrusted.name)
    static = page.output(1)
    expect(static.locator(".tessera-panel")).to_contain_text("mean [B, 1] f32")
    expect(static.get_by_role("tab")).to_have_count(0)
    text = static.inner_text()
    assert "ts-tab" not in text and "addEventListener" not in text
    of_profile = page.output(2)
    for section in of_profile.locator("details").all():
        section.evaluate("e => { e.open = true; }")
    assert len(images(of_profile)) == 4, "tiles, times of tiles, roofline, memory"
    assert images(page.output(3)) == ((380, 170),) * 2, "loss and gradient norm"
    of_profile.locator("img").last.scroll_into_view_if_needed()
    page.shot("untrusted")


def images(output) -> tuple[tuple[int, int], ...]:
    """The sizes of the images that are seen and could be drawn."""
    found = output.locator("img").evaluate_all(
        "all => all.filter(e => e.getClientRects().length && e.naturalWidth).map(e => [e.width, e.height])"
    )
    return tuple(map(tuple, found))


def test_waiting_is_shown_and_can_be_interrupted(lab):
    page = lab("wait.ipynb", HEAD + "\nimport time", "%tessera profile time.sleep(600)", "6 * 7")
    page.run(0)
    page.page.evaluate(
        """() => {
            window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1;
            window.jupyterapp.commands.execute('notebook:run-cell');
        }"""
    )
    output = page.output(1)
    expect(output.locator(".tessera-progress")).to_contain_text("Running time.sleep(600) ...")
    page.shot("waiting")
    page.page.evaluate("window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.settle()
    expect(output).to_contain_text("KeyboardInterrupt")
    expect(output.locator(".tessera-progress")).to_have_count(0)
    page.run(2)
    expect(page.output(2)).to_contain_text("42")


COPIES = """%%tessera --target sm_90a
@ts.function
def steps(x: Tensor["N", 512, ts.f32], w: Tensor[512, 512, ts.f32]):
    for i in range(400):
        x = ts.tanh(x @ w * (1.0 + i)) + ts.softmax(x, axis=-1) * i
    return x
"""


def test_a_compilation_of_minutes_is_warned_of_and_can_be_interrupted(lab):
    page = lab("copies.ipynb", HEAD, COPIES, "steps.__name__, 6 * 7")
    page.run(0)
    warning = page.page.locator(".cm-lintRange-warning")
    expect(warning).to_have_text("range(400)")
    page.page.evaluate(
        """() => {
            window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1;
            window.jupyterapp.commands.execute('notebook:run-cell');
        }"""
    )
    output = page.output(1)
    expect(output.locator(".tessera-progress")).to_contain_text("Compiling steps")
    page.page.evaluate("window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.settle()
    expect(output).to_contain_text("KeyboardInterrupt: Tessera was interrupted. What was defined before it stays.")
    expect(output.locator(".tessera-progress")).to_have_count(0)
    assert "magics.py" not in output.inner_text()
    page.shot("interrupted")
    page.run(2)
    expect(page.output(2)).to_contain_text("('steps', 42)")


def test_a_cell_in_a_kernel_without_tessera_is_offered_to_load_it(lab):
    imports = "import tessera as ts\nfrom tessera import Tensor\n"
    page = lab("not_loaded.ipynb", "1 + 1", NORM.replace("%%tessera\n", f"%%tessera\n{imports}"))
    page.run_all()
    expect(page.output(1)).to_contain_text("Cell magic `%%tessera` not found")
    offer = page.page.get_by_role("button", name="Load it and run the cell")
    expect(offer).to_be_visible()
    page.shot("not-loaded")
    offer.click()
    expect(page.output(1).get_by_role("tab", name="Shapes")).to_be_visible()
    expect(offer).to_have_count(0)


def test_the_kernels_of_a_profile_fit_into_any_width(lab):
    call = "norm(np.ones((64, 64), np.float32))"
    page = lab("narrow.ipynb", HEAD, NORM.replace("%%tessera", f"%%tessera --profile '{call}'"))
    page.run_all()
    rows = tab(page.output(1), "Profile").locator(".ts-rows").first  # kernels, before the bytes by array
    tiles = page.output(1).locator(".ts-over-time")
    try:
        for width in (700, 800, 1000, 1200):
            page.page.set_viewport_size({"width": width, "height": 1000})
            expect(rows).to_be_visible()
            assert rows.evaluate("e => e.scrollWidth <= e.clientWidth"), width
            expect(rows.locator("td").last).to_have_text(re.compile("memory|cache|compute|latency"))
            expect(tiles.locator("canvas")).to_be_visible()
            eventually(lambda: tiles.evaluate("e => e.scrollWidth <= e.clientWidth"))
        slowest = tiles.locator(".ts-slow tbody tr").first
        line = slowest.locator("td").nth(-2).inner_text()
        slowest.get_by_role("button").focus()  # its line is marked wherever the panel shows the source
        marked = page.output(1).locator(".ts-of-tile")
        expect(marked.first).to_have_attribute("data-l", re.compile(rf"\b{line}\b"))
        page.shot("tiles_chosen")
    finally:
        page.page.set_viewport_size({"width": 1280, "height": 1000})
