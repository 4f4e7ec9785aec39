"""Runs the tour and writes its outputs into the notebook, without what differs from one run to the next.

    python scripts/refresh_tour.py

The outputs are committed so that the notebook can be read where it cannot be run.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "examples" / "00_tour.ipynb"


def main() -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, record_timing=False, store_widget_state=False,
                                resources={"metadata": {"path": folder}})  # fmt: skip
        client.execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in notebook.cells:
        if "outputs" in cell:  # what was shown while waiting, and is empty since
            cell.outputs = [o for o in cell.outputs if o.get("data", {}).get("text/plain") != ""]
        for output in cell.get("outputs", []):
            if "data" in output:
                output["metadata"] = {}
            if "traceback" in output:  # colours of a terminal
                output["traceback"] = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output["traceback"]]
    nbformat.write(notebook, TOUR)
    print(f"wrote {TOUR.name}: {TOUR.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
