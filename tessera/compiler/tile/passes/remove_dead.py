"""Takes out ops whose results nobody uses."""

from __future__ import annotations

from tessera.compiler.ir.core import Block, Op
from tessera.compiler.ir.spec import SPECS

READS = frozenset({"tile.load_shared", "tile.alloc_shared"})
"""ops that must keep their place among others, but may go when nothing needs them"""


def remove_dead(kernel: Op) -> None:
    for region in kernel.regions:
        for block in region.blocks:
            _sweep(block)


def _sweep(block: Block) -> None:
    for op in reversed(list(block.ops)):
        spec = SPECS.get(op.name)
        removable = op.name in READS or (spec is not None and not spec.effects and not spec.terminator)
        if removable and op.results and not any(r.uses for r in op.results):
            op.erase()
            continue
        for region in op.regions:
            for inner in region.blocks:
                _sweep(inner)
