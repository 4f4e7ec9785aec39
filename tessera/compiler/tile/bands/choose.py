"""Chooses the launches of a Program that run in bands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from tessera.compiler.ir.core import Op
from tessera.compiler.tile.bands.chain import Chain, CutLaunch
from tessera.compiler.tile.bands.share import share_memory
from tessera.compiler.tile.bands.spans import UnitSpan, spans, units_of
from tessera.compiler.tile.lifetimes import lifetimes, peak
from tessera.compiler.tile.program import Bands, Branch, Buffer, BufferArg, Launch, Program, Step, exchanges
from tessera.language.dims import prod

LARGE = 1 << 22
"""bytes of an array from which on no cache of one core holds it"""
LONGEST = 1 << 19
"""bytes of a unit from which on too few of them stay in a cache"""
BEHIND = 1 << 21
"""bytes by which the last launch may stay behind the first one"""
LEAST = 4
"""how often what launches stay behind fits into the bands, at least"""


def run_in_bands(program: Program, band: int) -> Program:
    """The Program with its bands, in which each launch computes about `band` bytes at a time. Temporaries that live one
    after the other become one there, so that a cache has the memory that is written. There are no bands that need more
    memory than launches one after the other."""
    large = {b.id for b in program.buffers if _bytes(b) >= LARGE}
    if not any(b.id in large for b in program.buffers if b.role == "temp"):
        return program
    kernels: dict[Op, tuple[UnitSpan, ...] | None] = {}
    most, made = 0, program
    for begin, launches in _runs(program.steps, 0):
        chains = (
            chain
            for first, some in _stretches(begin, launches, large, kernels)
            for chain in _chains(program, first, some, kernels)
        )
        for chain in chains:
            if not large.isdisjoint(chain.handed) and _worth_it(program, chain, band) is not None:
                most = most or peak(program)
                changed = _with_bands(made, begin, chain, band, kernels)
                made = changed if peak(changed) <= most else made
                begin = chain.last + 1
    return made


def _stretches(
    first: int, launches: Sequence[Launch], large: set[int], kernels: dict[Op, tuple[UnitSpan, ...] | None]
) -> Iterator[tuple[int, Sequence[Launch]]]:
    """Launches in a row that could be members, with the number of the first, where one touches a large buffer that an
    earlier one stores: a step of many layers has hundreds of launches, and few of these."""
    touched: dict[int, list[int]] = {}
    for i, launch in enumerate(launches):
        for arg in launch.args:
            if isinstance(arg, BufferArg) and arg.buffer in large:
                touched.setdefault(arg.buffer, []).append(i)
    end = 0
    for i, launch in enumerate(launches):
        stored = [launch.args[n] for n in cast("Sequence[int]", launch.kernel.attrs.get("writes", ()))]
        later = [j for a in stored if isinstance(a, BufferArg) for j in touched.get(a.buffer, ()) if j > i]
        if i < end or not later:
            continue
        begin = stop = i
        while stop < len(launches) and _unit(launches[stop], kernels) is not None:
            stop += 1
        if min(later) < stop:
            while begin > end and _unit(launches[begin - 1], kernels) is not None:
                begin -= 1
            yield first + begin, launches[begin:stop]
            end = stop


def _with_bands(
    program: Program, begin: int, chain: Chain, band: int, kernels: dict[Op, tuple[UnitSpan, ...] | None]
) -> Program:
    """The Program with the launches of a chain in bands, as far as they may be when temporaries share memory that live
    from launch `begin` on, and no longer than the chain."""
    first, last = chain.first, chain.last
    shared = share_memory(program, begin, last, LARGE)
    again = next(_chains(shared, first, shared.launches[first : last + 1], kernels))
    bands = _worth_it(shared, again, band) if again.first == first else None
    return replace(shared, bands=(*program.bands, bands)) if bands is not None else program


def _runs(steps: Sequence[Step], at: int) -> Iterator[tuple[int, list[Launch]]]:
    """Launches that follow each other, with the number of the first, in branches and loops as well."""
    run: list[Launch] = []
    for step in steps:
        if isinstance(step, Launch):
            run.append(step)
            continue
        yield at, run
        at, run = at + len(run), []
        for inner in (step.then, step.orelse) if isinstance(step, Branch) else (step.head, step.body):
            yield from _runs(inner, at)
            at += _count(inner)
    yield at, run


def _count(steps: Sequence[Step]) -> int:
    return sum(
        1 if isinstance(s, Launch) else _count((*s.then, *s.orelse) if isinstance(s, Branch) else (*s.head, *s.body))
        for s in steps
    )


def _chains(
    program: Program, first: int, launches: Sequence[Launch], kernels: dict[Op, tuple[UnitSpan, ...] | None]
) -> Iterator[Chain]:
    """As many launches together as may be, from the first one on."""
    sizes = {b.id: b.dtype.itemsize for b in program.buffers}
    chain: Chain | None = None
    for i, launch in enumerate(launches, first):
        unit = _unit(launch, kernels)
        if chain is not None:
            longer = chain.with_one_more(unit) if unit is not None else None
            if longer is None:
                yield chain
            chain = longer
        if chain is None and unit is not None and unit.units > 1:
            chain = Chain(i, BEHIND // max(_unit_bytes(unit, sizes), 1))
            if not chain.add(unit):
                chain = None
    if chain is not None:
        yield chain


def _unit(launch: Launch, kernels: dict[Op, tuple[UnitSpan, ...] | None]) -> CutLaunch | None:
    if launch.code not in kernels:
        kernels[launch.code] = spans(launch.code)
    found, cut = kernels[launch.code], units_of(launch.code)
    if found is None or cut is None:
        return None
    touched: list[tuple[int, UnitSpan]] = []
    for span in found:
        arg = launch.args[span.argument]
        if not isinstance(arg, BufferArg) or not isinstance(arg.offset, int):
            return None
        if arg.offset:
            span = replace(span, first=span.first + arg.offset, behind=span.behind + arg.offset)
        touched.append((arg.buffer, span))
    return CutLaunch(*cut, tuple(touched))


def _unit_bytes(unit: CutLaunch, sizes: dict[int, int]) -> int:
    return max((s.step * sizes[b] for b, s in unit.touched if s.stored), default=0)


def _worth_it(program: Program, chain: Chain, band: int) -> Bands | None:
    """The bands of a chain; None where its launches hand nothing large to each other, or are as well off without."""
    members = chain.members
    if not any(_bytes(b) >= LARGE for b in program.buffers if b.id in chain.handed):
        return None
    sizes = {b.id: b.dtype.itemsize for b in program.buffers}
    unit = max(step * sizes[b] for b, step in chain.steps.items() if b in chain.handed)
    local = _local(program, chain)
    if local:  # all that a band touches stays in a cache of the second level
        unit = sum(step * sizes[b] for b, step in chain.steps.items() if step > 0) // 2
    step = max(1, round(band / unit))
    behind = max(m.late + m.early for m in members)
    if unit > LONGEST or chain.end < LEAST * (behind + step):
        return None
    return Bands(chain.first, tuple(members), step, chain.end, local)


def _local(program: Program, chain: Chain) -> tuple[tuple[int, int], ...]:
    """The temporaries of which each unit touches its own part and nothing else, and that nothing outside of the bands
    uses, with the bytes of a part."""
    used, last = lifetimes(program), chain.first + len(chain.members) - 1
    turned = {b for exchange in exchanges(program) for b in exchange.buffers}  # read in another round, as another one
    found: list[tuple[int, int]] = []
    for b in program.buffers:
        own = chain.accesses.get(b.id, ())
        step = chain.steps.get(b.id, 0)
        if b.role != "temp" or b.kept is not None or not own or b.id in turned:
            continue
        inside = chain.first <= used[b.id][0] and used[b.id][1] <= last
        alone = all(a.step == step and a.first >= 0 and a.behind <= step for a in own)
        members = [chain.members[a.member] for a in own]
        if inside and alone and not any(m.start or m.late or m.early or m.last for m in members):
            found.append((b.id, step * b.dtype.itemsize))
    return tuple(found)


def _bytes(b: Buffer) -> int:
    size = prod(b.shape) * b.dtype.itemsize
    return size if isinstance(size, int) else 0
