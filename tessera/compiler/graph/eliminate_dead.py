"""Ops whose results nobody reads are taken out."""

from __future__ import annotations

from tessera.compiler.ir.core import Block, Op
from tessera.compiler.ir.spec import SPECS


def eliminate_dead(func: Op) -> None:
    """Erases, in place, every op without effects whose results are unused, users before what they use."""
    for region in func.regions:
        for block in region.blocks:
            _sweep(block)


def _sweep(block: Block) -> None:
    for op in reversed(list(block.ops)):
        if any(r.uses for r in op.results) or has_effects(op):
            eliminate_dead(op)
        else:
            op.erase()


def has_effects(op: Op) -> bool:
    """Whether the op, or one inside it other than the terminators of its regions, has an effect."""
    if SPECS[op.name].effects:
        return True
    inner = (o for region in op.regions for block in region.blocks for o in block.ops[:-1])
    return any(has_effects(o) for o in inner)
