"""A notebook session in this process, a real JupyterLab, and a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import browsers
from tests.conftest import require

ROOT = Path(__file__).parents[2]
_CLOSE_ALL = "() => [...window.jupyterapp.shell.widgets('main')].forEach(shown => shown.dispose())"
_NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}


@dataclass
class Ran:
    """What a cell gave: `displays` are mime bundles in order, `error` what it raised."""

    displays: list[dict[str, Any]]
    stdout: str
    stderr: str
    error: BaseException | None
    result: Any

    @property
    def html(self) -> str:
        return "\n".join(d.get("text/html", "") for d in self.displays)

    @property
    def text(self) -> str:
        return "\n".join(d.get("text/plain", "") for d in self.displays)


class Notebook:
    """Cells run as the kernel runs them, with their outputs kept."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        InteractiveShell.clear_instance()
        self.shell = InteractiveShell.instance()
        self.shell.history_manager.enabled = False

    def run(self, cell: str) -> Ran:
        from IPython.utils.capture import capture_output

        with capture_output() as out:
            result = self.shell.run_cell(cell, store_history=True)
        displays = [o.data for o in out.outputs]
        return Ran(displays, out.stdout, out.stderr, result.error_before_exec or result.error_in_exec, result.result)

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.shell.user_ns


@pytest.fixture(scope="session")
def extension() -> None:
    """Demands that JupyterLab's extension has been built."""
    require("npm")
    place = ROOT / "jupyter_ext/tessera_jupyter/labextensions/tessera-jupyterlab/package.json"
    assert place.is_file(), "make labextension"


@pytest.fixture
def nb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A session with the extension loaded. How long a cell takes changes nothing in what it shows."""
    require("IPython")
    from tessera_jupyter import progress
    from tessera_jupyter.magics import TesseraMagics

    monkeypatch.setattr(progress, "PATIENCE", 1000.0)
    notebook = Notebook()
    started = notebook.run(
        "%load_ext tessera_jupyter\nimport numpy as np\nimport tessera as ts\nfrom tessera import Tensor"
    )
    assert started.error is None
    yield notebook
    TesseraMagics.remove(notebook.shell)  # what it shows is no other test's
    notebook.shell.clear_instance()


def environment() -> dict[str, str]:
    """For kernels: a plain checkout needs no installation."""
    paths = [str(ROOT), str(ROOT / "jupyter_ext"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def read(path: Path) -> Any:
    """The notebook at `path`."""
    import nbformat  # three seconds of grammars for addresses

    return nbformat.read(path, as_version=4)


def execute(path: Path, folder: Path) -> Any:
    """The notebook at `path` after a run in a fresh kernel, in a folder of its own."""
    notebook = read(path)
    before, os.environ["PYTHONPATH"] = os.environ.get("PYTHONPATH"), environment()["PYTHONPATH"]
    try:
        client = require("nbclient").NotebookClient
        client(notebook, timeout=240, resources={"metadata": {"path": str(folder)}}).execute()
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    return notebook


def texts(cell: Any) -> Iterator[str]:
    """What a cell's outputs say, in every form that is text."""
    for o in cell.outputs:
        forms = o["data"].values() if "data" in o else [o.get("text", "") or "\n".join(o.get("traceback", ()))]
        yield from (form for form in forms if isinstance(form, str))


@dataclass
class Server:
    url: str
    root: Path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab on a port of its own, with settings and files of its own."""
    require("jupyterlab")
    home = tmp_path_factory.mktemp("jupyter")
    root = home / "root"
    root.mkdir()
    news = home / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text(json.dumps(_NO_NEWS))
    folders = {
        "JUPYTER_CONFIG_DIR": "cfg",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "rt",
        "IPYTHONDIR": "ipython",
    }
    folders |= {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "ws", "HOME": ""}
    env = environment() | {name: str(home / folder) for name, folder in folders.items()}
    port = browsers.free_port()
    words = ["--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    words += ["--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={root}"]
    words += ["--LabApp.expose_app_in_browser=True", "--LspStdIoReader.max_wait=0.01"]
    built = ROOT / "jupyter_ext/tessera_jupyter/labextensions"
    words += [f"--{app}.extra_labextensions_path={built}" for app in ("LabApp", "JupyterNotebookApp")]
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *words], env=env, stdout=log, stderr=log, start_new_session=True
        )
        try:
            browsers.wait_for("JupyterLab", f"http://127.0.0.1:{port}/api/status", process)
            yield Server(f"http://127.0.0.1:{port}", root)
        finally:
            process.send_signal(signal.SIGTERM)  # the server shuts its kernels down itself
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def window() -> Iterator[Window]:
    with browsers.chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        context.set_default_timeout(browsers.PATIENCE * 1000)
        yield Window(context)


class Window:
    """A browser's window. JupyterLab takes seconds of work to load and a notebook in it a part of one: so its page
    stays, and tests open their notebooks in it one after the other, as a person does."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.page: Any = None
        """that of JupyterLab, without any notebook"""

    def take(self) -> Any:
        """The page, or a new one; whoever takes it gives it back."""
        page, self.page = self.page, None
        return page or self.context.new_page()

    def give_back(self, page: Any) -> None:
        page.mouse.move(5, 5)
        page.evaluate(_CLOSE_ALL)
        self.page = page


class Page:
    """A notebook open in JupyterLab."""

    def __init__(self, page: Any, address: str, shots: Path) -> None:
        self.page, self.address, self._shots = page, address, shots

    def open(self, path: str) -> None:
        """Shows the notebook at a path alone: in the JupyterLab that is there, else in one that it loads."""
        if self.page.url.startswith(f"{self.address}/lab"):
            self.page.evaluate(_CLOSE_ALL)
            opening = "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path}); }"
            self.page.evaluate(opening, path)  # without a result: the page would describe all that it consists of
        else:
            self.page.goto(f"{self.address}/lab/tree/{path}?reset")
        self._opened()

    def reload(self) -> None:
        """Loads JupyterLab anew, with this notebook alone."""
        path = self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
        self.page.goto(f"{self.address}/lab/tree/{path}?reset")
        self._opened()

    def _opened(self) -> None:
        """Waits until cells can be run: before, JupyterLab would ask which kernel to choose."""
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        self.page.evaluate("""async () => { const p = window.jupyterapp.shell.currentWidget; await p.context.ready;
            await p.sessionContext.ready; await p.sessionContext.session.kernel.info; }""")

    def run_all(self) -> None:
        """Runs every cell through JupyterLab's own command and waits for the kernel to be idle."""
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.settle()

    def run(self, index: int, text: str | None = None) -> None:
        """Runs one cell, after replacing its text if that is given."""
        self.page.evaluate(
            """async ([index, text]) => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = index;
                if (text !== null) notebook.activeCell.model.sharedModel.setSource(text);
                await window.jupyterapp.commands.execute('notebook:run-cell');
            }""",
            [index, text],
        )
        self.settle()

    def settle(self) -> None:
        """Waits for the kernel to have answered all that it was asked: its answer to one question more comes last.
        The page may still have to draw what came."""
        self.page.wait_for_function(
            """() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
                .connectionStatus === 'connected'"""
        )
        self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestKernelInfo()"
        )
        self.page.wait_for_function(
            """() => window.jupyterapp.shell.currentWidget.content.widgets
                .every(c => c.model.executionState !== 'running')"""
        )

    def output(self, index: int) -> Any:
        """The outputs of cell `index`, scrolled to: a long notebook holds only what is in view."""
        area = self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"] .jp-OutputArea').first

        def in_view() -> bool:  # what is drawn later above a cell moves it out of view again
            self.page.evaluate("i => window.jupyterapp.shell.currentWidget.content.scrollToItem(i)", index)
            return area.locator(".jp-OutputArea-child:visible").count() > 0  # some are empty

        browsers.eventually(in_view)
        return area

    def pass_time(self, milliseconds: int) -> None:
        """Lets time pass in the page itself: what it had put off for less has been done then, however slow it is."""
        self.page.evaluate("wait => new Promise(done => setTimeout(done, wait))", milliseconds)

    def shot(self, name: str) -> Path:
        path = self._shots / f"{name}.png"
        self.page.screenshot(path=path)
        return path


@pytest.fixture
def lab(
    server: Server, window: Window, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Page]]:
    """`lab("name.ipynb", "cell", ...)` opens a notebook of these cells; `lab(path)` opens a copy of a file."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    pages: list[Any] = []
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}

    def open_notebook(name: str | Path, *cells: str) -> Page:
        if isinstance(name, Path):
            shutil.copy(name, server.root / name.name)
        else:
            nbformat.write(new_notebook(cells=[new_code_cell(c) for c in cells], metadata=kernel), server.root / name)
        pages.append(window.take())
        page = Page(pages[-1], server.url, tmp_path)
        page.open(Path(name).name)
        return page

    failures = request.session.testsfailed
    yield open_notebook
    for page in pages:
        with contextlib.suppress(Exception):  # the kernel is the test's own; a page that crashed has failed already
            page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
            if request.session.testsfailed == failures and "own_page" not in request.fixturenames:
                window.give_back(page)
        if page is not window.page:
            page.close()


@pytest.fixture
def own_page() -> None:
    """For a test that leaves its page as no other should find it."""
