"""Ops whose results nobody reads are taken out."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import LAUNCHES, shows
from tessera.compiler.ir.rewriter import erase_dead
from tessera.compiler.ir.spec import SPECS


def eliminate_dead(func: Op) -> None:
    """Erases, in place, every op without effects whose results are unused."""
    erase_dead(func, has_effects)


def has_effects(op: Op) -> bool:
    """Whether the op, or one inside it other than the terminators of its regions, has an effect."""
    if SPECS[op.name].effects:
        return True
    if op.name in LAUNCHES:
        return shows(op)
    inner = (o for region in op.regions for block in region.blocks for o in block.ops[:-1])
    return any(has_effects(o) for o in inner)
