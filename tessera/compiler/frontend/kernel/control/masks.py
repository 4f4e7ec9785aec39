"""Statements under a condition over lanes: they run for all lanes, and change something only where it holds."""

from __future__ import annotations

import ast
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tessera.compiler.frontend.kernel.access import NOT_KNOWN
from tessera.compiler.frontend.kernel.broadcasting import relation
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import Axis, LaunchContext, Panel, Shared, Transposed, View
from tessera.compiler.frontend.names.frame import Flow, LoopMark
from tessera.compiler.frontend.names.values import MISSING, Unknown
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

FIXED = (View, Shared, Transposed, Panel, LaunchContext)
"""values that name something; no path and no loop can make another one of them"""
RETURNED = "<returned>"
"""the flag of a kernel that returns from inside a loop; no program can write such a name"""


def read_again_by_lanes(k: KernelState, depth: int) -> None:
    """The kernel is to be read again: lanes leave the loop whose mark lies there one by one."""
    statements, i = k.ev.frame.rests[depth - 1]
    k.laned |= {place_of(statements[i])}
    k.left |= {place_of(statements[i])} if isinstance(statements[i], ast.While) else set()


def place_of(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def run_under(k: KernelState, mask: Value, body: list[ast.stmt]) -> Flow:
    """Runs statements where `mask` holds; what they assign keeps its old value elsewhere."""
    before = dict(k.ev.frame.names)
    with masking(k, mask):
        flow = k.ev.run(body)
    for name, new in k.ev.frame.names.items():
        old = before.get(name, MISSING)
        if new is old or old is MISSING or isinstance(new, Unknown) or isinstance(old, Unknown):
            continue
        if name == RETURNED:
            raise KernelFault(
                "TS102", "a return inside a loop would end some lanes only; put it under a condition of all lanes"
            )
        marks_of_loops = (m for m in enumerate(k.ev.frame.rests) if isinstance(m[1], LoopMark))
        left = next((at for at, mark in marks_of_loops if mark.going == name), None)
        if left is not None:  # a break for all, but under a condition over lanes: some leave
            read_again_by_lanes(k, left)
            k.ev.frame.names[name] = old
            continue
        if isinstance(new, FIXED) or isinstance(old, FIXED):
            raise KernelFault("TS212", f"{name!r} cannot change under a condition over lanes")
        k.ev.frame.names[name] = k.chosen(mask, new, old)
    return flow


@contextmanager
def masking(k: KernelState, mask: Value) -> Generator[None]:
    memory = k.memory
    outer = memory.mask, memory.condition
    if memory.mask is None:
        memory.mask = mask
    else:
        memory.mask = k.tiles.map("logical_and", memory.mask, mask)
    memory.condition &= k.conditions.get(mask, NOT_KNOWN)
    try:
        yield
    finally:
        memory.mask, memory.condition = outer


def identify_results(k: KernelState) -> None:
    """What a `tile.if` gives has the axes of what its regions yield."""
    block = k.ev.builder.block
    op = block.ops[-1] if block.ops else None
    if op is None or op.name != "tile.if":
        return
    for i, result in enumerate(op.results):
        if isinstance(result.type, TileType):
            yields = [r.block.terminator.operands[i] for r in op.regions]
            both = list(zip(*(k.tiles.identities.of(y) for y in yields), strict=True))
            for a, b in both:
                a.join(b)
            k.tiles.identities.like(result, yields[0])
            one = (a if relation(a, b) not in ("different", "unclear") else Axis(size=a.size) for a, b in both)
            k.tiles.identities.set(result, tuple(one))
