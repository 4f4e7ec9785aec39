"""Derivatives through `graph.if`, `graph.for` and `graph.while`.

A branch computes its forward part again, next to the backward one. A loop needs what it carried before each round, from
the last round to the first. It keeps some of these states, at most `SLOTS`, and computes the others again from the
nearest one before: the memory does not depend on the number of rounds, and the time grows with it times its logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tessera.compiler.autodiff import forward, reverse
from tessera.compiler.autodiff.forward import Forward, push_forward
from tessera.compiler.autodiff.reverse import Reverse, pull_back
from tessera.compiler.autodiff.rules import active, outside, smooth
from tessera.compiler.graph.control import COUNTER, for_, if_, while_
from tessera.compiler.graph.operator import GraphBuilder, facts_of, tensor
from tessera.compiler.ir.core import Block, Builder, Op, Value, clone
from tessera.language import dtypes

SLOTS = 64
"""states of a loop that are kept at a time"""
SPREAD = 8
"""rounds ahead of a kept state are parted into so many stretches, and the state at the first end is kept as well"""

Values = Sequence[Value]


def replay(g: GraphBuilder, block: Block, args: Values) -> tuple[list[Op], list[Value]]:
    """Emits the ops of a region once more, for these arguments: the ops, and what they yield."""
    known = dict(zip(block.args, args, strict=True))
    ops = [g.builder.insert(clone(op, known)) for op in block.ops[:-1]]
    return ops, [known.get(v, v) for v in block.terminator.operands]


def typed(g: GraphBuilder, v: Value | None, like: Value) -> Value:
    """`v`, or zeros, with exactly the type of `like`: what regions yield and carry has one type."""
    given: Value = g.zeros_like(like) if v is None else v
    if given.type == like.type:
        return given
    return g.builder.value("graph.cast", (given,), like.type, {"dtype": tensor(like).dtype})


def _captured(op: Op, wanted: Iterable[Value]) -> list[Value]:
    """The values among `wanted` that the regions of `op` read from outside."""
    found = dict.fromkeys(outside(*(b for r in op.regions for b in r.blocks)))
    wanted = set(wanted)
    return [v for v in found if v in wanted and smooth(v)]


def _changing(block: Block, at: int, from_outside: Values, start: Iterable[int]) -> list[int]:
    """The carried values, by number, that change with those of `start` or with the values from outside; their block
    arguments begin at `at`."""
    carried, found = block.args[at:], set(start)
    while True:
        live = active(block.ops[:-1], [*(carried[i] for i in found), *from_outside])
        more = found | {i for i, v in enumerate(block.terminator.operands) if v in live and smooth(v)}
        if more == found:
            return sorted(found)
        found = more


# branches


def _if_back(back: Reverse, op: Op, cotangents: Sequence[Value | None]) -> None:
    g, wanted = back.g, _captured(op, back.live)

    def side(block: Block) -> Callable[[], list[Value]]:
        def build() -> list[Value]:
            ops, yields = replay(g, block, ())
            seeds = [(v, c) for v, c in zip(yields, cotangents, strict=True) if c is not None and smooth(v)]
            found = pull_back(g, ops, wanted, seeds)
            return [typed(g, c, v) for c, v in zip(found, wanted, strict=True)]

        return build

    then, otherwise = (side(r.block) for r in op.regions)
    back.add(wanted, if_(g, op.operands[0], then, otherwise))


def _if_ahead(ahead: Forward, op: Op) -> None:
    g, given = ahead.g, {v: ahead.tangents[v] for v in _captured(op, ahead.tangents)}
    moving = [i for i, r in enumerate(op.results) if smooth(r)]

    def side(block: Block) -> Callable[[], list[Value]]:
        def build() -> list[Value]:
            ops, yields = replay(g, block, ())
            found = push_forward(g, ops, given, [yields[i] for i in moving])
            return [typed(g, t, op.results[i]) for t, i in zip(found, moving, strict=True)]

        return build

    then, otherwise = (side(r.block) for r in op.regions)
    ahead.keep([op.results[i] for i in moving], if_(g, op.operands[0], then, otherwise))


# loops, forwards


def _loop_ahead(ahead: Forward, op: Op) -> None:
    g, counted = ahead.g, op.name == "graph.for"
    block = op.regions[-1].block
    initial = op.operands[3:] if counted else op.operands
    given = {v: ahead.tangents[v] for v in _captured(op, ahead.tangents)}
    moving = _changing(block, len(block.args) - len(initial), list(given), [
        i for i, v in enumerate(initial) if v in ahead.tangents
    ])  # fmt: skip
    count = len(initial)
    starts = [typed(g, ahead.tangents.get(initial[i]), initial[i]) for i in moving]

    def body(*args: Value) -> list[Value]:
        own, tangents = args[: len(args) - len(moving)], args[len(args) - len(moving) :]
        ops, yields = replay(g, block, own)
        carried = own[len(own) - count :]
        known = {**given, **{carried[i]: t for i, t in zip(moving, tangents, strict=True)}}
        found = push_forward(g, ops, known, [yields[i] for i in moving])
        return [*yields, *(typed(g, t, initial[i]) for t, i in zip(found, moving, strict=True))]

    if counted:
        lower, upper, step = op.operands[:3]
        results = for_(g, lower, upper, step, [*initial, *starts], body)
    else:
        head = op.regions[0].block
        results = while_(g, [*initial, *starts], lambda *args: replay(g, head, args[:count])[1][0], body)
    ahead.keep([op.results[i] for i in moving], results[count:])


# loops, backwards


@dataclass(slots=True)
class Rounds:
    """A loop as rounds 0 to `trips` - 1 of one step. `step(round, carried)` emits one: its ops, what it yields, and the
    block arguments' stand-ins."""

    g: GraphBuilder
    block: Block
    trips: Value
    initial: list[Value]
    counter: Callable[[Value], Value] | None

    def step(self, at: Value, carried: Values) -> tuple[list[Op], list[Value]]:
        args = carried if self.counter is None else [self.counter(at), *carried]
        return replay(self.g, self.block, args)


def _rounds(g: GraphBuilder, op: Op) -> Rounds:
    block = op.regions[-1].block
    if op.name == "graph.for":
        lower, upper, step, *initial = op.operands
        # Python's len(range(lower, upper, step))
        ahead = g.gt(step, 0)
        reach = g.where(ahead, g.sub(upper, lower), g.sub(lower, upper))
        size = g.abs(step)
        trips = g.maximum(g.floordiv(g.add(reach, g.sub(size, 1)), size), 0)
        return Rounds(g, block, trips, initial, lambda at: g.add(lower, g.mul(at, step)))
    return Rounds(g, block, _counted(op), list(op.operands), None)


def _counted(op: Op) -> Value:
    """The number of rounds of a while loop, which is carried along: the last result from now on."""
    before = GraphBuilder(Builder.before(op), facts_of(op))
    op.set_operands([*op.operands, before.constant(0, dtypes.int64)])
    head, body = (r.block for r in op.regions)
    head.add_arg(COUNTER, "trips")
    counter = body.add_arg(COUNTER, "trips")
    g = GraphBuilder(Builder.before(body.terminator), facts_of(op))
    body.terminator.set_operands([*body.terminator.operands, g.add(counter, 1)])
    op.results.append(Value(COUNTER, op, len(op.results), "trips"))
    return op.results[-1]


def _loop_back(back: Reverse, op: Op, cotangents: Sequence[Value | None]) -> None:
    g = back.g
    block = op.regions[-1].block
    count = len(cotangents)
    wanted = _captured(op, back.live)
    start = [i for i, v in enumerate(op.operands[len(op.operands) - count :]) if v in back.live]
    moving = _changing(block, len(block.args) - count, wanted, start)
    rounds = _rounds(g, op)
    count = len(rounds.initial)
    carried = rounds.initial
    states = _States(g, carried)
    first = [
        *(typed(g, cotangents[i], carried[i]) for i in moving),
        *(typed(g, None, v) for v in wanted),
    ]

    def goes_on(at: Value, *rest: Value) -> Value:
        return g.ge(at, 0)

    def body(at: Value, *rest: Value) -> list[Value]:
        kept, pulled = rest[: states.size], rest[states.size :]
        kept, state = states.reach(rounds, at, kept)
        cts, sums = pulled[: len(moving)], pulled[len(moving) :]
        # values of their own, so that a cotangent by what is carried is none by what it is made of
        fresh = [g.cast(v, tensor(v).dtype) for v in state]
        ops, yields = rounds.step(at, fresh)
        seeds = [(yields[i], c) for i, c in zip(moving, cts, strict=True) if smooth(yields[i])]
        found = pull_back(g, ops, [*(fresh[i] for i in moving), *wanted], seeds)
        new = [typed(g, c, carried[i]) for c, i in zip(found, moving, strict=False)]
        more = found[len(moving) :]
        totals = [s if c is None else typed(g, g.add(s, c), v) for s, c, v in zip(sums, more, wanted, strict=True)]
        return [g.sub(at, 1), *kept, *new, *totals]

    last = g.sub(rounds.trips, 1)
    results = while_(g, [last, *states.start(), *first], goes_on, body)[1 + states.size :]
    back.add([carried[i] for i in moving], results[: len(moving)])
    back.add(wanted, results[len(moving) :])


class _States:
    """The stack of kept states: how many there are, the round before which each was, and for each carried value a
    tensor with one more axis in front. The bottom one is the state before round 0."""

    def __init__(self, g: GraphBuilder, carried: Values) -> None:
        self.g, self.carried = g, carried
        self.size = 2 + len(carried)

    def start(self) -> list[Value]:
        g = self.g
        stacks = [g.broadcast_to(v, (SLOTS, *tensor(v).shape)) for v in self.carried]
        return [g.constant(0, dtypes.int64), g.zeros((SLOTS,), dtype=dtypes.int64), *stacks]

    def reach(self, rounds: Rounds, at: Value, kept: Values) -> tuple[list[Value], list[Value]]:
        """The stack, and the state before round `at`: computed from the nearest kept one, with some kept on the way."""
        g = self.g
        top, places, *stacks = kept
        # of the rounds that have been gone through, at most the last one is still on the stack
        top = g.where(g.gt(g.take(places, top, axis=0), at), g.sub(top, 1), top)
        place = g.take(places, top, axis=0)
        state = [typed(g, g.take(s, top, axis=0), v) for s, v in zip(stacks, self.carried, strict=True)]

        def goes_on(place: Value, *rest: Value) -> Value:
            return g.lt(place, at)

        def body(place: Value, keep: Value, top: Value, *rest: Value) -> list[Value]:
            kept, state = rest[: self.size - 1], rest[self.size - 1 :]
            _, new = rounds.step(place, state)
            new = [typed(g, v, c) for v, c in zip(new, self.carried, strict=True)]
            after = g.add(place, 1)
            hit = g.logical_and(g.eq(after, keep), g.lt(top, SLOTS - 1))
            top = g.where(hit, g.add(top, 1), top)
            kept = if_(g, hit, lambda: self._written(top, kept, [after, *new]), lambda: list(kept))
            return [after, g.where(hit, self._next(after, at), keep), top, *kept, *new]

        begin = [place, self._next(place, at), top, places, *stacks, *state]
        _, _, top, *rest = while_(g, begin, goes_on, body)
        return [top, *rest[: self.size - 1]], rest[self.size - 1 :]

    def _next(self, place: Value, at: Value) -> Value:
        """The round whose state is kept next on the way from `place` to `at`."""
        g = self.g
        stretch = g.floordiv(g.add(g.sub(at, place), SPREAD - 1), SPREAD)
        return g.add(place, g.maximum(stretch, 1))

    def _written(self, top: Value, kept: Values, values: Values) -> list[Value]:
        g = self.g
        at = g.eq(g.arange(SLOTS), top)
        return [
            typed(g, g.where(g.reshape(at, (SLOTS, *(1,) * tensor(v).rank)), v, s), s)
            for s, v in zip(kept, values, strict=True)
        ]


reverse.REGIONS.update({"graph.if": _if_back, "graph.for": _loop_back, "graph.while": _loop_back})
forward.REGIONS.update({"graph.if": _if_ahead, "graph.for": _loop_ahead, "graph.while": _loop_ahead})
