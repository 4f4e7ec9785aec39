"""Ops that combine or move elements: which operand elements they may read, and which result elements exist."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.passes.existence import Existence
from tessera.compiler.tile.passes.padding import (
    NONE,
    Exists,
    Tails,
    joined,
)
from tessera.compiler.tile.primitive import PRIMITIVES, TilePrimitive
from tessera.language import dtypes
from tessera.language.scalars import identity_of

GATHER = "tile.gather_along"
"""elements of a tile along an axis, by an index for each: a function of kernels, which brings the op with it"""


class Combining(Existence):
    """Padding is replaced where it would enter a result."""

    __slots__ = ()

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
        """Padding behind all elements is in none of their prefixes; padding before or between them is."""
        x, axis = op.operands[0], cast(int, op.attrs["axis"])
        tails, masks = self.of(x), self.masks.get(x, ())
        if masks or any(t.below for t in tails[axis]):
            ragged = tuple(t if a == axis else NONE for a, t in enumerate(tails))
            identity = identity_of(str(op.attrs["op"]), cast(TileType, x.type).dtype)
            op.set_operand(0, self.masked(op, x, ragged, masks, identity))
        self.tails[op.result] = tails
        if masks:
            self.masks[op.result] = masks

    def fold(self, op: Op) -> None:
        """An element exists where those of all operands do. Others are the identity; without one, whether an element
        exists is combined beside them."""
        axis, prefixes = cast(int, op.attrs["axis"]), bool(op.attrs.get("prefixes"))
        given, results = list(op.operands), list(op.results)
        tails = self.union(given)
        masks = tuple(dict.fromkeys(m for v in given for m in self.masks.get(v, ())))
        ragged = tuple(t if a == axis else NONE for a, t in enumerate(tails))
        left = tails if prefixes else tuple(t for a, t in enumerate(tails) if a != axis)
        for r in results:
            self._carried(r, left, masks if prefixes else ())
        if not masks and (all(not t.below for t in tails[axis]) if prefixes else not tails[axis]):
            return  # padding behind all elements is in none of their prefixes
        identity = cast("tuple[float, ...] | None", op.attrs.get("identity"))
        for i, x in enumerate(given):
            op.set_operand(i, self.masked(op, x, ragged, masks, 0 if identity is None else identity[i]))
        if identity is None:
            exists = self.fold_existence(op, ragged, masks)
            if left and not prefixes:  # there may be nothing at all
                for r in results:
                    self._carried(r, left, (exists,))

    def fold_existence(self, op: Op, tails: Tails, masks: tuple[Value, ...]) -> Value:
        """Makes a fold combine only elements that exist, and say where there are any."""
        assert op.block is not None
        outside = TileBuilder(op.block, op.block.index(op), op.span)
        shape = cast(TileType, op.operands[0].type).shape
        op.set_operands([*op.operands, self.existing(outside, shape, tails, masks)])
        body, n = op.region.block, len(op.results)
        kind = TileType((), dtypes.bool_)
        right = body.add_arg(kind)
        left = body.add_arg(kind)
        body.args[:] = [*body.args[:n], left, *body.args[n : 2 * n], right]
        for i, a in enumerate(body.args):
            a.index = i
        b = TileBuilder(body, len(body.ops) - 1, op.span)
        both, either = b.map("logical_and", left, right), b.map("logical_or", left, right)
        yields = body.terminator.operands
        found = [
            b.map("where", both, y, b.map("where", left, body.args[i], body.args[n + 1 + i]))
            for i, y in enumerate(yields)
        ]
        body.terminator.set_operands([*found, either])
        there = TileType(cast(TileType, op.results[0].type).shape, dtypes.bool_)
        op.results.append(Value(there, op, n))
        return op.results[n]

    def _carried(self, v: Value, tails: Tails, masks: tuple[Value, ...]) -> None:
        self.tails[v] = tails
        self.masks.pop(v, None)
        if masks:
            self.masks[v] = masks

    def sort(self, op: Op) -> None:
        """Padding is sorted behind all elements."""
        x, axis = op.operands[0], cast(int, op.attrs["axis"])
        tails, masks = self.of(x), self.masks.get(x, ())
        ragged = tuple(t if a == axis else NONE for a, t in enumerate(tails))
        self.tails[op.result] = tails
        if not (tails[axis] or masks):
            return
        dtype = cast(TileType, x.type).dtype
        last = identity_of("max" if op.attrs.get("descending") else "min", dtype)
        if dtype.is_float and not op.attrs.get("descending"):
            last = math.nan
        result, between = op.result, masks or any(t.below for t in tails[axis])
        there = self.counted(op, ragged, masks, axis) if between else ()
        if between and op.attrs.get("positions"):
            result = self.positions(op, ragged, masks, there, last)
        else:
            op.set_operand(0, self.masked(op, x, ragged, masks, last))
        if between:  # the elements that exist come first
            for v in {op.result, result}:
                self.tails[v] = tuple(NONE if a == axis else t for a, t in enumerate(tails))
                self.masks[v] = there

    def positions(self, op: Op, tails: Tails, masks: tuple[Value, ...], there: tuple[Value, ...], last: float) -> Value:
        """An argsort of elements that have gaps between them. They are first moved to the front, in their order: the
        filler in the gaps may equal an element, and among equals the first one comes first. Gives its result."""
        assert op.block is not None
        x, result = op.operands[0], op.result
        t, axis = cast(TileType, x.type), op.attrs["axis"]
        builder = TileBuilder(op.block, op.block.index(op), op.span)
        gaps = builder.map("logical_not", self.existing(builder, t.shape, tails, masks))
        ways = {"axis": axis, "descending": False, "positions": True}
        front = builder.value("tile.sort", (builder.cast(gaps, dtypes.int32),), result.type, ways)
        moved = builder.value(GATHER, (x, front), t, {"axis": axis})
        op.set_operand(0, builder.map("where", *there, moved, builder.full(t.shape, last, t.dtype)))
        builder = TileBuilder(op.block, op.block.index(op) + 1, op.span)
        users = list(result.uses)
        out = builder.value(GATHER, (front, result), result.type, {"axis": axis})
        for user, i in users:
            user.set_operand(i, out)
        return out

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
        """A function with an op of its own says which value replaces padding, and where its elements exist."""
        definition = PRIMITIVES[op.name]
        exists = [(self.of(x), self.masks.get(x, ())) for x in op.operands]
        for i, x in enumerate(list(op.operands)):
            if (any(exists[i][0]) or exists[i][1]) and definition.operands[i] not in definition.moves:
                op.set_operand(i, self.masked(op, x, *exists[i], definition.padding_of(definition.operands[i])))
        if definition.moves:
            moved = {i: e for i, e in enumerate(exists) if definition.operands[i] in definition.moves}
            self.tails[op.result], lost = self.stay(op, definition, moved)
            if self.misses(op, definition) or any(any(tails) or masks for tails, masks in lost.values()):
                self.masks[op.result] = self.moved_together(op, lost)
                self.moving.update(self.masks[op.result])
        elif exists and cast(TileType, op.operands[0].type).shape == cast(TileType, op.result.type).shape:
            self.tails[op.result], masks = exists[0]
            if masks:
                self.masks[op.result] = masks

    def misses(self, op: Op, definition: TilePrimitive) -> bool:
        """Whether a place that elements are taken from may be outside of the tile. Numbers have ranges, and tiles of
        places none."""
        if not definition.places:
            return False
        names = definition.operands
        x, places = (op.operands[names.index(name)] for name in (definition.moves[0], definition.places))
        number = places.op.operands[0] if places.op is not None and places.op.name == "tile.to_scalar" else None
        extent = cast(TileType, x.type).shape[cast(int, op.attrs["axis"])]
        return number is None or not all(self.bounds.inside(number, 1, extent))

    def stay(self, op: Op, definition: TilePrimitive, moved: Mapping[int, Exists]) -> tuple[Tails, dict[int, Exists]]:
        """The tails of axes along which nothing moves, where all operands have the same; and what else exists by."""
        first = next(iter(moved))
        kept = definition.kept(*(cast(TileType, v.type).rank for v in (op.operands[first], op.result)), **op.attrs)
        out = [NONE] * cast(TileType, op.result.type).rank
        same = {r: a for r, a in kept.items() if len({tails[a] for tails, _ in moved.values()}) == 1}
        for r, a in same.items():
            out[r] = moved[first][0][a]
        gone = set(same.values())
        lost = {i: (tuple(NONE if a in gone else t for a, t in enumerate(tails)), m) for i, (tails, m) in moved.items()}
        return tuple(out), lost

    def moved_together(self, op: Op, moved: Mapping[int, Exists]) -> tuple[Value, ...]:
        """Which elements of the result of an op that moves elements exist: the same op, applied to masks of which
        elements of its operands exist."""
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.ops.index(op), op.span)
        given = list(op.operands)
        for i, (tails, masks) in moved.items():
            given[i] = self.existing(builder, cast(TileType, op.operands[i].type).shape, tails, masks)
        kind = TileType(cast(TileType, op.result.type).shape, dtypes.bool_)
        return (builder.value(op.name, given, kind, dict(op.attrs)),)

    def mma(self, op: Op) -> None:
        """Along the contracted axis padding is 0. Of batches, elements exist where those of all three operands do."""
        a, b, acc = op.operands
        inner = joined(self.of(a)[-1], self.of(b)[-2])
        for i, (x, at) in enumerate(((a, -1), (b, -2))):
            masks = self.masks.get(x, ())
            if inner or masks:
                tails = [NONE] * len(self.of(x))
                tails[at] = inner
                op.set_operand(i, self.masked(op, x, tuple(tails), masks, 0))
        *lead, rows, columns = self.of(acc)
        for i, mine in enumerate(lead):
            lead[i] = joined(mine, *(self.of(x)[i] for x in (a, b) if cast(TileType, x.type).shape[i] != 1))
        self.tails[op.result] = (*lead, joined(self.of(a)[-2], rows), joined(self.of(b)[-1], columns))

    def check(self, op: Op) -> None:
        """Nothing is claimed of padding."""
        holds, *_ = op.operands
        tails, masks = self.of(holds), self.masks.get(holds, ())
        if any(tails) or masks:
            op.set_operand(0, self.masked(op, holds, tails, masks, True))
