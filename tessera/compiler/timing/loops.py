"""The loops of a kernel, as the code generator plans them: how many vectors each computes, loads and stores.

A nest computes what it needs anew, element by element, so that a value counts in each nest that reads it. Lanes stay
empty where the axis of the vectors is short. A nest that reads what an earlier one has read finds it in the cache that
holds all that lies between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from tessera.compiler.figures import LEVELS, Figures
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.loops.axes import LAZY, AxisId, moves, operand_coords, shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.stages import READS, LoopGroup, Nest, Root, made_here, memory_of, unit_axes
from tessera.compiler.tile.work import Work
from tessera.compiler.timing.operations import Operations, level_of, number
from tessera.language.dtypes import DType

Coords = tuple[AxisId, ...]
ENTRY = 8
"""instructions that enter a loop over vectors and leave it: bounds, addresses, a rest with masks"""
PARTIALS = 64
"""sums of a line that a tree adds up in the end: in each level a shuffle and an addition"""
TOGETHER = 8
"""elements that are added to the partial sums of a column while these are in registers"""
FORWARDED, MISSED = 4, 6
"""additions that wait for each other, in the time from a store to a load of the same, and until a wrong guess is set
right: 12 and 18 cycles or so"""
PLACE = 4
"""instructions that make an address of an index that data tell: widen, wrap, bound, scale"""
TRANSPOSED = 4
"""lanes from which on blocks are transposed in registers"""


@dataclass(frozen=True, slots=True)
class Busy:
    """Seconds of the units of one thread, which work at the same time, and how long all wait for a result."""

    arithmetic: float = 0.0
    ports: float = 0.0
    """of loads and stores in the first cache"""
    divided: float = 0.0
    """of divisions and roots"""
    waits: float = 0.0

    def __add__(self, other: Busy) -> Busy:
        return Busy(
            self.arithmetic + other.arithmetic,
            self.ports + other.ports,
            self.divided + other.divided,
            self.waits + other.waits,
        )

    def __mul__(self, times: float) -> Busy:
        return Busy(self.arithmetic * times, self.ports * times, self.divided * times, self.waits * times)

    @property
    def seconds(self) -> float:
        return max(self.arithmetic, self.ports, self.divided) + self.waits


class Loops:
    """One kernel. `shifted`: arguments that do not begin at a whole vector."""

    def __init__(self, work: Work, figures: Figures, shifted: frozenset[Value]) -> None:
        self.kernel, self.work, self.figures, self.shifted = work.kernel, work, figures, shifted
        self.operations = Operations(figures, self.work)
        self.kept: set[Value] = set()
        self.read: set[Op] = set()
        """loads that a nest has seen"""

    def seconds(self) -> float:
        programs = math.prod(cast("tuple[int, ...]", self.kernel.attrs["grid"]))
        return (self.block(self.kernel.region.block) * programs).seconds

    def block(self, block: Block, needed: Iterable[Value] = ()) -> Busy:
        direct = {
            v
            for op in block.ops
            for inner in op.walk()
            if inner.name == "tile.mma"
            for v in inner.operands
            if v.op is not None and v.op.name in ("tile.load", "tile.transpose")
        }
        plan = Planner(block, memory_of, needed, direct)
        self.kept |= plan.kept
        total = Busy()
        for stage in plan.stages:
            if not isinstance(stage, LoopGroup):
                total += self._apart(stage)
                continue
            for nest in stage.nests:
                total += NestCost(self, plan, stage, nest).busy()
        return total + self._scalars(block)

    def _apart(self, op: Op) -> Busy:
        if op.name == "tile.for":
            trips = number(self.work.trips(op))
            return self._body(op.region.block) * trips + self._rounds(op, trips)
        if op.name == "tile.if":
            share = self.work.share(op)
            then, orelse = (self._body(r.block) for r in op.regions)
            return then * float(share) + orelse * float(1 - share)
        if op.name == "tile.fold":
            steps = number(self.work.elements(op.operands[0])) * (2 if op.attrs.get("prefixes") else 1)
            return self._body(op.region.block) * steps
        if op.regions:  # a loop whose length only data tell: once
            return sum((self._body(r.block) for r in op.regions), Busy())
        return Busy(self.operations.apart(op))

    def _rounds(self, loop: Op, trips: float) -> Busy:
        """What the rounds of a loop of the kernel's text wait: for a tile that the one before has stored, and for the
        end, which is guessed wrong where the rounds are not always as many."""
        chain = 1 / self.figures.rate("chain f32")
        carried = any(shape_of(v) for v in loop.operands[3:])
        varies = not all(v.op is not None and v.op.name == "tile.dim" for v in loop.operands[:2])
        return Busy(waits=chain * (trips * FORWARDED * carried + MISSED * varies))

    def _body(self, block: Block) -> Busy:
        return self.block(block, [v for v in block.terminator.operands if shape_of(v) and made_here(v, block)])

    def _scalars(self, block: Block) -> Busy:
        """What is computed once for a condition, or is carried on."""
        seen: set[Value] = set()
        total = Busy()
        stack = [v for v in block.terminator.operands if isinstance(v.type, TileType) and not shape_of(v)]
        while stack:
            v = stack.pop()
            op = v.op
            if op is None or op.block is not block or v in seen or op.name not in LAZY:
                continue
            seen.add(v)
            total += self.one(op)
            stack += [x for x in op.operands if isinstance(x.type, TileType) and not shape_of(x)]
        return total

    def one(self, op: Op) -> Busy:
        """One vector of an elementwise op."""
        if op.name in READS:
            return Busy(ports=self.operations.load)
        found = self.operations.vector(op)
        return Busy(divided=found) if self.operations.divides(op) else Busy(found)


class NestCost:
    """One run of the loops of a nest."""

    def __init__(self, loops: Loops, plan: Planner, group: LoopGroup, nest: Nest) -> None:
        self.loops, self.plan, self.group, self.nest = loops, plan, group, nest
        self.operations = loops.operations
        self.extents = self._extents()
        wide = nest.vector
        self.vector = wide if wide is not None and self.extents.get(wide, 1) > 1 else None
        self.lanes = self._lanes() if self.vector is not None else 1
        self.seen: set[tuple[Value, Coords]] = set()
        self.total = Busy()

    def _extents(self) -> dict[int, float]:
        found: dict[int, float] = {}
        for root in self.nest.roots:
            for c, n in zip(root.classes, self.loops.work.shape(root.value), strict=True):
                if c is not None:
                    found[c] = min(found.get(c, math.inf), number(n))
        return found

    def _lanes(self) -> int:
        """Lanes of a vector of the widest type."""
        types = [cast(TileType, root.value.type).dtype for root in self.nest.roots]
        widest = max(_register(d) for d in types)
        lanes = max(1, self.loops.figures.vector // widest)
        return lanes

    def steps(self, coords: Coords) -> float:
        """Vectors, of a value at these coordinates: where lanes have one each, all of the nest."""
        if self.vector is not None and self.vector in coords:
            return self.runs() * math.ceil(self.extents[self.vector] / self.lanes)
        if self.vector is None and self.nest.classes:
            return math.prod(self.extents.values())
        return math.prod(self.extents.get(c, 1.0) for c in dict.fromkeys(coords) if c is not None)

    def runs(self) -> float:
        """How often the loop over vectors is entered."""
        inner = self.vector if self.vector is not None else (self.nest.classes or [None])[-1]
        return math.prod(n for c, n in self.extents.items() if c != inner)

    def busy(self) -> Busy:
        for v in self.nest.also:
            self._value(v, self.plan.spaces.of(v), top=True)
            self._ports(self.operations.store, self.steps(self.plan.spaces.of(v)))
        for root in self.nest.roots:
            self._root(root)
        if self.nest.classes:
            self._arithmetic(ENTRY * self.operations.instruction, self.runs())
        return self.total

    def _finish(self, length: float) -> None:
        """The tree of partial results of each line; a single one waits for it."""
        levels = math.log2(min(max(length, 2), PARTIALS))
        self._arithmetic(2 * levels * self.operations.instruction, self.runs())
        if self.runs() == 1:
            self.total += Busy(waits=2 * levels / self.loops.figures.rate("chain f32"))

    def _root(self, root: Root) -> None:
        op = root.op
        self._value(root.value, root.classes, top=op is None and root.target is None)
        steps = self.steps(root.classes)
        if op is None or op.name == "tile.store_shared":
            self._ports(self.operations.store, steps)
        elif op.name == "tile.reduce":
            self._arithmetic(self.operations.combine(op) * self.parts(cast(TileType, root.value.type).dtype), steps)
            if root.reduced == self.vector and self.vector is not None:
                self._finish(self.extents[self.vector])
            elif self.vector is not None:  # partial sums of all lanes are in memory
                self._ports((self.operations.load + self.operations.store) / TOGETHER, steps)
        else:
            for x in op.operands[2:]:
                if shape_of(x):
                    self._value(x, root.classes)
            self._store(op, root, steps)

    def _store(self, op: Op, root: Root, steps: float) -> None:
        view, dtype = op.operands[0], cast(TileType, root.value.type).dtype
        if self.vector is None or self.vector not in root.classes:
            self._ports(self.operations.store, steps)
        elif op.name == "tile.store" and self._beside(view, root.classes):
            self._ports(self.operations.store * _vectors(dtype) * (1 + self._shifted(view)), steps)
            if dtype.is_complex:
                self._arithmetic(2 * self.operations.shuffle, steps)
        else:
            self._ports(self.operations.apart_lanes * self.lanes, steps)

    # -- values ------------------------------------------------------------------------------------------------------
    def _value(self, v: Value, coords: Coords, top: bool = False) -> None:
        if (v, coords) in self.seen:
            return
        self.seen.add((v, coords))
        op = v.op
        if (
            op is None
            or op.name not in LAZY
            or moves(op)
            or (v in self.loops.kept and not top and v not in self.nest.also)
        ):
            if not all(c is None or c in self.group.outer for c in coords):
                self._ports(self.operations.load, self.steps(coords))
            return
        steps = self.steps(coords)
        if op.name == "tile.load":
            self._load(op, coords, steps)
        elif op.name == "tile.gather":
            self._gather(op, coords, steps)
        elif op.name not in READS:
            self.total += self.loops.one(op) * (steps * self.parts(cast(TileType, op.result.type).dtype))
        for k in range(1 if op.name in READS else 0, len(op.operands)):
            if isinstance(op.operands[k].type, TileType):
                self._value(op.operands[k], operand_coords(op, k, coords))

    def _load(self, op: Op, coords: Coords, steps: float) -> None:
        view, dtype = op.operands[0], cast(TileType, op.result.type).dtype
        if self.vector is None or self.vector not in coords:
            self._ports(self.operations.load, steps)
        elif self._beside(view, coords):
            self._ports(self.operations.load * _vectors(dtype) * (1 + self._shifted(view)), steps)
            if dtype.is_complex:
                self._arithmetic(2 * self.operations.shuffle, steps)
        elif self._turned(view, coords):
            self._ports(self.operations.load + math.log2(self.lanes) * self.operations.shuffle, steps)
        else:
            self._ports(self.operations.apart_lanes * self.lanes * _vectors(dtype), steps)
        self._arithmetic(self.operations.widening(dtype), steps)
        if op in self.loops.read:
            self.total += Busy(waits=self._again(op, coords, dtype))
        self.loops.read.add(op)

    def _again(self, op: Op, coords: Coords, dtype: DType) -> float:
        """Seconds to read it once more, beyond a load of each vector from the first cache."""
        own = math.prod(number(n) for n in self.loops.work.shape(op.result)) * dtype.itemsize
        outer = math.prod(self.extents.get(c, 1.0) for c in self.group.outer if c in coords)
        level = level_of(own / max(outer, 1), self.loops.figures)
        return own / self.loops.figures.rate(f"read {level}") if level != LEVELS[0] else 0.0

    def _gather(self, op: Op, coords: Coords, steps: float) -> None:
        self._arithmetic(PLACE * self.operations.instruction, steps)
        dtype = cast(TileType, op.result.type).dtype
        if self.vector in coords and any(self._told_by_data(x, self.vector) for x in op.operands[1:]):
            self._ports(self.operations.apart_lanes * self.lanes, steps)
        else:
            self._ports(self.operations.load, steps)
        self._arithmetic(self.operations.widening(dtype), steps)

    def _told_by_data(self, v: Value, vector: AxisId) -> bool:
        """Whether the elements of an index along the vectors are loaded."""
        op = v.op
        if op is None or vector not in self.plan.spaces.of(v):
            return False
        if op.name in READS or op.name not in LAZY:
            return True
        return any(self._told_by_data(x, vector) for x in op.operands if shape_of(x))

    def _beside(self, view: Value, coords: Coords) -> bool:
        """Whether lanes are neighbours in memory."""
        return any(coords[a] == self.vector for a in unit_axes(view))

    def _turned(self, view: Value, coords: Coords) -> bool:
        """Whether blocks are transposed in registers."""
        if self.nest.reduced is not None or self.lanes < TRANSPOSED:
            return False
        axes = [coords[a] for a in unit_axes(view)]
        assert self.vector is not None
        long = self.extents[self.vector] >= self.lanes
        return long and any(c is not None and self.extents.get(c, 1.0) >= self.lanes for c in axes)

    def _shifted(self, view: Value) -> bool:
        """Whether vectors lie on two lines of a cache each."""
        t = cast(ViewType, view.type)
        if memory_of(view) in self.loops.shifted:
            return True
        wide = self.loops.figures.vector
        strides = strides_of(t)
        return any(n != 1 and s != 1 and s * t.dtype.itemsize % wide for n, s in zip(t.shape, strides, strict=True))

    def parts(self, dtype: DType) -> float:
        """Vectors that hold one element for each lane."""
        return max(1.0, self.lanes * _register(dtype) / self.loops.figures.vector) * (2 if dtype.is_complex else 1)

    def _arithmetic(self, seconds: float, times: float) -> None:
        self.total += Busy(seconds * times)

    def _ports(self, seconds: float, times: float) -> None:
        self.total += Busy(ports=seconds * times)


def strides_of(view: ViewType) -> tuple[int, ...]:
    """In elements; of sizes that are known."""
    if view.strides is not None:
        return cast("tuple[int, ...]", tuple(view.strides))
    found, step = list[int](), 1
    for n in reversed(cast("tuple[int, ...]", view.shape)):
        found.append(step)
        step *= n
    return tuple(reversed(found))


def _register(dtype: DType) -> int:
    """Bytes of an element in a register."""
    if dtype.is_complex:
        return dtype.itemsize // 2
    return max(dtype.itemsize, 4) if dtype.is_float else dtype.itemsize


def _vectors(dtype: DType) -> float:
    """Whole vectors of memory for one of a register."""
    return dtype.itemsize / _register(dtype) if dtype.is_float or dtype.is_complex else 1.0
