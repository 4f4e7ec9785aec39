"""speedscope's evented profiles: one for each row of the layout, times in ns from the start of the recording.

https://www.speedscope.app reads them, and so do editors' viewers of flame graphs.
https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tessera.language.lazy import np
from tessera.profiler.balance import numbered
from tessera.profiler.export.chrome import COMPRESSION
from tessera.profiler.export.columns import Texts, blocks, constant, decimal, joined
from tessera.profiler.export.layout import lay_out
from tessera.profiler.export.slices import Label, Slices, edges
from tessera.profiler.recording import Recording

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def export_speedscope(recording: Recording, path: Path) -> Path:
    """Writes the profiles to `path`, compressed when the name ends in .gz."""
    with gzip.open(path, "wb", COMPRESSION) if path.suffix == ".gz" else path.open("wb") as file:
        file.writelines(_document(recording, path.name))
    return path


def _document(recording: Recording, name: str) -> Iterator[bytes]:
    trace = lay_out(recording)
    base = trace.first
    frames: dict[tuple[str, str, int], int] = {}
    about = {"$schema": SCHEMA, "exporter": "tessera", "name": name, "activeProfileIndex": 0}
    yield json.dumps(about)[:-1].encode() + b',"profiles":['
    separator = ""
    for process in trace.processes:
        for thread in process.threads:
            slices = thread.slices
            span = {"startValue": int(slices.start[0]) - base, "endValue": int(slices.end.max()) - base}
            shown = {"type": "evented", "name": f"{process.name}: {thread.name}", "unit": "nanoseconds", **span}
            yield f'{separator}{json.dumps(shown)[:-1]},"events":['.encode()
            separator = ",\n"
            frame = _frames(slices, trace.labels, frames)
            which, opens = edges(slices)
            for rows in blocks(np.zeros(len(which))):
                found = _events(slices, frame, which[rows], opens[rows], base)
                yield found if rows.start else found[1:]
            yield b"]}"
    shared = {"frames": [_frame(*key) for key in frames]}
    yield f'],"shared":{json.dumps(shared)}}}'.encode()


def _events(slices: Slices, frame: np.ndarray, which: np.ndarray, opens: np.ndarray, base: int) -> bytes:
    at = np.where(opens, slices.start[which], slices.end[which]) - base
    types = Texts([b',{"type":"C","frame":', b',{"type":"O","frame":'])
    parts = [types.of(opens.astype(np.int64)), decimal(frame[which]), constant(b',"at":'), decimal(at), constant(b"}")]
    return joined(len(which), parts)


def _frames(slices: Slices, labels: list[Label], known: dict[tuple[str, str, int], int]) -> np.ndarray:
    """The frame of each slice: its name, and its place in the source where that is known."""
    line = slices.numbers.get("line", np.zeros(len(slices), np.int64))
    first, row = numbered([slices.label, line])
    found: list[int] = []
    for label, number in zip(slices.label[first].tolist(), line[first].tolist(), strict=True):
        args = labels[label].args
        key = (labels[label].name or "(no name)", str(args.get("file", "")), number or int(args.get("line", 0)))
        found.append(known.setdefault(key, len(known)))
    return np.array(found, np.int64)[row]


def _frame(name: str, file: str, line: int) -> dict[str, Any]:
    return {"name": name} | ({"file": file} if file else {}) | ({"line": line} if line else {})
