"""Checks that IR is well formed: structure, dominance, use lists, terminators, and each op's own specification."""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.spec import SPECS, InvalidIR, demand

FALLBACK: dict[str, Callable[[Op], None]] = {}
"""dialect -> verifier of its ops that have no spec of their own (Graph IR re-runs the operator's shape rule)"""


def verify(op: Op) -> None:
    """Raises InvalidIR for the first fault in `op` or anything inside it."""
    _verify(op, set())


def _verify(op: Op, visible: set[Value]) -> None:
    for i, v in enumerate(op.operands):
        demand(v in visible, op, f"operand {i} ({v.hint or v.type}) is not defined before it")
        demand((op, i) in v.uses, op, f"operand {i} does not know of this use")
    for i, r in enumerate(op.results):
        demand(r.owner is op and r.index == i, op, f"result {i} belongs to another op")
        for user, k in r.uses:
            demand(k < len(user.operands) and user.operands[k] is r, op, f"result {i} lists a use that is none")
    _verify_spec(op)
    for region in op.regions:
        demand(region.op is op, op, "a region belongs to another op")
        for block in region.blocks:
            demand(block.region is region, op, "a block belongs to another region")
            _verify_block(op, block, set(visible))
    visible.update(op.results)


def _verify_spec(op: Op) -> None:
    spec = SPECS.get(op.name)
    if spec is not None:
        spec.verify(op)
    elif op.dialect in FALLBACK:
        FALLBACK[op.dialect](op)
    else:
        raise InvalidIR(op, "no dialect defines it")


def _verify_block(parent: Op, block: Block, visible: set[Value]) -> None:
    demand(block.ops, parent, "a block is empty")
    for i, a in enumerate(block.args):
        demand(a.owner is block and a.index == i, parent, f"block argument {i} belongs to another block")
    visible.update(block.args)
    last = block.ops[-1]
    for op in block.ops:
        demand(op.block is block, op, "stands in a block that does not know it")
        _verify(op, visible)
        ends = op.name in SPECS and SPECS[op.name].terminator
        demand(ends == (op is last), op, "ends a block too early" if ends else "stands last but ends no block")
