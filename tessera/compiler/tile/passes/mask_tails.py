"""Ragged edges: elements of a tile that lie beyond the end of what it was loaded from never enter a result.

A block at the edge of a tensor is as large as any other; what it holds beyond the edge is padding. Every value knows
which of its elements are (`Tail`: those with offset + j >= extent, or below 0), and where elements are combined with
each other, in a reduction or along the contracted axis of a product, padding is replaced by that reduction's identity.
Padded indices read and store nothing. Elsewhere padding is harmless, for stores are clipped. Where sizes show that no
block is ragged, nothing is inserted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.tile.dialect import TileBuilder
from tessera.compiler.tile.passes.padding import (
    NONE,
    Axis,
    Exists,
    Tail,
    Tails,
    adds,
    filled_first,
    joined,
    kept_axes,
    slice_start,
    visible,
)
from tessera.compiler.tile.primitive import PRIMITIVES, TilePrimitive
from tessera.compiler.tile.ranges import Ranges, defined_in
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.scalars import TABLE, identity_of


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

    moving: set[Value] = field(default_factory=set[Value])
    """masks that say where elements exist that a function has moved: not the author's"""

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
        elif op.name in PRIMITIVES:
            self.primitive(op)

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
        """Which elements of an access at computed places are padding.

        Elements whose index is padding are masked out here. Elements of slices that lie outside the view read and
        store nothing, as everywhere.
        """
        tails = self.union(indices)
        self.restrict(op, tails, cast(TileType, indices[0].type).shape)
        found = list(tails)
        for axis in cast("tuple[int, ...]", op.attrs.get("sliced", ())):
            start, along = slice_start(indices[axis])
            size, extent = (
                cast(TileType, indices[axis].type).shape[along],
                cast(ViewType, op.operands[0].type).shape[axis],
            )
            low, high = self.bounds.inside(start, size, extent)
            if not (low and high):
                found[along] = joined(found[along], (Tail(start, extent, not low),))
        return tuple(found)

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
        out: list[Axis] = []
        for offset, size, extent in zip(offsets, shape, view.shape, strict=True):
            low, high = self.bounds.inside(offset, size, extent)
            out.append(NONE if low and high else (Tail(offset, extent, not low),))
        return tuple(out)

    def copy_async(self, op: Op) -> None:
        shared, view = op.operands[0], cast(ViewType, op.operands[1].type)
        self.tails[shared] = self.window(view, op.operands[2:], cast(SharedType, shared.type).shape)
        self.padding[shared] = 0
        self.masks.pop(shared, None)

    def store_shared(self, op: Op) -> None:
        shared, value = op.operands
        self.tails[shared] = self.of(value)
        for table in (self.padding, self.masks):
            table.pop(shared, None)
            if value in table:
                table[shared] = table[value]  # type: ignore[assignment]

    def load_shared(self, op: Op) -> None:
        """What stands in a loop or a branch that has ended says nothing of the content behind it."""
        self.like(op.result, op.operands[0])
        assert op.block is not None
        seen = tuple(tuple(t for t in axis if visible(t.offset, op.block)) for axis in self.of(op.result))
        masks = self.masks.pop(op.result, ())
        self.tails[op.result] = seen
        if masks and all(visible(m, op.block) for m in masks):
            self.masks[op.result] = masks

    # how they travel
    def like(self, v: Value, source: Value) -> None:
        self.tails[v] = self.of(source)
        for table in (self.padding, self.masks):
            if source in table:
                table[v] = table[source]  # type: ignore[assignment]

    def union(self, tiles: Sequence[Value]) -> Tails:
        return tuple(joined(*axis) for axis in zip(*map(self.of, tiles), strict=True))

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
        places = kept_axes(before, after)
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
            if not self.moving.isdisjoint(masks):
                self.moving.update(self.masks[op.result])

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
            moved = tuple(m for m in masks if m in self.moving)
            if moved and len(axes) < len(tails):
                self.masks[op.result] = self.any_left(op, x, ragged, moved, axes)
                self.moving.update(self.masks[op.result])
        self.tails[op.result] = tuple(t for a, t in enumerate(tails) if a not in axes)

    def any_left(
        self, op: Op, x: Value, tails: Tails, masks: tuple[Value, ...], axes: tuple[int, ...]
    ) -> tuple[Value, ...]:
        """Which elements of a reduction have anything to reduce: what has been moved leaves some without."""
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        exists = self.existing(builder, cast(TileType, x.type).shape, tails, masks)
        return (builder.reduce("any", exists, axes),)

    def scan(self, op: Op) -> None:
        """Padding behind all elements is in no prefix of theirs; what stands before or between them is."""
        x, axis = op.operands[0], cast(int, op.attrs["axis"])
        tails, masks = self.of(x), self.masks.get(x, ())
        if masks or any(t.below for t in tails[axis]):
            ragged = tuple(t if a == axis else NONE for a, t in enumerate(tails))
            identity = identity_of(str(op.attrs["op"]), cast(TileType, x.type).dtype)
            op.set_operand(0, self.masked(op, x, ragged, masks, identity))
        self.tails[op.result] = tails
        if masks:
            self.masks[op.result] = masks

    def sort(self, op: Op) -> None:
        """Padding goes behind all elements."""
        x, axis = op.operands[0], cast(int, op.attrs["axis"])
        tails, masks = self.of(x), self.masks.get(x, ())
        ragged = tuple(t if a == axis else NONE for a, t in enumerate(tails))
        self.tails[op.result] = tails
        if not (tails[axis] or masks):
            return
        if masks or any(t.below for t in tails[axis]):  # as many as there are stand first
            self.tails[op.result] = tuple(NONE if a == axis else t for a, t in enumerate(tails))
            self.masks[op.result] = self.counted(op, ragged, masks, axis)
        dtype = cast(TileType, x.type).dtype
        last = identity_of("max" if op.attrs.get("descending") else "min", dtype)
        if dtype.is_float and not op.attrs.get("descending"):
            last = math.nan
        op.set_operand(0, self.masked(op, x, ragged, masks, last))

    def counted(self, op: Op, tails: Tails, masks: tuple[Value, ...], axis: int) -> tuple[Value, ...]:
        """Which positions along the axis are below the number of elements that exist."""
        assert op.block is not None
        shape = cast(TileType, op.operands[0].type).shape
        builder = TileBuilder(op.block, op.block.index(op), op.span)
        exists = self.existing(builder, shape, tails, masks)
        count = builder.reduce("sum", builder.cast(exists, dtypes.int64), (axis,))
        there = builder.broadcast(count, shape, tuple(a for a in range(len(shape)) if a != axis))
        return (builder.map("lt", builder.value("tile.iota", (), there.type, {"axis": axis}), there),)

    def primitive(self, op: Op) -> None:
        """A function with an op of its own says what stands in place of padding, and where its elements exist."""
        definition = PRIMITIVES[op.name]
        exists = [(self.of(x), self.masks.get(x, ())) for x in op.operands]
        for i, x in enumerate(list(op.operands)):
            if (any(exists[i][0]) or exists[i][1]) and definition.operands[i] not in definition.moves:
                op.set_operand(i, self.masked(op, x, *exists[i], definition.padding))
        if definition.moves:
            moved = {i: e for i, e in enumerate(exists) if definition.operands[i] in definition.moves}
            self.tails[op.result], lost = self.stay(op, definition, moved)
            if definition.partial or any(any(tails) or masks for tails, masks in lost.values()):
                self.masks[op.result] = self.moved_together(op, lost)
                self.moving.update(self.masks[op.result])
        elif exists and cast(TileType, op.operands[0].type).shape == cast(TileType, op.result.type).shape:
            self.tails[op.result], masks = exists[0]
            if masks:
                self.masks[op.result] = masks

    def stay(self, op: Op, definition: TilePrimitive, moved: Mapping[int, Exists]) -> tuple[Tails, dict[int, Exists]]:
        """The tails of axes along which nothing moves, where all operands have the same; and what else exists by."""
        first = next(iter(moved))
        kept = definition.kept(cast(TileType, op.operands[first].type).rank, **op.attrs)
        out = [NONE] * cast(TileType, op.result.type).rank
        same = {r: a for r, a in kept.items() if len({tails[a] for tails, _ in moved.values()}) == 1}
        for r, a in same.items():
            out[r] = moved[first][0][a]
        gone = set(same.values())
        lost = {i: (tuple(NONE if a in gone else t for a, t in enumerate(tails)), m) for i, (tails, m) in moved.items()}
        return tuple(out), lost

    def moved_together(self, op: Op, moved: Mapping[int, Exists]) -> tuple[Value, ...]:
        """Which elements exist of what an op moves: the same op, over whether its operands' elements do."""
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        given = list(op.operands)
        for i, (tails, masks) in moved.items():
            given[i] = self.existing(builder, cast(TileType, op.operands[i].type).shape, tails, masks)
        kind = TileType(cast(TileType, op.result.type).shape, dtypes.bool_)
        return (builder.value(op.name, given, kind, dict(op.attrs)),)

    def mma(self, op: Op) -> None:
        a, b, acc = op.operands
        inner = joined(self.of(a)[1], self.of(b)[0])
        for i, (x, tails) in enumerate(((a, (NONE, inner)), (b, (inner, NONE)))):
            masks = self.masks.get(x, ())
            if inner or masks:
                op.set_operand(i, self.masked(op, x, tails, masks, 0))
        rows, columns = self.of(acc)
        self.tails[op.result] = (joined(self.of(a)[0], rows), joined(self.of(b)[1], columns))

    def check(self, op: Op) -> None:
        """Nothing is claimed of padding."""
        holds, *_ = op.operands
        tails, masks = self.of(holds), self.masks.get(holds, ())
        if any(tails) or masks:
            op.set_operand(0, self.masked(op, holds, tails, masks, True))

    def masked(self, op: Op, x: Value, tails: Tails, masks: tuple[Value, ...], identity: float) -> Value:
        """`x` with padding replaced by the identity; `x` itself where its padding is that already."""
        if x in self.padding and self.padding[x] == identity:
            return x
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        if isinstance(x.type, SharedType):
            x = builder.value("tile.load_shared", (x,), TileType(x.type.shape, x.type.dtype))
        t = cast(TileType, x.type)
        if not (any(tails) or masks):
            return x
        valid = self.existing(builder, t.shape, tails, masks)
        return builder.map("where", valid, x, builder.full(t.shape, identity, t.dtype))

    def existing(self, builder: TileBuilder, shape: tuple[Dim, ...], tails: Tails, masks: Sequence[Value]) -> Value:
        """Which elements of a tile exist."""
        first, *rest = [*self.conditions(builder, tails, shape), *masks] or [builder.full(shape, True, dtypes.bool_)]
        for condition in rest:
            first = builder.map("logical_and", first, condition)
        return first

    def conditions(self, builder: TileBuilder, tails: Tails, shape: tuple[Dim, ...]) -> list[Value]:
        out: list[Value] = []
        lane = TileType(shape, dtypes.int64)
        for axis, found in enumerate(tails):
            for tail in found:
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
        self.carry(op, list(op.operands[3:]), [op.region.block])

    def while_loop(self, op: Op) -> None:
        self.carry(op, list(op.operands), [r.block for r in op.regions])

    def carry(self, op: Op, initial: Sequence[Value], blocks: Sequence[Block]) -> None:
        """A loop whose step is these blocks. A carried tile that each step adds to lacks what it lacks before the loop,
        and what all steps lack; one that each step makes anew may lack something else each time, which is carried, too.
        """
        body, count = blocks[-1], len(initial)
        shared = {v: (self.tails.get(v), self.padding.get(v)) for v in self._shared(op) if not filled_first(v, blocks)}
        found = [self.of(v) if isinstance(v.type, TileType) else () for v in initial]
        anew = set[int]()
        """which carried tiles are made anew, and lack different elements"""
        while True:
            for block in blocks:
                for i, (arg, tails) in enumerate(zip(block.args[-count:] if count else (), found, strict=True)):
                    self._carried(arg, tails, (arg,) if i in anew else self.masks.get(initial[i], ()))
            probe = _Probe(self)
            news = probe.yields(blocks)
            before, changes = list(found), len(anew)
            for i, (arg, new) in enumerate(zip(body.args[-count:] if count else (), news, strict=True)):
                if i in anew or new is arg or not isinstance(new.type, TileType) or not new.type.rank:
                    continue
                tails, masks = probe.of(new), probe.masks.get(new, ())
                if adds(new, arg, body):
                    found[i] = tuple(joined(x, self._outside(y, body)) for x, y in zip(found[i], tails, strict=True))
                elif masks or initial[i] in self.masks or tails != found[i] or _inside(tails, (), body):
                    anew.add(i)
                    found[i] = (NONE,) * new.type.rank
            differing = [v for v, was in shared.items() if (probe.tails.get(v), probe.padding.get(v)) != was]
            if before == found and len(anew) == changes and not differing:
                break
            for v in differing:  # another content in each step: no one offset describes it
                if probe.padding.get(v) != shared.pop(v)[1]:
                    self.padding.pop(v, None)
                self.tails.pop(v, None)
                self.masks.pop(v, None)
        masks = self.carry_masks(op, initial, blocks, sorted(anew))
        for block in blocks:
            self.block(block)
        news = body.terminator.operands
        self.yield_masks(op, body, {i: (self.of(news[i]), self.masks.get(news[i], ())) for i in sorted(anew)})
        self.keep_old(op, body, count, anew)
        for i, tails in enumerate(found):
            self._carried(op.results[i], tails, masks[i] if i in masks else self.masks.get(initial[i], ()))

    def _carried(self, v: Value, tails: Tails, masks: tuple[Value, ...]) -> None:
        self.tails[v] = tails
        self.masks.pop(v, None)
        if masks:
            self.masks[v] = masks

    def carry_masks(
        self, op: Op, initial: Sequence[Value], blocks: Sequence[Block], which: Sequence[int]
    ) -> dict[int, tuple[Value, ...]]:
        """Makes the loop carry which elements of these carried tiles exist; gives the masks of its results."""
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.index(op), op.span)
        out = dict[int, tuple[Value, ...]]()
        count = len(initial)
        places = [len(block.args) - count for block in blocks]
        for i in which:
            v = initial[i]
            mask = self.existing(builder, cast(TileType, v.type).shape, self.of(v), self.masks.get(v, ()))
            op.set_operands([*op.operands, mask])
            for block, place in zip(blocks, places, strict=True):
                self.masks[block.args[place + i]] = (block.add_arg(mask.type),)
            op.results.append(Value(mask.type, op, len(op.results)))
            out[i] = (op.results[-1],)
        return out

    def yield_masks(self, op: Op, block: Block, which: dict[int, Exists]) -> None:
        """The block yields which elements of these values exist, behind the values."""
        end = block.terminator
        builder = TileBuilder(block, len(block.ops) - 1, op.span)
        for i, (tails, masks) in which.items():
            mask = self.existing(builder, cast(TileType, end.operands[i].type).shape, tails, masks)
            end.set_operands([*end.operands, mask])

    def _shared(self, op: Op) -> list[Value]:
        return list(
            dict.fromkeys(o.operands[0] for o in op.walk() if o.name in ("tile.copy_async", "tile.store_shared"))
        )

    def _outside(self, tails: Axis, body: Block) -> Axis:
        """Those whose offset is known outside the loop."""
        return tuple(t for t in tails if not defined_in(t.offset, body))

    def keep_old(self, op: Op, body: Block, carried: int, anew: set[int]) -> None:
        """`m = maximum(m, x)` over ragged or masked x: what does not exist in this step leaves m as it was."""
        end = body.terminator
        args = body.args[1 if op.name == "tile.for" else 0 :]
        for i, (arg, new) in enumerate(zip(args[:carried], end.operands[:carried], strict=True)):
            if i in anew or not isinstance(new.type, TileType) or not new.type.rank or new is arg:
                continue
            local = tuple(tuple(t for t in axis if defined_in(t.offset, body)) for axis in self.of(new))
            masks = [m for m in self.masks.get(new, ()) if m not in self.masks.get(arg, ())]
            if (any(local) or masks) and adds(new, arg, body):
                builder = TileBuilder(body, len(body.ops) - 1, op.span)
                exists = self.existing(builder, new.type.shape, local, masks)
                end.set_operand(i, builder.map("where", exists, new, arg))

    def branch(self, op: Op) -> None:
        """What a branch gives lacks what both sides lack; where they lack different elements, each says which. A side
        that adds to what the other leaves alone is as a step of a loop: what it lacks in every step, both lack."""
        blocks = [r.block for r in op.regions]
        for block in blocks:
            self.block(block)
        apart = dict[int, list[Exists]]()
        for i, result in enumerate(op.results):
            if not isinstance(result.type, TileType) or not result.type.rank:
                continue
            yields = [b.terminator.operands[i] for b in blocks]
            sides: list[Exists] = [(self.of(y), self.masks.get(y, ())) for y in yields]
            added = any(adds(y, other, b) for y, other, b in zip(yields, reversed(yields), blocks, strict=True))
            always: Tails = (NONE,) * result.type.rank
            if added:
                outer = [tuple(self._outside(t, b) for t in s[0]) for s, b in zip(sides, blocks, strict=True)]
                always = tuple(joined(*axis) for axis in zip(*outer, strict=True))
                sides = [(_without(tails, always), masks) for tails, masks in sides]
            same = sides[0] == sides[1] and not any(_inside(*s, b) for s, b in zip(sides, blocks, strict=True))
            if same:
                self._carried(result, always if added else sides[0][0], sides[0][1])
            else:
                self._carried(result, always, ())
                apart[i] = sides
            padding = [self.padding.get(y) for y in yields]
            if padding[0] is not None and padding[0] == padding[1]:
                self.padding[result] = padding[0]
        self.part(op, blocks, apart)

    def part(self, op: Op, blocks: Sequence[Block], apart: dict[int, list[Exists]]) -> None:
        """Makes the branch give which elements of these results exist."""
        for n, block in enumerate(blocks):
            self.yield_masks(op, block, {i: sides[n] for i, sides in apart.items()})
        for i in apart:
            op.results.append(Value(blocks[0].terminator.operands[len(op.results)].type, op, len(op.results)))
            self.masks[op.results[i]] = (op.results[-1],)


def _inside(tails: Tails, masks: Sequence[Value], block: Block) -> bool:
    """Whether any of it is known inside the block alone."""
    return any(defined_in(t.offset, block) for axis in tails for t in axis) or any(defined_in(m, block) for m in masks)


def _without(tails: Tails, others: Tails) -> Tails:
    return tuple(tuple(t for t in axis if t not in other) for axis, other in zip(tails, others, strict=True))


class _Probe(MaskTails):
    """Follows tails through a loop's body without changing it."""

    def __init__(self, outer: MaskTails) -> None:
        super().__init__(outer.kernel, dict(outer.tails), dict(outer.padding), dict(outer.masks), set(outer.moving))

    def yields(self, blocks: Sequence[Block]) -> list[Value]:
        for block in blocks:
            self.block(block)
        return list(blocks[-1].terminator.operands)

    def masked(self, op: Op, x: Value, tails: Tails, masks: tuple[Value, ...], identity: float) -> Value:
        return x

    def keep_old(self, op: Op, body: Block, carried: int, anew: set[int]) -> None:
        return None

    def carry_masks(
        self, op: Op, initial: Sequence[Value], blocks: Sequence[Block], which: Sequence[int]
    ) -> dict[int, tuple[Value, ...]]:
        return {i: (op.results[i],) for i in which}

    def yield_masks(self, op: Op, block: Block, which: dict[int, Exists]) -> None:
        return None

    def part(self, op: Op, blocks: Sequence[Block], apart: dict[int, list[Exists]]) -> None:
        for i in apart:
            self.masks[op.results[i]] = (op.results[i],)

    def counted(self, op: Op, tails: Tails, masks: tuple[Value, ...], axis: int) -> tuple[Value, ...]:
        return (op.result,)

    def moved(self, op: Op, tails: Tails, masks: tuple[Value, ...]) -> tuple[Value, ...]:
        return (op.result,)

    def moved_together(self, op: Op, moved: Mapping[int, Exists]) -> tuple[Value, ...]:
        return (op.result,)

    def any_left(
        self, op: Op, x: Value, tails: Tails, masks: tuple[Value, ...], axes: tuple[int, ...]
    ) -> tuple[Value, ...]:
        return (op.result,)

    def restrict(self, op: Op, tails: Tails, shape: tuple[Dim, ...]) -> None:
        return None


_RULES = {
    "load": MaskTails.load, "gather": MaskTails.gather, "copy_async": MaskTails.copy_async, "cast": MaskTails.cast_,
    "load_shared": MaskTails.load_shared, "store_shared": MaskTails.store_shared, "transpose": MaskTails.transpose,
    "broadcast": MaskTails.broadcast, "reshape": MaskTails.reshape, "reduce": MaskTails.reduce, "mma": MaskTails.mma,
    "scan": MaskTails.scan, "sort": MaskTails.sort, "for": MaskTails.loop, "if": MaskTails.branch,
    "while": MaskTails.while_loop, "scatter": MaskTails.scatter, "assert": MaskTails.check,
    "philox": MaskTails.elementwise,
}  # fmt: skip
