"""Temporaries that live one after the other become one temporary.

A workspace would give them the same memory (lifetimes.py). Where launches run in bands, what is stored to that memory
has to wait for what reads it, and so the Program has to say that it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.tile.lifetimes import lifetimes
from tessera.compiler.tile.program import Branch, BufferArg, Launch, Loop, Program, Step, exchanges
from tessera.language.dims import prod


def share_memory(program: Program, begin: int, end: int, least: int) -> Program:
    """Of temporaries that two launches, or one between them, are the first to use, of one shape and dtype and from
    `least` bytes on. Those that a backward pass reads keep their names."""
    lives = lifetimes(program)
    found: dict[int, int] = {}
    free_at: dict[Any, list[tuple[int, int]]] = {}
    turned = {b for exchange in exchanges(program) for b in exchange.buffers}
    inside = [b for b in program.buffers if b.id in lives and begin <= lives[b.id][0] <= end and b.id not in turned]
    for b in sorted(inside, key=lambda b: lives[b.id]):
        size = prod(b.shape) * b.dtype.itemsize
        if b.role != "temp" or b.kept is not None or not isinstance(size, int) or size < least:
            continue
        places = free_at.setdefault((b.shape, b.dtype), [])
        first, last = lives[b.id]
        at = next((i for i, (_, until) in enumerate(places) if until < first), None)
        if at is None:
            places.append((b.id, last))
        else:
            found[b.id], places[at] = places[at][0], (places[at][0], last)
    return _renamed(program, found) if found else program


def _renamed(program: Program, new: dict[int, int]) -> Program:
    def of(step: Step) -> Step:
        match step:
            case Launch():
                args = tuple(
                    replace(a, buffer=new[a.buffer]) if isinstance(a, BufferArg) and a.buffer in new else a
                    for a in step.args
                )
                return replace(step, args=args)
            case Branch():
                return replace(step, then=some(step.then), orelse=some(step.orelse))
            case Loop():
                return replace(step, head=some(step.head), body=some(step.body))

    def some(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(map(of, steps))

    return replace(program, steps=some(program.steps))
