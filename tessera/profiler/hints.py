"""What to change and what it would bring: measured value, ideal, cause, change, and a range for the saving.

Each rule is a function from the recording to hints, listed in `RULES`. A range starts at what is sure and ends at what
is possible; a saving that may be nothing starts at 0. Rules say only what the recording shows, and advise only what the
author of the program can change: tile sizes are chosen in a `@ts.kernel`, and what runs in one call is in one function
already. A difference that is no larger than launches of the kernel differ among themselves is not spoken of.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tessera.compiler.machines import SECTOR
from tessera.compiler.targets.base import PLATFORMS
from tessera.language import dtypes
from tessera.profiler.analyses.traffic import WORTH, arrays_of
from tessera.profiler.balance import Balance, balance, imbalance_cause, tile_extents
from tessera.profiler.host import HostReport, place_text
from tessera.profiler.kernel_stats import KernelStats, covered, kernel_stats, roofline_time, time_outside
from tessera.profiler.machine import DeviceCeilings
from tessera.profiler.quantity import format_bytes, format_percent, format_time, weakest
from tessera.profiler.recording import Recording, by_a_call
from tessera.profiler.trial import ledger
from tessera.profiler.trial.outcome import Advice, HintTrial, TriedHint, attempt
from tessera.profiler.views.parts import narrow_reads
from tessera.runtime.events import LaunchEvent, ProfilingEvent, Source, TileBatch

# A hint that could save less than this part of the region is not worth the reader's time.
WORTH_SAYING = 0.01
# What one or two launches may differ by without a cause: they show no spread of their own.
UNREPEATED, UNREPEATED_WITH_EVENTS = 0.25, 0.05
# From this part of the region on, the time outside kernels is worth a word.
MOSTLY_OUTSIDE = 0.5
# Tiles this short, so many of them a lane, and a kernel far from its roof: what each tile costs is what counts.
SHORT_TILE, MANY_TILES = 2_000, 32
CACHE_LINE, ROWS = 64, 16
"""bytes that a processor moves at least (a GPU: `SECTOR`); rows from which on it counts how little of them is used"""
# Raised when a rule changes what it predicts: outcomes of before no longer count for or against it.
VERSION = 2


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
    title: str = ""
    """the kernel as its reader knows it; "" for the whole region"""
    trial: HintTrial | None = field(default=None, compare=False, repr=False)
    """how it can be tried"""

    def try_it(self, budget: float = 1.0) -> TriedHint:
        """Makes the change, compares results, and times both by turns for about `budget` seconds, warm and, where the
        data fit into the caches, cold. `print` what comes of it; no file is changed. What was predicted and what was
        measured are kept: see `tessera hints`."""
        trial = self.trial or HintTrial(Recording(), (), "by hand", "it was made by a rule that has no change for it")
        text = f"{self.kind}: {self.change}"
        return attempt(trial, Advice(self.kind, VERSION, self.title or "whole run", text, self.local), budget)

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
            f"{self.title or 'whole region'}{where}: {self.kind}\n"
            f"  measured: {self.measured}; ideal: {self.ideal}\n"
            f"  cause: {self.cause}\n"
            f"  change: {self.change}\n"
            f"  saves {format_time(low)} to {format_time(high)}: {_range(self.local)} of it, "
            f"{_range(self.whole_run)} of the whole run ({self.source})"
        )


def hints(recording: Recording, silent: bool = False) -> list[Hint]:
    """All advice that the recording supports, largest possible saving first. With `silent`, also of rules whose ranges
    have held too few of what was measured (`ledger.Standing`)."""
    stats = kernel_stats(recording)
    rules = RULES if recording.calls_made is None else WITHIN_CALLS
    found = [hint for rule in rules for hint in rule(recording, stats)]
    worth = [hint for hint in found if hint.whole_run[1] >= WORTH_SAYING]
    if worth and not silent:
        wrong = {standing.rule for standing in ledger.standings(VERSION) if standing.silent}
        worth = [hint for hint in worth if hint.kind not in wrong]
    return sorted(worth, key=lambda hint: -hint.saving[1])


def noise(kernel: KernelStats) -> float:
    """The part of the kernel's time up to which a difference means nothing."""
    if kernel.spread is not None:
        return kernel.spread
    platform = PLATFORMS.get(kernel.device.partition(":")[0])
    return UNREPEATED if platform is not None and not platform.streams else UNREPEATED_WITH_EVENTS


def load_balance(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Lanes that stand idle while others work, by cause: see `imbalance_cause`.

    It has to be so in three launches of four, and of one cause in most.
    """
    for kernel in stats:
        balances = [(launch, balance(launch, recording.tiles_of(launch.launch))) for launch in kernel.launches]
        known = sorted(
            ((launch, found) for launch, found in balances if found is not None),
            key=lambda pair: pair[1].saving[1] / max(pair[1].makespan, 1),
        )
        if not known:
            continue
        _, steady = known[len(known) // 4]
        if steady.saving[1] <= noise(kernel) * steady.makespan:
            continue
        kinds = [imbalance_cause(found, recording.tiles_of(launch.launch)) for launch, found in known]
        kind = statistics.mode(kinds)
        if 2 * kinds.count(kind) <= len(kinds) or kind == "starved":  # by other programs, of which it can do nothing
            continue
        if kind == "tail" and not _same_tile([recording.tiles_of(launch.launch) for launch, _ in known]):
            continue
        typical = known[len(known) // 2][1]
        times = len(kernel.launches) if recording.one_in > 1 else len(known)
        cause, by_tiles = _BALANCE_TEXT[kind](typical)
        change = by_tiles if kernel.written_by_hand else _FOR_FUNCTIONS.get(kind)
        if change is None:
            continue
        yield Hint(
            kind=kind,
            kernel=kernel.kernel,
            title=kernel.title,
            measured=f"{format_percent(typical.idle)} of {typical.lanes} lanes' time idle",
            ideal="0%",
            cause=cause,
            change=change,
            saving=(typical.saving[0] * times, typical.saving[1] * times),
            local_time=kernel.duration,
            region_time=recording.represented,
            source=kernel.source,
            file=kernel.file,
            line=kernel.line,
            trial=_balanced(kind, kernel, recording),
        )


def _same_tile(launches: list[TileBatch]) -> bool:
    """Whether the tile that takes longest is one and the same in most launches: one that waited for a processor is
    another each time. Of two launches it is not known."""
    if len(launches) < 3:
        return True
    longest = [
        int(extents["tile"][extents["duration"].argmax()])
        for extents, _ in (tile_extents(batch.records) for batch in launches)
    ]
    return 2 * longest.count(statistics.mode(longest)) > len(longest)


def small_tiles(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Very many very short tiles in a kernel that is far from its roof: each reads its operands again."""
    for kernel in stats:
        known = _small(kernel, recording)
        if known is None or (_narrow(kernel) is not None and not _reads_again(kernel)):
            continue  # short because they are narrow: the other hint says why
        yield Hint(
            kind="small tiles",
            kernel=kernel.kernel,
            title=kernel.title,
            measured=f"{known.tiles:,} tiles of {format_time(known.median)} each",
            ideal="fewer tiles that use again what they have read",
            cause="starting a tile and reading its operands takes longer than its work",
            change="use larger tiles",
            saving=(0.0, max(0.0, kernel.duration - _least(kernel, recording))),
            local_time=kernel.duration,
            region_time=recording.represented,
            source="modelled",
            file=kernel.file,
            line=kernel.line,
            trial=HintTrial(recording, kernel.launches, "larger"),
        )


def narrow_tiles(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Tiles that take a few columns of many rows: memory is moved in whole lines, most of which they do not use."""
    for kernel in stats:
        found = _narrow(kernel)
        if found is None or (_small(kernel, recording) is not None and _reads_again(kernel)):
            continue  # of tiles that are small altogether, and share operands, the other hint speaks
        operand, used, line = found
        yield Hint(
            kind="narrow tiles",
            kernel=kernel.kernel,
            title=kernel.title,
            measured=f"a tile reads {used} bytes side by side of each row of {operand}",
            ideal=f"{line} bytes, or more",
            cause=f"memory is moved in pieces of {line} bytes: each piece is moved for {line // used} tiles",
            change="make tiles wider along the last axis",
            saving=(0.0, max(0.0, kernel.duration - _least(kernel, recording))),
            local_time=kernel.duration,
            region_time=recording.represented,
            source="modelled",
            file=kernel.file,
            line=kernel.line,
            trial=HintTrial(recording, kernel.launches, "larger"),
        )


def _small(kernel: KernelStats, recording: Recording) -> Balance | None:
    """What is known of its tiles, where these are very short and very many."""
    if kernel.bound != "latency" or kernel.ideal.value is None or not kernel.written_by_hand:
        return None
    launch = kernel.launches[len(kernel.launches) // 2]
    known = balance(launch, recording.tiles_of(launch.launch))
    return known if known is not None and known.median <= SHORT_TILE and known.waves >= MANY_TILES else None


def _narrow(kernel: KernelStats) -> tuple[str, int, int] | None:
    """The operand of which a tile reads least side by side, the bytes of it, and those that memory moves at least."""
    dtype = dtypes.named(kernel.dtype)
    if kernel.bound != "latency" or kernel.ideal.value is None or not kernel.written_by_hand or dtype is None:
        return None
    found = narrow_reads(kernel.launches[-1])
    reads = [(name, wide * dtype.itemsize) for name, wide, rows in found if rows >= ROWS]
    platform = PLATFORMS.get(kernel.device.partition(":")[0])
    line = SECTOR if platform is not None and platform.streams else CACHE_LINE
    operand, used = min(reads, key=lambda read: read[1], default=("", line))
    return (operand, used, line) if 2 * used <= line else None


def _reads_again(kernel: KernelStats) -> bool:
    """Whether tiles share what they read of an operand."""
    return any((entry.times or 1.0) >= WORTH for entry in arrays_of(kernel))


def _least(kernel: KernelStats, recording: Recording) -> float:
    """ns that its launches take at least, together."""
    machine = recording.machine(kernel.device)
    times = (_roof(e.flops or 0, e.bytes or 0, kernel.dtype, machine) or 0.0 for e in kernel.launches)
    return sum(times)


def _roof(flops: float, size: float, dtype: str, machine: DeviceCeilings) -> float | None:
    """The least time in ns, where data that fit into the last cache may come from there; None if it is not known."""
    found = roofline_time(flops, size, dtype, machine).value
    cache = machine.ceiling("bandwidth", "cache").value
    if found is None or cache is None or size > machine.last_cache_bytes:
        return found
    return min(found, max(size / cache * 1e9, roofline_time(flops, 0, dtype, machine).value or 0.0))


def _balanced(kind: str, kernel: KernelStats, recording: Recording) -> HintTrial:
    if not kernel.written_by_hand:
        return HintTrial(recording, kernel.launches, "by hand", "how much work a call gets is for the program to say")
    return HintTrial(recording, kernel.launches, "smaller" if kind == "underfilled" else "other")


_FOR_FUNCTIONS = {"underfilled": "give each call more work (a larger batch): there are too few tiles for this device"}
"""What the author of a `@ts.function` can do, whose tiles the compiler chooses; nothing against the other causes."""

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
        "use smaller tiles: lanes that finish early then take more of them",
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
            title=kernel.title,
            measured=f"{format_percent(occupancy)} of the warps resident",
            ideal="50% or more",
            cause=f"limited by {limiter}; too few warps to hide memory and instruction latency",
            change=f"lower the use of {limiter}: smaller tiles or fewer pipeline stages",
            saving=(0.0, max(0.0, high)),
            local_time=kernel.duration,
            region_time=recording.represented,
            source="modelled",
            file=kernel.file,
            line=kernel.line,
            trial=HintTrial(recording, known, "smaller"),
        )


def fusable_neighbours(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """A memory-bound launch that reads what the launch of another call before it wrote.

    Two launches of one call are in one function already, and the compiler has not fused them.
    """
    bound = {id(launch): kernel.bound for kernel in stats for launch in kernel.launches}
    pairs: dict[tuple[str, str], list[tuple[LaunchEvent, LaunchEvent, float, float, int]]] = {}
    for producer, consumer, between, escapes in _handovers(recording.launches):
        if "memory" not in (bound.get(id(producer)), bound.get(id(consumer))) or _one_call(producer, consumer):
            continue
        saving = _fusion_saving(recording, producer, consumer, between, escapes)
        if saving is not None:
            traffic = between if escapes else 2 * between
            pairs.setdefault((producer.kernel, consumer.kernel), []).append((producer, consumer, *saving, traffic))
    for found in pairs.values():
        producer, consumer, *_ = found[0]
        traffic = sum(entry[4] for entry in found)
        pauses = [_gap(recording, a, b) for a, b, *_ in found]
        longer = sum(_beyond_usual(pauses))
        yield Hint(
            kind="memory-bound neighbours",
            kernel=consumer.kernel,
            title=consumer.title,
            measured=f"{format_bytes(traffic)} moved only to hand the result of {producer.title} on",
            ideal="0 B",
            cause=f"{consumer.title} is launched after {producer.title} and reads its result back from memory",
            change=f"call {_function(producer)} and {_function(consumer)} in one @ts.function, so that they can fuse",
            saving=(sum(entry[2] for entry in found), sum(entry[3] for entry in found) - longer),
            local_time=sum((a.duration or 0) + (b.duration or 0) for a, b, *_ in found) + sum(pauses) - longer,
            region_time=recording.represented,
            source="modelled",
            file=str(consumer.attributes.get("file", "")),
            line=int(consumer.attributes.get("line", 0)),
            trial=HintTrial(recording, (producer, consumer), "one function"),
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
    read from memory for the consumer alone, and the gap between the two launches goes too; a processor reads each line
    that it writes. Neither exceeds what the fused kernel's own roofline leaves.
    """
    machine = recording.machine(producer.device)
    memory = machine.ceiling("bandwidth", "memory").value
    if memory is None:
        return None
    cache = machine.ceiling("bandwidth", "cache").value
    saved = between if escapes else 2 * between
    fits = between <= machine.cache_bytes * max(machine.threads, 1)
    gap = _gap(recording, producer, consumer)
    platform = PLATFORMS.get(producer.device.partition(":")[0])
    fetched = between if platform is not None and not platform.streams and not escapes else 0
    low, high = between / (cache if fits and cache else memory) * 1e9, (saved + fetched) / memory * 1e9 + gap
    before = (producer.duration or 0) + (consumer.duration or 0)
    if None not in (producer.flops, consumer.flops, producer.bytes, consumer.bytes):
        traffic = max(0, (producer.bytes or 0) + (consumer.bytes or 0) - saved)
        dtype = str(consumer.attributes.get("dtype", "f32"))
        fused = _roof((producer.flops or 0) + (consumer.flops or 0), traffic, dtype, machine)
        limit = max(0.0, before - (fused or 0.0))
        low, high = min(low, limit), min(high, limit + gap)
    return min(low, high), high


def _beyond_usual(pauses: Sequence[int]) -> list[int]:
    """The pauses that are much longer than the usual one: the program does something else in them, which a call fewer
    does not save."""
    usual = statistics.median(pauses)
    return [pause for pause in pauses if pause > 4 * usual]


def _gap(recording: Recording, before: LaunchEvent, after: LaunchEvent) -> int:
    """From the end of one launch to the start of the next, in ns, without what recording and compiling take of it."""
    end = before.start + (before.duration or 0)
    others = (*recording.profiling, *recording.compiles)
    spans = [(max(e.start, end), min(e.start + e.duration, after.start)) for e in others]
    return max(0, after.start - end - covered(recording, [span for span in spans if span[0] < span[1]]))


def _function(launch: LaunchEvent) -> str:
    return str(launch.attributes.get("function", launch.kernel))


def _one_call(first: LaunchEvent, second: LaunchEvent) -> bool:
    run = first.attributes.get("run")
    return run is not None and run == second.attributes.get("run")


@dataclass(frozen=True, slots=True)
class _Pause:
    """Time in which no kernel ran, between the calls of two launches."""

    before: LaunchEvent
    after: LaunchEvent
    duration: int


def _begin(event: ProfilingEvent) -> int:
    return event.start


def _pauses(recording: Recording) -> list[_Pause]:
    """Between calls alone: what lies between two launches of one call is the runtime's. Without those that compile, and
    without what recording takes of them."""
    ran = sorted((launch for launch in recording.launches if launch.duration is not None), key=lambda item: item.start)
    compiled = sorted(event.start for event in recording.compiles)
    starts = sorted(recording.profiling, key=lambda event: event.start)
    found: list[_Pause] = []
    last, end = None, 0
    for launch in ran:
        compiling = bisect_left(compiled, launch.start) > bisect_left(compiled, end)
        if last and launch.start > end and not compiling and by_a_call(launch) and not _one_call(last, launch):
            here = starts[bisect_left(starts, end, key=_begin) : bisect_left(starts, launch.start, key=_begin)]
            spans = [(e.start, min(e.start + e.duration, launch.start)) for e in here]
            found.append(_Pause(last, launch, launch.start - end - covered(recording, spans)))
        if launch.start + (launch.duration or 0) >= end:
            last, end = launch, launch.start + (launch.duration or 0)
    return found


def launch_overhead(recording: Recording, _stats: list[KernelStats]) -> Iterator[Hint]:
    """Short kernels with pauses between their calls that are as long, and much alike. Silent where graphs may have run
    in the pauses."""
    elsewhere = HostReport(recording).spent_elsewhere()
    pauses = [pause for pause in _pauses(recording) if pause.after.start not in elsewhere]
    ran = [launch for launch in recording.launches if launch.duration is not None and by_a_call(launch)]
    gaps = sorted(pause.duration for pause in pauses)
    busy = sum(launch.duration or 0 for launch in ran)
    if len(gaps) < 3 or recording.unseen_replays:
        return
    alike = gaps[: len(gaps) - len(_beyond_usual(gaps))]
    if sum(alike) < 0.2 * (busy + sum(alike)):
        return
    called = Counter(map(_function, [pauses[0].before, *(p.after for p in pauses)]))
    most = max(called.values())
    functions = [name for name, times in called.items() if 2 * times >= most]  # of each round: others are called seldom
    typical = statistics.median(launch.duration or 0 for launch in ran)
    larger = "give each call more work (a larger batch)"
    low, high = float(gaps[0] * len(alike)), float(sum(alike))
    if len(functions) > 1:  # of so many calls one is left, whose kernels may have fused; pauses are shorter unobserved
        low, high = 0.0, (busy + high) * (1 - 1 / len(functions))
    together = f"call {', '.join(functions[:3])}{' ...' if len(functions) > 3 else ''} in one @ts.function, or {larger}"
    yield Hint(
        kind="launch overhead",
        kernel="",
        measured=f"{format_time(sum(alike))} between {len(gaps) + 1} calls whose kernels take {format_time(typical)}",
        ideal="one call",
        cause="the kernels are short, so that starting them from Python takes a good part of the time",
        change=together if len(functions) > 1 else larger,
        saving=(low, high),
        local_time=busy + sum(alike),
        region_time=recording.duration,
        source=weakest(*(launch.source for launch in ran)),
        trial=_joined(recording, functions, ran),
    )


def _joined(recording: Recording, functions: list[str], ran: list[LaunchEvent]) -> HintTrial:
    if len(functions) < 2:
        return HintTrial(recording, ran, "by hand", "how much work a call gets is for the program to say")
    each = [next(launch for launch in ran if _function(launch) == name) for name in functions]
    return HintTrial(recording, each, "one function")


def outside_kernels(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """A region that is mostly something else than kernels and compiling, with its longest stretch named.

    Silent where short calls explain it: see `launch_overhead`; where graphs may have run of which nothing is known; and
    where the profiler called one function alone, so that nothing of the program lies between its calls.
    """
    ran = [launch for launch in recording.launches if launch.duration is not None]
    if len({launch.attributes.get("run", launch.launch) for launch in ran}) <= recording.repetitions:
        return
    outside = time_outside(recording)
    short = sum(hint.saving[1] for hint in launch_overhead(recording, stats))
    if not ran or recording.unseen_replays or outside <= MOSTLY_OUTSIDE * recording.duration or short > outside / 2:
        return
    first, last = min(ran, key=lambda x: x.start), max(ran, key=lambda x: x.start + (x.duration or 0))
    stretches = [
        (p.duration, f"between the calls of {_call(p.before)} and {_call(p.after)}") for p in _pauses(recording)
    ]
    stretches.append((first.start - recording.start, f"before the first kernel, of {_call(first)}"))
    stretches.append((recording.end - last.start - (last.duration or 0), f"behind the last kernel, of {_call(last)}"))
    longest, where = max(stretches)
    # What the command does by itself has no file, and is not the author's.
    line = next((line for line in HostReport(recording).lines if line.place.file), None)
    spender = f"; {line} took most of it, {format_time(line.duration)}" if line else ""
    if line and line.place.doing == "tessera":
        change = f"make fewer calls at {place_text(line.place._replace(doing=''))}, or give each more work"
    else:
        change = f"make {line or f'what runs {where}'} faster"
    yield Hint(
        kind="outside kernels",
        kernel="",
        measured=f"{format_percent(outside / recording.duration)} of the run lay outside kernels",
        ideal="0%",
        cause=f"Python, transfers and starting calls; the longest stretch, {format_time(longest)}, is {where}{spender}",
        change=f"{change}; faster kernels cannot make up for it",
        saving=(0.0, float(outside)),
        local_time=recording.duration,
        region_time=recording.duration,
        source="measured",
        trial=HintTrial(recording, ran, "by hand", "what runs there is Python's, and no edit of ours"),
    )


def _call(launch: LaunchEvent) -> str:
    """`attend at model.py:12`, as far as it is known."""
    line = launch.attributes.get("call_line")
    where = f" at {Path(str(launch.attributes.get('call_file'))).name}:{line}" if line else ""
    return f"{_function(launch)}{where}"


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
            trial=HintTrial(recording, (), "by hand", "where a program warms up is for the program to say"),
        )


Rule = Callable[[Recording, list[KernelStats]], Iterator[Hint]]
WITHIN_CALLS: tuple[Rule, ...] = (load_balance, small_tiles, narrow_tiles, low_occupancy, compilation)
RULES: tuple[Rule, ...] = (*WITHIN_CALLS, fusable_neighbours, launch_overhead, outside_kernels)
"""The others look at what lies between calls, which is not known where only some are recorded."""


def _parts(saving: tuple[float, float], of: int) -> tuple[float, float]:
    return (saving[0] / of, saving[1] / of) if of else (0.0, 0.0)


def _range(parts: tuple[float, float]) -> str:
    low, high = (format_percent(part) for part in parts)
    return low if low == high else f"{low} to {high}"
