"""Figures that are kept: what was measured, when, at which commit and on what kind of machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def circumstances() -> dict[str, object]:
    """The kind of machine, without names; the load of the last minute says how busy others kept it."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "load": round(os.getloadavg()[0], 1),
    }


def save(name: str, figures: dict[str, object]) -> str:
    """Keeps a measurement in benchmarks/results; gives the file's name."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**circumstances(), **figures}, indent=1) + "\n", encoding="utf-8")
    return str(path.relative_to(ROOT))
