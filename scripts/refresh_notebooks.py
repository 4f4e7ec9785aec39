"""Runs the example notebooks and writes their outputs into them, without what differs from one run to the next.

    python scripts/refresh_notebooks.py                    # all of examples/
    python scripts/refresh_notebooks.py examples/00_tour.ipynb

The outputs are committed so that a notebook can be read where it cannot be run.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def main() -> None:
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(EXAMPLES.glob("*.ipynb")):
        refresh(path)


def refresh(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, record_timing=False, store_widget_state=False,
                                resources={"metadata": {"path": folder}})  # fmt: skip
        client.execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in notebook.cells:
        if "outputs" in cell:  # what was shown while waiting, and is empty since
            cell.outputs = joined(o for o in cell.outputs if o.get("data", {}).get("text/plain") != "")
        for output in cell.get("outputs", []):
            if "data" in output:
                output["metadata"] = {}
            if "traceback" in output:  # colours of a terminal
                output["traceback"] = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output["traceback"]]
    nbformat.write(notebook, path)
    print(f"wrote {path.name}: {path.stat().st_size / 1000:.0f} kB")


def joined(outputs: Iterable[Any]) -> list[Any]:
    """Text that was printed in pieces, in one: where it is cut depends on the moment."""
    out: list[Any] = []
    for output in outputs:
        if out and output.output_type == "stream" and out[-1].get("name") == output.name:
            out[-1]["text"] += output.text
        else:
            out.append(output)
    return out


if __name__ == "__main__":
    main()
