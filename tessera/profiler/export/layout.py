"""Rows for a trace: which process and thread each launch, tile, phase and compilation stands on.

One process per device and one for the host; one row per residency slot of each resource, because slices of a thread
must nest and co-resident tiles do not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tessera.compiler.predict import sizes_text
from tessera.language.lazy import np
from tessera.profiler.balance import busy_map, nesting_lanes, occupancy
from tessera.profiler.host import place_text, sampled_slices
from tessera.profiler.recording import Recording
from tessera.profiler.style import RESOURCE_NAMES
from tessera.runtime.events import LaunchEvent

FIRST_PID = 1000
"""Process ids start here: Perfetto gives small ones, 0 above all, a meaning of their own. Thread ids start at 1."""

# A counter with more steps than this is given as averages over as many time slices.
_COUNTER_STEPS = 10_000


@dataclass(slots=True, eq=False)
class TraceSlice:
    """A span of time with a name, ns. `args` is JSON text. `flows` are (phase letter "s" or "f", id, time in it)."""

    start: int
    end: int
    name: str
    category: str
    args: str = "{}"
    flows: tuple[tuple[str, int, int], ...] = ()


@dataclass(slots=True, eq=False)
class TraceProcess:
    """Rows by sort key, and counters as (name, series, steps of (time, value))."""

    name: str
    rows: dict[tuple[int, ...], tuple[str, list[TraceSlice]]] = field(default_factory=dict)
    counters: list[tuple[str, str, Sequence[tuple[int, float]]]] = field(default_factory=list)

    def row(self, key: tuple[int, ...], name: str) -> list[TraceSlice]:
        return self.rows.setdefault(key, (name, []))[1]

    def threads(self) -> Iterator[tuple[str, list[TraceSlice]]]:
        """Rows in order, each split so that its slices nest, parents before children."""
        for key in sorted(self.rows):
            name, slices = self.rows[key]
            for lane, members in enumerate(_nested(slices)):
                yield (f"{name} (+{lane})" if lane else name), members


def lay_out(recording: Recording) -> list[TraceProcess]:
    """The processes of a trace: the host first, then the devices by rank and name."""
    devices = _Devices()
    launches = _launch_slices(recording, devices)
    _tile_slices(recording, devices, launches)
    for device in dict.fromkeys(event.device for event in recording.memory):
        held = sorted((event.time, event.total) for event in recording.memory if event.device == device)
        devices.get(0, device, 0).counters.append(("memory", "bytes", held))
    return [_host(recording), *devices.ordered()]


def first_time(processes: list[TraceProcess]) -> int:
    """The earliest moment that anything in them has, ns: a trace counts from it."""
    slices = (item.start for process in processes for _, row in process.rows.values() for item in row)
    steps = (time for process in processes for _, _, points in process.counters for time, _ in points)
    return min(min(slices, default=0), min(steps, default=2**63))


def edges(row: list[TraceSlice]) -> Iterator[tuple[int, TraceSlice, bool]]:
    """(time, slice, whether it begins there) in order of time, each slice inside of those that are open: for formats
    that write beginnings and ends. `row` is one of `TraceProcess.threads`."""
    stack: list[TraceSlice] = []
    for item in row:
        while stack and stack[-1].end <= item.start:
            yield stack[-1].end, stack.pop(), False
        yield item.start, item, True
        stack.append(item)
    while stack:
        yield stack[-1].end, stack.pop(), False


class _Devices:
    """Processes by (rank, device name, index within the launch), made when first asked for."""

    def __init__(self) -> None:
        self._processes: dict[tuple[int, str, int], TraceProcess] = {}

    def get(self, rank: int, device: str, index: int) -> TraceProcess:
        name = device + (f", device {index}" if index else "") + (f", rank {rank}" if rank else "")
        return self._processes.setdefault((rank, device, index), TraceProcess(name))

    def ordered(self) -> list[TraceProcess]:
        return [self._processes[key] for key in sorted(self._processes)]


def _host(recording: Recording) -> TraceProcess:
    host = TraceProcess("host")
    host.row((0,), "profiled region").append(TraceSlice(recording.start, recording.end, "profiled region", "region"))
    for event in recording.compiles:
        row = host.row((1,), "compiler")
        end = event.start + event.duration
        row.append(TraceSlice(event.start, end, f"compile {event.name}", "compile", args_text(cache=event.cache)))
        begin = event.start
        for stage, spent in event.stages:
            row.append(TraceSlice(begin, min(begin + spent, end), stage, "compile"))
            begin = min(begin + spent, end)
    for begin, end, place in sampled_slices(recording):
        about = args_text(file=place.file, line=place.line, function=place.function, doing=place.doing)
        host.row((2,), "Python, sampled").append(TraceSlice(begin, end, place_text(place), "python", about))
    return host


def _launch_slices(recording: Recording, devices: _Devices) -> dict[int, tuple[LaunchEvent, TraceSlice]]:
    found: dict[int, tuple[LaunchEvent, TraceSlice]] = {}
    for launch in recording.launches:
        if launch.duration is None:
            continue
        figures = {name: getattr(launch, name) for name in ("flops", "bytes") if getattr(launch, name) is not None}
        plain = {
            name: value
            for name, value in launch.attributes.items()
            if isinstance(value, (str, int, float)) and name != "title"
        }
        grid = "x".join(map(str, launch.grid))
        plain |= {"sizes": text} if (text := sizes_text(launch.attributes.get("sizes", {}))) else {}
        args = args_text(
            **{
                **plain,
                **figures,
                "launch": launch.launch,
                "kernel": launch.kernel,
                "grid": grid,
                "source": launch.source,
            }
        )
        item = TraceSlice(launch.start, launch.start + launch.duration, launch.title, "launch", args)
        devices.get(launch.rank, launch.device, 0).row((0,), "launches").append(item)
        found[launch.launch] = (launch, item)
    return found


def _tile_slices(recording: Recording, devices: _Devices, launches: dict[int, tuple[LaunchEvent, TraceSlice]]) -> None:
    """Rows of tiles: a tile of several phases is a parent named after the kernel, with the phases as children."""
    tiles = recording.tiles
    if not len(tiles):
        return
    extents, membership = recording.extents
    owners = _owners(extents, devices, launches)
    crowded = len(np.unique(extents["slot"])) > 1
    several = np.bincount(membership, minlength=len(extents)) > 1
    children = several[membership]
    records, record_owners = tiles.records, owners[membership]
    # Parents come first: where one phase fills its whole tile, this order decides which of the two is outside.
    outer = [
        *_place(extents[several], owners[several], launches, None, crowded),
        *_place(records[~children], record_owners[~children], launches, tiles.phases, crowded),
    ]
    for _ in _place(records[children], record_owners[children], launches, tiles.phases, crowded):
        pass
    first: dict[int, TraceSlice] = {}
    for launch_id, item in outer:
        if launch_id not in first or item.start < first[launch_id].start:
            first[launch_id] = item
    _link(launches, first)
    _count_tiles(extents, owners)


def _place(
    records: np.ndarray,
    owners: np.ndarray,
    launches: dict[int, tuple[LaunchEvent, TraceSlice]],
    phases: Sequence[str] | None,
    crowded: bool,
) -> Iterator[tuple[int, TraceSlice]]:
    """Puts a slice for each record on its row, named by phase or, without phases, by kernel; gives (launch, slice)."""
    category = "tile" if phases is None else "phase"
    known: dict[tuple[int, int, int, int], tuple[list[TraceSlice], str, str]] = {}
    """where the records of a launch on a slot go, and what is the same for all of them"""
    for record, process in zip(records.tolist(), owners.tolist(), strict=True):
        launch_id, tile, start, duration, resource, line, slot, phase, rank, device = record
        place = (launch_id, resource, slot, rank << 16 | device)
        if place not in known:
            launch = launches[launch_id][0] if launch_id in launches else None
            kind = RESOURCE_NAMES.get(launch.device.partition(":")[0] if launch else "", "resource")
            title = f"{kind} {resource}, slot {slot}" if crowded else f"{kind} {resource}"
            kernel, source = (launch.title, launch.source) if launch else ("tile", "measured")
            row = process.row((1, resource, slot), title)
            known[place] = row, kernel, f',"launch":{launch_id},"source":"{source}","line":'
        row, kernel, after = known[place]
        name = kernel if phases is None or phases[phase] == "tile" else phases[phase]
        item = TraceSlice(start, start + duration, name, category, f'{{"tile":{tile}{after}{line}}}')
        row.append(item)
        yield launch_id, item


def _owners(extents: np.ndarray, devices: _Devices, launches: dict[int, tuple[LaunchEvent, TraceSlice]]) -> np.ndarray:
    """The process that each tile belongs to, as an array of objects."""
    key = extents["launch"] << 32 | (extents["rank"].astype(np.int64) << 16) | extents["device"]  # quicker than rows
    _, first, group_of = np.unique(key, return_index=True, return_inverse=True)
    processes = np.empty(len(first), object)
    for index, (rank, device, launch_id) in enumerate(extents[["rank", "device", "launch"]][first].tolist()):
        name = launches[launch_id][0].device if launch_id in launches else "unknown device"
        processes[index] = devices.get(rank, name, device)
    return processes[group_of]


def _count_tiles(extents: np.ndarray, owners: np.ndarray) -> None:
    for process in dict.fromkeys(owners.tolist()):
        mine = extents[owners == process]
        times, counts = occupancy(mine)
        name = "tiles in flight"
        if len(times) > _COUNTER_STEPS:
            first, last = int(times[0]), int(times[-1])
            averages = busy_map(mine, np.zeros(len(mine), np.int64), 1, first, last, _COUNTER_STEPS)[0]
            times = np.linspace(first, last, _COUNTER_STEPS, endpoint=False).astype(np.int64)
            counts, name = averages.round(3), "tiles in flight, average"
        process.counters.append((name, "tiles", list(zip(times.tolist(), counts.tolist(), strict=True))))


def _link(launches: dict[int, tuple[LaunchEvent, TraceSlice]], first: dict[int, TraceSlice]) -> None:
    """Joins each launch with its earliest tile. A flow needs two spans that are open, and goes forward in time."""
    for flow, (launch_id, (_, source)) in enumerate(launches.items(), start=1):
        target = first.get(launch_id)
        if target is None or source.start == source.end or target.start < source.start:
            continue
        arrives = max(target.start, source.start + 1)  # of two at one time the order in the file would decide
        if arrives < target.end:
            source.flows += (("s", flow, source.start),)
            target.flows += (("f", flow, arrives),)


def _nested(slices: list[TraceSlice]) -> Iterator[list[TraceSlice]]:
    start = np.array([item.start for item in slices], np.int64)
    end = np.array([item.end for item in slices], np.int64)
    order = np.lexsort((np.arange(len(slices)), -end, start))
    apart = bool((end[order][:-1] <= start[order][1:]).all())
    lanes = np.zeros(len(slices), np.int64) if apart else nesting_lanes(start, end)
    for lane in range(int(lanes.max(initial=0)) + 1):
        yield [slices[index] for index in order[lanes[order] == lane].tolist()]


def args_text(**values: Any) -> str:
    """Strict JSON: what has no number in it (NaN, infinity, beyond 64 bits) becomes its text."""
    members = (f"{text(name)}:{text(value if _is_plain(value) else str(value))}" for name, value in values.items())
    return f"{{{','.join(members)}}}"


@lru_cache(maxsize=4096, typed=True)  # a trace of a million tiles has a handful of names
def text(value: str | float | None) -> str:
    """Strict JSON for one value, with every string written so that Perfetto reads it back."""
    return json.dumps(legible(value) if isinstance(value, str) else value, ensure_ascii=False, allow_nan=False)


def legible(name: str) -> str:
    """`name` without the characters that viewers garble; what stands in for them is recognisable.

    Perfetto undoes JSON's escapes only in strings that hold a quote, and takes a backslash before the closing quote for
    an escape: so control characters become their pictures and backslashes set-minus signs. Half a surrogate pair, which
    UTF-8 cannot say, becomes a question mark.
    """
    return name.encode("utf-8", "replace").decode().translate(_STAND_INS)


_STAND_INS = {code: chr(0x2400 + code) for code in range(0x20)} | {ord("\\"): "\u2216"}


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63
