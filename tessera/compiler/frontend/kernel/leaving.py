"""`break`, `continue` and `return` in loops that run when the kernel runs, under conditions known only then.

What stands behind `if c: continue` becomes the other path of that branch. A loop with `break` or `return` in it carries
a flag besides its values: whether it goes on. Its body runs under the flag, so that the steps that are left change
nothing, and the loop's op names the flag (attr `going`), so that targets may leave the loop there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tessera.compiler.frontend import control as shared
from tessera.compiler.frontend.frame import Flow, Loop
from tessera.compiler.frontend.kernel.axes import relation
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import Axis
from tessera.compiler.frontend.merging import Path
from tessera.compiler.ir.core import Block
from tessera.compiler.ir.types import TileType

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

RETURNED = "<returned>"
"""the flag of a kernel that returns from inside a loop; no program can write such a name"""


def jumps(node: ast.For | ast.While) -> set[type[ast.stmt]]:
    """Which of break and return leave this loop."""
    return {type(s) for s in _jumps(node.body, inside=False)}


def _jumps(body: list[ast.stmt], inside: bool) -> Iterator[ast.stmt]:
    for s in body:
        if isinstance(s, ast.Return) or (isinstance(s, ast.Break) and not inside):
            yield s
        elif not isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            deeper = inside or isinstance(s, (ast.For, ast.While))
            for part in ("body", "orelse"):
                yield from _jumps(getattr(s, part, []), deeper)


def enter(k: KernelState, node: ast.For | ast.While) -> tuple[Loop, set[str]]:
    """The mark of a loop that is about to be read, and the names of the flags that it carries."""
    found = jumps(node)
    if not found:
        return Loop(), set()
    names = k.ev.frame.names
    loop = Loop(f"<going {len(k.ev.frame.rests)}>")
    names[loop.going] = True
    if ast.Return not in found:
        return loop, {loop.going}
    names.setdefault(RETURNED, False)
    return loop, {loop.going, RETURNED}


def run_body(k: KernelState, node: ast.For | ast.While, loop: Loop, block: Block) -> None:
    """One step of the loop, into `block`. In a counted loop it runs under the flag; a `while` tests the flag itself."""
    frame = k.ev.frame
    frame.rests.append(loop)
    try:
        with k.ev.builder.inside(block):
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


def _settle(k: KernelState, step: Path, loop: Loop) -> None:
    """How a step ended, as flags."""
    if step.flow in (Flow.BREAK, Flow.RETURN):
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
    found = rest_of_step(k)
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
            k.left |= {(statements[i].lineno, statements[i].col_offset)}
            return False
        raise KernelFault(
            "TS102",
            "whether this unrolled loop is left is known only when the kernel runs; loop with ts.tile.range_k(...)",
        )
    for p in paths:
        if p.flow is Flow.NEXT:
            _run_on(k, p, statements, depth)
        if loop.going:
            _settle(k, p, loop)
    return True


def rest_of_step(k: KernelState) -> tuple[list[ast.stmt], int] | None:
    """The statements from here to the end of the innermost loop's body, and where its mark lies; None outside loops."""
    out: list[ast.stmt] = []
    rests = k.ev.frame.rests
    for depth in reversed(range(len(rests))):
        if isinstance(rests[depth], Loop):
            return out, depth
        statements, i = rests[depth]
        out += statements[i + 1 :]
    return None


def _run_on(k: KernelState, p: Path, statements: list[ast.stmt], depth: int) -> None:
    frame = k.ev.frame
    outer, frame.names = frame.names, p.names
    maybe, frame.maybe = frame.maybe, p.maybe
    rests, frame.rests = frame.rests, frame.rests[: depth + 1]
    try:
        with k.ev.builder.inside(p.block):
            p.flow = k.ev.run(statements)
            p.returned, p.return_span = frame.returned, frame.return_span
    finally:
        p.names, frame.names, frame.rests = frame.names, outer, rests
        p.maybe, frame.maybe = frame.maybe, maybe


def close(k: KernelState, node: ast.For | ast.While, loop: Loop) -> Flow:
    """Behind a loop: where the kernel returned inside it, the rest of the kernel does not run."""
    if not loop.going:
        return Flow.NEXT
    k.ev.frame.names.pop(loop.going, None)
    if ast.Return not in jumps(node) or k.returned_early:
        return Flow.NEXT
    at = ast.fix_missing_locations(
        ast.copy_location(ast.If(ast.Name(RETURNED, ast.Load()), [ast.Return(None)], []), node)
    )
    return shared.branch(k.ev, at, k.ev.frame.names[RETURNED])


def refuse_break() -> KernelFault:
    return KernelFault(
        "TS102",
        "break under a condition over lanes would end the loop for some lanes only; reduce the condition with "
        "ts.tile.any or all, or mask what follows",
    )


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
