"""Computes elementwise values again for sums along other axes, so that they need no memory.

A kernel keeps whole lines of one axis, so that the gradient of a norm's weight, `sum(ct * normalised, axis=0)`, had its
products stored by the kernel of the rows and read by another. The kernel of the sum computes them itself instead, from
what is in memory anyway, where that moves fewer bytes; and sums along the same axes that read the same memory are one
kernel. The operators and their order stay the same, and so do all bits.
"""

from __future__ import annotations

from tessera.compiler.graph.passes.rematerialize import FLOPS_PER_BYTE, flops_of, size_of
from tessera.compiler.ir.core import Op, Value, clone
from tessera.compiler.schedule.alignment import align, base_of, is_full, is_row, shape_of
from tessera.compiler.schedule.grouping import FusionGroup, FusionGrouping, leaves
from tessera.compiler.schedule.lifetimes import readers
from tessera.compiler.schedule.views import kind_of

STORED = 3
"""times that the bytes of a value move that is stored and read: what is stored is read before"""


def compute_for_sums(groups: FusionGrouping) -> None:
    """Changes the groups of a block, and its operators."""
    for (source, op), cause in list(groups.refused.items()):
        if cause != "axes" or kind_of(op) != "reduce" or op.operands[0].op is not source:
            continue
        here, there = groups.of.get(source), groups.of[op]
        if here is None or here.kind != "row" or there.kind != "row" or here is there:
            continue
        found = _Operand(groups, op.operands[0], op, here, there)
        if found.pays():
            found.move()
            _join_neighbours(groups, there)


class _Operand:
    """The operand `v` of the sum `op` in the group `there`, which the group `here` computes. `chain`: the operators
    that lead to it from `leaves`, which are in memory or as small as a row's values."""

    def __init__(self, groups: FusionGrouping, v: Value, op: Op, here: FusionGroup, there: FusionGroup) -> None:
        self.groups, self.v, self.op, self.here, self.there = groups, v, op, here, there
        self.chain: dict[Op, None] = {}
        self.leaves: dict[Value, None] = {}
        outside = [r for r in readers(v) if groups.of.get(r) is not here]
        self.possible = shape_of(v) == there.space == here.space and outside == [op]
        if self.possible:
            self._follow(v)

    def _follow(self, v: Value) -> None:
        base, here = base_of(v), self.here
        if self._is_leaf(base):
            self.leaves[base] = None
        elif base.op is None or base is not v or kind_of(base.op) != "map" or not is_full(here.axes[base], here.space):
            self.possible = False
        elif base.op in self.groups.awaited:
            self.possible = False  # later, what it reads has changed
        elif base.op not in self.chain:
            for w in base.op.operands:
                self._follow(w)
            self.chain[base.op] = None

    def _is_leaf(self, v: Value) -> bool:
        here = self.here
        if v.op is None or self.groups.of.get(v.op) is not here or is_row(here.axes[v], here.space, here.inner):
            return True
        return v is not self.v and leaves(v, {*here.ops})

    def pays(self) -> bool:
        """Whether fewer bytes move, and the arithmetic takes less time than they would."""
        if not self.possible or self.v in self.leaves or kind_of(self.v.op) != "map":
            return False
        known = {base_of(w) for g in self._neighbours() for w in g.outside}
        moved = sum(size_of(w) for w in self.leaves if w not in known and kind_of(w.op) != "generate")
        return moved + sum(map(flops_of, self.chain)) / FLOPS_PER_BYTE < STORED * size_of(self.v)

    def _neighbours(self) -> list[FusionGroup]:
        """The groups that the sum's may be one kernel with."""
        return [g for g in {*self.groups.of.values()} if _alike(g, self.there)]

    def move(self) -> None:
        """Clones of the chain come into the sum's group, and what nobody reads any more leaves its own."""
        groups, block, op = self.groups, self.op.block, self.op
        assert block is not None
        known: dict[Value, Value] = {}
        made: list[Op] = []
        for one in self.chain:
            made.append(clone(one, known))
            block.insert(block.index(op), made[-1])
        op.set_operand(0, known[self.v])
        trial = FusionGroup(self.there.kind, self.there.space, self.there.inner)
        for one in (*made, *self.there.ops):
            added = align(one, trial.axes, trial.space)
            assert added is not None, "the group that it comes from has the same space"
            trial.add(one, added)
        self.there.become(trial)
        for one in made:
            groups.of[one], groups.order[one] = self.there, groups.order[op]
            if groups.repeated:
                groups.orders[one] = groups.orders[op]
                groups.repeated |= {one} if one.origin.again else set()
            bases = (base_of(w).op for w in one.operands)
            groups.sources[one] = [b for b in bases if b in groups.of]
            for source in groups.sources[one]:
                groups.refused[source, one] = "computed again"
            groups.need(self.there, [s for s in groups.sources[one] if groups.of[s] is not self.there])
        groups.sources[op] = [made[-1]]
        for dead in [one for one in reversed(self.here.ops) if one in self.chain]:
            if not dead.result.uses:
                self.here.ops.remove(dead)
                for group in {*groups.of.values()}:  # another sum's, too, whose operand was moved before
                    group.needs.discard(dead)
                del groups.of[dead]
                dead.erase()


def _alike(g: FusionGroup, h: FusionGroup) -> bool:
    return g is not h and g.kind == h.kind == "row" and g.space == h.space and g.inner == h.inner


def _join_neighbours(groups: FusionGrouping, group: FusionGroup) -> None:
    """Merges groups with it that read the same memory along the same axes."""
    whole = {base_of(v) for v in group.outside if shape_of(v) == group.space}
    for other in sorted({*groups.of.values()}, key=lambda g: groups.order[g.ops[0]]):
        if _alike(other, group) and any(base_of(v) in whole for v in other.outside):
            groups.merge(group, other)
