"""`ts.vmap`: ops for one element become ops for a batch.

The ops of one element are gone through in order. What depends on no element stays as it is, and is computed once. An
operator gets operands with one more axis in front (`graph/batching.py`), or is followed through its decomposition; what
has neither, such as a kernel, is called for one element after the other. Branches on conditions that differ are both
taken, and each element selects its own; loops run while any element's condition holds, and elements whose loop has
ended keep their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from tessera.compiler.autodiff.control import typed
from tessera.compiler.autodiff.rules import reads
from tessera.compiler.graph.batching import Batched, rule_of
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import for_, if_, while_
from tessera.compiler.graph.operator import BY_OP, REGISTRY, attributes_of, split_operands, tensor
from tessera.compiler.ir.core import Block, Builder, Op, Region, Value, clone
from tessera.language import dtypes
from tessera.language.dims import Dim

Values = Sequence[Value]


class Batching:
    """One walk over the ops of an element. `of`: for values that differ between elements, the value for all elements;
    `same`: for the others, their copies. `looped`: ops that are done for one element after the other."""

    def __init__(self, g: GraphBuilder, size: Dim, of: Mapping[Value, Value], looped: list[Op] | None = None) -> None:
        self.g, self.size = g, size
        self.of, self.same = dict(of), dict[Value, Value]()
        self.looped: list[Op] = [] if looped is None else looped

    def walk(self, ops: Iterable[Op]) -> None:
        for op in ops:
            with self.g.builder.at(op.span), self.g.builder.under(op.origin):
                if self.of.keys().isdisjoint(reads(op)):
                    self.g.builder.insert(clone(op, self.same))
                else:
                    self.through(op)

    def through(self, op: Op) -> None:
        name = op.name.removeprefix("graph.")
        if op.name in REGIONS:
            REGIONS[op.name](self, op)
        elif name not in REGISTRY:
            self.one_by_one(op)
        elif (rule := rule_of(op)) is not None:
            given = [(self.of.get(v) or self.unchanged(v), v in self.of) for v in op.operands]
            found = rule(Batched(self.g, self.size, op, given))
            self.keep(op.results, found if REGISTRY[name].multiple else (found,))
        else:
            self.decomposed(op)

    def decomposed(self, op: Op) -> None:
        rule = BY_OP[op.name].decompose
        block = Block()
        element = GraphBuilder(Builder(block, span=op.span, origin=op.origin), self.g.facts)
        found = None if rule is None else rule(element, *split_operands(op), **attributes_of(op))
        if found is None:
            self.one_by_one(op)
            return
        self.walk(block.ops)
        values = cast("tuple[Value, ...]", found if isinstance(found, tuple) else (found,))
        for result, v in zip(op.results, values, strict=True):
            if v in self.of:
                self.of[result] = self.of[v]
            else:
                self.same[result] = self.unchanged(v)
        drop_ops(block)

    def keep(self, results: Values, found: Values) -> None:
        self.of.update(zip(results, found, strict=True))

    def unchanged(self, v: Value) -> Value:
        return self.same.get(v, v)

    def whole(self, v: Value) -> Value:
        """The value for all elements; repeated where it is the same for all."""
        t = tensor(v)
        found = self.of.get(v)
        return self.g.broadcast_to(self.unchanged(v), (self.size, *t.shape)) if found is None else found

    def inner(self, args: Mapping[Value, Value] | None = None) -> Batching:
        """The same inside of a region, whose arguments differ as given."""
        new = Batching(self.g, self.size, {**self.of, **(args or {})}, self.looped)
        new.same = dict(self.same)
        return new

    def region(self, block: Block, differing: Mapping[Value, Value], same: Mapping[Value, Value]) -> Batching:
        """Goes through a region, with what its arguments are."""
        one = self.inner(differing)
        one.same.update(same)
        one.walk(block.ops[:-1])
        return one

    def one_by_one(self, op: Op) -> None:
        """A loop over the elements."""
        g = self.g
        self.looped.append(op)
        given = [v for v in reads(op) if v in self.of]
        stacks = [g.zeros((self.size, *tensor(r).shape), dtype=tensor(r).dtype) for r in op.results]

        def body(i: Value, *carried: Value) -> list[Value]:
            known = {**self.same, **{v: typed(g, g.take(self.of[v], i, axis=0), v) for v in given}}
            new = g.builder.insert(clone(op, known))
            return [typed(g, g.put(s, i, r, axis=0), s) for s, r in zip(carried, new.results, strict=True)]

        zero, one = (g.constant(n, dtypes.int64) for n in (0, 1))
        self.keep(op.results, for_(g, zero, g.size(self.size, dtypes.int64), one, stacks, body))

    def chosen(self, condition: Value, a: Value, b: Value) -> Value:
        """For each element of `condition` [size] one of both."""
        rank = tensor(a).rank
        return self.g.where(self.g.reshape(condition, (self.size, *(1,) * (rank - 1))), a, b)


def drop_ops(block: Block) -> None:
    """Drops ops that were only visited, so that they do not count as users of values."""
    for op in [op for top in block.ops for op in top.walk()]:
        op.set_operands(())


def _varying(blocks: Sequence[Block], differing: Iterable[Value]) -> set[Value]:
    """The values in these blocks that may differ among elements."""
    found = set(differing)
    for block in blocks:
        for op in block.ops[:-1]:
            if not found.isdisjoint(reads(op)):
                found |= set(op.results)
    return found


# branches


def _if(b: Batching, op: Op) -> None:
    then, otherwise = (r.block for r in op.regions)
    condition = op.operands[0]
    if condition in b.of:
        sides = [b.region(block, {}, {}) for block in (then, otherwise)]
        ends = [[side.whole(v) for v in block.terminator.operands]
                for side, block in zip(sides, (then, otherwise), strict=True)]  # fmt: skip
        b.keep(op.results, [b.chosen(b.of[condition], x, y) for x, y in zip(*ends, strict=True)])
        return
    live = _varying((then, otherwise), b.of)
    differ = [any(block.terminator.operands[i] in live for block in (then, otherwise)) for i in range(len(op.results))]

    def side(block: Block) -> Callable[[], list[Value]]:
        def build() -> list[Value]:
            one = b.region(block, {}, {})
            ends = zip(block.terminator.operands, differ, strict=True)
            return [one.whole(v) if d else one.unchanged(v) for v, d in ends]

        return build

    _settle(b, op.results, differ, if_(b.g, b.unchanged(condition), side(then), side(otherwise)))


def _settle(b: Batching, results: Values, differ: Sequence[bool], found: Values) -> None:
    for result, d, v in zip(results, differ, found, strict=True):
        (b.of if d else b.same)[result] = v


# loops


def _carried(b: Batching, op: Op, block: Block, initial: Values) -> list[bool]:
    """Which carried values differ between elements, initially or after a step."""
    args = block.args[len(block.args) - len(initial) :]
    differ = [v in b.of for v in initial]
    while True:
        live = _varying([block], [*b.of, *(a for a, d in zip(args, differ, strict=True) if d)])
        more = [d or v in live for d, v in zip(differ, block.terminator.operands, strict=True)]
        if more == differ:
            return differ
        differ = more


def _arguments(args: Values, given: Values, differ: Sequence[bool]) -> tuple[dict[Value, Value], dict[Value, Value]]:
    """The values of block arguments: those that differ between elements, and the others."""
    pairs = list(zip(args, given, differ, strict=True))
    return {a: v for a, v, d in pairs if d}, {a: v for a, v, d in pairs if not d}


def _ends(one: Batching, values: Values, differ: Sequence[bool]) -> list[Value]:
    return [one.whole(v) if d else one.unchanged(v) for v, d in zip(values, differ, strict=True)]


def _for(b: Batching, op: Op) -> None:
    bounds, initial = op.operands[:3], op.operands[3:]
    if any(v in b.of for v in bounds):  # as many rounds as each has: a loop until a condition
        block = Block()
        own = clone(op, {})
        block.append(own)
        block.append(Op("graph.yield", own.results, (), op.span))
        from tessera.compiler.graph.passes.for_to_while import for_to_while  # slow: hints need no passes

        for_to_while(Op("graph.func", (), (), op.span, {}, [Region([block])]))
        b.walk(block.ops[:-1])
        for result, v in zip(op.results, block.terminator.operands, strict=True):
            (b.of if v in b.of else b.same)[result] = b.of.get(v) or b.unchanged(v)
        drop_ops(block)
        return
    block = op.region.block
    differ = _carried(b, op, block, initial)

    def body(counter: Value, *carried: Value) -> list[Value]:
        own, same = _arguments(block.args[1:], carried, differ)
        one = b.region(block, own, {**same, block.args[0]: counter})
        return _ends(one, block.terminator.operands, differ)

    lower, upper, step = (b.unchanged(v) for v in bounds)
    _settle(b, op.results, differ, for_(b.g, lower, upper, step, _ends(b, initial, differ), body))


def _while(b: Batching, op: Op) -> None:
    head, body = (r.block for r in op.regions)
    initial = op.operands
    differ = _carried(b, op, body, initial)
    at_head = [*b.of, *(a for a, d in zip(head.args, differ, strict=True) if d)]
    if head.terminator.operands[0] in _varying([head], at_head):
        _while_any(b, op)
        return

    def goes_on(*carried: Value) -> Value:
        return b.region(head, *_arguments(head.args, carried, differ)).unchanged(head.terminator.operands[0])

    def step(*carried: Value) -> list[Value]:
        return _ends(b.region(body, *_arguments(body.args, carried, differ)), body.terminator.operands, differ)

    _settle(b, op.results, differ, while_(b.g, _ends(b, initial, differ), goes_on, step))


def _while_any(b: Batching, op: Op) -> None:
    """A loop with a number of rounds for each element: the last carried value says which elements are still running."""
    head, body = (r.block for r in op.regions)
    g = b.g

    def goes_on(carried: Values) -> Value:
        return b.region(head, dict(zip(head.args, carried, strict=True)), {}).whole(head.terminator.operands[0])

    def step(*carried: Value) -> list[Value]:
        *old, active = carried
        one = b.region(body, dict(zip(body.args, old, strict=True)), {})
        new = [typed(g, b.chosen(active, one.whole(v), o), o)
               for v, o in zip(body.terminator.operands, old, strict=True)]  # fmt: skip
        return [*new, g.logical_and(active, goes_on(new))]

    first = [b.whole(v) for v in op.operands]
    results = while_(g, [*first, goes_on(first)], lambda *carried: g.any(carried[-1]), step)
    b.keep(op.results, results[:-1])


# functions with rules of their own


def _custom(b: Batching, op: Op) -> None:
    """The function and each of its rules for all elements, of operands that all differ."""
    operands = [b.whole(v) for v in op.operands]
    regions = list[Region]()
    for region in op.regions:
        old = region.block
        types = [tensor(a).with_shape((b.size, *tensor(a).shape)) for a in old.args]
        block = Block(types, [a.hint for a in old.args])
        with b.g.builder.inside(block):
            one = b.region(old, dict(zip(old.args, block.args, strict=True)), {})
            ends = [one.whole(v) for v in old.terminator.operands]
        block.append(Op(old.terminator.name, ends, (), old.terminator.span))
        regions.append(Region([block]))
    types = [v.type for v in regions[0].block.terminator.operands]
    b.keep(op.results, b.g.builder.op(op.name, operands, types, dict(op.attrs), regions, op.span).results)


REGIONS: dict[str, Callable[[Batching, Op], None]] = {
    "graph.if": _if, "graph.for": _for, "graph.while": _while, "graph.custom": _custom,
}  # fmt: skip


def batch(
    g: GraphBuilder, size: Dim, block: Block, of: Mapping[Value, Value], results: Values
) -> tuple[list[Value], list[bool], list[Op]]:
    """The `results` of the ops of `block` for `size` elements: the values, which of them have the axis of the
    elements in front, and the ops that are done for one element after the other.

    `of`: values of one element, which have that axis. Emits further ops, and lets go of those of `block`.
    """
    b = Batching(g, size, of)
    b.walk(block.ops)
    found = [(b.of.get(v) or b.unchanged(v), v in b.of) for v in results]
    drop_ops(block)
    return [v for v, _ in found], [d for _, d in found], b.looped
