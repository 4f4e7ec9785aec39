"""The facts that the pass over ragged edges has about tiles: which elements do not exist, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.tile.ranges import defined_in
from tessera.immutable import immutable
from tessera.language.dims import Dim


@immutable
class Tail:
    """Element j along an axis exists where offset + j < extent and, with `below`, where it is not negative."""

    offset: Value
    extent: Dim
    below: bool = False


Axis = tuple[Tail, ...]
"""the tails of one axis, which must all hold, in the order of the program"""
Tails = tuple[Axis, ...]
NONE: Axis = ()
Exists = tuple[Tails, tuple[Value, ...]]
"""the tails of a value, and conditions that hold for the elements that exist"""


def joined(*axes: Axis) -> Axis:
    """All of them, each once."""
    return tuple(dict.fromkeys(t for axis in axes for t in axis))


def kept_axes(before: Sequence[Dim], after: Sequence[Dim]) -> dict[int, int]:
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


def slice_start(index: Value) -> tuple[Value, int]:
    """Where the slice starts that an index tile counts out, iota + start, and the axis that it does so along."""
    assert index.op is not None and index.op.name == "tile.add"
    count, start = index.op.operands
    assert count.op is not None and start.op is not None and start.op.name in ("tile.broadcast", "tile.to_scalar")
    scalar = start.op if start.op.name == "tile.to_scalar" else start.op.operands[0].op
    assert scalar is not None
    return scalar.operands[0], cast(int, count.op.attrs["axis"])


def filled_first(v: Value, blocks: Sequence[Block]) -> bool:
    """Whether every step fills the shared tile before it reads it."""
    return _first(v, [op for block in blocks for op in block.ops]) == "fills"


def read_behind(v: Value, op: Op) -> bool:
    """Whether something behind the op may read the shared tile before it is filled again."""
    at = op
    while (block := at.block) is not None:
        ops = block.ops
        after = ops[block.index(at) + 1 :]
        around = block.region.op if block.region is not None else None
        if (found := _first(v, after)) is not None:
            return found == "reads"
        if around is None:
            return False
        if around.name in ("tile.for", "tile.while"):  # the next step
            again = [o for r in around.regions for o in r.block.ops]
            if _first(v, again[: again.index(at)]) == "reads":
                return True
        at = around
    return False


def _first(v: Value, ops: Sequence[Op]) -> Literal["reads", "fills"] | None:
    """Whether something may read the shared tile first, or something surely fills it first; None where neither does."""
    for op in ops:
        if v in op.operands:
            return "fills" if op.name in ("tile.copy_async", "tile.store_shared") else "reads"
        inside = [_first(v, r.block.ops) for r in op.regions]
        if "reads" in inside:
            return "reads"
        if op.name == "tile.if" and inside == ["fills", "fills"]:
            return "fills"
    return None


def adds(v: Value, on: Value, body: Block) -> bool:
    """Whether elements of `v` are computed, inside the block, from those of `on`; not where a branch leaves `on` as it
    is or makes something else."""
    op = v.op
    if v is on or op is None or not defined_in(v, body):
        return False
    if op.name == "tile.if":
        return any(adds(y, on, body) for y in _sources(v))
    return depends(v, on, body)


def depends(v: Value, on: Value, body: Block) -> bool:
    """Whether `v` is `on`, or elements of it are computed from it inside the block."""
    seen: set[Value] = set()
    stack = [v]
    while stack:
        x = stack.pop()
        if x is on:
            return True
        if x not in seen and defined_in(x, body):
            seen.add(x)
            stack += _sources(x)
    return False


def _sources(v: Value) -> list[Value]:
    """The values that the elements of a value are computed from. Conditions choose among values and do not count."""
    op = v.op
    if op is None:  # carried by a loop, or its counter
        assert isinstance(v.owner, Block)
        loop = v.owner.region.op if v.owner.region else None
        at = v.index - (1 if loop is not None and loop.name == "tile.for" else 0)
        return _carried(loop, at) if loop is not None and at >= 0 else []
    if op.name == "tile.if":
        return [r.block.terminator.operands[v.index] for r in op.regions]
    return _carried(op, v.index) if op.regions and op.name != "tile.fold" else list(op.operands)


def _carried(loop: Op, at: int) -> list[Value]:
    if loop.name not in ("tile.for", "tile.while"):
        return []
    first = 3 if loop.name == "tile.for" else 0
    return [loop.operands[first + at], loop.regions[-1].block.terminator.operands[at]]


def visible(v: Value, block: Block) -> bool:
    """Whether `v` is defined where the block can see it."""
    at: Block | None = block
    home = v.owner if isinstance(v.owner, Block) else v.owner.block
    while at is not None and at is not home:
        op = at.region.op if at.region else None
        at = op.block if op is not None else None
    return at is home
