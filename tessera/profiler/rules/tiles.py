"""Hints about tiles: how evenly lanes are loaded, how small or narrow tiles are, how many warps are resident."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from tessera.compiler.machines import SECTOR
from tessera.compiler.targets.base import PLATFORMS
from tessera.language import dtypes
from tessera.profiler.analyses.traffic import WORTH, arrays_of
from tessera.profiler.balance import Balance, balance, imbalance_cause, tile_extents
from tessera.profiler.kernel_stats import KernelStats
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.recording import Recording
from tessera.profiler.rules.hint import Hint, roof
from tessera.profiler.trial import blocks
from tessera.profiler.trial.made import HintTrial
from tessera.profiler.views.parts import narrow_reads
from tessera.runtime.events import TileBatch

# What one or two launches may differ by without a cause: they show no spread of their own.
UNREPEATED, UNREPEATED_WITH_EVENTS = 0.25, 0.05
# Tiles this short, so many of them a lane, and a kernel far from its roof: what each tile costs is what counts.
SHORT_TILE, MANY_TILES = 2_000, 32
CACHE_LINE, ROWS = 64, 16
"""bytes that a processor moves at least (a GPU: `SECTOR`); rows from which on it counts how little of them is used"""


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
            local_time=kernel.usual,
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
            saving=(0.0, max(0.0, kernel.usual - _least(kernel, recording))),
            local_time=kernel.usual,
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
            saving=(0.0, max(0.0, kernel.usual - _least(kernel, recording))),
            local_time=kernel.usual,
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
    times = (roof(e.flops or 0, e.bytes or 0, kernel.dtype, machine) or 0.0 for e in kernel.launches)
    return sum(times)


def more_stages(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Loops of a GPU's kernel that copy ahead, in kernels far below the roof: one more copy in flight hides more of the
    time that a copy takes. Modelled; on a CPU nothing is copied ahead."""
    calls = {call.run: call for call in recording.calls}
    for kernel in stats:
        platform, call = PLATFORMS.get(kernel.device.partition(":")[0]), calls.get(_run(kernel))
        stages = blocks.stages_of(None if call is None else call.program())
        if platform is None or not platform.streams or stages is None:
            continue
        if kernel.bound != "latency" or kernel.ideal.value is None:
            continue
        waits = f"what was copied {stages - 1} steps before it" if stages > 2 else "the copy of the step before it"
        waiting = max(0.0, kernel.usual - kernel.ideal.value)
        yield Hint(
            kind="more stages",
            kernel=kernel.kernel,
            title=kernel.title,
            measured=f"num_stages={stages}, and {format_percent(1 - waiting / kernel.usual)} of the roof",
            ideal="as many copies in flight as hide the time that one takes",
            cause=f"each step of the loop waits for {waits if stages > 1 else 'its own copies'}",
            change=f"set num_stages={stages + 1} or more, where shared memory has room",
            saving=(0.0, waiting / (stages + 1)),  # the time of one copy is shared by those in flight (Little's law)
            local_time=kernel.usual,
            region_time=recording.represented,
            source="modelled",
            file=kernel.file,
            line=kernel.line,
            trial=HintTrial(recording, kernel.launches, "more stages"),
        )


def _run(kernel: KernelStats) -> int:
    return int(kernel.launches[-1].attributes.get("run", 0))


def _balanced(kind: str, kernel: KernelStats, recording: Recording) -> HintTrial:
    if not kernel.written_by_hand:
        return HintTrial(recording, kernel.launches, "by hand", "how much work a call gets is for the program to say")
    return HintTrial(recording, kernel.launches, "smaller" if kind == "underfilled" else "other")


_FOR_FUNCTIONS = {"underfilled": "give each call more work (a larger batch): there are too few tiles for this device"}
"""What the author of a `@ts.function` can do, whose tiles the compiler chooses; nothing against the other causes."""

_BALANCE_TEXT: dict[str, Callable[[Balance], tuple[str, str]]] = {
    "underfilled": lambda b: (
        f"{b.tiles} {'tile' if b.tiles == 1 else 'tiles'} for {b.lanes} lanes: the others have nothing to do",
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
        high = kernel.usual - max(kernel.ideal.value, kernel.usual * occupancy / 0.5)
        yield Hint(
            kind="low occupancy",
            kernel=kernel.kernel,
            title=kernel.title,
            measured=f"{format_percent(occupancy)} of the warps resident",
            ideal="50% or more",
            cause=f"limited by {limiter}; too few warps to hide memory and instruction latency",
            change=f"lower the use of {limiter}: smaller tiles or fewer pipeline stages",
            saving=(0.0, max(0.0, high)),
            local_time=kernel.usual,
            region_time=recording.represented,
            source="modelled",
            file=kernel.file,
            line=kernel.line,
            trial=HintTrial(recording, known, "smaller"),
        )
