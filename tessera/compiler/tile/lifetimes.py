"""Lifetimes of a Program's temporaries, and their placement in one small workspace.

Two temporaries share memory where none of them is needed while the other one is. Everything is decided by the Program
and its sizes, before it runs: what is predicted is what a call takes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from tessera.compiler.tile.program import Branch, BufferArg, Launch, Loop, Program, Step, exchanges
from tessera.errors import Span
from tessera.immutable import immutable
from tessera.language.dims import Dim, prod

ALIGNMENT = 64
"""bytes that the start of a temporary is a multiple of, where a target requires no more"""

LARGE, PAGE, APART = 1 << 20, 4096, 1600
"""bytes of a block from which on it may take a page more, of a page, and from a place in a page to the next block's"""

STRETCH = 32
"""launches whose blocks are looked through together"""

Lifetime: TypeAlias = tuple[int, int]
"""the first and the last launch, as numbered in `Program.launches`, that use a buffer"""
_Placed: TypeAlias = tuple[int, int, int, int]
"""where a block begins and ends, and when it is used first and last"""


@immutable
class Temporary:
    """A buffer that a call has between its launches: what it takes, in bytes, and from which launch to which. `kept`:
    what it holds for a backward pass, and the place of that."""

    buffer: int
    bytes: Dim
    first: int
    last: int
    kept: tuple[str, Span] | None = None


def temporaries(program: Program) -> tuple[Temporary, ...]:
    """The temporaries of a Program that are used, in the order of its buffers."""
    found = lifetimes(program)
    return tuple(
        Temporary(b.id, prod(b.shape) * b.dtype.itemsize, *found[b.id], b.kept)
        for b in program.buffers
        if b.role == "temp" and b.id in found
    )


def lifetimes(program: Program) -> dict[int, Lifetime]:
    """The lifetime of each buffer that is used. What a loop uses and something outside of it too lives from its first
    round to its last one, and what launches use that run in bands from the first of them to the last one. Buffers
    that exchange their memory live as long as all of them."""
    uses: dict[int, list[int]] = {}
    loops: list[Lifetime] = []
    launches = _walk(program.steps, 0, uses, loops)
    for exchange in exchanges(program):
        together = [at for b in exchange.buffers for at in uses.get(b, ())]
        together += [launches - 1] * bool(exchange.bound)  # a temporary may have an array of the call until the end
        uses |= dict.fromkeys(exchange.buffers, together)
    found: dict[int, Lifetime] = {}
    for buffer, at in uses.items():
        first, last = min(at), max(at)
        for bands in program.bands:
            if any(bands.first <= i <= bands.last for i in at):
                first, last = min(first, bands.first), max(last, bands.last)
        for start, end in loops:
            if 0 < sum(start <= i <= end for i in at) < len(at):
                first, last = min(first, start), max(last, end)
        found[buffer] = first, last
    return found


def _walk(steps: Sequence[Step], at: int, uses: dict[int, list[int]], loops: list[Lifetime]) -> int:
    """Notes the launches that use each buffer, and the first and last ones of each loop. `at` is the number of the
    first launch; gives the number behind the last one."""
    for step in steps:
        match step:
            case Launch():
                for arg in step.args:
                    if isinstance(arg, BufferArg):
                        uses.setdefault(arg.buffer, []).append(at)
                at += 1
            case Branch():
                uses.setdefault(step.cond, []).append(at)
                at = _walk(step.orelse, _walk(step.then, at, uses, loops), uses, loops)
            case Loop():
                start = at
                at = _walk((*step.head, *step.body), at, uses, loops)
                for buffer in (step.cond, *(b for turned in step.turns for b in turned)):
                    uses.setdefault(buffer, []).extend((start, at - 1))
                loops.append((start, at - 1))
    return at


def place(spans: Sequence[tuple[int, int, int]], alignment: int = ALIGNMENT) -> tuple[list[int], int]:
    """Where blocks of memory `(bytes, first, last)` begin, and how much memory they need together.

    The largest first, each at the lowest place that is free from its first to its last use. Places are multiples of
    `alignment`.
    """
    places, total = _placed(tuple(spans), alignment)
    return [*places], total


@lru_cache(16)
def _placed(spans: tuple[tuple[int, int, int], ...], alignment: int) -> tuple[list[int], int]:
    """Cached: a first call reads these places before it runs, and again when it runs."""
    sizes = [_apart(-(-size // alignment) * alignment, alignment) for size, _, _ in spans]
    places = [0] * len(spans)
    everything: list[_Placed] = []
    near: list[list[_Placed]] = [[] for _ in range(1 + max((last for _, _, last in spans), default=0) // STRETCH)]
    """of two stretches of launches each, from every stretch on, the blocks that are used there: most are used for a
    short time, and few others at that time"""
    total = 0
    for i in sorted(range(len(spans)), key=lambda i: (-sizes[i], spans[i][1], i)):
        size, (_, first, last) = sizes[i], spans[i]
        start, end = first // STRETCH, last // STRETCH
        at = _lowest(near[start] if end <= start + 1 else everything, size, first, last)
        places[i] = at
        total = max(total, at + size)
        if size:
            block = at, at + size, first, last
            insort(everything, block)
            for some in near[max(start - 1, 0) : end + 1]:
                insort(some, block)
    return places, total


def _lowest(placed: list[_Placed], size: int, first: int, last: int) -> int:
    """The lowest place that is free beside those of the blocks that are used from `first` to `last`."""
    at = 0
    for start, stop, begin, end in placed:
        if start >= at + size:
            break
        if begin <= last and first <= end and stop > at:
            at = stop
    return at


def _apart(size: int, alignment: int) -> int:
    """Bytes from a block to the next one. Large ones do not begin at the same place of a page: where one is read beside
    the other that is written, a processor that compares the lower 12 bits of addresses would wait for each store."""
    return size + (APART - size) % PAGE // alignment * alignment if size >= LARGE else size


def held(program: Program) -> dict[int, int]:
    """Bytes of the arguments, results and constants, by buffer: they are there from the first launch to the last."""
    return {b.id: _known(prod(b.shape) * b.dtype.itemsize) for b in program.buffers if b.role != "temp"}


def peak(program: Program) -> int:
    """The most bytes that a call holds at a time: arguments, results, constants and temporaries. Sizes that are not
    known count for nothing."""
    spans = [(_known(t.bytes), t.first, t.last) for t in temporaries(program)]
    return sum(held(program).values()) + place(spans)[1]


def _known(size: Dim) -> int:
    return size if isinstance(size, int) else 0
