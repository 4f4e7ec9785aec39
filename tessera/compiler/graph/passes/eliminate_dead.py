"""Removes ops whose results are not read, and values that loops and branches carry only for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.launches import LAUNCHES, shows
from tessera.compiler.ir.rewriter import erase_dead
from tessera.compiler.ir.spec import SPECS

CARRYING = {"graph.if": 1, "graph.while": 0, "graph.for": 3}
"""control flow, and the number of operands before those that it carries"""


def eliminate_dead(func: Op) -> None:
    """Erases, in place, every op without effects whose results are unused."""
    erase_dead(func, has_effects)
    loops = [op for op in func.walk() if op.name in CARRYING]
    needed = _needed(func) if loops else set[Value]()
    changed = [op for op in loops if _drop_unneeded(op, needed)]
    if changed:
        erase_dead(func, has_effects)
    for op in changed:
        _forget(op, needed)


def has_effects(op: Op) -> bool:
    """Whether the op, or one inside it other than the terminators of its regions, has an effect."""
    if SPECS[op.name].effects:
        return True
    if op.name in LAUNCHES:
        return shows(op)
    inner = (o for region in op.regions for block in region.blocks for o in block.ops[:-1])
    return any(has_effects(o) for o in inner)


def _needed(func: Op) -> set[Value]:
    """The values that results and effects depend on. A carried value that only the next one is made from is none."""
    todo = list(_roots(func.regions[0].block, func.regions[0].block.terminator.operands))
    found = set(todo)
    while todo:
        for v in _sources(todo.pop()):
            if v not in found:
                found.add(v)
                todo.append(v)
    return found


def _roots(block: Block, ends: Iterable[Value]) -> Iterable[Value]:
    yield from ends
    for op in block.ops[:-1]:
        if op.name in CARRYING:
            yield from op.operands[: CARRYING[op.name]]
            for i, region in enumerate(op.regions):
                ends = region.block.terminator.operands if op.name == "graph.while" and i == 0 else ()
                yield from _roots(region.block, ends)
        elif has_effects(op):
            yield from _read(op)


def _read(op: Op) -> Iterable[Value]:
    """All that an op and those inside of it read."""
    return (v for inner in op.walk() for v in inner.operands)


def _sources(v: Value) -> Iterable[Value]:
    """The values that `v` is computed from."""
    op = v.op if isinstance(v.owner, Op) else v.owner.region.op if v.owner.region is not None else None
    if op is None or op.name not in CARRYING:
        return _read(v.op) if v.op is not None else ()
    lead = CARRYING[op.name]
    i = v.index if v.op is not None else v.index - (op.name == "graph.for")
    if i < 0:  # the counter
        return ()
    before = () if op.name == "graph.if" else (op.operands[lead + i],)
    return (*before, *(r.block.terminator.operands[i] for r in _yielding(op)))


def _yielding(op: Op) -> Sequence[Region]:
    """The regions that give what `op` carries."""
    return op.regions[1:] if op.name == "graph.while" else op.regions


def _kept(op: Op, needed: set[Value]) -> list[bool]:
    """Which carried values are needed: as results, or in a region."""
    skip = int(op.name == "graph.for")
    return [
        any(v in needed for v in (r, *(region.block.args[i + skip] for region in op.regions if region.block.args)))
        for i, r in enumerate(op.results)
    ]


def _drop_unneeded(op: Op, needed: set[Value]) -> bool:
    """Removes values that are not needed from the operands of `op` and from its regions' yields; whether there were
    any."""
    kept = _kept(op, needed)
    if all(kept):
        return False
    lead = CARRYING[op.name]
    if op.name != "graph.if":
        op.set_operands([*op.operands[:lead], *_chosen(op.operands[lead:], kept)])
    for region in _yielding(op):
        region.block.terminator.set_operands(_chosen(region.block.terminator.operands, kept))
    return True


def _forget(op: Op, needed: set[Value]) -> None:
    """Removes the results and block arguments that are not needed; nothing reads them any more."""
    kept = _kept(op, needed)
    skip = int(op.name == "graph.for")
    for region in op.regions:
        if region.block.args:
            region.block.args = _numbered([*region.block.args[:skip], *_chosen(region.block.args[skip:], kept)])
    op.results = _numbered(_chosen(op.results, kept))


def _numbered(values: list[Value]) -> list[Value]:
    for i, v in enumerate(values):
        v.index = i
    return values


def _chosen(values: Sequence[Value], kept: Sequence[bool]) -> list[Value]:
    return [v for v, keep in zip(values, kept, strict=True) if keep]
