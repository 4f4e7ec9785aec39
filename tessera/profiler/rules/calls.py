"""Hints about what lies between calls: results handed on through memory, short calls, Python, compiling."""

from __future__ import annotations

import statistics
from bisect import bisect, bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tessera.compiler.targets.base import PLATFORMS
from tessera.profiler.host import HostReport, place_text
from tessera.profiler.kernel_stats import KernelStats, time_outside
from tessera.profiler.quantity import format_bytes, format_percent, format_time, weakest
from tessera.profiler.recording import Recording, by_a_call
from tessera.profiler.rules.hint import Hint, function_of, one_call, roof
from tessera.profiler.trial import batching
from tessera.profiler.trial.made import HintTrial
from tessera.runtime.events import LaunchEvent, ProfilingEvent

# From this part of the region on, the time outside kernels is worth a word.
MOSTLY_OUTSIDE = 0.5


def fusable_neighbours(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """A memory-bound launch that reads what the launch of another call before it wrote.

    Two launches of one call are in one function already, and the compiler has not fused them.
    """
    bound = {id(launch): kernel.bound for kernel in stats for launch in kernel.launches}
    pairs: dict[tuple[str, str], list[tuple[LaunchEvent, LaunchEvent, float, float, int]]] = {}
    for producer, consumer, between, escapes in _handovers(recording.launches):
        if "memory" not in (bound.get(id(producer)), bound.get(id(consumer))) or one_call(producer, consumer):
            continue
        saving = _fusion_saving(recording, producer, consumer, between, escapes)
        if saving is not None:
            traffic = between if escapes else 2 * between
            pairs.setdefault((producer.kernel, consumer.kernel), []).append((producer, consumer, *saving, traffic))
    for found in pairs.values():
        producer, consumer, *_ = found[0]
        traffic = sum(entry[4] for entry in found)
        pauses = [_gap(recording, a, b) for a, b, *_ in found]
        longer, names = sum(_beyond_usual(pauses)), (function_of(producer), function_of(consumer))
        change = f"call {names[0]} and {names[1]} in one @ts.function, so that they can fuse"
        trial = HintTrial(recording, (producer, consumer), "one function")
        if _one_place(producer, consumer):
            change = (
                f"put several rounds of the loop that calls {names[0]} into one @ts.function, so that they can fuse"
            )
            trial = HintTrial(recording, (producer,), "by hand", "the calls are rounds of a loop in the program's text")
        yield Hint(
            kind="memory-bound neighbours",
            kernel=consumer.kernel,
            title=consumer.title,
            measured=f"{format_bytes(traffic)} moved only to hand the result of {producer.title} on",
            ideal="0 B",
            cause=f"{consumer.title} is launched after {producer.title} and reads its result back from memory",
            change=change,
            saving=(sum(entry[2] for entry in found), sum(entry[3] for entry in found) - longer),
            local_time=sum((a.duration or 0) + (b.duration or 0) for a, b, *_ in found) + sum(pauses) - longer,
            region_time=recording.represented,
            source="modelled",
            file=str(consumer.attributes.get("file", "")),
            line=int(consumer.attributes.get("line", 0)),
            trial=trial,
        )


def _one_place(first: LaunchEvent, second: LaunchEvent) -> bool:
    """Whether both are of one call in the text, in two rounds of a loop."""
    places = [(x.attributes.get("call_file"), x.attributes.get("call_line"), function_of(x)) for x in (first, second)]
    return bool(places[0][1]) and places[0] == places[1]


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
        fused = roof((producer.flops or 0) + (consumer.flops or 0), traffic, dtype, machine)
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
    return max(0, after.start - end - recording.covered(span for span in spans if span[0] < span[1]))


@dataclass(frozen=True, slots=True)
class _Pause:
    """Time in which no kernel ran, between the calls of two launches."""

    before: LaunchEvent
    after: LaunchEvent
    duration: int


def _begin(event: ProfilingEvent) -> int:
    return event.start


def _end(launch: LaunchEvent) -> int:
    return launch.start + (launch.duration or 0)


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
        if last and launch.start > end and not compiling and by_a_call(launch) and not one_call(last, launch):
            here = starts[bisect_left(starts, end, key=_begin) : bisect_left(starts, launch.start, key=_begin)]
            spans = [(e.start, min(e.start + e.duration, launch.start)) for e in here]
            copying = int(launch.attributes.get("copying", 0))  # of which another hint speaks
            found.append(_Pause(last, launch, max(0, launch.start - end - recording.covered(spans) - copying)))
        if launch.start + (launch.duration or 0) >= end:
            last, end = launch, launch.start + (launch.duration or 0)
    return found


def launch_overhead(recording: Recording, _stats: list[KernelStats]) -> Iterator[Hint]:
    """Short kernels with pauses between their calls that are as long, and much alike. Silent where graphs may have run
    in the pauses."""
    elsewhere = HostReport(recording).spent_elsewhere()
    pauses = [p for p in _pauses(recording) if bisect(elsewhere, _end(p.before)) == bisect(elsewhere, p.after.start)]
    ran = [launch for launch in recording.launches if launch.duration is not None and by_a_call(launch)]
    gaps = sorted(pause.duration for pause in pauses)
    busy = sum(launch.duration or 0 for launch in ran)
    if len(gaps) < 3 or recording.unseen_replays:
        return
    alike = gaps[: len(gaps) - len(_beyond_usual(gaps))]
    if sum(alike) < 0.2 * (busy + sum(alike)):
        return
    called = Counter(map(function_of, [pauses[0].before, *(p.after for p in pauses)]))
    most = max(called.values())
    functions = [name for name, times in called.items() if 2 * times >= most]  # of each round: others are called seldom
    typical = statistics.median(launch.duration or 0 for launch in ran)
    larger = "give each call more work (a larger batch)"
    low, high = float(gaps[0] * len(alike)), float(sum(alike))
    if len(functions) > 1:  # of so many calls one is left, whose kernels may have fused; pauses are shorter unobserved
        low, high = 0.0, (busy + high) * (1 - 1 / len(functions))
    trial = _joined(recording, functions, ran)
    change = larger
    if len(functions) > 1:
        named = f"{', '.join(functions[:3])}{' ...' if len(functions) > 3 else ''}"
        change = f"call {named} in one @ts.function, or {larger}"
    elif trial.change == "one batch":  # one call is left of them all
        low, high = 0.0, (busy + high) * (1 - 1 / (len(alike) + 1))
        change = f"call ts.vmap of {functions[0]} once, instead of {functions[0]} for each element"
    yield Hint(
        kind="calls in a loop" if trial.change == "one batch" else "launch overhead",
        kernel="",
        measured=f"{format_time(sum(alike))} between {len(gaps) + 1} calls whose kernels take {format_time(typical)}",
        ideal="one call",
        cause="the kernels are short, so that starting them from Python takes a good part of the time",
        change=change,
        saving=(low, high),
        local_time=busy + sum(alike),
        region_time=recording.run_time,
        source=weakest(*(launch.source for launch in ran)),
        trial=trial,
    )


def _joined(recording: Recording, functions: list[str], ran: list[LaunchEvent]) -> HintTrial:
    if len(functions) < 2:
        mine = [launch for launch in ran if function_of(launch) == functions[0]]
        loop = HintTrial(recording, sorted(mine, key=lambda launch: launch.start), "one batch")
        by_hand = HintTrial(recording, ran, "by hand", "how much work a call gets is for the program to say")
        return loop if batching.can(loop) else by_hand
    each = [next(launch for launch in ran if function_of(launch) == name) for name in functions]
    return HintTrial(recording, each, "one function")


def outside_kernels(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """A region that is mostly something else than kernels and compiling, with its longest stretch named.

    Silent where short calls explain it: see `launch_overhead`; where graphs may have run of which nothing is known; and
    where the profiler called one function alone, so that nothing of the program lies between its calls.
    """
    ran = [launch for launch in recording.launches if launch.duration is not None]
    if len({launch.attributes.get("run", launch.launch) for launch in ran}) <= recording.repetitions:
        return
    copying = {x.attributes.get("run", x.launch): int(x.attributes.get("copying", 0)) for x in ran}
    outside = time_outside(recording) - sum(copying.values())  # of which another hint speaks
    short = sum(hint.saving[1] for hint in launch_overhead(recording, stats))
    if not ran or recording.unseen_replays or outside <= MOSTLY_OUTSIDE * recording.run_time or short > outside / 2:
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
        measured=f"{format_percent(outside / recording.run_time)} of the run lay outside kernels",
        ideal="0%",
        cause=f"Python, transfers and starting calls; the longest stretch, {format_time(longest)}, is {where}{spender}",
        change=f"{change}; faster kernels cannot make up for it",
        saving=(0.0, float(outside)),
        local_time=recording.run_time,
        region_time=recording.run_time,
        source="measured",
        trial=HintTrial(recording, ran, "by hand", "what runs there is Python's, and no edit of ours"),
    )


def _call(launch: LaunchEvent) -> str:
    """`attend at model.py:12`, as far as it is known."""
    line = launch.attributes.get("call_line")
    where = f" at {Path(str(launch.attributes.get('call_file'))).name}:{line}" if line else ""
    return f"{function_of(launch)}{where}"


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
            local_time=recording.run_time,
            region_time=recording.run_time,
            source="measured",
            trial=HintTrial(recording, (), "by hand", "where a program warms up is for the program to say"),
        )
