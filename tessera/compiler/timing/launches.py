"""How long a program should take on a processor: a model of its launches, by the figures of that processor.

A launch computes and moves data; the two overlap more or less, so that its time is a range. What it computes is the sum
over the ops of its kernel, each by the rate of its kind. What it moves comes from where the program touched it last: a
cache that holds all that was touched since, or memory. A program is taken to run again and again.
"""

from __future__ import annotations

from typing import cast

from tessera import knobs
from tessera.compiler.figures import Figures, figures
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.machines import HOST, MACHINES, Machine, Peaks, predicted_machine
from tessera.compiler.schedule.cost import LaunchTime, time_by_peaks
from tessera.compiler.tile.program import BufferArg, Launch, Program
from tessera.compiler.tile.work import ALONE_NS, CHUNKS, Work
from tessera.compiler.timing.loops import Loops
from tessera.compiler.timing.places import DataPlaces
from tessera.language.dims import prod


def peaks_for(target: str) -> Peaks | None:
    """The peaks of a target's machine: for the processor at hand, by its figures. None: there is no model of it."""
    machine = MACHINES.get(predicted_machine(target))
    if machine is None or machine.name != HOST:
        return machine.peaks if machine is not None else None
    known, threads = figures(), knobs.num_threads()
    steps, moved = known.rate("step f32", threads), known.rate("copy memory", threads)
    return Peaks(steps / 1e9, moved / 1e9, 1e6 / known.rate("launch", threads))


def launch_times(program: Program, machine: Machine, threads: int | None = None) -> dict[int, LaunchTime]:
    """The time of each launch whose sizes are known, by its `id`; on the processor at hand on that many threads, or
    those that TESSERA_NUM_THREADS says."""
    if machine.name != HOST:
        assert machine.peaks is not None
        found = {id(s): time_by_peaks(s.flops, s.bytes, machine.peaks) for s in program.launches}
        return {key: time for key, time in found.items() if time is not None}
    return _on_processor(program, figures(), threads or knobs.num_threads())


def _on_processor(program: Program, known: Figures, threads: int) -> dict[int, LaunchTime]:
    launches = [s for s in program.launches if _is_known(s)]
    works = {key: Work(code) for key, code in {id(s.code): s.code for s in launches}.items()}
    places = DataPlaces(program, launches, works, known, threads)
    found: dict[int, LaunchTime] = {}
    computed: dict[tuple[int, frozenset[Value]], float] = {}
    for launch in launches:
        share, key = _threads_of(launch, threads), (id(launch.code), _shifted(launch, known))
        if key not in computed:  # launches may share a kernel
            computed[key] = Loops(works[key[0]], known, key[1]).seconds()
        busiest = computed[key] * _waiting(launch, share) / share
        found[id(launch)] = LaunchTime(busiest, places.seconds(launch, share), 1 / known.rate("launch", share))
    return found


def _is_known(launch: Launch) -> bool:
    shapes = [a.type.shape for a in launch.code.region.block.args if isinstance(a.type, ViewType)]
    sizes = (launch.flops, launch.bytes, _programs(launch), *(d for shape in shapes for d in shape))
    return all(isinstance(d, int) for d in sizes)


def _programs(launch: Launch) -> object:
    return prod(cast("tuple[int, ...]", launch.code.attrs["grid"]))


def _threads_of(launch: Launch, threads: int) -> int:
    programs, work = cast(int, _programs(launch)), cast(int, launch.flops) + cast(int, launch.bytes)
    return 1 if work // 8 < ALONE_NS else min(threads, programs)


def _waiting(launch: Launch, threads: int) -> float:
    """How much longer the busiest thread works than all do on average: pieces are whole programs."""
    programs = cast(int, _programs(launch))
    pieces = -(-programs // -(-programs // CHUNKS)) if programs else 1
    return -(-pieces // threads) * threads / pieces if programs else 1.0


def _shifted(launch: Launch, known: Figures) -> frozenset[Value]:
    """The arguments that begin between two vectors."""
    found: set[Value] = set()
    for arg, given in zip(launch.code.region.block.args, launch.args, strict=True):
        if isinstance(arg.type, ViewType) and isinstance(given, BufferArg):
            begin = cast(int, given.offset) * arg.type.dtype.itemsize
            found |= {arg} if begin % known.vector else set()
    return frozenset(found)
