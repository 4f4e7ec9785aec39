"""Launching while somebody listens: the same run, timed and described by events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from tessera.language import dims
from tessera.language.dims import Dim
from tessera.runtime import events
from tessera.runtime.arrays import devices
from tessera.runtime.callsite import callsite
from tessera.runtime.code.build import Built
from tessera.runtime.code.plan import LaunchInfo
from tessera.runtime.events import LaunchEvent, TileBatch


class Recorder:
    """Collects what the executable tells of its tiles: columns of equal length, `launch` counting from 0."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def record(self, columns: dict[str, Any]) -> None:
        self.batches.append(columns)


@dataclass(frozen=True, slots=True)
class Run:
    """What is run, and where. `stopwatch` starts a device's own clock, None for the host's; `extra` goes along."""

    built: Built
    env: Mapping[str, int]
    device: str
    stopwatch: Callable[[], Callable[[], int]] | None
    extra: Mapping[str, Any]


def observe(run: Run, pointers: Sequence[int], scalars: Sequence[Any], sizes: Sequence[int], stream: int) -> None:
    """Runs, then publishes a LaunchEvent for every kernel of the program and the tiles that were recorded."""
    recorder = Recorder() if events.tiles_wanted() else None
    executable = run.built.code.executable()
    stop = run.stopwatch() if run.stopwatch is not None else None
    start = perf_counter_ns()
    executable.run(pointers, scalars, sizes, stream=stream, record=recorder)
    duration = stop() if stop is not None else perf_counter_ns() - start
    launches = run.built.plan.launches
    ids = [events.new_launch() for _ in launches]
    batches = recorder.batches if recorder is not None else []
    exact = stop is not None or not batches  # the host's clock also sees the frame being built and records being read
    extents = _extents(batches, len(launches), start, duration, exact)
    more = {**run.extra, **dict(zip(("call_file", "call_line"), callsite(), strict=True))}
    if batches and (cost := getattr(executable, "record_ns", None)) is not None:
        more["record_ns"] = cost
    names = _Buffers(pointers, ids[0] if ids else 0)
    for info, number, extent in zip(launches, ids, extents, strict=True):
        memory = {"reads": names.of(info.reads), "writes": names.of(info.writes)}
        events.publish(_event(run, info, number, extent, memory | more))
    for columns in batches:
        events.publish(_batch(columns, ids, [info.line for info in launches], run.built.artifact.meta))


class _Buffers:
    """Buffers by what they are in this process: arrays by their address, temporaries by the run they belong to."""

    def __init__(self, pointers: Sequence[int], run: int) -> None:
        self.pointers, self.run = pointers, run

    def of(self, moved: Sequence[tuple[int, Dim]]) -> list[tuple[int, Dim]]:
        return [(self.pointers[b] if b >= 0 else b - (self.run << 20), d) for b, d in moved]


Extent = tuple[int, int | None, str]
"""start, duration, and why there is no duration"""


def _extents(batches: list[dict[str, Any]], count: int, start: int, duration: int, exact: bool) -> list[Extent]:
    """When each launch ran: what its tiles say; the whole run where there is one launch and its time is exact."""
    if count == 1 and exact:
        return [(start, duration, "")]
    found: list[Extent] = [(start, None, "several kernels run in one go; record tiles to see each")] * count
    for columns in batches:
        which = columns.get("launch", 0)
        for i in range(count):
            begins, lengths = columns["start"], columns["duration"]
            if not isinstance(which, int):
                mine = which == i
                begins, lengths = begins[mine], lengths[mine]
            elif which != i:
                continue
            if len(begins):
                first, last = int(begins.min()), int((begins + lengths).max())
                found[i] = (first, last - first, "")
    return found


def _event(run: Run, info: LaunchInfo, number: int, extent: Extent, more: Mapping[str, Any]) -> LaunchEvent:
    start, duration, reason = extent
    built, device = run.built, run.device if ":" in run.device else f"{run.device}:0"

    def size(dim: Dim) -> int:
        return dims.evaluate(dim, run.env)

    resources = built.artifact.resources.get(info.kernel) or {}
    attributes: dict[str, Any] = {
        "file": info.file,
        "line": info.line,
        "function": built.plan.name,
        "sizes": dict(run.env),
        "label": info.label,
        "dtype": info.dtype,
        **{k: tuple((buffer, size(d)) for buffer, d in more[k]) for k in ("reads", "writes")},
        "cache": built.origin,
        **{k: v for k, v in more.items() if k not in ("reads", "writes")},
        **{k: resources[k] for k in ("occupancy", "occupancy_limiter", "slots") if resources.get(k) is not None},
    }
    if device.startswith("cpu"):
        attributes["resources"] = devices.get_num_threads()
    unavailable = {"duration": reason} if reason else {}
    source = "measured" if duration is not None else "static"
    return LaunchEvent(number, info.kernel, built.artifact.target, device, tuple(map(size, info.grid)), start, duration,
                       size(info.flops), size(info.bytes), source, attributes, unavailable)  # fmt: skip


def _batch(columns: dict[str, Any], ids: Sequence[int], lines: Sequence[int], meta: Mapping[str, Any]) -> TileBatch:
    import numpy as np

    which = columns.get("launch", 0)
    known = {"line": np.asarray(lines)[which], **columns, "launch": np.asarray(ids)[which]}
    return TileBatch.from_columns(meta.get("phases") or ["tile"], **known)
