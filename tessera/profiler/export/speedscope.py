"""speedscope's evented profiles: one for each row of the layout, times in ns from the start of the recording.

https://www.speedscope.app reads them, and so do editors' viewers of flame graphs.
https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tessera.profiler.export.layout import edges, first_time, lay_out
from tessera.profiler.recording import Recording

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def export_speedscope(recording: Recording, path: Path) -> Path:
    """Writes the profiles to `path`, compressed when the name ends in .gz."""
    processes = lay_out(recording)
    base = first_time(processes)
    frames: dict[tuple[str, str, int], int] = {}
    profiles: list[dict[str, Any]] = []
    for process in processes:
        for name, row in process.threads():
            events = list[dict[str, Any]]()
            for time, item, opens in edges(row):
                about = json.loads(item.args)
                key = (item.name or "(no name)", str(about.get("file", "")), int(about.get("line", 0)))
                index = frames.setdefault(key, len(frames))
                events.append({"type": "O" if opens else "C", "frame": index, "at": time - base})
            profiles.append({
                "type": "evented", "name": f"{process.name}: {name}", "unit": "nanoseconds", "events": events,
                "startValue": events[0]["at"] if events else 0, "endValue": events[-1]["at"] if events else 0,
            })  # fmt: skip
    document = {
        "$schema": SCHEMA, "exporter": "tessera", "name": path.name, "activeProfileIndex": 0,
        "shared": {"frames": [_frame(*key) for key in frames]}, "profiles": profiles,
    }  # fmt: skip
    with gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
    return path


def _frame(name: str, file: str, line: int) -> dict[str, Any]:
    return {"name": name} | ({"file": file} if file else {}) | ({"line": line} if line else {})
