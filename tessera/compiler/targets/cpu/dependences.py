"""What the computation of a value starts from, within one block."""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.ir.core import Block, Value
from tessera.compiler.targets.cpu.spaces import LAZY, Spaces, moves
from tessera.compiler.targets.cpu.stages import READS, Root


class Dependences:
    """`kept` are the values in scratch memory, at which the search for what a value needs ends. `memory(view)` names
    the memory behind a view or shared tile: two accesses may meet only if their memory is the same."""

    def __init__(self, block: Block, memory: Callable[[Value], object], spaces: Spaces, kept: set[Value]) -> None:
        self.block, self.memory, self.spaces, self.kept = block, memory, spaces, kept
        self.position = {op: i for i, op in enumerate(block.ops)}
        self._leaves: dict[Value, frozenset[Value]] = {}

    def leaves(self, v: Value) -> frozenset[Value]:
        """What the lazy computation of `v` starts from: reads, reductions and kept values of this block."""
        if v not in self._leaves:
            op = v.op
            if op is None or op.block is not self.block:
                found: frozenset[Value] = frozenset()
            elif v in self.kept or op.name not in LAZY:
                found = frozenset((v,))
            else:
                found = self.below(v)
                if op.name in READS or moves(op):
                    found |= {v}
            self._leaves[v] = found
        return self._leaves[v]

    def below(self, v: Value) -> frozenset[Value]:
        op = v.op
        found: frozenset[Value] = frozenset()
        return found.union(*map(self.leaves, op.operands)) if op is not None else found

    def root_leaves(self, root: Root) -> frozenset[Value]:
        if root.op is None:
            below = self.below(root.value)
            return below | {root.value} if root.value.op and root.value.op.name in READS else below
        found: frozenset[Value] = frozenset()
        return found.union(*map(self.leaves, root.op.operands))
