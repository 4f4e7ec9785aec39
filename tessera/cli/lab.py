"""`tessera lab`: JupyterLab on the tour."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tessera.errors import MissingDependency

TOUR = "examples/00_tour.ipynb"


def lab(
    notebook: Annotated[Path | None, typer.Argument(help="The notebook to open. [default: the tour]")] = None,
    port: Annotated[int, typer.Option(help="The port, or the next free one.")] = 8888,
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
) -> None:
    """Open JupyterLab on the tour."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingDependency("jupyterlab", "jupyter", "The notebook")
    path = notebook or _tour()
    if path is not None and not path.is_file():
        raise typer.BadParameter(f"there is no notebook {path}")
    words = [sys.executable, "-P", "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    if (built := _labextensions()) is not None:
        words += [f"--{app}.extra_labextensions_path={built}" for app in ("LabApp", "JupyterNotebookApp")]
        words.append("--LspStdIoReader.max_wait=0.01")
    if not browser:
        words.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        words.append("--allow-root")
    if path is not None:
        words.append(str(path))
    os.execv(sys.executable, words)


def _labextensions() -> Path | None:
    """The extension as built in a source checkout. An installed package has put it where Jupyter looks."""
    found = importlib.util.find_spec("tessera_jupyter")
    built = Path(found.origin).parent / "labextensions" if found and found.origin else None
    return built if built is not None and built.is_dir() else None


def _tour() -> Path | None:
    """The tour of a source checkout; an installed package opens JupyterLab in the current folder."""
    for folder in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (folder / TOUR).is_file():
            return folder / TOUR
    return None
