"""Derivatives through `graph.if`, `graph.for` and `graph.while`.

A branch computes its forward part again, next to the backward one. A loop needs what it carried before each round, from
the last round to the first. It keeps some of these states, at most `SLOTS`, and computes the others again from the
nearest one before: the memory does not depend on the number of rounds, and the time grows with it times its logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tessera.compiler.autodiff import forward, reverse
from tessera.compiler.autodiff.forward import Forward, push_forward
from tessera.compiler.autodiff.reverse import Reverse, pull_back
from tessera.compiler.autodiff.rules import active, outside, smooth
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import COUNTER, for_, if_, while_
from tessera.compiler.graph.operator import facts_of, tensor
from tessera.compiler.ir.core import Block, Builder, Op, Value, clone
from tessera.immutable import mutable
from tessera.language import dtypes

CHUNK = 8
"""rounds that are run backwards together: the states of all of them are kept"""
SLOTS = 32
"""states before chunks that are kept at a time"""
SPREAD = 4
"""chunks ahead of a kept state are divided into SPREAD stretches; the state at the end of the first is kept as well"""

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


@mutable
class Rounds:
    """A loop as rounds 0 to `trips` - 1 of one step. `step(round, carried)` emits one: its ops, what it yields, and the
    values that replace the block arguments."""

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

    def one(at: Value, state: Values, pulled: Values) -> list[Value]:
        """One round, backwards."""
        cts, sums = pulled[: len(moving)], pulled[len(moving) :]
        # values of their own, so that a cotangent of a carried value is not one of the values it is computed from
        fresh = [g.cast(v, tensor(v).dtype) for v in state]
        ops, yields = rounds.step(at, fresh)
        seeds = [(yields[i], c) for i, c in zip(moving, cts, strict=True) if smooth(yields[i])]
        onto = zip(wanted, sums, strict=True)
        found = pull_back(g, ops, [*(fresh[i] for i in moving), *wanted], seeds, onto)
        return [typed(g, c, v) for c, v in zip(found, [*(carried[i] for i in moving), *wanted], strict=True)]

    def not_done(i: Value, *rest: Value) -> Value:
        return g.ge(i, 0)

    def chunk(c: Value, *rest: Value) -> list[Value]:
        kept, pulled = rest[: states.size], rest[states.size :]
        begin = g.mul(c, CHUNK)
        last = g.sub(g.minimum(g.sub(rounds.trips, begin), CHUNK), 1)
        kept, tape = states.reach(rounds, c, g.add(begin, last), kept)

        def back_one(i: Value, *now: Value) -> list[Value]:
            return [g.sub(i, 1), *one(g.add(begin, i), states.read(tape, i), now)]

        _, *pulled = while_(g, [last, *pulled], not_done, back_one)
        return [g.sub(c, 1), *kept, *pulled]

    chunks = g.floordiv(g.add(rounds.trips, CHUNK - 1), CHUNK)
    start = [g.sub(chunks, 1), *states.start(), *first]
    results = while_(g, start, not_done, chunk)[1 + states.size :]
    back.add([carried[i] for i in moving], results[: len(moving)])
    back.add(wanted, results[len(moving) :])


class _States:
    """What is kept of the states before rounds: the number of the top one on the stack, the chunk before which each on
    it was, for each carried value a tensor with one more axis in front, and one more with the states before all rounds
    of the chunk that was reached last. The bottom of the stack is the state before round 0; behind its top is a place
    for what is not kept."""

    def __init__(self, g: GraphBuilder, carried: Values) -> None:
        self.g, self.carried = g, carried
        self.size = 2 + 2 * len(carried)

    def start(self) -> list[Value]:
        g = self.g
        places = g.zeros((SLOTS + 1,), dtype=dtypes.int64)
        return [g.constant(0, dtypes.int64), places, *self._stacks(SLOTS + 1), *self._stacks(CHUNK)]

    def _stacks(self, count: int) -> list[Value]:
        return [self.g.broadcast_to(v, (count, *tensor(v).shape)) for v in self.carried]

    def reach(self, rounds: Rounds, chunk: Value, end: Value, kept: Values) -> tuple[list[Value], list[Value]]:
        """What is kept, and of it the states before the rounds of a chunk, which ends with round `end`: computed from
        the nearest kept one, with some kept on the way."""
        g, count = self.g, len(self.carried)
        top, places, *stacks = kept
        # of the chunks that have been processed, at most the last one is still on the stack
        top = g.where(g.gt(g.take(places, top, axis=0), chunk), g.sub(top, 1), top)
        place = g.take(places, top, axis=0)

        def stretch(place: Value, top: Value, places: Value, *rest: Value) -> list[Value]:
            stacks, tape, state = rest[:count], rest[count : 2 * count], rest[2 * count :]
            ahead = g.maximum(g.floordiv(g.add(g.sub(chunk, place), SPREAD - 1), SPREAD), 1)
            there = g.add(place, ahead)

            def one(at: Value, *now: Value) -> list[Value]:
                tape, state = now[:count], now[count:]
                return [g.add(at, 1), *self._written(tape, g.mod(at, CHUNK), state), *self.after(rounds, at, state)]

            stop = g.minimum(g.mul(there, CHUNK), g.add(end, 1))
            goes_on = self._before(stop)
            _, *now = while_(g, [g.mul(place, CHUNK), *tape, *state], goes_on, one)
            tape, state = now[:count], now[count:]
            keeps = g.logical_and(g.lt(there, chunk), g.lt(top, SLOTS - 1))
            top = g.where(keeps, g.add(top, 1), top)
            places, *stacks = self._written([places, *stacks], g.where(keeps, top, SLOTS), [there, *state])
            return [there, top, places, *stacks, *tape, *state]

        begin = [place, top, places, *stacks, *self.read(stacks, top)]
        _, *rest = while_(g, begin, self._before(g.add(chunk, 1)), stretch)
        kept = rest[: self.size]
        return kept, kept[2 + count :]

    def after(self, rounds: Rounds, at: Value, state: Values) -> list[Value]:
        """The state after round `at`."""
        _, new = rounds.step(at, state)
        return [typed(self.g, v, c) for v, c in zip(new, self.carried, strict=True)]

    def read(self, stacks: Values, at: Value) -> list[Value]:
        return [typed(self.g, self.g.take(s, at, axis=0), v) for s, v in zip(stacks, self.carried, strict=False)]

    def _before(self, end: Value) -> Callable[..., Value]:
        def goes_on(at: Value, *rest: Value) -> Value:
            return self.g.lt(at, end)

        return goes_on

    def _written(self, stacks: Values, at: Value, values: Values) -> list[Value]:
        """The stacks with these values at one place."""
        g = self.g
        return [typed(g, g.put(s, at, v), s) for s, v in zip(stacks, values, strict=True)]


reverse.REGIONS.update({"graph.if": _if_back, "graph.for": _loop_back, "graph.while": _loop_back})
forward.REGIONS.update({"graph.if": _if_ahead, "graph.for": _loop_ahead, "graph.while": _loop_ahead})
