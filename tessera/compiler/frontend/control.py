"""Control flow that the program decides when it runs: `if`, conditional expressions, `while` and counted loops.

Both layers share it: the regions of `graph.if` and `tile.if` look alike. A branch that returns early takes the rest of
the function as its other path; what a loop changes becomes a carried value.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend import undecided
from tessera.compiler.frontend.carried import Carried
from tessera.compiler.frontend.frame import Flow, Loop
from tessera.compiler.frontend.inlining import stored_names
from tessera.compiler.frontend.merging import Merger, Path
from tessera.compiler.frontend.snapshot import Snapshot
from tessera.compiler.frontend.values import UNKNOWN, Counting, Unknown
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.errors import Note
from tessera.language.dims import Facts

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator

ATTEMPTS = 4
"""rounds in which a loop's carried numbers may find their dtype"""


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
            "whether the loop is left or goes on would depend on tensor elements; use ts.where, or a while loop",
            ev.header(node),
        )
    merge_names(ev, node, test, paths, before)
    return flows.pop() if len(flows) == 1 else Flow.NEXT


def path(ev: Evaluator, body: list[ast.stmt], before: dict[str, Any], node: ast.AST) -> Path:
    """Evaluates statements into a block of their own."""
    block, saved = Block(), Snapshot(ev.frame)
    outer, ev.frame.names = ev.frame.names, dict(before)
    maybe, ev.frame.maybe = ev.frame.maybe, set(ev.frame.maybe)
    try:
        with ev.builder.inside(block):
            flow = ev.run(body)
        found = Path(block, ev.frame.names, flow, ev.frame.returned, ev.frame.return_span, ev.frame.maybe)
    finally:
        ev.frame.names, ev.frame.maybe = outer, maybe
    if saved.changed():
        saved.restore()
        message = "a list or dict from outside is changed on a path that may not be taken; assign a name instead"
        ev.error("TS102", message, ev.header(node))
    return found


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
    outer, ev.frame.names = ev.frame.names, going.names
    ev.frame.maybe = going.maybe
    rests, ev.frame.rests = ev.frame.rests, []
    try:
        with ev.builder.inside(going.block):
            flow = ev.run(continuation)
            if flow is not Flow.RETURN:  # Python falls off the end
                ev.frame.returned, ev.frame.return_span = None, None
    finally:
        going.names, ev.frame.names, ev.frame.rests = ev.frame.names, outer, rests
    going.flow, going.returned, going.return_span = Flow.RETURN, ev.frame.returned, ev.frame.return_span
    return True


def _merge_returns(ev: Evaluator, node: ast.If, test: Value, paths: list[Path]) -> Flow:
    a, b = paths
    if (a.returned is None) != (b.returned is None) and not _unknown(a, b):
        span = next((p.return_span for p in paths if p.returned is not None and p.return_span), ev.span(node))
        ev.error("TS102", "a value is returned on one path only; add a return at the end of the function", span)
        ev.frame.returned = UNKNOWN
        return Flow.RETURN
    merger = Merger(ev, node.test, (a.block, b.block))
    template = merger.merge(a.returned, b.returned, "the returned value")
    ev.frame.returned = merger.fill(template, build(ev, node, test, paths, merger))
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
    ev.frame.names = {n: v if v is before.get(n, UNKNOWN) else merger.fill(v, results) for n, v in merged.items()}


def build(ev: Evaluator, node: ast.AST, test: Value, paths: list[Path], merger: Merger) -> list[Value]:
    for p, values in zip(paths, merger.yields, strict=True):
        finish(ev, p.block, values, node)
    regions = [Region([p.block]) for p in paths]
    types = [v.type for v in merger.yields[0]]
    return ev.builder.op(f"{ev.layer.prefix}.if", (test,), types, regions=regions, span=ev.span(node)).results


def finish(ev: Evaluator, block: Block, values: list[Value], node: ast.AST) -> None:
    block.append(Op(f"{ev.layer.prefix}.yield", values, (), ev.span(node)))


def choose(ev: Evaluator, node: ast.IfExp, condition: Any) -> Any:
    test = ev.layer.condition(node.test, condition)
    if test is None:
        return undecided.either_value(ev, node, UNKNOWN)
    paths: list[Path] = []
    facts = ev.facts
    for side in (node.body, node.orelse):
        block, ev.facts = Block(), facts.copy()
        with ev.builder.inside(block):
            value = ev.eval(side)
        ev.facts = facts
        paths.append(Path(block, {}, Flow.NEXT, value, None))
    merger = Merger(ev, node.test, (paths[0].block, paths[1].block))
    template = merger.merge(paths[0].returned, paths[1].returned, "the value")
    return merger.fill(template, build(ev, node, test, paths, merger))


# loops


def for_loop(ev: Evaluator, node: ast.For, counting: Counting) -> Flow:
    span = ev.span(node.iter)
    bounds = [ev.layer.lift(v, ev.layer.counter(), span) for v in (counting.start, counting.stop, counting.step)]
    if any(b is None for b in bounds):
        return undecided.loop(ev, node, counting)
    if not isinstance(node.target, ast.Name):
        ev.error("TS102", "the counter of this loop is one name", node.target)
        return undecided.loop(ev, node, counting)
    if node.orelse:
        ev.error(
            "TS102",
            "else after a loop over ts.range has no meaning; a loop without break always gets there",
            node.orelse[0],
        )
    carried = Carried(ev, node, stored_names(node.body) - {node.target.id})
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


def while_loop(ev: Evaluator, node: ast.While) -> Flow:
    carried = Carried(ev, node, stored_names([*node.body, ast.Expr(node.test)]))
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
        _body(ev, node, body)
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
    return Flow.NEXT


def _body(ev: Evaluator, node: ast.For | ast.While, block: Block) -> None:
    """The loop's statements, once; leaving the loop early is not possible here."""
    saved = Snapshot(ev.frame)
    ev.frame.rests.append(Loop())
    try:
        with ev.builder.inside(block):
            flow = ev.run(node.body)
    finally:
        ev.frame.rests.pop()
    if flow in (Flow.BREAK, Flow.RETURN):
        word = "break" if flow is Flow.BREAK else "return"
        message = f"{word} has no meaning in a loop that runs when the program runs; make it the condition of a while"
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
