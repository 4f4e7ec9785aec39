"""Ragged edges: elements of a tile that lie beyond the end of what it was loaded from never enter a result.

A block at the edge of a tensor is as large as any other; what it holds beyond the edge is padding. Every value knows
which of its elements are (`Tail`: those with offset + j >= extent, or below 0), and where elements are combined with
each other, in a reduction or along the contracted axis of a product, padding is replaced by that reduction's identity.
Padded indices read and store nothing. Elsewhere padding is harmless, for stores are clipped. Where sizes show that no
block is ragged, nothing is inserted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.tile.dialect import TileBuilder
from tessera.compiler.tile.ranges import Ranges, defined_in
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.scalars import TABLE, identity_of


@dataclass(frozen=True, slots=True)
class Tail:
    """Element j along an axis exists where offset + j < extent and, with `below`, where it is not negative."""

    offset: Value
    extent: Dim
    below: bool = False


Tails = tuple[frozenset[Tail], ...]
"""per axis of a tile: all of these must hold"""
NONE: frozenset[Tail] = frozenset()


def mask_tails(kernel: Op) -> None:
    MaskTails(kernel).run()


def tails_of(kernel: Op) -> dict[Value, Tails]:
    """Which elements of each tile are padding. Changes nothing."""
    probe = _Probe(MaskTails(kernel))
    probe.block(kernel.region.block)
    return probe.tails


@dataclass(slots=True)
class MaskTails:
    """`padding`: what all padded elements of a value are, where known. `masks`: elementwise conditions of loads."""

    kernel: Op
    tails: dict[Value, Tails] = field(default_factory=dict[Value, Tails])
    padding: dict[Value, float] = field(default_factory=dict[Value, float])
    masks: dict[Value, tuple[Value, ...]] = field(default_factory=dict[Value, tuple[Value, ...]])

    bounds: Ranges = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = Ranges(self.kernel)

    def run(self) -> None:
        self.block(self.kernel.region.block)

    def of(self, v: Value) -> Tails:
        t = v.type
        assert isinstance(t, (TileType, SharedType))
        return self.tails.get(v, (NONE,) * len(t.shape))

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            self.step(op)

    def step(self, op: Op) -> None:
        name = op.name.partition(".")[2]
        if name in TABLE:
            self.elementwise(op)
        elif name in _RULES:
            _RULES[name](self, op)

    # where tails come from
    def load(self, op: Op) -> None:
        if op.attrs.get("defined"):
            return
        view = cast(ViewType, op.operands[0].type)
        offsets = op.operands[1 : 1 + view.rank]
        self.tails[op.result] = self.window(view, offsets, cast(TileType, op.result.type).shape)
        self.padding[op.result] = cast(float, op.attrs.get("fill", 0))
        if op.attrs.get("masked"):
            self.masks[op.result] = (op.operands[-1],)

    def gather(self, op: Op) -> None:
        rank = cast(ViewType, op.operands[0].type).rank
        if op.attrs.get("masked") and not op.attrs.get("defined"):
            self.masks[op.result] = (op.operands[-1],)
        found = self.indexed(op, op.operands[1 : 1 + rank])
        if any(found) or op.result in self.masks:
            self.padding[op.result] = cast(float, op.attrs.get("fill", 0))
        self.tails[op.result] = found

    def scatter(self, op: Op) -> None:
        rank = cast(ViewType, op.operands[0].type).rank
        self.indexed(op, op.operands[2 : 2 + rank])

    def indexed(self, op: Op, indices: Sequence[Value]) -> Tails:
        """Which elements of an access at computed places are padding: those whose index is, which are masked out here,
        and those of its slices that lie outside, which read and store nothing as all that lies outside."""
        tails = self.union(indices)
        self.restrict(op, tails, cast(TileType, indices[0].type).shape)
        found = [set(t) for t in tails]
        for axis in cast("tuple[int, ...]", op.attrs.get("sliced", ())):
            start, along = _slice_start(indices[axis])
            size, extent = (
                cast(TileType, indices[axis].type).shape[along],
                cast(ViewType, op.operands[0].type).shape[axis],
            )
            low, high = self.bounds.inside(start, size, extent)
            if not (low and high):
                found[along].add(Tail(start, extent, not low))
        return tuple(map(frozenset, found))

    def restrict(self, op: Op, tails: Tails, shape: tuple[Dim, ...]) -> None:
        """Masks padded elements of an access out."""
        if not any(tails):
            return
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        mask = op.operands[-1] if op.attrs.get("masked") else None
        for condition in self.conditions(builder, tails, shape):
            mask = condition if mask is None else builder.map("logical_and", mask, condition)
        assert mask is not None
        op.set_operands([*(op.operands[:-1] if op.attrs.get("masked") else op.operands), mask])
        op.attrs["masked"] = True

    def window(self, view: ViewType, offsets: Sequence[Value], shape: Sequence[Dim]) -> Tails:
        out: list[frozenset[Tail]] = []
        for offset, size, extent in zip(offsets, shape, view.shape, strict=True):
            low, high = self.bounds.inside(offset, size, extent)
            out.append(NONE if low and high else frozenset({Tail(offset, extent, not low)}))
        return tuple(out)

    def copy_async(self, op: Op) -> None:
        shared, view = op.operands[0], cast(ViewType, op.operands[1].type)
        self.tails[shared] = self.window(view, op.operands[2:], cast(SharedType, shared.type).shape)
        self.padding[shared] = 0

    def store_shared(self, op: Op) -> None:
        shared, value = op.operands
        self.tails[shared] = self.of(value)
        self.padding.pop(shared, None)
        if value in self.padding:
            self.padding[shared] = self.padding[value]

    def load_shared(self, op: Op) -> None:
        self.like(op.result, op.operands[0])

    # how they travel
    def like(self, v: Value, source: Value) -> None:
        self.tails[v] = self.of(source)
        for table in (self.padding, self.masks):
            if source in table:
                table[v] = table[source]  # type: ignore[assignment]

    def union(self, tiles: Sequence[Value]) -> Tails:
        return tuple(frozenset[Tail]().union(*axis) for axis in zip(*map(self.of, tiles), strict=True))

    def elementwise(self, op: Op) -> None:
        tiles = op.operands
        self.tails[op.result] = self.union(tiles)
        masks = tuple(dict.fromkeys(m for v in tiles for m in self.masks.get(v, ())))
        if masks:
            self.masks[op.result] = masks

    def cast_(self, op: Op) -> None:
        self.like(op.result, op.operands[0])

    def transpose(self, op: Op) -> None:
        x, perm = op.operands[0], cast("tuple[int, ...]", op.attrs["perm"])
        self.tails[op.result] = tuple(self.of(x)[i] for i in perm)
        if x in self.padding:
            self.padding[op.result] = self.padding[x]
        self.move_masks(op)

    def broadcast(self, op: Op) -> None:
        x, axes = op.operands[0], cast("tuple[int, ...]", op.attrs["axes"])
        shape = cast(TileType, x.type).shape
        out = [NONE] * cast(TileType, op.result.type).rank
        for i, a in enumerate(axes):
            stretched = shape[i] == 1 and cast(TileType, op.result.type).shape[a] != 1
            out[a] = NONE if stretched else self.of(x)[i]
        self.tails[op.result] = tuple(out)
        self.move_masks(op)

    def reshape(self, op: Op) -> None:
        """Axes that stay keep their tails. Where an axis with padding is folded, or goes, and where an author's mask
        leaves elements out, what exists is a mask of the new shape."""
        x = op.operands[0]
        before, after = cast(TileType, x.type).shape, cast(TileType, op.result.type).shape
        places = _kept(before, after)
        tails, out = self.of(x), [NONE] * len(after)
        for i, a in places.items():
            out[a] = tails[i]
        self.tails[op.result] = tuple(out)
        if x in self.padding:
            self.padding[op.result] = self.padding[x]
        lost = tuple(NONE if i in places else t for i, t in enumerate(tails))
        self.move_masks(op, lost)

    def move_masks(self, op: Op, tails: Tails = ()) -> None:
        """What tells which elements of an op's operand exist beside its axes, these `tails` too, is moved as it is."""
        x = op.operands[0]
        masks = self.masks.get(x, ())
        if any(tails) or masks:
            self.masks[op.result] = self.moved(op, tails, masks)

    def moved(self, op: Op, tails: Tails, masks: tuple[Value, ...]) -> tuple[Value, ...]:
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        before, after = (cast(TileType, v.type).shape for v in (op.operands[0], op.result))
        found = [*self.conditions(builder, tails, before), *masks]
        kind = TileType(after, dtypes.bool_)
        return tuple(builder.value(op.name, (condition,), kind, dict(op.attrs)) for condition in found)

    # where elements are combined
    def reduce(self, op: Op) -> None:
        x, axes = op.operands[0], cast("tuple[int, ...]", op.attrs["axes"])
        identity = identity_of(str(op.attrs["op"]), cast(TileType, x.type).dtype)
        tails, masks = self.of(x), self.masks.get(x, ())
        if any(tails[a] for a in axes) or masks:
            ragged = tuple(t if a in axes else NONE for a, t in enumerate(tails))
            op.set_operand(0, self.masked(op, x, ragged, masks, identity))
        self.tails[op.result] = tuple(t for a, t in enumerate(tails) if a not in axes)

    def scan(self, op: Op) -> None:
        """Padding behind all elements is in no prefix of theirs; what stands before them is."""
        x, axis = op.operands[0], cast(int, op.attrs["axis"])
        tails = self.of(x)
        if any(t.below for t in tails[axis]):
            ragged = tuple(t if a == axis else NONE for a, t in enumerate(tails))
            identity = identity_of(str(op.attrs["op"]), cast(TileType, x.type).dtype)
            op.set_operand(0, self.masked(op, x, ragged, (), identity))
        self.tails[op.result] = tails

    def sort(self, op: Op) -> None:
        """Padding goes behind all elements."""
        x, axis = op.operands[0], cast(int, op.attrs["axis"])
        tails = self.of(x)
        if tails[axis]:
            dtype = cast(TileType, x.type).dtype
            last = identity_of("max" if op.attrs.get("descending") else "min", dtype)
            if dtype.is_float and not op.attrs.get("descending"):
                last = math.nan
            ragged = tuple(t if a == axis else NONE for a, t in enumerate(tails))
            op.set_operand(0, self.masked(op, x, ragged, (), last))
        self.tails[op.result] = tuple(self.behind(op, t, a) if a == axis else t for a, t in enumerate(tails))

    def behind(self, op: Op, tails: frozenset[Tail], axis: int) -> frozenset[Tail]:
        """Where padding is that stood before elements, too, and has gone behind them."""
        assert op.block is not None
        size = cast(TileType, op.result.type).shape[axis]
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        out = {t for t in tails if not t.below}
        for t in tails - out:
            zero = builder.index(0)
            missing = builder.iop("imax", builder.iop("isub", zero, t.offset), zero)
            out |= {Tail(builder.iop("imax", t.offset, zero), t.extent), Tail(missing, size)}
        return frozenset(out)

    def mma(self, op: Op) -> None:
        a, b, acc = op.operands
        inner = self.of(a)[1] | self.of(b)[0]
        for i, (x, tails) in enumerate(((a, (NONE, inner)), (b, (inner, NONE)))):
            masks = self.masks.get(x, ())
            if inner or masks:
                op.set_operand(i, self.masked(op, x, tails, masks, 0))
        rows, columns = self.of(acc)
        self.tails[op.result] = (self.of(a)[0] | rows, self.of(b)[1] | columns)

    def check(self, op: Op) -> None:
        """Nothing is claimed of padding."""
        holds, *_ = op.operands
        tails, masks = self.of(holds), self.masks.get(holds, ())
        if any(tails) or masks:
            op.set_operand(0, self.masked(op, holds, tails, masks, True))

    def masked(self, op: Op, x: Value, tails: Tails, masks: tuple[Value, ...], identity: float) -> Value:
        """`x` with padding replaced by the identity; `x` itself where its padding is that already."""
        if x in self.padding and _same(self.padding[x], identity):
            return x
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        if isinstance(x.type, SharedType):
            x = builder.value("tile.load_shared", (x,), TileType(x.type.shape, x.type.dtype))
        t = cast(TileType, x.type)
        valid: Value | None = None
        for condition in [*self.conditions(builder, tails, t.shape), *masks]:
            valid = condition if valid is None else builder.map("logical_and", valid, condition)
        if valid is None:
            return x
        return builder.map("where", valid, x, builder.full(t.shape, identity, t.dtype))

    def conditions(self, builder: TileBuilder, tails: Tails, shape: tuple[Dim, ...]) -> list[Value]:
        out: list[Value] = []
        lane = TileType(shape, dtypes.int64)
        for axis, found in enumerate(tails):
            for tail in sorted(found, key=lambda t: str(t.extent)):
                j = builder.value("tile.iota", (), lane, {"axis": axis})
                left = builder.value("tile.isub", (builder.index(tail.extent), tail.offset), INDEX)
                limit = builder.value("tile.to_scalar", (left,), TileType((), dtypes.int64))
                out.append(builder.map("lt", j, builder.broadcast(limit, shape, ())))
                if tail.below:
                    before = builder.value("tile.isub", (builder.index(0), tail.offset), INDEX)
                    first = builder.value("tile.to_scalar", (before,), TileType((), dtypes.int64))
                    out.append(builder.map("ge", j, builder.broadcast(first, shape, ())))
        return out

    # control flow
    def loop(self, op: Op) -> None:
        self.carry(op, op.operands[3:], [op.region.block])

    def while_loop(self, op: Op) -> None:
        self.carry(op, op.operands, [r.block for r in op.regions])

    def carry(self, op: Op, initial: Sequence[Value], blocks: Sequence[Block]) -> None:
        """A loop whose step is these blocks. Carried tiles: padding of what they start with or become, as far as it is
        the same in every step."""
        body = blocks[-1]
        shared = {v: (self.tails.get(v), self.padding.get(v)) for v in self._shared(op) if not _filled_first(v, blocks)}
        found = [self.of(v) if isinstance(v.type, TileType) else () for v in initial]
        while True:
            for block in blocks:
                for arg, tails in zip(block.args[len(block.args) - len(found) :], found, strict=True):
                    self.tails[arg] = tails
            probe = _Probe(self)
            yields = probe.yields(blocks)
            joined = [
                tuple(x | self._outside(y, body) for x, y in zip(t, n, strict=True))
                for t, n in zip(found, yields, strict=True)
            ]
            differing = [v for v, before in shared.items() if (probe.tails.get(v), probe.padding.get(v)) != before]
            if joined == found and not differing:
                break
            for v in differing:  # another content in each step: no one offset describes it
                if probe.padding.get(v) != shared.pop(v)[1]:
                    self.padding.pop(v, None)
                self.tails.pop(v, None)
            found = joined
        for block in blocks:
            self.block(block)
        self.keep_old(op, body, len(found))
        for result, tails in zip(op.results, found, strict=True):
            self.tails[result] = tails

    def _shared(self, op: Op) -> list[Value]:
        return list(
            dict.fromkeys(o.operands[0] for o in op.walk() if o.name in ("tile.copy_async", "tile.store_shared"))
        )

    def _outside(self, tails: frozenset[Tail], body: Block) -> frozenset[Tail]:
        """Those whose offset is known outside the loop."""
        return frozenset(t for t in tails if not defined_in(t.offset, body))

    def keep_old(self, op: Op, body: Block, carried: int) -> None:
        """`m = maximum(m, x)` over ragged x: what does not exist in this step leaves m as it was."""
        end = body.terminator
        for i, (arg, new) in enumerate(zip(body.args[len(body.args) - carried :], list(end.operands), strict=True)):
            if not isinstance(new.type, TileType) or not new.type.rank or new is arg:
                continue
            local = tuple(frozenset(t for t in axis if defined_in(t.offset, body)) for axis in self.of(new))
            if any(local) and depends(new, arg, body):
                builder = TileBuilder(body, len(body.ops) - 1, op.span)
                for condition in self.conditions(builder, local, new.type.shape):
                    new = builder.map("where", condition, new, arg)
                end.set_operand(i, new)

    def branch(self, op: Op) -> None:
        for region in op.regions:
            self.block(region.block)
        for i, result in enumerate(op.results):
            if isinstance(result.type, TileType):
                sides = [self.of(r.block.terminator.operands[i]) for r in op.regions]
                blocks = [r.block for r in op.regions]
                self.tails[result] = tuple(
                    frozenset(t for side in axis for t in side if not any(defined_in(t.offset, b) for b in blocks))
                    for axis in zip(*sides, strict=True)
                )


class _Probe(MaskTails):
    """Follows tails through a loop's body without changing it."""

    def __init__(self, outer: MaskTails) -> None:
        super().__init__(outer.kernel, dict(outer.tails), dict(outer.padding), dict(outer.masks))

    def yields(self, blocks: Sequence[Block]) -> list[Tails]:
        for block in blocks:
            self.block(block)
        return [self.of(v) if isinstance(v.type, TileType) else () for v in blocks[-1].terminator.operands]

    def masked(self, op: Op, x: Value, tails: Tails, masks: tuple[Value, ...], identity: float) -> Value:
        return x

    def keep_old(self, op: Op, body: Block, carried: int) -> None:
        return None

    def behind(self, op: Op, tails: frozenset[Tail], axis: int) -> frozenset[Tail]:
        return tails

    def moved(self, op: Op, tails: Tails, masks: tuple[Value, ...]) -> tuple[Value, ...]:
        return (op.result,)

    def restrict(self, op: Op, tails: Tails, shape: tuple[Dim, ...]) -> None:
        return None


def _kept(before: Sequence[Dim], after: Sequence[Dim]) -> dict[int, int]:
    """Which axes are the same before and behind a reshape; axes of size 1 come and go."""
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return {}
    out, i, a = dict[int, int](), 0, 0
    while i < len(before) and a < len(after):
        if before[i] == after[a]:
            out[i] = a
            i, a = i + 1, a + 1
        elif before[i] == 1:
            i += 1
        else:
            a += 1
    return out


def _slice_start(index: Value) -> tuple[Value, int]:
    """Where the slice starts that an index tile counts out, iota + start, and the axis that it does so along."""
    assert index.op is not None and index.op.name == "tile.add"
    count, start = index.op.operands
    assert count.op is not None and start.op is not None and start.op.name in ("tile.broadcast", "tile.to_scalar")
    scalar = start.op if start.op.name == "tile.to_scalar" else start.op.operands[0].op
    assert scalar is not None
    return scalar.operands[0], cast(int, count.op.attrs["axis"])


def _filled_first(v: Value, blocks: Sequence[Block]) -> bool:
    """Whether every step fills the shared tile before it reads it."""
    for op in (op for block in blocks for op in block.ops):
        for inner in op.walk():
            if v in inner.operands:
                fills = inner.name in ("tile.copy_async", "tile.store_shared") and inner.operands[0] is v
                return fills and inner.block in blocks
    return False


def depends(v: Value, on: Value, body: Block) -> bool:
    """Whether `v` is computed, inside the block, from `on`."""
    seen: set[Value] = set()
    stack = [v]
    while stack:
        x = stack.pop()
        if x is on:
            return True
        if x in seen:
            continue
        seen.add(x)
        if x.op is not None and defined_in(x, body):
            stack += [*x.op.operands, *(o for inner in x.op.walk() for o in inner.operands)]
    return False


def _same(a: float, b: float) -> bool:
    return a == b


_RULES = {
    "load": MaskTails.load, "gather": MaskTails.gather, "copy_async": MaskTails.copy_async, "cast": MaskTails.cast_,
    "load_shared": MaskTails.load_shared, "store_shared": MaskTails.store_shared, "transpose": MaskTails.transpose,
    "broadcast": MaskTails.broadcast, "reshape": MaskTails.reshape, "reduce": MaskTails.reduce, "mma": MaskTails.mma,
    "scan": MaskTails.scan, "sort": MaskTails.sort, "for": MaskTails.loop, "if": MaskTails.branch,
    "while": MaskTails.while_loop, "scatter": MaskTails.scatter, "assert": MaskTails.check,
}  # fmt: skip
