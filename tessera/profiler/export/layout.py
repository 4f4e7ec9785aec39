"""Rows for a trace: which process and thread each launch, tile, phase and compilation stands on.

One process per device and one for the host; one row per residency slot of each resource, because slices of a thread
must nest and co-resident tiles do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.compiler.predict import sizes_text
from tessera.language.lazy import np
from tessera.profiler.balance import about_phases, busy_map, nesting_lanes, numbered, occupancy
from tessera.profiler.export.slices import Label, Slices, Trace, TraceCounter, TraceProcess, TraceThread
from tessera.profiler.host import place_text, sampled_slices
from tessera.profiler.recording import Recording, Replay
from tessera.profiler.sampling.stacks import HostPlace
from tessera.profiler.style import RESOURCE_NAMES
from tessera.runtime.events import LaunchEvent

FIRST_PID = 1000
"""Process ids start here: Perfetto gives small ones, 0 above all, a meaning of their own. Thread ids start at 1."""

# A counter with more steps than this is given as averages over as many time slices.
_COUNTER_STEPS = 10_000

Span = tuple[int, int, int]
"""start, end, label"""


def lay_out(recording: Recording) -> Trace:
    """The processes of a trace: the host first, then the devices by rank and name."""
    labels: list[Label] = []
    host = _host(recording, labels)
    devices = _Devices()
    timed = [launch for launch in recording.launches if launch.duration is not None]
    launches = _slices([_launch_span(launch, labels) for launch in timed])
    if len(recording.tiles):
        tiles = _tiles(recording, {launch.launch: launch for launch in timed}, labels)
        _link({launch.launch: index for index, launch in enumerate(timed)}, launches, tiles)
        _tile_rows(tiles, devices)
    replays = recording.replays
    around = _alike([(replay.rank, replay.device) for replay in replays])
    for (rank, device), which in _alike([(launch.rank, launch.device) for launch in timed]).items():
        outer = [_replay_span(replays[i], labels) for i in around.get((rank, device), ())]
        row = _slices(outer).followed(launches.take(which)) if outer else launches.take(which)
        devices.get(rank, device, 0).row((0,), "launches", row)
    for device, which in _alike([event.device for event in recording.memory]).items():
        held = sorted((recording.memory[i].time, recording.memory[i].total) for i in which.tolist())
        times, totals = (np.array(column) for column in zip(*held, strict=True))
        devices.get(0, device, 0).process.counters.append(TraceCounter("memory", "bytes", times, totals))
    return Trace(labels, [host, *devices.ordered()])


def _alike(keys: Sequence[Any]) -> dict[Any, np.ndarray]:
    """The indices of each key."""
    found: dict[Any, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return {key: np.array(which) for key, which in found.items()}


def _labelled(labels: list[Label], name: str, category: str, **args: Any) -> int:
    labels.append(Label(name, category, args))
    return len(labels) - 1


def _slices(spans: Sequence[Span]) -> Slices:
    start, end, label = np.array(spans, np.int64).reshape(-1, 3).T
    return Slices(start, end, label, np.zeros_like(start), np.zeros_like(start))


def _threads(name: str, slices: Slices) -> Iterator[TraceThread]:
    """The row as so many threads that slices nest; of two at one time the longer is outside, then the earlier one."""
    slices = slices.take(np.lexsort((-slices.end, slices.start)))
    lanes = nesting_lanes(slices.start, slices.end)
    for lane in range(int(lanes.max(initial=0)) + 1):
        mine = slices.take(np.flatnonzero(lanes == lane)) if lanes.any() else slices
        yield TraceThread(f"{name} (+{lane})" if lane else name, mine)


class _Device:
    """A process while its rows are collected, each with what it is sorted by."""

    def __init__(self, name: str) -> None:
        self.process = TraceProcess(name)
        self.rows: list[tuple[tuple[int, ...], str, Slices]] = []

    def row(self, key: tuple[int, ...], name: str, slices: Slices) -> None:
        self.rows.append((key, name, slices))


class _Devices:
    """Processes by (rank, device name, index within the launch), made when first asked for."""

    def __init__(self) -> None:
        self._devices: dict[tuple[int, str, int], _Device] = {}

    def get(self, rank: int, device: str, index: int) -> _Device:
        name = device + (f", device {index}" if index else "") + (f", rank {rank}" if rank else "")
        return self._devices.setdefault((rank, device, index), _Device(name))

    def ordered(self) -> Iterator[TraceProcess]:
        for _, device in sorted(self._devices.items()):
            for _, name, slices in sorted(device.rows, key=lambda row: row[0]):
                device.process.threads += _threads(name, slices)
            yield device.process


def _host(recording: Recording, labels: list[Label]) -> TraceProcess:
    region = [(recording.start, recording.end, _labelled(labels, "profiled region", "region"))]
    compiler: list[Span] = []
    for event in recording.compiles:
        end = event.start + event.duration
        about = _labelled(labels, f"compile {event.name}", "compile", cache=event.cache)
        compiler.append((event.start, end, about))
        begin = event.start
        for stage, spent in event.stages:
            compiler.append((begin, min(begin + spent, end), _labelled(labels, stage, "compile")))
            begin = min(begin + spent, end)
    python: list[Span] = []
    known: dict[HostPlace, int] = {}
    for begin, end, place in sampled_slices(recording):
        if place not in known:
            known[place] = _labelled(labels, place_text(place), "python", **place._asdict())
        python.append((begin, end, known[place]))
    calls: list[Span] = []
    if recording.calls_made is not None:
        made = recording.calls_made
        programs = [_labelled(labels, program.title, "call") for program in made.programs]
        columns = zip(made.which, made.start, made.duration, strict=True)
        calls += [(begin, begin + took, programs[which]) for which, begin, took in columns]
    host = TraceProcess("host")
    rows = {"profiled region": region, "calls": calls, "compiler": compiler, "Python, sampled": python}
    for name, spans in rows.items():
        host.threads += _threads(name, _slices(spans)) if spans else []
    return host


def _launch_span(launch: LaunchEvent, labels: list[Label]) -> Span:
    args = {
        name: value
        for name, value in launch.attributes.items()
        if isinstance(value, (str, int, float)) and name != "title"
    }
    args |= {"sizes": text} if (text := sizes_text(launch.attributes.get("sizes", {}))) else {}
    args |= {name: value for name in ("flops", "bytes") if (value := getattr(launch, name)) is not None}
    args |= {"launch": launch.launch, "kernel": launch.kernel, "grid": "x".join(map(str, launch.grid))}
    args |= {"source": launch.source}
    return launch.start, launch.start + (launch.duration or 0), _labelled(labels, launch.title, "launch", **args)


def _replay_span(replay: Replay, labels: list[Label]) -> Span:
    about = {"graph": replay.graph, "replay": replay.number, "launches": len(replay.launches)}
    return replay.start, replay.end, _labelled(labels, replay.title, "graph", **about)


@dataclass(slots=True)
class _Tiles:
    """Slices of tiles and phases: a tile of several phases is a parent named after the kernel, and comes first."""

    slices: Slices
    records: np.ndarray
    """as the slices, with the columns of tile records"""
    outer: int
    """so many of them are tiles, the others phases within these"""
    launches: list[int]
    """numbers of the launches"""
    launch: np.ndarray
    """index into `launches`"""
    devices: list[str]
    """of the launches"""


def _tiles(recording: Recording, known: dict[int, LaunchEvent], labels: list[Label]) -> _Tiles:
    tiles = recording.tiles
    extents, membership = recording.extents
    several = np.bincount(membership, minlength=len(extents)) > 1
    records, kind = tiles.records, tiles.records["phase"] + 1
    if several.any():
        # Parents come first: where one phase fills its whole tile, this order decides which of the two is outside.
        children = several[membership]
        parents = extents[several]
        kind = np.concatenate([np.zeros(len(parents), kind.dtype), kind[~children], kind[children]])
        records = np.concatenate([parents, records[~children], records[children]])
    numbers, launch = np.unique(records["launch"], return_inverse=True)
    events = [known.get(number) for number in numbers.tolist()]
    names = ["", *tiles.phases]
    pair = launch * len(names) + kind
    occurs = np.zeros(len(numbers) * len(names), bool)
    occurs[pair] = True
    label = np.zeros(len(occurs), np.int64)
    shared: dict[tuple[str, str, str, str], int] = {}
    for index in np.flatnonzero(occurs).tolist():
        event, phase = events[index // len(names)], names[index % len(names)]
        kernel, source = (event.title, event.source) if event else ("tile", "measured")
        inside = index % len(names) != 0
        counts = about_phases(event) if inside and event and phase != "tile" else ""
        key = (phase if inside and phase != "tile" else kernel, "phase" if inside else "tile", source, counts)
        if key not in shared:
            shared[key] = _labelled(labels, key[0], key[1], source=source, **({"counts": counts} if counts else {}))
        label[index] = shared[key]
    start = np.ascontiguousarray(records["start"])
    about = {name: np.ascontiguousarray(records[name]) for name in ("tile", "launch", "line")}
    nothing = np.zeros(len(records), np.int64), np.zeros(len(records), np.int64)
    slices = Slices(start, start + records["duration"], label[pair], *nothing, about)
    devices = [event.device if event else "unknown device" for event in events]
    return _Tiles(slices, records, len(extents), numbers.tolist(), launch, devices)


def _tile_rows(tiles: _Tiles, devices: _Devices) -> None:
    """Puts the slices on the rows of their devices, and counts the tiles in flight."""
    records, outer = tiles.records, slice(tiles.outer)
    names = sorted(set(tiles.devices))
    device = np.array([names.index(name) for name in tiles.devices])[tiles.launch]
    crowded = int(records["slot"].min()) != int(records["slot"].max())
    first, process_of = numbered([records["rank"], device, records["device"]])
    found = [
        devices.get(rank, names[name], index)
        for rank, name, index in zip(
            *(column[first].tolist() for column in (records["rank"], device, records["device"])), strict=True
        )
    ]
    first, row = numbered([process_of, records["resource"], records["slot"]])
    order = np.argsort(row.astype(np.uint16 if len(first) <= 1 << 16 else np.int64), kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(row))]).tolist()
    for at, begin, end in zip(first.tolist(), bounds, bounds[1:], strict=False):
        process, resource, slot = found[process_of[at]], int(records["resource"][at]), int(records["slot"][at])
        kind = RESOURCE_NAMES.get(names[device[at]].partition(":")[0], "resource")
        title = f"{kind} {resource}, slot {slot}" if crowded else f"{kind} {resource}"
        process.row((1, resource, slot), title, tiles.slices.take(order[begin:end]))
    for index, one in enumerate(found):
        mine = np.flatnonzero(process_of[outer] == index)
        one.process.counters.append(_in_flight(records[mine]))


def _in_flight(tiles: np.ndarray) -> TraceCounter:
    times, counts = occupancy(tiles)
    if len(times) <= _COUNTER_STEPS:
        return TraceCounter("tiles in flight", "tiles", times, counts)
    first, last = int(times[0]), int(times[-1])
    averages = busy_map(tiles, np.zeros(len(tiles), np.int64), 1, first, last, _COUNTER_STEPS)[0]
    times = np.linspace(first, last, _COUNTER_STEPS, endpoint=False).astype(np.int64)
    return TraceCounter("tiles in flight, average", "tiles", times, averages.round(3))


def _link(known: dict[int, int], launches: Slices, tiles: _Tiles) -> None:
    """Joins each launch with its earliest tile. A flow needs two spans that are open, and goes forward in time."""
    start, launch = tiles.slices.start[: tiles.outer], tiles.launch[: tiles.outer]
    earliest = np.full(len(tiles.launches), np.iinfo(np.int64).max)
    np.minimum.at(earliest, launch, start)
    first = np.full(len(tiles.launches), -1)
    candidates = np.flatnonzero(start == earliest[launch])[::-1]
    first[launch[candidates]] = candidates  # of several the first, which is stored last
    targets = dict(zip(tiles.launches, first.tolist(), strict=True))
    for flow, (number, source) in enumerate(known.items(), start=1):
        target = targets.get(number, -1)
        begins = int(launches.start[source])
        if target < 0 or begins == launches.end[source] or start[target] < begins:
            continue
        arrives = max(int(start[target]), begins + 1)  # of two at one time the order in the file would decide
        if arrives < tiles.slices.end[target]:
            launches.flow[source], launches.bound[source] = flow, begins
            tiles.slices.flow[target], tiles.slices.bound[target] = -flow, arrives
