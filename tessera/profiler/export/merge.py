"""Saved profiles of several processes as one trace: their clocks aligned, a group of rows for each process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tessera.language.lazy import np
from tessera.profiler.analyses.processes import Processes
from tessera.profiler.export.chrome import ChromeWriter, write_document
from tessera.profiler.export.layout import FIRST_PID, lay_out
from tessera.profiler.export.slices import TraceProcess
from tessera.profiler.recording import Recording
from tessera.profiler.storage import ProfileError, load
from tessera.runtime.events import TileBatch

TILES = 200_000
"""records of tiles that are kept of each profile, unless said otherwise"""
_FLOWS = 1 << 40
"""between the numbers of the flows of two processes: launches are counted in each from 1"""


@dataclass(frozen=True, slots=True)
class MergedTrace:
    """What was written: the processes' names, how many records of tiles were left out, how clocks were aligned; and
    what each process did with its time."""

    path: Path
    processes: tuple[str, ...]
    left_out: int
    clock: str
    summary: Processes

    def __str__(self) -> str:
        lost = f"; {self.left_out:,} short tiles were left out" if self.left_out else ""
        wrote = f"wrote {self.path}: {len(self.processes)} processes, {self.clock}{lost}"
        return f"{self.summary}\n\n{wrote}"


def merge_traces(profiles: Sequence[Path], path: Path, tiles: int = TILES) -> MergedTrace:
    """Writes a Chrome trace of profiles that `prof.save` wrote, compressed when the name ends in .gz.

    Processes of one boot of one machine share a clock to the nanosecond; others are aligned by the time of day. One
    profile is held at a time, and of each no more than its `tiles` longest records of tiles. Raises ProfileError.
    """
    names = _names(profiles)
    anchors = [_clock(load(file), file) for file in profiles]
    shared = len({boot for boot, _ in anchors}) == 1 and bool(anchors[0][0])
    shifts = [0 if shared else offset for _, offset in anchors]
    base, left_out, summary = None, 0, Processes()
    for file, name, shift in zip(profiles, names, shifts, strict=True):
        recording = load(file)
        summary.add(name, recording)
        left_out += _shorten(recording, tiles)
        start = lay_out(recording).first + shift
        base = start if base is None else min(base, start)
    how = "on one clock" if shared else "aligned by the time of day"

    def parts() -> Iterator[bytes]:
        for i, (source, name, shift) in enumerate(zip(profiles, names, shifts, strict=True)):
            recording = load(source)
            _shorten(recording, tiles)
            trace = lay_out(recording)
            group = _group(trace.processes, name, i)
            yield from ChromeWriter(trace.labels).process(group, FIRST_PID + i, (base or 0) - shift)

    write_document(path, {"clock": how, "tiles left out": str(left_out)}, parts())
    return MergedTrace(path, names, left_out, how, summary)


def _names(profiles: Sequence[Path]) -> tuple[str, ...]:
    stems = [file.stem for file in profiles]
    return tuple(stem if stems.count(stem) == 1 else f"{stem} ({i})" for i, stem in enumerate(stems))


def _clock(recording: Recording, file: Path) -> tuple[str, int]:
    if recording.clock is None:
        raise ProfileError(f"{file} does not say what its clock means; record it anew to merge it with others")
    return recording.clock


def _shorten(recording: Recording, most: int) -> int:
    """Keeps the longest records of tiles; returns how many went."""
    (batch,) = recording.batches
    over = len(batch) - most
    if over <= 0:
        return 0
    longest = np.sort(np.argpartition(batch.records["duration"], over)[over:])
    recording.batches = [TileBatch(batch.records[longest], batch.phases)]
    return over


def _group(processes: Sequence[TraceProcess], name: str, number: int) -> TraceProcess:
    """The rows of a process's host and devices in one group."""
    group = TraceProcess(name)
    for process in processes:
        for thread in process.threads:
            flow = thread.slices.flow
            thread.slices.flow = flow + np.sign(flow) * number * _FLOWS
            thread.name = f"{process.name}: {thread.name}"
        for counter in process.counters:
            counter.name = f"{process.name}: {counter.name}"
        group.threads += process.threads
        group.counters += process.counters
    return group
