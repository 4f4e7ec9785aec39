"""Which roots share outer loops, and which share all their loops."""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.tile.loops.axes import LAZY, Spaces, moves, shape_of
from tessera.compiler.tile.loops.stages import READS, STORES, LoopGroup, Nest, Root, known_index
from tessera.language.dims import Dim


class LoopGrouping:
    """A group being filled with the roots of a block, in order."""

    def __init__(self, dependences: Dependences, root: Root) -> None:
        self.dependences = dependences
        self.group = LoopGroup([], [])
        self.nest_of: dict[object, int] = {}
        self.roots: list[Root] = []
        self.done: set[Value] = set()
        """what roots compute, but for stores"""
        self.stored: dict[object, int] = {}
        """memory that roots store to: where in the block the first does"""
        self.last_reader: dict[object, int] = {}
        """memory that roots read: the last nest that does"""
        self.outer: set[int] = root.parallel
        self._add(root)

    def join(self, root: Root) -> bool:
        """Adds the root if it can run under the same outer loops; says whether it could."""
        outer = self.outer & root.parallel
        known = {c for r in self.roots for c in r.loops}
        if self.outer:
            leading = all(self._leads(outer, r) for r in (*self.roots, root))
            if not outer or not (outer == self.outer or leading):
                return False
        elif not set(root.parallel) <= known:
            return False
        if self._must_wait(root):
            return False
        self.outer = outer
        self._add(root)
        return True

    @staticmethod
    def _leads(outer: set[int], root: Root) -> bool:
        return set(root.loops[: len(outer)]) == outer

    def _must_wait(self, root: Root) -> bool:
        """Whether it needs results of this group in full: at other coordinates, reshaped, or re-read from memory."""
        p, done = self.dependences, self.done
        for leaf in p.root_leaves(root):
            op = leaf.op
            assert op is not None
            if leaf in done and any(c is not None and c < 0 for c in p.spaces.of(leaf)):
                return True
            if moves(op) and op.operands[0] in done:
                return True
            if op.name in READS and leaf not in done:
                first = self.stored.get(p.memory(op.operands[0]))
                if first is not None and first < p.position[op]:
                    return True
        return False

    def _add(self, root: Root) -> None:
        p = self.dependences
        leaves = p.root_leaves(root)
        earliest = 0
        for leaf in leaves:
            if leaf in self.nest_of:
                made = self.nest_of[leaf]
                reduced = leaf.op is not None and leaf.op.name == "tile.reduce"
                same = set(self.group.nests[made].classes) == set(root.loops)
                earliest = max(earliest, made if same and not reduced else made + 1)
        if root.op is not None and root.op.name in STORES:
            memory = p.memory(root.op.operands[0])
            earliest = max(earliest, self.last_reader.get(memory, 0))
            if memory in self.stored:
                for other in self.roots:
                    op = other.op
                    if op is None or op.name not in STORES or p.memory(op.operands[0]) != memory:
                        continue
                    if not never_meet(op, root.op):
                        earliest = max(earliest, self.nest_of[other] + 1)
            self.stored[memory] = min(self.stored.get(memory, p.position[root.op]), p.position[root.op])
        else:
            self.done.add(root.op.result if root.op is not None and root.op.results else root.value)
        at = self._place(root, earliest)
        # what is kept because its memory changes, at other places than it is read, is read in full before that
        whole = root.op is None and root.value.op is not None and root.value.op.name in READS
        for memory in {p.memory(x.op.operands[0]) for x in leaves if x.op is not None and x.op.name in READS}:
            self.last_reader[memory] = max(self.last_reader.get(memory, 0), at + whole)
        self.roots.append(root)
        self.nest_of[root] = at
        if root.op is None or root.op.results:
            self.nest_of[root.op.result if root.op else root.value] = at
        self.group.parallel = self.outer
        ordered = [c for c in max(self.roots, key=lambda r: len(r.loops)).loops if c in self.outer]
        self.group.outer = ordered

    def _place(self, root: Root, earliest: int) -> int:
        nests = self.group.nests
        for i in range(earliest, len(nests)):
            fits = root.reduced is None or nests[i].reduced in (None, root.reduced)
            if set(nests[i].classes) == set(root.loops) and fits:
                nests[i].roots.append(root)
                nests[i].reduced = nests[i].reduced if nests[i].reduced is not None else root.reduced
                return i
        nests.append(Nest(root.loops, [root], root.reduced))
        return len(nests) - 1


def never_meet(a: Op, b: Op) -> bool:
    """Whether two accesses are to places of one view that are apart along an axis, by numbers that are known."""
    if not {a.name, b.name} <= {"tile.load", "tile.store"} or a.operands[0] is not b.operands[0]:
        return False
    (ours, here), (theirs, there) = _place(a), _place(b)
    for x, size, y, other in zip(ours, here, theirs, there, strict=True):
        if x is not None and y is not None:
            between = size if x < y else other
            if isinstance(between, int) and abs(x - y) >= between:
                return True
    return False


def _place(op: Op) -> tuple[list[int | None], tuple[Dim, ...]]:
    """Where a load or a store begins along each axis, if that is known, and how far it reaches."""
    indices, shape = (
        (op.operands[1:], shape_of(op.result)) if op.results else (op.operands[2:], shape_of(op.operands[1]))
    )
    return [known_index(v) for v in indices[: len(shape)]], shape


# What the computation of a value starts from, within one block.


class Dependences:
    """`kept` are the values in scratch memory, at which the search for what a value needs ends. `memory(view)` names
    the memory behind a view or shared tile: two accesses may meet only if their memory is the same."""

    def __init__(self, block: Block, memory: Callable[[Value], object], spaces: Spaces, kept: set[Value]) -> None:
        self.block, self.memory, self.spaces, self.kept = block, memory, spaces, kept
        self.position = {op: i for i, op in enumerate(block.ops)}
        self._leaves: dict[Value, frozenset[Value]] = {}

    def forget(self) -> None:
        """What is kept has changed."""
        self._leaves.clear()

    def leaves(self, v: Value) -> frozenset[Value]:
        """The values that the lazy computation of `v` starts from: reads, reductions and kept values of this block."""
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
