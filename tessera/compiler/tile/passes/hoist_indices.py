"""Hoists invariant index arithmetic out of loops and branches.

The place where an index is computed first is accidental and says nothing. After hoisting, the results of loops and
branches can say which elements exist in terms of indices that are known after them, too.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Block, Op
from tessera.compiler.tile.ranges import Intervals

MOVES = frozenset({"tile.dim", "tile.program_id", "tile.iadd", "tile.isub", "tile.imul", "tile.imin", "tile.imax"})
DIVIDES = frozenset({"tile.idiv", "tile.imod"})
"""these move where the divisor is above 0: debug mode checks others where the program computes them"""


def hoist_indices(kernel: Op) -> None:
    _hoist(kernel.region.block, Intervals(kernel))


def _hoist(block: Block, ranges: Intervals) -> None:
    for op in list(block.ops):
        for region in op.regions:
            inner = region.block
            _hoist(inner, ranges)
            for moved in [o for o in inner.ops if o.name in MOVES | DIVIDES]:
                here = any(v.owner is inner or (v.op is not None and v.op.block is inner) for v in moved.operands)
                if not here and (moved.name in MOVES or ranges.positive(ranges.of(moved.operands[1]).low)):
                    inner.ops.remove(moved)
                    block.insert(block.index(op), moved)
