"""`continue` and `break` under conditions that are known only when the program runs.

The statements after `if c: continue` become the else branch. A loop with `break` carries a flag and runs while the flag
is set and the loop's condition holds; a loop over `ts.range` becomes a `while` loop with a counter. The loop's `else`
runs if the flag is still set.
"""

from __future__ import annotations

import ast

from tessera.compiler.frontend.evaluate import control
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.frame import Flow, LoopMark, Path
from tessera.compiler.frontend.names.values import Counting
from tessera.compiler.frontend.syntax.assigned import jumps
from tessera.language.dims import Expr


def leave(ev: Evaluator, paths: list[Path]) -> bool:
    """Paths of a branch that end in different ways: those that go on take the rest of the loop's body, and the flag
    says whether there is another round. False where there is no such loop, or a return among them."""
    found = ev.frame.rest_of_round()
    if found is None or any(p.flow is Flow.RETURN for p in paths):
        return False
    statements, depth = found
    going = ev.frame.rests[depth].going
    if not going and any(p.flow is Flow.BREAK for p in paths):
        return False
    for p in paths:
        if p.flow is Flow.NEXT:
            control.run_on(ev, p, statements, depth)
        if p.flow is Flow.BREAK:
            p.names[going], p.flow = False, Flow.CONTINUE
    return all(p.flow in (Flow.NEXT, Flow.CONTINUE) for p in paths)


def can_be_left(node: ast.For | ast.While) -> bool:
    """Whether a break stands in the loop."""
    return ast.Break in jumps(node)


def repeat(ev: Evaluator, node: ast.While) -> Flow:
    """A `while` that break may leave. The condition is not asked again after a break."""
    going = f"<going {ev.frame.depth}.{len(ev.frame.rests)}>"
    ev.frame.names[going] = True
    test = ast.IfExp(ast.Name(going, ast.Load()), node.test, ast.Constant(False))
    made = ast.copy_location(ast.While(ast.copy_location(test, node.test), node.body, []), node)
    flow = control.while_loop(ev, ast.fix_missing_locations(made), LoopMark(going))
    if node.orelse:
        otherwise = ast.If(ast.copy_location(ast.Name(going, ast.Load()), node.test), node.orelse, [])
        flow = ev.run([ast.copy_location(otherwise, node)])
    ev.frame.names.pop(going, None)
    ev.frame.maybe.discard(going)
    return flow


def counted(ev: Evaluator, node: ast.For, counting: Counting) -> Flow:
    """A loop over `ts.range` that break may leave."""
    names = [f"<{part} {ev.frame.depth}.{len(ev.frame.rests)}>" for part in ("next", "stop", "step")]
    step = counting.step
    if not isinstance(step, (int, Expr)):
        ev.error("TS102", "the step of a loop that break may leave is a number that is known", node.iter)
        return Flow.NEXT
    for name, value in zip(names, (counting.start, counting.stop, step), strict=True):
        lifted = ev.layer.lift(value, ev.layer.counter(), ev.span(node.iter))
        if lifted is None:
            return Flow.NEXT
        ev.frame.names[name] = lifted

    def named(at: int) -> ast.Name:
        return ast.Name(names[at], ast.Load())

    order = ast.Gt() if isinstance(step, int) and step < 0 else ast.Lt()
    test = ast.Compare(named(0), [order], [named(1)])
    further = ast.Assign([ast.Name(names[0], ast.Store())], ast.BinOp(named(0), ast.Add(), named(2)))
    body = [ast.Assign([node.target], named(0)), further, *node.body]
    made = ast.While(test, body, node.orelse)
    for part in (test, *body[:2]):
        ast.copy_location(part, node.iter)
    flow = repeat(ev, ast.fix_missing_locations(ast.copy_location(made, node)))
    for name in names:
        ev.frame.names.pop(name, None)
        ev.frame.maybe.discard(name)
    return flow
