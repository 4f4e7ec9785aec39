"""Which roots share outer loops, and which share all their loops."""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.tile.loops.axes import LAZY, Spaces, accessed, moves, place
from tessera.compiler.tile.loops.stages import READS, STORES, LoopGroup, Nest, Root


class LoopGrouping:
    """A group being filled with the roots of a block, in order."""

    def __init__(self, dependences: Dependences, root: Root) -> None:
        self.dependences = dependences
        self.group = LoopGroup([], [])
        self.nest_of: dict[object, int] = {}
        self.roots: list[Root] = []
        self.done: set[Value] = set()
        """what roots compute, but for stores"""
        self.touched: dict[object, list[tuple[Op, int]]] = {}
        """the loads and stores of some memory by the roots, and the nests of these"""
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
            stored = self._stored_before(op) if op.name in READS and leaf not in done else []
            if not all(apart_or_same(op, store, p.spaces) for store, _ in stored):
                return True
        store = root.op
        if store is None or store.name not in STORES:
            return False
        return not all(
            apart_or_same(op, store, p.spaces) for op, _ in self.touched.get(p.memory(store.operands[0]), ())
        )

    def _stored_before(self, read: Op) -> list[tuple[Op, int]]:
        """The stores of this group to memory that `read` reads afterwards, and their nests."""
        p = self.dependences
        found = self.touched.get(p.memory(read.operands[0]), ())
        return [(op, nest) for op, nest in found if op.name in STORES and p.position[op] < p.position[read]]

    def _add(self, root: Root) -> None:
        p = self.dependences
        leaves = p.root_leaves(root)
        accesses = [x.op for x in leaves if x.op is not None and (x is root.value or x not in p.kept)]
        accesses = [op for op in accesses if op.name in READS]
        earliest = 0
        for leaf in leaves:
            if leaf in self.nest_of:
                made = self.nest_of[leaf]
                reduced = leaf.op is not None and leaf.op.name == "tile.reduce"
                same = set(self.group.nests[made].classes) == set(root.loops)
                earliest = max(earliest, made if same and not reduced else made + 1)
            elif leaf.op is not None and leaf.op.name in READS:
                earliest = max([earliest, *(nest for _, nest in self._stored_before(leaf.op))])
        if root.op is not None and root.op.name in STORES:
            accesses.append(root.op)
            earliest = max([earliest, *(nest for _, nest in self.touched.get(p.memory(root.op.operands[0]), ()))])
        else:
            self.done.add(root.op.result if root.op is not None and root.op.results else root.value)
        at = self._place(root, earliest)
        for op in accesses:
            self.touched.setdefault(p.memory(op.operands[0]), []).append((op, at))
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
    if not {a.name, b.name} <= {"tile.load", "tile.store"}:
        return False
    (view, ours, here), (other, theirs, there) = place(a), place(b)
    for x, size, y, width in zip(ours, here, theirs, there, strict=True) if view is other else ():
        if isinstance(x, int) and isinstance(y, int):
            between = size if x < y else width
            if isinstance(between, int) and abs(x - y) >= between:
                return True
    return False


def same_places(a: Op, b: Op, spaces: Spaces) -> bool:
    """Whether two accesses are of the very same elements, each at the same coordinates."""
    shared = {a.name, b.name} <= {"tile.load_shared", "tile.store_shared"} and a.operands[0] is b.operands[0]
    if not shared and (not {a.name, b.name} <= {"tile.load", "tile.store"} or place(a) != place(b)):
        return False
    ours, theirs = spaces.of(accessed(a)), spaces.of(accessed(b))
    return ours == theirs and all(c is None or c >= 0 for c in ours)


def apart_or_same(a: Op, b: Op, spaces: Spaces) -> bool:
    """Whether the order of two accesses is kept where their loops are one, as elements meet in one step at most."""
    return never_meet(a, b) or same_places(a, b, spaces)


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
