"""Takes out ops whose results nobody uses."""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.rewriter import erase_dead
from tessera.compiler.ir.spec import SPECS

READS = frozenset({"tile.load_shared", "tile.alloc_shared"})
"""ops that must keep their place among others, but may go when nothing needs them"""


def remove_dead(kernel: Op) -> None:
    erase_dead(kernel, _stays)


def _stays(op: Op) -> bool:
    spec = SPECS.get(op.name)
    removable = op.name in READS or (spec is not None and not spec.effects and not spec.terminator)
    return not removable or not op.results
