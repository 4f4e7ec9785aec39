"""Writers of pipelined loops: copies of later steps are started before a step computes, into rings of stages.

Where threads copy, each step has one barrier: behind it this step's copies have landed, and the stage of the step
before is free for the next fetch. Tensor copies (sm_90a) land at mbarriers instead, and a step waits for
its own alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.compiler.ir.core import Block, Op
from tessera.compiler.targets.cuda.emit.control import advance, carry, loop_bounds
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, handles
from tessera.compiler.targets.cuda.emit.memory import stages_of
from tessera.compiler.targets.cuda.emit.phases import WAIT
from tessera.compiler.targets.cuda.emit.warpgroups import fill_stage
from tessera.compiler.tile.pipelines import rings

WRITES = ("tile.store", "tile.scatter", "tile.store_shared")


@handles("pipeline")
def _pipeline(e: KernelEmitter, op: Op) -> None:
    """The first steps only fetch: one place starts copies, which keeps the code and its registers few."""
    e.headers |= {"shared", "memory"}
    lower, upper, step = loop_bounds(e, op)
    body, ring = op.regions[1].block, e.rings.get(op)
    filled = {tile: e.expr(tile) for tile in rings(op)}
    ahead = 0 if op in e.products.produced else stages_of(e, int(op.attrs["stages"])) - 1  # type: ignore[call-overload]
    names = carry(e, op.operands[3:], body.args[1:])
    counter = e.fresh(body.args[0].hint or "i")
    w = e.source
    copies = [x for x in op.regions[0].block.ops if x.name == "tile.copy_async"]
    head, tail, stage = f"ts::idx {counter} = {_steps(lower, step, -ahead)}", f"{counter} += {step}", ""
    if not ring or ahead:
        stage = e.fresh("stage")
        head, tail = f"{head}, {stage} = {-ahead}", f"{tail}, ++{stage}"
    if ring and _fills_before(e, op):
        e.marks.wait(op)
        w.write(e.barrier())  # what stood before the loop has arrived
        e.marks.end()
    fetches = e.fresh("fetches") if ring and op not in e.products.produced else ""
    if fetches:
        w.write(f"auto {fetches} = {ring};")
    with w.block(f"for ({head}; {counter} < {upper}; {tail})"):
        later = _steps(counter, step, ahead)
        if not ring:
            _fetch_by_threads(e, op, ahead, stage, later, upper, copies)
        elif _writes(e, (x for top in body.ops for x in top.walk())):
            w.write("ts::sync();")
        if fetches:
            e.marks.enter("load", copies)
            _fetch_by_tensor(e, op, fetches, later, upper)
        if ahead:
            e.marks.end()
            w.write(f"if ({stage} < 0) continue;")
        if ring:
            e.marks.enter(WAIT, copies)
            w.write(f"{ring}.wait();")
        for tile, name in filled.items():
            e.env[tile] = e.fresh(tile.hint or "tile")
            w.write(f"auto {e.env[tile]} = {name}[{f'{ring}.slot' if ring else stage}];")
        e.env[body.args[0]] = counter
        e.marks.end()
        e.emit_block(body)
        if ring:
            w.write(f"{ring}.release();")
            w.write(f"{ring}.next();")
        w.at(body.terminator.span)
        advance(e, names, body.terminator.operands)
    e.env.update(filled)
    e.env.update(zip(op.results, names, strict=True))


def _fetch_by_threads(
    e: KernelEmitter, op: Op, ahead: int, stage: str, later: str, upper: str, copies: Sequence[Op]
) -> None:
    w, fetched = e.source, op.regions[0].block
    e.marks.enter(WAIT if ahead else "load", copies)
    wait = "ts::publish_stage" if e.products.tiles else "ts::wait_for_stage"
    w.write(f"{wait}<{ahead - 1}>();" if ahead else "ts::sync();")
    if ahead:
        e.marks.enter("load", copies)
        later = _named(e, fetched, later)
    e.env[fetched.args[0]] = later
    slot = f"{stage} + {ahead}" if ahead else stage
    e.env.update({ring: f"{e.expr(ring)}[{slot}]" for ring in rings(op)})
    with w.block(f"if ({later} < {upper})"), e.marks.silent():
        e.emit_block(fetched)
    if not ahead:
        e.marks.enter(WAIT, copies)
    w.write("ts::commit();" if ahead else e.barrier())


def _fetch_by_tensor(e: KernelEmitter, op: Op, fetches: str, later: str, upper: str) -> None:
    """A thread of the program's fills the stage that the step before has left."""
    fetched = op.regions[0].block
    e.env[fetched.args[0]] = later = _named(e, fetched, later)
    with e.source.block(f"if (leader && {later} < {upper})"), e.marks.silent():
        fill_stage(e, op, fetches)


def _named(e: KernelEmitter, fetched: Block, later: str) -> str:
    name = e.fresh(f"{fetched.args[0].hint or 'i'}_ahead")
    e.source.write(f"ts::idx {name} = {later};")
    return name


def _writes(e: KernelEmitter, ops: Iterable[Op]) -> bool:
    """Whether threads write memory that others may read: steps are then kept apart."""
    for op in ops:
        other = op.name == "tile.mma" and (op, 0) not in e.products.sources
        staged = [i for i in range(2) if (s := e.products.sources.get((op, i))) and s.kind == "staged"]
        if op.name in WRITES or other or staged:
            return True
    return False


def _fills_before(e: KernelEmitter, pipeline: Op) -> bool:
    """Whether something that the loop may read is written outside of it, in an order that only a walk would show."""
    inside = set(pipeline.walk())
    block = e.kernel.region.block
    outside = [x for x in e.kernel.walk() if x not in inside]
    if pipeline.block is block:  # ops behind the loop do not matter
        later = {x for op in block.ops[block.ops.index(pipeline) :] for x in op.walk()}
        outside = [x for x in outside if x not in later]
    return _writes(e, outside) or any(x.name == "tile.copy_async" for x in outside)


def _steps(counter: str, step: str, n: int) -> str:
    """The counter `n` steps later."""
    if not n:
        return counter
    if step.isdigit():
        if counter.lstrip("-").isdigit():
            return str(int(counter) + n * int(step))
        return f"{counter} {'+' if n > 0 else '-'} {abs(n) * int(step)}"
    times = step if abs(n) == 1 else f"{abs(n)} * {step}"
    return f"{counter} {'+' if n > 0 else '-'} {times}"
