"""The loop-fusion planner: which tile ops of a block become which loops.

A tile value is not a thing in memory but something to be computed where it is needed. What must happen are the block's
*roots*: stores, reductions, and values that are *kept* in scratch memory because a matrix product or a branch needs
them there, because they are expensive and several loops use them, or because the memory they come from is overwritten.
Roots are put into *nests* (loops over one set of axes) and nests that share leading axes into *groups* (one outer loop
around several nests), in the order of the program. Matrix products, scans and ops with regions stand between groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cpu.maps import cost
from tessera.compiler.targets.cpu.spaces import (
    ELEMENTWISE,
    LAZY,
    AxisId,
    Spaces,
    moves,
    operand_coords,
    shape_of,
)
from tessera.language.dims import Dim

KEEP_COST = 8
"""vector instructions per element above which a value that several loops use is kept, not computed again"""

STORES = ("tile.store", "tile.scatter", "tile.store_shared")
READS = ("tile.load", "tile.gather", "tile.load_shared")


@dataclass(eq=False, slots=True)
class Root:
    """Something to be computed for every element of `value`: `op` stores or reduces it, None keeps it in scratch."""

    value: Value
    op: Op | None
    classes: tuple[AxisId, ...]
    reduced: AxisId = None
    target: object = None
    """where to keep the value, if not in its own cell"""

    @property
    def loops(self) -> list[int]:
        return [c for c in self.classes if c is not None]

    @property
    def parallel(self) -> set[int]:
        """The axes along which elements do not depend on each other."""
        return {c for c in self.classes if c is not None and c != self.reduced and c >= 0}


@dataclass(eq=False, slots=True)
class Nest:
    """Loops over `classes` that compute `roots`, in order; `also` are values kept on the way. `vector` runs in lanes."""

    classes: list[int]
    roots: list[Root]
    reduced: AxisId = None
    also: list[Value] = field(default_factory=list)
    vector: AxisId = None


@dataclass(eq=False, slots=True)
class Group:
    """Nests under common outer loops over `outer`. `inside` are results that nobody needs after the outer loops."""

    nests: list[Nest]
    outer: list[int]
    inside: set[Value] = field(default_factory=set)
    parallel: set[int] = field(default_factory=set)


Stage: TypeAlias = "Group | Op"


def touched(op: Op) -> Iterator[Value]:
    """The views and shared tiles that `op` (or what is inside it) writes."""
    for o in op.walk():
        if o.name in STORES or o.name == "tile.copy_async":
            yield o.operands[0]


class Planner:
    """Plans one block. `memory(view)` names the memory behind a view or shared tile: two accesses may meet only if
    their memory is the same. `needed` are values that others want in scratch memory, `direct` operands of products that
    are read from global memory."""

    def __init__(
        self, block: Block, memory: Callable[[Value], object], needed: Iterable[Value] = (), direct: Set[Value] = frozenset()
    ) -> None:
        self.block, self.memory, self.direct = block, memory, direct
        self.position = {op: i for i, op in enumerate(block.ops)}
        self.spaces = Spaces(block.ops)
        self.kept: set[Value] = {v for v in needed if self._here(v)}
        self.extents: dict[int, Dim] = {}
        self._leaves: dict[Value, frozenset[Value]] = {}
        self._price: dict[Value, int] = {}
        self.written = [(i, self.memory(v)) for op, i in self.position.items() for v in touched(op)]
        self._find_kept()
        self.stages = self._stages()
        for group in self.groups():
            self._choose_vectors(group)
        self._keep_shared_work()
        for group in self.groups():
            self._find_inside(group)

    def groups(self) -> list[Group]:
        return [s for s in self.stages if isinstance(s, Group)]

    # -- who uses what -----------------------------------------------------------------------------------------------
    def _here(self, v: Value) -> bool:
        return v.op is not None and v.op.block is self.block

    def top(self, op: Op) -> Op:
        """The op of this block that `op` is, or stands in."""
        while op.block is not self.block:
            parent = op.parent
            assert parent is not None
            op = parent
        return op

    def consumers(self, v: Value) -> list[tuple[Op, int]]:
        """The ops, with operand numbers, that ask for elements of `v`, through any lazy ops between."""
        seen, stack, out = {v}, [v], []
        while stack:
            for user, i in stack.pop().uses:
                if user.name not in LAZY:
                    out.append((user, i))
                elif user.result not in seen:
                    seen.add(user.result)
                    stack.append(user.result)
        return out

    def price(self, v: Value) -> int:
        """Roughly, vector instructions to compute an element of `v`."""
        if v not in self._price:
            op = v.op
            if op is None or v in self.kept or op.name not in LAZY or not shape_of(v):
                p = 1
            elif op.name == "tile.gather":
                p = 10 + sum(map(self.price, op.operands[1:]))
            elif op.name in READS:
                p = 1 + (self.price(op.operands[-1]) if op.attrs.get("masked") else 0)
            else:
                p = sum(map(self.price, op.operands))
                if op.name == "tile.philox":
                    p += 80
                elif op.name in ELEMENTWISE:
                    p += 2 if op.name in ("tile.cast", "tile.bitcast") else cost(op.name[5:])
            self._price[v] = min(p, 1000)
        return self._price[v]

    # -- what must be kept -------------------------------------------------------------------------------------------
    def _find_kept(self) -> None:
        for op in self.block.ops:
            for o in op.walk() if op.regions else (op,):
                if o.name == "tile.mma":
                    self.kept.update(v for v in o.operands[:2] if self._here(v) and v not in self.direct)
            if moves(op) and self._here(op.operands[0]):
                self.kept.add(op.operands[0])
        for op in self.block.ops:
            if op.name in READS and self._overwritten(op):
                self.kept.add(op.result)
            elif op.name in LAZY and shape_of(op.result) and op.result not in self.kept and self._for_regions(op.result):
                self.kept.add(op.result)

    def _for_regions(self, v: Value) -> bool:
        """Expensive, and used inside a loop or branch, where it would be computed again and again."""
        return any(u.block is not self.block for u, _ in v.uses) and self.price(v) >= KEEP_COST

    def _overwritten(self, op: Op) -> bool:
        """Whether memory that `op` reads may change before the last op that asks for the elements."""
        memory, start = self.memory(op.operands[0]), self.position[op]
        after = [i for i, m in self.written if m == memory and i > start]
        if not after:
            return False
        users = {self.top(u) for u, _ in self.consumers(op.result)}
        last = max((self.position[u] for u in users), default=-1)
        for i in after:
            if i < last:
                return True
            if i == last:
                store = self.block.ops[i]
                if store.regions or not self._in_place(op, store):
                    return True
        return False

    def _in_place(self, read: Op, store: Op) -> bool:
        """Whether `store` writes each element exactly where `read` reads it, at the same time."""
        if read.name == "tile.load_shared" and store.name == "tile.store_shared":
            same = True
        else:
            rank = len(shape_of(read.result))
            at, to = read.operands[1 : 1 + rank], store.operands[2 : 2 + rank]
            same = read.name == "tile.load" and store.name == "tile.store" and read.operands[0] is store.operands[0]
            same = same and [_offset(v) for v in at] == [_offset(v) for v in to]
        mine, theirs = self.spaces.of(read.result), self.spaces.of(store.operands[1])
        return same and mine == theirs and all(c is None or c >= 0 for c in mine)

    # -- dependences -------------------------------------------------------------------------------------------------
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
        return frozenset().union(*map(self.leaves, op.operands)) if op and op.operands else frozenset()

    def root_leaves(self, root: Root) -> frozenset[Value]:
        if root.op is None:
            return self.below(root.value) | ({root.value} if root.value.op and root.value.op.name in READS else set())
        return frozenset().union(*map(self.leaves, root.op.operands))

    # -- roots, nests, groups ----------------------------------------------------------------------------------------
    def root_of(self, op: Op) -> Root | None:
        """The root that `op` is, if it is one."""
        if op.name in STORES:
            return Root(op.operands[1], op, self.spaces.of(op.operands[1]))
        if op.name == "tile.reduce":
            x = op.operands[0]
            axes: Sequence[int] = op.attrs["axes"]  # type: ignore[assignment]
            classes = self.spaces.of(x)
            gone = [classes[a] for a in axes if classes[a] is not None]
            return Root(x, op, classes, gone[0] if gone else None)
        if op.name in LAZY and op.result in self.kept:
            return Root(op.result, None, self.spaces.of(op.result))
        return None

    def _stages(self) -> list[Stage]:
        stages: list[Stage] = []
        current: _Grouping | None = None
        for op in self.block.ops:
            root = self.root_of(op)
            if root is not None:
                self._see(root)
                if current is None or not current.join(root):
                    current = _Grouping(self, root)
                    stages.append(current.group)
            elif op.name not in LAZY and op.name not in ("tile.yield", "tile.return", "tile.barrier", "tile.alloc_shared"):
                stages.append(op)
                current = None
        return stages

    def copy(self, v: Value, target: object) -> Group:
        """A group of one nest that puts all elements of `v` into `target`."""
        root = Root(v, None, self.spaces.of(v), target=target)
        self._see(root)
        group = Group([Nest(root.loops, [root])], list(root.loops))
        self._choose_vectors(group)
        return group

    def _see(self, root: Root) -> None:
        for c, d in zip(root.classes, shape_of(root.value), strict=True):
            if c is not None:
                self.extents[c] = d

    # -- vector axes -------------------------------------------------------------------------------------------------
    def _votes(self, nest: Nest) -> Counter[int]:
        """How many accesses run contiguously along each axis; the last axis breaks ties."""
        votes: Counter[int] = Counter()
        seen: set[tuple[Value, tuple[AxisId, ...]]] = set()

        def read(v: Value, coords: tuple[AxisId, ...], top: bool = False) -> None:
            if (v, coords) in seen:
                return
            seen.add((v, coords))
            op = v.op
            if op is None or not coords:
                return
            if op.name not in LAZY or (v in self.kept and not top) or moves(op):
                votes[coords[-1] or 0] += 10 if coords[-1] is not None else 0
            elif op.name == "tile.load":
                vote(op.operands[0], coords, 10)
                if op.attrs.get("masked"):
                    read(op.operands[-1], coords)
            else:
                if op.name in ("tile.load_shared", "tile.gather") and coords[-1] is not None:
                    votes[coords[-1]] += 10
                for k, x in enumerate(op.operands):
                    read(x, operand_coords(op, k, coords) if shape_of(x) else ())

        def vote(view: Value, coords: tuple[AxisId, ...], weight: int) -> None:
            for axis in unit_axes(view):
                if (c := coords[axis]) is not None:
                    votes[c] += weight

        for root in nest.roots:
            read(root.value, root.classes, root.op is None)
            if root.op is not None and root.op.name == "tile.store":
                vote(root.op.operands[0], root.classes, 21)
            if root.loops:
                votes[root.loops[-1]] += 1
        return votes

    def _choose_vectors(self, group: Group) -> None:
        outer = set(group.outer)
        best = {n: max(n.classes, key=self._votes(n).__getitem__, default=None) for n in group.nests}
        deep = [n for n in group.nests if not set(n.classes) <= outer]
        removed = {best[n] for n in deep} & outer
        if not deep and outer:
            removed = {best[group.nests[-1]]}
        group.outer = [c for c in group.outer if c not in removed]
        for nest in group.nests:
            free = [c for c in nest.classes if c not in group.outer]
            if free:
                votes = self._votes(nest)
                nest.vector = max(free, key=lambda c: (votes[c], free.index(c)))  # noqa: B023

    # -- work shared by several nests --------------------------------------------------------------------------------
    def _keep_shared_work(self) -> None:
        order: dict[Nest, int] = {}
        where: dict[object, Nest] = {}
        for group in self.groups():
            for nest in group.nests:
                order[nest] = len(order)
                for root in nest.roots:
                    where[root.op or root.value] = nest
        reach: dict[Value, set[Nest | Op]] = {}
        for op in reversed(self.block.ops):
            if op.name not in LAZY or not op.results:
                continue
            v = op.result
            found: set[Nest | Op] = set()
            for user, _ in v.uses:
                if user.block is not self.block:
                    found.add(self.top(user))
                elif user in where:
                    found.add(where[user])
                elif user.name in LAZY:
                    found |= {where[user.result]} if user.result in self.kept else reach.get(user.result, set())
                else:
                    found.add(user)
            reach[v] = found
            if len(found) < 2 or not shape_of(v) or v in self.kept or self.price(v) < KEEP_COST:
                continue
            nests = sorted((n for n in found if isinstance(n, Nest)), key=order.__getitem__)
            classes = self.spaces.of(v)
            if nests and {c for c in classes if c is not None} == set(nests[0].classes) and min(self.extents, default=0) >= 0:
                self.kept.add(v)
                nests[0].also.append(v)
                where[v] = nests[0]
                reach[v] = {nests[0]}
        self._price.clear()
        self._leaves.clear()

    def _find_inside(self, group: Group) -> None:
        """Results of the group that only its own nests use."""
        mine: set[object] = {r.op or r.value for n in group.nests for r in n.roots} | {v for n in group.nests for v in n.also}
        results = [r.op.result if r.op else r.value for n in group.nests for r in n.roots if not r.op or r.op.results]
        for v in (*results, *(v for n in group.nests for v in n.also)):
            if all(u in mine for u in self._users(v)):
                group.inside.add(v)

    def _users(self, v: Value) -> Iterator[object]:
        """Root ops and kept values that read `v`; anything else stands for itself."""
        seen, stack = {v}, [v]
        while stack:
            for user, _ in stack.pop().uses:
                if user.name not in LAZY or user.block is not self.block or moves(user):
                    yield user
                elif user.result in self.kept:
                    yield user.result
                elif user.result not in seen:
                    seen.add(user.result)
                    stack.append(user.result)


class _Grouping:
    """A group being filled with the roots of a block, in order."""

    def __init__(self, planner: Planner, root: Root) -> None:
        self.planner = planner
        self.group = Group([], [])
        self.nest_of: dict[object, int] = {}
        self.roots: list[Root] = []
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
        p = self.planner
        done = {r.op.result if r.op and r.op.results else r.value for r in self.roots if not (r.op and r.op.name in STORES)}
        stored = [(p.position[r.op], p.memory(r.op.operands[0])) for r in self.roots if r.op and r.op.name in STORES]
        for leaf in p.root_leaves(root):
            op = leaf.op
            assert op is not None
            if leaf in done and any(c is not None and c < 0 for c in p.spaces.of(leaf)):
                return True
            if moves(op) and op.operands[0] in done:
                return True
            if op.name in READS and leaf not in done:
                at, memory = p.position[op], p.memory(op.operands[0])
                if any(m == memory and i < at for i, m in stored):
                    return True
        return False

    def _add(self, root: Root) -> None:
        p = self.planner
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
            for other in self.roots:
                reads = any(x.op and x.op.name in READS and p.memory(x.op.operands[0]) == memory for x in p.root_leaves(other))
                writes = other.op is not None and other.op.name in STORES and p.memory(other.op.operands[0]) == memory
                if reads or writes:
                    earliest = max(earliest, self.nest_of[other] + (1 if writes else 0))
        at = self._place(root, earliest)
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


def unit_axes(view: Value) -> list[int]:
    """The axes of a view along which neighbours are neighbours in memory."""
    t = view.type
    if not isinstance(t, ViewType):
        return [len(shape_of(view)) - 1]
    if t.strides is None:
        inner = [i for i, d in enumerate(t.shape) if d != 1]
        return [inner[-1] if inner else t.rank - 1] if t.rank else []
    return [i for i, s in enumerate(t.strides) if s == 1]


def _offset(v: Value) -> object:
    """An index value, or what it is when it is a plain number: two spellings of 0 are one place."""
    return v.op.attrs["dim"] if v.op is not None and v.op.name == "tile.dim" else v
