"""Checks that IR is well formed: structure, use lists, dominance, terminators, and each op's own specification."""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.spec import SPECS, InvalidIR, demand, invalid

FALLBACK: dict[str, Callable[[Op], None]] = {}
"""dialect -> verifier of its ops that have no spec of their own"""

# What a spec raises when an op lacks the operand, region or attribute that it is about to look at.
_MALFORMED = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)


def verify(op: Op) -> None:
    """Raises InvalidIR for the first fault in `op` or anything inside it. `op` uses nothing from outside itself."""
    _Verifier().op(op)


class _Verifier:
    def __init__(self) -> None:
        self.visible: set[Value] = set()  # what is defined before the op that is looked at, in its block or around it
        self.uses: set[tuple[int, int]] = set()  # (id of op, operand number) of every use that a value lists

    def op(self, op: Op) -> None:
        for i, v in enumerate(op.operands):
            if v not in self.visible:  # messages are made only where they are needed: types are slow to print
                invalid(op, f"operand {i} ({v.hint or v.type}) is not defined before it")
            if (id(op), i) not in self.uses:
                invalid(op, f"operand {i} ({v.hint or v.type}) does not know of this use")
        for region in op.regions:
            demand(region.op is op, op, "a region belongs to another op")
            for block in region.blocks:
                self.block(op, region, block)
        _specified(op)
        for i, r in enumerate(op.results):
            if r.owner is not op or r.index != i:
                invalid(op, f"result {i} belongs to another op or place")
            self.define(op, r)

    def define(self, op: Op, value: Value) -> None:
        """Makes a value visible, once its use list has been found true."""
        for user, i in value.uses:
            use = (id(user), i)
            if use in self.uses:
                invalid(op, f"{value.hint or value.type} lists a use twice")
            if i >= len(user.operands) or user.operands[i] is not value:
                invalid(op, f"{value.hint or value.type} lists a use that is none")
            self.uses.add(use)
        self.visible.add(value)

    def block(self, parent: Op, region: Region, block: Block) -> None:
        demand(block.region is region, parent, "a block belongs to another region")
        demand(block.ops, parent, "a block is empty")
        for i, a in enumerate(block.args):
            if a.owner is not block or a.index != i:
                invalid(parent, f"block argument {i} belongs to another block or place")
            self.define(parent, a)
        last = block.ops[-1]
        for op in block.ops:
            demand(op.block is block, op, "is in a block that does not list it")
            spec = SPECS.get(op.name)
            ends = spec is not None and spec.terminator
            demand(ends == (op is last), op, "ends a block too early" if ends else "stands last but ends no block")
            self.op(op)
        self.visible.difference_update(block.args, *(op.results for op in block.ops))


def _specified(op: Op) -> None:
    spec = SPECS.get(op.name)
    check = spec.verify if spec is not None else FALLBACK.get(op.dialect)
    if check is None:
        raise InvalidIR(op, "no dialect defines it")
    try:
        check(op)
    except _MALFORMED as e:
        raise InvalidIR(op, f"is malformed: {e}") from e
