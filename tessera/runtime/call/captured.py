"""Launches that are captured into a CUDA graph: they run later, any number of times, and are published then.

The code that a graph is captured with keeps its records in memory of its own (`cuda.call.graphs`). They are read when a
profiler begins or ends, after all that runs on the device: what a graph did in between belongs to those who listened.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from tessera.errors import DeviceError
from tessera.immutable import mutable
from tessera.runtime import events
from tessera.runtime.call.observe import (
    BufferNames,
    Extent,
    ObservedRun,
    called_from,
    clock_step,
    launch_event,
    record_cost,
    tile_batch,
)
from tessera.runtime.events import CallEvent, GraphEvent
from tessera.runtime.locks import Locked

NO_TILES = "it was captured without tile records"
NOT_LOADED = (
    "it was captured by code without tile records, because the code with them was not loaded: call it once inside the "
    "profiler block before the capture"
)
SAMPLED = "its calls are sampled (every=), and a graph runs all that it has captured"


@mutable
class CapturedCall:
    """A call that a graph holds. `records` are `GraphRecords`."""

    run: ObservedRun
    pointers: Sequence[int]
    records: Any
    owner: Any
    """keeps the captured stream alive, which is asked whether the capture has ended"""
    call: CallEvent | None
    where: Mapping[str, Any]


class _Graphs(Locked):
    """The graphs that hold calls with records, by their captures' numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[int, list[CapturedCall]] = {}
        self.numbers: dict[int, int] = {}
        """capture -> number of the graph, as people see it"""
        self.replays: dict[int, int] = {}
        """capture -> how often it has run"""
        self.next = itertools.count(1)

    def number(self, capture: int) -> int:
        if capture not in self.numbers:
            self.numbers[capture] = next(self.next)
        return self.numbers[capture]

    def after_fork(self) -> None:
        """Nothing of CUDA outlives a fork."""
        super().after_fork()
        self.calls.clear()


_graphs = _Graphs()


def capture_of(executable: Any, stream: int, pointers: Sequence[int]) -> int:
    """The number of the capture that a launch on `stream` becomes part of; 0: it runs."""
    known = getattr(executable, "capture", None)
    return known(stream, pointers) if known is not None else 0


def into_graph(
    run: ObservedRun, capture: int, pointers: Sequence[int], scalars: Sequence[Any], sizes: Sequence[int], stream: int,
    owner: Any, reason: str,
) -> None:  # fmt: skip
    """Launches into the capture. `owner` keeps the stream alive. `reason`: why the graph's runs will not be seen; empty
    where they will."""
    executable: Any = run.built.code.executable()
    if reason:
        executable.run(pointers, scalars, sizes, stream=stream)
        _tell(run, capture, len(run.built.plan.launches), reason)
        return
    records = executable.graph_records(stream)
    executable.run(pointers, scalars, sizes, stream=stream, record=records)
    call = run.call(0) if run.call is not None else None
    held = CapturedCall(replace(run, call=None), list(pointers), records, owner, call, called_from())
    with _graphs.lock:
        _graphs.calls.setdefault(capture, []).append(held)
    _tell(run, capture, len(records.launches), "")


def _tell(run: ObservedRun, capture: int, launches: int, reason: str) -> None:
    with _graphs.lock:
        number = _graphs.number(capture)
    events.publish(GraphEvent(number, run.on, launches, None if reason else 0, 0, reason))


def drain() -> None:
    """Waits for what runs, publishes what graphs have launched since this was done last, and lets go of those that are
    gone."""
    if not _graphs.calls:
        return
    with _graphs.lock:
        contexts: dict[int, list[int]] = {}
        for capture, calls in _graphs.calls.items():
            contexts.setdefault(calls[0].records.context, []).append(capture)
        for captures in contexts.values():
            if any(call.records.capturing() for capture in captures for call in _graphs.calls[capture]):
                continue  # a device cannot be waited for while it captures; the records stay where they are
            try:
                _read(captures)
            except DeviceError as error:
                for capture in captures:
                    del _graphs.calls[capture]
                warnings.warn(f"what CUDA graphs have launched is lost: {error}", RuntimeWarning, stacklevel=2)


def _read(captures: Sequence[int]) -> None:
    with _graphs.calls[captures[0]][0].records.settled():
        for capture in captures:
            begin = perf_counter_ns()
            calls = _graphs.calls[capture]
            gone = all(call.records.ended() for call in calls)  # asked first: what ran until then is read below
            if events.active():
                _publish(capture, calls)
                events.publish_recording(begin)
            else:
                for call in calls:
                    call.records.forget()
            if gone:
                for call in calls:
                    call.records.free()
                del _graphs.calls[capture]


def _publish(capture: int, calls: Sequence[CapturedCall]) -> None:
    """The launches of each replay that had room in all of its calls, then how many replays there were."""
    taken = [list(call.records.take()) for call in calls]
    runs = [count for launches in taken for _, count, _ in launches]
    if not runs:
        return
    recorded = min(len(found) for launches in taken for _, _, found in launches)
    before, number = _graphs.replays.get(capture, 0), _graphs.number(capture)
    for replay in range(recorded):
        for call, launches in zip(calls, taken, strict=True):
            _publish_call(call, {launch: found[replay] for launch, _, found in launches}, number, before + replay + 1)
    _graphs.replays[capture] = before + max(runs)
    launched = sum(len(launches) for launches in taken)
    events.publish(GraphEvent(number, calls[0].run.on, launched, max(runs), recorded))


def _publish_call(call: CapturedCall, launches: Mapping[int, dict[str, Any]], graph: int, replay: int) -> None:
    run, infos = call.run, call.run.built.plan.launches
    executable = run.built.code.executable()
    ids = {launch: events.new_launch() for launch in launches}
    step = clock_step(list(launches.values()))
    about: dict[str, Any] = {"clock_ns": step} if step > 1 else {}
    if not ids:
        return
    first = min(ids.values())
    names = BufferNames(call.pointers, first)
    for launch, columns in launches.items():
        start = int(columns["start"].min())
        extent: Extent = start, int((columns["start"] + columns["duration"]).max()) - start, ""
        memory = {"reads": names.of(infos[launch].reads), "writes": names.of(infos[launch].writes)}
        more = {"run": first, "graph": graph, "replay": replay, **about, **run.extra, **call.where, **memory}
        more |= record_cost(executable, columns)
        events.publish(launch_event(run, infos[launch], ids[launch], extent, more))
    if call.call is not None:
        events.publish(replace(call.call, run=first))
    numbers = [ids.get(launch, 0) for launch in range(len(infos))]
    for launch, columns in launches.items():
        events.publish(tile_batch({**columns, "launch": launch}, numbers, infos, run.built.artifact.meta))


events.add_drain(drain)
