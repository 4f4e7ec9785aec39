"""Launches with listeners: the same run, timed and described by events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from tessera.compiler.targets.base import Executable, platform_of
from tessera.compiler.tile.work import CHUNKS
from tessera.errors import source_line
from tessera.immutable import immutable
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np
from tessera.runtime import events
from tessera.runtime.arrays import devices, host_memory
from tessera.runtime.callsite import callsite
from tessera.runtime.code.build import Built
from tessera.runtime.code.plan import LONGEST, LaunchInfo
from tessera.runtime.events import CallEvent, CallTime, LaunchEvent, ProfilingEvent, TileBatch


class Recorder:
    """Collects what the executable tells of its tiles: columns of equal length, `launch` counting from 0.

    `dropped` are the records for which there was no room.
    """

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.dropped = 0

    def record(self, columns: dict[str, Any]) -> None:
        self.dropped += columns.pop("dropped", 0)
        self.batches.append(columns)


_SHOW_STEPS = 16
"""tiles whose times have no larger common divisor than the clock's steps, but for one case in some ten thousand"""


@immutable
class ObservedRun:
    """What is run, and where. `stopwatch` starts a device's own clock, None for the host's; `extra` goes along.
    `call` says what was called, as the run of a number."""

    built: Built
    env: Mapping[str, int]
    device: str
    stopwatch: Callable[[], Callable[[], int]] | None
    extra: Mapping[str, Any]
    call: Callable[[int], CallEvent] | None = None
    copies: frozenset[int] = frozenset()
    """buffers that are copies of arguments, made for this call alone"""
    anywhere: bool = False
    """whether it is an operator on its own, whose code runs for the calls of all lines"""

    @property
    def launches(self) -> Sequence[LaunchInfo]:
        """Those of the plan, of an operator on its own at the line that calls it."""
        known, (file, line) = self.built.plan.launches, callsite()
        if not self.anywhere or not line:
            return known
        text = (source_line(file, line) or "").strip()
        title = f"{self.built.plan.name}:{line} {text if len(text) <= LONGEST else text[:LONGEST].rstrip() + '…'}"
        names = [title if i == 1 else f"{title} ({i})" for i in range(1, len(known) + 1)]
        return [replace(i, file=file, line=line, title=t, elsewhere=True) for i, t in zip(known, names, strict=True)]

    @property
    def on(self) -> str:
        """The device as events name it."""
        return self.device if ":" in self.device else f"{self.device}:0"


def called_from() -> dict[str, Any]:
    """The line of the program that calls, for events."""
    return dict(zip(("call_file", "call_line"), callsite(), strict=True))


def observe(
    run: ObservedRun, pointers: Sequence[int], scalars: Sequence[Any], sizes: Sequence[int], stream: int, since: int
) -> None:
    """Runs, then publishes a LaunchEvent for every kernel of the program, the tiles that were recorded, and what all
    this took of the call's time `since` it was known to be observed."""
    recorder = Recorder() if events.tiles_wanted() else None
    executable = run.built.code.executable()
    plan = run.built.plan
    size = _workspace(executable, sizes)
    launches, begun = run.launches, perf_counter_ns()

    def unfinished(why: str) -> list[LaunchEvent]:
        known: dict[str, Any] = {"reads": (), "writes": (), "run": events.new_launch(), **run.extra}
        return [launch_event(run, info, events.new_launch(), (begun, None, why), known) for info in launches]

    with host_memory.Used(size, f"temporaries of {plan.name}", plan.held(run.env), run.on):
        try:
            with events.running(unfinished):
                start, duration = _timed(run, executable, pointers, scalars, sizes, stream, recorder)
        except BaseException as error:
            name = type(error).__name__
            for event in unfinished("it was interrupted" if name == "KeyboardInterrupt" else f"it raised {name}"):
                events.publish(event)
            raise
    ids = [events.new_launch() for _ in launches]
    batches = recorder.batches if recorder is not None else []
    exact = not batches  # with records, the time also contains preparing and reading them
    extents = _extents(batches, len(launches), start, duration, exact)
    dropped = recorder.dropped if recorder is not None else 0
    if dropped and len(launches) > 1:
        extents = _until_the_next(extents, start + duration)
    more = {"run": ids[0] if ids else 0, **run.extra, **called_from()}
    if dropped:
        more["dropped"] = dropped
    costs = record_costs(executable, batches)
    if run.stopwatch is not None and (step := clock_step(batches)) > 1:
        more["clock_ns"] = step
    names = BufferNames(pointers, ids[0] if ids else 0, run.copies)
    for i, (info, number, extent) in enumerate(zip(launches, ids, extents, strict=True)):
        memory = {"reads": names.of(info.reads), "writes": names.of(info.writes)}
        events.publish(launch_event(run, info, number, extent, memory | more | (costs.get(i) or costs.get(EVERY, {}))))
    if run.call is not None and ids:
        events.publish(run.call(ids[0]))
    for columns in batches:
        events.publish(tile_batch(columns, ids, launches, run.built.artifact.meta))
    if events.sampled():
        events.publish(CallTime(plan.name, run.env, start, duration, recorded=True))
    timed = [(begin, begin + length) for begin, length, _ in extents if length is not None]
    ended = max((end for _, end in timed), default=start + duration)
    if run.stopwatch is None:  # what lies before the first tile made room for records; on a GPU it is the queue's
        start = min((begin for begin, _ in timed), default=start)
    events.publish(ProfilingEvent(since, start - since))
    events.publish_recording(ended)


EVERY = -1
"""in place of a launch's number: of all of them"""


def record_costs(executable: Executable, batches: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """`record_cost` by the number of the launch, or for all where a batch has records of several."""
    found: dict[int, dict[str, Any]] = {}
    for columns in batches:
        which = columns.get("launch", 0)
        found[which if isinstance(which, int) else EVERY] = record_cost(executable, columns)
    return found


def record_cost(executable: Executable, columns: dict[str, Any]) -> dict[str, Any]:
    """What one of these records costs, as an attribute of its launch: nothing where the target does not know. Where
    records are phases, one has its part of what was `written` in all, and of all readings of the clock."""
    written = columns.pop("written", None)
    if written is None:
        cost = getattr(executable, "record_ns", None)
    elif (costs := getattr(executable, "record_costs", None)) is not None:
        cost = sum(n * ns for n, ns in zip(written, costs, strict=True)) / len(columns["tile"])
    else:
        cost = None
    return {} if cost is None else {"record_ns": cost}


def clock_step(batches: Sequence[Mapping[str, Any]]) -> int:
    """The steps in ns that a device's clock moves in, as far as its times of tiles show them; 0 where they do not.
    Phases of a tile follow each other in a batch."""
    took = np.concatenate([np.zeros(0, np.int64), *map(_tile_times, batches)])
    return int(np.gcd.reduce(took)) if len(took) >= _SHOW_STEPS else 0


def _tile_times(columns: Mapping[str, Any]) -> Any:
    if "tile" not in columns:
        return columns["duration"]
    return np.add.reduceat(columns["duration"], np.flatnonzero(np.diff(columns["tile"], prepend=-1)))


def take_time(
    run: ObservedRun, pointers: Sequence[int], scalars: Sequence[Any], sizes: Sequence[int], stream: int
) -> None:
    """Runs, then publishes how long it took and nothing else."""
    start, duration = _timed(run, run.built.code.executable(), pointers, scalars, sizes, stream, None)
    events.publish(CallTime(run.built.plan.name, run.env, start, duration, recorded=False))


def _timed(
    run: ObservedRun, executable: Executable, pointers: Sequence[int], scalars: Sequence[Any], sizes: Sequence[int],
    stream: int, recorder: Recorder | None,
) -> tuple[int, int]:  # fmt: skip
    stop = run.stopwatch() if run.stopwatch is not None else None
    start = perf_counter_ns()
    executable.run(pointers, scalars, sizes, stream=stream, record=recorder)
    return start, stop() if stop is not None else perf_counter_ns() - start


def _workspace(executable: Executable, sizes: Sequence[int]) -> int:
    """Memory that the call takes beside arguments and results, where the target knows it."""
    known = getattr(executable, "workspace_bytes", None)
    return known(sizes) if known is not None else 0


class BufferNames:
    """Buffers by what they are in this process: arrays by their address, temporaries and copies by the run they belong
    to, since others may have had their address before."""

    def __init__(self, pointers: Sequence[int], run: int, copies: frozenset[int] = frozenset()) -> None:
        self.pointers, self.run, self.copies = pointers, run, copies

    def of(self, moved: Sequence[tuple[int, Dim]]) -> list[tuple[int, Dim]]:
        return [(self._name(b), d) for b, d in moved]

    def _name(self, buffer: int) -> int:
        if buffer < 0:
            return buffer - (self.run << 20)
        return -buffer - (1 << 19) - (self.run << 20) if buffer in self.copies else self.pointers[buffer]


Extent = tuple[int, int | None, str]
"""start, duration, and why there is no duration"""


def _extents(batches: list[dict[str, Any]], count: int, start: int, duration: int, exact: bool) -> list[Extent]:
    """When each launch ran: from the start of its first tile to the end of its last one, on whichever worker they ran.

    The whole run where there is one launch and its time is exact; moved to enclose its tiles, whose times come from
    another clock.
    """
    spans: dict[int, tuple[int, int]] = {}
    for columns in batches:
        which, begins = columns.get("launch", 0), columns["start"]
        ends = begins + columns["duration"]
        for i in [which] if isinstance(which, int) else sorted(set(which.tolist())):
            mine = slice(None) if isinstance(which, int) else which == i
            if len(begins[mine]):
                first, last = int(begins[mine].min()), int(ends[mine].max())
                known = spans.get(i, (first, last))
                spans[i] = min(first, known[0]), max(last, known[1])
    if count == 1 and exact:
        first, last = spans.get(0, (start, start + duration))
        return [(min(max(start, last - duration), first), max(duration, last - first), "")]
    reason = "several kernels run in one go; record tiles to see each"
    return [(spans[i][0], spans[i][1] - spans[i][0], "") if i in spans else (start, None, reason) for i in range(count)]


def _until_the_next(extents: list[Extent], end: int) -> list[Extent]:
    """Each launch until the next one starts: what to believe where tile records are missing at the end of some."""
    found: list[Extent] = []
    for start, duration, reason in reversed(extents):
        found.append((start, None, "there was no room for its tile records") if reason else (start, end - start, ""))
        end = start if duration is not None else end
    return found[::-1]


def launch_event(
    run: ObservedRun, info: LaunchInfo, number: int, extent: Extent, more: Mapping[str, Any]
) -> LaunchEvent:
    start, duration, reason = extent
    built, device = run.built, run.on

    def size(dim: Dim) -> int:
        return dims.evaluate(dim, run.env)

    resources = built.artifact.resources.get(info.kernel) or {}
    attributes: dict[str, Any] = {
        "file": info.file,
        "line": info.line,
        "title": info.title,
        "function": built.plan.name,
        "sizes": dict(run.env),
        "label": info.label,
        "dtype": info.dtype,
        **({"parts": info.parts} if info.parts else {}),
        **({"phases": counted} if (counted := built.artifact.meta.get("phases_count")) else {}),
        **({"symbol": symbol} if (symbol := built.artifact.meta.get("symbols", {}).get(info.kernel)) else {}),
        **{k: tuple((buffer, size(d)) for buffer, d in more[k]) for k in ("reads", "writes")},
        **{k: v for k, v in more.items() if k not in ("reads", "writes")},
        **{k: resources[k] for k in ("occupancy", "occupancy_limiter", "slots") if resources.get(k) is not None},
    }
    if not platform_of(device).streams:
        attributes |= {"resources": devices.get_num_threads(), "taken": CHUNKS}
    elif units := next((d.units for d in devices.cuda_devices() if d.name == device), 0):
        attributes["resources"] = units
    unavailable = {"duration": reason} if reason else {}
    modelled = "dropped" in more and len(built.plan.launches) > 1
    source = "static" if duration is None else "modelled" if modelled else "measured"
    return LaunchEvent(number, info.kernel, built.artifact.target, device, tuple(map(size, info.grid)), start, duration,
                       size(info.flops), size(info.bytes), source, attributes, unavailable)  # fmt: skip


def tile_batch(
    columns: dict[str, Any], ids: Sequence[int], launches: Sequence[LaunchInfo], meta: Mapping[str, Any]
) -> TileBatch:
    """The records of launches by number, with lines of the files that the launches stand in."""
    which = columns.get("launch", 0)
    line = np.asarray([info.line for info in launches])[which]
    if "line" in columns:
        elsewhere = np.asarray([info.elsewhere for info in launches])[which]
        line = np.where(elsewhere | (columns["line"] == 0), line, columns["line"])
    known = {**columns, "line": line, "launch": np.asarray(ids)[which]}
    return TileBatch.from_columns(meta.get("phases") or ["tile"], **known)
