"""Control flow that is decided at run time: `if`, conditional expressions, `while` and counted loops.

Both layers share it: the regions of `graph.if` and `tile.if` look alike. A branch that returns early takes the rest of
the function as its other path; what a loop changes becomes a carried value.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tessera.compiler.frontend.evaluate import states, undecided
from tessera.compiler.frontend.evaluate.machine import Evaluator, method
from tessera.compiler.frontend.evaluate.states import NUMBERS, Merger
from tessera.compiler.frontend.evaluate.undecided import Snapshot
from tessera.compiler.frontend.names.frame import Flow, LoopMark, Path
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Counting,
    Record,
    Unknown,
    held_leaves,
    is_dict,
    is_sequence,
    is_static,
    paired,
    type_name,
)
from tessera.compiler.frontend.syntax.assigned import parted_names, stored_names
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import Type
from tessera.errors import Note
from tessera.language.dims import Facts

ATTEMPTS = 5
"""rounds in which the numbers that a loop carries are found, and their dtypes"""


@method
def branch(ev: Evaluator, node: ast.If, condition: Any) -> Flow:
    test = ev.layer.condition(node.test, condition)
    if test is None:
        return undecided.either(ev, node, UNKNOWN)
    before = dict(ev.frame.names)
    facts, paths, learned = ev.facts, list[Path](), list[Facts]()
    for body in (node.body, node.orelse):
        ev.facts = facts.copy()
        paths.append(path(ev, body, before, node))
        learned.append(ev.facts)
    ev.facts = facts
    flows = {p.flow for p in paths}
    if len(flows) > 1 and ev.layer.leave(paths):
        flows = {Flow.CONTINUE}
    if flows == {Flow.RETURN, Flow.NEXT}:
        ev.facts = learned[[p.flow for p in paths].index(Flow.NEXT)]
        went = _take_rest(ev, node, paths)
        ev.facts = facts
        if not went:
            return Flow.NEXT
        flows = {Flow.RETURN}
    if flows == {Flow.RETURN}:
        return _merge_returns(ev, node, test, paths)
    if len(flows) > 1:
        ev.error(
            "TS102",
            "whether this loop is left would depend on tensor elements, and it is unrolled at compile time; "
            "loop over ts.range(...), or while a tensor says so",
            ev.header(node),
        )
    merge_names(ev, node, test, paths, before)
    return flows.pop() if len(flows) == 1 else Flow.NEXT


def path(ev: Evaluator, body: list[ast.stmt], before: dict[str, Any], node: ast.AST) -> Path:
    """Evaluates statements into a block of their own."""
    block, saved, held = Block(), Snapshot(ev.frame), states.into(ev, {})
    outer, ev.frame.names = ev.frame.names, dict(before)
    maybe, ev.frame.maybe = ev.frame.maybe, set(ev.frame.maybe)
    try:
        with _inside(ev, block):
            flow = ev.run(body)
        names = states.into(ev, ev.frame.names)
        found = Path(block, names, flow, ev.frame.returned, ev.frame.return_span, ev.frame.maybe)
    finally:
        ev.frame.names, ev.frame.maybe = outer, maybe
        states.out_of(ev, held)
    if saved.changed():
        saved.restore()
        message = "a list or dict from outside is changed on a path that may not be taken; assign a name instead"
        ev.error("TS102", message, ev.header(node))
    return found


@contextmanager
def _inside(ev: Evaluator, block: Block) -> Generator[None]:
    """Evaluates what a path does, which may be the other one."""
    ev.paths += 1
    try:
        with ev.builder.inside(block):
            yield
    finally:
        ev.paths -= 1


def _take_rest(ev: Evaluator, node: ast.If, paths: list[Path]) -> bool:
    """`if c: return a` and then the rest of the function: the rest is the other path."""
    going = next(p for p in paths if p.flow is Flow.NEXT)
    ended = next(p for p in paths if p.flow is Flow.RETURN)
    continuation = ev.frame.continuation()
    if continuation is None:
        where = ended.return_span or ev.span(node)
        message = (
            "a return in a loop would depend on tensor elements; keep the result in a name, return it after the loop"
        )
        ev.error("TS102", message, where)
        ev.frame.names, ev.frame.maybe = going.names, going.maybe
        return False
    held = states.into(ev, {})
    outer, ev.frame.names = ev.frame.names, states.out_of(ev, going.names)
    ev.frame.maybe = going.maybe
    rests, ev.frame.rests = ev.frame.rests, []
    try:
        with _inside(ev, going.block):
            flow = ev.run(continuation)
            if flow is not Flow.RETURN:  # Python falls off the end
                ev.frame.returned, ev.frame.return_span = None, None
    finally:
        going.names, ev.frame.names, ev.frame.rests = states.into(ev, ev.frame.names), outer, rests
        states.out_of(ev, held)
    going.flow, going.returned, going.return_span = Flow.RETURN, ev.frame.returned, ev.frame.return_span
    return True


def run_on(ev: Evaluator, p: Path, statements: list[ast.stmt], depth: int) -> None:
    """What stands behind a branch in a loop's body becomes the end of one of its paths. `depth`: of the loop's mark."""
    frame, held = ev.frame, states.into(ev, {})
    outer, frame.names = frame.names, states.out_of(ev, p.names)
    maybe, frame.maybe = frame.maybe, p.maybe
    rests, frame.rests = frame.rests, frame.rests[: depth + 1]
    try:
        with _inside(ev, p.block):
            p.flow = ev.run(statements)
            p.returned, p.return_span = frame.returned, frame.return_span
    finally:
        p.names, frame.names, frame.rests = states.into(ev, frame.names), outer, rests
        p.maybe, frame.maybe = frame.maybe, maybe
        states.out_of(ev, held)


def _merge_returns(ev: Evaluator, node: ast.If, test: Value, paths: list[Path]) -> Flow:
    a, b = paths
    if (a.returned is None) != (b.returned is None) and not _unknown(a, b):
        span = next((p.return_span for p in paths if p.returned is not None and p.return_span), ev.span(node))
        ev.error("TS102", "a value is returned on one path only; add a return at the end of the function", span)
        ev.frame.returned = UNKNOWN
        return Flow.RETURN
    merger = Merger(ev, node.test, (a.block, b.block))
    template = merger.merge(a.returned, b.returned, "the returned value")
    held = {s.key: merger.merge(a.names[s.key], b.names[s.key], s.key) for s in ev.states}
    results = build(ev, node, test, paths, merger)
    ev.frame.returned = merger.fill(template, results)
    states.out_of(ev, merger.fill(held, results))
    ev.frame.return_span = a.return_span or b.return_span
    return Flow.RETURN


def _unknown(*paths: Path) -> bool:
    return any(isinstance(p.returned, Unknown) for p in paths)


def merge_names(ev: Evaluator, node: ast.If, test: Value, paths: list[Path], before: dict[str, Any]) -> None:
    a, b = paths
    merger = Merger(ev, node.test, (a.block, b.block))
    merged: dict[str, Any] = {}
    ev.frame.maybe = a.maybe | b.maybe
    for name in {**a.names, **b.names}:
        if name in a.names and name in b.names and name not in ev.frame.maybe:
            merged[name] = merger.merge(a.names[name], b.names[name], repr(name))
        else:
            merged[name] = a.names.get(name, b.names.get(name))
            ev.frame.maybe.add(name)
    results = build(ev, node, test, paths, merger)
    before = states.into(ev, dict(before))
    names = {n: v if v is before.get(n, UNKNOWN) else merger.fill(v, results) for n, v in merged.items()}
    ev.frame.names = states.out_of(ev, names)


def build(ev: Evaluator, node: ast.AST, test: Value, paths: list[Path], merger: Merger) -> list[Value]:
    for p, values in zip(paths, merger.yields, strict=True):
        finish(ev, p.block, values, node)
    regions = [Region([p.block]) for p in paths]
    types = [v.type for v in merger.yields[0]]
    return ev.builder.op(f"{ev.layer.prefix}.if", (test,), types, regions=regions, span=ev.span(node)).results


def finish(ev: Evaluator, block: Block, values: list[Value], node: ast.AST) -> None:
    block.append(Op(f"{ev.layer.prefix}.yield", values, (), ev.span(node)))


@method
def choose(ev: Evaluator, node: ast.IfExp, condition: Any) -> Any:
    test = ev.layer.condition(node.test, condition)
    if test is None:
        return undecided.either_value(ev, node, UNKNOWN)
    paths: list[Path] = []
    facts = ev.facts
    for side in (node.body, node.orelse):
        block, ev.facts, held = Block(), facts.copy(), states.into(ev, {})
        with _inside(ev, block):
            value = ev.eval(side)
        ev.facts = facts
        paths.append(Path(block, states.into(ev, {}), Flow.NEXT, value, None))
        states.out_of(ev, held)
    merger = Merger(ev, node.test, (paths[0].block, paths[1].block))
    template = merger.merge(paths[0].returned, paths[1].returned, "the value")
    a, b = (p.names for p in paths)
    changed: dict[str, Any] = {s.key: merger.merge(a[s.key], b[s.key], s.key) for s in ev.states}
    results = build(ev, node, test, paths, merger)
    states.out_of(ev, merger.fill(changed, results))
    return merger.fill(template, results)


# loops


@method
def for_loop(ev: Evaluator, node: ast.For, counting: Counting) -> Flow:
    span = ev.span(node.iter)
    bounds = [ev.layer.lift(v, ev.layer.counter(), span) for v in (counting.start, counting.stop, counting.step)]
    if any(b is None for b in bounds):
        return undecided.loop(ev, node, counting)
    if not isinstance(node.target, ast.Name):
        ev.error("TS102", "the loop needs a single name as its counter", node.target)
        return undecided.loop(ev, node, counting)
    if node.orelse:
        ev.error(
            "TS102",
            "without break, the else of a loop over ts.range always runs; write its statements after the loop",
            node.orelse[0],
        )
    carried = Carried(ev, node, (stored_names(node.body) | _parted(ev, node)) - {node.target.id})
    body = Block()
    for _ in range(ATTEMPTS):
        body = Block()
        counter = body.add_arg(ev.layer.counter(), node.target.id)
        carried.enter(body)
        ev.assign_name(node.target.id, counter, node.target)
        _body(ev, node, body)
        if carried.leave(body):
            break
        carried.discard(body)
    finish(ev, body, carried.next, node)
    operands = [b for b in bounds if b is not None] + carried.initial
    op = ev.builder.op(
        f"{ev.layer.prefix}.for",
        operands,
        [v.type for v in carried.initial],
        regions=[Region([body])],
        span=ev.span(node),
    )
    carried.after(op.results, {node.target.id})
    return Flow.NEXT


@method
def while_loop(ev: Evaluator, node: ast.While, mark: LoopMark = LoopMark()) -> Flow:  # noqa: B008  (it is frozen)
    """`mark.going`: the name of a flag that is carried, where the loop can be left by break."""
    flag = {mark.going} if mark.going else set[str]()
    carried = Carried(ev, node, stored_names([*node.body, ast.Expr(node.test)]) | _parted(ev, node) | flag)
    head, body, test = Block(), Block(), None
    for _ in range(ATTEMPTS):
        head, body = Block(), Block()
        carried.enter(head)
        with ev.builder.inside(head):
            test = ev.layer.condition(node.test, ev.eval(node.test))
        if test is None:
            carried.restore()
            return undecided.loop(ev, node, UNKNOWN)
        carried.enter(body)
        _body(ev, node, body, mark)
        if carried.leave(body):
            break
        carried.discard(head)
        carried.discard(body)
    finish(ev, head, [test] if test is not None else [], node)
    finish(ev, body, carried.next, node)
    regions = [Region([head]), Region([body])]
    types = [v.type for v in carried.initial]
    op = ev.builder.op(f"{ev.layer.prefix}.while", carried.initial, types, regions=regions, span=ev.span(node))
    carried.after(op.results, set())
    return ev.run(node.orelse)


def _parted(ev: Evaluator, node: ast.For | ast.While) -> frozenset[str]:
    """Names of tensors that a loop stores to in part: it carries them like those that it assigns."""
    return frozenset(n for n in parted_names(node) if isinstance(ev.frame.names.get(n), Value))


def _body(ev: Evaluator, node: ast.For | ast.While, block: Block, mark: LoopMark = LoopMark()) -> None:  # noqa: B008
    """The loop's statements, once."""
    saved = Snapshot(ev.frame)
    ev.frame.rests.append(mark)
    try:
        with ev.builder.inside(block):
            flow = ev.run(node.body)
    finally:
        ev.frame.rests.pop()
    raised = flow is Flow.RETURN and isinstance(ev.frame.returned, Unknown)  # which has been reported
    if flow in (Flow.BREAK, Flow.RETURN) and not raised:
        word = "break" if flow is Flow.BREAK else "return"
        message = f"{word} without a condition ends this loop, which runs when the program runs, in its first round"
        if flow is Flow.RETURN:
            message = "a loop over ts.range cannot be left by return; return after the loop"
        where = next((n for n in ast.walk(node) if isinstance(n, (ast.Break, ast.Return))), node)
        ev.error("TS102", message, where, notes=(Note("this loop", ev.header(node)),))
    if saved.changed():
        saved.restore()
        message = (
            "a list or dict from outside is changed in a loop that runs when the program runs; its length must be known"
        )
        ev.error(
            "TS102",
            message,
            ev.header(node),
            notes=(Note("unroll it with ts.static_range if the number of iterations is known"),),
        )


# The values a structured loop carries from one iteration to the next.


class Carried:
    """Names that the body assigns and that were bound before: their leaves (tensors, numbers) become block arguments.

    A Python number has no dtype of its own. It starts with the one it would have alone, and where the body gives it
    another, `leave` answers False and the loop is evaluated again with that type. A number that a dataclass holds is
    configuration, and is carried only where the body changes it.
    """

    def __init__(self, ev: Evaluator, node: ast.AST, assigned: Iterable[str]) -> None:
        self.ev, self.node = ev, node
        self.before = states.into(ev, dict(ev.frame.names))
        self.maybe = set(ev.frame.maybe)
        targets = ast.walk(node.target) if isinstance(node, ast.For) else ()
        self.own = {*assigned, *(n.id for n in targets if isinstance(n, ast.Name))}
        """what the loop's statements assign; a call of a kernel changes other names"""
        self.changing: set[tuple[str, int]] = set()
        """the numbers in dataclasses that the body changes, by name and place"""
        self._start_with(assigned)

    def _start_with(self, assigned: Iterable[str]) -> None:
        # What may be unbound, such as a name of an earlier loop's body, has no value to start from.
        bound = [n for n in assigned if n in self.before and n not in self.maybe]
        self.names = sorted(n for n in bound if not isinstance(self.before[n], Unknown))
        self.initial: list[Value] = []
        self.number: list[bool] = []
        self.next: list[Value] = []
        self.unknown: set[str] = set()
        """names whose values after an iteration are not known"""
        self.places: dict[str, set[int]] = {}
        """which leaves of a name are carried"""
        for name in self.names:
            self.before[name] = self.ev.whole(self.node, self.before[name])
            places = self.places[name] = set[int]()
            for place, (leaf, held) in enumerate(held_leaves(self.before[name])):
                if _carriable(self.ev, leaf) and (
                    not (held and isinstance(leaf, NUMBERS)) or (name, place) in self.changing
                ):
                    places.add(place)
                    self._start(leaf, None)

    def _start(self, leaf: Any, like: Type | None) -> None:
        value = self.ev.layer.lift(leaf, like, self.ev.span(self.node))
        assert value is not None
        self.initial.append(value)
        self.number.append(isinstance(leaf, NUMBERS))

    def enter(self, block: Block) -> None:
        """Binds the names to fresh block arguments."""
        args = iter([block.add_arg(v.type, v.hint) for v in self.initial])
        self.ev.frame.names = dict(self.before)
        self.ev.frame.maybe = set(self.maybe)
        for name in self.names:
            self.ev.frame.names[name] = self._rebuilt(name, args)
        states.out_of(self.ev, self.ev.frame.names)

    def leave(self, block: Block) -> bool:
        """Collects the values at the end of the body. False: a number changed, or its type, or a kernel has stored to a
        tensor that is carried on from here; evaluate again."""
        others = self.before.keys() - self.own - set(self.names)
        stored = [n for n in states.changed(self.ev, self.before) if n in others]
        names = states.into(self.ev, self.ev.frame.names)
        tensors = [n for n in sorted(others) if isinstance(self.before[n], Value)]
        stored += [n for n in tensors if isinstance(now := names.get(n), Value) and now is not self.before[n]]
        if stored:
            self._start_with([*self.names, *stored])
            return False
        ends = {n: self._pairs(n, self.before[n], self.ev.frame.names.get(n, UNKNOWN)) for n in self.names}
        changed = {
            (name, i)
            for name, pairs in ends.items()
            for i, (was, now) in enumerate(pairs)
            if i not in self.places[name] and isinstance(was, NUMBERS) and _carriable(self.ev, now)
            if type(was) is not type(now) or was != now
        }
        if changed:
            self.changing |= changed
            self._start_with(self.names)
            return False
        self.next, self.unknown, settled, i = [], set(), True, 0
        for name, pairs in ends.items():
            for place, (was, now) in enumerate(pairs):
                if place not in self.places[name]:
                    self._unchanged(name, was, now)
                    continue
                with self.ev.builder.inside(block):
                    value = (
                        self.ev.layer.lift(now, self.initial[i].type, self.ev.span(self.node))
                        if not isinstance(now, Unknown)
                        else None
                    )
                if isinstance(now, Unknown):
                    self.unknown.add(name)
                if value is not None and value.type != self.initial[i].type and self.number[i]:
                    with self.ev.builder.at(self.ev.span(self.node)):
                        retyped = self.ev.layer.lift(was, value.type, self.ev.span(self.node))
                    if retyped is not None and retyped.type == value.type:
                        self.initial[i], settled = retyped, False
                if value is None or (value.type != self.initial[i].type and settled):
                    self._differs(name, now, value, i)
                    value = block.args[i - len(self.initial)]
                self.next.append(value)
                i += 1
        return settled

    def _pairs(self, name: str, old: Any, new: Any) -> list[tuple[Any, Any]]:
        """What is carried at each place, before and after an iteration."""
        kinds = (list, tuple, dict, Record)
        other = type(old) is not type(new) and isinstance(old, kinds) and not isinstance(new, Unknown)
        pairs = None if other else paired(old, new)
        if pairs is None:
            self.ev.error("TS212", f"{name!r} has a different structure after an iteration", self.ev.header(self.node))
            return paired(old, UNKNOWN) or []
        return pairs

    def _unchanged(self, name: str, was: Any, now: Any) -> None:
        same = was is now or (is_static(was) and is_static(now) and type(was) is type(now) and was == now)
        if not same and not isinstance(now, Unknown):
            message = f"{name!r} is {type_name(was)} before the loop and {type_name(now)} after an iteration"
            self.ev.error(
                "TS212",
                f"{message}; how often the loop runs is only known when the program runs",
                self.ev.header(self.node),
            )

    def _differs(self, name: str, now: Any, value: Value | None, i: int) -> None:
        if isinstance(now, Unknown):
            return
        first = self.initial[i]
        notes = [Note(f"{first.type.pretty()} here", first.op.span)] if first.op else []
        if value is not None and value.op:
            notes.append(Note(f"{value.type.pretty()} here", value.op.span))
        after = value.type.pretty() if value is not None else type_name(now)
        message = f"{name!r} is {first.type.pretty()} before the loop and {after} after an iteration"
        if value is not None and (advice := _advice(first.type, value)):
            message = f"{message}; {advice}"
        self.ev.error("TS212", message, self.ev.header(self.node), notes=notes)

    def _rebuilt(self, name: str, values: Iterator[Value]) -> Any:
        """What a name held before the loop, with the leaves that are carried replaced by the next of `values`."""
        places = count()

        def rebuilt(old: Any) -> Any:
            if is_sequence(old):
                return type(old)(rebuilt(v) for v in old)
            if is_dict(old):
                return {k: rebuilt(v) for k, v in old.items()}
            if isinstance(old, Record) and not old.is_state:
                return Record(old.type_name, rebuilt(old.members), old.cls, old.outside)
            return next(values) if next(places) in self.places[name] else old

        return rebuilt(self.before[name])

    def after(self, results: list[Value], local: set[str]) -> None:
        """Names after the loop: carried ones hold the results; what only the body assigned may be unbound."""
        inside = self.ev.frame.names
        names = dict(self.before)
        values = iter(results)
        for name in self.names:
            names[name] = self._rebuilt(name, values)
        for name in inside.keys() - names.keys():
            names[name] = inside[name]
            self.maybe.add(name)
        for name in local & self.before.keys():
            self.maybe.add(name)
        self.ev.frame.names, self.ev.frame.maybe = states.out_of(self.ev, names), self.maybe

    def restore(self) -> None:
        self.ev.frame.names, self.ev.frame.maybe = states.out_of(self.ev, dict(self.before)), set(self.maybe)

    @staticmethod
    def discard(block: Block) -> None:
        """Drops an attempt's ops, so that they do not count as users of values."""
        for op in reversed([op for top in block.ops for op in top.walk()]):
            op.set_operands(())


def _carriable(ev: Evaluator, value: Any) -> bool:
    return ev.layer.owns(value) or isinstance(value, NUMBERS)


def _advice(before: Type, after: Value) -> str:
    """How a carried value keeps its dtype where nothing else differs, or stays one number under a mask."""
    shapes = getattr(before, "shape", None), getattr(after.type, "shape", ())
    if shapes[0] == () and after.op is not None and after.op.name == "tile.where":
        summed = "ts.tile.sum(ts.tile.where(mask, value, 0))"
        return f"under a mask each lane has a value of its own; for one of all lanes, add {summed} outside of the mask"
    if shapes[0] != shapes[1] or type(before) is not type(after.type):
        return ""
    dtype: Any = getattr(before, "dtype", None)
    made = [v.op.name for v in (after, *(after.op.operands if after.op is not None else ())) if v.op is not None]
    if "tile.mma" in made:
        return "ts.tile.mma(a, b, acc) adds to acc in its dtype; alone it sums integers in int64, floats in f32 or f64"
    return f"ts.cast(value, ts.{dtype}) keeps it, in kernels ts.tile.cast"
