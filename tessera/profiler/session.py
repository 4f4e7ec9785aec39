"""`with ts.profiler() as prof:` — listen while the block runs, then answer questions about it."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from tessera.compiler.predict import Measured, common, digest, record
from tessera.errors import TesseraError
from tessera.fitted import fitted
from tessera.language.schedule import Schedule
from tessera.profiler.analyses.critical_path import CriticalPath
from tessera.profiler.analyses.traffic import Traffic
from tessera.profiler.bottlenecks import Bottleneck, find_bottlenecks
from tessera.profiler.compare import Comparison, compare
from tessera.profiler.export.chrome import export_chrome_trace
from tessera.profiler.export.kineto import export_tensorboard
from tessera.profiler.export.page import write_page
from tessera.profiler.export.schedules import export_schedules, schedules
from tessera.profiler.export.speedscope import export_speedscope
from tessera.profiler.export.table import export_events
from tessera.profiler.export.track_event import export_perfetto
from tessera.profiler.hints import Hint, hints
from tessera.profiler.host import HostReport
from tessera.profiler.measure import cupti, gpu_memory
from tessera.profiler.measure.activities import join
from tessera.profiler.memory import MemoryReport, of_samples
from tessera.profiler.recording import Recording, this_clock
from tessera.profiler.roofline import Roofline
from tessera.profiler.sampling.calls import CallTimes
from tessera.profiler.sampling.counters import Counters, OpenCounters
from tessera.profiler.sampling.stacks import Sampler
from tessera.profiler.storage import load, save
from tessera.profiler.summary import Overhead, Summary, overhead
from tessera.profiler.timeline import Timeline
from tessera.profiler.trial.lines import LineComparison, compare_lines, repetitions_of, texts_of
from tessera.runtime import events
from tessera.runtime.arrays.holders import holders
from tessera.runtime.events import LaunchEvent, TileEvent
from tessera.tracebacks import outward

P = ParamSpec("P")
R = TypeVar("R")


_RUNS = 3
"""of `repeat` without a number: the fewest that show a spread, and a page holds the tiles of all of them"""
_REPEAT_NS = 1_000_000_000


@fitted
class Profiler:
    """Records every launch, compilation and allocation of the process while its `with` block runs.

    Blocks may nest and may run in several threads at once; each records everything that happens during it. With
    `tiles=False` kernels run uninstrumented and there are no tile records; with `host=False` nothing is sampled, and
    the time outside of kernels has no lines. With `every=50` the first of fifty calls of each program is recorded, of
    the others only the time: for long runs, in bounded memory. An exception in the block passes through, and what was
    recorded until then stays. Entering again starts afresh.
    """

    def __init__(self, *, tiles: bool = True, host: bool = True, every: int = 1) -> None:
        if every < 1:
            raise TesseraError(f"every={every}: one call in so many is recorded, so it is at least 1", code="TS105")
        self.recording = Recording()
        self._tiles, self._host, self._every = tiles, host, every
        self._sampler: Sampler | None = None
        self._gpu_memory: list[gpu_memory.GpuMemory] = []
        self._cupti: cupti.CuptiTrace | None = None
        self._counting: OpenCounters | None = None
        self._token: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Profiler:
        with self._lock:
            if self._token is not None:
                message = "this profiler is recording already; make a profiler of its own for each with block"
                raise TesseraError(message, code="TS702")
            self.recording = Recording()
            calls = self.recording.calls_made = CallTimes(self._every) if self._every > 1 else None
            choice = None if calls is None else calls.choose
            self._gpu_memory = gpu_memory.start() if calls is None else []
            self._cupti = cupti.start() if calls is None else None
            self._counting = OpenCounters()
            self._token = events.subscribe(self.recording.add, tiles=self._tiles, choice=choice)
            if self._host:
                self._sampler = Sampler(threading.get_ident(), long=calls is not None)
                self._sampler.start()
            self.recording.start = self.recording.end = time.perf_counter_ns()
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            events.drain()  # launches of asynchronous devices report before the end is taken
        finally:
            self.recording.end = time.perf_counter_ns()
            self.recording.clock = this_clock()
            if self._counting is not None:
                self.recording.counters, self._counting = self._counting.stop(), None
            if self._sampler is not None:
                self.recording.samples, self._sampler = self._sampler.stop(), None
            if self._token is not None:
                events.unsubscribe(self._token)
                self._token = None
                for launch in events.unfinished("it had not ended when the profile did"):
                    self.recording.add(launch)
                if self._cupti is not None:
                    join(self.recording, self._cupti.stop())
                    self._cupti = None
                if self.recording.calls_made is not None:
                    self.recording.memory = of_samples(self.recording.samples)
                else:
                    self.recording.memory = gpu_memory.joined(self.recording.memory, self._gpu_memory)
                    self._gpu_memory = []
                if self.recording.memory:
                    self.recording.held["end"] = holders()
                self.recording.texts = texts_of(str(e.attributes.get("file", "")) for e in self.recording.launches)
                _remember(self.recording)

    def repeat(self, call: Callable[[], object], times: int | None = None) -> None:
        """Records several runs of `call`, to see what differs from run to run. It has been called before.

        `times` None: three times; once if that takes longer than a second.
        """
        with self:
            until = time.perf_counter_ns() + _REPEAT_NS
            for done in range(1, (times or _RUNS) + 1):
                call()
                self.recording.repetitions = done
                if times is None and done == 1 and time.perf_counter_ns() >= until:
                    break

    # What happened

    def tiles(self) -> list[TileEvent]:
        """Every tile record, in order of start. `recording.tiles` is the same as columns, for millions of them."""
        return list(self.recording.tiles)

    def launches(self) -> list[LaunchEvent]:
        """Every launch, in the order published."""
        return list(self.recording.launches)

    @property
    def overhead(self) -> Overhead:
        """What the tile records cost."""
        return overhead(self.recording)

    # What it means

    def summary(self) -> Summary:
        """Kernels by time, what bounds them, advice, memory. `print` it, or show it in a notebook."""
        return Summary(self.recording)

    def host(self) -> HostReport:
        """Lines of the program by the time outside of kernels that they took; `.lines`, `.gaps`."""
        return HostReport(self.recording)

    def memory(self) -> MemoryReport:
        """Peak, current, allocating lines and who holds what; `.events` has the allocations, `.figure()` the curve."""
        return MemoryReport(self.recording.memory, self.recording.held)

    def counters(self) -> Counters:
        """Cycles, instructions, cache misses, page faults, interruptions of the region; `.figures`, each with the
        reason where it is not known."""
        return self.recording.counters

    def roofline(self) -> Roofline:
        """Each kernel under the ceilings of the machine; `.points`, `.figure()`."""
        return Roofline(self.recording)

    def traffic(self) -> Traffic:
        """Bytes by array: what tiles read of each operand against each element once; `.arrays`, most read again
        first."""
        return Traffic(self.recording)

    def critical_path(self) -> CriticalPath:
        """The chain of kernels, compilations and lines of the program that the region's time consists of; `.steps`,
        `.parts`. What is not on it ran beside it."""
        return CriticalPath(self.recording)

    def timeline(self, window: tuple[int, int] | None = None) -> Timeline:
        """Tiles over time: `.balances`, `.figure()`. `window` (ns since the start) selects what is drawn as bars."""
        return Timeline(self.recording, window)

    def hints(self, silent: bool = False) -> list[Hint]:
        """What to change and what it would save, largest first; `hint.try_it()` makes the change and measures it.

        `silent`: also what rules say that were wrong too often lately (`tessera hints`)."""
        return hints(self.recording, silent)

    def find_bottlenecks(self) -> list[Bottleneck]:
        """Where the region's time went, largest first, each with its hints."""
        return find_bottlenecks(self.recording)

    def compare(self, other: Profiler) -> Comparison:
        """This profile (before) against `other` (after), kernel by kernel."""
        return compare(self.recording, other.recording)

    def compare_lines(self, other: Profiler) -> LineComparison:
        """This profile (before) against `other` (after), line by line, with intervals: see `LineComparison`.

        The calls of each are its repetitions; it takes some twenty of each to flag a line. `side_by_side` runs both by
        turns, which a busy machine disturbs less.
        """
        return compare_lines(repetitions_of(self.recording), repetitions_of(other.recording), by_turn=False)

    # Taking it elsewhere

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Writes a trace for ui.perfetto.dev or chrome://tracing; a name that ends in .gz is compressed."""
        return export_chrome_trace(self.recording, Path(path))

    def export_perfetto(self, path: str | os.PathLike[str]) -> Path:
        """As `export_chrome_trace`, in Perfetto's own format (TrackEvent): smaller, and names stand as they are."""
        return export_perfetto(self.recording, Path(path))

    def export_tensorboard(self, folder: str | os.PathLike[str]) -> Path:
        """Writes `rank0.pt.trace.json` and so on into `folder`, for TensorBoard's PyTorch plugin and Holistic Trace
        Analysis: calls as operators, launches as kernels."""
        return export_tensorboard(self.recording, Path(folder))

    def export_speedscope(self, path: str | os.PathLike[str]) -> Path:
        """Writes every row of the trace as a profile for speedscope.app; a name that ends in .gz is compressed."""
        return export_speedscope(self.recording, Path(path))

    def export_events(self, path: str | os.PathLike[str]) -> Path:
        """Writes all events as one table, .json or .parquet. Raises MissingDependency for Parquet without pyarrow."""
        return export_events(self.recording, Path(path))

    def schedules(self) -> dict[str, Schedule]:
        """The block sizes that kernels ran with, tuned ones too, by the name of the file that they would be in."""
        return schedules(self.recording)

    def export_schedules(self, folder: str | os.PathLike[str]) -> Path:
        """Writes these into `folder` as `.sched` files for `ts.Schedule.load`. Raises TesseraError TS703 where there
        are none."""
        return export_schedules(self.recording, Path(folder))

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Writes one page that needs nothing else: summary, timeline, roofline, memory, launches."""
        return write_page(self.recording, Path(path))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes everything recorded into one file for `Profiler.load`."""
        return save(self.recording, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profiler:
        """Reads a saved profile. Raises ProfileError when the file is not one, or is damaged."""
        loaded = cls()
        loaded.recording = load(Path(path))
        return loaded


@fitted
def profiler(*, tiles: bool = True, host: bool = True, every: int = 1) -> Profiler:
    """A profiler for a `with` block. See `Profiler`."""
    return Profiler(tiles=tiles, host=host, every=every)


@fitted
def profile_memory(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: prints what each call of `function` allocated, where, and what it still holds at its end."""

    @outward
    @functools.wraps(function)
    def profiled(*args: P.args, **kwargs: P.kwargs) -> R:
        with Profiler(tiles=False, host=False) as prof:
            try:
                return function(*args, **kwargs)
            finally:
                report = MemoryReport(prof.recording.memory, prof.recording.held)
                print(f"Memory Profile for {function.__name__}:", report.details(), sep="\n")

    return profiled


def _remember(recording: Recording) -> None:
    """Leaves what functions took in the cache folder, for editors to show beside them: functions whose text lies in a
    file, as a notebook shows its own."""
    found: dict[str, dict[str, list[LaunchEvent]]] = {}
    for launch in recording.launches:
        file, name = str(launch.attributes.get("file", "")), str(launch.attributes.get("function", ""))
        if launch.duration is not None and launch.source == "measured" and file and name:
            found.setdefault(file, {}).setdefault(name, []).append(launch)
    now = time.time()
    for file, functions in found.items():
        path = Path(file).absolute()
        try:
            text = digest(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeError):
            continue
        took = {
            name: Measured(
                sum(r.duration or 0 for r in runs),
                len(runs),
                runs[-1].target,
                now,
                text,
                common(r.attributes.get("sizes", {}) for r in runs),
            )
            for name, runs in functions.items()
        }
        record(str(path), took)
