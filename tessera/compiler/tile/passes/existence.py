"""Which elements of a kernel's tiles exist, and how this propagates through ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.passes.padding import (
    NONE,
    Axis,
    Tail,
    Tails,
    joined,
    kept_axes,
    slice_start,
)
from tessera.compiler.tile.ranges import Intervals
from tessera.immutable import mutable
from tessera.language import dtypes
from tessera.language.dims import Dim


@mutable
class Existence:
    """`padding`: what all padded elements of a value are, where known. `masks`: elementwise conditions of loads."""

    kernel: Op
    tails: dict[Value, Tails] = field(default_factory=dict[Value, Tails])
    padding: dict[Value, float] = field(default_factory=dict[Value, float])
    masks: dict[Value, tuple[Value, ...]] = field(default_factory=dict[Value, tuple[Value, ...]])
    moving: set[Value] = field(default_factory=set[Value])
    """masks that say where elements exist that a function has moved: not the author's"""

    bounds: Intervals = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = Intervals(self.kernel)

    def of(self, v: Value) -> Tails:
        t = v.type
        assert isinstance(t, (TileType, SharedType))
        return self.tails.get(v, (NONE,) * len(t.shape))

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

        Elements whose index is padding are masked out here. Elements of slices that are outside the view read and
        store nothing, as everywhere; they exist where a load defines them.
        """
        tails = self.union(indices)
        self.restrict(op, tails, cast(TileType, indices[0].type).shape)
        found = list(tails)
        for axis in cast("tuple[int, ...]", () if op.attrs.get("defined") else op.attrs.get("sliced", ())):
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
        self.like(op.result, op.operands[0])

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

    def where(self, op: Op) -> None:
        """An element exists where that of the operand does which the condition chooses."""
        condition, *sides = op.operands
        self.tails[op.result] = self.union(op.operands)
        masks = list(self.masks.get(condition, ()))
        left = [
            [m for m in self.masks.get(x, ()) if not self.holds(m, follows(condition, truth))]
            for x, truth in zip(sides, (True, False), strict=True)
        ]
        masks += [m for m in left[0] if m in left[1]]
        rest = [[m for m in side if m not in masks] for side in left]
        if any(rest):
            chosen = self.chosen_mask(op, rest)
            masks.append(chosen)
            if any(not self.moving.isdisjoint(side) for side in rest):
                self.moving.add(chosen)
        if masks:
            self.masks[op.result] = tuple(dict.fromkeys(masks))

    def chosen_mask(self, op: Op, masks: Sequence[Sequence[Value]]) -> Value:
        """Where the elements exist that a condition chooses, by these masks of its two sides."""
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        shape = cast(TileType, op.result.type).shape
        return builder.map("where", op.operands[0], *(self.existing(builder, shape, (), side) for side in masks))

    def holds(self, mask: Value, facts: dict[Value, bool]) -> bool:
        """Whether a mask holds everywhere where these facts do."""
        op = mask.op
        if mask in facts or op is None:
            return facts.get(mask, False)
        match op.name:
            case "tile.logical_and":
                return all(self.holds(v, facts) for v in op.operands)
            case "tile.where":
                ways = zip(op.operands[1:], (True, False), strict=True)
                return all(self.holds(v, follows(op.operands[0], truth) | facts) for v, truth in ways)
            case "tile.broadcast":
                made = op.operands[0].op
                return made is not None and made.name == "tile.constant" and made.attrs["value"] is True
            case _:
                return False

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
        """Axes that stay keep their tails. Where an axis with padding is folded or disappears, and where an author's
        mask leaves elements out, a mask of the new shape says which elements exist."""
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
        """Moves the masks of which elements of an op's operand exist, and these `tails` as masks, as the op moves its
        operand."""
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

    # what is made of it
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


def follows(condition: Value, truth: bool) -> dict[Value, bool]:
    """What is known where a condition holds, or where it does not."""
    op, found = condition.op, {condition: truth}
    if op is not None and op.name == "tile.logical_not":
        found |= follows(op.operands[0], not truth)
    elif op is not None and op.name == ("tile.logical_and" if truth else "tile.logical_or"):
        for v in op.operands:
            found |= follows(v, truth)
    return found
