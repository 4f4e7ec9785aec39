"""`break`, `continue` and `return` in loops that run when the kernel runs, under conditions known only then.

The statements after `if c: continue` become the else branch. A loop with `break` or `return` also carries a flag that
says whether to go on. The flag masks the body, so later steps change nothing. The loop's op names the flag (attr
`going`), so targets may leave the loop early.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tessera.compiler.frontend.evaluate import control as shared
from tessera.compiler.frontend.kernel.control import lanes
from tessera.compiler.frontend.kernel.control.masks import (
    RETURNED,
    identify_results,
    place_of,
    read_again_by_lanes,
    run_under,
)
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.names.frame import Flow, LoopMark, Path
from tessera.compiler.frontend.syntax.assigned import jumps
from tessera.compiler.ir.core import Block, Value

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def enter(k: KernelState, node: ast.For | ast.While, first: Value | None = None) -> tuple[LoopMark, set[str]]:
    """The mark of a loop that is about to be read, and the names of the flags that it carries. `first`: its condition,
    where that is over lanes."""
    found = jumps(node)
    over_lanes = first is not None or place_of(node) in k.laned
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
    flow = k.ev.run(node.body) if mask is None else run_under(k, mask, node.body)
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
            k.ev.error(
                "TS102", "a value is returned from inside a loop; keep it in a name and return it after the loop", at
            )


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
            k.left |= {place_of(statements[i])}
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


def leave_lanes(k: KernelState, mask: Value) -> None:
    """`break` under a condition over lanes. A loop that has been read as one that all leave together is read again."""
    found = k.ev.frame.rest_of_round()
    if found is None:  # what the loop runs over is not known
        return
    mark, (statements, i) = k.ev.frame.rests[found[1]], k.ev.frame.rests[found[1] - 1]
    if mark.lanes:
        lanes.without(k, mark, mask)
    elif mark.going or isinstance(statements[i], ast.While):
        read_again_by_lanes(k, found[1])
    else:
        raise KernelFault(
            "TS102",
            "break under a condition over lanes leaves an unrolled loop for some lanes only; "
            "loop with ts.tile.range_k(...), which they may leave one by one",
        )
