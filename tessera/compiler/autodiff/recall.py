"""What has been computed before is read where it lies, also by derivatives, so that it is not computed again."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tessera.compiler.ir.core import Block, Op
from tessera.compiler.ir.rewriter import replace_op


def recall(block: Block, named: AbstractSet[Op]) -> None:
    """Puts the values that `graph.recalled` names in the place of those that the block would compute. `named`: ops that
    derivatives have too, and that are emitted here for their values to be named."""
    recalled = [op for op in block.ops if op.name == "graph.recalled"]
    for op in [op for op in recalled if op.operands[1].op in named]:
        _read_before(op)
        recalled.remove(op)
    if named:
        _read_named(block, named)
    for op in recalled:
        _read_before(op)


def _read_named(block: Block, named: AbstractSet[Op]) -> None:
    """Has all read the named ops in place of equal ones."""
    from tessera.compiler.graph.passes.eliminate_common import key_of  # slow: hints need no passes

    known = {key_of(op): op for op in block.ops if op in named}
    for op in list(block.ops):
        if op not in named and not op.regions and (same := known.get(key_of(op))) is not None:
            replace_op(op, same.results)


def _read_before(op: Op) -> None:
    computed, before = op.operands
    op.result.replace_by(before)
    op.erase()
    computed.replace_by(before)
