"""Loops of kernels: grid axes, counted loops and `while`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.evaluate import control
from tessera.compiler.frontend.evaluate.control import Carried
from tessera.compiler.frontend.kernel.broadcasting import relation
from tessera.compiler.frontend.kernel.control import lanes
from tessera.compiler.frontend.kernel.control.branches import condition
from tessera.compiler.frontend.kernel.control.loop_exits import close, enter, run_body
from tessera.compiler.frontend.kernel.control.masks import FIXED
from tessera.compiler.frontend.kernel.grid import SERIAL
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import Axis, TileWindow, marks
from tessera.compiler.frontend.names.frame import Flow, LoopMark
from tessera.compiler.frontend.names.values import UNKNOWN, Counting
from tessera.compiler.frontend.syntax.assigned import jumps, parted_names, stored_names
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, TileType
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def loop(k: KernelState, node: ast.For, counting: Counting) -> Flow:
    if not isinstance(node.target, ast.Name):
        raise KernelFault("TS102", "a tile loop needs a single name as its counter")
    _refuse_else(k, node)
    start, stop, step = (
        k.operand(b) if isinstance(b, TileWindow) else b for b in (counting.start, counting.stop, counting.step)
    )
    if isinstance(known := k.known(step), int) and known < 1:
        message = f"a tile loop ascends: its step must be positive, not {known}"
        raise KernelFault("TS105", f"{message}; of i in range(n), n - 1 - i counts down" if known else message)
    counting = Counting(start, stop, step, counting.path)
    parallel = k.grid_loop and ast.Break not in jumps(node)
    if node is k.plan.outer and counting.path == "tessera.tile.range" and parallel:
        return _grid_axis(k, node, node.target.id, counting)
    return _serial(k, node, node.target, counting)


def _refuse_else(k: KernelState, node: ast.For | ast.While) -> None:
    if node.orelse:
        message = "without break, the else of a tile loop always runs; write its statements after the loop"
        if ast.Break in jumps(node):
            message = "a tile loop has no else; store in a variable whether it was left, and write an if after it"
        k.ev.error("TS102", message, node.orelse[0])


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
        c = k.coordinates.loop(target.id, bounds[0], extent, k.tiles.known(bounds[2]), span, counter)
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
        settled, others = carried.leave(body), _moved_axes(k, carried) - apart
        if settled and not others:
            break
        _read_again(k, said, others, apart)
        carried.discard(body)
    for name, value in fixed.items():
        if ev.frame.lookup(name) is not value:
            ev.error(
                "TS212",
                f"{name!r} is a different kind of value after an iteration",
                node,
            )
    _join(k, carried.initial, carried.next)
    control.finish(ev, body, carried.next, node)
    types, hints = [v.type for v in carried.initial], [v.hint for v in body.args[1:]]
    operands, regions = [*values, *carried.initial], [Region([body])]
    attrs = {"going": carried.names.index(mark.going)} if mark.going else {}  # flags come before what programs can name
    op = ev.builder.op("tile.for", operands, types, {**attrs}, regions=regions, span=ev.span(node), hints=hints)
    _after(k, carried, op, {target.id}, apart, ended)
    if len(ev.findings.errors) > found:  # something changes its type: no findings about what depends on it
        ev.frame.names.update(dict.fromkeys(carried.names, UNKNOWN))
        return Flow.NEXT
    return close(k, node, mark)


def _parts(k: KernelState, node: ast.For | ast.While) -> set[str]:
    """Names of tiles that a loop stores to in part: it carries them like those that it assigns."""
    return {n for n in parted_names(node) if k.is_tile(v := k.ev.frame.names.get(n)) and not isinstance(v, FIXED)}


def repeat(k: KernelState, node: ast.While, value: Any) -> Flow:
    """`while` on something that a whole program agrees on, or that each lane has its own of."""
    ev = k.ev
    _refuse_else(k, node)
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
        settled, others = carried.leave(body), _moved_axes(k, carried) - apart
        if (settled and not others) or test is None:
            break
        _read_again(k, said, others, apart)
        carried.discard(head)
        carried.discard(body)
    if test is None or len(ev.findings.errors) > found:
        ev.frame.names.update(dict.fromkeys(carried.names, UNKNOWN))
        return Flow.NEXT
    own = len(flags) if mark.tested else 0  # flags come first, and the condition alone changes these
    if not carried.unknown and all(new is arg for new, arg in zip(carried.next[own:], body.args[own:], strict=True)):
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
    """Removes a loop's findings, from `said` on, before it is evaluated again with more carried tiles without axes."""
    apart |= others
    if others:
        k.ev.findings.forget(said)
        k.ev.pending = [p for p in k.ev.pending if p[0] < said]


def _moved_axes(k: KernelState, carried: Carried) -> set[int]:
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
