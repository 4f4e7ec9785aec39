"""The profile in words: the kernels by time with what bounds them, advice, memory, and what profiling itself cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.compiler.machines import HOST
from tessera.profiler.analyses.traffic import WORTH, ArrayTraffic, Traffic
from tessera.profiler.hints import Hint, hints
from tessera.profiler.host import HostReport
from tessera.profiler.kernel_stats import KernelStats, copies, kernel_stats
from tessera.profiler.memory import MemoryReport
from tessera.profiler.quantity import Quantity, format_percent, format_time, format_value
from tessera.profiler.recording import Recording, Replay
from tessera.profiler.views.markup import prose
from tessera.runtime.events import GraphEvent

SHOWN = 8
"""kernels in the text, the longest first"""


@dataclass(frozen=True, slots=True)
class Overhead:
    """What recording tiles cost, all lanes together: None with a reason where the target does not know."""

    records: int
    duration: Quantity
    """ns"""
    share: float | None
    """of the tiles' own time"""
    dropped: int = 0
    """records for which there was no room while their call ran"""
    one_in: int = 1
    """the records of one call in so many were kept"""
    left_out: int = 0
    """those of the others"""
    impossible: int = 0
    """records whose times cannot be"""

    def __str__(self) -> str:
        lost = f"; {self.dropped:,} more did not fit and are missing" if self.dropped else ""
        if self.left_out:
            lost += f"; of one call in {self.one_in}, {self.left_out:,} of the others are left out"
        if self.impossible:
            lost += f"; {self.impossible:,} with impossible times are left out: a clock wrapped"
        if self.share is None:
            return f"Profiling overhead: {self.duration}{lost}"
        return f"Profiling overhead: {format_percent(self.share)} of the tiles' time ({self.records:,} records{lost})"


def overhead(recording: Recording) -> Overhead:
    """The cost of a record, which targets measure, times the records."""
    records = len(recording.tiles)
    runs = {x.attributes["run"]: x.attributes["dropped"] for x in recording.launches if "dropped" in x.attributes}
    gone = (sum(runs.values()), recording.one_in, recording.left_out, recording.impossible)
    if not records:
        return Overhead(0, Quantity(0.0, "ns", "measured"), 0.0, *gone)
    cost = 0.0
    for launch in recording.launches:
        count = len(recording.tiles_of(launch.launch))
        each = launch.attributes.get("record_ns")
        if count and each is None:
            missing = Quantity(None, "ns", reason=f"the cost of a tile record is not known for {launch.target}")
            return Overhead(records, missing, None, *gone)
        cost += count * float(each or 0.0)
    extents, _ = recording.extents
    busy = int(extents["duration"].sum())
    return Overhead(records, Quantity(cost, "ns", "modelled"), cost / busy if busy else None, *gone)


WORTH_SAYING = 0.1
"""From this part of the kernels' time on, it is said that other programs had the processors."""


def _unattended(recording: Recording) -> float:
    """While a kernel runs on the CPU, one thread at least needs a processor: what the process got in all is less than
    the kernels' time only if there was none."""
    own = [x for x in recording.launches if x.duration and x.device.partition(":")[0] == HOST]
    took = recording.covered([(x.start, x.start + (x.duration or 0)) for x in own])
    got = recording.counters.figures.get("processor time")
    return 1 - got.value / took if took and got is not None and got.value is not None and got.value < took else 0.0


def gpu_times(recording: Recording) -> str:
    """Who timed what ran on GPUs; "" where nothing did."""
    if recording.cupti is None or all(e.device.partition(":")[0] == HOST for e in recording.launches):
        return ""
    if recording.cupti:
        return f"GPU times: by tile records and CUDA events, of Tessera's kernels alone; {recording.cupti}"
    lost = f"; {recording.cupti_lost:,} records of it are missing" if recording.cupti_lost else ""
    return f"GPU times: by CUPTI, of all kernels and copies{lost}"


def graph_lines(recording: Recording) -> list[str]:
    """A line for each CUDA graph that was captured, or that ran and had been captured by a profile."""
    known: dict[int, list[GraphEvent]] = {}
    for event in recording.graphs:
        known.setdefault(event.graph, []).append(event)
    replays: dict[int, list[Replay]] = {}
    for replay in recording.replays:
        replays.setdefault(replay.graph, []).append(replay)
    return [f"graph {graph}: {_graph_text(events, replays.get(graph, []))}" for graph, events in known.items()]


def _graph_text(events: list[GraphEvent], replays: list[Replay]) -> str:
    """`3 replays of 4 launches, 120 µs each`, and what of the graph cannot be seen."""
    ran = [event for event in events if event.replays]
    count, recorded = sum(e.replays or 0 for e in ran), sum(e.recorded for e in ran)
    unseen = [event for event in events if event.replays is None]
    said: list[str] = []
    if ran:
        launches = max([ran[0].launches, *(len(replay.launches) for replay in replays)])
        said.append(f"{_count(count, 'replay')} of {_count(launches, 'launch', 'launches')}")
        if recorded < count:
            said[0] += f", {f'the first {recorded:,}' if recorded else 'none'} recorded: there was no room for more"
        if replays:
            took = sum(replay.end - replay.start for replay in replays) / len(replays)
            said.append(f"{format_time(took)}{' each' if len(replays) > 1 else ''}")
    elif not unseen:
        said.append("captured, and not replayed since")
    if unseen:
        more = _count(sum(event.launches for event in unseen), "more launch", "more launches")
        what = f"{more} of it" if len(unseen) < len(events) else "its replays"
        said.append(f"{what} cannot be seen: {unseen[0].reason}")
    return "; ".join(said)


def _untimed(recording: Recording) -> list[str]:
    """`  2 launches of saxpy without a time: its clock wrapped or ran backwards`"""
    found: dict[str, list[str]] = {}
    for launch in recording.launches:
        if launch.duration is None and (why := launch.unavailable.get("duration")):
            found.setdefault(why, []).append(launch.title)
    return [
        f"  {_count(len(titles), 'launch', 'launches')} of "
        f"{titles[0] if len(set(titles)) == 1 else _count(len(set(titles)), 'kernel')} without a time: {why}"
        for why, titles in found.items()
    ]


def _count(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


class Summary:
    """Text in a terminal, HTML in a notebook: `str(summary)` is the whole report."""

    def __init__(self, recording: Recording) -> None:
        self.kernels: list[KernelStats] = kernel_stats(recording)
        self.rows = copies(self.kernels, recording)
        """the same, those of an unrolled loop together: each entry with what it is made of"""
        self.hints: list[Hint] = hints(recording)
        self.memory = MemoryReport(recording.memory, recording.held)
        self.traffic = Traffic(recording)
        self.host = HostReport(recording)
        self.graphs = graph_lines(recording)
        """what CUDA graphs did, and what of it could not be seen"""
        self.gpu_times = gpu_times(recording)
        self.untimed = _untimed(recording)
        """launches that are in no figure, because how long they took is not known"""
        self.counters = recording.counters
        self.unattended = _unattended(recording)
        """the least part of the kernels' time on the CPU in which no thread of the process had a processor"""
        self.overhead = overhead(recording)
        self.region, self.run = recording.duration, recording.run_time
        """ns that were recorded, and those of them without what went into recording"""
        self.calls = recording.calls_made
        """where only some calls were recorded: the kernels are those of these"""
        self._start = recording.start

    @property
    def took(self) -> str:
        """`265 µs`, and beside it what went into recording."""
        beside = f" and {format_time(self.region - self.run)} to record it" if self.region > self.run else ""
        return f"{format_time(self.run)} of running{beside}"

    def __str__(self) -> str:
        lines = self.calls.lines(self._start) if self.calls is not None else []
        lines += ["", "Kernels of the recorded calls:"] if lines else ["Kernel Execution Summary:"]
        for kernel, parts in self.rows[:SHOWN]:
            lines += self._kernel(kernel, parts)
        rest = [part for _, parts in self.rows[SHOWN:] for part in parts]
        if rest:
            share = sum(k.share or 0.0 for k in rest)
            lines.append(f"  and {len(rest)} more, together {format_percent(share)}: all are in `summary().kernels`")
        lines += self.untimed
        if not self.kernels and not self.untimed:
            lines.append("  no kernel was launched")
        for hint in self.hints:
            if not hint.kernel:
                lines += ["", f"Whole run: {hint.measured}", f"  - Suggestion: {_suggestion(hint)}"]
        if self.graphs:
            lines += ["", "CUDA graphs:", *(f"  {line}" for line in self.graphs)]
        lines += ["", self.gpu_times] if self.gpu_times else []
        if self.host.lines:
            lines += ["", str(self.host)]
        if self.calls is None or self.memory.events:
            lines += ["", str(self.memory)]
        else:
            lines += ["", "The memory of long runs is sampled with the lines of the host, on Linux"]
        lines += ["", str(self.counters)] if self.counters.figures else []
        if self.unattended > WORTH_SAYING:
            share = format_percent(self.unattended)
            lines.append(f"  For at least {share} of the kernels' time no thread of the process had a processor: other "
                         "programs ran, and the times are too long")  # fmt: skip
        lines += ["", *([f"Recorded: {self.took}"] if self.region > self.run else []), str(self.overhead)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return prose(self)

    def _kernel(self, kernel: KernelStats, parts: Sequence[KernelStats]) -> list[str]:
        count = len(kernel.launches)
        times = f", {count} launches" if count > 1 else ""
        if kernel.spread is not None:
            times += f" of {format_time(kernel.typical)} ± {format_percent(kernel.spread)}"
        modelled = "" if kernel.source == "measured" else f", {kernel.source}"
        title = f"{kernel.title} x {len(parts)}" if len(parts) > 1 else kernel.title
        lines = [f"  {title}: {format_time(kernel.duration)} ({format_percent(kernel.share)}{times}{modelled})"]
        if kernel.intensity.value is not None:
            lines.append(f"    - Arithmetic intensity: {format_value(kernel.intensity.value, 'ops/byte')}")
        for label, figure, peak in (
            ("Memory bandwidth", kernel.bandwidth, kernel.memory_peak),
            ("Compute rate", kernel.rate, kernel.compute_peak),
        ):
            if figure.value:
                of_peak = f" ({format_percent(figure.value / peak.value)} of {peak.source} peak)" if peak.value else ""
                lines.append(f"    - {label}: {format_value(figure.value, figure.unit)}{of_peak}")
        lines.append(f"    - {_bound_text(kernel)}")
        if kernel.bound != "compute":
            again = [e for e in self.traffic.arrays if e.kernel == kernel.title and (e.times or 0) >= WORTH]
            lines += [f"    - {_read_again(entry)}" for entry in again[:1]]
        lines += [
            f"    - Suggestion: {_suggestion(hint)}"
            for hint in self.hints
            if hint.kernel in {part.kernel for part in parts}
        ]
        return lines


def _read_again(entry: ArrayTraffic) -> str:
    read = format_value(entry.modelled.value or 0.0, "B")
    return f"Reads each element of {entry.operand} {entry.times:,.1f} times: {read}, {entry.modelled.source}"


def _bound_text(kernel: KernelStats) -> str:
    fraction = kernel.roof_fraction
    if fraction is None:
        return f"Bound by: not known ({kernel.ideal.reason})"
    if kernel.bound == "latency":
        return f"Bound by neither roof ({format_percent(fraction)} of what the roofline allows): latency or launch cost"
    name = "memory bandwidth" if kernel.bound == "memory" else f"{kernel.dtype} arithmetic"
    if fraction > 1.0 and kernel.bound == "memory":
        return f"Bound by {name}, above the measured roof ({format_percent(fraction)}): the data stayed in cache"
    return f"Bound by {name} ({format_percent(fraction)} of what the roofline allows)"


def _suggestion(hint: Hint) -> str:
    low, high = hint.saving
    return f"{hint.change} (saves {format_time(low)} to {format_time(high)}, {hint.source})"
