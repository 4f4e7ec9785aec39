"""A function cut along a dim as a row of functions: after each of them the parts send each other their shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tessera.compiler.graph.sharding import Partition
from tessera.compiler.ir.core import Block, Op, Region, Value, clone


@dataclass(frozen=True, slots=True)
class Stage:
    """`func` takes what the values `takes` of the whole function are, and gives `gives`."""

    func: Op
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]


def stages(found: Partition) -> list[Stage]:
    """The functions, in order. A share is known as a whole from the next one on."""
    *ops, end = found.func.region.block.ops
    known: dict[Value, int] = dict.fromkeys(found.func.region.block.args, 0)
    """the first stage in which a value can be used; what is made from nothing is made anew wherever it is used"""
    at: dict[Op, int] = {}
    for op in ops:
        before = [known[v] for v in _used(op) if v in known]
        if before:
            at[op] = max(before)
            known.update((r, at[op] + (r in found.shares)) for r in op.results)
    last = max(at.values(), default=0)
    out: list[Stage] = []
    for i in range(last + 1):
        later = {v for op in ops if at.get(op, -1) > i for v in _used(op)} | set(end.operands)
        gives = [r for op in ops if at.get(op) == i for r in op.results if r in later]
        if i == last:
            gives += [v for v in end.operands if v not in known and v not in gives]
        out.append(_stage(found.func, i, [op for op in ops if at.get(op, i) == i], gives))
    return out


def _stage(whole: Op, number: int, ops: Sequence[Op], gives: Sequence[Value]) -> Stage:
    kept, needed = list[Op](), set(gives)
    for op in reversed(ops):
        if not needed.isdisjoint(op.results):
            kept.insert(0, op)
            needed.update(_used(op))
    made = {r for op in kept for r in op.results}
    takes = tuple(dict.fromkeys(v for op in kept for v in _used(op) if v not in made))
    block = Block([v.type for v in takes], [v.hint for v in takes])
    mapping = dict(zip(takes, block.args, strict=True))
    for op in kept:
        block.append(clone(op, mapping))
    block.append(Op("graph.return", [mapping[v] for v in gives], (), whole.span))
    names = tuple(f"{v.hint or 'value'}_{i}" for i, v in enumerate(takes))
    attrs = {**whole.attrs, "sym_name": f"{whole.attrs['sym_name']}_{number}", "arg_names": names}
    return Stage(Op("graph.func", (), (), whole.span, attrs, [Region([block])]), takes, tuple(gives))


def _used(op: Op) -> Iterable[Value]:
    """What an op uses, also inside its regions, of what is made outside of it."""
    inside = {*_made(op)}
    return dict.fromkeys(v for o in op.walk() for v in o.operands if v not in inside)


def _made(op: Op) -> Iterator[Value]:
    for o in op.walk():
        yield from o.results
        for region in o.regions:
            for block in region.blocks:
                yield from block.args
