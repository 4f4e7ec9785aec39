"""Files in the form of PyTorch's profiler (Kineto), which TensorBoard's plugin and Holistic Trace Analysis read.

One file a rank, `rank0.pt.trace.json`. Both tools know operators that a host starts and kernels that stand on streams
of devices, and count the latter alone: so every launch is a kernel on a stream, also where the device is a CPU, and
every call an operator. Tiles stand below them on rows without a stream, so that no figure counts them as kernels, and
allocations are what the memory view draws. The times are those of the Chrome trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tessera.compiler.machines import HOST
from tessera.compiler.targets.base import PLATFORMS
from tessera.language.lazy import np
from tessera.profiler.balance import nesting_lanes
from tessera.profiler.export.chrome import metadata, text, us
from tessera.profiler.export.layout import FIRST_PID
from tessera.profiler.recording import Recording
from tessera.runtime.events import LaunchEvent

_SCHEMA = 1
_MOST_TILES = 100_000
"""of a file, the longest: both tools hold all of it in memory"""
_FIRST_LANE = 1001
"""rows of lanes are numbered from here, those of streams from 1"""
_MOVES = ("gpu_memcpy", "gpu_memset")
"""categories of copies and fills"""
_TYPES = {HOST: 0}
"""device types of PyTorch; 1 stands for GPUs"""


def export_tensorboard(recording: Recording, folder: Path) -> Path:
    """Writes a file for each rank into `folder`, which is made where it is missing; gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = ranks_of(recording)
    for rank in ranks:
        path = folder / f"rank{rank}.pt.trace.json"
        with path.open("w", encoding="utf-8") as file:
            for part in _document(recording, rank, len(ranks)):
                file.write(part)
    return folder


def ranks_of(recording: Recording) -> list[int]:
    """The ranks whose launches were recorded, ascending; 0 where there are none."""
    return sorted({launch.rank for launch in recording.launches}) or [0]


def _document(recording: Recording, rank: int, ranks: int) -> Iterator[str]:
    launches = [event for event in recording.launches if event.rank == rank and event.duration is not None]
    devices = sorted({event.device for event in launches})
    properties = [{"id": index, "name": device} for index, device in enumerate(devices)]
    about = {"backend": "none", "rank": rank, "world_size": ranks}
    # One member a line, with a space behind each colon: Holistic Trace Analysis looks for the rank with an expression.
    yield f'{{\n"schemaVersion": {_SCHEMA},\n"deviceProperties": {json.dumps(properties)},\n'
    yield f'"distributedInfo": {json.dumps(about)},\n"displayTimeUnit": "ns",\n"traceEvents": [\n'
    base = min([recording.start, *(event.start for event in (*launches, *recording.compiles))])
    lines = [*_host(recording, launches, base)]
    for number, device in enumerate(devices):  # a device's process has its number: the plugin insists
        own = [event for event in launches if event.device == device]
        lines += _device(own, device, number, base)
        lines += _tiles(recording, own, number, base)
    if rank == ranks_of(recording)[0]:
        lines += _memory(recording, base)
    yield ",\n".join(lines)
    yield "\n]}\n"


def _host(recording: Recording, launches: list[LaunchEvent], base: int) -> Iterator[str]:
    """The region as one step, and in it the calls, and where each hands a kernel over.

    A device with a clock of its own tells when a kernel ran, not when it was asked for: its calls are not known.
    """
    yield metadata(FIRST_PID, 1, "process_name", "name", "host")
    spans = [(recording.start, recording.end, "ProfilerStep#0", "user_annotation", dict[str, Any]())]
    for event in recording.compiles:
        about = {"External id": 0, "cache": event.cache}
        spans.append((event.start, event.start + event.duration, f"compile {event.name}", "cpu_op", about))
    calls: dict[int, list[LaunchEvent]] = {}
    for launch in launches:
        platform = PLATFORMS.get(launch.device.partition(":")[0])
        if platform is None or not platform.streams:
            calls.setdefault(int(launch.attributes.get("run", launch.launch)), []).append(launch)
    for run, members in calls.items():
        first, last = min(m.start for m in members), max(m.start + (m.duration or 0) for m in members)
        known = members[0].attributes
        about: dict[str, Any] = {"External id": run}
        if known.get("call_line"):
            about["Call stack"] = f"{known.get('call_file')}({known.get('call_line')}): {known.get('function')}"
        spans.append((first, last, str(known.get("function") or members[0].kernel), "cpu_op", about))
        for launch in members:
            linked = {"correlation": launch.launch, "External id": run}
            spans.append((launch.start, launch.start, "launch", "runtime", linked))
    yield from _rows(spans, FIRST_PID, 1, "calls", base)


def _device(launches: list[LaunchEvent], device: str, number: int, base: int) -> Iterator[str]:
    yield metadata(number, 1, "process_name", "name", device)
    spans = [
        (event.start, event.start + (event.duration or 0), event.title, _category(event), _kernel(event, number))
        for event in launches
    ]
    yield from _rows(spans, number, 1, "stream", base)


def _category(event: LaunchEvent) -> str:
    if "moved" not in event.attributes:
        return "kernel"
    return _MOVES[0] if event.kernel != "fill" else _MOVES[1]


def _tiles(recording: Recording, launches: list[LaunchEvent], number: int, base: int) -> Iterator[str]:
    """A row for each lane, behind the streams' rows."""
    extents, _ = recording.extents
    mine = extents[np.isin(extents["launch"], [event.launch for event in launches])]
    if len(mine) > _MOST_TILES:
        mine = mine[np.sort(np.argpartition(mine["duration"], -_MOST_TILES)[-_MOST_TILES:])]
    titles = {event.launch: event.title for event in launches}
    for row, (resource, slot) in enumerate(np.unique(mine[["resource", "slot"]]).tolist()):
        tid = _FIRST_LANE + row
        yield metadata(number, tid, "thread_name", "name", f"lane {resource}.{slot}")
        here = mine[(mine["resource"] == resource) & (mine["slot"] == slot)]
        for tile in here[np.argsort(here["start"], kind="stable")].tolist():
            found = dict(zip(here.dtype.names, tile, strict=True))
            yield _span(
                f"tile {found['tile']}", "tile", number, tid, found["start"] - base, found["duration"],
                {"kernel": titles[found["launch"]], "line": found["line"]},
            )  # fmt: skip


def _memory(recording: Recording, base: int) -> Iterator[str]:
    for event in sorted(recording.memory, key=lambda e: e.time):
        kind, _, number = event.device.partition(":")
        about = {
            "Device Type": _TYPES.get(kind, 1),
            "Device Id": -1 if kind in _TYPES else int(number or 0),
            "Addr": event.block,
            "Bytes": event.delta,
            "Total Allocated": event.total,
            "Total Reserved": event.total,
        }
        yield (
            f'{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": {FIRST_PID}, "tid": 1, '
            f'"ts": {us(max(0, event.time - base))}, "args": {_args(about)}}}'
        )


def _kernel(event: LaunchEvent, number: int) -> dict[str, Any]:
    """What Kineto says of a kernel, as far as it is known here; what is not known is left out."""
    known = event.attributes
    about: dict[str, Any] = {
        "device": number,
        "correlation": event.launch,
        "External id": int(known.get("run", event.launch)),
        "grid": [*event.grid][::-1] + [1] * (3 - len(event.grid)),
        "kernel": event.kernel,
        "source": event.source,
    }
    if known.get("graph"):
        about |= {"graph id": known["graph"], "graph replay": known["replay"]}
    if known.get("resources"):
        about["blocks per SM"] = event.tiles / known["resources"]
    if known.get("occupancy") is not None:
        about["est. achieved occupancy %"] = round(100 * known["occupancy"])
    if known.get("moved"):
        about["bytes"] = known["moved"]
    return about | {name: value for name in ("flops", "bytes") if (value := getattr(event, name)) is not None}


Span = tuple[int, int, str, str, dict[str, Any]]


def _rows(spans: list[Span], pid: int, first: int, name: str, base: int) -> Iterator[str]:
    """The spans on as many rows as they need to nest; a kernel's stream is the number of its row."""
    begin, end = (np.array([span[at] for span in spans], np.int64) for at in (0, 1))
    lanes = nesting_lanes(begin, end)
    order = np.lexsort((np.arange(len(spans)), -end, begin))
    for lane in range(int(lanes.max(initial=0)) + 1):
        tid = first + lane
        yield metadata(pid, tid, "thread_name", "name", f"{name} {tid}" if name == "stream" else name)
        for index in order[lanes[order] == lane].tolist():
            start, stop, title, category, about = spans[index]
            args = about | {"stream": tid} if category in ("kernel", *_MOVES) else about
            yield _span(title or "(no name)", category, pid, tid, start - base, stop - start, args)


def _span(name: str, category: str, pid: int, tid: int, start: int, duration: int, args: dict[str, Any]) -> str:
    return (
        f'{{"ph": "X", "cat": "{category}", "name": {text(name)}, "pid": {pid}, "tid": {tid}, '
        f'"ts": {us(start)}, "dur": {us(duration)}, "args": {_args(args)}}}'
    )


def _args(values: dict[str, Any]) -> str:
    return json.dumps({key: json.loads(text(v)) if isinstance(v, str) else v for key, v in values.items()})
