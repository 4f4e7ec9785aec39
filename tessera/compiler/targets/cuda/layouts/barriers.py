"""Where threads of a block must meet before they touch memory that another thread has touched.

Tile IR runs in order. On a GPU the elements of a tile belong to different threads, so that reading what was stored, or
overwriting what was read, needs a barrier in between unless each element stays with one thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeAlias, cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import SharedType, ViewType
from tessera.compiler.targets.cuda.layouts.groups import LayoutGrouping, is_tile
from tessera.compiler.tile.dialect import INDEX_OPS
from tessera.immutable import immutable

_PURE = frozenset(f"tile.{name}" for name in ("dim", "program_id", *INDEX_OPS))
READS = ("tile.load", "tile.gather", "tile.load_shared", "tile.mma", "tile.contract")


Owner: TypeAlias = tuple[Value, tuple[Hashable, ...], Hashable, Hashable]
"""A view, the offsets of a tile in it, the tile's layout and its type. They say which thread has which element."""


@immutable
class SharedAccess:
    """`owner` says which thread holds which element: equal owners never race. None: unlike any other."""

    memory: Value
    write: bool
    asynchronous: bool
    owner: Owner | None

    def races(self, other: SharedAccess) -> bool:
        if self.memory is not other.memory or not (self.write or other.write):
            return False
        return self.owner is None or self.owner != other.owner


def barriers(kernel: Op, grouping: LayoutGrouping, alias: Mapping[Value, Value]) -> dict[Op, bool]:
    """The ops that need a barrier before them; True where asynchronous copies must have landed as well.

    `alias` maps kernel arguments that may be the same memory to one of them.
    """
    needed: dict[Op, bool] = {}
    _walk(kernel.region.block, frozenset(), needed, grouping, alias)
    return needed


def _walk(
    block: Block,
    state: frozenset[SharedAccess],
    needed: dict[Op, bool],
    grouping: LayoutGrouping,
    alias: Mapping[Value, Value],
) -> frozenset[SharedAccess]:
    for op in block.ops:
        if op.name == "tile.barrier" or needed.get(op):
            state = frozenset()
        elif op in needed:
            state = frozenset(a for a in state if a.asynchronous)
        for access in _accesses(op, grouping, alias):
            racing = [a for a in state if a.races(access)]
            if racing:
                waits = any(a.asynchronous for a in racing)
                needed[op] = needed.get(op, False) or waits
                state = frozenset() if waits else frozenset(a for a in state if a.asynchronous)
        state |= set(_accesses(op, grouping, alias))
        if op.regions:
            state = _regions(op, state, needed, grouping, alias)
    return state


def _regions(
    op: Op,
    state: frozenset[SharedAccess],
    needed: dict[Op, bool],
    grouping: LayoutGrouping,
    alias: Mapping[Value, Value],
) -> frozenset[SharedAccess]:
    if op.name == "tile.if":
        return state.union(*(_walk(r.block, state, needed, grouping, alias) for r in op.regions))
    if op.name == "tile.pipeline":  # each step starts with a barrier, behind which only its own fetches are under way
        after = _walk(op.regions[1].block, frozenset(), needed, grouping, alias)
        return state.union(_outside(a, op) for a in after)
    while True:  # around the loop until nothing new is found; barriers only ever take accesses away
        before = dict(needed)
        after = state
        for region in op.regions:
            after = _walk(region.block, after, needed, grouping, alias)
        after = frozenset(_outside(a, op) for a in after)
        if after <= state and before == needed:
            return state
        state = state | after


def _outside(access: SharedAccess, loop: Op) -> SharedAccess:
    """Seen from the next iteration, a place that depends on the iteration is another place."""
    if access.owner is None:
        return access
    inner = any(_inside(v, loop) for v in _leaves(access.owner[1]))
    return SharedAccess(access.memory, access.write, access.asynchronous, None) if inner else access


def _place(v: Value) -> Hashable:
    """An index value by how it is computed, so that equal places are seen to be equal."""
    op = v.op
    if op is None or op.name not in _PURE:
        return v
    return op.name, op.attrs.get("axis"), op.attrs.get("dim"), tuple(_place(x) for x in op.operands)


def _leaves(place: object) -> Iterator[Value]:
    if isinstance(place, Value):
        yield place
    elif isinstance(place, tuple):
        for part in cast("tuple[object, ...]", place):
            yield from _leaves(part)


def _inside(v: Value, loop: Op) -> bool:
    block = v.owner.block if isinstance(v.owner, Op) else v.owner
    while block is not None and block.region is not None and block.region.op is not None:
        if block.region.op is loop:
            return True
        block = block.region.op.block
    return False


def _accesses(op: Op, grouping: LayoutGrouping, alias: Mapping[Value, Value]) -> list[SharedAccess]:
    out: list[SharedAccess] = []
    if op.name in READS:
        for v in op.operands:
            if isinstance(v.type, (ViewType, SharedType)):
                out.append(SharedAccess(_memory(v, alias), False, False, _owner(op, v, op.result, grouping)))
        if op.name == "tile.mma":
            out += [
                SharedAccess(s, False, False, None)
                for v in (*op.operands[:2], *op.operands[3:])
                if (s := shared_source(v, op)[0]) is not None
            ]
    elif op.name in ("tile.store", "tile.scatter", "tile.store_shared"):
        v = op.operands[0]
        out.append(SharedAccess(_memory(v, alias), True, False, _owner(op, v, op.operands[1], grouping)))
    elif op.name == "tile.pipeline":
        copies = [x for x in op.regions[0].block.ops if x.name == "tile.copy_async"]
        out += [SharedAccess(_memory(x.operands[1], alias), False, False, None) for x in copies]
    elif op.name == "tile.copy_async":
        out.append(SharedAccess(_memory(op.operands[1], alias), False, False, None))
        out.append(SharedAccess(op.operands[0], True, True, None))
    return out


def _owner(op: Op, view: Value, tile: Value, grouping: LayoutGrouping) -> Owner | None:
    """The element-to-thread map of a plain access; stores by stmatrix and gathers are not plain, nor are tiles of which
    several threads hold an element: one of them stores it, and the others may read it before or after."""
    if op.name in ("tile.gather", "tile.scatter", "tile.mma", "tile.contract") or not is_tile(tile):
        return None
    if op.name == "tile.store_shared" and grouping.stored_by_matrices(grouping.stored_turned(tile) or tile):
        return None
    n = 1 if op.name == "tile.load" or op.name == "tile.load_shared" else 2
    rank = len(view.type.shape)  # type: ignore[union-attr]
    offsets = tuple(_place(v) for v in op.operands[n : n + rank]) if isinstance(view.type, ViewType) else ()
    layout = grouping.of(tile).layout
    assert layout is not None
    return None if layout.repeated(grouping.threads) else (view, offsets, layout, tile.type)


def _memory(v: Value, alias: Mapping[Value, Value]) -> Value:
    while v.op is not None and v.op.name == "tile.subview":
        v = v.op.operands[0]
    return alias.get(v, v)


def shared_source(v: Value, user: Op) -> tuple[Value | None, bool]:
    """The shared tile that operand `v` of product `user` is read from directly, and whether transposed.

    (None, False) where the operand is in registers, or where the shared tile may change before the product reads it.
    """
    if isinstance(v.type, SharedType):
        return v, False
    op, transposed = v.op, False
    if op is not None and op.name == "tile.transpose" and op.attrs["perm"] == (1, 0):
        transposed, op = True, op.operands[0].op
    if op is None or op.name != "tile.load_shared" or op.block is not user.block or op.block is None:
        return None, False
    between = op.block.ops[op.block.ops.index(op) + 1 : op.block.ops.index(user)]
    shared = op.operands[0]
    if any(
        x.regions or (x.operands and x.operands[0] is shared and x.name in ("tile.store_shared", "tile.copy_async"))
        for x in between
    ):
        return None, False
    return shared, transposed
