"""Leaves what functions took in the cache folder, for editors to show beside them."""

from __future__ import annotations

import time
from pathlib import Path

from tessera.compiler.schedule.measured import Measured, digest, record
from tessera.profiler.recording import Recording


def remember(recording: Recording) -> None:
    """Functions whose text lies in a file; what is defined in a notebook is shown there."""
    found: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for launch in recording.launches:
        file, name = str(launch.attributes.get("file", "")), str(launch.attributes.get("function", ""))
        if launch.duration is not None and launch.source == "measured" and file and name:
            found.setdefault(file, {}).setdefault(name, []).append((launch.duration, launch.target))
    now = time.time()
    for file, functions in found.items():
        path = Path(file).absolute()
        try:
            text = digest(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeError):
            continue
        took = {
            name: Measured(sum(ns for ns, _ in runs), len(runs), runs[-1][1], now, text)
            for name, runs in functions.items()
        }
        record(str(path), took)
