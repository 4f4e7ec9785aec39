"""Loops that lanes leave one by one: `while` on a tile of bools, and `break` under a condition over lanes.

Besides its values such a loop carries which lanes go on. A step runs under them as the body of an `if` does, so that a
lane that has left keeps its values and stores nothing. The loop ends when no lane goes on.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.names.frame import LoopMark
from tessera.compiler.frontend.names.values import Unknown
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def condition_over_lanes(k: KernelState, value: Any) -> Value | None:
    """A loop's condition that each lane has its own of, as bools; None where it is one for the whole program."""
    found = k.operand(value)
    over = isinstance(found, Value) and isinstance(found.type, TileType) and found.type.rank
    return k.tiles.truth(found) if over else None


def entered(k: KernelState, mark: LoopMark, first: Value | None) -> LoopMark:
    """A loop that lanes leave is about to be read; `first` is its condition, where that is over lanes."""
    names = k.ev.frame.names
    mark = replace(mark, lanes=mark.going.replace("going", "lanes"), tested=first is not None)
    names[mark.lanes] = True if first is None else first
    names[mark.going] = True if first is None else _any(k, first)
    return mark


def going_on(k: KernelState, mark: LoopMark) -> Value | None:
    """The lanes that take the step that is read; None while it is not known that they are several."""
    lanes = k.ev.frame.names[mark.lanes]
    return lanes if isinstance(lanes, Value) and tile_type(lanes).rank else None


def without(k: KernelState, mark: LoopMark, mask: Value | bool) -> None:
    """Lanes where `mask` holds leave the loop."""
    names = k.ev.frame.names
    known = going_on(k, mark) is not None
    names[mark.lanes] = k.chosen(mask, False, names[mark.lanes]) if known or mask is not True else False


def stepped(k: KernelState, node: ast.For | ast.While, mark: LoopMark) -> None:
    """The end of a step: which lanes go on, and whether any does."""
    names = k.ev.frame.names
    if mark.tested:
        assert isinstance(node, ast.While)
        value = k.ev.eval(node.test)
        if isinstance(value, Unknown):  # what it is computed from has a finding
            names[mark.lanes] = names[mark.going] = value
            return
        lanes, test = k.tile(names[mark.lanes]), k.tiles.truth(k.tile(value))
        both = k.tiles.map("logical_and", lanes, test)
        if tile_type(both).shape != tile_type(lanes).shape:
            before, after = (tile_type(v).pretty() for v in (lanes, both))
            message = f"the condition of this loop is {before} before it and {after} behind a step"
            raise KernelFault("TS212", f"{message}; give what it is computed from one shape before the loop")
        names[mark.lanes] = both
    names[mark.going] = _any(k, k.tile(names[mark.lanes]))


def _any(k: KernelState, lanes: Value) -> Value:
    """Whether any lane goes on, of those that the conditions around leave."""
    if k.memory.mask is not None and tile_type(lanes).rank:
        lanes = k.tiles.map("logical_and", lanes, k.memory.mask)
    return k.tiles.reduce("any", lanes, None)
