"""A window of VS Code, and what a person does in it: each method waits until what it brings about is there."""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.browsers import PATIENCE, expect, succeeds

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build/vscode"
_MIDDLE_OF_WORD = """(line, word) => {
    const nodes = document.createTreeWalker(line, NodeFilter.SHOW_TEXT), pieces = [];
    let text = "";
    while (nodes.nextNode()) {
        pieces.push([text.length, nodes.currentNode]);
        text += nodes.currentNode.textContent.replaceAll("\u00a0", " ");
    }
    const range = document.createRange();
    const from = text.indexOf(word), to = from + word.length;
    for (const [start, node] of pieces) {
        if (start <= from) range.setStart(node, Math.min(from - start, node.length));
        if (start < to) range.setEnd(node, Math.min(to - start, node.length));
    }
    const { x, y, width, height } = range.getBoundingClientRect();
    return [x + width / 2, y + height / 2];
}"""
_AS_WEBP = """async (png) => {
    const image = new Image();
    image.src = `data:image/png;base64,${png}`;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    canvas.getContext("2d").drawImage(image, 0, 0);
    const bytes = await (await canvas.convertToBlob({ type: "image/webp", quality: 0.5 })).bytes();
    return bytes.toBase64();
}"""
MODEL = """import tessera as ts
from tessera import Tensor


@ts.function
def {name}(x: Tensor["N", 4]):
    y = x * 2
    return y
"""
"""a file of a workspace, to be given the name of its function"""


@dataclass
class CodeServer:
    url: str
    home: Path


class Window:
    """One window of VS Code on a folder, in a browser that knows nothing of any other."""

    def __init__(self, browser: Any, server: CodeServer, folder: Path, publishes: bool = False) -> None:
        self.page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.server, self.folder, self.publishes = server, folder, publishes
        self.trusted = self.failed = False
        self.box = self.page.locator(".quick-input-widget input:visible")
        self.status = self.page.locator('[id*="tessera.status"]').first

    def close(self) -> None:
        self.page.context.close()

    def load(self, first: str, workspace: str = "") -> None:
        """Opens the window with one file in it, on the folder or on a workspace file in it."""
        port = self.server.url.rpartition(":")[2]
        opened = [["openFile", f"vscode-remote://127.0.0.1:{port}{self.folder / first}"]]
        place = {"workspace": str(self.folder / workspace)} if workspace else {"folder": str(self.folder)}
        query = {**place, "payload": json.dumps(opened)}
        url = f"{self.server.url}/?{urllib.parse.urlencode(query)}"
        # where reading the workspace file takes too long, VS Code shows a window without folders, and lets it be so
        files = self.page.locator(".explorer-folders-view .monaco-list-row").first
        self.until(lambda: self.page.goto(url), files, 30)
        self.page.locator(".monaco-editor .view-line").first.wait_for()

    def trust(self) -> None:
        """Trusts the folder, as the person who wrote it would."""
        editor, modal = self.page.locator(".workspace-trust-editor"), self.page.locator(".modal-editor-part")
        if not editor.is_visible():
            self.command("Workspaces: Manage Workspace Trust")
        editor.locator(".monaco-button", has_text="Trust").first.click()
        editor.filter(has_text="You trust").wait_for()
        modal.locator(".codicon-close").last.click()
        modal.wait_for(state="detached")
        self.trusted = True

    def open(self, name: str) -> None:
        """Shows a file of the folder, and nothing else."""
        empty = self.page.locator(".editor-group-container.empty")
        self.until(lambda: self.command("View: Close All Editors"), empty)
        tab = self.page.locator(f'.tab.active[data-resource-name="{name}"]')
        self.until(lambda: self.take("Control+p", name, name), tab)

    def revert(self) -> None:
        """Takes back what has not been saved."""
        self.command("File: Revert File")
        self.page.locator(".tab.active:not(.dirty)").wait_for()

    def command(self, title: str) -> None:
        """Runs a command from the palette."""
        self.take("F1", f">{title}", title)

    def take(self, key: str, sought: str, label: str) -> None:
        """Picks an entry of the list that a key opens, once that is of what is sought: letters are marked in it. Opened
        before VS Code had fully started it would lack entries for ever, so it is opened again for them."""
        found = self.entry(label).filter(has=self.page.locator(".highlight")).first
        self.patiently(lambda seconds: self.ask(key, sought, seconds) and succeeds(found.click, seconds))
        found.wait_for(state="hidden")

    def ask(self, key: str, text: str, seconds: float) -> bool:
        """Writes a text where a key asks for one, once nothing else asks; gives whether that could be done."""
        self.page.keyboard.press("Escape")
        closed = succeeds(self.box.wait_for, seconds, state="hidden")
        self.page.keyboard.press(key)
        return closed and succeeds(self.box.fill, seconds, text)

    def choose(self, label: str) -> None:
        """Picks an entry of the list that a command shows."""
        self.entry(label).click()

    def entry(self, label: str) -> Any:
        exact = self.page.locator(".label-name", has_text=re.compile(f"^{re.escape(label)}$"))
        return self.page.locator(".quick-input-list .monaco-list-row", has=exact)

    def until(self, act: Callable[[], object], answer: Any, seconds: float = 4) -> None:
        """Does something until its answer is shown."""

        def attempt(patience: float) -> bool:
            act()
            return succeeds(answer.wait_for, patience)

        self.patiently(attempt, seconds)

    def patiently(self, attempt: Callable[[float], bool], seconds: float = 4) -> None:
        """Attempts what a busy window may miss, and each time waits longer for it, at first some seconds."""
        while not attempt(seconds):
            seconds *= 2
            assert seconds < PATIENCE, "the window does not answer"

    def lines(self) -> list[str]:
        """What the lines in view show, hints included."""
        shown = self.page.locator(".monaco-editor .view-line").all_inner_texts()
        return [line.replace("\xa0", " ").replace("\u200c", "") for line in shown]

    def line(self, text: str) -> Any:
        """The lines in view that show `text`; spaces in the editor are other characters."""
        return self.page.locator(".view-line", has_text=re.compile(re.escape(text).replace(r"\ ", "\xa0")))

    def run_all(self) -> None:
        """Runs a notebook's cells by the stand-in for the Jupyter extension, which VS Code may ask for first."""
        self.command("Notebook: Run All")
        choice = self.page.locator(".quick-input-widget .monaco-list-row", has_text="Stand-in")
        run = self.page.locator(".codicon-notebook-state-success").first
        expect(run.or_(choice).first).to_be_visible()
        if choice.count() and choice.first.is_visible():
            choice.first.click()

    def see(self, text: str) -> None:
        """Waits until a line shows `text`."""
        self.line(text).first.wait_for()

    def lens(self, text: str) -> Any:
        """The first of what is said above functions that holds `text`, once it is shown."""
        lens = self.page.locator(".codelens-decoration a", has_text=text).first
        lens.wait_for()
        return lens

    def point(self, text: str, word: str) -> tuple[float, float]:
        """The middle of `word` in the first line in view that shows `text`, as it is now: lenses and hints move it."""
        x, y = self.line(text).first.evaluate(_MIDDLE_OF_WORD, word)
        return x, y

    def put_cursor(self, file: str, text: str, word: str) -> None:
        """Puts the cursor before `word` in the first line of the file in the active editor that holds `text`."""
        lines = (self.folder / file).read_text().splitlines()
        line = next(number for number, content in enumerate(lines) if text in content)
        column = lines[line].index(word) + 1
        told = self.page.locator('[id="status.editor.selection"]').get_by_text(
            f"Ln {line + 1}, Col {column}", exact=True
        )

        def go(seconds: float) -> bool:
            asked = self.ask("Control+g", f":{line + 1}:{column}", seconds)
            return asked and succeeds(self.box.press, seconds, "Enter") and succeeds(told.wait_for, seconds)

        self.patiently(go)

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")

    def picture(self, name: str, height: int = 380) -> None:
        """A shot which `--update-golden` also makes a picture of the extension's pages: the editors, compressed."""
        self.shot(name)
        if not self.publishes:
            return
        area = self.page.locator(".part.editor").bounding_box()
        clip = {**area, "height": height}
        png = base64.b64encode(self.page.screenshot(clip=clip)).decode()
        blank = self.page.context.new_page()
        webp = blank.evaluate(_AS_WEBP, png)
        blank.close()
        (ROOT / f"vscode/images/{name}.webp").write_bytes(base64.b64decode(webp))

    def log(self) -> str:
        """What the extension has logged in this window."""
        logs = (self.server.home / "user/logs").glob("*/exthost*/tessera.tessera/Tessera.log")
        newest = max(logs, key=lambda log: int(log.parts[-3].removeprefix("exthost")))
        return newest.read_text()


@dataclass(frozen=True)
class Project:
    """What a file's windows are opened on: a folder that `write` makes, with the file `first` shown at first."""

    write: Callable[[Path], None]
    first: str
    workspace: str = ""


class Windows:
    """The window that the tests of one file share, since opening one takes long. After a test that failed, the next has
    another, on a folder written anew: nothing that the failed one left behind can make it fail too, and it can be
    repeated."""

    def __init__(self, project: Project, make: Callable[[], Window]) -> None:
        self._project, self._make = project, make
        self.shown: Window | None = None

    def untrusted(self) -> Window:
        window = self.shown
        if window is None or window.failed or window.trusted:
            self.close()
            window = self.shown = self._make()
            self._project.write(window.folder)
            window.load(self._project.first, self._project.workspace)
        return window

    def trusted(self) -> Window:
        window = self.shown
        if window is None or window.failed or not window.trusted:
            window = self.untrusted()
            window.trust()
        return window

    def close(self) -> None:
        if self.shown is not None:
            self.shown.close()


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of code cells that have not run."""
    made = [{"cell_type": "code", "source": c, "metadata": {}, "outputs": [], "execution_count": None} for c in cells]
    notebook = {"cells": made, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """A folder's settings, in one piece: an editor that sees half of a file takes the rest for deleted."""
    path = folder / ".vscode/settings.json"
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(settings))
    os.replace(new, path)
