"""`with ts.profiler() as prof:` — listen while the block runs, then answer questions about it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.errors import TesseraError
from tessera.profiler.recording import Recording
from tessera.profiler.remember import remember
from tessera.runtime import events
from tessera.runtime.events import LaunchEvent, TileEvent

if TYPE_CHECKING:
    from tessera.profiler.bottlenecks import Bottleneck
    from tessera.profiler.compare import Comparison
    from tessera.profiler.hints import Hint
    from tessera.profiler.memory import MemoryReport
    from tessera.profiler.roofline import Roofline
    from tessera.profiler.summary import Overhead, Summary
    from tessera.profiler.timeline import Timeline


class Profiler:
    """Records every launch, compilation and allocation of the process while its `with` block runs.

    Blocks may nest and may run in several threads at once; each records everything that happens during it. With
    `tiles=False` kernels run uninstrumented and there are no tile records. An exception in the block passes through,
    and what was recorded until then stays. Entering again starts afresh.
    """

    def __init__(self, *, tiles: bool = True) -> None:
        self.recording = Recording()
        self._tiles = tiles
        self._token: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Profiler:
        with self._lock:
            if self._token is not None:
                message = "this profiler is recording already; make a profiler of its own for each with block"
                raise TesseraError(message, code="TS702")
            self.recording = Recording()
            self._token = events.subscribe(self.recording.add, tiles=self._tiles)
            self.recording.start = self.recording.end = time.perf_counter_ns()
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            events.drain()  # launches of asynchronous devices report before the end is taken
        finally:
            self.recording.end = time.perf_counter_ns()
            if self._token is not None:
                events.unsubscribe(self._token)
                self._token = None
                remember(self.recording)

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
        from tessera.profiler.summary import overhead

        return overhead(self.recording)

    # What it means

    def summary(self) -> Summary:
        """Kernels by time, what bounds them, advice, memory. `print` it, or show it in a notebook."""
        from tessera.profiler.summary import Summary

        return Summary(self.recording)

    def memory(self) -> MemoryReport:
        """Peak, current and allocating lines; `.events` has the allocations, `.figure()` the curve."""
        from tessera.profiler.memory import MemoryReport

        return MemoryReport(self.recording.memory)

    def roofline(self) -> Roofline:
        """Each kernel under the ceilings of the machine; `.points`, `.figure()`."""
        from tessera.profiler.roofline import Roofline

        return Roofline(self.recording)

    def timeline(self, window: tuple[int, int] | None = None) -> Timeline:
        """Tiles over time: `.balances`, `.figure()`. `window` (ns since the start) selects what is drawn as bars."""
        from tessera.profiler.timeline import Timeline

        return Timeline(self.recording, window)

    def hints(self) -> list[Hint]:
        """What to change and what it would save, largest first."""
        from tessera.profiler.hints import hints

        return hints(self.recording)

    def find_bottlenecks(self) -> list[Bottleneck]:
        """Where the region's time went, largest first, each with its hints."""
        from tessera.profiler.bottlenecks import find_bottlenecks

        return find_bottlenecks(self.recording)

    def compare(self, other: Profiler) -> Comparison:
        """This profile (before) against `other` (after), kernel by kernel."""
        from tessera.profiler.compare import compare

        return compare(self.recording, other.recording)

    # Taking it elsewhere

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Writes a trace for ui.perfetto.dev or chrome://tracing; a name that ends in .gz is compressed."""
        from tessera.profiler.export.chrome import export_chrome_trace

        return export_chrome_trace(self.recording, Path(path))

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Writes one page that needs nothing else: summary, timeline, roofline, memory, launches."""
        from tessera.profiler.export.page import write_page

        return write_page(self.recording, Path(path))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes everything recorded into one file for `Profiler.load`."""
        from tessera.profiler.storage import save

        return save(self.recording, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profiler:
        """Reads a saved profile. Raises ProfileError when the file is not one, or is damaged."""
        from tessera.profiler.storage import load

        loaded = cls()
        loaded.recording = load(Path(path))
        return loaded


def profiler(*, tiles: bool = True) -> Profiler:
    """A profiler for a `with` block. See `Profiler`."""
    return Profiler(tiles=tiles)
