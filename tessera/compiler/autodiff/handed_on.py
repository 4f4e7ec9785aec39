"""What a forward pass hands on to its backward pass, where these are two programs.

The first program emits the ops of a function, and gives some of their values beside the result. The second emits the
same ops, derives from them, and reads these values from memory. Both know values by names, which `HandedOn` makes: it
copies the ops, with a derivative for cotangents that are not known. What does not depend on these belongs to the
forward pass, and of that the smallest cut (rematerialize.py) is kept, as where both passes are one program. Programs
that do not agree on the ops do not agree on the names, and the second computes its values again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tessera.compiler.autodiff.reverse import Simpler, pull_back
from tessera.compiler.autodiff.rules import smooth
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.passes.eliminate_common import eliminate_common
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.graph.passes.rematerialize import USUAL, Crossing, reads
from tessera.compiler.ir.core import Block, Op, Region, Value, clone
from tessera.compiler.ir.types import type_text
from tessera.errors import NOWHERE


class HandedOn:
    """`values`: what could be kept of some ops with these results, by name: values of the ops, and those that their
    derivative by `wanted` computes from nothing else. Raises CompileError TS353, TS355 where there is none."""

    def __init__(self, g: GraphBuilder, ops: Sequence[Op], wanted: Sequence[Value], results: Iterable[Value]) -> None:
        self.g = g
        self.start = g.builder.block.index(ops[0]) if ops else 0
        self.order = max((op.origin.order for op in ops), default=0)
        self.made = set[Op]()
        """what is emitted that the ops do not have"""
        self.results = [v for v in dict.fromkeys(results) if smooth(v)]
        cotangents = Block([v.type for v in self.results])
        copies: dict[Value, Value] = {}
        self.block = Block()
        with g.builder.inside(self.block):
            made = [g.builder.insert(clone(op, copies)) for op in ops]
            self.originals = {copies[r]: r for op in ops for r in op.results}
            ends = [copies.get(v, v) for v in self.results]
            simpler: list[Simpler] = []
            found = pull_back(g, made, wanted, zip(ends, cotangents.args, strict=True), simpler=simpler)
        self.same = self._put_in_place(simpler)
        self.block.append(Op("graph.return", [*ends, *(v for v in found if v is not None)], (), NOWHERE))
        func = Op("graph.func", (), (), NOWHERE, {}, [Region([self.block])])
        eliminate_common(func)
        eliminate_dead(func)
        self.late, changing = self._late(cotangents.args)
        mark = hashlib.sha256("\n".join(_lines(self.block, {})).encode()).hexdigest()[:16]
        self._within_sections()
        early = [r for op in self.block.ops for r in op.results if r not in changing]
        self.values = {f"{mark}.{i}": v for i, v in enumerate(early)}
        self._cotangents = cotangents

    def _put_in_place(self, simpler: Iterable[Simpler]) -> dict[Value, Value]:
        """Has all read the simpler ops that the derivative went through. The results that they stand for, by theirs."""
        same: dict[Value, Value] = {}
        for op, values, ops in simpler:
            at = self.block.index(op) + 1
            for one in ops:
                one.origin = op.origin
                del self.block.ops[self.block.index(one)]
            self.block.ops[at:at] = ops
            for v, simple in zip(op.results, values, strict=True):
                v.replace_by(simple)
                simple.hint, same[simple] = simple.hint or v.hint, v
        return same

    def _late(self, cotangents: Sequence[Value]) -> tuple[set[Op], set[Value]]:
        """The ops that read the cotangents, or what is computed from them, and their results. So do loops of the
        derivative and the number of rounds that it counts in one of the forward pass: neither is emitted twice."""
        late, values = set[Op](), set(cotangents)
        for op in self.block.ops[:-1]:
            own = {r for r in op.results if r in self.originals}
            if not values.isdisjoint(reads(op)) or (op.regions and not own):
                late.add(op)
                values.update(op.results)
            elif op.regions:
                values.update(r for r in op.results if r not in own)
        return late, values

    def _within_sections(self) -> None:
        """What depends on values under `ts.remat` does not go round its policy."""
        for op in self.block.ops:
            if op not in self.late and op.results and op.results[0] not in self.originals:
                before = (s for v in op.operands if v.op is not None for s in v.op.origin.within)
                op.origin = replace(op.origin, within=tuple(dict.fromkeys((*op.origin.within, *before))))

    def chosen(self) -> list[str]:
        """The names of what is worth keeping, the results themselves left out."""
        # an op of no kind in the place of the cotangents: what depends on it is late
        given = Op("graph.cotangents", (), [v.type for v in self._cotangents.args], NOWHERE)
        for ct, v in zip(self._cotangents.args, given.results, strict=True):
            ct.replace_by(v)
        self.block.insert(0, given)
        orders = {op: int(op in self.late or op is given) for op in self.block.ops[:-1]}
        crossing = Crossing(self.block, orders, 1, USUAL)
        again = crossing.chosen()
        readers = [op for op in orders if op in again or op in self.late]
        read = {v for op in readers for v in reads(op) if v.op is not None and v.op in crossing.forward - again}
        out = set(self.block.terminator.operands[: len(self.results)])
        return [name for name, v in self.values.items() if v in read - out]

    def emitted(self, name: str) -> Value:
        """A value among the ops: what they do not compute themselves, from what they do, as soon as that is there."""
        return self._emitted(self.values[name])

    def equal(self) -> Iterator[tuple[Value, Value]]:
        """Values of the ops that a derivative knows as those of others, and these, emitted."""
        for simple, v in self.same.items():
            if v in self.originals and simple.op is not None and simple.op.block is self.block:
                yield self.originals[v], self._emitted(simple)

    def _emitted(self, v: Value) -> Value:
        op = v.op
        if v in self.originals or op is None or op.block is not self.block:
            return self.originals.get(v, v)
        operands = {x: self._emitted(x) for x in op.operands}
        block = self.g.builder.block
        behind = [block.index(x.op) + 1 for x in operands.values() if x.op is not None and x.op.block is block]
        one = block.insert(max([self.start, *behind]), clone(op, operands))
        one.origin = replace(op.origin, order=self.order)
        self.made.add(one)
        self.originals.update(zip(op.results, one.results, strict=True))
        return self.originals[v]

    def drop(self) -> None:
        """Ends all reading of values outside."""
        for op in self.block.ops:
            for inner in op.walk():
                inner.set_operands(())


def _lines(block: Block, numbers: dict[Value, int]) -> Iterator[str]:
    """The ops as text, without names and places."""

    def of(values: Iterable[Value]) -> list[str]:
        return [f"{numbers.setdefault(v, len(numbers))} {type_text(v.type)}" for v in values]

    yield repr(of(block.args))
    for op in block.ops:
        yield repr((op.name, of(op.operands), sorted(op.attrs.items()), of(op.results), len(op.regions)))
        for region in op.regions:
            for inner in region.blocks:
                yield from _lines(inner, numbers)
