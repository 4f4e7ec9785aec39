"""Launching while somebody listens: the same run, timed and described by events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from tessera.language import dims
from tessera.language.dims import Dim
from tessera.runtime import devices, events
from tessera.runtime.build import Built
from tessera.runtime.callsite import callsite
from tessera.runtime.events import LaunchEvent, TileBatch
from tessera.runtime.plan import LaunchInfo


class Recorder:
    """Collects what the executable tells of its tiles: columns of equal length, `launch` counting from 0."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def record(self, columns: dict[str, Any]) -> None:
        self.batches.append(columns)


def observe(
    built: Built, pointers: Sequence[int], scalars: Sequence[Any], sizes: Sequence[int], stream: int,
    env: Mapping[str, int], device: str, extra: Mapping[str, Any],
) -> None:  # fmt: skip
    """Runs, then publishes a LaunchEvent for every kernel of the program and the tiles that were recorded."""
    recorder = Recorder() if events.tiles_wanted() else None
    executable = built.code.executable()
    start = perf_counter_ns()
    executable.run(pointers, scalars, sizes, stream=stream, record=recorder)
    duration = perf_counter_ns() - start
    launches = built.plan.launches
    if not launches:
        return
    ids = [events.new_launch() for _ in launches]
    extents = _extents(recorder, len(launches), start, duration)
    where = device if ":" in device else f"{device}:0"
    place = dict(zip(("call_file", "call_line"), callsite(), strict=True))
    for info, number, (begin, length, reason) in zip(launches, ids, extents, strict=True):
        events.publish(_event(built, info, number, begin, length, reason, env, where, {**extra, **place}))
    for columns in recorder.batches if recorder is not None else ():
        events.publish(_batch(columns, ids, built.artifact.meta))


Extent = tuple[int, int | None, str]
"""start, duration, and why there is no duration"""


def _extents(recorder: Recorder | None, count: int, start: int, duration: int) -> list[Extent]:
    """When each launch ran: the whole run where there is one launch, else what its tiles say."""
    if count == 1:
        return [(start, duration, "")]
    found: list[Extent] = [(start, None, "several kernels run in one go; record tiles to see each")] * count
    for columns in recorder.batches if recorder is not None else ():
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


def _event(
    built: Built, info: LaunchInfo, number: int, start: int, duration: int | None, reason: str, env: Mapping[str, int],
    device: str, more: Mapping[str, Any],
) -> LaunchEvent:  # fmt: skip
    def size(dim: Dim) -> int:
        return dims.evaluate(dim, env)

    resources = built.artifact.resources.get(info.kernel) or {}
    attributes: dict[str, Any] = {
        "file": info.file,
        "line": info.line,
        "function": built.plan.name,
        "label": info.label,
        "dtype": info.dtype,
        "reads": tuple((buffer, size(d)) for buffer, d in info.reads),
        "writes": tuple((buffer, size(d)) for buffer, d in info.writes),
        "cache": built.origin,
        **more,
        **{k: resources[k] for k in ("occupancy", "occupancy_limiter", "slots") if resources.get(k) is not None},
    }
    if device.startswith("cpu"):
        attributes["resources"] = devices.get_num_threads()
    if (cost := built.artifact.meta.get("record_ns")) is not None:
        attributes["record_ns"] = cost
    unavailable = {"duration": reason} if reason else {}
    source = "measured" if duration is not None else "static"
    return LaunchEvent(number, info.kernel, built.artifact.target, device, tuple(map(size, info.grid)), start, duration,
                       size(info.flops), size(info.bytes), source, attributes, unavailable)  # fmt: skip


def _batch(columns: dict[str, Any], ids: Sequence[int], meta: Mapping[str, Any]) -> TileBatch:
    import numpy as np

    phases = meta.get("phases") or ["tile"]
    columns = dict(columns)
    which = columns.pop("launch", 0)
    return TileBatch.from_columns(phases, launch=np.asarray(ids)[which], **columns)
