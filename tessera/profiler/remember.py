"""Leaves what functions took in the cache folder, for editors to show beside them."""

from __future__ import annotations

import time
from pathlib import Path

from tessera.compiler.predict import Measured, common, digest, record
from tessera.profiler.recording import Recording
from tessera.runtime.events import LaunchEvent


def remember(recording: Recording) -> None:
    """Functions whose text lies in a file; what is defined in a notebook is shown there."""
    found: dict[str, dict[str, list[LaunchEvent]]] = {}
    for launch in recording.launches:
        file, name = str(launch.attributes.get("file", "")), str(launch.attributes.get("function", ""))
        if launch.duration is not None and launch.source == "measured" and file and name:
            found.setdefault(file, {}).setdefault(name, []).append(launch)
    now = time.time()
    for file, functions in found.items():
        path = Path(file).absolute()
        try:
            text = digest(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeError):
            continue
        took = {
            name: Measured(
                sum(r.duration or 0 for r in runs),
                len(runs),
                runs[-1].target,
                now,
                text,
                common(r.attributes.get("sizes", {}) for r in runs),
            )
            for name, runs in functions.items()
        }
        record(str(path), took)
