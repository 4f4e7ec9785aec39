"""What a profiler saw: the events of one region, and the joined tile table that every view and exporter reads."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tessera.compiler.machines import HOST
from tessera.language.lazy import np
from tessera.profiler.balance import assign_slots, tile_extents
from tessera.profiler.machine import machine_for, measured_again
from tessera.profiler.plausible import plausible, plausible_records
from tessera.profiler.sampling.calls import CallTimes
from tessera.profiler.sampling.counters import Counters
from tessera.profiler.sampling.stacks import Samples
from tessera.runtime.arrays.holders import LARGE, Bookkeeping, Holder, holders
from tessera.runtime.events import (
    CallEvent,
    CallTime,
    CompileEvent,
    Event,
    GraphEvent,
    LaunchEvent,
    MemoryEvent,
    ProfilingEvent,
    TileBatch,
)

if TYPE_CHECKING:
    from tessera.profiler.machine import DeviceCeilings

MOST_TILES = 1 << 22
"""tile records that a recording holds: 200 MB"""
MOST_LAUNCHES = 1 << 16
"""that a recording of sampled calls holds: about 140 MB"""
_HIGHER = 1.1
"""by which more has to be held than when holders were looked for last"""


class Replay(NamedTuple):
    """One run of a CUDA graph: from the start of the first of its launches to the end of the last one, ns. What else
    the graph holds is not seen."""

    graph: int
    number: int
    device: str
    rank: int
    start: int
    end: int
    launches: tuple[LaunchEvent, ...]

    @property
    def title(self) -> str:
        return f"graph {self.graph}, replay {self.number}"


def replay_of(launch: LaunchEvent) -> tuple[int, int, int] | None:
    """Rank, graph and replay that a launch belongs to; None where no graph made it."""
    known = launch.attributes
    return (launch.rank, int(known["graph"]), int(known["replay"])) if "graph" in known else None


def by_a_call(launch: LaunchEvent) -> bool:
    """Whether a call of Tessera's made a launch: no graph, and no other library."""
    return "graph" not in launch.attributes and "seen_by" not in launch.attributes


class Recording(Bookkeeping):
    """Events of one profiled region. `start` and `end` in ns bound the region; events may come from any thread."""

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.start = start
        self.end = end
        self.launches: list[LaunchEvent] = []
        self.compiles: list[CompileEvent] = []
        self.calls: list[CallEvent] = []
        """what the launches were; not kept in a file"""
        self.profiling: list[ProfilingEvent] = []
        self.memory: list[MemoryEvent] = []
        self.batches: list[TileBatch] = []
        self.graphs: list[GraphEvent] = []
        """CUDA graphs: captures, and how often each ran"""
        self.cupti: str | None = None
        """"" where CUPTI timed what ran on GPUs, else why it did not; None where no GPU was in use"""
        self.cupti_lost = 0
        """records of CUPTI's that are missing"""
        self.calls_made: CallTimes | None = None
        """all calls, where only some are recorded: launches and tiles are those of these"""
        self.one_in = 1
        """the tiles of one call in so many are kept: more calls had no room. Their launches are all there"""
        self.left_out = 0
        """tile records of the other calls"""
        self.impossible = 0
        """tile records that `tiles` leaves out, because no time of the region is theirs: a clock wrapped"""
        self.impossible_before = 0
        """those that were left out when it was saved"""
        self.samples = Samples()
        """where the thread that entered the profiler was, for the time outside of kernels"""
        self.repetitions = 0
        """how often the profiler itself made the calls of the region (`Profiler.repeat`); not kept in a file"""
        self.counters = Counters()
        """of the processor and the system, over the region"""
        self.clock: tuple[str, int] | None = None
        """whose clock the times are of, and what makes them ns since 1970: see `this_clock`"""
        self.held: dict[str, list[Holder]] = {}
        """who held most memory when most was held ("peak"), and when the region ended ("end"), by variables"""
        self.machines: dict[str, DeviceCeilings] = {}
        """device -> its ceilings, measured when first asked for; kept in the file when the recording is saved"""
        self.texts: dict[str, str] = {}
        """file -> its text, of those that launches come from"""
        self._measured_here: set[str] = set()
        self._run_time: tuple[tuple[int, ...], int] | None = None
        self._table: tuple[int, TileBatch] | None = None
        self._extents: tuple[TileBatch, tuple[np.ndarray, np.ndarray]] | None = None
        self._by_launch: tuple[TileBatch, np.ndarray] | None = None
        self._lock = threading.Lock()
        self._calls: dict[int, int] = {}
        """run -> its number among the runs of this recording"""
        self._call_of: dict[int, int] = {}
        """launch -> that number"""
        self._held_tiles = 0
        """records in `batches`"""
        self._unheard: set[int] = set()
        """launches of graphs, where only some calls are recorded"""
        self._looked = 0
        """bytes that were held when holders were looked for"""

    def add(self, event: Event) -> None:
        """Stores an event. Runs on the launching thread, so it hardly does more than append."""
        if isinstance(event, TileBatch):
            self._add_tiles(event)
        elif isinstance(event, LaunchEvent) and self.calls_made is not None and replay_of(event) is not None:
            self._unheard.add(event.launch)  # another listener's: figures are those of the chosen calls
        elif isinstance(event, LaunchEvent):
            self.launches.append(plausible(event))
            run = int(event.attributes.get("run", event.launch))
            self._call_of[event.launch] = self._calls.setdefault(run, len(self._calls))
        elif isinstance(event, CallEvent):
            self.calls.append(event)
        elif isinstance(event, CallTime):
            if self.calls_made is not None:
                self.calls_made.add(event)
                if event.recorded and len(self.launches) > MOST_LAUNCHES:
                    self._halve(self.calls_made)
        elif isinstance(event, ProfilingEvent):
            self.profiling.append(event)
        elif isinstance(event, GraphEvent):
            self.graphs.append(event)
        elif isinstance(event, MemoryEvent):
            self.memory.append(event)
            host = event.device.partition(":")[0] == HOST
            if host and event.delta > 0 and event.total >= max(LARGE, _HIGHER * self._looked):
                self._looked = event.total
                self._look(event)
        else:
            self.compiles.append(event)

    def _add_tiles(self, batch: TileBatch) -> None:
        """Where the room for tiles is used up, every other call gives its own back, and has none from then on."""
        with self._lock:
            if self._unheard and len(batch) and int(batch.records["launch"][0]) in self._unheard:
                return
            if not self._is_kept(batch):
                self.left_out += len(batch)
                return
            self.batches.append(batch)
            self._held_tiles += len(batch)
            while self._held_tiles > MOST_TILES and len(self.batches) > 1 and self.one_in < len(self._calls):
                self.one_in *= 2
                before = self._held_tiles
                self._keep_tiles([b for b in self.batches if self._is_kept(b)])
                self.left_out += before - self._held_tiles

    def _keep_tiles(self, batches: list[TileBatch]) -> None:
        self.batches, self._table, self._held_tiles = batches, None, sum(map(len, batches))

    def _is_kept(self, batch: TileBatch) -> bool:
        """Whether a batch is of the calls whose tiles are kept: scattered ones, since programs repeat calls in turn."""
        call = self._call_of.get(int(batch.records["launch"][0]), 0) if len(batch) else 0
        return (call * 0x9E3779B1 >> 12) % self.one_in == 0

    def _halve(self, calls: CallTimes) -> None:
        """Every other recorded call of each program goes, and half as many are recorded from then on."""
        with self._lock:
            runs: dict[int, LaunchEvent] = {}
            for launch in self.launches:
                runs.setdefault(int(launch.attributes.get("run", launch.launch)), launch)
            seen: dict[tuple[object, ...], int] = {}
            kept: set[int] = set()
            for run, launch in runs.items():
                program = (launch.attributes.get("function"), *launch.attributes.get("sizes", {}).items())
                seen[program] = seen.get(program, 0) + 1
                if seen[program] % 2:
                    kept.add(run)
            if len(kept) == len(runs):
                return
            calls.every *= 2
            self.launches = [e for e in self.launches if int(e.attributes.get("run", e.launch)) in kept]
            self.calls = [e for e in self.calls if e.run in kept]
            numbers = {e.launch for e in self.launches}
            self._keep_tiles([b for b in self.batches if len(b) and int(b.records["launch"][0]) in numbers])
            for run in runs.keys() - kept:
                about = runs[run].attributes
                calls.forget(str(about.get("function")), about.get("sizes", {}))

    def _look(self, event: MemoryEvent) -> None:
        self.held["peak"] = holders(thorough=False)
        self.profiling.append(ProfilingEvent(event.time, time.perf_counter_ns() - event.time))

    @property
    def duration(self) -> int:
        """Wall time of the region in ns."""
        return self.end - self.start

    @property
    def run_time(self) -> int:
        """ns of the region that the program took: without the time in which nothing went on but recording, or compiling
        what records. Parts of the run are parts of this."""
        state = (self.start, self.end, len(self.launches), len(self.compiles), len(self.profiling))
        if self._run_time is None or self._run_time[0] != state:
            ours = [e for e in self.compiles if e.attributes.get("instrumented")]
            own = [e for e in self.compiles if not e.attributes.get("instrumented")]
            spans = [(e.start, e.start + (e.duration or 0)) for e in (*own, *self.launches)]
            spans += [(e.start, e.end) for e in self.replays]
            if (calls := self.calls_made) is not None:
                spans += [(begin, begin + took) for begin, took in zip(calls.start, calls.duration, strict=True)]
            both = spans + [(e.start, e.start + e.duration) for e in (*ours, *self.profiling)]
            self._run_time = state, self.duration - (self.covered(both) - self.covered(spans))
        return self._run_time[1]

    def covered(self, spans: Iterable[tuple[int, int]]) -> int:
        """Length of the union of spans, (start, end), within the region."""
        total, reached = 0, self.start
        for start, end in sorted(spans):
            start, end = max(start, reached), min(end, self.end)
            if end > start:
                total += end - start
                reached = end
        return total

    @property
    def represented(self) -> int:
        """ns of the run that recorded launches stand for: all of it, or their calls' share of the calls' time."""
        calls = self.calls_made
        if calls is None or not calls.total:
            return self.run_time
        return round(self.run_time * calls.represented / calls.total)

    @property
    def tiles(self) -> TileBatch:
        """All tile records in one batch, slots assigned, in order of start."""
        with self._lock:
            if self._table is None or self._table[0] != len(self.batches):
                count = len(self.batches)
                joined = _join(self.batches[:count], self.start, self.end)
                self.impossible = self.impossible_before + sum(map(len, self.batches[:count])) - len(joined)
                self._table = (count, joined)
            return self._table[1]

    @property
    def extents(self) -> tuple[np.ndarray, np.ndarray]:
        """Its tiles with all their phases together, and the one that each record belongs to: see `tile_extents`."""
        table = self.tiles
        if self._extents is None or self._extents[0] is not table:
            self._extents = (table, tile_extents(table.records))
        return self._extents[1]

    @property
    def replays(self) -> list[Replay]:
        """The runs of graphs of which launches were recorded, in order of their starts."""
        found: dict[tuple[int, int, int], list[LaunchEvent]] = {}
        for launch in self.launches:
            if launch.duration is not None and (key := replay_of(launch)) is not None:
                found.setdefault(key, []).append(launch)
        made: list[Replay] = []
        for (rank, graph, number), launches in found.items():
            end = max(e.start + (e.duration or 0) for e in launches)
            start = min(e.start for e in launches)
            made.append(Replay(graph, number, launches[0].device, rank, start, end, tuple(launches)))
        return sorted(made, key=lambda replay: replay.start)

    @property
    def unseen_replays(self) -> str:
        """What is said of runs of CUDA graphs that are not among the launches; "" where there are none."""
        if self.cupti == "" and not self.cupti_lost:
            return ""  # it has seen their kernels
        said: list[str] = []
        if lost := sum((event.replays or 0) - event.recorded for event in self.graphs):
            said.append(f"{lost:,} more replay{'s' * (lost != 1)} of CUDA graphs had no room")
        if any(event.replays is None for event in self.graphs):
            said.append("replays of some CUDA graphs cannot be seen")
        return "; ".join(said)

    def tiles_of(self, launch: int) -> TileBatch:
        """The tile records of one launch."""
        table = self.tiles
        if self._by_launch is None or self._by_launch[0] is not table:
            order = np.argsort(table.records["launch"], kind="stable")
            self._by_launch = (table, table.records[order])
        records = self._by_launch[1]
        first, last = records["launch"].searchsorted([launch, launch + 1])
        return TileBatch(records[first:last], table.phases)

    def machine(self, device: str) -> DeviceCeilings:
        """The ceilings of `device`: from the file this recording was loaded from, else measured on this machine."""
        if device not in self.machines:
            self.machines[device] = machine_for(device)
            self._measured_here.add(device)
        return self.machines[device]

    def beaten(self, device: str, kind: str, name: str, value: float, by: str) -> None:
        """A kernel was faster than a ceiling allows: it is measured again where that can be, and raised if need be."""
        if device in self._measured_here:
            self._measured_here.discard(device)  # once: what other kernels reached stays
            self.machines[device] = measured_again(device)
        self.machines[device] = self.machine(device).raised(kind, name, value, f"reached by {by}")


def this_clock() -> tuple[str, int]:
    """The boot of this machine, "" where it is not told, and what, added to its times, makes them ns since 1970.

    Processes of one boot share the clock.
    """
    boot = ""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, time.time_ns() - time.perf_counter_ns()


def _join(batches: list[TileBatch], start: int, stop: int) -> TileBatch:
    phases: dict[str, int] = {}
    empty = np.empty(0, TileBatch.dtype())
    records = np.concatenate([empty, *(batch.records for batch in batches)])
    end = 0
    for batch in batches:
        index = np.array([phases.setdefault(name, len(phases)) for name in batch.phases], np.int16)
        mine = records["phase"][end : end + len(batch)]
        mine[:] = index[mine] if len(batch) else mine
        end += len(batch)
    records = assign_slots(plausible_records(records, start, stop))
    return TileBatch(records[np.argsort(records["start"], kind="stable")], tuple(phases))
