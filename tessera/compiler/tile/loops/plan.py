"""The loop-fusion planner: which tile ops of a block become which loops.

A tile value is not a thing in memory but something to be computed where it is needed. What must happen are the block's
*roots*: stores, reductions, and values that are *kept* in scratch memory because a matrix product or a branch needs
them there, because they are expensive and several loops use them, or because the memory they come from is overwritten.
Roots are put into *nests* (loops over one set of axes) and nests that share leading axes into *groups* (one outer loop
around several nests), in the order of the program. Matrix products, scans and ops with regions are between groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.loops.axes import (
    ELEMENTWISE,
    LAZY,
    AxisId,
    Spaces,
    known_index,
    moves,
    operand_coords,
    shape_of,
)
from tessera.compiler.tile.loops.grouping import Dependences, LoopGrouping, never_meet, same_places
from tessera.compiler.tile.loops.stages import (
    READS,
    STORES,
    LoopGroup,
    Nest,
    Root,
    Stage,
    step_of,
    touched,
    unit_axes,
)
from tessera.language.dims import Dim
from tessera.language.scalars import TABLE

KEEP_COST = 4
"""vector instructions per element from which on a value that several loops use is kept, not computed again: more than
a sum of two loads, which a second-level cache gives sooner than it takes and gives what is kept"""
BUSY, KEEP_BESIDE = 16, 3
"""vector instructions per element of a loop that computes long enough to hide a store, and from which on it keeps"""
REGION_COST = 8
"""the same for a value that is used in a loop or a branch of the kernel's text"""
COST = {"add": 1, "sub": 1, "mul": 1, "div": 6, "sqrt": 6, "rsqrt": 10, "where": 1}
SHORT = 4
"""elements of a last axis up to which lanes rather run along the one before it"""
LONG_LINE = 16
"""elements of a line from which on what is read once for all of them costs next to nothing"""


class Planner:
    """Plans one block. `memory(view)` names the memory behind a view or shared tile: two accesses may meet only if
    their memory is the same. `needed` are values that others want in scratch memory, `direct` operands of products that
    are read from global memory."""

    def __init__(
        self,
        block: Block,
        memory: Callable[[Value], object],
        needed: Iterable[Value] = (),
        direct: Set[Value] = frozenset(),
    ) -> None:
        self.block, self.memory, self.direct = block, memory, direct
        self.spaces = Spaces(block.ops)
        self.kept: set[Value] = {v for v in needed if self._here(v)}
        self.dependences = Dependences(block, memory, self.spaces, self.kept)
        self.position = self.dependences.position
        self.extents: dict[int, Dim] = {}
        self._price: dict[Value, int] = {}
        self.worth: dict[Value, int] = {}
        """what values that nests keep on the way cost where they are computed"""
        self.written = [(i, self.memory(v)) for op, i in self.position.items() for v in touched(op)]
        self.replaced: dict[Value, list[Op]] = {}
        """loads whose places are stored to before their last reader, and these stores"""
        self._find_kept()
        self.stages = self._stages()
        while late := self._read_late():
            self.kept.update(self._made_of(v.op) for v in late if v.op is not None)
            self.dependences.forget()
            self._price.clear()
            self.stages = self._stages()
        for group in self.groups():
            self._choose_vectors(group)
        self._keep_shared_work()
        for group in self.groups():
            self._find_inside(group)

    def groups(self) -> list[LoopGroup]:
        return [s for s in self.stages if isinstance(s, LoopGroup)]

    # -- who uses what -----------------------------------------------------------------------------------------------
    def _here(self, v: Value) -> bool:
        return v.op is not None and v.op.block is self.block

    def top(self, op: Op) -> Op:
        """The op of this block that `op` is, or is nested in."""
        while op.block is not self.block:
            parent = op.parent
            assert parent is not None
            op = parent
        return op

    def consumers(self, v: Value) -> list[tuple[Op, int]]:
        """The ops, with operand numbers, that read elements of `v`, through any lazy ops between."""
        seen, stack = {v}, [v]
        out: list[tuple[Op, int]] = []
        while stack:
            for user, i in stack.pop().uses:
                if user.name not in LAZY:
                    out.append((user, i))
                elif user.result not in seen:
                    seen.add(user.result)
                    stack.append(user.result)
        return out

    def price(self, v: Value) -> int:
        """Roughly, vector instructions to have an element of `v`."""
        if v not in self._price:
            known = v.op is None or v in self.kept or v.op.name not in LAZY or not shape_of(v) or _one_for_all(v.op)
            self._price[v] = 1 if known else self._computing(v)
        return self._price[v]

    def _computing(self, v: Value) -> int:
        """Roughly, vector instructions to compute an element of `v`, also of one that is kept."""
        op = v.op
        if op is None or op.name not in LAZY:
            return 1
        if op.name == "tile.gather":
            p = 10 + sum(map(self.price, op.operands[1:]))
        elif op.name in READS:
            p = 1 + (self.price(op.operands[-1]) if op.attrs.get("masked") else 0)
        else:
            p = sum(map(self.price, op.operands))
            if op.name == "tile.philox":
                p += 80
            elif op.name in ELEMENTWISE:
                p += 2 if op.name in ("tile.cast", "tile.bitcast") else cost(op.name[5:])
        return min(p, 1000)

    def work(self, nest: Nest) -> int:
        """Roughly, vector instructions of one step of a nest."""
        stored = sum(self.price(r.value) for r in nest.roots if r.op is not None)
        kept = sum(self._computing(r.value) for r in nest.roots if r.op is None)
        return stored + kept + sum(self.worth[v] for v in nest.also)

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
                self.kept.add(self._made_of(op))
            elif (
                op.name in LAZY and shape_of(op.result) and op.result not in self.kept and self._for_regions(op.result)
            ):
                self.kept.add(op.result)

    def _made_of(self, read: Op) -> Value:
        """What is kept of a load whose memory changes: if one value alone is made of it before that, element by element
        and of no more bytes, that value."""
        memory, v = self.memory(read.operands[0]), read.result
        change = min(i for i, m in self.written if m == memory and i > self.position[read])
        while len(v.uses) == 1:
            user = v.uses[0][0]
            if user.block is not self.block or user.name not in ELEMENTWISE or self.position[user] > change:
                break
            if shape_of(user.result) != shape_of(v) or _bits(user.result) > _bits(v):
                break
            v = user.result
        return v

    def _for_regions(self, v: Value) -> bool:
        """Expensive, and used inside a loop or branch, where it would be computed again and again."""
        return any(u.block is not self.block for u, _ in v.uses) and self.price(v) >= REGION_COST

    def _overwritten(self, op: Op) -> bool:
        """Whether memory that `op` reads may change before the last op that reads the elements. Stores to the same
        places that may be done together with all that reads them are noted in `replaced`."""
        memory, start = self.memory(op.operands[0]), self.position[op]
        after = [i for i, m in self.written if m == memory and i > start and not never_meet(op, self.block.ops[i])]
        if not after:
            return False
        users = {self.top(u) for u, _ in self.consumers(op.result)}
        last = max((self.position[u] for u in users), default=-1)
        stores = [self.block.ops[i] for i in after if i <= last]
        if any(not same_places(op, store, self.spaces) for store in stores):
            return True
        if any(i < last for i in after):
            self.replaced[op.result] = stores
        return False

    def _read_late(self) -> list[Value]:
        """Of the loads in `replaced`, those that are read where another nest has stored to their places. Each other one
        is done before its store, in the same step."""
        order = {nest: i for i, nest in enumerate(n for group in self.groups() for n in group.nests)}
        where: dict[object, Nest] = {root.op or root.value: nest for nest in order for root in nest.roots}
        late: list[Value] = []
        for v, stores in self.replaced.items():
            readers = [where.get(u) for u in self.users(v)]
            writers = [where[store] for store in stores]
            if any(r is None or order[r] > order[w] for r in readers for w in writers):
                late.append(v)
                continue
            for store, w in zip(stores, writers, strict=True):
                if w in readers:
                    w.before.setdefault(store, []).append(v)
        for v in late:
            del self.replaced[v]
        return late

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
        current: LoopGrouping | None = None
        for op in self.block.ops:
            root = self.root_of(op)
            if root is not None:
                self._see(root)
                if current is None or not current.join(root):
                    current = LoopGrouping(self.dependences, root)
                    stages.append(current.group)
            elif op.name not in LAZY and op.name not in (
                "tile.yield",
                "tile.return",
                "tile.barrier",
                "tile.alloc_shared",
            ):
                stages.append(op)
                current = None
        return stages

    def copy(self, v: Value, target: object) -> LoopGroup:
        """A group of one nest that puts all elements of `v` into `target`."""
        root = Root(v, None, self.spaces.of(v), target=target)
        self._see(root)
        group = LoopGroup([Nest(root.loops, [root])], list(root.loops))
        self._choose_vectors(group)
        return group

    def _see(self, root: Root) -> None:
        for c, d in zip(root.classes, shape_of(root.value), strict=True):
            if c is not None:
                self.extents[c] = d

    # -- vector axes -------------------------------------------------------------------------------------------------
    def _votes(self, nest: Nest) -> Counter[int]:
        """How many accesses run contiguously along each axis; the last axis breaks ties. What is read once for a long
        line has little to say."""
        votes: Counter[int] = Counter()
        long = {c for c in nest.classes if not isinstance(n := self.extents.get(c), int) or n >= LONG_LINE}
        seen: set[tuple[Value, tuple[AxisId, ...]]] = set()

        def read(v: Value, coords: tuple[AxisId, ...], top: bool = False) -> None:
            if (v, coords) in seen:
                return
            seen.add((v, coords))
            op = v.op
            if op is None or not coords:
                return
            if op.name not in LAZY or (v in self.kept and not top) or moves(op):
                votes[coords[-1] or 0] += weight(coords, 10) if coords[-1] is not None else 0
            elif op.name == "tile.load":
                vote(op.operands[0], coords, 10)
                if op.attrs.get("masked"):
                    read(op.operands[-1], coords)
            else:
                if op.name in ("tile.load_shared", "tile.gather") and coords[-1] is not None:
                    full = 10 if op.name == "tile.load_shared" else 20  # more than the numbers it reads
                    votes[coords[-1]] += weight(coords, full)
                for k, x in enumerate(op.operands):
                    read(x, operand_coords(op, k, coords) if shape_of(x) else ())

        def weight(coords: tuple[AxisId, ...], full: int) -> int:
            return full if long <= set(coords) else 1

        def vote(view: Value, coords: tuple[AxisId, ...], full: int) -> None:
            for axis in unit_axes(view):
                if (c := coords[axis]) is not None:
                    votes[c] += weight(coords, full)

        for root in nest.roots:
            read(root.value, root.classes, root.op is None)
            if root.op is not None and root.op.name == "tile.store":
                vote(root.op.operands[0], root.classes, 21)
            if root.op is None and root.classes and (last := root.classes[-1]) is not None:
                votes[last] += 11  # scratch memory: rather one load read across than stores that scatter
            if root.loops:
                votes[root.loops[-1]] += 1
        return votes

    def _choose_vectors(self, group: LoopGroup) -> None:
        outer = set(group.outer)
        best = {n: max(n.classes, key=self._votes(n).__getitem__, default=None) for n in group.nests}
        if len(group.nests) == 1 and (across := self._across_short(nest := group.nests[0], best[nest])) is not None:
            nest.vector, nest.short = across, best[nest]
            group.outer = [c for c in group.outer if c not in (nest.vector, nest.short)]
            return
        deep = [n for n in group.nests if not set(n.classes) <= outer]
        removed = {best[n] for n in deep} & outer
        if not deep and outer:
            removed = {best[group.nests[-1]]}
        group.outer = [c for c in group.outer if c not in removed]
        for nest in group.nests:
            free = [c for c in nest.classes if c not in group.outer]
            if free:
                votes = self._votes(nest)
                nest.vector = max(free, key=lambda c: (votes[c], free.index(c)))

    def _across_short(self, nest: Nest, last: AxisId) -> AxisId:
        """The axis along which lanes run where all that a nest stores are rows of few elements, one behind the other in
        memory: the one before the last, if it is long."""
        count = self.extents.get(last) if last is not None else None
        if not isinstance(count, int) or not 1 < count <= SHORT or nest.also:
            return None
        rows: set[AxisId] = set()
        for root in nest.roots:
            op, classes = root.op, root.classes
            if op is None or op.name != "tile.store" or op.attrs.get("masked") or classes[-1] != last:
                return None
            view, before = op.operands[0], len(classes) - 2
            rows.add(classes[before])
            assert isinstance(view.type, ViewType)
            if (
                view.type.dtype.is_complex
                or (step_of(view, before), step_of(view, before + 1)) != (count, 1)
                or known_index(op.operands[-1]) != 0
            ):
                return None
        (row,) = rows if len(rows) == 1 else (None,)
        long = row is not None and (not isinstance(n := self.extents[row], int) or n >= LONG_LINE)
        return row if long and self._reads_alone(nest) else None

    def _reads_alone(self, nest: Nest) -> bool:
        """Whether all that a nest reads are plain loads of memory that it does not write, and scratch memory."""
        written = {self.memory(root.op.operands[0]) for root in nest.roots if root.op is not None}
        stack, seen = [root.value for root in nest.roots], set[Value]()
        while stack:
            v = stack.pop()
            op = v.op
            if v in seen or op is None or v in self.kept or op.name not in LAZY:
                continue
            seen.add(v)
            if op.name == "tile.gather" or (op.name in READS and op.attrs.get("masked")):
                return False
            if op.name == "tile.load" and self.memory(op.operands[0]) in written:
                return False
            stack += op.operands
        return True

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
            if len(found) < 2 or not shape_of(v) or v in self.kept or self.price(v) < KEEP_BESIDE:
                continue
            nests = sorted((n for n in found if isinstance(n, Nest)), key=order.__getitem__)
            classes = self.spaces.of(v)
            if (
                nests
                and (self.price(v) >= KEEP_COST or self.work(nests[0]) >= BUSY)
                and {c for c in classes if c is not None} == set(nests[0].classes)
                and min(self.extents, default=0) >= 0
            ):
                self.worth[v] = self.price(v)
                self.kept.add(v)
                nests[0].also.append(v)
                where[v] = nests[0]
                reach[v] = {nests[0]}
        self._price.clear()

    def _find_inside(self, group: LoopGroup) -> None:
        """Results of the group that only its own nests use."""
        mine: set[object] = {r.op or r.value for n in group.nests for r in n.roots}
        mine |= {v for n in group.nests for v in n.also}
        results = [r.op.result if r.op else r.value for n in group.nests for r in n.roots if not r.op or r.op.results]
        for v in (*results, *(v for n in group.nests for v in n.also)):
            if all(u in mine for u in self.users(v)):
                group.inside.add(v)

    def users(self, v: Value) -> Iterator[object]:
        """The root ops and kept values that read `v`, directly or through ops that are computed where they are used."""
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


def _one_for_all(op: Op) -> bool:
    """Whether neighbours along the last axis, which lanes mostly are, have one value: it is computed outside of their
    loop."""
    return op.name == "tile.broadcast" and (shape_of(op.operands[0]) or (1,))[-1] == 1 != shape_of(op.result)[-1]


def _bits(v: Value) -> int:
    assert isinstance(v.type, TileType)
    return v.type.dtype.bits


def cost(name: str) -> int:
    """Roughly, vector instructions; decides what is recomputed rather than kept."""
    return COST.get(name, 1 if TABLE[name].flops <= 1 else 2 * TABLE[name].flops)
