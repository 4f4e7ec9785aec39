"""What has been computed before is read where it lies, also by derivatives, so that it is not computed again."""

from __future__ import annotations

from tessera.compiler.ir.core import Block


def recall(block: Block) -> None:
    """Puts the values that `graph.recalled` names in the place of those that the block would compute."""
    for op in [op for op in block.ops if op.name == "graph.recalled"]:
        computed, before = op.operands
        op.result.replace_by(before)
        op.erase()
        computed.replace_by(before)
