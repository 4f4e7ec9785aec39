"""`tile.pipeline`: a serial loop whose copies into shared memory run ahead of the steps that read them.

Region 0, fetch(counter), starts the copies of one step; region 1, body(counter, carried), is the step itself and reads
the tiles that fetch filled. Such a tile is a ring: its `alloc_shared` has attr `stages`, and a step sees the stage that
its own fetch filled. fetch may run up to `stages` - 1 steps ahead, never behind. A step starts with a barrier: its own
copies, and whatever was copied before the loop, have then arrived, and the step before it has ended in all threads.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.spec import FOR, demand, spec
from tessera.compiler.ir.types import INDEX

MOVABLE = frozenset(
    f"tile.{name}" for name in ("dim", "program_id", "subview", "iadd", "isub", "imul", "idiv", "imod", "imin", "imax")
)
"""Ops that fetch may hold besides copies: they give the same in whichever step they run."""


def rings(op: Op) -> list[Value]:
    """The shared tiles that the pipeline fills, in order."""
    return [x.operands[0] for x in op.regions[0].block.ops if x.name == "tile.copy_async"]


def in_step(op: Op) -> bool:
    """Whether the op is in the body of a pipeline: then no copies but the fetched ones are in flight."""
    at = op.parent
    while at is not None and at.name != "tile.pipeline":
        at = at.parent
    return at is not None


@spec(
    "tile.pipeline",
    "A serial loop as tile.for; region 0 (counter) copies into rings of `stages` stages, ahead of region 1 (counter, "
    "carried values), which reads them.",
    effects=True,
    reading=replace(FOR, between="compute"),
)
def _pipeline(op: Op) -> None:
    demand(len(op.regions) == 2, op, "has two regions, fetch and body")
    fetch, body = (region.block for region in op.regions)
    carried = [v.type for v in op.operands[3:]]
    demand(all(v.type == INDEX for v in op.operands[:3]), op, "needs index bounds")
    demand([a.type for a in fetch.args] == [INDEX], op, "fetch takes the counter")
    demand([a.type for a in body.args] == [INDEX, *carried], op, "the body takes the counter and the carried values")
    demand([r.type for r in op.results] == carried, op, "results have the carried types")
    demand([v.type for v in body.terminator.operands] == carried, op, "the body yields the carried types")
    for x in fetch.ops[:-1]:
        demand(x.name in MOVABLE or x.name == "tile.copy_async", op, f"fetch holds {x.name}")
    for ring in rings(op):
        made = ring.op
        demand(made is not None and made.attrs.get("stages") == op.attrs.get("stages"), op, "fetch fills rings")
        demand(all(_within(user, op) for user in ring.users), op, "a ring is used inside its pipeline")
        demand(
            [x.operands[0] for x in op.walk() if x.name == "tile.copy_async"].count(ring) == 1, op, "one copy a ring"
        )
    copies = [x for x in body.ops for x in x.walk() if x.name == "tile.copy_async"]
    demand(not copies, op, "the body starts no copies: their arrival would be counted with the fetched ones")


def _within(op: Op, loop: Op) -> bool:
    at: Op | None = op
    while at is not None and at is not loop:
        at = at.parent
    return at is loop
