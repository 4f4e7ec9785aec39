"""What CUPTI saw on GPUs, as launches of a recording: times of those that are known, and new ones for the others."""

from __future__ import annotations

import contextlib
import ctypes
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

from tessera.compiler.machines import ANY_GPU
from tessera.profiler.measure.cupti import Activity, CuptiRecords
from tessera.profiler.quantity import Quantity
from tessera.profiler.recording import Recording, replay_of
from tessera.runtime import events
from tessera.runtime.events import GraphEvent, LaunchEvent, ProfilingEvent, TileBatch

_KNOWN = ("file", "line", "title", "function", "symbol", "dtype", "label")
"""attributes of a kernel that hold for each launch of it"""
_OTHERS = "it is not a kernel of Tessera's, or a graph ran it that was captured outside of the profile"

_NO_COUNTERS = "Tessera reads none; Nsight Compute does, where the driver lets it"


def join(recording: Recording, trace: CuptiRecords) -> None:
    """Gives launches of the recording the times that CUPTI measured, and adds what else ran."""
    recording.cupti = trace.reason
    if any(event.device.partition(":")[0] == ANY_GPU for event in recording.launches):
        recording.counters.figures["GPU counters"] = Quantity(None, "", reason=_NO_COUNTERS)
    if trace.reason:
        return
    recording.cupti_lost = trace.lost
    own, rest = _matched(recording, trace.activities)
    batches: dict[int, TileBatch] = {int(b.records["launch"][0]): b for b in recording.batches if len(b)}
    timed = [_timed(e, own[e.launch], batches.get(e.launch)) if e.launch in own else e for e in recording.launches]
    recording.launches = timed
    recording.profiling = _after([e for e in timed if e.launch in own], recording.profiling)
    replays = _replays(recording, own, rest)
    known: dict[str, dict[str, LaunchEvent]] = {}
    for event in recording.launches:
        if "symbol" in event.attributes:
            known.setdefault(str(event.attributes["symbol"]), {}).setdefault(event.title, event)
    for activity in rest:
        alike = list(known.get(activity.name, {}).values())
        recording.add(_launch(activity, alike, replays.get((activity.graph, activity.launch))))


def _matched(recording: Recording, activities: Sequence[Activity]) -> tuple[dict[int, Activity], list[Activity]]:
    """Which activity each launch is, and those that are none. Where a kernel ran as often as it was launched, one by
    one; else the one that a launch's time, by its tiles, lies in."""
    ran: dict[tuple[str, str], list[Activity]] = {}
    for activity in activities:
        ran.setdefault((f"{ANY_GPU}:{activity.device}", activity.name), []).append(activity)
    launched: dict[tuple[str, str], list[LaunchEvent]] = {}
    for event in recording.launches:
        if "symbol" in event.attributes:
            launched.setdefault((event.device, str(event.attributes["symbol"])), []).append(event)
    own: dict[int, Activity] = {}
    taken: set[int] = set()
    for key, launches in launched.items():
        found = [a for a in ran.get(key, ()) if a.what == "kernel"]
        launches = sorted(launches, key=lambda e: (e.start, e.launch))
        pairs = zip(launches, found, strict=True) if len(launches) == len(found) else _by_time(launches, found)
        for event, activity in pairs:
            own[event.launch] = activity
            taken.add(id(activity))
    return own, [activity for activity in activities if id(activity) not in taken]


def _by_time(launches: Sequence[LaunchEvent], found: Sequence[Activity]) -> list[tuple[LaunchEvent, Activity]]:
    """Those whose middle lies in a time in which the kernel ran. `found` is in order."""
    starts, pairs = [activity.start for activity in found], dict[int, tuple[LaunchEvent, Activity]]()
    for event in launches:
        middle = event.start + (event.duration or 0) // 2
        at = bisect_right(starts, middle) - 1
        if event.duration is not None and at >= 0 and middle <= found[at].end:
            pairs.setdefault(at, (event, found[at]))
    return list(pairs.values())


def _timed(event: LaunchEvent, ran: Activity, tiles: TileBatch | None) -> LaunchEvent:
    """When and as long as CUPTI says. Its tiles are moved into that time, by what the clocks differ: all launches are
    on one clock then."""
    start, duration = ran.start, ran.end - ran.start
    if tiles is not None:
        begin = tiles.records["start"]
        first, last = int(begin.min()), int((begin + tiles.records["duration"]).max())
        duration = max(duration, last - first)
        begin += min(max(first, start), start + duration - (last - first)) - first
    missing = {name: why for name, why in event.unavailable.items() if name != "duration"}
    attributes = {**event.attributes, "stream": ran.stream}
    return replace(event, start=start, duration=duration, source="measured", attributes=attributes, unavailable=missing)


def _after(launches: Sequence[LaunchEvent], recorded: Sequence[ProfilingEvent]) -> list[ProfilingEvent]:
    """Recording begins when the launch has ended that is recorded, by the clock that is now the launch's."""
    ordered = sorted((event.start, event.start + (event.duration or 0)) for event in launches)
    starts, ends = [start for start, _ in ordered], [*accumulate((end for _, end in ordered), max)]
    found: list[ProfilingEvent] = []
    for event in recorded:
        before = bisect_right(starts, event.start)
        begin = max(event.start, ends[before - 1]) if before else event.start
        found.append(replace(event, start=begin, duration=max(0, event.start + event.duration - begin)))
    return found


def _replays(
    recording: Recording, own: Mapping[int, Activity], rest: Sequence[Activity]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Graph and replay of what a graph ran, by CUPTI's numbers: those of launches that ran with it, else new ones."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for event in recording.launches:
        key = replay_of(event)
        if key is not None and event.launch in own and own[event.launch].graph:
            found[own[event.launch].graph, own[event.launch].launch] = key[1:]
    numbers = {graph: number for (graph, _), (number, _) in found.items()}
    used = {event.graph for event in recording.graphs}
    ran: dict[int, list[Activity]] = {}
    for activity in rest:
        if activity.graph and (activity.graph, activity.launch) not in found:
            number = numbers.setdefault(activity.graph, max(used, default=0) + 1)
            used.add(number)
            ran.setdefault(number, []).append(activity)
    for number, activities in ran.items():
        before = max((replay for graph, replay in found.values() if graph == number), default=0)
        launches = list(dict.fromkeys(activity.launch for activity in activities))
        for replay, launch in enumerate(launches, start=before + 1):
            found[activities[0].graph, launch] = number, replay
        if not any(event.graph == number for event in recording.graphs):
            each = len(activities) // len(launches)
            device = f"{ANY_GPU}:{activities[0].device}"
            recording.graphs.append(GraphEvent(number, device, each, len(launches), len(launches)))
    return found


def _launch(ran: Activity, alike: Sequence[LaunchEvent], replay: tuple[int, int] | None) -> LaunchEvent:
    """`alike`: launches of the same code, which expressions may share."""
    titles = {"kernel": readable(ran.name), "copy": f"copy {ran.name}", "fill": "fill memory"}
    attributes: dict[str, Any] = {"title": titles[ran.what]}
    if alike:
        attributes = {name: alike[0].attributes[name] for name in _KNOWN if name in alike[0].attributes}
        attributes["title"] = " or ".join(event.title for event in alike)
    attributes |= {"stream": ran.stream, "seen_by": "CUPTI"} | ({"moved": ran.bytes} if ran.bytes else {})
    if replay is not None:
        attributes |= {"graph": replay[0], "replay": replay[1]}
    number, device = events.new_launch(), f"{ANY_GPU}:{ran.device}"
    kernel, target = (
        (alike[0].kernel, alike[0].target) if alike else (ran.name if ran.what == "kernel" else ran.what, ANY_GPU)
    )
    missing = {"flops": _OTHERS, "bytes": _OTHERS}
    return LaunchEvent(number, kernel, target, device, ran.grid, ran.start, ran.end - ran.start, None, None, "measured",
                       attributes, missing)  # fmt: skip


@lru_cache(maxsize=4096)
def readable(symbol: str) -> str:
    """A C++ function's name without its encoding, where the system's library can tell, and without its arguments."""
    name = symbol
    if symbol.startswith("_Z"):
        with contextlib.suppress(OSError, AttributeError):
            demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
            demangle.restype = ctypes.c_void_p
            place = demangle(symbol.encode(), None, None, None)
            if place:
                name = ctypes.string_at(place).decode()
                free = ctypes.CDLL(None).free
                free.argtypes = [ctypes.c_void_p]
                free(place)
    depth, plain = 0, ""
    for letter in name.removeprefix("void "):
        if letter == "(" and not depth and plain:
            break
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if not depth and letter != ">":
            plain += letter
    return plain.strip() or symbol
