"""The ops of Schedule IR. A `schedule.group` is one kernel to be: its region holds the graph ops it computes.

Reading a group: `kind` says how it iterates, `space` over which sizes, `inner` which axes of the space stay inside one
program (they are reduced or scanned), `label` what it fuses, `apart` why it is not one group with those it reads. How
much of each axis a program takes is decided when the group is lowered, from the memory layout of its accesses
(blocks.py), and shows in the tile shapes of its kernel.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import DOC, verify_launch
from tessera.compiler.ir.spec import BRANCH, FUNCTION, WHILE, Reading, demand, spec
from tessera.compiler.schedule.refusals import notes

_APART = ("apart",)
KINDS = ("map", "row", "chunks", "contract", "join", "scatter", "put", "sort", "spectral", "table")
"""map: elementwise over the space; row: with reductions or scans over `inner`; chunks: one long reduction to a scalar
in two fixed stages; contract: a (batched) matrix product with an elementwise epilogue; join: copies into windows;
scatter: folds of segments, whose numbers may be computed elementwise; put: slices of a tensor replaced; sort: lines in
order."""


@spec(
    "schedule.func",
    "A function as a sequence of groups and views. attrs: sym_name, arg_names, target; block: rows and columns "
    "of its programs; states: as in graph.func.",
    effects=True,
    reading=FUNCTION,
)
def _func(op: Op) -> None:
    demand(isinstance(op.attrs.get("sym_name"), str), op, "needs sym_name")
    demand(
        op.region.block.ops and op.region.block.terminator.name == "schedule.return", op, "ends with schedule.return"
    )


@spec(
    "schedule.group",
    "One kernel: operands are its inputs, results its outputs, the region its graph ops.",
    effects=True,
    reading=Reading({"inner": ()}, covers=_APART, same=True, notes=notes),
)
def _group(op: Op) -> None:
    demand(op.attrs.get("kind") in KINDS, op, f"kind is one of {', '.join(KINDS)}")
    body = op.region.block
    demand([a.type for a in body.args] == [v.type for v in op.operands], op, "block arguments match the operands")
    demand([v.type for v in body.terminator.operands] == [r.type for r in op.results], op, "yields the results")


spec("schedule.launch", DOC, effects=True, reading=Reading(covers=_APART, notes=notes))(verify_launch)


@spec(
    "schedule.if",
    "Runs one of two regions of groups. Operand: a bool scalar; both regions yield the results.",
    effects=True,
    reading=replace(BRANCH, covers=_APART, notes=notes),
)
def _if(op: Op) -> None:
    demand(len(op.operands) == 1 and len(op.regions) == 2, op, "has a condition and two regions")
    for r in op.regions:
        demand(
            [v.type for v in r.block.terminator.operands] == [v.type for v in op.results],
            op,
            "regions yield the results",
        )


@spec(
    "schedule.while",
    "Operands: initial values. Region 0 yields whether to continue, region 1 the next values.",
    effects=True,
    reading=replace(WHILE, covers=_APART, notes=notes),
)
def _while(op: Op) -> None:
    carried = [v.type for v in op.operands]
    demand(len(op.regions) == 2 and [r.type for r in op.results] == carried, op, "results have the carried types")
    demand(
        [v.type for v in op.regions[1].block.terminator.operands] == carried, op, "region 1 yields the carried values"
    )


@spec(
    "schedule.yield",
    "Ends a region. Operands: the results of a group, a branch or a loop; none in a schedule.launch.",
    terminator=True,
    effects=True,
)
def _yield(op: Op) -> None:
    parents = ("schedule.group", "schedule.launch", "schedule.if", "schedule.while")
    demand(op.parent is not None and op.parent.name in parents, op, "is not inside a group, launch, branch or loop")


@spec("schedule.return", "Gives the function's results.", terminator=True, effects=True)
def _return(op: Op) -> None:
    demand(op.parent is None or op.parent.name == "schedule.func", op, "stands in no function")
