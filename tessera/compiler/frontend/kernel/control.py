"""Control flow of kernels: masked statements, uniform branches, grid axes and serial loops."""

from __future__ import annotations

import ast
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.evaluate import control
from tessera.compiler.frontend.evaluate import control as shared
from tessera.compiler.frontend.evaluate.control import Carried
from tessera.compiler.frontend.kernel import lanes
from tessera.compiler.frontend.kernel.access import NOT_KNOWN
from tessera.compiler.frontend.kernel.broadcasting import relation
from tessera.compiler.frontend.kernel.grid import SERIAL, base_name
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Axis, LaunchContext, Panel, Shared, Transposed, View, marks
from tessera.compiler.frontend.names.frame import Flow, LoopMark, Path
from tessera.compiler.frontend.names.values import MISSING, UNKNOWN, Counting, Unknown
from tessera.compiler.frontend.syntax.assigned import jumps, stored_names
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, TileType
from tessera.language import dtypes
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

FIXED = (View, Shared, Transposed, Panel, LaunchContext)
"""values that name something; no path and no loop can make another one of them"""


# masks


def branch(k: KernelState, node: ast.If, condition: Any) -> Flow:
    value = k.operand(condition)
    if isinstance(value, Value) and isinstance(value.type, TileType) and (value.type.rank or k.choosing):
        return _masked_branch(k, node, k.tiles.truth(value))
    flow = control.branch(k.ev, node, condition)
    identify_results(k)
    return flow


def _masked_branch(k: KernelState, node: ast.If, mask: Value) -> Flow:
    """`if i < n:` over lanes: both sides run, each stores only where its condition holds."""
    frame = k.ev.frame
    flows, gives = [_under(k, mask, node.body), Flow.NEXT], [frame.returned, None]
    inverse = k.tiles.map("logical_not", mask) if node.orelse or flows[0] is not Flow.NEXT else mask
    if node.orelse:
        flows[1] = _under(k, inverse, node.orelse)
        gives[1] = frame.returned
    for n, left in enumerate((mask, inverse)):
        if flows[n] is Flow.BREAK:  # these lanes leave; for what follows in this step that is what continue does
            _lanes_leave(k, left)
            flows[n] = Flow.CONTINUE
    if Flow.RETURN in flows and (frame.depth or k.choosing):
        return _return_of_lanes(k, node, (mask, inverse), flows, gives)
    if Flow.RETURN in flows and frame.returned is not None and not isinstance(frame.returned, Unknown):
        raise KernelFault("TS102", "a masked return gives no value; store the result where the condition holds")
    if Flow.NEXT not in flows or flows[0] is flows[1]:
        return flows[0]
    ended, goes_on = (flows[0], inverse) if flows[1] is Flow.NEXT else (flows[1], mask)
    _rest_under(k, goes_on, ended)
    return ended


def _rest_under(k: KernelState, mask: Value, ended: Flow) -> None:
    """What stands behind `if i >= n: return` (or continue) runs where the condition does not hold."""
    frame = k.ev.frame
    step = k.ev.frame.rest_of_round()
    if ended is Flow.CONTINUE:
        assert step is not None
        rest, kept = step[0], frame.rests[: step[1] + 1]
    else:
        rest, kept = frame.continuation(), []
    if rest is None:
        raise KernelFault(
            "TS102", "a return inside a loop would end some lanes only; put what follows under the opposite condition"
        )
    rests, frame.rests = frame.rests, kept
    try:
        flow = _under(k, mask, rest)
        if flow is Flow.BREAK:
            _lanes_leave(k, mask)
        elif flow is Flow.RETURN and ended is Flow.CONTINUE:
            raise KernelFault(
                "TS102", "a return inside a loop would end some lanes only; put it under a condition of all lanes"
            )
    finally:
        frame.rests = rests


def _return_of_lanes(
    k: KernelState, node: ast.If, masks: tuple[Value, Value], flows: Sequence[Flow], gives: list[Any]
) -> Flow:
    """`if x > 0: return x` in a function that a kernel calls: each lane gets what it returned, be it further down."""
    frame = k.ev.frame
    for n, mask in enumerate(masks):
        if flows[n] is Flow.RETURN:
            continue
        rest = frame.continuation() if flows[n] is Flow.NEXT else None
        if rest is None:
            kept = "keep the value in a name, and return it behind the loop"
            raise KernelFault("TS102", f"a return inside a loop would end some lanes only; {kept}")
        rests, frame.rests = frame.rests, []
        try:
            gives[n] = frame.returned if _under(k, mask, rest) is Flow.RETURN else None
        finally:
            frame.rests = rests
    if any(isinstance(v, Unknown) for v in gives):
        frame.returned = UNKNOWN
    elif (gives[0] is None) != (gives[1] is None):
        why = "a value is returned for some lanes only; add a return at the end of the function"
        frame.returned = k.ev.error("TS102", why, k.ev.header(node))
    else:
        frame.returned = None if gives[0] is None else k.chosen(masks[0], *gives)
    return Flow.RETURN


def _under(k: KernelState, mask: Value, body: list[ast.stmt]) -> Flow:
    """Runs statements where `mask` holds; what they assign keeps its old value elsewhere."""
    before = dict(k.ev.frame.names)
    with masking(k, mask):
        flow = k.ev.run(body)
    for name, new in k.ev.frame.names.items():
        old = before.get(name, MISSING)
        if new is old or old is MISSING or isinstance(new, Unknown) or isinstance(old, Unknown):
            continue
        if name == RETURNED:
            raise KernelFault(
                "TS102", "a return inside a loop would end some lanes only; put it under a condition of all lanes"
            )
        marks_of_loops = (m for m in enumerate(k.ev.frame.rests) if isinstance(m[1], LoopMark))
        left = next((at for at, mark in marks_of_loops if mark.going == name), None)
        if left is not None:  # a break for all, but under a condition over lanes: some leave
            _read_by_lanes(k, left)
            k.ev.frame.names[name] = old
            continue
        if isinstance(new, FIXED) or isinstance(old, FIXED):
            raise KernelFault("TS212", f"{name!r} cannot change under a condition over lanes")
        k.ev.frame.names[name] = k.chosen(mask, new, old)
    return flow


@contextmanager
def masking(k: KernelState, mask: Value) -> Generator[None]:
    memory = k.memory
    outer = memory.mask, memory.condition
    if memory.mask is None:
        memory.mask = mask
    else:
        memory.mask = k.tiles.map("logical_and", memory.mask, mask)
    memory.condition &= k.conditions.get(mask, NOT_KNOWN)
    try:
        yield
    finally:
        memory.mask, memory.condition = outer


# loops


def loop(k: KernelState, node: ast.For, counting: Counting) -> Flow:
    if not isinstance(node.target, ast.Name):
        raise KernelFault("TS102", "the counter of a tile loop is one name")
    parallel = k.grid_loop and ast.Break not in jumps(node)
    if node is k.plan.outer and counting.path == "tessera.tile.range" and parallel:
        return _grid_axis(k, node, node.target.id, counting)
    return _serial(k, node, node.target, counting)


def _grid_axis(k: KernelState, node: ast.For, name: str, counting: Counting) -> Flow:
    """The outermost range: every program takes one of its steps."""
    bounds = [counting.start, counting.stop, counting.step]
    if any(isinstance(b, Value) or marks(b) for b in bounds):
        return _serial(k, node, node.target, counting)  # type: ignore[arg-type]
    c = k.coordinates.on_grid(node, name, counting.stop, counting.step, k.ev.span(node.iter), counting.start)
    k.speculated = c
    k.ev.assign_name(name, c.offset, node.target)
    k.ev.frame.rests.append(LoopMark(serial=False))
    try:
        flow = k.ev.run(node.body)
    finally:
        k.ev.frame.rests.pop()
    return Flow.NEXT if flow is Flow.CONTINUE else flow


def _serial(k: KernelState, node: ast.For, target: ast.Name, counting: Counting) -> Flow:
    ev = k.ev
    bounds = [k.index(b) for b in (counting.start, counting.stop, counting.step)]
    values = [k.indices.emit(b) for b in bounds]
    if node.orelse:
        ev.error(
            "TS102", "without break, the else of a tile loop always runs; write it behind the loop", node.orelse[0]
        )
    extent = counting.stop if isinstance(counting.stop, (int, Expr)) else None
    changed = stored_names(node.body) | _parts(k, node)
    assigned = {n for n in changed - {target.id} if not isinstance(ev.frame.lookup(n), FIXED)}
    fixed = {n: v for n in stored_names(node.body) if isinstance(v := ev.frame.lookup(n), FIXED)}
    span = ev.span(node.iter)
    mark, flags = enter(k, node)
    carried = Carried(ev, node, assigned | flags)
    body, found, apart, said = Block(), 0, set[int](), len(ev.findings.items)
    ended = frozenset[str]()
    for _ in range(control.ATTEMPTS):
        body = Block()
        counter = body.add_arg(INDEX, target.id)
        c = k.coordinates.loop(target.id, extent, k.tiles.known(bounds[2]), span, counter)
        ended = marks(c.offset)
        carried.enter(body)
        _identify(k, carried.initial, body.args[1:], apart)
        ev.frame.names[target.id] = c.offset
        if (
            counting.path != f"tessera.tile.{SERIAL}"
        ):  # a counter that the text does not show is not shown as assigned either
            ev.assign_name(target.id, c.offset, target)
        run_body(k, node, mark, body)
        found = len(ev.findings.errors)
        settled, others = carried.leave(body), _apart(k, carried) - apart
        if settled and not others:
            break
        _read_again(k, said, others, apart)
        carried.discard(body)
    for name, value in fixed.items():
        if ev.frame.lookup(name) is not value:
            ev.error(
                "TS212",
                f"{name!r} is another kind of value after an iteration",
                node,
            )
    _join(k, carried.initial, carried.next)
    control.finish(ev, body, carried.next, node)
    types, hints = [v.type for v in carried.initial], [v.hint for v in body.args[1:]]
    operands, regions = [*values, *carried.initial], [Region([body])]
    attrs = {"going": carried.names.index(mark.going)} if mark.going else {}  # flags come before what programs can name
    op = ev.builder.op("tile.for", operands, types, {**attrs}, regions=regions, span=ev.span(node), hints=hints)
    _after(k, carried, op, {target.id}, apart, ended)
    if len(ev.findings.errors) > found:  # something does not keep its type: nothing more is said of what depends on it
        ev.frame.names.update(dict.fromkeys(carried.names, UNKNOWN))
        return Flow.NEXT
    return close(k, node, mark)


def _parts(k: KernelState, node: ast.For | ast.While) -> set[str]:
    """Names of tiles a part of which a loop stores to: it carries them as it does those that it assigns."""
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    found = {name for n in stored if (name := base_name(n))}
    return {n for n in found if k.is_tile(v := k.ev.frame.names.get(n)) and not isinstance(v, FIXED)}


def repeat(k: KernelState, node: ast.While, value: Any) -> Flow:
    """`while` on something that a whole program agrees on, or that each lane has its own of."""
    ev = k.ev
    first = lanes.condition_over_lanes(k, value)
    if first is None and condition(k, node.test, value) is None:  # says whether it can be one
        ev.frame.names.update(dict.fromkeys(stored_names(node.body), UNKNOWN))
        return Flow.NEXT
    assigned = stored_names([*node.body, ast.Expr(node.test)]) | _parts(k, node)
    mark, flags = enter(k, node, first)
    carried = Carried(ev, node, flags | {n for n in assigned if not isinstance(ev.frame.lookup(n), FIXED)})
    head, body, found, apart, said = Block(), Block(), 0, set[int](), len(ev.findings.items)
    test: Value | None = None
    for _ in range(control.ATTEMPTS):
        head, body = Block(), Block()
        carried.enter(head)
        _identify(k, carried.initial, head.args, apart)
        with ev.builder.inside(head):
            going = ev.frame.names[mark.going] if mark.going else None
            test = going if mark.tested else condition(k, node.test, ev.eval(node.test))
            if going is not None and test is not None and test is not going:
                test = k.tiles.map("logical_and", test, going)
        carried.enter(body)
        _identify(k, carried.initial, body.args, apart)
        found = len(ev.findings.errors)
        run_body(k, node, mark, body)
        settled, others = carried.leave(body), _apart(k, carried) - apart
        if (settled and not others) or test is None:
            break
        _read_again(k, said, others, apart)
        carried.discard(head)
        carried.discard(body)
    if test is None or len(ev.findings.errors) > found:
        ev.frame.names.update(dict.fromkeys(carried.names, UNKNOWN))
        return Flow.NEXT
    own = len(flags) if mark.tested else 0  # flags come first, and the condition alone changes these
    if all(new is arg for new, arg in zip(carried.next[own:], body.args[own:], strict=True)):
        raise KernelFault("TS102", "nothing that this condition depends on changes in the loop, so it would never end")
    _join(k, carried.initial, carried.next)
    control.finish(ev, head, [test], node)
    control.finish(ev, body, carried.next, node)
    regions = [Region([head]), Region([body])]
    types = [v.type for v in carried.initial]
    op = ev.builder.op("tile.while", carried.initial, types, regions=regions, span=ev.span(node))
    _after(k, carried, op, set(), apart)
    return close(k, node, mark)


def _after(
    k: KernelState, carried: Carried, op: Op, local: set[str], apart: set[int], ended: frozenset[str] = frozenset()
) -> None:
    """The names behind a loop. What its axes are called is told by an iteration: of one that is not known, nothing."""
    carried.after(op.results, local)
    _identify(k, carried.initial, op.results, apart, ended)
    k.ev.frame.names.update(dict.fromkeys(carried.unknown, UNKNOWN))


def _identify(
    k: KernelState, initial: list[Value], values: list[Value], apart: set[int], ended: frozenset[str] = frozenset()
) -> None:
    """Carried tiles lie along what they did before the loop; along nothing where an iteration gives others (`apart`),
    and where the counter that moved them has `ended`."""
    for i, (old, new) in enumerate(zip(initial, values, strict=True)):
        if isinstance(new.type, TileType) and isinstance(old.type, TileType):
            k.tiles.identities.like(new, old)
            axes = k.tiles.identities.of(old)
            kept = (Axis(size=a.size) if i in apart or a.walks & ended else a for a in axes)
            k.tiles.identities.set(new, tuple(kept))


def _read_again(k: KernelState, said: int, others: set[int], apart: set[int]) -> None:
    """Before a loop is read with more carried tiles along nothing: what was said of it, from `said` on, goes."""
    apart |= others
    if others:
        k.ev.findings.forget(said)
        k.ev.pending = [p for p in k.ev.pending if p[0] < said]


def _apart(k: KernelState, carried: Carried) -> set[int]:
    """Which carried tiles lie along other axes after an iteration than before."""
    of = k.tiles.identities.of
    out: set[int] = set()
    for i, (old, new) in enumerate(zip(carried.initial, carried.next, strict=False)):
        if isinstance(new.type, TileType) and new.type == old.type:
            how = [relation(a, b) for a, b in zip(of(old), of(new), strict=True)]
            out |= {i} if "different" in how or "unclear" in how else set()
    return out


def _join(k: KernelState, initial: list[Value], after: list[Value]) -> None:
    for old, new in zip(initial, after, strict=True):
        if isinstance(new.type, TileType) and isinstance(old.type, TileType) and new.type.shape == old.type.shape:
            for a, b in zip(k.tiles.identities.of(old), k.tiles.identities.of(new), strict=True):
                a.join(b)


def condition(k: KernelState, node: ast.AST, value: Any) -> Value | None:
    """A branch condition that all threads of a program agree on."""
    operand = k.operand(value)
    if not isinstance(operand, Value):
        operand = k.tiles.scalar(bool(operand), dtypes.bool_)
    t = tile_type(operand)
    if t.rank:
        k.ev.error(
            "TS102",
            f"the truth of a tile {t.pretty()} is not one value; reduce it with ts.tile.any or all, or use where",
            node,
        )
        return None
    return k.tiles.truth(operand)


# `break`, `continue` and `return` in loops that run when the kernel runs, under conditions known only then.
#
# What stands behind `if c: continue` becomes the other path of that branch. A loop with `break` or `return` in
# it carries a flag besides its values: whether it goes on. Its body runs under the flag, so that the steps that
# are left change nothing, and the loop's op names the flag (attr `going`), so that targets may leave the loop
# there.

RETURNED = "<returned>"
"""the flag of a kernel that returns from inside a loop; no program can write such a name"""


def enter(k: KernelState, node: ast.For | ast.While, first: Value | None = None) -> tuple[LoopMark, set[str]]:
    """The mark of a loop that is about to be read, and the names of the flags that it carries. `first`: its condition,
    where that is over lanes."""
    found = jumps(node)
    over_lanes = first is not None or _place(node) in k.laned
    if over_lanes and ast.Return in found:
        why = "a return in a loop that lanes leave one by one would end some of them only; leave it with break"
        raise KernelFault("TS102", why)
    if over_lanes:
        mark = lanes.entered(k, LoopMark(f"<going {len(k.ev.frame.rests)}>"), first)
        return mark, {mark.going, mark.lanes}
    if not found:
        return LoopMark(), set()
    names = k.ev.frame.names
    loop = LoopMark(f"<going {len(k.ev.frame.rests)}>")
    names[loop.going] = True
    if ast.Return not in found:
        return loop, {loop.going}
    names.setdefault(RETURNED, False)
    return loop, {loop.going, RETURNED}


def run_body(k: KernelState, node: ast.For | ast.While, loop: LoopMark, block: Block) -> None:
    """One step of the loop, into `block`. In a counted loop it runs under the flag; a `while` tests the flag itself."""
    frame = k.ev.frame
    frame.rests.append(loop)
    try:
        with k.ev.builder.inside(block):
            if loop.lanes:
                _step_of_lanes(k, node, loop)
                return
            if not loop.going or isinstance(node, ast.While):
                flow = k.ev.run(node.body)
                _settle(k, Path(block, frame.names, flow, frame.returned, frame.return_span), loop)
                return
            before = dict(frame.names)
            test = k.condition(node, before[loop.going])
            step, other = (shared.path(k.ev, body, before, node) for body in (node.body, []))
            _settle(k, step, loop)
            assert test is not None
            at = ast.copy_location(ast.If(ast.copy_location(ast.Constant(True), node), node.body, []), node)
            shared.merge_names(k.ev, at, test, [step, other], before)
            identify_results(k)
    finally:
        frame.rests.pop()


def _step_of_lanes(k: KernelState, node: ast.For | ast.While, loop: LoopMark) -> None:
    mask = lanes.going_on(k, loop)
    if mask is None:  # a number, which takes the shape that a path gives it
        k.ev.frame.names[loop.lanes] = True
    flow = k.ev.run(node.body) if mask is None else _under(k, mask, node.body)
    if flow is Flow.BREAK:
        lanes.without(k, loop, True)
    lanes.stepped(k, node, loop)


def _settle(k: KernelState, step: Path, loop: LoopMark) -> None:
    """How a step ended, as flags."""
    if step.flow in (Flow.BREAK, Flow.RETURN) and loop.lanes:
        outer, k.ev.frame.names = k.ev.frame.names, step.names
        with k.ev.builder.inside(step.block):
            lanes.without(k, loop, True)
        k.ev.frame.names = outer
    elif step.flow in (Flow.BREAK, Flow.RETURN):
        step.names[loop.going] = False
    if step.flow is Flow.RETURN:
        step.names[RETURNED] = True
        if step.returned is not None and not k.returned_early:
            k.returned_early = True
            at = step.return_span or k.ev.definition.span
            k.ev.error("TS102", "a value is returned from inside a loop; keep it in a name and return it behind it", at)


def leave(k: KernelState, paths: list[Path]) -> bool:
    """Paths of a branch that end in different ways, one of them the step of a loop: the others take the rest of the
    step, and flags say what follows. False where the branch stands in no such loop."""
    found = k.ev.frame.rest_of_round()
    if found is None:
        return False
    statements, depth = found
    loop = k.ev.frame.rests[depth]
    flows = {p.flow for p in paths}
    if not loop.serial and Flow.RETURN in flows:  # a grid axis: each program returns for itself
        return False
    if not loop.going and flows - {Flow.NEXT, Flow.CONTINUE}:
        statements, i = k.ev.frame.rests[depth - 1]
        if isinstance(statements[i], ast.While):  # read as one that ends at compile time: to be read again
            k.left |= {_place(statements[i])}
            return False
        raise KernelFault(
            "TS102",
            "whether this unrolled loop is left is known only when the kernel runs; loop with ts.tile.range_k(...)",
        )
    for p in paths:
        if p.flow is Flow.NEXT:
            shared.run_on(k.ev, p, statements, depth)
        if loop.going:
            _settle(k, p, loop)
    return True


def close(k: KernelState, node: ast.For | ast.While, loop: LoopMark) -> Flow:
    """Behind a loop: where the kernel returned inside it, the rest of the kernel does not run."""
    if not loop.going:
        return Flow.NEXT
    for flag in (loop.going, loop.lanes):
        k.ev.frame.names.pop(flag, None)
    if ast.Return not in jumps(node) or k.returned_early:
        return Flow.NEXT
    at = ast.fix_missing_locations(
        ast.copy_location(ast.If(ast.Name(RETURNED, ast.Load()), [ast.Return(None)], []), node)
    )
    return shared.branch(k.ev, at, k.ev.frame.names[RETURNED])


def _lanes_leave(k: KernelState, mask: Value) -> None:
    """`break` under a condition over lanes. A loop that has been read as one that all leave together is read again."""
    found = k.ev.frame.rest_of_round()
    assert found is not None
    mark, (statements, i) = k.ev.frame.rests[found[1]], k.ev.frame.rests[found[1] - 1]
    if mark.lanes:
        lanes.without(k, mark, mask)
    elif mark.going or isinstance(statements[i], ast.While):
        _read_by_lanes(k, found[1])
    else:
        raise KernelFault(
            "TS102",
            "break under a condition over lanes leaves an unrolled loop for some lanes only; "
            "loop with ts.tile.range_k(...), which they may leave one by one",
        )


def _read_by_lanes(k: KernelState, depth: int) -> None:
    """The kernel is to be read again: lanes leave the loop whose mark lies there one by one."""
    statements, i = k.ev.frame.rests[depth - 1]
    k.laned |= {_place(statements[i])}
    k.left |= {_place(statements[i])} if isinstance(statements[i], ast.While) else set()


def _place(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def identify_results(k: KernelState) -> None:
    """What a `tile.if` gives has the axes of what its regions yield."""
    block = k.ev.builder.block
    op = block.ops[-1] if block.ops else None
    if op is None or op.name != "tile.if":
        return
    for i, result in enumerate(op.results):
        if isinstance(result.type, TileType):
            yields = [r.block.terminator.operands[i] for r in op.regions]
            both = list(zip(*(k.tiles.identities.of(y) for y in yields), strict=True))
            for a, b in both:
                a.join(b)
            k.tiles.identities.like(result, yields[0])
            one = (a if relation(a, b) not in ("different", "unclear") else Axis(size=a.size) for a, b in both)
            k.tiles.identities.set(result, tuple(one))
