"""Ragged edges: elements of a tile that are beyond the end of the view it was loaded from never enter a result.

A block at the edge of a tensor is as large as any other; its elements beyond the edge are padding. The pass knows which
elements of every value are padding (`Tail`: those with offset + j >= extent, or below 0). Where elements are combined
with each other, in a reduction or along the contracted axis of a product, padding is replaced by that reduction's
identity. Padded indices read and store nothing. Elsewhere padding is harmless, for stores are clipped. Where sizes show
that no block is ragged, nothing is inserted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import SharedType, TileType, Type
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.passes.combining import Combining
from tessera.compiler.tile.passes.padding import (
    NONE,
    Axis,
    Exists,
    Tails,
    adds,
    filled_first,
    joined,
    read_behind,
)
from tessera.compiler.tile.primitive import PRIMITIVES
from tessera.compiler.tile.ranges import defined_in
from tessera.language.dims import Dim
from tessera.language.scalars import TABLE


def mask_tails(kernel: Op) -> None:
    MaskTails(kernel).run()


def tails_of(kernel: Op) -> dict[Value, Tails]:
    """Which elements of each tile are padding; of a shared tile, where it was read last. Changes nothing."""
    probe = _Survey(MaskTails(kernel))
    probe.block(kernel.region.block)
    return probe.tails | probe.read


class MaskTails(Combining):
    """The pass: every op in order, loops and branches too."""

    __slots__ = ()

    def run(self) -> None:
        self.block(self.kernel.region.block)

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            self.step(op)

    def step(self, op: Op) -> None:
        name = op.name.partition(".")[2]
        if name in _RULES:
            _RULES[name](self, op)
        elif name in TABLE:
            self.elementwise(op)
        elif op.name in PRIMITIVES:
            self.primitive(op)

    # control flow
    def loop(self, op: Op) -> None:
        self.carry(op, list(op.operands[3:]), [op.region.block])

    def while_loop(self, op: Op) -> None:
        self.carry(op, list(op.operands), [r.block for r in op.regions])

    def carry(self, op: Op, initial: Sequence[Value], blocks: Sequence[Block]) -> None:
        """A loop whose step is these blocks. A carried tile that each step adds to lacks the elements that it lacks
        before the loop and that all steps lack; one that each step replaces may lack other elements each time, and a
        mask of them is carried, too."""
        body, count = blocks[-1], len(initial)
        shared = self._shared(op)
        begun = {v: self.content(v) for v in shared}
        changing: list[Value] = []
        """shared tiles that lack other elements after a step, or after the loop where it makes no step"""
        found = [self.of(v) if isinstance(v.type, TileType) else () for v in initial]
        anew = set[int]()
        """which carried tiles are replaced in each step, and lack different elements"""
        while True:
            for block in blocks:
                for i, (arg, tails) in enumerate(zip(block.args[-count:] if count else (), found, strict=True)):
                    self._carried(arg, tails, (arg,) if i in anew else self.masks.get(initial[i], ()))
            probe = _Probe(self)
            news = probe.yields(blocks)
            before, changes = list(found), (len(anew), len(changing))
            for i, (arg, new) in enumerate(zip(body.args[-count:] if count else (), news, strict=True)):
                if i in anew or new is arg or not isinstance(new.type, TileType) or not new.type.rank:
                    continue
                tails, masks = probe.of(new), probe.masks.get(new, ())
                if adds(new, arg, body):
                    found[i] = tuple(joined(x, self._outside(y, body)) for x, y in zip(found[i], tails, strict=True))
                elif masks or initial[i] in self.masks or tails != found[i] or _inside(tails, (), body):
                    anew.add(i)
                    found[i] = (NONE,) * new.type.rank
            for v in shared:
                if v in changing or (filled_first(v, blocks) and not read_behind(v, op)):
                    continue
                if probe.content(v) != begun[v]:
                    changing.append(v)
                    self.hold(v, (self.none(v), (v,), None if probe.padding.get(v) != begun[v][2] else begun[v][2]))
            if before == found and changes == (len(anew), len(changing)):
                break
        masks = self.carry_masks(op, initial, blocks, sorted(anew))
        held = self.carry_contents(op, blocks, {v: begun[v][:2] for v in changing})
        kept = {v: self.padding.get(v) for v in changing}
        for n, block in enumerate(blocks):
            for v, (args, _) in held.items():
                self.hold(v, (self.none(v), (args[n],), kept[v]))
            self.block(block)
        news = body.terminator.operands
        ends = [(news[i].type, self.of(news[i]), self.masks.get(news[i], ())) for i in sorted(anew)]
        self.yield_masks(op, body, [*ends, *((v.type, *self.content(v)[:2]) for v in changing)])
        self.keep_old(op, body, count, anew)
        for i, tails in enumerate(found):
            self._carried(op.results[i], tails, masks[i] if i in masks else self.masks.get(initial[i], ()))
        for v in shared:
            if v in held:
                self.hold(v, (self.none(v), (held[v][1],), kept[v] if self.padding.get(v) == kept[v] else None))
            elif self.content(v) != begun[v]:  # nothing reads it before it is filled again
                self.hold(v, (self.none(v), (), None))

    def none(self, v: Value) -> Tails:
        """The tails of what exists everywhere."""
        return (NONE,) * len(cast("TileType | SharedType", v.type).shape)

    def content(self, v: Value) -> tuple[Tails, tuple[Value, ...], float | None]:
        """A shared tile's content here: its tails, masks, and the value in place of padding."""
        return self.of(v), self.masks.get(v, ()), self.padding.get(v)

    def hold(self, v: Value, content: tuple[Tails, tuple[Value, ...], float | None]) -> None:
        tails, masks, padding = content
        self._carried(v, tails, masks)
        self.padding.pop(v, None)
        if padding is not None:
            self.padding[v] = padding

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

    def carry_contents(
        self, op: Op, blocks: Sequence[Block], which: Mapping[Value, Exists]
    ) -> dict[Value, tuple[list[Value], Value]]:
        """Makes the loop carry which elements of shared tiles exist: what each block begins with, and a result."""
        assert op.block is not None
        builder = TileBuilder(op.block, op.block.index(op), op.span)
        out = dict[Value, tuple[list[Value], Value]]()
        for v, (tails, masks) in which.items():
            mask = self.existing(builder, cast(SharedType, v.type).shape, tails, masks)
            op.set_operands([*op.operands, mask])
            op.results.append(Value(mask.type, op, len(op.results)))
            out[v] = [block.add_arg(mask.type) for block in blocks], op.results[-1]
        return out

    def yield_masks(self, op: Op, block: Block, which: Sequence[tuple[Type, Tails, tuple[Value, ...]]]) -> None:
        """The block yields which elements of values of these types exist, behind the values."""
        end = block.terminator
        builder = TileBuilder(block, len(block.ops) - 1, op.span)
        for t, tails, masks in which:
            mask = self.existing(builder, cast("TileType | SharedType", t).shape, tails, masks)
            end.set_operands([*end.operands, mask])

    def _shared(self, op: Op) -> list[Value]:
        return list(
            dict.fromkeys(o.operands[0] for o in op.walk() if o.name in ("tile.copy_async", "tile.store_shared"))
        )

    def _outside(self, tails: Axis, body: Block) -> Axis:
        """The tails whose offset is known outside the loop."""
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
        """The result of a branch lacks the elements that both sides lack; where they lack different elements, each side
        gives a mask. A side that adds to a value that the other leaves unchanged is handled like a step of a loop."""
        blocks = [r.block for r in op.regions]
        shared = self._shared(op)
        begun, ends = {v: self.content(v) for v in shared}, list[dict[Value, Any]]()
        for block in blocks:
            for v in shared:
                self.hold(v, begun[v])
            self.block(block)
            ends.append({v: self.content(v) for v in shared})
        apart = dict[int, list[Exists]]()
        for i, result in enumerate(op.results):
            if not isinstance(result.type, TileType) or not result.type.rank:
                continue
            yields = [b.terminator.operands[i] for b in blocks]
            sides: list[Exists] = [(self.of(y), self.masks.get(y, ())) for y in yields]
            added = [adds(y, other, b) for y, other, b in zip(yields, reversed(yields), blocks, strict=True)]
            always: Tails = (NONE,) * result.type.rank
            if any(added):
                adding = [(s[0], b) for s, b, a in zip(sides, blocks, added, strict=True) if a]
                outer = [tuple(self._outside(t, b) for t in tails) for tails, b in adding]
                always = tuple(joined(*axis) for axis in zip(*outer, strict=True))
                sides = [(_without(tails, always), masks) for tails, masks in sides]
            same = sides[0] == sides[1] and not any(_inside(*s, b) for s, b in zip(sides, blocks, strict=True))
            if same:
                self._carried(result, always if any(added) else sides[0][0], sides[0][1])
            else:
                self._carried(result, always, ())
                apart[i] = sides
            padding = [self.padding.get(y) for y in yields]
            if padding[0] is not None and padding[0] == padding[1]:
                self.padding[result] = padding[0]
        contents = dict[Value, list[Exists]]()
        for v in shared:
            (tails, masks, padding), (_, _, other) = (end[v] for end in ends)
            if ends[0][v] != ends[1][v] or _inside(tails, masks, blocks[1]):
                contents[v] = [end[v][:2] for end in ends]
                self.hold(v, (self.none(v), (), padding if padding == other else None))
        self.part(op, blocks, apart, contents)

    def part(
        self, op: Op, blocks: Sequence[Block], apart: dict[int, list[Exists]], contents: dict[Value, list[Exists]]
    ) -> None:
        """Makes the branch give which elements of these results, and of the content of shared tiles, exist."""
        of = [*((op.results[i], sides) for i, sides in apart.items()), *contents.items()]
        for n, block in enumerate(blocks):
            self.yield_masks(op, block, [(v.type, *sides[n]) for v, sides in of])
        for v, _ in of:
            op.results.append(Value(blocks[0].terminator.operands[len(op.results)].type, op, len(op.results)))
            self.masks[v] = (op.results[-1],)


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

    def carry_contents(
        self, op: Op, blocks: Sequence[Block], which: Mapping[Value, Exists]
    ) -> dict[Value, tuple[list[Value], Value]]:
        return {v: ([v] * len(blocks), v) for v in which}

    def yield_masks(self, op: Op, block: Block, which: Sequence[tuple[Type, Tails, tuple[Value, ...]]]) -> None:
        return None

    def part(
        self, op: Op, blocks: Sequence[Block], apart: dict[int, list[Exists]], contents: dict[Value, list[Exists]]
    ) -> None:
        for v in (*(op.results[i] for i in apart), *contents):
            self.masks[v] = (v,)

    def counted(self, op: Op, tails: Tails, masks: tuple[Value, ...], axis: int) -> tuple[Value, ...]:
        return (op.result,)

    def fold_existence(self, op: Op, tails: Tails, masks: tuple[Value, ...]) -> Value:
        return op.results[0]

    def positions(self, op: Op, tails: Tails, masks: tuple[Value, ...], there: tuple[Value, ...], last: float) -> Value:
        return op.result

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

    def chosen_mask(self, op: Op, masks: Sequence[Sequence[Value]]) -> Value:
        return op.result

    def holds(self, mask: Value, facts: dict[Value, bool]) -> bool:
        return facts.get(mask, False)  # others may stand for masks that have not been made


class _Survey(_Probe):
    """Also keeps what shared tiles lack while they are read: behind a loop nothing is known of them."""

    def __init__(self, outer: MaskTails) -> None:
        super().__init__(outer)
        self.read: dict[Value, Tails] = {}

    def step(self, op: Op) -> None:
        for v in op.operands:
            if isinstance(v.type, SharedType) and v in self.tails:
                self.read[v] = self.of(v)
        super().step(op)


_RULES = {
    "load": MaskTails.load, "gather": MaskTails.gather, "copy_async": MaskTails.copy_async, "cast": MaskTails.cast_,
    "load_shared": MaskTails.load_shared, "store_shared": MaskTails.store_shared, "transpose": MaskTails.transpose,
    "broadcast": MaskTails.broadcast, "reshape": MaskTails.reshape, "reduce": MaskTails.reduce, "mma": MaskTails.mma,
    "scan": MaskTails.scan, "fold": MaskTails.fold, "sort": MaskTails.sort, "for": MaskTails.loop,
    "if": MaskTails.branch, "while": MaskTails.while_loop, "scatter": MaskTails.scatter, "assert": MaskTails.check,
    "philox": MaskTails.elementwise, "where": MaskTails.where,
}  # fmt: skip
