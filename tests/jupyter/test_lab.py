"""The notebook as a person meets it: a real JupyterLab in a real browser. Screenshots lie in the temporary folder."""

from __future__ import annotations

import re

import pytest

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


def lit(panel, side):
    """The text of the lines that are lit in one column, blanks collapsed."""
    return [" ".join(t.split()) for t in panel.locator(f"pre[data-side={side}] .ts-lit").all_text_contents()]


def test_shapes_stand_under_the_cell(lab):
    page = lab("shapes.ipynb", HEAD, NORM, CALL)
    page.run_all()
    panel = page.output(1)
    assert panel.get_by_role("tab").all_text_contents() == ["Shapes", "IR", "Kernel", "Profile", "Hints"]
    rows = panel.locator(".ts-row").all_inner_texts()
    assert any(re.search(r"4\s+mean = x\.mean.*│ mean \[B, 1\] f32", row) for row in rows)
    assert not panel.locator(".ts-ir").is_visible()
    page.shot("shapes")
    assert "[[-2.0, 2.0]]" in page.output(2).inner_text()


def test_a_line_lights_up_at_every_level_and_back(lab):
    page = lab("linked.ipynb", HEAD, NORM)
    page.run_all()
    panel = tab(page.output(1), "IR").locator(".ts-linked").first
    for button in panel.locator(".ts-choice button").all():
        if button.get_attribute("aria-pressed") == "false":
            button.click()
    source = panel.locator("pre[data-side=source] .ts-l")
    source.nth(2).hover()
    assert lit(panel, "source") == ["4 mean = x.mean(axis=-1, keepdim=True)"]
    for side, op in (("graph", '"graph.sum"'), ("tile", '"tile.reduce"')):
        assert any(op in text for text in lit(panel, side)), side
        assert not any("graph.return" in text for text in lit(panel, side))
    assert lit(panel, "schedule") or lit(panel, "target")
    page.shot("linked")
    panel.locator("pre[data-side=graph] .ts-l", has_text='"graph.sub"').first.hover()
    assert lit(panel, "source") == ["5 return (x - mean) * 2"]
    assert any('"tile.sub"' in text for text in lit(panel, "tile"))
    page.page.mouse.move(5, 5)
    assert lit(panel, "source") == []


def test_the_keyboard_does_all_that_the_mouse_does(lab):
    page = lab("keys.ipynb", HEAD, NORM)
    page.run_all()
    output = page.output(1)
    output.get_by_role("tab", name="Shapes").focus()
    page.page.keyboard.press("ArrowRight")
    assert output.get_by_role("tab", name="IR").get_attribute("aria-selected") == "true"
    panel = output.locator(".ts-linked").first
    panel.locator("pre[data-side=source] .ts-l").first.focus()
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("ArrowDown")
    assert lit(panel, "source") == ["4 mean = x.mean(axis=-1, keepdim=True)"]
    page.page.keyboard.press("Enter")
    output.get_by_role("tab", name="IR").focus()
    assert lit(panel, "source") == ["4 mean = x.mean(axis=-1, keepdim=True)"]  # it stays
    assert panel.locator("pre[data-side=graph] .ts-pin").count() > 0
    panel.locator("pre[data-side=source] .ts-pin").focus()
    page.page.keyboard.press("Escape")
    assert panel.locator(".ts-pin").count() == 0
    assert page.page.locator(".jp-Notebook .jp-Cell").count() == 2  # no key has reached the notebook's own commands


def test_one_function_at_a_time(lab):
    page = lab("several.ipynb", HEAD, NORM)
    page.run_all()
    kernels = tab(page.output(1), "Kernel")
    assert kernels.locator(".ts-subject:visible").count() == 1
    kernels.get_by_role("combobox").select_option("saxpy")
    assert kernels.locator(".ts-subject:visible").get_attribute("data-name") == "saxpy"
    page.shot("kernel")


def test_an_error_points_at_the_line_and_the_fix_mends_it(lab):
    broken = NORM.replace(", keepdim=True", "")
    page = lab("error.ipynb", HEAD, broken, CALL)
    page.run_all()
    said = page.output(1).inner_text()
    line = next(line for line in broken.splitlines() if "x - mean" in line)
    number = broken.splitlines().index(line) + 1
    shown = re.search(rf"^ +{number} \| (.*)\n +\| ( *)(\^+)", said, re.M)
    assert shown is not None, said
    assert shown[1] == line
    start = len(shown[2])
    assert line[start : start + len(shown[3])] == "x - mean"
    assert "+ mean = x.mean(axis=-1, keepdim=True)" in said
    assert "norm is not defined until that is fixed" in said
    page.shot("error")
    page.run(1, NORM)
    page.run(2)
    assert "[[-2.0, 2.0]]" in page.output(2).inner_text()


def test_an_edited_cell_gives_new_results(lab):
    page = lab("edited.ipynb", HEAD, NORM, CALL)
    page.run_all()
    assert "[[-2.0, 2.0]]" in page.output(2).inner_text()
    page.run(1, NORM.replace("* 2", "* 3"))
    page.run(2)
    assert "[[-3.0, 3.0]]" in page.output(2).inner_text()


def test_a_profile_fills_the_cell_that_defined_the_function(lab):
    page = lab("profile.ipynb", HEAD, NORM, "%tessera profile norm(np.ones((64, 64), np.float32))")
    page.run(0)
    page.run(1)
    assert "Not run yet" in tab(page.output(1), "Profile").inner_text()
    page.run(2)
    assert "Tiles over time" in page.output(2).inner_text()
    profile = tab(page.output(1), "Profile")
    assert "Tiles over time" in profile.inner_text()
    assert profile.locator("svg rect").count() > 1
    assert "Roofline" in profile.inner_text()
    page.shot("profile")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_is_readable_in_both_themes(lab, theme):
    page = lab("theme.ipynb", HEAD, NORM)
    page.run_all()
    page.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", theme)
    page.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=theme)
    output = page.output(1)
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
    page = lab("saved.ipynb", HEAD, NORM)
    page.run_all()
    page.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.page.reload()
    page.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    panel = page.output(1)
    panel.get_by_role("tab").first.wait_for()
    assert panel.get_by_role("tab").count() == 5
    tab(panel, "IR").locator("pre[data-side=source] .ts-l:visible").nth(2).hover()
    assert lit(panel.locator(".ts-linked").first, "graph")

    untrusted = (
        server.root / "untrusted.ipynb"
    )  # a copy that this server has never run: scripts and styles are taken out
    untrusted.write_text((server.root / "saved.ipynb").read_text().replace("* 2", "* 2 "))
    page.page.goto(f"{server.url}/lab/tree/{untrusted.name}?reset")
    page.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    static = page.output(1)
    static.locator(".tessera-panel").wait_for()
    assert static.get_by_role("tab").count() == 0
    text = static.inner_text()
    assert "mean [B, 1] f32" in " ".join(text.split())
    assert "ts-tab" not in text and "addEventListener" not in text
    page.shot("untrusted")


def test_waiting_is_shown_and_can_be_interrupted(lab):
    page = lab("wait.ipynb", HEAD + "\nimport time", "%tessera profile time.sleep(60)", "1 + 1")
    page.run(0)
    page.page.evaluate(
        """() => {
            window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1;
            window.jupyterapp.commands.execute('notebook:run-cell');
        }"""
    )
    output = page.output(1)
    output.locator(".tessera-progress").wait_for(timeout=15_000)
    assert "Running time.sleep(60) ..." in output.inner_text()
    page.shot("waiting")
    page.page.evaluate("window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.settle()
    assert "KeyboardInterrupt" in output.inner_text()
    assert output.locator(".tessera-progress").count() == 0
    page.run(2)
    assert "2" in page.output(2).inner_text()
