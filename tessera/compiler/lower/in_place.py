"""Stores elementwise results in place: the new value of a state or of a loop's variable overwrites the old one.

The kernel stores to the old value's memory, instead of to new memory that is copied later. This is safe if

- nothing reads the old value after the group (`schedule/lifetimes.py`), under any of its names;
- the group is elementwise and the value covers its whole iteration space, so no two programs store one element;
- the group reads that memory only at the element that it stores: through no other window, broadcast or gathered index.
  A kernel loads before it stores, and targets know that loads and stores of one argument access the same memory.

Every other value is computed in new memory and copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.lower.program_builder import GroupBody, ProgramBuilder, inside
from tessera.compiler.schedule.access import reads, written
from tessera.compiler.schedule.alignment import base_of, shape_of
from tessera.compiler.schedule.lifetimes import dies, read_later
from tessera.compiler.schedule.views import layout_of


def destine(pairs: Sequence[tuple[Value, Value]], out: ProgramBuilder) -> None:
    """Notes the value whose memory each value is to be computed in: the first of several; none for parts of a value."""
    for v, to in pairs:
        layout = layout_of(v)
        if layout is not None and layout.whole and layout.base is not to:
            out.destined.setdefault(layout.base, to)


def given_up(body: Block) -> list[tuple[Value, Value]]:
    """The next values that a loop's body computes, each with the value that is carried now and whose memory is free for
    it: in its own place, or, where the one there goes on to another place, at the end of that way."""
    carried = body.args
    bases = [layout.base if (layout := layout_of(v)) is not None else v for v in body.terminator.operands]
    goes: dict[Value, Value] = {}
    for base, to in zip(bases, carried, strict=True):
        if base in carried and base is not to:
            goes.setdefault(base, to)
    found: list[tuple[Value, Value]] = []
    for v, base, to in zip(body.terminator.operands, bases, carried, strict=True):
        if base not in carried:
            while to in goes:
                to = goes[to]
            found.append((v, to))
    return found


def changes(group: Op, out: ProgramBuilder) -> dict[Value, Value]:
    """The results that take over memory, and the name that this memory has within the group. Assigns the memory to the
    results."""
    if group.attrs["kind"] != "map" or not any(r in out.destined for r in group.results):
        return {}
    body = GroupBody.of(group)
    known, found = inside(group), dict[Value, Value]()
    for v, result in zip(body.results, group.results, strict=True):
        old = out.destined.get(result)
        if old not in out.of or not _alike(old, result) or not _unread(old, group, out):
            continue
        name = _name_of_old(v, out.of[old], body, known, out)
        if name is not None:
            out.of[result] = out.of[old]
            found[result] = name
    return found


def in_order(group: Op, body: GroupBody, changed: dict[Value, Value]) -> list[tuple[Value, Value]]:
    """The group's results, inside and outside of it, as they are to be stored: what reads an old value first, so that
    none has to be kept beside the new one."""
    pairs = list(zip(body.results, group.results, strict=True))
    if not changed:
        return pairs
    needs: dict[Value, set[Value]] = {}
    for op in body.ops:
        needs[op.result] = {b for v in op.operands for b in needs.get(base_of(v), {base_of(v)})}
    out: list[tuple[Value, Value]] = []
    while pairs:
        for pair in pairs:
            old = changed.get(pair[1])
            if not any(old in needs[v] for v, result in pairs if result is not pair[1]):
                break
        else:  # each needs what another one replaces: some are kept
            pair = pairs[0]
        pairs.remove(pair)
        out.append(pair)
    return out


def _alike(old: Value, new: Value) -> bool:
    a, b = old.type, new.type
    assert isinstance(a, TensorType) and isinstance(b, TensorType)
    return (a.shape, a.dtype) == (b.shape, b.dtype) and bool(a.shape)


def _unread(old: Value, group: Op, out: ProgramBuilder) -> bool:
    """Whether no op but the group reads the memory of `old` from there on, through whichever value."""
    if not dies(old, group):
        return False
    home = old.owner  # a block: states are arguments, and so is what a round of a loop begins with
    around = home.region.op if not isinstance(home, Op) and home.region is not None else None
    carried = set(around.results) if around is not None and around.name.endswith(".while") else set[Value]()
    sharing = [v for v, i in out.of.items() if i == out.of[old] and v not in carried]
    return not any(read_later(v, group) for v in sharing)


def _name_of_old(
    v: Value, buffer: int, body: GroupBody, known: dict[Value, Value], out: ProgramBuilder
) -> Value | None:
    """The name through which the group stores to `buffer`: the one through which it reads it, else the result's own.
    None where it may not store to it."""
    target = written(v, body.axes[v], body.space)
    if any(s is None and d != 1 for s, d in zip(target.strides, body.space, strict=True)):
        return None
    names: set[Value] = set()
    for op in body.ops:
        old = [b for v in op.operands if (b := base_of(v)) not in body.axes and out.of.get(known.get(b, b)) == buffer]
        listed = dict(reads(op, body.axes, body.space)) if old else {}
        for operand in op.operands:
            base = base_of(operand)
            if base not in old:
                continue
            found = listed.get(operand)
            if found is None or found.offset != 0 or found.strides != target.strides or shape_of(base) != shape_of(v):
                return None
            names.add(base)
    return v if not names else names.pop() if len(names) == 1 else None
