"""What to change and what it would bring: measured value, ideal, cause, change, and a range for the saving.

Each rule is a function from the recording to hints, listed in `RULES`. A range starts at what is sure and ends at what
is possible; a saving that may be nothing starts at 0. Rules say only what the recording shows: whether two launches may
be fused, for instance, is the compiler's to decide.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tessera.profiler.balance import Balance, balance, imbalance_cause
from tessera.profiler.kernel_stats import KernelStats, kernel_stats, roofline_time
from tessera.profiler.quantity import format_bytes, format_percent, format_time, weakest
from tessera.profiler.recording import Recording
from tessera.runtime.events import LaunchEvent, Source

# A hint that could save less than this part of the region is not worth the reader's time.
WORTH_SAYING = 0.01


@dataclass(frozen=True, slots=True)
class Hint:
    """One piece of advice. `saving` is (low, high) in ns over the whole recording."""

    kind: str
    kernel: str
    """the kernel it is about; "" for the whole region"""
    measured: str
    ideal: str
    cause: str
    change: str
    saving: tuple[float, float]
    local_time: int
    """ns that the saving is taken from: the kernel's launches, or the region"""
    region_time: int
    """wall time of the profiled region in ns"""
    source: Source
    """how the saving was obtained"""
    file: str = ""
    line: int = 0

    @property
    def local(self) -> tuple[float, float]:
        """The saving as parts (0..1) of `local_time`."""
        return _parts(self.saving, self.local_time)

    @property
    def whole_run(self) -> tuple[float, float]:
        """The saving as parts (0..1) of the whole region."""
        return _parts(self.saving, self.region_time)

    def __str__(self) -> str:
        low, high = self.saving
        where = f" ({self.file}:{self.line})" if self.file and self.line else ""
        return (
            f"{self.kernel or 'whole region'}{where}: {self.kind}\n"
            f"  measured: {self.measured}; ideal: {self.ideal}\n"
            f"  cause: {self.cause}\n"
            f"  change: {self.change}\n"
            f"  saves {format_time(low)} to {format_time(high)}: {_range(self.local)} of it, "
            f"{_range(self.whole_run)} of the whole run ({self.source})"
        )


def hints(recording: Recording) -> list[Hint]:
    """All advice that the recording supports, largest possible saving first."""
    stats = kernel_stats(recording)
    found = [hint for rule in RULES for hint in rule(recording, stats)]
    worth = [hint for hint in found if hint.whole_run[1] >= WORTH_SAYING]
    return sorted(worth, key=lambda hint: -hint.saving[1])


def load_balance(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Lanes that stand idle while others work, by cause: see `imbalance_cause`."""
    for kernel in stats:
        balances = [(launch, balance(launch, recording.tiles_of(launch.launch))) for launch in kernel.launches]
        known = [(launch, found) for launch, found in balances if found is not None]
        if not known:
            continue
        low = sum(found.saving[0] for _, found in known)
        high = sum(found.saving[1] for _, found in known)
        launch, worst = max(known, key=lambda pair: pair[1].saving[1])
        if high == 0:
            continue
        kind = imbalance_cause(worst, recording.tiles_of(launch.launch))
        cause, change = _BALANCE_TEXT[kind](worst)
        yield Hint(
            kind=kind,
            kernel=kernel.kernel,
            measured=f"{format_percent(worst.idle)} of {worst.lanes} lanes' time idle",
            ideal="0%",
            cause=cause,
            change=change,
            saving=(low, high),
            local_time=kernel.duration,
            region_time=recording.duration,
            source=kernel.source,
            file=kernel.file,
            line=kernel.line,
        )


_BALANCE_TEXT: dict[str, Callable[[Balance], tuple[str, str]]] = {
    "underfilled": lambda b: (
        f"{b.tiles} tiles for {b.lanes} lanes: {b.lanes - b.tiles} lanes never get a tile",
        "use smaller tiles, or split the reduced axis over more tiles",
    ),
    "wave quantisation": lambda b: (
        f"{b.tiles} equal tiles on {b.lanes} lanes make {b.waves:.2f} waves, and the last one is not full",
        f"choose the tile size so that the number of tiles is just below a multiple of {b.lanes}",
    ),
    "tail": lambda b: (
        f"the longest tile takes {format_time(b.longest)} against a median of {format_time(b.median)}, "
        f"and lanes wait {format_time(b.tail)} at the end",
        "start the long tiles first, or split them",
    ),
    "imbalance": lambda b: (
        "lanes get different amounts of work",
        "use smaller tiles, or let lanes take the next tile when they are free instead of a fixed share",
    ),
}


def low_occupancy(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Too few resident warps to hide latency, in kernels that are far below the roof."""
    for kernel in stats:
        known = [launch for launch in kernel.launches if launch.attributes.get("occupancy") is not None]
        if not known or kernel.bound != "latency" or kernel.ideal.value is None:
            continue
        launch = max(known, key=lambda launch: launch.duration or 0)
        occupancy = float(launch.attributes["occupancy"])
        if occupancy >= 0.5:  # beyond half, more warps rarely help (Volkov 2010)
            continue
        limiter = launch.attributes.get("occupancy_limiter", "its resources")
        # Twice the occupancy hides at most twice the latency, and nothing goes below the roof.
        high = kernel.duration - max(kernel.ideal.value, kernel.duration * occupancy / 0.5)
        yield Hint(
            kind="low occupancy",
            kernel=kernel.kernel,
            measured=f"{format_percent(occupancy)} of the warps resident",
            ideal="50% or more",
            cause=f"limited by {limiter}; too few warps to hide memory and instruction latency",
            change=f"lower the use of {limiter}: smaller tiles or fewer pipeline stages",
            saving=(0.0, max(0.0, high)),
            local_time=kernel.duration,
            region_time=recording.duration,
            source="modelled",
            file=kernel.file,
            line=kernel.line,
        )


def fusable_neighbours(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """A memory-bound launch that reads what the launch before it wrote."""
    bound = {id(launch): kernel.bound for kernel in stats for launch in kernel.launches}
    pairs: dict[tuple[str, str], list[tuple[LaunchEvent, LaunchEvent, float, float, int]]] = {}
    for producer, consumer, between, escapes in _handovers(recording.launches):
        if "memory" not in (bound.get(id(producer)), bound.get(id(consumer))):
            continue
        saving = _fusion_saving(recording, producer, consumer, between, escapes)
        if saving is not None:
            traffic = between if escapes else 2 * between
            pairs.setdefault((producer.kernel, consumer.kernel), []).append((producer, consumer, *saving, traffic))
    for (first, second), found in pairs.items():
        producer, consumer, *_ = found[0]
        traffic = sum(entry[4] for entry in found)
        yield Hint(
            kind="memory-bound neighbours",
            kernel=second,
            measured=f"{format_bytes(traffic)} moved only to hand {first}'s result to {second}",
            ideal="0 B",
            cause=f"{second} is launched after {first} and reads its result back from memory",
            change=f"put {first} and {second} into one function so that they can be fused",
            saving=(sum(entry[2] for entry in found), sum(entry[3] for entry in found)),
            local_time=sum((a.duration or 0) + (b.duration or 0) for a, b, *_ in found),
            region_time=recording.duration,
            source="modelled",
            file=str(consumer.attributes.get("file", "")),
            line=int(consumer.attributes.get("line", 0)),
        )


def _handovers(launches: Iterable[LaunchEvent]) -> Iterator[tuple[LaunchEvent, LaunchEvent, int, bool]]:
    """Consecutive launches on one device joined by a buffer: (producer, consumer, bytes, read again later)."""
    ordered = sorted((launch for launch in launches if launch.duration is not None), key=lambda launch: launch.start)
    read_next: dict[int, bool] = {}  # buffer -> whether its next use, seen from the consumer on, is a read
    for producer, consumer in zip(ordered[-2::-1], ordered[:0:-1], strict=True):
        reads, writes = (consumer.attributes.get(name, ()) for name in ("reads", "writes"))
        written = dict(producer.attributes.get("writes", ()))
        shared = [(buffer, size) for buffer, size in reads if buffer in written]
        if shared and producer.device == consumer.device:
            escapes = any(read_next.get(buffer, False) for buffer, _ in shared)
            yield producer, consumer, sum(size for _, size in shared), escapes
        read_next.update((buffer, False) for buffer, _ in writes)
        read_next.update((buffer, True) for buffer, _ in reads)


def _fusion_saving(
    recording: Recording, producer: LaunchEvent, consumer: LaunchEvent, between: int, escapes: bool
) -> tuple[float, float] | None:
    """(low, high) in ns, or None when the machine's ceilings are not known.

    Low: only the read goes away, and it came from cache where the intermediate fits there. High: it was written to and
    read from memory for the consumer alone, and the gap between the two launches goes too. Neither exceeds what the
    fused kernel's own roofline leaves.
    """
    machine = recording.machine(producer.device)
    memory = machine.ceiling("bandwidth", "memory").value
    if memory is None:
        return None
    cache = machine.ceiling("bandwidth", "cache").value
    saved = between if escapes else 2 * between
    fits = between <= machine.cache_bytes * max(machine.threads, 1)
    gap = max(0, consumer.start - producer.start - (producer.duration or 0))
    low, high = between / (cache if fits and cache else memory) * 1e9, saved / memory * 1e9 + gap
    before = (producer.duration or 0) + (consumer.duration or 0)
    if None not in (producer.flops, consumer.flops, producer.bytes, consumer.bytes):
        traffic = max(0, (producer.bytes or 0) + (consumer.bytes or 0) - saved)
        dtype = str(consumer.attributes.get("dtype", "f32"))
        fused = roofline_time((producer.flops or 0) + (consumer.flops or 0), traffic, dtype, machine)
        limit = max(0.0, before - (fused.value or 0.0))
        low, high = min(low, limit), min(high, limit + gap)
    return min(low, high), high


def launch_overhead(recording: Recording, _stats: list[KernelStats]) -> Iterator[Hint]:
    """Short kernels with long pauses between them."""
    ran = sorted((launch for launch in recording.launches if launch.duration is not None), key=lambda item: item.start)
    compiled = sorted(event.start for event in recording.compiles)
    gaps, end = [], 0
    for index, launch in enumerate(ran):
        # A pause in which something was compiled is the compiler's, and another rule speaks of it.
        compiling = bisect_left(compiled, launch.start) > bisect_left(compiled, end)
        if index and launch.start > end and not compiling and not launch.attributes.get("compile_ns"):
            gaps.append(launch.start - end)
        end = max(end, launch.start + (launch.duration or 0))
    busy = sum(launch.duration or 0 for launch in ran)
    if len(gaps) < 3 or sum(gaps) < 0.2 * (busy + sum(gaps)):
        return
    typical = statistics.median(launch.duration or 0 for launch in ran)
    yield Hint(
        kind="launch overhead",
        kernel="",
        measured=f"{format_time(sum(gaps))} between {len(ran)} launches whose median is {format_time(typical)}",
        ideal="one launch",
        cause="the kernels are short, so that starting them from Python takes a good part of the time",
        change="put the calls into one @ts.function, or give each call more work (a larger batch)",
        saving=(float(min(gaps) * len(gaps)), float(sum(gaps))),
        local_time=busy + sum(gaps),
        region_time=recording.duration,
        source=weakest(*(launch.source for launch in ran)),
    )


def compilation(recording: Recording, _stats: list[KernelStats]) -> Iterator[Hint]:
    """Compiling inside the measured region. What only profiling compiles, for tile records, is not the program's."""
    misses = [
        event for event in recording.compiles if event.cache == "miss" and not event.attributes.get("instrumented")
    ]
    spent = sum(event.duration for event in misses)
    if spent:
        yield Hint(
            kind="compilation",
            kernel="",
            measured=f"{format_time(spent)} compiling {', '.join(sorted({event.name for event in misses}))}",
            ideal="0 ns",
            cause="these were called for the first time with such arguments",
            change="call them once before the region that counts, or keep the disk cache between runs",
            saving=(0.0, float(spent)),
            local_time=recording.duration,
            region_time=recording.duration,
            source="measured",
        )


RULES: tuple[Callable[[Recording, list[KernelStats]], Iterator[Hint]], ...] = (
    load_balance,
    low_occupancy,
    fusable_neighbours,
    launch_overhead,
    compilation,
)


def _parts(saving: tuple[float, float], of: int) -> tuple[float, float]:
    return (saving[0] / of, saving[1] / of) if of else (0.0, 0.0)


def _range(parts: tuple[float, float]) -> str:
    low, high = (format_percent(part) for part in parts)
    return low if low == high else f"{low} to {high}"
