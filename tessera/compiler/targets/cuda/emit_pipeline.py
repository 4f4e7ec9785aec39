"""Writers of pipelined loops: copies of later steps are started before a step computes, into rings of stages.

One barrier stands in each step: behind it this step's copies have landed, and the stage of the step before is free,
into which the next fetch goes.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cuda.emit import KernelEmitter, handles
from tessera.compiler.targets.cuda.emit_control import advance, carry
from tessera.compiler.targets.cuda.emit_memory import stages_of
from tessera.compiler.tile.pipelines import rings


@handles("pipeline")
def _pipeline(e: KernelEmitter, op: Op) -> None:
    """The first steps only fetch: one place starts copies, which keeps the code and its registers few."""
    e.headers |= {"shared", "memory"}
    lower, upper, step = (e.expr(v) for v in op.operands[:3])
    fetched, body = (region.block for region in op.regions)
    filled = {ring: e.expr(ring) for ring in rings(op)}
    stages = stages_of(e, int(op.attrs["stages"]))  # type: ignore[call-overload]
    ahead = stages - 1
    names = carry(e, op.operands[3:], body.args[1:])
    counter = e.fresh(body.args[0].hint or "i")
    stage, later = e.fresh("stage"), e.fresh(f"{counter}_ahead") if ahead else counter
    w = e.source
    head = f"ts::idx {counter} = {_steps(lower, step, -ahead)}, {stage} = {-ahead}"
    with w.block(f"for ({head}; {counter} < {upper}; {counter} += {step}, ++{stage})"):
        w.write(f"ts::wait_for_stage<{stages - 2}>();" if ahead else "ts::sync();")
        if ahead:
            w.write(f"ts::idx {later} = {_steps(counter, step, ahead)};")
        e.env[fetched.args[0]] = later
        slot = f"{stage} + {ahead}" if ahead else stage
        e.env.update({ring: f"{name}[{slot}]" for ring, name in filled.items()})
        with w.block(f"if ({later} < {upper})"):
            e.emit_block(fetched)
        w.write("ts::commit();" if ahead else "ts::barrier();")
        if ahead:
            w.write(f"if ({stage} < 0) continue;")
        for ring, name in filled.items():
            e.env[ring] = e.fresh(ring.hint or "tile")
            w.write(f"auto {e.env[ring]} = {name}[{stage}];")
        e.env[body.args[0]] = counter
        e.emit_block(body)
        w.at(body.terminator.span)
        advance(e, names, body.terminator.operands)
    e.env.update(filled)
    e.env.update(zip(op.results, names, strict=True))


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
